"""Clients of before Kafka 0.11: messages of formats v0 and v1, and what is converted for them."""

import logging
import os
import zlib
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from metrics_page import records_converted
from old_messages import build_messages
from overrides import override
from raw_connection import fetch_fields, produce_fields
from running_broker import NOW_MS, MakeBroker, RunningBroker, a_broker

from horolog.record import (
    Codec,
    LogRecord,
    TimestampType,
    build_batch,
    convert_all,
    iter_headers,
    parse_header,
    read_records,
)
from horolog.wire import ApiKey

ROWS = [
    LogRecord(NOW_MS - 3, b"k", b"one"),
    LogRecord(NOW_MS, None, b"two"),
    LogRecord(NOW_MS - 1, b"k", None),
]
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
NEWEST = 12

Row: TypeAlias = tuple[int, int, bytes | None, bytes | None]


broker = a_broker("t", horolog_metrics_port="0")


def formats(records: bytes) -> list[int]:
    return [header.magic for _, header in iter_headers(records)]


def rows(records: bytes) -> list[Row]:
    """Offset, time, key and value of each record, of whatever format."""
    found = []
    for converted in convert_all(records, 2):
        for row in read_records(converted.data):
            assert row.offset is not None
            found.append((row.offset, row.timestamp, row.key, row.value))
    return found


def expected(timed: bool = True, first: int = 0) -> list[Row]:
    return [
        (offset, row.timestamp if timed else -1, row.key, row.value)
        for offset, row in enumerate(ROWS)
        if offset >= first
    ]


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1)])
def test_messages_of_old_producers_become_one_batch_of_v2(
    broker: RunningBroker, version: int, magic: int, codec: Codec
) -> None:
    sent = build_messages(ROWS, magic, codec=codec)
    answer = broker.produce("t", sent, version=version)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    stored = broker.fetch("t", version=NEWEST).records
    assert formats(stored) == [2]
    assert parse_header(stored).codec is codec
    assert rows(stored) == expected(timed=magic == 1)
    assert broker.produce("t", sent, version=version).base_offset == len(ROWS)


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_old_consumers_get_the_format_that_they_read(
    broker: RunningBroker, version: int, magic: int, codec: Codec
) -> None:
    broker.produce("t", build_batch(ROWS, codec=codec))
    fetched = broker.fetch("t", version=version)
    assert (fetched.error_code, fetched.high_watermark) == (0, len(ROWS))
    assert set(formats(fetched.records)) == {magic}
    assert rows(fetched.records) == expected(timed=magic == 1)


@pytest.mark.parametrize("version", [0, 3])
def test_a_fetch_within_a_batch_begins_with_the_record_asked_for(
    broker: RunningBroker, version: int
) -> None:
    broker.produce("t", build_batch(ROWS))
    assert rows(broker.fetch("t", 1, version=version).records) == expected(
        timed=version > 1, first=1
    )
    broker.produce("t", build_batch(ROWS, codec=Codec.GZIP))
    compressed = broker.fetch("t", len(ROWS) + 1, version=version).records
    assert [offset for offset, *_ in rows(compressed)] == [3, 4, 5]  # a client skips the first


@pytest.mark.parametrize("version", [0, 2])
def test_on_a_topic_of_append_times_all_records_have_the_brokers(
    broker: RunningBroker, version: int
) -> None:
    broker.create_topic("stamped", message_timestamp_type="LogAppendTime")
    sent = build_messages(ROWS, version // 2, codec=Codec.GZIP)
    answer = broker.produce("stamped", sent, version=version)
    assert answer.error_code == 0
    if version == 2:
        assert answer.log_append_time_ms == NOW_MS
    stored = parse_header(broker.fetch("stamped", version=NEWEST).records)
    assert stored.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert stored.max_timestamp == NOW_MS
    converted = broker.fetch("stamped", version=2).records
    header = parse_header(converted)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {time for _, time, _, _ in rows(converted)} == {NOW_MS}
    assert {time for _, time, _, _ in rows(broker.fetch("stamped", version=0).records)} == {-1}


def test_a_batch_of_v2_is_taken_from_old_versions_too_as_kafka_did(broker: RunningBroker) -> None:
    assert broker.produce("t", build_batch(ROWS), version=2).error_code == 0
    assert rows(broker.fetch("t", version=NEWEST).records) == expected()


def test_old_messages_are_refused_in_versions_that_may_not_hold_them(broker: RunningBroker) -> None:
    assert broker.produce("t", build_messages(ROWS, 1), version=3).error_code == 87


@pytest.mark.parametrize("magic", [0, 1])
def test_damaged_messages_are_refused_and_nothing_of_them_is_kept(
    broker: RunningBroker, magic: int
) -> None:
    sent = bytearray(build_messages(ROWS, magic))
    sent[-1] ^= 1
    assert broker.produce("t", bytes(sent), version=2).error_code == 2
    assert broker.produce("t", b"", version=0).error_code != 0
    assert broker.fetch("t", version=NEWEST).high_watermark == 0


def test_a_compressed_message_in_a_compressed_message_is_refused(broker: RunningBroker) -> None:
    inner = build_messages(ROWS, 1, codec=Codec.GZIP)
    packed = zlib.compressobj(wbits=31)
    payload = packed.compress(inner) + packed.flush()
    outer = bytearray(build_messages([LogRecord(NOW_MS, None, payload)], 1))
    outer[17] |= Codec.GZIP
    outer[12:16] = zlib.crc32(outer[16:]).to_bytes(4, "big")
    assert broker.produce("t", bytes(outer), version=2).error_code in (2, 87)
    assert broker.fetch("t", version=NEWEST).high_watermark == 0


def test_times_of_old_messages_have_the_topics_bounds(broker: RunningBroker) -> None:
    broker.create_topic("bound", message_timestamp_before_max_ms="2")
    assert broker.produce("bound", build_messages(ROWS, 1), version=2).error_code == 32
    assert broker.produce("bound", build_messages(ROWS, 0), version=1).error_code == 0


def test_an_error_of_a_request_without_acks_ends_the_connection(broker: RunningBroker) -> None:
    with broker.connect() as connection:
        damaged = bytes([*build_messages(ROWS, 0)[:-1], 7])
        fields = produce_fields("t", {0: damaged}, acks=0)
        connection.send(ApiKey.PRODUCE, 0, **fields)
        assert connection.is_closed()


def test_conversion_is_refused_where_the_topic_disables_it(broker: RunningBroker) -> None:
    broker.create_topic("plain", message_downconversion_enable="false")
    broker.produce("plain", build_batch(ROWS))
    for version in (0, 1, 2, 3):
        refused = broker.fetch("plain", version=version)
        assert (refused.error_code, refused.records) == (35, b"")
    assert broker.fetch("plain", version=4).error_code == 0


def test_zstd_and_old_consumers_do_not_go_together(broker: RunningBroker) -> None:
    broker.produce("t", build_batch(ROWS))
    broker.produce("t", build_batch(ROWS, codec=Codec.ZSTD))
    assert (
        rows(broker.fetch("t", version=2).records) == expected()
    )  # up to the batch that has no old form
    assert broker.fetch("t", 3, version=2).error_code == 76
    assert broker.fetch("t", 3, version=4).error_code == 0


@pytest.mark.parametrize(
    ("convert", "codec", "error_code"), [("true", Codec.ZSTD, 76), ("false", Codec.NONE, 35)]
)
def test_an_old_fetch_ends_before_what_its_version_cannot_have(
    tmp_path: Path, make_broker: MakeBroker, convert: str, codec: Codec, error_code: int
) -> None:
    newer = build_batch(ROWS, base_offset=len(ROWS), codec=codec)
    (tmp_path / "log" / "t-0").mkdir(parents=True)
    path = tmp_path / "log" / "t-0" / f"{0:020d}.log"
    path.write_bytes(build_messages(ROWS, 1) + newer)
    broker = make_broker(log_dir=tmp_path / "log", log_message_downconversion_enable=convert)
    for version in (2, 3):
        readable = broker.fetch("t", version=version)
        assert readable.error_code == 0
        assert (set(formats(readable.records)), rows(readable.records)) == ({1}, expected())
        refused = broker.fetch("t", len(ROWS), version=version)
        assert (refused.error_code, refused.records) == (error_code, b"")


def test_a_topic_in_zstd_is_refused_before_version_10(broker: RunningBroker) -> None:
    broker.create_topic("z", compression_type="zstd")
    broker.produce("z", build_batch(ROWS))
    assert [broker.fetch("z", version=version).error_code for version in (1, 4, 9)] == [76] * 3
    assert broker.fetch("z", version=10).error_code == 0


def test_a_large_log_is_read_to_its_end_in_limited_responses(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.broker", SOURCE_BYTES=4_000)
    for _ in range(40):
        sent = [LogRecord(NOW_MS, None, os.urandom(300)) for _ in range(5)]
        broker.produce("t", build_batch(sent, codec=Codec.GZIP))
    offset, rounds = 0, 0
    while offset < 200:
        found = rows(broker.fetch("t", offset, version=2).records)
        assert found[0][0] <= offset
        offset = found[-1][0] + 1
        rounds += 1
    assert 10 < rounds <= 40


def test_each_partition_of_the_first_versions_gets_on_however_small_its_limit(
    broker: RunningBroker,
) -> None:
    broker.create_topic("two", partitions=2)
    with broker.connect() as connection:
        batch = build_batch(ROWS)
        connection.ask(ApiKey.PRODUCE, 9, **produce_fields("two", {0: batch, 1: batch}))
        fields = fetch_fields("two", {0: 0, 1: 0}, partition_max_bytes=10)
        partitions = connection.ask(ApiKey.FETCH, 1, **fields).responses[0].partitions
    assert [rows(each.records) for each in partitions] == [expected(timed=False)] * 2


def test_clients_that_need_conversion_are_named_in_the_log(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "horolog.broker.traffic"):
        broker.produce("t", build_messages(ROWS, 0), version=0)
        for _ in range(3):
            broker.fetch("t", version=2)
        broker.fetch("t", version=NEWEST)
        broker.produce("t", build_batch(ROWS))
    told = [record.getMessage() for record in caplog.records if "converted" in record.getMessage()]
    assert len(told) == 2  # once for each client and version, until a minute has passed
    assert all("'test'" in each for each in told)
    assert records_converted(broker, "produce") == 3
    assert records_converted(broker, "fetch") == 9


def test_a_fetch_of_an_old_version_waits_for_records(broker: RunningBroker) -> None:
    with broker.connect() as connection:
        connection.send(ApiKey.FETCH, 2, **fetch_fields("t", {0: 0}, max_wait_ms=60_000))
        broker.produce("t", build_batch(ROWS))
        _, answer = connection.receive()
    assert rows(answer.responses[0].partitions[0].records) == expected()


def offsets_v0(broker: RunningBroker, time: int, most: int, topic: str = "t") -> Any:
    partition = {"partition_index": 0, "timestamp": time, "max_num_offsets": most}
    answer = broker.ask(ApiKey.LIST_OFFSETS, 0, topics=[{"name": topic, "partitions": [partition]}])
    return answer.topics[0].partitions[0]


def test_offsets_of_version_0_go_by_the_files_and_not_by_the_records(broker: RunningBroker) -> None:
    assert offsets_v0(broker, -1, 5).old_style_offsets == (0,)
    broker.create_topic("s", segment_bytes="400")
    for _ in range(3):
        broker.produce("s", build_batch([LogRecord(NOW_MS, None, bytes(100))] * 2))
    log = broker.log("s")
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    for at, segment in enumerate(log.segments):
        os.utime(segment.log.path, ns=(((at + 1) * 1_000) * 1_000_000,) * 2)
    assert offsets_v0(broker, -1, 2, "s").old_style_offsets == (6, 4)
    assert offsets_v0(broker, -2, 2, "s").old_style_offsets == (0,)
    assert offsets_v0(broker, 2_500, 9, "s").old_style_offsets == (2, 0)
    assert offsets_v0(broker, 999, 9, "s").old_style_offsets == ()
    assert offsets_v0(broker, NOW_MS, 9, "s").old_style_offsets == (6, 4, 2, 0)
    assert offsets_v0(broker, NOW_MS, -1, "s").old_style_offsets == ()
    assert offsets_v0(broker, -3, 9, "s").error_code == 35


def test_a_commit_of_version_1_has_its_own_time_but_none_later_than_now(
    broker: RunningBroker,
) -> None:
    def commit(time: int, partition: int) -> None:
        offset = {
            "partition_index": partition,
            "committed_offset": 1,
            "commit_timestamp": time,
            "committed_metadata": "m",
        }
        answer = connection.ask(
            ApiKey.OFFSET_COMMIT, 1, group_id="g", topics=[{"name": "c", "partitions": [offset]}]
        )
        assert answer.topics[0].partitions[0].error_code == 0

    broker.create_topic("c", partitions=3)
    with broker.connect() as connection:
        for partition, time in enumerate((-1, 5, 2**63 - 1)):
            commit(time, partition)
    rows_of = broker.broker.groups.offsets.of_group("g")
    assert [rows_of["c", at].commit_ms for at in range(3)] == [NOW_MS, 5, NOW_MS]


def test_an_offset_that_was_never_committed_is_an_error_in_version_0(broker: RunningBroker) -> None:
    topics = [{"name": "t", "partition_indexes": [0]}]
    with broker.connect() as connection:
        for version, error in ((0, 3), (1, 0)):
            answer = connection.ask(ApiKey.OFFSET_FETCH, version, group_id="g", topics=topics)
            (partition,) = answer.topics[0].partitions
            assert (partition.committed_offset, partition.error_code) == (-1, error)
