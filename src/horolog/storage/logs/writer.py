"""Makes a log grow: batches that have their offsets, with their append times, segment by segment.

There is no other way into a log of segments. A leader numbers and stamps what producers send before
it appends it here (logs/appendable.py). Batches of another log are appended as they are (`extend`).

Invariant: a segment holds what its files have room for, and no records of both sides of a reset
of append times. Logs that are exempt from retention do not roll by time.
"""

import logging
import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from horolog.buffers import Buffer
from horolog.config import TopicConfig
from horolog.errors import CorruptBatch
from horolog.record.batch import HEADER_SIZE
from horolog.record.markers import Marker
from horolog.record.stamped import stamped_head, stamped_sums
from horolog.storage.batches.log_file import SegmentEnd
from horolog.storage.files import Files
from horolog.storage.index.abort import AbortedTxn
from horolog.storage.logs.append_time_floor import AppendTimes
from horolog.storage.logs.epochs import LeaderEpochs
from horolog.storage.names import MAX_RELATIVE_OFFSET
from horolog.storage.producers.states import Producers
from horolog.storage.segments.active import ActiveSegment
from horolog.storage.segments.numbered import Numbered
from horolog.storage.segments.segment import Segment

if TYPE_CHECKING:
    from horolog.storage.segments.runs import NumberedRun

_logger = logging.getLogger(__name__)

WRITE_BYTES: Final = 4 << 20
"""Batches that are appended as they are go to the file in writes of this size."""


class LogWriter:
    """The active segment of a log and what comes after it; one thread at a time."""

    __slots__ = (
        "_append_times",
        "_cut",
        "_directory",
        "_epochs",
        "_files",
        "_producers",
        "_stamped",
        "_stamped_end",
        "_unsynced",
        "active",
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
        """Of a log that is open, or of segments that are to become part of one.

        Args:
            files: the way to the disk.
            directory: of the segments.
            active: the last one.
            append_times: the floor of the log's append times; None where it has none yet.
            epochs: its leader epochs; None where it has none yet.
            producers: who wrote it, up to its end; None if it is not asked which transactions were
                aborted.
        """
        self.active = active
        self._unsynced: list[Segment] = []  # that `extend` has written to
        self._files = files
        self._directory = directory
        self._append_times = append_times
        self._epochs = epochs
        self._producers = producers
        self._cut: ActiveSegment | None = None
        self._stamped_end: SegmentEnd | None = None  # behind the last batch of `append_stamped`
        self._stamped = _Stamped()

    @property
    def next_offset(self) -> int:
        """After the last batch."""
        return self.active.segment.end.next_offset

    def must_roll(
        self, batch: Numbered, config: TopicConfig, now_ms: int, *, by_time: bool
    ) -> bool:
        """Whether a batch begins a segment.

        Args:
            batch: that comes next.
            config: of the topic.
            now_ms: the clock.
            by_time: whether `segment.ms` counts, and of a compacted topic `max.compaction.lag.ms`.
        """
        active, floor = self.active, self._append_times
        end = active.segment.end
        if end.size == 0:  # only compaction of the other log leaves such a gap (KAFKA-6264)
            return batch.last_offset - active.segment.base_offset > MAX_RELATIVE_OFFSET
        if active is self._cut:
            return True  # readers may have what was cut off it open
        if floor is not None and floor.resets and end.next_offset <= floor.reset_offset:
            return True  # its records are from before the reset
        append_ms, timestamp = batch.append_ms, batch.max_timestamp
        if not active.has_room(batch.size, batch.last_offset, config.segment_bytes, append_ms):
            return True
        if not by_time:
            return False
        if batch.is_seen and not config.horolog_seen_as_append_time:
            append_ms = None
        age_ms = active.age_ms(config, timestamp, append_ms, now_ms)
        return age_ms > config.longest_segment_ms - active.jitter_ms

    def must_roll_idle(self, config: TopicConfig, now_ms: int) -> bool:
        """Whether the active segment's time is over, though nothing is appended."""
        active = self.active
        if not config.horolog_roll_idle or not active.segment.size:
            return False
        age_ms = active.age_ms(config, now_ms, now_ms, now_ms)
        return age_ms > config.longest_segment_ms - active.jitter_ms

    def append_stamped(
        self,
        records: Buffer,
        count: int,
        now_ms: int,
        leader_epoch: int,
        config: TopicConfig,
        *,
        by_time: bool,
    ) -> int:
        """Append the batch of `stamped_head` to the active segment, which is ready.

        Returns its bytes; 0, without any effect, if it may have to begin a segment. What
        `must_roll` asks of times is found once, for all such batches that follow one another.

        Args:
            records: of the batch.
            count: how many there are.
            now_ms: their time and the clock, not before `AppendTimes.next`, in milliseconds.
            leader_epoch: of the leader.
            config: as `must_roll` takes it.
            by_time: as well.

        Raises:
            StorageFailed: as `append`.
        """
        active, floor = self.active, self._append_times
        segment, size = active.segment, HEADER_SIZE + len(records)
        end = segment.end
        assert floor is not None
        known_config, known_by_time, until_ms = self._stamped
        if (
            end is not self._stamped_end
            or now_ms > until_ms
            or known_config is not config
            or known_by_time is not by_time
        ):
            until_ms = self._until_ms(now_ms, config, by_time=by_time)
            self._stamped = _Stamped(config, by_time, until_ms)
            if now_ms > until_ms:
                return 0
        base_offset = end.next_offset
        last_offset = base_offset + count - 1
        if not active.has_room(size, last_offset, config.segment_bytes):
            return 0
        head = stamped_head(
            records, count, now_ms, base_offset=base_offset, leader_epoch=leader_epoch
        )
        sums = stamped_sums(count, now_ms)
        parts = head, records
        active.append_counted(parts, size, base_offset, last_offset, now_ms, now_ms, sums)
        self._stamped_end = segment.end
        if now_ms != floor.last:
            floor.gave(now_ms)
        return size

    def _until_ms(self, now_ms: int, config: TopicConfig, *, by_time: bool) -> int:
        """Up to when a batch whose times are all the clock's begins no segment by its time."""
        active, base_offset = self.active, self.next_offset
        batch = Numbered((), 0, base_offset, base_offset, now_ms, -1, now_ms)
        if not active.segment.size or self.must_roll(batch, config, now_ms, by_time=by_time):
            return now_ms - 1
        if not by_time:
            return active.most_ms
        age_ms = active.age_ms(config, now_ms, now_ms, now_ms)
        left_ms = config.longest_segment_ms - active.jitter_ms - age_ms
        return min(now_ms + left_ms, active.most_ms)

    def append(self, batch: Numbered) -> None:
        """Append a batch to the active segment, which is ready and has room for it.

        Raises:
            StorageFailed: the disk refused; nothing of the batch is in the log.
        """
        self.active.append(batch)
        floor, append_ms = self._append_times, batch.append_ms
        if floor is not None and append_ms is not None and append_ms != floor.last:
            floor.gave(append_ms)

    def append_commit(self, batch: Numbered, marker: Marker, now_ms: int) -> None:
        """As `append`, of the marker of a commit; an abort has an entry in an index, too."""
        self.append(batch)
        assert self._producers is not None
        assert batch.header is not None
        self._producers.end(batch.header, marker, now_ms)

    def extend(
        self,
        batches: Iterable[Numbered],
        config: TopicConfig,
        now_ms: int = 0,
        *,
        by_time: bool = False,
        roll: Callable[[int], object] | None = None,
    ) -> None:
        """Append batches of another log: bytes, offsets, epochs and append times stay.

        Where append times go back, they were reset in the other log, and are here. Times when
        batches were seen are no different: a follower takes them from `AppendTimes.next`, and no
        later record gets an earlier append time. A transaction that a marker aborts is in the index
        of those before the marker can be read.

        Args:
            batches: in order, behind those that are there.
            config: how large segments become, and how dense their indexes are.
            now_ms: the clock, for a segment that begins.
            by_time: whether `segment.ms` counts.
            roll: ends the active segment and begins one at an offset, where a log has to know of
                it; else that is done here.

        Raises:
            StorageFailed: the disk refused; some of them may be in the log.
        """
        rules = _Rules(config, now_ms, by_time, roll or partial(self._roll, config, now_ms))
        some: list[Numbered] = []
        size = 0
        for batch in batches:
            if some and (size > WRITE_BYTES or not self._goes_with(some, size, batch, rules)):
                self._write(some, now_ms)
                some, size = [], 0
            if not some:
                self._make_room(batch, rules)
            if self._epochs is not None and batch.leader_epoch > self._epochs.latest:
                self._epochs.assign(batch.leader_epoch, batch.base_offset)
            some.append(batch)
            size += batch.size
        if some:
            self._write(some, now_ms)
        if roll is not None:
            self._unsynced.clear()  # the log syncs what it knows of

    def extend_runs(self, batches: "Iterable[Numbered | NumberedRun]", config: TopicConfig) -> None:
        """As `extend`, of segments that are to become part of a log, with runs of batches.

        Raises:
            StorageFailed: the disk refused; some of them may be in the log.
        """
        for are_single, some in groupby(batches, lambda each: isinstance(each, Numbered)):
            if are_single:
                self.extend(cast("Iterable[Numbered]", some), config)
                continue
            for run in cast("Iterable[NumberedRun]", some):
                self._make_room(run.first, _Rules(config, 0, False, partial(self._roll, config, 0)))
                if self.active.takes(run, config.segment_bytes):
                    self._will_sync()
                    self.active.append_run(run)
                else:
                    self.extend(run.each(), config)

    def _goes_with(self, some: list[Numbered], size: int, batch: Numbered, rules: "_Rules") -> bool:
        """Whether a batch can be written together with those before it, which have a size.

        Not if it rolls by time after what is written, nor while that is nothing to count from:
        `_make_room` decides it once they are written.
        """
        before_ms, append_ms = some[-1].append_ms, batch.append_ms
        if append_ms != before_ms and (
            append_ms is None or before_ms is None or append_ms < before_ms
        ):
            return False
        if rules.by_time and (
            not self.active.segment.size or self.must_roll(batch, *rules[:2], by_time=True)
        ):
            return False
        if self._producers is not None and batch.header is not None and batch.header.is_control:
            return False  # which transaction it ends is known once all before it is written
        size += batch.size
        return self.active.has_room(size, batch.last_offset, rules.config.segment_bytes, append_ms)

    def _make_room(self, batch: Numbered, rules: "_Rules") -> None:
        floor, append_ms = self._append_times, batch.append_ms
        if floor is not None and append_ms is not None and append_ms < floor.next(append_ms):
            floor.reset(batch.base_offset, append_ms)
        if self.must_roll(batch, *rules[:2], by_time=rules.by_time):
            # From the log end on: offsets that are in no segment would be those of a missing one.
            reaches = batch.last_offset - self.next_offset <= MAX_RELATIVE_OFFSET
            rules.roll(self.next_offset if reaches else batch.base_offset)
        self.active.make_ready(append_ms, is_counted=False)

    def _roll(self, config: TopicConfig, now_ms: int, base_offset: int) -> None:
        self.finish(base_offset)
        self.begin(base_offset, config, now_ms)

    def _write(self, batches: list[Numbered], now_ms: int) -> None:
        self._will_sync()
        self.active.append_all(batches, self._aborted_by(batches[0]))
        append_ms = batches[-1].append_ms
        if self._append_times is not None and append_ms is not None:
            self._append_times.gave(append_ms)
        self._note_producers(batches, now_ms)

    def _will_sync(self) -> None:
        segment = self.active.segment
        if not self._unsynced or self._unsynced[-1] is not segment:
            self._unsynced.append(segment)

    def _aborted_by(self, batch: Numbered) -> Sequence[AbortedTxn]:
        """The transaction that a batch aborts, if it holds the marker of one."""
        header = batch.header
        if self._producers is None or header is None or not header.is_control:
            return ()
        try:
            ended = self._producers.ended_by(header, b"".join(batch.parts))
        except CorruptBatch:
            return ()  # as recovery has it: `_note_producers` reports it
        entry = None if ended is None else ended.aborted
        return () if entry is None else (entry,)

    def _note_producers(self, batches: Sequence[Numbered], now_ms: int) -> None:
        producers = self._producers
        if producers is None:
            return
        for batch in batches:
            header = batch.header
            assert header is not None  # as of every batch of another log
            try:
                producers.replay(header, partial(b"".join, batch.parts), now_ms)
            except CorruptBatch as error:
                _logger.warning(
                    "%s: what producer %d wrote at offset %d cannot be read: %s",
                    self._directory,
                    header.producer_id,
                    header.base_offset,
                    error,
                )

    def replace(self, active: ActiveSegment, *, is_cut: bool) -> None:
        """Go on in another segment; behind one that was cut the next batch begins a new one."""
        self.active = active
        self._cut = active if is_cut else None
        self._stamped_end = None

    def finish(self, next_base: int | None = None) -> None:
        """Finish the active segment: `begin` follows, or nothing more.

        Args:
            next_base: where the next segment begins, which may be behind a gap.

        Raises:
            StorageFailed: the disk refused.
        """
        self.active.finish()
        if next_base is not None and next_base > self.next_offset:
            self.active.segment.indexes.note_left_out()
        if self._append_times is not None:
            self._append_times.save()
        if self._producers is not None and self.next_offset:  # Kafka snapshots nothing for nothing
            self._producers.write(self._files, self._directory, self.next_offset)

    def sync(self) -> None:
        """Wait until the disk has the segments that were appended to, which are finished.

        Raises:
            StorageFailed: the disk refused.
        """
        while self._unsynced:
            self._unsynced[0].sync(indexes=True)
            del self._unsynced[0]
        self._files.sync_path(self._directory)

    def begin(self, base_offset: int, config: TopicConfig, now_ms: int) -> Segment:
        """Begin an empty segment.

        Raises:
            StorageFailed: the disk refused; the active segment is as it was.
        """
        active = new_segment(self._files, self._directory, base_offset, config, now_ms)
        active.count_from(self.active.counts)
        self.active = active
        return active.segment


class _Stamped(NamedTuple):
    """Up to when `append_stamped` begins no segment by its time, and for what that was found."""

    config: TopicConfig | None = None
    by_time: bool = False
    until_ms: int = 0


class _Rules(NamedTuple):
    """How batches of another log are taken."""

    config: TopicConfig
    now_ms: int
    by_time: bool
    roll: Callable[[int], object]


def new_segment(
    files: Files, directory: str, base_offset: int, config: TopicConfig, now_ms: int
) -> ActiveSegment:
    """An empty segment to append to.

    Raises:
        StorageFailed: the disk refused.
    """
    return ActiveSegment.create(
        files, directory, base_offset, config, created_ms=now_ms, jitter_ms=_jitter_ms(config)
    )


def active_segment(
    files: Files, segment: Segment, config: TopicConfig, now_ms: int
) -> ActiveSegment:
    """A segment that is there, to be appended to."""
    return ActiveSegment(files, segment, config, created_ms=now_ms, jitter_ms=_jitter_ms(config))


def _jitter_ms(config: TopicConfig) -> int:
    """By how much earlier one segment ends: its share of `segment.jitter.ms`."""
    bound = min(config.segment_jitter_ms, config.longest_segment_ms)
    return random.randrange(bound) if bound > 0 else 0  # noqa: S311 - spreads rolls, no secret
