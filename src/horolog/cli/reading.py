"""Reading a topic through a broker: which offsets, and which records of them.

A range of time begins, in each partition, at the first record at or after it, which the
broker finds. It ends with the log: a record of that time may come late, behind any
number of later ones, so everything up to the end is looked at, batches that cannot hold
one by their header alone.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from horolog.cli.screen import say
from horolog.cli.topic_facts import partition_numbers
from horolog.client import EARLIEST, LATEST, Client, Fetched
from horolog.errors import ErrorCode, RequestRefused
from horolog.record.batch import BatchHeader, iter_headers
from horolog.record.builder import Record, read_records
from horolog.record.scan import timestamps
from horolog.record.timestamps import NO_TIMESTAMP, TimestampType

_FETCH_BYTES = 4 << 20
_WAIT_MS = 500
_MAX_UNPACKED = 1 << 30


class Span(NamedTuple):
    """Offsets of one partition, from `start` up to but not including `end`."""

    partition: int
    start: int
    end: int


class TimeRange(NamedTuple):
    """From `from_ms` up to but not including `to_ms`; `None` leaves a side open.

    A record without a time lies in no range but the one open on both sides.
    """

    from_ms: int | None = None
    to_ms: int | None = None

    @property
    def is_everything(self) -> bool:
        """Whether every record lies in it."""
        return self.from_ms is None and self.to_ms is None

    def holds(self, timestamp: int) -> bool:
        """Whether a record of this time lies in it."""
        if self.is_everything:
            return True
        if timestamp == NO_TIMESTAMP:
            return False
        return (self.from_ms is None or timestamp >= self.from_ms) and (
            self.to_ms is None or timestamp < self.to_ms
        )

    def may_hold(self, header: BatchHeader) -> bool:
        """Whether any record of a batch can lie in it, as far as its header tells."""
        if self.from_ms is not None and header.max_timestamp < self.from_ms:
            return False
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            return self.holds(header.max_timestamp)
        return True


class ReadRecord(NamedTuple):
    """A record, where it lay, and whose time it carries."""

    partition: int
    offset: int
    timestamp_type: TimestampType
    record: Record


EVERYTHING = TimeRange()


def plan(
    client: Client,
    topic: str,
    *,
    partitions: Sequence[int] | None = None,
    times: TimeRange = EVERYTHING,
    from_offset: int | None = None,
    from_end: bool = False,
) -> list[Span]:
    """What to read of each partition, up to where it ends now.

    Raises:
        RequestRefused: there is no such topic, partition or offset.
    """
    numbers = list(partition_numbers(client, topic, partitions))
    earliest = _bounds(client, topic, numbers, EARLIEST)
    ends = _bounds(client, topic, numbers, LATEST)
    if from_end:
        starts: dict[int, int] = ends
    elif from_offset is not None:
        starts = {n: _offset_within(topic, n, from_offset, earliest[n], ends[n]) for n in numbers}
    elif times.from_ms is not None and times.from_ms >= 0:
        found = client.list_offsets({(topic, number): times.from_ms for number in numbers})
        starts = {tp[1]: each.offset if each else ends[tp[1]] for tp, each in found.items()}
    else:  # the protocol has no way to ask for a moment before 1970
        starts = earliest
    return [Span(number, starts[number], max(starts[number], ends[number])) for number in numbers]


def read_span(
    client: Client, topic: str, span: Span, times: TimeRange = EVERYTHING
) -> Iterator[tuple[int, list[ReadRecord]]]:
    """The records of a span, batch by batch, each time with the offset that comes next."""
    position = span.start
    while position < span.end:
        position, fetched = _fetch(client, topic, span.partition, position, _WAIT_MS)
        following = position
        for following, records in _records(fetched, span.partition, position, span.end, times):
            yield following, records
        if following == position and fetched.high_watermark <= position:
            return  # the log was cut meanwhile: there is no more to come
        position = following


def follow(
    client: Client, topic: str, positions: dict[int, int], times: TimeRange = EVERYTHING
) -> Iterator[ReadRecord]:
    """Records as they come, without an end; `positions` are where each partition begins."""
    wait_ms = max(10, _WAIT_MS // max(1, len(positions)))
    while True:
        for partition, position in positions.items():
            start, fetched = _fetch(client, topic, partition, position, wait_ms)
            positions[partition] = start
            for following, records in _records(fetched, partition, start, None, times):
                yield from records
                positions[partition] = following


def _fetch(
    client: Client, topic: str, partition: int, position: int, wait_ms: int
) -> tuple[int, Fetched]:
    """Batches from `position` on, or from the log start offset where it has moved past that.

    Raises:
        RequestRefused: the log ends before the position, or the broker refuses otherwise.
    """
    while True:
        try:
            fetched = client.fetch(
                topic, partition, position, max_bytes=_FETCH_BYTES, max_wait_ms=wait_ms
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
        return position, fetched


def _records(
    fetched: Fetched, partition: int, start: int, end: int | None, times: TimeRange
) -> Iterator[tuple[int, list[ReadRecord]]]:
    view = memoryview(fetched.records)
    for place, header in iter_headers(view):
        if end is not None and header.base_offset >= end:
            yield end, []
            return
        records = []
        batch = view[place : place + header.size]
        if _is_wanted(batch, header, times):
            kind = header.timestamp_type
            for record in read_records(batch):
                offset = record.offset
                assert offset is not None
                if (
                    start <= offset
                    and (end is None or offset < end)
                    and times.holds(record.timestamp)
                ):
                    records.append(ReadRecord(partition, offset, kind, record))
        yield max(start, header.next_offset), records


def _is_wanted(batch: memoryview, header: BatchHeader, times: TimeRange) -> bool:
    """Whether a batch holds a record in the range; its times alone are much quicker to read."""
    if header.is_control or not times.may_hold(header):
        return False
    if times.is_everything:
        return True
    found = timestamps(batch, header, max_bytes=_MAX_UNPACKED)
    return any(times.holds(timestamp) for timestamp in found)


def _bounds(client: Client, topic: str, numbers: Sequence[int], which: int) -> dict[int, int]:
    found = client.list_offsets({(topic, number): which for number in numbers})
    return {tp[1]: each.offset if each else 0 for tp, each in found.items()}


def _offset_within(topic: str, partition: int, offset: int, earliest: int, end: int) -> int:
    if not earliest <= offset <= end:
        raise RequestRefused(
            ErrorCode.offset_out_of_range,
            f"{topic}-{partition} has no offset {offset}: it holds {earliest} up to {end}",
        )
    return offset
