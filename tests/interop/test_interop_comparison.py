"""What docs/comparison.md says of Apache Kafka, asked of Apache Kafka."""

import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from struct import pack_into
from typing import Any, Final
from uuid import uuid4

import crc32c
import pytest
from patience import PATIENCE_S, eventually
from raw_connection import RawConnection, produce_fields
from tests.interop.conftest import ROOT
from tools.peers.kafka import PEERS, Kafka, run_tool

from horolog.client import Client, ResourceType
from horolog.clock import DAY_MS, SystemClock
from horolog.errors import ErrorCode
from horolog.patterns import name_pattern
from horolog.record import LogRecord, TimestampType, build_batch, parse_header, read_records
from horolog.storage import kafka_uuid
from horolog.wire import ApiKey

FOREVER: Final = {"retention.ms": "-1"}
SMALL_SEGMENTS: Final = {**FOREVER, "internal.segment.bytes": "900"}
STAMPED: Final = {**FOREVER, "message.timestamp.type": "LogAppendTime"}
T0_MS: Final = 1_700_000_000_000
OF_A_TOPIC: Final = "foreign"
NOT_OF_KAFKA: Final = {
    "metrics": "its exporters are projects of their own",
    "why a segment is still there": "no tool of Kafka's says it",
    "records in the order of time": "a consumer reads partitions one by one",
    "queries": "it has no queries",
    "faults for tests of clients": "its brokers make none on demand",
    "is an hour complete?": "no broker of it says what is still to come",
    "how far a group is behind": "test_interop_lag.py has it",
    "a second cluster with the same offsets": "KIP-382 has it: MirrorMaker 2 maps offsets",
    "install": "the jars of .peers run on a JVM",
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: Any) -> Iterator[Kafka]:
    """One that has been stopped and started: with a batch stamped by a clock that was ahead, and
    the directory of a partition that it has not written."""
    node = Kafka(
        tmp_path_factory.mktemp("kafka"),
        settings={"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500"},
    )
    with node:
        make(node, "clock-ahead", STAMPED)
        assert produce(node, "clock-ahead", batch(T0_MS)) == 0
    stamp(node.log_dir / "clock-ahead-0" / f"{0:020}.log", SystemClock().now_ms() + DAY_MS)
    foreign = node.log_dir / f"{OF_A_TOPIC}-0"
    foreign.mkdir()
    (foreign / f"{0:020}.log").write_bytes(batch(T0_MS))
    (foreign / "partition.metadata").write_text(f"version: 0\ntopic_id: {kafka_uuid(uuid4())}\n")
    with node:
        yield node


def stamp(log: Path, append_time_ms: int) -> None:
    """Give the only batch of a log another append time."""
    data = bytearray(log.read_bytes())
    assert parse_header(data).timestamp_type is TimestampType.LOG_APPEND_TIME
    pack_into(">q", data, 35, append_time_ms)
    pack_into(">I", data, 17, crc32c.crc32c(data[21:]))
    log.write_bytes(data)


def make(kafka: Kafka, topic: str, settings: Mapping[str, str]) -> None:
    with Client(kafka.bootstrap) as client:
        client.create_topics({topic: 1}, configs=settings)
    assert eventually(lambda: lookup(kafka, topic, -2)[0] == 0)  # its leader is there


def batch(*times_ms: int, **more: Any) -> bytes:
    return build_batch([LogRecord(ms, b"k", b"v" * 100) for ms in times_ms], **more)


def answer(kafka: Kafka, topic: str, records: bytes) -> Any:
    with RawConnection(kafka.bootstrap, timeout_s=PATIENCE_S) as connection:
        fields = produce_fields(topic, {0: records}, acks=-1)
        return connection.ask(ApiKey.PRODUCE, 9, **fields).responses[0].partition_responses[0]


def produce(kafka: Kafka, topic: str, records: bytes) -> int:
    return int(answer(kafka, topic, records).error_code)


def lookup(kafka: Kafka, topic: str, timestamp: int) -> tuple[int, int]:
    """Error code and offset."""
    with RawConnection(kafka.bootstrap, timeout_s=PATIENCE_S) as connection:
        partition = {"partition_index": 0, "timestamp": timestamp}
        topics = [{"name": topic, "partitions": [partition]}]
        found = connection.ask(ApiKey.LIST_OFFSETS, 9, topics=topics).topics[0].partitions[0]
    return int(found.error_code), int(found.offset)


def stored_times(kafka: Kafka, topic: str) -> list[int]:
    with Client(kafka.bootstrap) as client:
        data, times = memoryview(client.fetch(topic, 0, 0).records), []
    while data:
        size = parse_header(data).size
        times += [record.timestamp for record in read_records(data[:size])]
        data = data[size:]
    return times


def test_a_segment_without_timestamps_hides_later_matches(kafka):
    make(kafka, "hidden", SMALL_SEGMENTS)
    for _ in range(8):
        assert produce(kafka, "hidden", batch(-1, -1)) == 0
    assert produce(kafka, "hidden", batch(T0_MS)) == 0
    assert lookup(kafka, "hidden", T0_MS) == (0, -1)


def test_offsets_at_both_ends_lose_late_records(kafka):
    make(kafka, "late", FOREVER)
    assert produce(kafka, "late", batch(T0_MS, T0_MS + 100, T0_MS + 1)) == 0
    start, end = lookup(kafka, "late", T0_MS), lookup(kafka, "late", T0_MS + 50)
    assert (start, end) == ((0, 0), (0, 1))
    assert stored_times(kafka, "late")[2] < T0_MS + 50


def test_the_tool_for_groups_finds_a_time_by_create_times(kafka):
    make(kafka, "reset", FOREVER)
    assert produce(kafka, "reset", batch(T0_MS, T0_MS + 100, T0_MS + 1)) == 0
    at = datetime.fromtimestamp((T0_MS + 50) / 1000, UTC).isoformat(timespec="milliseconds")
    said = kafka.tool(
        *("groups", "--group", "resets", "--topic", "reset", "--reset-offsets", "--dry-run"),
        *("--to-datetime", at.removesuffix("+00:00")),
    ).stdout.decode()
    assert re.search(r"^resets +reset +0 +1 *$", said, re.MULTILINE)  # and 2 is of before


def test_a_rejected_timestamp_gets_error_32_and_the_bounds(kafka):
    make(kafka, "bounded", {**FOREVER, "message.timestamp.before.max.ms": "1000"})
    refused = answer(kafka, "bounded", batch(T0_MS * 1_000_000))
    assert refused.error_code == ErrorCode.invalid_timestamp
    said = refused.record_errors[0].batch_index_error_message
    assert "The timestamp should be within [" in said
    assert "nano" not in said


def test_one_of_create_time_and_append_time_is_kept(kafka):
    make(kafka, "stamped", STAMPED)
    assert produce(kafka, "stamped", batch(T0_MS)) == 0
    assert stored_times(kafka, "stamped")[0] > T0_MS
    make(kafka, "created", FOREVER)
    assert produce(kafka, "created", batch(T0_MS)) == 0
    assert stored_times(kafka, "created") == [T0_MS]


def test_append_times_go_back_with_the_clock(kafka):
    assert produce(kafka, "clock-ahead", batch(T0_MS)) == 0
    first, second = stored_times(kafka, "clock-ahead")
    assert second < first


def test_a_producer_may_claim_log_append_time(kafka):
    make(kafka, "claimed", FOREVER)
    claimed = batch(T0_MS, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert produce(kafka, "claimed", claimed) == 0


def test_times_before_1970_are_stored_unless_recompressed_and_not_found(kafka):
    make(kafka, "old", FOREVER)
    assert produce(kafka, "old", batch(-5_000, -7, 5)) == 0
    assert stored_times(kafka, "old") == [-5_000, -7, 5]
    assert lookup(kafka, "old", -5_000) == (ErrorCode.unsupported_version, -1)
    make(kafka, "recompressed", {**FOREVER, "compression.type": "gzip"})
    assert produce(kafka, "recompressed", batch(-5_000)) == ErrorCode.unknown_server_error
    assert produce(kafka, "recompressed", batch(5)) == 0


def test_a_foreign_directory_is_set_aside(kafka):
    assert not (kafka.log_dir / f"{OF_A_TOPIC}-0").exists()
    assert len(list(kafka.log_dir.glob(f"{OF_A_TOPIC}-0.*-stray"))) == 1
    with Client(kafka.bootstrap) as client:
        assert OF_A_TOPIC not in client.metadata().topics


def test_retention_deletes_old_data_at_once(kafka):
    make(kafka, "bootstrapped", {"retention.ms": str(7 * DAY_MS)})
    assert produce(kafka, "bootstrapped", batch(T0_MS)) == 0
    assert eventually(lambda: lookup(kafka, "bootstrapped", -2)[1] == 1)


def test_tiered_storage_is_by_topic(kafka):
    make(kafka, "tiered", FOREVER)
    with Client(kafka.bootstrap) as client:
        resource = ResourceType.TOPIC, "tiered"
        assert "remote.storage.enable" in client.describe_configs([resource])[resource]


def test_the_dump_tool_prints_a_line_for_each_batch(kafka):
    make(kafka, "dumped", FOREVER)
    for _ in range(3):
        assert produce(kafka, "dumped", batch(T0_MS)) == 0
    log = kafka.log_dir / "dumped-0" / f"{0:020}.log"
    assert eventually(lambda: log.stat().st_size >= 3 * len(batch(T0_MS)))
    printed = run_tool("dump", "--files", str(log)).stdout.decode().splitlines()
    assert sum(line.startswith("baseOffset:") for line in printed) == 3


def test_brokers_match_patterns_of_re2s_syntax(kafka):
    with RawConnection(kafka.bootstrap, timeout_s=PATIENCE_S) as connection:
        for pattern in ("a+", "(?i)[[:alpha:]]", "(?=a)", r"(a)\1", "a++", r"a\Z", "(?x)a"):
            fields = {"transactional_id_pattern": pattern, "duration_filter": -1}
            of_kafka = connection.ask(ApiKey.LIST_TRANSACTIONS, 2, **fields).error_code
            try:
                name_pattern(pattern)
            except ValueError:
                assert of_kafka == ErrorCode.invalid_regular_expression, pattern
            else:
                assert of_kafka == ErrorCode.none, pattern


def test_mirror_maker_runs_on_connect():
    (jar,) = (PEERS / "mirror-maker").glob("connect-mirror-[0-9]*.jar")
    with zipfile.ZipFile(jar) as classes:
        source = classes.read("org/apache/kafka/connect/mirror/MirrorSourceConnector.class")
    assert b"org/apache/kafka/connect/source/SourceConnector" in source


CHECKS: Final[Mapping[str, Callable[..., None]]] = {
    "offset lookup by timestamp": test_a_segment_without_timestamps_hides_later_matches,
    "time range in Spark": test_offsets_at_both_ends_lose_late_records,
    "setting a group to a time": test_the_tool_for_groups_finds_a_time_by_create_times,
    "rejected timestamps": test_a_rejected_timestamp_gets_error_32_and_the_bounds,
    "create time and append time": test_one_of_create_time_and_append_time_is_kept,
    "LogAppendTime": test_append_times_go_back_with_the_clock,
    "a producer that claims LogAppendTime": test_a_producer_may_claim_log_append_time,
    "timestamps before 1970": test_times_before_1970_are_stored_unless_recompressed_and_not_found,
    "a foreign log directory": test_a_foreign_directory_is_set_aside,
    "a table of old data into a topic": test_retention_deletes_old_data_at_once,
    "archives": test_tiered_storage_is_by_topic,
    "checking files": test_the_dump_tool_prints_a_line_for_each_batch,
    "patterns of names": test_brokers_match_patterns_of_re2s_syntax,
    "copying topics": test_mirror_maker_runs_on_connect,
}


def test_every_row_about_kafka_has_its_test():
    text = (ROOT / "docs" / "comparison.md").read_text()
    table = text[text.index("| | Apache Kafka 4 | horolog |") :].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in table.splitlines()[2:]]
    assert {row for row, of_kafka in rows if of_kafka} == {*CHECKS, *NOT_OF_KAFKA}
