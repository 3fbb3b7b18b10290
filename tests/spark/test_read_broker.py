"""Reads from a running broker, as Spark's planner and tasks do them."""

from typing import Any

import pytest
from log_reading import Read, moment
from overrides import override
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, InputPartition, LessThan
from running_broker import RunningBroker

from horolog.client import Client, NoAnswer, Offsets, PartitionFetch
from horolog.errors import Misconfigured
from horolog.record import Codec, LogRecord, build_batch
from horolog.sources import DataLost
from horolog.spark.read.batch import LogReader

NINE_MS = 1_700_000_000_000
TIME = ("timestamp",)
END = '{"orders":{"0":100,"1":60,"2":0}}'


def fill(client: Client, topic: str, partition: int, times_ms: list[int], each: int = 10) -> None:
    for start in range(0, len(times_ms), each):
        records = [LogRecord(ms, b"k", b"v" * 50) for ms in times_ms[start : start + each]]
        client.produce(topic, partition, build_batch(records, codec=Codec.LZ4))


@pytest.fixture
def orders(broker: RunningBroker, client: Client) -> RunningBroker:
    """Three partitions of which the last is empty; the second has late records."""
    broker.create_topic("orders", partitions=3)
    fill(client, "orders", 0, [NINE_MS + number for number in range(100)])
    late = [NINE_MS + number - 50_000 * (number % 10 == 9) for number in range(60)]
    fill(client, "orders", 1, late)
    return broker


def load(broker: RunningBroker, **options: object) -> Read:
    return Read(**{"kafka.bootstrap.servers": broker.address, **options})


def found(read: Read, *filters) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in read.rows(*filters)]


def rows_of(plan: tuple[LogReader, list[InputPartition]]) -> list[tuple[int, int]]:
    """Rows of a plan that was made before something happened to the log."""
    reader, partitions = plan
    tables = [table for partition in partitions for table in reader.read(partition)]
    return [(row["partition"], row["offset"]) for table in tables for row in table.to_pylist()]


def both(first: range, second: range) -> list[tuple[int, int]]:
    return [(0, offset) for offset in first] + [(1, offset) for offset in second]


def test_every_record_of_a_topic_is_read_once(orders: RunningBroker) -> None:
    read = load(orders, subscribe="orders")
    assert found(read) == both(range(100), range(60))
    row = read.rows()[7]
    assert (row["topic"], row["key"], row["value"]) == ("orders", b"k", b"v" * 50)
    assert (row["timestampMs"], row["timestamp"]) == (NINE_MS + 7, moment(NINE_MS + 7))


def test_partitions_are_picked_by_option_and_by_filter(orders: RunningBroker) -> None:
    assert found(load(orders, assign='{"orders":[1]}')) == both(range(0), range(60))
    assert found(load(orders, subscribePattern="ord.*"), EqualTo(("partition",), 0)) == both(
        range(100), range(0)
    )
    with pytest.raises(Misconfigured, match="no topic coins at"):
        load(orders, subscribe="coins").plan()
    with pytest.raises(Misconfigured, match="no partition orders-9 at"):
        load(orders, assign='{"orders":[9]}').plan()


def test_no_topic_is_created_by_reading(orders: RunningBroker, client: Client) -> None:
    with pytest.raises(Misconfigured, match="no topic coins"):
        load(orders, subscribe="coins").plan()
    assert "coins" not in client.metadata().topics


def test_a_filter_on_time_is_exact_where_options_are_offsets(orders: RunningBroker) -> None:
    from_ms, to_ms = NINE_MS + 30, NINE_MS + 45
    between = [GreaterThanOrEqual(TIME, moment(from_ms)), LessThan(TIME, moment(to_ms))]
    exact = both(range(30, 45), range(30, 45))
    exact.remove((1, 39))
    assert found(load(orders, subscribe="orders"), *between) == exact
    limits = {"startingTimestamp": from_ms, "endingTimestamp": to_ms}
    offsets = load(orders, assign='{"orders":[0,1]}', **limits)
    assert found(offsets) == both(range(30, 45), range(30, 45))


def test_partitions_without_a_late_record_are_not_asked_for_any(orders: RunningBroker) -> None:
    read = load(orders, subscribe="orders")
    _, partitions = read.plan(GreaterThanOrEqual(TIME, moment(NINE_MS + 80)))
    stretches = [stretch for partition in partitions for stretch in partition.value]
    planned = [(each.partition.partition, each.start, each.end) for each in stretches]
    # The empty ones are for what may have come when the plan is executed.
    assert planned == [(0, 80, 100), (1, 60, 60), (2, 0, 0)]


def test_offsets_of_each_partition_may_be_given(orders: RunningBroker) -> None:
    read = load(
        orders,
        subscribe="orders",
        startingOffsets='{"orders":{"0":90,"1":-2,"2":-2}}',
        endingOffsets='{"orders":{"0":-1,"1":5,"2":-1}}',
    )
    assert found(read) == both(range(90, 100), range(5))


def append_later(client: Client) -> None:
    """Records behind all that there is, and one in a partition that was empty."""
    fill(client, "orders", 0, [NINE_MS + 500])
    fill(client, "orders", 1, [NINE_MS - 500, NINE_MS + 500])
    fill(client, "orders", 2, [NINE_MS + 500])


LATER = [*both(range(101), range(62)), (2, 0)]


def test_a_query_sees_what_is_appended_after_load(orders: RunningBroker, client: Client) -> None:
    read = load(orders, subscribe="orders")
    append_later(client)
    assert found(read) == LATER


def test_a_plan_that_is_executed_again_sees_what_was_appended(orders: RunningBroker) -> None:
    read = load(orders, subscribe="orders")
    late = GreaterThanOrEqual(TIME, moment(NINE_MS + 90))
    plans = [read.plan(), read.plan(late), read.plan(LessThan(("offset",), 61))]
    assert rows_of(plans[0]) == both(range(100), range(60))
    assert rows_of(plans[1]) == both(range(90, 100), range(0))
    append_later(orders.client)
    assert rows_of(plans[0]) == LATER
    assert rows_of(plans[1]) == [*both(range(90, 101), range(61, 62)), (2, 0)]
    assert rows_of(plans[2]) == [*both(range(61), range(61)), (2, 0)]


def test_an_end_that_an_option_fixes_stays(orders: RunningBroker, client: Client) -> None:
    reads = [
        load(orders, subscribe="orders", endingOffsets=END),
        load(orders, subscribe="orders", endingTimestamp=NINE_MS + 400),
        load(orders, subscribe="orders", endingTimestamp=NINE_MS + 501),
    ]
    plans = [read.plan() for read in reads]
    append_later(client)
    before = both(range(100), range(60))
    assert rows_of(plans[0]) == found(reads[0]) == before
    # As no record was that late, the end was the log end, and is found once there is one.
    assert rows_of(plans[1]) == LATER
    assert found(reads[1]) == both(range(100), range(61))
    assert found(reads[2]) == LATER


def test_a_plan_that_options_cut_into_pieces_is_fixed_as_with_sparks_own_source(
    orders: RunningBroker, client: Client
) -> None:
    cut = load(orders, subscribe="orders", minPartitions=4).plan()
    limited = load(orders, subscribe="orders", maxRecordsPerPartition=50).plan()
    not_cut = load(orders, subscribe="orders", minPartitions=3).plan()
    append_later(client)
    assert sorted(rows_of(cut)) == rows_of(limited) == both(range(100), range(60))
    assert sorted(rows_of(not_cut)) == LATER


def test_min_partitions_splits_and_max_records_limits(orders: RunningBroker) -> None:
    _, partitions = load(orders, subscribe="orders", minPartitions=8).plan()
    assert len(partitions) == 8
    reader, partitions = load(orders, subscribe="orders", maxRecordsPerPartition=30).plan()
    rows = [sum(table.num_rows for table in reader.read(each)) for each in partitions]
    assert max(rows) <= 30
    assert sum(rows) == 160


def test_small_fetches_give_the_same_rows(orders: RunningBroker) -> None:
    read = load(orders, **{"subscribe": "orders", "kafka.max.partition.fetch.bytes": 100})
    assert found(read) == both(range(100), range(60))


def test_earliest_is_where_the_log_starts_when_it_is_read(orders: RunningBroker) -> None:
    read = load(orders, subscribe="orders")
    plan = read.plan()
    cut = load(orders, subscribe="orders", minPartitions=8)
    plan_of_cut = cut.plan()
    orders.log("orders", 0).delete_records(40)
    assert found(read) == rows_of(plan) == both(range(40, 100), range(60))
    # A plan that options cut into pieces has its start fixed.
    with pytest.raises(DataLost, match="orders-0 was to be read from offset 0, and starts at 40"):
        rows_of(plan_of_cut)
    assert sorted(found(cut)) == both(range(40, 100), range(60))


def test_a_start_that_was_deleted_is_lost_data(orders: RunningBroker) -> None:
    start = {"startingOffsets": '{"orders":{"0":0,"1":-2,"2":-2}}'}
    strict = load(orders, subscribe="orders", **start)
    lenient = load(orders, subscribe="orders", **start, failOnDataLoss="false")
    orders.log("orders", 0).delete_records(40)
    with pytest.raises(DataLost, match="orders-0 was to be read from offset 0, and starts at 40"):
        strict.plan()
    assert found(lenient) == both(range(40, 100), range(60))


def test_records_deleted_out_of_the_middle_of_a_batch_do_not_come_back(
    broker: RunningBroker, client: Client
) -> None:
    broker.create_topic("orders", partitions=1)
    fill(client, "orders", 0, [NINE_MS + number for number in range(200)], each=200)
    options = {"subscribe": "orders", "startingOffsets": '{"orders":{"0":10}}'}
    end = {"endingOffsets": '{"orders":{"0":150}}'}
    strict = load(broker, **options, **end)
    lenient = load(broker, **options, **end, failOnDataLoss="false")

    plans = strict.plan(), lenient.plan()
    broker.log("orders", 0).delete_records(50)
    lost = "orders-0 was to be read from offset 10, and starts at 50 now"
    for _ in range(2):  # the plan that was made before, and a new one
        with pytest.raises(DataLost, match=lost):
            rows_of(plans[0])
        assert rows_of(plans[1]) == [(0, offset) for offset in range(50, 150)]
        with pytest.raises(DataLost, match=lost):
            strict.plan()
        plans = plans[0], lenient.plan()


def test_records_deleted_while_a_task_reads_do_not_come_back(
    broker: RunningBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log start moves into a batch that the task has not reached yet."""
    broker.create_topic("orders", partitions=1)
    fill(client, "orders", 0, [NINE_MS + number for number in range(300)], each=100)
    lenient = load(broker, subscribe="orders", failOnDataLoss="false", kafka__fetch__max__bytes="1")
    prepare = PartitionFetch.prepare
    asked = []

    def prepared(self: PartitionFetch, *how: Any) -> Any:
        if asked == [0]:
            broker.log("orders", 0).delete_records(230)
        asked.append(self.offset)
        return prepare(self, *how)

    monkeypatch.setattr(PartitionFetch, "prepare", prepared)
    assert found(lenient) == [(0, offset) for offset in (*range(100), *range(230, 300))]
    assert set(asked) == {0, 100, 230}


@pytest.fixture
def striped(broker: RunningBroker, client: Client) -> RunningBroker:
    """Ten segments of ten records; those of every other one are from `NINE_MS` on."""
    broker.create_topic("orders", segment_bytes="300", index_interval_bytes="0")
    for start in range(0, 100, 10):
        early = 50_000 * (start // 10 % 2)
        fill(client, "orders", 0, [NINE_MS + start + each - early for each in range(10)])
    return broker


LATE = GreaterThanOrEqual(TIME, moment(NINE_MS))


@pytest.mark.parametrize("start", [5, 10, 25, 45, 70, 85, 100])
def test_a_filtered_read_begins_where_the_log_does_by_then(
    striped: RunningBroker, client: Client, start: int
) -> None:
    """As one without a filter, whatever its plan leaves out in between."""
    _, partitions = plan = load(striped, subscribe="orders").plan(LATE)
    assert len(partitions[0].value) >= 5
    fill(client, "orders", 0, [NINE_MS + 100 + each for each in range(10)])
    striped.log("orders", 0).delete_records(start)
    left = [offset for offset in range(start, 110) if offset >= 100 or offset // 10 % 2 == 0]
    assert rows_of(plan) == [(0, offset) for offset in left]


def test_what_a_filtered_read_misses_amid_its_rows_is_lost_data(striped: RunningBroker) -> None:
    reader, partitions = load(striped, subscribe="orders").plan(LATE)
    tables = iter(reader.read(partitions[0]))
    assert next(tables).column("offset").to_pylist() == list(range(10))
    striped.log("orders", 0).delete_records(85)
    with pytest.raises(DataLost, match=r"orders-0 was to be read from offset .*, and starts at 85"):
        list(tables)


def test_a_log_that_ends_before_the_offset_that_is_asked_for_is_lost_data(
    broker: RunningBroker,
) -> None:
    """As after an unclean leader election: the topic was deleted and created again."""
    broker.create_topic("orders", partitions=1)
    fill(broker.client, "orders", 0, [NINE_MS + number for number in range(50)])
    strict = load(broker, subscribe="orders", startingOffsets='{"orders":{"0":20}}')
    lenient = load(
        broker,
        subscribe="orders",
        startingOffsets='{"orders":{"0":20}}',
        failOnDataLoss="false",
    )

    plans = strict.plan(), lenient.plan()
    broker.client.delete_topics(["orders"])
    broker.create_topic("orders", partitions=1)
    fill(broker.client, "orders", 0, [NINE_MS] * 5)
    with pytest.raises(
        DataLost, match="orders-0 was to be read from offset 20 up to 50, and ends at 5 now"
    ):
        rows_of(plans[0])
    assert rows_of(plans[1]) == []


def test_a_topic_deleted_after_planning_is_lost_data(
    orders: RunningBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.client", UNKNOWN_TOPIC_MS=100)
    strict = load(orders, subscribe="orders").plan()
    lenient = load(orders, subscribe="orders", failOnDataLoss="false").plan()
    client.delete_topics(["orders"])
    with pytest.raises(DataLost, match="orders-0 does not exist any more"):
        rows_of(strict)
    assert rows_of(lenient) == []


def test_a_read_may_start_and_end_before_1970(
    broker: RunningBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("old")
    fill(client, "old", 0, [-9000, -1, -2000, -1, 5, -7000], each=1)
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    for first, last, offsets in ((-9000, -2000, [0, 1]), (-8999, 1, [2, 3]), (0, 5, [])):
        times = {"startingTimestamp": first, "endingTimestamp": last, **latest}
        assert found(load(broker, subscribe="old", **times)) == [(0, each) for each in offsets]
    assert found(load(broker, subscribe="old", startingTimestamp="1969-12-31T23:59:58Z")) == [
        (0, each) for each in range(2, 6)
    ]
    monkeypatch.setattr(Offsets, "has_append_times", lambda _: False)  # as Apache Kafka
    with pytest.raises(Misconfigured, match="Filter on timestamp instead"):
        load(broker, subscribe="old", startingTimestamp=-7).plan()


def test_a_filter_may_be_before_1970(orders: RunningBroker) -> None:
    read = load(orders, subscribe="orders")
    assert len(read.rows(GreaterThanOrEqual(TIME, moment(-5000)))) == 160
    assert read.rows(EqualTo(("timestampMs",), -5000)) == []


def test_a_broker_that_is_not_there_is_named() -> None:
    with pytest.raises(NoAnswer, match=r"127\.0\.0\.1:1"):
        Read(
            **{
                "kafka.bootstrap.servers": "127.0.0.1:1",
                "subscribe": "orders",
                "fetchOffset.numRetries": 1,
                "kafka.request.timeout.ms": 200,
            }
        ).plan()
