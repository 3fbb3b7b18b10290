"""Records of any log as Python objects, for commands that print them or send them on; no Arrow."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Self

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, Damaged, Misconfigured, StorageFailed
from horolog.record.batch import BatchHeader
from horolog.record.builder import LogRecord, read_with_create_times
from horolog.record.scan import timestamps
from horolog.record.timestamps import (
    ALL_TIMES,
    LOG_APPEND_TIME,
    AppendTimeStretch,
    RecordClock,
    TimeRange,
    TimestampType,
)
from horolog.sources.batches import Batches
from horolog.sources.bounds import data_lost
from horolog.sources.broker_log import BrokerLog
from horolog.sources.complete import complete_until
from horolog.sources.options import ReadOptions
from horolog.sources.ordered import TimedStretch
from horolog.sources.plan import BrokerStretch, Stretch
from horolog.sources.planning import ReadPlan, opened_log, plan_offsets
from horolog.sources.row_filter import RowFilter
from horolog.sources.stretch_reader import StretchReader, naming_batch
from horolog.storage.batches.reader import BatchReader
from horolog.storage.names import TopicPartition

if TYPE_CHECKING:
    from horolog.storage.offline.inspecting import InspectedSegment, PlacedBatch

_MAX_UNPACKED = 1 << 30
_UNKNOWN = AppendTimeStretch(0, None)
_WAIT_MS = 500


class ReadRecord(NamedTuple):
    """A record with its partition and Kafka's name of its timestamp type."""

    partition: int
    offset: int
    timestamp_type: str
    record: LogRecord
    appended_ms: int | None = None
    """Append time, if it was asked for and is known."""
    created_ms: int | None = None
    """Create time in the bytes of a record whose timestamp is an append time."""
    seen_ms: int | None = None
    """Time when a follower saw the record, if asked for and the append time is unknown."""


class RecordLog:
    """Records of a log whose times are in a range.

    Close it after use.

    Unless it `runs_ahead`, several partitions may be read in turns. What is gone before it is read
    is warned of, where the options do not let it fail.

    Raises:
        Misconfigured: the log does not exist.
    """

    def __init__(
        self,
        options: ReadOptions,
        times: TimeRange = ALL_TIMES,
        *,
        runs_ahead: bool = True,
        with_append_times: bool = False,
    ) -> None:
        self._options = options
        self._times = times
        self._shows_append_times = times.of_append or with_append_times
        with ExitStack() as stack:
            self._log = opened_log(options)
            stack.push(self._log)
            self._reader = stack.enter_context(StretchReader(options, runs_ahead=runs_ahead))
            self.partitions: Collection[TopicPartition] = self._log.partitions()
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def plan(
        self, partitions: Collection[TopicPartition], from_offset: int | None = None
    ) -> ReadPlan:
        """Plan the stretches that may hold records of these times, of the log as it is now.

        Raises:
            RequestRefused: a partition has not the offset.
        """
        starts = {} if from_offset is None else dict.fromkeys(partitions, from_offset)
        return plan_offsets(self._log, partitions, RowFilter().within(self._times), starts, {})

    def read(self, stretch: Stretch) -> Iterator[tuple[int, list[ReadRecord]]]:
        """Yield the records of a stretch batch by batch, each with the next offset to read.

        Raises:
            CorruptBatch: a batch is damaged; those before it are given.
            DataLost: something is gone, and data loss is to fail.
            RequestRefused, NoAnswer: the broker refuses for another reason, or does not answer.
            StorageFailed: the disk refused.
        """
        row_filter, shows = RowFilter().within(self._times), self._shows_append_times
        with self._reader.losses(stretch):
            for batches in self._reader.batches(stretch, row_filter, with_append_times=shows):
                with naming_batch(batches):
                    yield from self._records(batches, stretch.partition.partition)

    def timed(
        self,
        stretches: Sequence[Stretch],
        clock: RecordClock,
        memory: int,
        on_looked: Callable[[int], None],
    ) -> list[TimedStretch]:
        """Cut stretches at the blocks of their logs; see `StretchReader.timed`."""
        found = self._reader.timed(stretches, clock, memory, on_looked)
        if self._times.leaves_out_untimed(clock):
            found = [timed._replace(has_untimed=False) for timed in found]
        return found

    def read_between(
        self, plan: ReadPlan, partition: TopicPartition, start: int, end: int
    ) -> Iterator[list[ReadRecord]]:
        """Yield the records of a plan between two offsets of a partition, batch by batch."""
        for stretch in plan.stretches:
            first, last = max(start, stretch.start), min(end, stretch.end)
            if stretch.partition == partition and first < last:
                for _, records in self.read(replace(stretch, start=first, end=last)):
                    yield records

    def follow(
        self, positions: Mapping[TopicPartition, int]
    ) -> Iterator[tuple[TopicPartition, ReadRecord]]:
        """Yield records that are appended at or behind these offsets, without end.

        Raises:
            Misconfigured: this is a log in files, which do not say when they grow.
        """
        if not isinstance(self._log, BrokerLog):
            raise Misconfigured("files are read up to their ends of now: only a broker is followed")
        reached = dict(positions)
        while True:
            self._log.wait_for_records(reached, _WAIT_MS)
            yield from self._appended(reached)

    def follow_complete(
        self, positions: Mapping[TopicPartition, int]
    ) -> Iterator[tuple[int | None, Iterator[tuple[TopicPartition, ReadRecord]]]]:
        """Yield records that are appended at or behind these offsets, a few at a time.

        With them comes a time: after them no record is appended that is earlier; None if none is
        known now.

        Raises:
            Misconfigured: no such time is ever known.
        """
        reached = dict(positions)
        while True:
            until_ms = self.complete_until(reached)
            assert isinstance(self._log, BrokerLog)
            yield until_ms, self._appended(reached)
            self._log.wait_for_records(reached, _WAIT_MS)

    def complete_until(self, partitions: Collection[TopicPartition]) -> int | None:
        """Return the time up to which partitions are complete; None if none is known now.

        Raises:
            Misconfigured: none is ever known: of files, another product, or without a bound.
        """
        committed = self._options.read_committed
        return complete_until(self._log, partitions, committed=committed).ms

    def _appended(
        self, reached: dict[TopicPartition, int]
    ) -> Iterator[tuple[TopicPartition, ReadRecord]]:
        """Yield what partitions have behind the offsets reached, and move these there."""
        for partition, end in self._log.latest(reached).items():
            start, reached[partition] = reached[partition], end
            if end < start:
                data_lost(
                    self._options, f"{partition} was read up to {start}, and ends at {end} now"
                )
            elif start < end:
                for _, records in self.read(BrokerStretch(partition, start, end)):
                    yield from ((partition, read) for read in records)

    def _records(self, batches: Batches, number: int) -> Iterator[tuple[int, list[ReadRecord]]]:
        is_append, checks = self._times.of_append, self._options.check_crcs
        for batch, appended in batches.walk_appended():
            header, records = batch.header, list[ReadRecord]()
            if header.is_control and checks:
                batch.verify()
            if batch.is_visible and self._may_hold(header, batch.data, appended.known_ms):
                if checks:
                    batch.verify()
                shown = appended if self._shows_append_times else _UNKNOWN
                records = [
                    read
                    for read in read_batch(batch.data, header, number, shown)
                    if batches.start <= read.offset < batches.end
                    and (is_append or self._times.holds(read.record.timestamp))
                ]
            yield header.next_offset, records

    def _may_hold(self, header: BatchHeader, batch: memoryview, appended_ms: int | None) -> bool:
        """Return True if a batch has a record in the times; decodes only times."""
        times = self._times
        if times.is_everything:
            return True
        if times.of_append:
            return times.holds(appended_ms)
        if header.max_timestamp < times.first_ms:
            return False
        if header.timestamp_type is LOG_APPEND_TIME:
            return times.holds(header.max_timestamp)
        return any(map(times.holds, timestamps(batch, header, max_bytes=_MAX_UNPACKED)))


def read_batch(
    batch: Buffer,
    header: BatchHeader,
    partition: int,
    appended: AppendTimeStretch = _UNKNOWN,
) -> Iterator[ReadRecord]:
    """Yield the records of a batch; raises as `read_with_create_times` does."""
    kind = header.timestamp_type_name
    is_stamped = header.timestamp_type is LOG_APPEND_TIME
    for record, created in read_with_create_times(batch):
        assert record.offset is not None
        created_ms = created if is_stamped else None
        yield ReadRecord(
            partition,
            record.offset,
            kind,
            record,
            appended.known_ms,
            created_ms,
            appended.seen_ms,
        )


def read_placed(
    facts: "InspectedSegment", log: BatchReader, batch: "PlacedBatch", partition: int
) -> Iterator[ReadRecord]:
    """Read the records of a batch and verify its checksum; damage is noted in `facts`."""
    header = batch.header
    try:
        data = log.batch(batch.position, header)
        log.check(batch.position, header)
        if header.is_control:
            return
        appended = AppendTimeStretch(header.base_offset, None)
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            appended = AppendTimeStretch(header.base_offset, header.max_timestamp)
        elif facts.append_time_of is not None:
            with suppress(StorageFailed, Damaged):  # then it is unknown
                appended = facts.append_time_of(header.base_offset)
        yield from read_batch(data, header, partition, appended)
    except CorruptBatch as error:
        if facts.damage is None:
            facts.damage = (
                f"the batch at byte {batch.position}, offset {header.base_offset}: {error.reason}"
            )
