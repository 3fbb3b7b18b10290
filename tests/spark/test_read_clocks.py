"""`includeAppendTime`: when records were created and appended, from a broker and from files."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faulty_calls import noted_results
from log_reading import Read, moment, schema_of
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from running_broker import NOW_MS, MakeBroker, RunningBroker, a_broker

from horolog.client import Client, PartitionFetch
from horolog.clock import ManualClock
from horolog.errors import Misconfigured
from horolog.record import (
    AppendTimeStretch,
    Codec,
    LogRecord,
    TimeRange,
    TimestampType,
    build_batch,
)
from horolog.sources import BrokerStretch, ReadOptions, appended_then, columns, scan
from horolog.storage import TopicPartition

SCHEMA = schema_of(["offset", columns.TIMESTAMP_MS, *columns.OF_CLOCKS])
AT, AT_MS = (columns.APPEND_TIME,), (columns.APPEND_TIME_MS,)


def fill(client: Client, clock: ManualClock, batches: int, **more: Any) -> None:
    """Two records a batch, created long ago and out of order, appended 10 ms apart."""
    for number in range(batches):
        times = (1_000 - number, 2_000 - number)
        client.produce("t", 0, build_batch([LogRecord(time, None, b"v") for time in times], **more))
        clock.advance(10)


broker = a_broker(
    "t",
    of_topics={"segment_bytes": "700", "message_timestamp_before_max_ms": str(1 << 60)},
    prepare=lambda broker: fill(broker.client, broker.clock, 20),
)


def expected(batches: int, *, stamped: bool = False) -> list[dict[str, Any]]:
    rows = []
    for number in range(batches):
        at = NOW_MS + 10 * number
        for created in (1_000 - number, 2_000 - number):
            rows.append(
                {
                    "offset": len(rows),
                    "timestampMs": at if stamped else created,
                    "appendTime": moment(at),
                    "appendTimeMs": at,
                    "createTime": moment(created),
                    "createTimeMs": created,
                }
            )
    return rows


def sources(broker: RunningBroker, **options: Any) -> list[Read]:
    to_broker = {"kafka.bootstrap.servers": broker.address, "subscribe": "t"}
    return [
        Read(**to_broker, schema=SCHEMA, **options),
        Read(broker.log_dir / "t-0", schema=SCHEMA, **options),
    ]


def test_both_clocks_are_columns(broker: RunningBroker) -> None:
    for read in sources(broker):
        assert read.rows() == expected(20)


FILTERS: list[tuple[list[Filter], Callable[[int], bool]]] = [
    ([GreaterThanOrEqual(AT_MS, NOW_MS + 50)], lambda ms: ms >= NOW_MS + 50),
    ([GreaterThan(AT, moment(NOW_MS + 50))], lambda ms: ms > NOW_MS + 50),
    ([LessThan(AT_MS, NOW_MS + 50)], lambda ms: ms < NOW_MS + 50),
    (
        [GreaterThan(AT_MS, NOW_MS + 45), LessThanOrEqual(AT, moment(NOW_MS + 110))],
        lambda ms: NOW_MS + 45 < ms <= NOW_MS + 110,
    ),
    ([EqualTo(AT_MS, NOW_MS + 70)], lambda ms: ms == NOW_MS + 70),
    ([EqualTo(AT_MS, NOW_MS + 75)], lambda ms: False),
    ([GreaterThan(AT_MS, NOW_MS + 5_000)], lambda ms: False),
    ([IsNotNull(AT)], lambda ms: True),
]


@pytest.mark.parametrize(("filters", "takes"), FILTERS)
def test_filters_on_the_append_time_are_pushed_down_and_exact(
    broker: RunningBroker, filters: list[Filter], takes: Callable[[int], bool]
) -> None:
    kept = [row for row in expected(20) if takes(row["appendTimeMs"])]
    for read in sources(broker):
        assert read.rows(*filters) == kept
        assert read.left == []


def test_a_range_of_append_times_can_be_an_option(broker: RunningBroker) -> None:
    options = {"fromAppendTime": NOW_MS + 50, "toAppendTime": NOW_MS + 90}
    kept = [row for row in expected(20) if 50 <= row["appendTimeMs"] - NOW_MS < 90]
    for read in sources(broker, **options):
        assert read.rows() == kept
        below = GreaterThan(AT_MS, NOW_MS + 70)
        assert read.rows(below) == [row for row in kept if row["appendTimeMs"] > NOW_MS + 70]
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    with pytest.raises(Misconfigured, match="is after toAppendTime"):
        ReadOptions.parse({**given, "fromAppendTime": "5", "toAppendTime": "4"})


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_records_that_are_stamped_keep_the_create_times_of_their_bytes(
    make_broker: MakeBroker, codec: Codec
) -> None:
    clock = ManualClock(NOW_MS)
    broker = make_broker(clock=clock)
    broker.create_topic("t", message_timestamp_type="LogAppendTime")
    fill(broker.client, clock, 20, codec=codec)
    for read in sources(broker):
        assert read.rows() == expected(20, stamped=True)
        late = GreaterThan((columns.TIMESTAMP_MS,), NOW_MS + 50)
        assert read.rows(late) == expected(20, stamped=True)[12:]
    broker.stop()
    for path in (broker.log_dir / "t-0").glob("*.companion"):
        path.unlink()  # as in a log of Apache Kafka
    (read,) = sources(broker)[1:]
    assert read.rows() == expected(20, stamped=True)
    assert read.rows(EqualTo(AT_MS, NOW_MS + 70)) == expected(20, stamped=True)[14:16]


def test_append_times_that_are_unknown_are_null_and_in_no_range(broker: RunningBroker) -> None:
    broker.stop()
    for path in sorted((broker.log_dir / "t-0").glob("*.companion"))[:2]:
        path.unlink()
    (read,) = sources(broker)[1:]
    rows = read.rows()
    unknown = [row["offset"] for row in rows if row["appendTimeMs"] is None]
    assert unknown == list(range(len(unknown)))
    assert 0 < len(unknown) < 40
    assert [row["appendTime"] for row in rows[: len(unknown)]] == [None] * len(unknown)
    assert [row["createTime"] for row in rows] == [row["createTime"] for row in expected(20)]
    assert read.rows(LessThan(AT_MS, 1 << 62)) == expected(20)[len(unknown) :]


def test_when_a_follower_saw_records_is_a_column_of_its_own(broker: RunningBroker) -> None:
    stamped = build_batch(
        [LogRecord(NOW_MS + 8, None, b"v")],
        base_offset=4,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
    )
    plain = [build_batch([LogRecord(5, None, b"v")], base_offset=offset) for offset in range(4)]
    times = [
        AppendTimeStretch(0, NOW_MS + 5, is_seen=True),
        AppendTimeStretch(2, NOW_MS + 6),
        AppendTimeStretch(3, NOW_MS + 9, is_seen=True),
    ]
    broker.restart_followed("t", b"".join([*plain, stamped]), times)
    shown = schema_of(["offset", columns.APPEND_TIME_MS, *columns.OF_SEEN])
    seen = [NOW_MS + 5, NOW_MS + 5, None, NOW_MS + 9, None]
    known = [None, None, NOW_MS + 6, None, NOW_MS + 8]
    to_broker = {"kafka.bootstrap.servers": broker.address, "subscribe": "t"}
    for read in (Read(**to_broker, schema=shown), Read(broker.log_dir / "t-0", schema=shown)):
        rows = read.rows()
        assert [row["seenTimeMs"] for row in rows] == seen
        assert [row["seenTime"] for row in rows] == [ms and moment(ms) for ms in seen]
        assert [row["appendTimeMs"] for row in rows] == known
        assert [row["offset"] for row in read.rows(LessThan(AT_MS, 1 << 62))] == [2, 4]
    for where in (broker.client, broker.log_dir / "t-0"):
        table = scan(where, "t", columns=["append_ms", "seen_ms"]).read_all()
        assert table.column("seen_ms").to_pylist() == seen
        assert table.column("append_ms").to_pylist() == known


def test_the_columns_come_only_when_asked_for(tmp_path: Path) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    assert "includeAppendTime" not in ReadOptions.parse(given).included
    assert "includeAppendTime" in ReadOptions.parse({**given, "includeAppendTime": "true"}).included
    assert "includeSeenTime" in ReadOptions.parse({**given, "includeSeenTime": "true"}).included
    of_seen = columns.default_columns("includeSeenTime")
    assert of_seen[-2:] == columns.OF_SEEN
    of_all = columns.default_columns("includeAppendTime")
    assert of_all[-4:] == columns.OF_CLOCKS
    assert [columns.TYPES[name] for name in columns.OF_CLOCKS] == ["timestamp", "bigint"] * 2


def test_a_broker_is_asked_for_no_more_than_a_range_of_append_times(broker: RunningBroker) -> None:
    to_broker = {"kafka.bootstrap.servers": broker.address, "subscribe": "t"}
    kept = BrokerStretch(TopicPartition("t", 0), 0, 40)
    client = broker.client

    def narrowed(first: int, last: int) -> BrokerStretch | None:
        return appended_then(client, kept, TimeRange(NOW_MS + first, NOW_MS + last, of_append=True))

    assert narrowed(50, 89) == replace(kept, start=10, end=18)
    assert narrowed(-50, 500) == kept
    assert narrowed(191, 500) is None
    broker.broker.clock.step("-2h")
    client.topics.reset_append_times("t")
    fill(client, broker.broker.clock, 1)
    assert narrowed(50, 89) == replace(kept, start=10), "records behind it may be earlier"
    read = Read(**to_broker, schema=SCHEMA)
    early = LessThan(AT_MS, NOW_MS)
    assert [row["offset"] for row in read.rows(early)] == [40, 41]


def test_a_range_of_append_times_fetches_the_blocks_that_may_hold_it(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(NOW_MS)
    broker = make_broker(clock=clock)
    broker.create_topic("t", 2, message_timestamp_before_max_ms=str(1 << 60))
    for number in range(60):
        for partition in (0, 1):
            record = LogRecord(NOW_MS - number % 5, None, bytes(40_000))
            broker.client.produce("t", partition, build_batch([record]))
        clock.advance("1m")
    fetched = noted_results(monkeypatch, PartitionFetch, "read", lambda answer: len(answer.records))
    to_broker = {"kafka.bootstrap.servers": broker.address, "subscribe": "t"}
    read = Read(**to_broker, schema=SCHEMA)
    for minute in (0, 30, 59):
        at = NOW_MS + 60_000 * minute
        fetched.clear()
        rows = read.rows(GreaterThanOrEqual(AT_MS, at), LessThan(AT_MS, at + 60_000))
        assert [row["appendTimeMs"] for row in rows] == [at, at]
        assert 2 * 40_000 <= sum(fetched) <= 2 * 8 * 40_000, "a block of each partition"
        both = (EqualTo(AT_MS, at), EqualTo((columns.TIMESTAMP_MS,), NOW_MS - minute % 5))
        assert len(read.rows(*both)) == 2
        assert read.rows(EqualTo(AT_MS, at), EqualTo((columns.TIMESTAMP_MS,), NOW_MS + 1)) == []
