"""Makes a log grow: batches that have their offsets, with their append times, segment by segment.

There is no other way into a log of segments. A leader numbers and stamps what producers send before
it appends it here (logs/appendable.py). Batches of another log are appended as they are.

Invariant: a segment holds what its files have room for, and no records of both sides of a reset
of append times. Logs that are exempt from retention do not roll by time.
"""

import logging
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from horolog.config import TopicConfig
from horolog.errors import CorruptBatch, StorageFailed
from horolog.record.batch import BatchHeader
from horolog.record.markers import Marker, read_marker
from horolog.storage.file_errors import WouldBlock
from horolog.storage.files import Files
from horolog.storage.logs.append_time_floor import AppendTimes
from horolog.storage.logs.epochs import LeaderEpochs
from horolog.storage.names import MAX_RELATIVE_OFFSET
from horolog.storage.producers.states import Producers
from horolog.storage.segments.active import ActiveSegment
from horolog.storage.segments.numbered import NO_PARTICULARS, Numbered
from horolog.storage.segments.segment import Segment

if TYPE_CHECKING:
    from horolog.storage.segments.runs import NumberedRun

_logger = logging.getLogger(__name__)

WRITE_BYTES: Final = 4 << 20
"""Batches that are appended as they are go to the file in writes of this size."""


class LogWriter:
    """Writes to the active segment of a log and begins the next ones; one thread at a time.

    Methods raise StorageFailed where the disk refuses.
    """

    __slots__ = (
        "_append_times",
        "_cut",
        "_directory",
        "_epochs",
        "_files",
        "_producers",
        "active",
        "begun",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        active: ActiveSegment,
        *,
        append_times: AppendTimes | None = None,
        epochs: LeaderEpochs | None = None,
        producers: Producers | None = None,
    ) -> None:
        """Write to an open log, or to segments that are to become part of one.

        Args:
            append_times: the floor of the log's append times; None where it has none yet.
            epochs: its leader epochs; None where it has none yet.
            producers: who wrote it, up to its end; None if it is not asked which transactions were
                aborted.
        """
        self.active = active
        self.begun: list[Segment] = [active.segment]
        """The first segment and those that followed, until the owner takes them from here."""
        self._files = files
        self._directory = directory
        self._append_times = append_times
        self._epochs = epochs
        self._producers = producers
        self._cut: ActiveSegment | None = None

    @property
    def next_offset(self) -> int:
        """After the last batch."""
        return self.active.segment.end.next_offset

    def must_roll(self, batch: Numbered, config: TopicConfig, now_ms: int, by_time: bool) -> bool:
        """Return True if a batch has to begin a new segment.

        Args:
            by_time: whether `segment.ms` counts, and of a compacted topic `max.compaction.lag.ms`.
        """
        active, floor, append_ms = self.active, self._append_times, batch.append_ms
        end = active.segment.end
        if end.size == 0:  # only compaction of the other log leaves such a gap (KAFKA-6264)
            return batch.last_offset - active.segment.base_offset > MAX_RELATIVE_OFFSET
        if active is self._cut:
            return True  # readers may have what was cut off it open
        if floor is not None and floor.resets and end.next_offset <= floor.reset_offset:
            return True  # its records are from before the reset
        if not active.has_room(batch.size, batch.last_offset, config.segment_bytes, append_ms):
            return True
        if not by_time:
            return False
        if batch.particulars.is_seen and not config.horolog_seen_as_append_time:
            append_ms = None
        age_ms = active.age_ms(config, batch.max_timestamp, append_ms, now_ms)
        return age_ms > config.longest_segment_ms - active.jitter_ms

    def must_roll_idle(self, config: TopicConfig, now_ms: int) -> bool:
        """Return True if the active segment has to end by its age, without an append."""
        active = self.active
        if not config.horolog_roll_idle or not active.segment.size:
            return False
        age_ms = active.age_ms(config, now_ms, now_ms, now_ms)
        return age_ms > config.longest_segment_ms - active.jitter_ms

    def append(
        self,
        batches: "Numbered | Iterable[Numbered | NumberedRun]",
        config: TopicConfig,
        now_ms: int = 0,
        by_time: bool = False,
        may_block: bool = True,
    ) -> None:
        """Append a batch, or several in order, behind those in the log.

        Where append times go back, they were reset in another log, and are here. Times when
        batches were seen are no different: a follower takes them from `AppendTimes.next`, and no
        later record gets an earlier append time. A transaction that a marker aborts is in the index
        of those before the marker can be read.

        Args:
            batches: one, or an iterable of at least one; of several the append may block.
            config: how large segments become, and how dense their indexes are.
            now_ms: the clock, for a segment that begins.
            may_block: whether files may be opened and segments begin; otherwise there is no effect.

        Raises:
            WouldBlock: the append would block, and may not; there is no effect.
            StorageFailed: the disk refused; some of them may be in the log, but none in part.
        """
        if not isinstance(batches, Numbered):
            for run in self._runs(batches, config, now_ms, by_time):
                self._append_noted(run, now_ms)
            return
        if may_block:
            self._make_room(batches, config, now_ms, by_time)
        elif not self.active.takes(batches, config, by_time):
            self._look_for_room(batches, config, now_ms, by_time)
        if batches.particulars is not NO_PARTICULARS:
            self._append_noted([batches], now_ms)
            return
        floor, append_ms = self._append_times, batches.append_ms
        self.active.append(batches)
        if floor is not None and append_ms != floor.last and append_ms is not None:
            floor.gave(append_ms)

    def is_within_bounds(self, batch: Numbered, config: TopicConfig, *, by_time: bool) -> bool:
        """Return True if no file, age or epoch has to be looked at for a batch of another log."""
        floor, append_ms, particulars = self._append_times, batch.append_ms, batch.particulars
        header = particulars.header
        return not (
            particulars.is_seen
            or particulars.messages is not None
            or header is None
            or header.is_control
            or append_ms is None
            or (floor is not None and append_ms < floor.next(append_ms))
            or not self.active.takes(batch, config, by_time)
        )

    def append_within_bounds(self, batch: Numbered, now_ms: int) -> None:
        """Append a batch that is within bounds; raises StorageFailed as `append` does."""
        self._append_noted([batch], now_ms)

    def _look_for_room(
        self, batch: Numbered, config: TopicConfig, now_ms: int, by_time: bool
    ) -> None:
        """Raise WouldBlock unless a batch can be appended without opening files or a roll."""
        active, epochs = self.active, self._epochs
        if (
            not active.is_ready(batch.append_ms)
            or (epochs is not None and batch.leader_epoch > epochs.latest)
            or self.must_roll(batch, config, now_ms, by_time)
        ):
            raise WouldBlock
        active.bound(batch, config, by_time)

    def takes_at_once(
        self, batches: Sequence[Numbered], config: TopicConfig, now_ms: int, by_time: bool
    ) -> bool:
        """Return True if batches can be appended without opening files, a roll or a new epoch.

        Control batches cannot: the index of aborted transactions may have to be opened.
        """
        floor, epochs = self._append_times, self._epochs
        size, times = 0, dict.fromkeys(batch.append_ms for batch in batches)
        if not all(map(self.active.is_ready, times)) or self.must_roll(
            batches[0], config, now_ms, by_time
        ):
            return False
        for place, batch in enumerate(batches):
            header, append_ms = batch.particulars.header, batch.append_ms
            if (
                (header is not None and header.is_control)
                or (epochs is not None and batch.leader_epoch > epochs.latest)
                or (floor and append_ms is not None and append_ms < floor.next(append_ms))
                or size > WRITE_BYTES
            ):
                return False
            before = list(batches[max(place - 1, 0) : place])
            if before and not self._goes_with(before, size, batch, config, now_ms, by_time=by_time):
                return False
            size += batch.size
        return self.active.has_room(
            size, batches[-1].last_offset, config.segment_bytes, batches[-1].append_ms
        )

    def _runs(
        self,
        batches: "Iterable[Numbered | NumberedRun]",
        config: TopicConfig,
        now_ms: int,
        by_time: bool,
    ) -> Iterator[list[Numbered]]:
        """Yield runs of batches that are written at once.

        There is room for each. Those that are columns already are written here.
        """
        run: list[Numbered] = []
        size = 0
        for batch in batches:
            first = batch if isinstance(batch, Numbered) else batch.first
            if run and (
                first is not batch
                or size > WRITE_BYTES
                or not self._goes_with(run, size, first, config, now_ms, by_time=by_time)
            ):
                yield run
                run, size = [], 0
            if not run:
                self._make_room(first, config, now_ms, by_time)
            if isinstance(batch, Numbered):
                run.append(batch)
                size += batch.size
            elif self.active.takes_run(batch, config.segment_bytes):
                self.active.append(batch)
            else:
                yield from self._runs(batch.each(), config, now_ms, by_time)
        if run:
            yield run

    def _goes_with(
        self,
        some: list[Numbered],
        size: int,
        batch: Numbered,
        config: TopicConfig,
        now_ms: int,
        *,
        by_time: bool,
    ) -> bool:
        """Return True if a batch can be written together with the batches before it.

        Not if it rolls by time after what is written, nor while that is nothing to count from:
        That is decided once they are written.
        """
        before_ms, append_ms = some[-1].append_ms, batch.append_ms
        if append_ms != before_ms and (
            append_ms is None or before_ms is None or append_ms < before_ms
        ):
            return False
        header, _, is_seen, _ = batch.particulars
        if (
            by_time
            and (is_seen or not self.active.takes(batch, config, True))
            and (not self.active.segment.size or self.must_roll(batch, config, now_ms, True))
        ):
            return False
        if self._producers is not None and header is not None and header.is_control:
            return False  # which transaction it ends is known once all before it is written
        size += batch.size
        return self.active.has_room(size, batch.last_offset, config.segment_bytes, append_ms)

    def _make_room(self, batch: Numbered, config: TopicConfig, now_ms: int, by_time: bool) -> None:
        """Prepare the active segment for a batch, and roll it if needed."""
        floor, append_ms, is_counted = self._append_times, batch.append_ms, batch.counts is not None
        if is_counted:  # first, for the files of its own log say whether there is room
            self.active.make_ready(append_ms)
        if floor is not None and append_ms is not None and append_ms < floor.next(append_ms):
            floor.reset(batch.base_offset, append_ms)
        if self.must_roll(batch, config, now_ms, by_time):
            # From the log end on: offsets that are in no segment would be those of a missing one.
            reaches = batch.last_offset - self.next_offset <= MAX_RELATIVE_OFFSET
            self.roll(self.next_offset if reaches else batch.base_offset, config, now_ms)
        self.active.make_ready(append_ms, is_counted=is_counted)
        if append_ms is not None and not batch.particulars.is_seen:
            self.active.bound(batch, config, by_time)
        self._begin_epoch(batch)

    def _begin_epoch(self, batch: Numbered) -> None:
        epochs = self._epochs
        if epochs is not None and batch.leader_epoch > epochs.latest:
            epochs.assign(batch.leader_epoch, batch.base_offset)

    def _append_noted(self, run: list[Numbered], now_ms: int) -> None:
        """Append batches; note append times, epochs, and what headers say of producers."""
        producers, floor, append_ms = self._producers, self._append_times, run[-1].append_ms
        header, _, _, marker = run[0].particulars
        aborted = None
        if header is not None and header.is_control and producers is not None:
            marker = marker or self._read_marker(header, run[0])
            ended = marker and producers.ended_by(header, marker)
            aborted = ended and ended.aborted
        try:
            for batch in run[1:]:
                self._begin_epoch(batch)
            self.active.append(run, () if aborted is None else (aborted,))
        except StorageFailed:
            if self._epochs is not None:  # of records that are not in the log
                self._epochs.truncate_from_end(self.next_offset + 1, write=False)
            raise
        if floor is not None and append_ms is not None and append_ms != floor.last:
            floor.gave(append_ms)
        if producers is None:
            return
        if header is not None and marker is not None:
            producers.end(header, marker, now_ms)
        for batch in run:
            header = batch.particulars.header
            if header is not None and not header.is_control:
                producers.replay(header, _no_marker, now_ms)

    def _read_marker(self, header: BatchHeader, batch: Numbered) -> Marker | None:
        """Return the marker in a control batch; None if it cannot be read."""
        try:
            return read_marker(b"".join(batch.parts))
        except CorruptBatch as error:
            _logger.warning(
                "%s: what producer %d wrote at offset %d cannot be read: %s",
                self._directory,
                header.producer_id,
                header.base_offset,
                error,
            )
            return None

    def replace(self, active: ActiveSegment, *, is_cut: bool) -> None:
        """Continue in another segment.

        Behind a segment that was cut the next batch begins a new one.
        """
        self.active = active
        self._cut = active if is_cut else None

    def finish(self, next_base: int | None = None) -> None:
        """Finish the active segment, after which nothing is appended to it.

        Args:
            next_base: where the next segment begins, which may be behind a gap.
        """
        self.active.finish()
        if next_base is not None and next_base > self.next_offset:
            self.active.segment.indexes.note_left_out()
        if self._append_times is not None:
            self._append_times.save()
        if self._producers is not None and self.next_offset:  # Kafka snapshots nothing for nothing
            self._producers.write(self._files, self._directory, self.next_offset)

    def sync(self) -> None:
        """Wait until the disk has the segments that were begun, which are all finished."""
        while self.begun:
            self.begun[0].sync(indexes=True)
            del self.begun[0]
        self._files.sync_path(self._directory)

    def roll(self, base_offset: int, config: TopicConfig, now_ms: int) -> None:
        """Finish the active segment and begin one, at its end or behind a gap.

        Raises:
            StorageFailed: the disk refused; the active segment is the one before.
        """
        self.finish(base_offset)
        active = new_segment(self._files, self._directory, base_offset, config, now_ms)
        active.count_from(self.active.counts)
        self.active = active
        self.begun.append(active.segment)


def _no_marker() -> bytes:
    raise AssertionError("control batches are not replayed")


def new_segment(
    files: Files, directory: str, base_offset: int, config: TopicConfig, now_ms: int
) -> ActiveSegment:
    """Create an empty segment to append to.

    Raises:
        StorageFailed: the disk refused.
    """
    return ActiveSegment.create(
        files, directory, base_offset, config, created_ms=now_ms, jitter_ms=_jitter_ms(config)
    )


def active_segment(
    files: Files, segment: Segment, config: TopicConfig, now_ms: int
) -> ActiveSegment:
    """Open an existing segment to append to it."""
    return ActiveSegment(files, segment, config, created_ms=now_ms, jitter_ms=_jitter_ms(config))


def _jitter_ms(config: TopicConfig) -> int:
    """Return by how much earlier one segment ends: a random share of `segment.jitter.ms`."""
    bound = min(config.segment_jitter_ms, config.longest_segment_ms)
    return random.randrange(bound) if bound > 0 else 0  # noqa: S311 - spreads rolls, no secret
