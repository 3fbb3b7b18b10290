"""Batches and records of format v2 that Apache Kafka wrote, read as Kafka reads them."""

import pytest

from golden import HIDDEN_FROM_KAFKA, GoldenPartition, partitions, text
from horolog.record import (
    TimestampType,
    decode,
    find_at_or_after,
    find_equal,
    iter_headers,
    parse_header,
    read_records,
    restamp,
    scan_batch,
    verify_crc,
)
from horolog.record.scan import timestamps

MAX_BYTES = 1 << 26
TYPES = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}
V2 = partitions("clean", "killed")


def each_batch(partition: GoldenPartition):
    """Header as we read it, bytes, and what Kafka says of it."""
    for log in partition.logs():
        data = log.read_bytes()
        told = partition.batches(log.name)
        ours = list(iter_headers(data))
        assert [position for position, _ in ours] == [batch.position for batch in told]
        for (position, header), batch in zip(ours, told, strict=True):
            yield header, data[position : position + header.size], batch


@pytest.fixture(params=V2, ids=lambda partition: f"{partition.path.parent.name}/{partition.name}")
def partition(request) -> GoldenPartition:
    return request.param


def test_headers_are_parsed_as_by_kafka(partition):
    for header, data, told in each_batch(partition):
        assert header.base_offset == told.base_offset
        assert header.last_offset == told.last_offset
        assert header.records_count == told.records
        assert header.max_timestamp == told.max_timestamp
        assert header.timestamp_type is TYPES[told.timestamp_type]
        assert header.codec.name.lower() == told.codec
        assert header.leader_epoch == told.leader_epoch
        assert header.producer_id == told.producer_id
        assert header.producer_epoch == told.producer_epoch
        assert header.base_sequence == told.base_sequence
        assert header.last_sequence == told.last_sequence
        assert header.is_transactional == told.is_transactional
        assert header.is_control == told.is_control
        assert header.has_delete_horizon == (told.delete_horizon_ms is not None)
        assert header.size == told.size
        assert header.crc == told.crc
        verify_crc(data)


def test_records_are_the_ones_that_kafka_served(partition):
    start = partition.answers["log_start_offset"]
    rows = []
    for header, data, _ in each_batch(partition):
        if header.is_control:
            continue
        for record in read_records(data):
            if record.offset < start:
                continue
            row = [record.offset, record.timestamp, text(record.key), text(record.value)]
            if record.headers:
                row.append([[name, text(value)] for name, value in record.headers])
            rows.append(row)
    assert rows == partition.answers["records"]


def test_a_scan_finds_count_and_extremes_without_making_records(partition):
    for header, data, told in each_batch(partition):
        if told.records == 0:
            continue
        facts = scan_batch(data, header, max_bytes=MAX_BYTES)
        times = [record.timestamp for record in read_records(data)]
        assert facts.count == told.records
        assert list(timestamps(data, header, max_bytes=MAX_BYTES)) == times
        if told.timestamp_type == "CreateTime":
            timed = [at for at in times if at != -1] or [None]
            assert (facts.min_timestamp, facts.max_timestamp) == (min(timed), max(timed))


def test_columns_hold_the_records_that_kafka_served(partition):
    answers = partition.answers
    data = b"".join(log.read_bytes() for log in partition.logs())
    columns = ("key", "value", "headers", "offset", "timestamp_ms", "timestamp_type")
    rows = []
    for table in decode(data, start_offset=answers["log_start_offset"], columns=columns):
        for one in table.to_pylist():
            row = [one["offset"], one["timestamp_ms"], text(one["key"]), text(one["value"])]
            if one["headers"]:
                row.append([[each["key"], text(each["value"])] for each in one["headers"]])
            rows.append(row)
    assert rows == answers["records"]


def test_a_lookup_inside_the_batches_ends_at_the_record_kafka_found(partition):
    """The first batch that has one decides: what the log's lookup comes down to."""
    answers = partition.answers
    batches = list(each_batch(partition))
    for at_ms, *told in answers["lookups"]:
        found = None
        for header, data, _ in batches:
            if header.max_timestamp >= at_ms and header.records_count:
                found = find_at_or_after(data, header, at_ms, answers["log_start_offset"])
                if found is not None:
                    break
        ours = [-1, -1] if found is None else [found[1], found[0]]
        if partition.name in HIDDEN_FROM_KAFKA:
            assert told[:2] in ([-1, -1], ours), at_ms
        else:
            assert ours == told[:2], at_ms


def test_the_largest_time_is_found_in_the_batch_that_holds_it(partition):
    offset, timestamp, _ = partition.answers["max_timestamp"]
    if offset == -1:
        assert list(each_batch(partition)) == []
        return
    found = [
        find_equal(data, header, timestamp, 0)
        for header, data, _ in each_batch(partition)
        if header.max_timestamp == timestamp and header.records_count
    ]
    assert found[0] == (timestamp, offset)


def test_stamping_a_batch_as_a_leader_does_gives_back_kafkas_own_bytes(partition):
    """Kafka keeps a producer's bytes but for the header, so does `restamp`."""
    for header, data, told in each_batch(partition):
        sent = restamp(header, data, base_offset=0, leader_epoch=-1)
        as_sent = sent + data[len(sent) :]
        stored = restamp(
            parse_header(as_sent),
            as_sent,
            base_offset=told.base_offset,
            leader_epoch=told.leader_epoch,
        )
        assert stored + data[len(stored) :] == data
