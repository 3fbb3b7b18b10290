"""Truncates a log: nothing that it loses is deleted, and readers get what they began to read.

    1  the records that go are copied, if the rest of their segment stays; a full disk ends it here.
       In a cluster nothing is set aside: every election truncates some replica
    2  readers see the shorter log; what they have open of a segment that goes or is cut stays
       readable as far as it is there, and nothing else of it can be opened
    3  the checkpoints of the log directory say no more than is left. In a cluster they do within
       seconds, and before a segment behind the new end is rolled (`truncated_to`)
    4  segments are set aside, the last one first; the one that stays is cut, and synced
    5  epochs, append times and producers become those of the records that are left

Invariant: a file that was cut is never appended to while a reader may have it open: the next batch
begins a segment. A kill at any point leaves a log that ends somewhere between the old end and the
new one, with checkpoints that are at most that. Where the disk refuses a step from 3 on, the log is
neither appended to nor closed cleanly until the rest has been done, which every write begins with.
"""

import logging
import os
from dataclasses import dataclass
from typing import NamedTuple

from horolog.storage import names
from horolog.storage.batches.log_file import SegmentEnd
from horolog.storage.index.builder import IndexBuilder
from horolog.storage.logs.appendable import AppendableLog
from horolog.storage.logs.writer import active_segment, new_segment
from horolog.storage.lookup.by_append_time import latest_append_time
from horolog.storage.producers.replay import replay
from horolog.storage.producers.states import remove_snapshot
from horolog.storage.removal.leftovers import base_offsets
from horolog.storage.removal.set_aside import keep_file, keep_stretch
from horolog.storage.segments.reader import Kept
from horolog.storage.segments.segment import Segment

_logger = logging.getLogger(__name__)


class _Going(NamedTuple):
    """A segment that goes as a whole."""

    segment: Segment
    times: bytes | None
    """Certain append times of the records, packed."""


class _Cut(NamedTuple):
    """The segment that stays, cut."""

    segment: Segment
    facts: IndexBuilder
    companion: Kept
    """Companion data from before the cut."""


@dataclass(slots=True)
class _Truncation:
    """Remaining work of a truncation."""

    going: list[_Going]
    """In offset order; none is left once they are set aside."""
    cut: _Cut | None
    now_ms: int
    anew: bool
    """Whether what is known of producers and epochs goes, too."""
    needs_checkpoint: bool = False


class Truncator:
    """Truncates one log, which is an argument of each call, and keeps the remaining work.

    No write to the log, and no flush, runs during a call.
    """

    __slots__ = ("_truncation",)

    def __init__(self) -> None:
        self._truncation: _Truncation | None = None

    @property
    def is_unfinished(self) -> bool:
        """True if the disk has refused a truncation half-way."""
        return self._truncation is not None

    def truncate_to(self, log: AppendableLog, offset: int, now_ms: int) -> None:
        """Truncate the log before the batch that holds an offset."""
        self._begin(log, *_parted(log, offset, now_ms), offset, now_ms)
        self.finish(log)

    def truncate_fully(self, log: AppendableLog, start_offset: int, now_ms: int) -> None:
        """Remove all records from the log, which then starts and ends at an offset."""
        going = [_going(segment) for segment in log.segments]
        self._begin(log, going, None, start_offset, now_ms, anew=True)
        self.finish(log)

    def _begin(
        self,
        log: AppendableLog,
        going: list[_Going],
        cut: _Cut | None,
        offset: int,
        now_ms: int,
        *,
        anew: bool = False,
    ) -> None:
        """Publish the shorter log to readers, and keep the remaining work of the truncation."""
        log.is_settled = False
        log.truncations += 1
        before, config = log.segments, log.config
        truncation = _Truncation(going, cut, now_ms, anew=anew)
        if cut is None:
            offset = offset if anew else min(offset, before[0].base_offset)
            last = Segment(log.files, log.directory, offset, config, size=0, has_aborted=False)
            last.end = SegmentEnd(0, offset)
            kept: tuple[Segment, ...] = ()
        else:
            last = cut.segment
            kept = tuple(segment for segment in before if segment.base_offset < last.base_offset)
        end = last.end.next_offset
        recovery_point, high_watermark = log.flusher.recovery_point, log.known_high_watermark or 0
        marks = log.log_start_offset, high_watermark, log.cleaner_point or 0
        if not log.is_of_cluster:
            truncation.needs_checkpoint = anew or max(recovery_point, *marks) > end
        else:
            truncation.needs_checkpoint = max(marks) > end
            if recovery_point > end:
                log.truncated_to = end
            _log_truncation(log, end, anew=anew)
        active = active_segment(log.files, last, config, now_ms)
        active.count_from(log.active.counts)
        log.writer.replace(active, is_cut=cut is not None)
        self._truncation, log.segments = truncation, (*kept, last)
        for segment in before[len(kept) :]:
            segment.abandon()
        if anew or log.log_start_offset > end:
            log.log_start_offset = end
        if log.known_high_watermark is not None:
            log.known_high_watermark = end if anew else min(log.known_high_watermark, end)
        log.flusher.recovery_point = min(log.flusher.recovery_point, end)
        log.cleaning_to = 0 if anew else min(log.cleaning_to, end)
        if log.cleaner_point is not None:
            log.cleaner_point = None if anew else min(log.cleaner_point, end)

    def finish(self, log: AppendableLog) -> None:
        """Complete a truncation. Each step may be repeated, and no flush runs meanwhile."""
        truncation = self._truncation
        if truncation is None:
            return
        end_offset = log.log_end_offset
        if truncation.anew:
            # First: a log start elsewhere would bring back snapshots and epochs.
            for offset in _snapshots(log):
                remove_snapshot(log.files, log.directory, offset)
            log.epochs.truncate_from_end(0)
        if truncation.needs_checkpoint:
            log.checkpoint()
            truncation.needs_checkpoint = False
        _set_aside_going(log, truncation)
        if truncation.cut is None:
            _begin_segment(log, end_offset, truncation.now_ms)
        else:
            _cut(log, truncation.cut)
        log.epochs.truncate_from_end(end_offset)
        truncate_append_times(log, end_offset)
        kept = (
            transaction for transaction in log.said_unended if transaction.first_offset < end_offset
        )
        log.said_unended = frozenset(kept)
        _replay_producers(log, truncation.now_ms)
        self._truncation = None


def _parted(log: AppendableLog, offset: int, now_ms: int) -> tuple[list[_Going], _Cut | None]:
    """Return the segments that go as a whole, and the remainder of the segment before them."""
    count = len([segment for segment in log.segments if segment.base_offset < offset])
    while count:
        segment = log.segments[count - 1]
        found = segment.locate(offset)
        position = segment.size if found is None else found[0]
        if position:
            break
        count -= 1
    going = [_going(gone) for gone in log.segments[count:]]
    return going, _cut_at(log, segment, position, now_ms) if count else None


def _going(segment: Segment) -> _Going:
    return _Going(segment, segment.append_times.kept_from(segment.base_offset))


def _cut_at(log: AppendableLog, segment: Segment, position: int, now_ms: int) -> _Cut:
    facts, size = segment.indexes.scan(position), segment.size
    if position < size and not log.is_of_cluster:
        times = segment.append_times.kept_from(facts.next_offset)
        file = segment.log.open()
        kept = keep_stretch(log.files, file, position, size, now_ms, times)
        _set_aside(log, kept, facts.next_offset, size - position)
    cut = Segment(log.files, log.directory, segment.base_offset, log.config, size=position)
    cut.end = SegmentEnd(position, facts.next_offset)
    return _Cut(cut, facts, segment.companion_before_cut())


def _log_truncation(log: AppendableLog, end_offset: int, *, anew: bool) -> None:
    if end_offset < log.high_watermark:
        _logger.error(
            "%s is truncated from offset %d to %d, below its high watermark %d: its leader has "
            "lost records that were acknowledged, or was elected without them",
            log,
            log.log_end_offset,
            end_offset,
            log.high_watermark,
        )
    elif anew:
        _logger.info("%s is emptied: its leader's log starts at offset %d", log, end_offset)
    else:
        _logger.info(
            "%s is truncated from offset %d to %d: its leader does not have what follows",
            log,
            log.log_end_offset,
            end_offset,
        )


def _set_aside(log: AppendableLog, path: str, offset: int, size: int) -> None:
    log.removed_files.add_set_aside(os.path.basename(path))
    _logger.warning(
        "%s is truncated: its leader never had the %d bytes from offset %d on, or has lost "
        "them. They are set aside in %s; `horolog log verify` says what it holds and how to "
        "bring it back",
        log,
        size,
        offset,
        path,
    )


def _set_aside_going(log: AppendableLog, truncation: _Truncation) -> None:
    while truncation.going:
        segment, times = truncation.going[-1]
        path = segment.log.path
        if segment.size and not log.is_of_cluster and log.files.exists(path):
            kept = keep_file(log.files, path, path, truncation.now_ms, times)
            _set_aside(log, kept, segment.base_offset, segment.size)
        for suffix in names.SEGMENT_SUFFIXES:
            log.files.remove(segment.path_of(suffix))
        truncation.going.pop()
    log.files.sync_path(log.directory)


def _begin_segment(log: AppendableLog, base_offset: int, now_ms: int) -> None:
    active = new_segment(log.files, log.directory, base_offset, log.config, now_ms)
    active.count_from(log.active.counts)
    log.writer.replace(active, is_cut=False)
    log.segments = (active.segment,)
    log.flusher.has_new_names = True


def _cut(log: AppendableLog, cut: _Cut) -> None:
    segment = cut.segment
    segment.adopt(cut.facts)
    segment.forget_aborted_from(segment.end.next_offset)
    segment.cut_companion(cut.companion)  # before the log: a kill leaves what is true of it
    log.files.truncate(segment.log.open(), segment.size)
    segment.sync(indexes=True)


def truncate_append_times(log: AppendableLog, end_offset: int) -> None:
    """Forget append times and resets that are not of the records up to the log end."""
    times = log.floor
    times.truncate(end_offset, with_records=log.is_following)
    if log.is_following:
        times.last = latest_append_time(log.segments)
    times.save()


def _replay_producers(log: AppendableLog, now_ms: int) -> None:
    replay(
        log.files,
        log.directory,
        log.segments,
        log.producers,
        _snapshots(log),
        now_ms,
        log.known_high_watermark,
    )
    log.find_unstable()


def _snapshots(log: AppendableLog) -> list[int]:
    return base_offsets(log.files.names_in(log.directory), names.SNAPSHOT)
