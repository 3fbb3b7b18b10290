"""Explain the result of a lookup by time, from what clients can read of the log."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import tzinfo
from typing import NamedTuple

from horolog.client import Client, FoundRecord, RecordClock, TopicPartition
from horolog.client.topic_facts import PartitionFacts
from horolog.record.batch import BatchHeader, iter_headers
from horolog.record.builder import LogRecord, read_records
from horolog.record.compression import UncompressedTooLarge
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.report.retention import moment_text
from horolog.times import format_moment, format_time
from horolog.wire.questions import LOOKUP_WAY, AskLookup

MOST_BATCH_BYTES = 64 << 20
"""Largest size that a batch may decompress to."""
_ENOUGH_BYTES = 1 << 20


class Lookup(NamedTuple):
    """Lookup of a topic by time."""

    topic: str
    target_ms: int
    clock: RecordClock
    zone: tzinfo
    """Zone of the times in the explanation."""


def look_up(
    client: Client, lookup: Lookup, numbers: Iterable[int]
) -> dict[int, FoundRecord | None]:
    """Ask by ListOffsets, or by horolog's protocol where Kafka's cannot express the lookup."""
    targets = {(lookup.topic, number): lookup.target_ms for number in numbers}
    if lookup.clock is RecordClock.APPEND or lookup.target_ms < 0:
        records = client.find_records(targets, lookup.clock)
        return {number: record for (_, number), record in records.items()}
    return {
        number: None if offset is None else FoundRecord(*offset)
        for (_, number), offset in client.list_offsets(targets).items()
    }


def explain(
    client: Client, lookup: Lookup, facts: PartitionFacts, found: FoundRecord | None
) -> Iterator[str]:
    """Yield lines that explain the lookup in one partition; the first is the result."""
    zone, by_append = lookup.zone, lookup.clock is RecordClock.APPEND
    place = lookup.topic, facts.partition
    at, name = format_moment(lookup.target_ms, zone), f"partition {facts.partition}"
    log = f"the log has offsets {facts.earliest} up to {facts.end}"
    if found is None:
        yield f"{name}: none {'appended ' if by_append else ''}at or after {at}"
        if facts.end == facts.earliest:
            yield f"  the partition is empty: its next offset is {facts.end}"
        elif by_append:
            last = _appended(client, place, facts.end - 1, zone)
            yield f"  {log}; the last record was appended {last}"
        elif facts.latest_ms is None:
            yield f"  offsets {facts.earliest} up to {facts.end} have no record with a timestamp"
        else:
            time = moment_text(facts.latest_ms, zone)
            yield (
                f"  every record is older: the latest time is {time}, at offset "
                f"{facts.latest_offset} of {facts.earliest} up to {facts.end}"
            )
    elif not by_append:
        time = moment_text(found.ms, zone)
        yield f"{name}: offset {found.offset}, of {time}, is the first at or after {at}"
        latest = "the broker does not report its latest time"
        if facts.latest_ms is not None:
            time = format_time(facts.latest_ms, zone)
            latest = f"the latest time is {time}, at offset {facts.latest_offset}"
        yield f"  {log}; {latest}"
    elif found.ms is None:
        yield (
            f"{name}: offset {found.offset} is the first that may have been appended at or after "
            f"{at}: its append time is unknown, and what is before it was appended earlier"
        )
        yield f"  {log}"
    else:
        time = format_time(found.ms, zone)
        which = f"offset {found.offset}, appended {time}"
        yield f"{name}: {which}, is the first appended at or after {at}"
        yield f"  {log}"
    batch = None if found is None else _batch_at(client, *place, found.offset)
    if batch is not None:
        yield f"  {_in_batch(batch, zone)}"
    if not by_append:
        yield from _way(client, *place, lookup.target_ms, zone)
    if found is None:
        return
    before = found.offset - 1
    if found.offset == facts.earliest:
        yield "  no record is before it"
    elif by_append:
        appended = _appended(client, place, before, zone)
        yield f"  the record before it, offset {before}, was appended {appended}"
    elif (earlier := _batch_at(client, *place, before)) and earlier.last is not None:
        ms, time = earlier.last.timestamp, "no time"
        if ms != NO_TIMESTAMP:
            distance_ms = lookup.target_ms - ms
            time = f"{format_time(ms, zone)}, {distance_ms:,} ms before the requested time"
        yield f"  the record before it, offset {earlier.last.offset}, is of {time}"


def _way(client: Client, topic: str, partition: int, target_ms: int, zone: tzinfo) -> Iterator[str]:
    """Yield a line on the segments and batches that the broker read, if it reports them."""
    way = client.ask(LOOKUP_WAY, topic, AskLookup(partition, target_ms))
    if way is None:
        return
    if way.base_offset is None:
        yield f"  none of {way.segments} segments was looked into: their largest times are earlier"
        return
    where = f"segment {way.base_offset:020d} was looked into"
    if way.passed:
        where += f", {way.passed} of {way.segments} passed by their largest times"
    if way.entry is None:
        begin = "from its start"
    else:
        entry_ms, offset = way.entry
        entry = f"{format_time(entry_ms, zone)} at offset {offset}"
        begin = f"from byte {way.position}, by the time index entry {entry}"
    yield f"  {where}, {begin}: {way.batches} batches, {way.scanned_bytes} bytes of them scanned"


def _appended(client: Client, place: TopicPartition, offset: int, zone: tzinfo) -> str:
    fetched = client.fetch(
        *place,
        offset,
        max_bytes=1,
        max_wait_ms=0,
        with_append_times=True,
        with_seen_times=True,
    )
    ms, is_seen = fetched.append_times[0][1:] if fetched.append_times else (None, False)
    if ms is None:
        return "at a time that is unknown"
    if is_seen:
        return f"at a time that is unknown; a follower saw it {format_time(ms, zone)}"
    return format_time(ms, zone)


@dataclass(slots=True)
class _Batch:
    """Facts of the batch around an offset, without its records: these may be many and large."""

    header: BatchHeader
    first_offset: int | None = None
    count: int = 0
    place: int = 1
    """Place of the record of the offset, or of the next one, from 1 on."""
    last: LogRecord | None = None
    """The last record up to the offset; without key and value."""
    span_ms: tuple[int, int] | None = None
    """Smallest and largest time of its records."""
    is_too_large: bool = False
    """It decompresses to more than `MOST_BATCH_BYTES`, and nothing else is known of it."""

    def add(self, record: LogRecord, offset: int) -> None:
        """Count a record."""
        its_offset, ms = record.offset or 0, record.timestamp
        self.first_offset = its_offset if self.first_offset is None else self.first_offset
        self.count += 1
        self.place += its_offset < offset
        if its_offset <= offset:
            self.last = LogRecord(ms, None, None, offset=its_offset)
        if ms != NO_TIMESTAMP:
            first_ms, last_ms = self.span_ms or (ms, ms)
            self.span_ms = min(ms, first_ms), max(ms, last_ms)


def _batch_at(client: Client, topic: str, partition: int, offset: int) -> _Batch | None:
    fetched = client.fetch(topic, partition, offset, max_bytes=_ENOUGH_BYTES, max_wait_ms=0)
    view = memoryview(fetched.records)
    for place, header in iter_headers(view):
        if header.base_offset <= offset < header.next_offset:
            if header.is_control:
                return None
            facts = _Batch(header)
            batch = view[place : place + header.size]
            try:
                for record in read_records(batch, max_bytes=MOST_BATCH_BYTES):
                    facts.add(record, offset)
            except UncompressedTooLarge:
                facts.is_too_large = True
            return facts
    return None


def _in_batch(batch: _Batch, zone: tzinfo) -> str:
    header, span = batch.header, ""
    if batch.is_too_large:
        return (
            f"it is in the batch up to {header.last_offset}, of {header.records_count} records, "
            f"which decompresses to more than {MOST_BATCH_BYTES} bytes and is not read"
        )
    if batch.span_ms is not None:
        span = ", times " + " to ".join(format_time(ms, zone) for ms in batch.span_ms)
    kind = f"{header.codec.name.lower()}, {header.timestamp_type_name}"
    return (
        f"it is record {batch.place} of {batch.count} in the batch {batch.first_offset} to "
        f"{header.last_offset} ({kind}{span})"
    )
