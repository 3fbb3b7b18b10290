"""Truncates a log: nothing that it loses is deleted, and readers get what they began to read.

    1  the records that go are copied, if the rest of their segment stays; a full disk ends it here
    2  readers see the shorter log; what they have open of a segment that goes or is cut stays
       readable as far as it is there, and nothing else of it can be opened
    3  the checkpoints of the log directory say no more than is left
    4  segments are set aside, the last one first; the one that stays is cut, and synced
    5  epochs, append times and producers become those of the records that are left

Invariant: a file that was cut is never appended to while a reader may have it open: the next batch
begins a segment. A kill at any point leaves a log that ends somewhere between the old end and the
new one, with checkpoints that are at most that. Where the disk refuses a step from 3 on, the log is
neither appended to nor closed cleanly until the rest has been done, which every write begins with.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from horolog.storage import names
from horolog.storage.batches.log_file import SegmentEnd
from horolog.storage.index.builder import IndexBuilder
from horolog.storage.logs.appendable import AppendableLog
from horolog.storage.logs.readable import LogParts
from horolog.storage.logs.writer import active_segment, new_segment
from horolog.storage.lookup.by_append_time import latest_append_time
from horolog.storage.producers.replay import replay
from horolog.storage.producers.states import remove_snapshot
from horolog.storage.removal.leftovers import base_offsets
from horolog.storage.removal.removed_files import RemovedFiles
from horolog.storage.removal.set_aside import keep_file, keep_stretch
from horolog.storage.segments.reader import Kept
from horolog.storage.segments.segment import Segment

_logger = logging.getLogger(__name__)


class _Going(NamedTuple):
    """A segment that goes as a whole."""

    segment: Segment
    times: bytes | None
    """What is sure of its append times."""


class _Cut(NamedTuple):
    """The segment that stays, cut."""

    segment: Segment
    facts: IndexBuilder
    companion: Kept
    """Of before."""


@dataclass(slots=True)
class _Truncation:
    """What is left to do of one truncation."""

    going: list[_Going]
    """In offset order; none is left once they are set aside."""
    cut: _Cut | None
    now_ms: int
    anew: bool
    """Whether what is known of producers and epochs goes, too."""
    needs_checkpoint: bool = False


class TruncatingLog(AppendableLog):
    """See the module."""

    def __init__(self, parts: LogParts) -> None:
        super().__init__(parts)
        self.topic_id = parts.topic_id
        self.removed_files = RemovedFiles(parts.files, parts.directory, parts.set_aside)
        """What is no part of the log any more, and still in its directory."""
        self.checkpoint: Callable[[], None] = lambda: None
        """Writes the checkpoints of the log directory; of a log that has none, nothing."""
        self.cleaner_point = parts.cleaner_point
        """All records before this offset were cleaned; None if it never was."""
        self.truncations = 0
        """How many have begun: what was read before one may not be in the log any more."""
        self._truncation: _Truncation | None = None

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Take the batch that holds `offset` and all that follow out of the log.

        The log end is then the end of the last batch that stays, which is before `offset`
        where that was within a batch or a gap. (Kafka calls the offset itself the end, and has a
        gap.) What goes is set aside, and named in a warning.

        Raises:
            StorageFailed: the disk refused. The log is as it was, or ends there, and the rest is
                tried again before anything is written to it.
            CorruptBatch: the segment that stays is damaged before that offset.
        """
        with self._exclusively(), self._flusher.truncating():
            if offset < self.log_end_offset:
                self._begin(*self._parted(offset, now_ms), offset, now_ms)
                self._finish_truncation()

    def truncate_fully(self, start_offset: int, now_ms: int) -> None:
        """Take everything out of the log, which then starts and ends at an offset.

        Raises:
            StorageFailed: as `truncate_to`.
        """
        with self._exclusively(), self._flusher.truncating():
            going = [self._going(segment) for segment in self.segments]
            self._begin(going, None, start_offset, now_ms, anew=True)
            self._finish_truncation()

    def _finish_pending(self) -> None:
        super()._finish_pending()
        if self._truncation is not None:
            with self._flusher.truncating():
                self._finish_truncation()

    # Planning, which leaves the log as it is.

    def _parted(self, offset: int, now_ms: int) -> tuple[list[_Going], _Cut | None]:
        """What goes as a whole, and what stays of the segment before that, if anything does."""
        count = len([each for each in self.segments if each.base_offset < offset])
        while count:
            segment = self.segments[count - 1]
            found = segment.locate(offset)
            position = segment.size if found is None else found[0]
            if position:
                break
            count -= 1
        going = [self._going(each) for each in self.segments[count:]]
        return going, self._cut_at(segment, position, now_ms) if count else None

    def _going(self, segment: Segment) -> _Going:
        return _Going(segment, segment.append_times.kept_from(segment.base_offset))

    def _cut_at(self, segment: Segment, position: int, now_ms: int) -> _Cut:
        facts, size = segment.indexes.scan(position), segment.size
        if position < size:
            times = segment.append_times.kept_from(facts.next_offset)
            file = segment.log.open()
            kept = keep_stretch(self.files, file, position, size, now_ms, times)
            self._set_aside(kept, facts.next_offset, size - position)
        cut = Segment(self.files, self.directory, segment.base_offset, self.config, size=position)
        cut.end = SegmentEnd(position, facts.next_offset)
        return _Cut(cut, facts, segment.companion_before_cut())

    def _set_aside(self, path: str, offset: int, size: int) -> None:
        self.removed_files.add_set_aside(os.path.basename(path))
        _logger.warning(
            "%s is truncated: its leader never had the %d bytes from offset %d on, or has lost "
            "them. They are set aside in %s; `horolog log verify` says what it holds and how to "
            "bring it back",
            *(self, size, offset, path),
        )

    # Carrying it out.

    def _begin(
        self,
        going: list[_Going],
        cut: _Cut | None,
        offset: int,
        now_ms: int,
        *,
        anew: bool = False,
    ) -> None:
        """Let readers see the shorter log, and the log remember what is left to do."""
        self._is_settled = False
        self.truncations += 1
        before, config = self.segments, self.config
        truncation = _Truncation(going, cut, now_ms, anew=anew)
        if cut is None:
            offset = offset if anew else min(offset, before[0].base_offset)
            last = Segment(self.files, self.directory, offset, config, size=0, has_aborted=False)
            last.end = SegmentEnd(0, offset)
            kept: tuple[Segment, ...] = ()
        else:
            last = cut.segment
            kept = tuple(each for each in before if each.base_offset < last.base_offset)
        end = last.end.next_offset
        marks = (
            self._flusher.recovery_point,
            self.log_start_offset,
            self._high_watermark or 0,
            self.cleaner_point or 0,
        )
        truncation.needs_checkpoint = anew or max(marks) > end
        active = active_segment(self.files, last, config, now_ms)
        active.count_from(self.active.counts)
        self._writer.replace(active, is_cut=cut is not None)
        self._truncation, self.segments = truncation, (*kept, last)
        for segment in before[len(kept) :]:
            segment.abandon()
        if anew or self.log_start_offset > end:
            self.log_start_offset = end
        if self._high_watermark is not None:
            self._high_watermark = end if anew else min(self._high_watermark, end)
        self._flusher.recovery_point = min(self._flusher.recovery_point, end)
        if self.cleaner_point is not None:
            self.cleaner_point = None if anew else min(self.cleaner_point, end)

    def _finish_truncation(self) -> None:
        """Do what is left of it; each step may be repeated."""
        truncation = self._truncation
        assert truncation is not None
        end_offset = self.log_end_offset
        if truncation.anew:
            self._forget_all()
        if truncation.needs_checkpoint:
            self.checkpoint()
            truncation.needs_checkpoint = False
        self._set_aside_going(truncation)
        if truncation.cut is None:
            self._begin_segment(end_offset, truncation.now_ms)
        else:
            self._cut(truncation.cut)
        self.epochs.truncate_from_end(end_offset)
        self._truncate_append_times(end_offset)
        kept = (each for each in self._said_unended if each.first_offset < end_offset)
        self._said_unended = frozenset(kept)
        self._replay_producers(truncation.now_ms)
        self._truncation = None

    def _forget_all(self) -> None:
        """Before the checkpoints say that it begins elsewhere: there this would count, too."""
        for offset in self._snapshots():
            remove_snapshot(self.files, self.directory, offset)
        self.epochs.truncate_from_end(0)

    def _set_aside_going(self, truncation: _Truncation) -> None:
        while truncation.going:
            segment, times = truncation.going[-1]
            path = segment.log.path
            if segment.size and self.files.exists(path):
                kept = keep_file(self.files, path, path, truncation.now_ms, times)
                self._set_aside(kept, segment.base_offset, segment.size)
            for suffix in names.SEGMENT_SUFFIXES:
                self.files.remove(segment.path_of(suffix))
            truncation.going.pop()
        self.files.sync_path(self.directory)

    def _begin_segment(self, base_offset: int, now_ms: int) -> None:
        active = new_segment(self.files, self.directory, base_offset, self.config, now_ms)
        active.count_from(self.active.counts)
        self._writer.replace(active, is_cut=False)
        self.segments = (active.segment,)
        self._flusher.has_new_names = True

    def _cut(self, cut: _Cut) -> None:
        segment = cut.segment
        segment.adopt(cut.facts)
        segment.forget_aborted_from(segment.end.next_offset)
        segment.cut_companion(cut.companion)  # before the log: a kill leaves what is true of it
        self.files.truncate(segment.log.open(), segment.size)
        segment.sync(indexes=True)

    def _truncate_append_times(self, end_offset: int) -> None:
        times = self._append_times
        times.truncate(end_offset, with_records=self.is_following)
        if self.is_following:
            times.last = latest_append_time(self.segments)
        times.save()

    def _replay_producers(self, now_ms: int) -> None:
        replay(
            self.files,
            self.directory,
            self.segments,
            self.producers,
            self._snapshots(),
            now_ms,
            self._high_watermark,
        )
        self._find_unstable()

    def _snapshots(self) -> list[int]:
        return base_offsets(self.files.names_in(self.directory), names.SNAPSHOT)

    def _find_unstable(self) -> None:
        """Find the first transaction whose end is not below the high watermark.

        One that is open here, and that the source says no marker ends, counts as it does there.
        It is named among those before the last stable offset passes it.
        """
        if self.is_following:
            is_open = self.producers.is_open
            self._unended = tuple(each for each in self._said_unended if is_open(*each[:2]))
        super()._find_unstable()
