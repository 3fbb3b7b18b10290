"""Batches and streams as of a time: the same rows each time, and starts that are kept."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from log_reading import Read, moment
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual
from running_broker import MakeBroker, RunningBroker
from storelogs import snapshot_of
from stream_run import Run
from streaming_query import NINE_MS, Query, append, rows

from horolog.clock import ManualClock
from horolog.errors import Misconfigured
from horolog.record import LogRecord, build_batch
from horolog.sources import BrokerLog, Cut, Pattern, ReadOptions, cut_of

COMPACT = {
    "cleanup_policy": "compact",
    "segment_bytes": "1000",
    "min_cleanable_dirty_ratio": "0.01",
}
pytestmark = pytest.mark.usefixtures("eager_streams")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NINE_MS)


@pytest.fixture
def orders(make_broker: MakeBroker, clock: ManualClock) -> RunningBroker:
    """Ten records a second in each of two partitions; the tenth second is the present."""
    broker = make_broker(clock=clock, log_cleaner_backoff_ms="100000000")
    broker.create_topic("orders", partitions=2)
    fill(broker, clock)
    return broker


def fill(broker: RunningBroker, clock: ManualClock, seconds: int = 10) -> None:
    for _ in range(seconds):
        for partition in (0, 1):
            append(broker.client, "orders", partition, 10)
        clock.advance("1s")
    broker.run(broker.broker.partitions.keep_stamp_clock())


def cut_of_orders(broker: RunningBroker, at_ms: int) -> Cut:
    options = ReadOptions(brokers=broker.client.config, subscription=Pattern(".*"))
    with BrokerLog(options) as log:
        return cut_of(log, at_ms, log.partitions(), NINE_MS)


def read(broker: RunningBroker, **options: Any) -> Read:
    return Read(kafka__bootstrap__servers=broker.address, **{"subscribe": "orders", **options})


def found(read: Read, *filters: Any) -> list[tuple[str, int, int]]:
    return sorted((row["topic"], row["partition"], row["offset"]) for row in read.rows(*filters))


AT_FOUR = rows(0, range(40)) + rows(1, range(40))


@pytest.mark.parametrize(
    "options", [{}, {"minPartitions": 7}, {"maxRecordsPerPartition": 9}, {"assign": "both"}]
)
def test_each_execution_of_a_frame_reads_the_same(
    options: dict[str, Any], orders: RunningBroker, clock: ManualClock, tmp_path: Path
) -> None:
    if "assign" in options:
        options = {"assign": '{"orders": [0, 1]}', "subscribe": None}
    path = snapshot_of(orders.log_dir, tmp_path / "copy")
    given = {name: value for name, value in {"subscribe": "orders", **options}.items() if value}
    frames = [
        Read(path, asOf=NINE_MS + 4_000, **given),
        Read(kafka__bootstrap__servers=orders.address, asOf=NINE_MS + 4_000, **given),
    ]
    for _ in range(3):
        assert [found(frame) for frame in frames] == [AT_FOUR, AT_FOUR]
        fill(orders, clock, 2)
    late = GreaterThanOrEqual(("offset",), 38)
    assert found(frames[1], late) == rows(0, range(38, 40)) + rows(1, range(38, 40))
    of_time = GreaterThanOrEqual(("timestamp",), moment(NINE_MS + 1))
    assert found(frames[1], of_time) == []


def test_a_cut_file_is_read_once_and_its_partitions_do_not_travel_to_tasks(
    orders: RunningBroker, tmp_path: Path
) -> None:
    file = tmp_path / "cut.json"
    file.write_bytes(cut_of_orders(orders, NINE_MS + 4_000).to_bytes())
    frame = read(orders, asOf=file)
    file.unlink()
    assert found(frame) == AT_FOUR
    in_tasks, _ = frame.plan()
    assert b"CutEntry" not in pickle.dumps(in_tasks)


def test_a_relative_time_counts_from_the_load(orders: RunningBroker, clock: ManualClock) -> None:
    clock.follow()
    append(orders.client, "orders", 0, 1)
    frame = read(orders, asOf="-0s")
    assert len(found(frame)) <= 201
    before = found(frame)
    append(orders.client, "orders", 0, 5)
    assert found(frame) == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"asOf": "soon"}, "soon"),
        ({"asOf": "none/cut.json"}, "cannot be read"),
        ({"asOf": NINE_MS + 86_400_000}, "future"),
        ({"asOf": NINE_MS, "endingOffsets": "latest"}, "leave out endingoffsets"),
        ({"asOf": NINE_MS, "startingTimestamp": "-1d"}, "leave out startingtimestamp"),
        ({"asOf": NINE_MS, "startingOffsets": "earliest"}, "leave out startingoffsets"),
    ],
)
def test_a_batch_that_cannot_be_is_refused(
    options: dict[str, Any], said: str, orders: RunningBroker
) -> None:
    with pytest.raises(Misconfigured, match=said):
        read(orders, **options).rows()


def compact_orders(broker: RunningBroker, clock: ManualClock) -> None:
    broker.create_topic("table", **COMPACT)
    for number in range(60):
        broker.append("table", build_batch([LogRecord(5, b"k", b"%d" % number)]))
        clock.advance("1s")
    broker.run(broker.broker.partitions.keep_stamp_clock())


def test_compaction_behind_a_plan_fails_its_tasks(
    orders: RunningBroker, clock: ManualClock
) -> None:
    compact_orders(orders, clock)
    frame = read(orders, subscribe="table", asOf=clock.now_ms() - 30_000)
    in_tasks, partitions = frame.plan()
    orders.run(orders.broker.cleaner.clean_all())
    (partition,) = partitions
    with pytest.raises(Misconfigured, match="compacted"):
        list(in_tasks.read(partition))
    with pytest.raises(Misconfigured, match="compacted"):
        frame.rows()


def test_a_topic_that_is_re_created_behind_a_plan_fails_its_tasks(
    orders: RunningBroker, clock: ManualClock
) -> None:
    at_ms = clock.now_ms() - 5_000
    plans = [read(orders, **{option: at_ms}).plan() for option in ("asOf", "latestAsOf")]
    orders.client.delete_topics(["orders"])
    orders.create_topic("orders", 2)
    fill(orders, clock)
    for in_tasks, partitions in plans:
        for partition in partitions:
            with pytest.raises(Misconfigured, match="orders was deleted or re-created"):
                list(in_tasks.read(partition))


# --- streams ------------------------------------------------------------------------------


@pytest.fixture(params=["broker", "files"])
def source(request: pytest.FixtureRequest, orders: RunningBroker) -> Any:
    return orders if request.param == "broker" else orders.log_dir


def test_a_stream_starts_at_a_time_and_reads_on(
    source: Any, orders: RunningBroker, clock: ManualClock
) -> None:
    query = Query(source, asOf=NINE_MS + 8_000)
    assert sorted(query.next() or []) == rows(0, range(80, 100)) + rows(1, range(80, 100))
    append(orders.client, "orders", 1, 3)
    assert query.next() == rows(1, range(100, 103))


def test_a_stream_keeps_its_start_over_a_restart(
    source: Any, orders: RunningBroker, clock: ManualClock
) -> None:
    query = Query(source, asOf=NINE_MS + 9_000)
    assert query.plan()  # and fails before it has read
    query = query.again()
    assert sorted(query.run()) == rows(0, range(90, 100)) + rows(1, range(90, 100))
    orders.client.create_partitions({"orders": 3})
    append(orders.client, "orders", 2, 4)
    assert query.again().next() == rows(2, range(4))


def test_a_restart_does_not_cut_again(
    source: Any, orders: RunningBroker, clock: ManualClock
) -> None:
    compact_orders(orders, clock)
    query = Query(source, subscribe="table", asOf=clock.now_ms() - 30_000)
    assert query.plan()
    orders.run(orders.broker.cleaner.clean_all())
    orders.restart()
    query = query.again()
    assert {partition for _, partition, _ in query.run()} == {0}
    assert query.again().next() is None
    with pytest.raises(Misconfigured, match="compacted"):
        Query(source, subscribe="table", asOf=clock.now_ms() - 30_000).next()


# --- tables -------------------------------------------------------------------------------


@pytest.fixture
def keyed(orders: RunningBroker, clock: ManualClock) -> RunningBroker:
    """Ten keys in each of three partitions, a value of each every second; the last is a delete."""
    orders.create_topic("keyed", 3)
    for second in range(6):
        for partition in range(3):
            value = None if second == 5 else b"%d" % second
            records = [LogRecord(NINE_MS, b"%d" % key, value) for key in range(10)]
            orders.append("keyed", build_batch(records), partition)
        clock.advance("1s")
    orders.run(orders.broker.partitions.keep_stamp_clock())
    return orders


def table(partitions: range, second: int) -> list[tuple[str, int, int]]:
    offsets = range(second * 10, second * 10 + 10)
    return [row for number in partitions for row in rows(number, offsets, "keyed")]


def test_a_table_has_the_last_record_of_each_key(
    keyed: RunningBroker, clock: ManualClock, tmp_path: Path
) -> None:
    path = snapshot_of(keyed.log_dir, tmp_path / "copy")
    at_ms = clock.now_ms() - 3_000
    for frame in (
        Read(path, subscribe="keyed", latestAsOf=at_ms),
        read(keyed, subscribe="keyed", latestAsOf=at_ms),
    ):
        assert found(frame) == table(range(3), 2)
        assert found(frame, EqualTo(("partition",), 1)) == table(range(1, 2), 2)
        late = GreaterThanOrEqual(("offset",), 25)
        assert found(frame, late) == table(range(3), 2)
        assert frame.left == [late]
        assert found(frame, GreaterThanOrEqual(("timestamp",), moment(NINE_MS + 1))) != []
        values = {bytes(row["value"]) for row in frame.rows()}
        assert values == {b"2"}
    assert found(read(keyed, subscribe="keyed", latestAsOf=clock.now_ms())) == []


def test_a_table_is_read_by_few_tasks(keyed: RunningBroker, clock: ManualClock) -> None:
    keyed.create_topic("many", 40)
    for number in range(40):
        keyed.append("many", build_batch([LogRecord(5, b"k", b"v")] * 3), number)
    clock.advance("1s")
    frame = read(keyed, subscribe="many", latestAsOf=clock.now_ms() - 500)
    source = pickle.loads(frame._source)
    source.cores = 2
    frame._source = pickle.dumps(source)
    _, partitions = frame.plan()
    assert 4 <= len(partitions) <= 9
    assert found(frame) == [("many", number, 2) for number in range(40)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"asOf": NINE_MS}, "either asOf or latestAsOf"),
        ({"minPartitions": 4}, "whole partitions"),
        ({"maxRecordsPerPartition": 4}, "whole partitions"),
        ({"toTimestamp": NINE_MS}, "filter the frame"),
        ({"fromAppendTime": NINE_MS}, "filter the frame"),
        ({"kafka__isolation__level": "read_uncommitted"}, "committed records alone"),
        ({"endingOffsets": "latest"}, "leave out endingoffsets"),
        ({"latestMemory": "much"}, "latestMemory"),
        ({"latestMemory": "10"}, "more than latestMemory of 10 B allows: 1MiB would do"),
        ({"latestAsOf": "soon"}, "soon"),
        ({"latestAsOf": NINE_MS + 86_400_000}, "future"),
    ],
)
def test_a_table_that_cannot_be_is_refused(
    options: dict[str, Any], said: str, keyed: RunningBroker
) -> None:
    given = {"subscribe": "keyed", "latestAsOf": NINE_MS + 12_000, **options}
    with pytest.raises(Misconfigured, match=said):
        read(keyed, **given).rows()


def test_a_stream_has_no_table(keyed: RunningBroker) -> None:
    with pytest.raises(Misconfigured, match="latestAsOf is for batches"):
        Query(keyed, subscribe="keyed", latestAsOf=NINE_MS).next()


def test_a_table_whose_cut_compaction_has_passed_is_refused(
    orders: RunningBroker, clock: ManualClock
) -> None:
    compact_orders(orders, clock)
    orders.run(orders.broker.cleaner.clean_all())
    with pytest.raises(Misconfigured, match="compacted"):
        read(orders, subscribe="table", latestAsOf=clock.now_ms() - 30_000).rows()
    frame = read(orders, subscribe="table", latestAsOf=clock.now_ms())
    assert [row["value"] for row in frame.rows()] == [b"59"]


# --- on a real Spark ----------------------------------------------------------------------


@pytest.mark.spark
def test_frames_and_streams_on_spark(
    spark: Any, orders: RunningBroker, clock: ManualClock, tmp_path: Path
) -> None:
    def loaded(reader: Any) -> Any:
        options = {"kafka.bootstrap.servers": orders.address, "subscribe": "orders"}
        options["asOf"] = f"{NINE_MS + 4_000}"
        return reader.format("horolog").options(**options).load()

    frame = loaded(spark.read)
    counts: list[Callable[[], int]] = [
        frame.count,
        lambda: frame.where("partition = 1 and offset >= 30").count() * 8,
        lambda: frame.repartition(3).distinct().count(),
        lambda: len(frame.limit(100).collect()),
    ]
    for count in counts:
        assert count() == 80
        fill(orders, clock, 1)
    run = Run(spark, loaded(spark.readStream), tmp_path)
    run.now().awaitTermination()
    assert spark.read.parquet(str(tmp_path / "out")).count() == 200
    assert run.offsets()[0]["starts"] == {"orders": {"0": 40, "1": 40}}


@pytest.mark.spark
def test_tables_on_spark(spark: Any, keyed: RunningBroker, clock: ManualClock) -> None:
    options = {"kafka.bootstrap.servers": keyed.address, "subscribe": "keyed"}
    frame = spark.read.format("horolog").options(**options)
    frame = frame.option("latestAsOf", clock.now_ms() - 2_000).load()
    assert frame.count() == 30
    assert frame.where("partition = 2 and offset >= 35").count() == 5
    assert frame.where("value = '2'").count() == 0
    assert frame.select("key").distinct().count() == 10
