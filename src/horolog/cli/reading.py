"""Reads a topic through a broker, by offsets or by a time range.

Of a time range a horolog broker knows which offsets may hold it. From another broker each
partition is read from the first record at or after its start, which the broker looks up, to the
log end: late records may follow any number of newer ones. Batches whose header shows that no
record is in the range are skipped.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from horolog.cli.screen import say
from horolog.cli.topic_facts import partition_numbers
from horolog.client import EARLIEST, LATEST, Client, Fetched, NoAnswer, RangeClock, RecordClock
from horolog.client.deadline import Deadline
from horolog.errors import ErrorCode, RequestRefused
from horolog.record.batch import BatchHeader, iter_headers
from horolog.record.batch_runs import next_offset_of
from horolog.record.builder import Record, read_with_create_times
from horolog.record.scan import timestamps
from horolog.record.timestamps import NO_TIMESTAMP, TimestampType
from horolog.record.transactions import AbortedTransactions

_FETCH_BYTES = 4 << 20
_LEAST_BYTES = 64 << 10
_WAIT_MS = 500
_MAX_UNPACKED = 1 << 30


class PartitionSpan(NamedTuple):
    """Offsets of one partition, from `start` up to but not including `end`."""

    partition: int
    start: int
    end: int
    size: int | None = None
    """Bytes of their batches, if they are known."""


class ReadPlan(NamedTuple):
    """What is read, and where each partition ends by now."""

    spans: list[PartitionSpan]
    ends: dict[int, int]


class TimeRange(NamedTuple):
    """From `from_ms` up to but not including `to_ms`; `None` is unbounded.

    A record without a timestamp is only in the range that is unbounded on both sides.
    """

    from_ms: int | None = None
    to_ms: int | None = None

    @property
    def is_everything(self) -> bool:
        """Whether the range is unbounded."""
        return self.from_ms is None and self.to_ms is None

    def holds(self, timestamp: int) -> bool:
        """Whether a record with this timestamp is in the range."""
        if self.is_everything:
            return True
        if timestamp == NO_TIMESTAMP:
            return False
        return (self.from_ms is None or timestamp >= self.from_ms) and (
            self.to_ms is None or timestamp < self.to_ms
        )

    def may_hold(self, header: BatchHeader) -> bool:
        """Whether a batch can have records in the range, by its header."""
        if self.from_ms is not None and header.max_timestamp < self.from_ms:
            return False
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            return self.holds(header.max_timestamp)
        return True


class ReadRecord(NamedTuple):
    """A record with its partition and Kafka's name of its timestamp type."""

    partition: int
    offset: int
    timestamp_type: str
    record: Record
    appended_ms: int | None = None
    """When it was appended, if that was asked for and is known."""
    created_ms: int | None = None
    """The time that its bytes hold, where its timestamp is an append time."""


EVERYTHING = TimeRange()


def plan(
    client: Client,
    topic: str,
    *,
    partitions: Sequence[int] | None = None,
    times: TimeRange = EVERYTHING,
    from_offset: int | None = None,
    from_end: bool = False,
    clock: RecordClock = RecordClock.CREATE,
) -> ReadPlan:
    """The offsets to read of each partition, up to its present end.

    Of a time range only those that may hold it, as far as the broker knows.

    Raises:
        RequestRefused: the topic, the partition or the offset does not exist.
    """
    numbers = list(partition_numbers(client, topic, partitions))
    earliest = _bounds(client, topic, numbers, EARLIEST)
    ends = _bounds(client, topic, numbers, LATEST)
    if from_end:
        starts: dict[int, int] = ends
    elif from_offset is not None:
        starts = {
            n: offset_within(f"{topic}-{n}", from_offset, earliest[n], ends[n]) for n in numbers
        }
    elif not times.is_everything and (
        (found := _in_time(client, topic, earliest, ends, times, clock)) is not None
    ):
        return ReadPlan(found, ends)
    elif times.from_ms is not None and clock is RecordClock.APPEND:
        by_clock = client.find_records({(topic, n): times.from_ms for n in numbers}, clock)
        starts = {tp[1]: each.offset if each else ends[tp[1]] for tp, each in by_clock.items()}
    elif times.from_ms is not None:
        first = client.none_before(times.from_ms, [(topic, number) for number in numbers])
        starts = {n: max(earliest[n], first.get((topic, n), ends[n])) for n in numbers}
    else:
        starts = earliest
    return ReadPlan([PartitionSpan(n, starts[n], max(starts[n], ends[n])) for n in numbers], ends)


def _in_time(
    client: Client,
    topic: str,
    starts: dict[int, int],
    ends: dict[int, int],
    times: TimeRange,
    clock: RecordClock,
) -> list[PartitionSpan] | None:
    """The offsets that may hold a time range; None if the broker does not know (Apache Kafka)."""
    spans = []
    last_ms = None if times.to_ms is None else times.to_ms - 1
    whose = RangeClock.APPEND if clock is RecordClock.APPEND else RangeClock.RECORD
    for number, start in starts.items():
        end = ends[number]
        found = client.time_ranges(
            topic, number, times.from_ms, last_ms, clock=whose, start=start, end=end
        )
        if found is None:
            return None
        spans += [PartitionSpan(number, *each) for each in found]
    return spans


def read_span(
    client: Client,
    topic: str,
    span: PartitionSpan,
    times: TimeRange = EVERYTHING,
    clock: RecordClock = RecordClock.CREATE,
    *,
    read_committed: bool = False,
) -> Iterator[tuple[int, list[ReadRecord]]]:
    """The records of a span, batch by batch, each with the next offset to read.

    With `read_committed` none of aborted transactions, and none behind an open one.

    Raises:
        NoAnswer: the broker gives no batch at an offset before the end, for as long as a request
            may take.
    """
    position, size = span.start, span.size
    deadline = Deadline.after_ms(client.config.timeout_ms)
    while position < span.end:
        room = _FETCH_BYTES if size is None else max(_LEAST_BYTES, min(size, _FETCH_BYTES))
        position, fetched = _fetch(
            client,
            topic,
            span.partition,
            position,
            _WAIT_MS,
            clock,
            room,
            read_committed=read_committed,
        )
        size = None if size is None else size - len(fetched.records)
        following = position
        within = _records(fetched, span.partition, position, span.end, times, clock)
        for following, records in within:
            yield following, records
        if following == position and (read_committed or fetched.high_watermark <= position):
            return  # an open transaction begins here, or the log was truncated meanwhile
        if following > position:
            deadline = Deadline.after_ms(client.config.timeout_ms)
        elif not deadline.left_s():
            raise NoAnswer(
                f"{topic}-{span.partition} gives no batch at offset {position}, though it goes on "
                f"to {span.end}"
            )
        position = following


def follow(
    client: Client,
    topic: str,
    positions: dict[int, int],
    times: TimeRange = EVERYTHING,
    clock: RecordClock = RecordClock.CREATE,
) -> Iterator[ReadRecord]:
    """Yield records as they are appended, without end; `positions` are the start offsets."""
    wait_ms = max(10, _WAIT_MS // max(1, len(positions)))
    while True:
        for partition, position in positions.items():
            start, fetched = _fetch(client, topic, partition, position, wait_ms, clock)
            positions[partition] = start
            for following, records in _records(fetched, partition, start, None, times, clock):
                yield from records
                positions[partition] = following


def _fetch(
    client: Client,
    topic: str,
    partition: int,
    position: int,
    wait_ms: int,
    clock: RecordClock,
    max_bytes: int = _FETCH_BYTES,
    *,
    read_committed: bool = False,
) -> tuple[int, Fetched]:
    """Batches from `position`, or from the log start offset if that is larger.

    Raises:
        RequestRefused: the position is beyond the log end, or another refusal of the broker.
        CorruptBatch: a batch goes on beyond the log end.
    """
    while True:
        try:
            fetched = client.fetch(
                topic,
                partition,
                position,
                max_bytes=max_bytes,
                max_wait_ms=wait_ms,
                read_committed=read_committed,
                with_append_times=clock is RecordClock.APPEND,
            )
        except RequestRefused as error:
            if error.code != ErrorCode.offset_out_of_range:
                raise
            start = _bounds(client, topic, [partition], EARLIEST)[partition]
            if start <= position:
                raise
            say(
                f"offsets {position} to {start - 1} of {topic}-{partition} were deleted before "
                "they were read"
            )
            position = start
            continue
        next_offset_of(fetched.records, position, fetched.high_watermark)
        return position, fetched


def _records(
    fetched: Fetched,
    partition: int,
    start: int,
    end: int | None,
    times: TimeRange,
    clock: RecordClock,
) -> Iterator[tuple[int, list[ReadRecord]]]:
    if clock is RecordClock.APPEND:
        yield from _records_by_append_time(fetched, partition, start, end, times)
        return
    view, drop = memoryview(fetched.records), AbortedTransactions(fetched.aborted).drop
    for place, header in iter_headers(view):
        if end is not None and header.base_offset >= end:
            yield end, []
            return
        batch = view[place : place + header.size]
        if drop(header, batch):
            yield max(start, header.next_offset), []
            continue
        within = records_of(batch, header, partition, times)
        yield max(start, header.next_offset), between(within, start, end)


def _records_by_append_time(
    fetched: Fetched, partition: int, start: int, end: int | None, times: TimeRange
) -> Iterator[tuple[int, list[ReadRecord]]]:
    view, stretches = memoryview(fetched.records), fetched.append_times
    offsets = [stretch.offset for stretch in stretches]
    drop = AbortedTransactions(fetched.aborted).drop
    for place, header in iter_headers(view):
        if end is not None and header.base_offset >= end:
            yield end, []
            return
        if drop(header, view[place : place + header.size]):
            yield max(start, header.next_offset), []
            continue
        index = bisect_right(offsets, max(start, header.base_offset)) - 1
        appended_ms = stretches[index].ms if index >= 0 else None
        batch = view[place : place + header.size]
        within = records_appended(batch, header, partition, times, appended_ms)
        yield max(start, header.next_offset), between(within, start, end)


def between(records: Iterable[ReadRecord], start: int, end: int | None) -> list[ReadRecord]:
    """Those with offsets from `start` to before `end`."""
    return [each for each in records if start <= each.offset and (end is None or each.offset < end)]


def records_of(
    batch: memoryview, header: BatchHeader, partition: int, times: TimeRange
) -> Iterator[ReadRecord]:
    """The records of a batch whose timestamps are in a range."""
    if _is_wanted(batch, header, times):
        for each in _read(batch, header, partition, None):
            if times.holds(each.record.timestamp):
                yield each


def records_appended(
    batch: memoryview,
    header: BatchHeader,
    partition: int,
    times: TimeRange,
    appended_ms: int | None,
) -> Iterator[ReadRecord]:
    """The records of a batch, if it was appended in a range.

    One whose append time is unknown is in the range that is unbounded alone.
    """
    is_wanted = times.is_everything or (appended_ms is not None and times.holds(appended_ms))
    if is_wanted and not header.is_control:
        yield from _read(batch, header, partition, appended_ms)


def _read(
    batch: memoryview, header: BatchHeader, partition: int, appended_ms: int | None
) -> Iterator[ReadRecord]:
    kind = header.timestamp_type_name
    is_stamped = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    for record, created in read_with_create_times(batch):
        assert record.offset is not None
        created_ms = created if is_stamped else None
        yield ReadRecord(partition, record.offset, kind, record, appended_ms, created_ms)


def _is_wanted(batch: memoryview, header: BatchHeader, times: TimeRange) -> bool:
    """Whether a batch has a record in the range; reads only timestamps, which is much faster."""
    if header.is_control or not times.may_hold(header):
        return False
    if times.is_everything:
        return True
    found = timestamps(batch, header, max_bytes=_MAX_UNPACKED)
    return any(times.holds(timestamp) for timestamp in found)


def _bounds(client: Client, topic: str, numbers: Sequence[int], which: int) -> dict[int, int]:
    found = client.list_offsets({(topic, number): which for number in numbers})
    return {tp[1]: each.offset if each else 0 for tp, each in found.items()}


def offset_within(name: str, offset: int, earliest: int, end: int) -> int:
    """The offset, if a partition has it or ends there.

    Raises:
        RequestRefused: it does not.
    """
    if not earliest <= offset <= end:
        raise RequestRefused(
            ErrorCode.offset_out_of_range,
            f"{name} has no offset {offset}: it has {earliest} up to {end}",
        )
    return offset
