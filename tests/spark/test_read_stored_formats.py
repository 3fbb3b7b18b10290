"""Topics that store v0 and v1, read with both clocks, from a broker and from its files."""

from typing import Any, NamedTuple

import pytest
from log_reading import Read, schema_of
from old_messages import build_messages
from pyspark.sql.datasource import GreaterThanOrEqual, LessThan
from raw_connection import produce_fields
from running_broker import NOW_MS, MakeBroker, RunningBroker, a_broker
from streaming_query import Query, all_of

from horolog.client import Client, ResourceType
from horolog.clock import ManualClock
from horolog.errors import Misconfigured
from horolog.record import Codec, LogRecord, build_batch
from horolog.sources import columns
from horolog.wire import ApiKey

NAMES = ["offset", columns.TIMESTAMP_MS, columns.APPEND_TIME_MS, columns.CREATE_TIME_MS]
SCHEMA = schema_of(NAMES)


class Step(NamedTuple):
    """What is stored in which format, and whether under the broker's clock."""

    release: str
    stamped: bool
    sent: int
    codec: Codec


STEPS = [
    Step("0.9.0", False, 0, Codec.NONE),
    Step("0.9.0", True, 1, Codec.GZIP),
    Step("0.10.0", False, 1, Codec.NONE),
    Step("0.10.0", False, 2, Codec.LZ4),
    Step("0.10.0", True, 2, Codec.NONE),
    Step("0.10.0", True, 1, Codec.SNAPPY),
    Step("0.10.0", False, 0, Codec.NONE),
    Step("0.11.0", False, 1, Codec.GZIP),
    Step("0.11.0", True, 2, Codec.NONE),
]


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    """What is to be read: each step has two records, and is 10 ms after the one before."""
    expected = []
    for number, step in enumerate(STEPS):
        at = NOW_MS + 10 * number
        for created in (1_000 - number, -2_000 - number):
            held = created if step.sent else -1
            timestamp = at if step.stamped else held
            if step.release == "0.9.0":
                timestamp = held = -1
            elif step == STEPS[4]:  # a plain message of v1 has one timestamp
                held = at
            expected.append(
                {
                    "offset": len(expected),
                    "timestampMs": timestamp,
                    "appendTimeMs": at,
                    "createTimeMs": held,
                }
            )
    return expected


def fill(broker: RunningBroker) -> None:
    with broker.connect() as connection:
        for number, step in enumerate(STEPS):
            kind = "LogAppendTime" if step.stamped else "CreateTime"
            changes = {"message.format.version": step.release, "message.timestamp.type": kind}
            broker.client.alter_configs({(ResourceType.TOPIC, "t"): changes})
            records = [LogRecord(ms, b"k", b"v") for ms in (1_000 - number, -2_000 - number)]
            sent = (
                build_batch(records, codec=step.codec)
                if step.sent == 2
                else build_messages(records, step.sent, codec=step.codec)
            )
            fields = produce_fields("t", {0: sent})
            answer = connection.ask(ApiKey.PRODUCE, 2 if step.sent < 2 else 9, **fields)
            assert answer.responses[0].partition_responses[0].error_code == 0
            broker.clock.advance(10)


broker = a_broker(
    "t",
    of_topics={"segment_bytes": "500", "index_interval_bytes": "0", "retention_ms": "-1"},
    prepare=fill,
    inter_broker_protocol_version="2.8",
)


def sources(broker: RunningBroker) -> list[Read]:
    to_broker = {"kafka.bootstrap.servers": broker.address, "subscribe": "t"}
    return [
        Read(**to_broker, schema=SCHEMA),
        Read(broker.log_dir / "t-0", schema=SCHEMA),
    ]


def test_both_clocks_are_read_whatever_the_format(
    broker: RunningBroker, rows: list[dict[str, Any]]
) -> None:
    assert {header.magic for header in broker.headers("t")} == {0, 1, 2}
    for read in sources(broker):
        assert read.rows() == rows


@pytest.mark.parametrize("column", ["appendTimeMs", "timestampMs"])
@pytest.mark.parametrize("bounds", [(NOW_MS + 20, NOW_MS + 61), (-2_005, -2_000), (990, 1_000)])
def test_ranges_of_either_clock_are_exact(
    broker: RunningBroker, rows: list[dict[str, Any]], column: str, bounds: tuple[int, int]
) -> None:
    low, high = bounds
    filters = [GreaterThanOrEqual((column,), low), LessThan((column,), high)]
    kept = [row for row in rows if low <= row[column] < high]
    for read in sources(broker):
        found = read.rows(*filters)
        assert [row for row in found if low <= row[column] < high] == kept


@pytest.fixture
def neighbours(make_broker: MakeBroker) -> RunningBroker:
    """Topic `new`, and topic `old`, which has stored v0 since its fourth record."""
    broker = make_broker(clock=ManualClock(NOW_MS), inter_broker_protocol_version="2.8")
    client = broker.client
    for topic in ("new", "old"):
        broker.create_topic(topic)
        fill(client, topic, range(4))
    lowered = {"message.format.version": "0.9.0"}
    client.alter_configs({(ResourceType.TOPIC, "old"): lowered})
    for topic in ("new", "old"):
        fill(client, topic, range(4, 6))
    return broker


def fill(client: Client, topic: str, times: range) -> None:
    client.produce(topic, 0, build_batch([LogRecord(NOW_MS + ms, b"k", b"v") for ms in times]))


def both(new: list[int], old: list[int]) -> list[tuple[str, int, int]]:
    return [("new", 0, offset) for offset in new] + [("old", 0, offset) for offset in old]


def test_a_range_of_time_is_read_beside_a_topic_that_stores_v0(neighbours: RunningBroker) -> None:
    """Its broker finds no offset by time there, whatever times the topic holds."""
    given = {"kafka.bootstrap.servers": neighbours.address, "subscribePattern": "new|old"}

    def read(*filters: Any, **options: Any) -> list[tuple[str, int, int]]:
        rows = Read(**given, **options).rows(*filters)
        return [(row["topic"], row["partition"], row["offset"]) for row in rows]

    found = both([2, 3, 4, 5], [2, 3])
    assert read(GreaterThanOrEqual(("timestampMs",), NOW_MS + 2)) == found
    assert read(fromTimestamp=NOW_MS + 2) == found
    assert read(toTimestamp=NOW_MS + 2) == both([0, 1], [0, 1])
    assert read(endingTimestamp=NOW_MS + 2) == both([0, 1], [0, 1, 2, 3, 4, 5])
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert read(startingTimestamp=NOW_MS + 2, **latest) == both([2, 3, 4, 5], [])
    with pytest.raises(Misconfigured, match="No offset of old-0 is known to have a timestamp at"):
        read(startingTimestamp=NOW_MS + 2)


@pytest.mark.usefixtures("eager_streams")
@pytest.mark.parametrize("option", ["fromTimestamp", "backfillFromTimestamp"])
def test_a_stream_from_a_time_is_read_beside_a_topic_that_stores_v0(
    neighbours: RunningBroker, option: str
) -> None:
    start = {"startingOffsets": "earliest"} if option == "fromTimestamp" else {}
    query = Query(
        neighbours, subscribe=None, subscribePattern="new|old", **start, **{option: NOW_MS + 2}
    )
    assert all_of(query) == both([2, 3, 4, 5], [2, 3])


@pytest.mark.usefixtures("eager_streams")
def test_late_records_are_counted_beside_a_topic_that_stores_v0(neighbours: RunningBroker) -> None:
    query = Query.of(
        {
            "kafka.bootstrap.servers": neighbours.address,
            "subscribePattern": "new|old",
            "startingOffsets": "earliest",
            "includeLateness": "true",
        }
    )
    query.schema = schema_of(["topic", "partition", "offset", columns.LATE_BY_MS])
    query.reader = query.new_reader()
    assert len(query.next() or []) == 12
