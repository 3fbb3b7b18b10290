"""Streams as Spark's engine drives them: micro-batches and restarts, without Spark or Java."""

import json
import threading
import time
from typing import Any

import pytest
from faulty_calls import failing, noted_calls
from hypothesis import given
from hypothesis import strategies as st
from overrides import override
from patience import PATIENCE_S
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from running_broker import RunningBroker
from streaming_query import NINE_MS, Query, Row, append, rows

from horolog.client import Client, Groups, Offsets
from horolog.errors import ErrorCode, Misconfigured, RequestRefused
from horolog.sources import DataLost, StreamOffset, limited
from horolog.spark.read import stream_looks
from horolog.storage import TopicPartition

pytestmark = pytest.mark.usefixtures("eager_streams")


@pytest.fixture
def orders(broker: RunningBroker, client: Client) -> RunningBroker:
    broker.create_topic("orders", partitions=2)
    append(client, "orders", 0, 30)
    append(client, "orders", 1, 10)
    return broker


def test_a_stream_reads_each_record_once(orders: RunningBroker, client: Client) -> None:
    query = Query(orders, startingOffsets="earliest")
    assert query.next() == rows(0, range(30)) + rows(1, range(10))
    assert query.next() is None
    append(client, "orders", 1, 5)
    assert query.next() == rows(1, range(10, 15))
    query = query.again()
    assert query.next() is None
    append(client, "orders", 0, 1)
    assert query.next() == rows(0, range(30, 31))


def test_a_stream_starts_at_the_latest_offsets_by_default_and_writes_them_down(
    orders: RunningBroker, client: Client
) -> None:
    query = Query(orders)
    assert query.next() == []
    assert query.next() is None
    query = query.again()
    append(client, "orders", 0, 3)
    assert query.next() == rows(0, range(30, 33))


@pytest.mark.parametrize("options", [{}, {"startingTimestamp": "-1s"}])
def test_a_first_batch_that_fails_loses_nothing(
    orders: RunningBroker, client: Client, options: dict[str, str]
) -> None:
    if options:
        options["startingOffsetsByTimestampStrategy"] = "latest"
    query = Query(orders, **options)
    start = query.begins_at()
    append(client, "orders", 0, 5)
    assert query.plan()
    assert start["offsets"] == {"orders": {"0": 30, "1": 10}}
    append(client, "orders", 0, 5)
    query = query.again()  # it failed before it read
    assert query.begins_at()["offsets"] != start["offsets"]
    assert query.run() == rows(0, range(30, 35))
    assert query.next() == rows(0, range(35, 40))


def test_a_stream_starts_at_a_moment_or_at_given_offsets(orders: RunningBroker) -> None:
    append(orders.client, "orders", 0, 2, NINE_MS + 10)
    append(orders.client, "orders", 1, 1, NINE_MS + 20)
    at_time = Query(orders, startingTimestamp=NINE_MS + 5)
    assert at_time.next() == rows(0, range(30, 32)) + rows(1, range(10, 11))
    at_offsets = Query(orders, startingOffsets='{"orders":{"0":28,"1":-1}}')
    assert at_offsets.next() == rows(0, range(28, 32))
    with pytest.raises(Misconfigured, match="No offset of orders-0 is known to have a"):
        Query(orders, startingTimestamp=NINE_MS + 15).next()


def test_a_micro_batch_takes_so_many_offsets_in_proportion(orders: RunningBroker) -> None:
    query = Query(orders, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    assert query.next() == rows(0, range(15)) + rows(1, range(5))
    assert query.next() == rows(0, range(15, 30)) + rows(1, range(5, 10))
    assert query.next() is None


def test_a_micro_batch_waits_for_enough_or_long_enough(orders: RunningBroker) -> None:
    query = Query(orders, startingOffsets="earliest", minOffsetsPerTrigger=10, maxTriggerDelay="1m")
    assert isinstance(query.limit, ReadMinRows)
    assert query.next() is not None  # the first one never waits
    append(orders.client, "orders", 0, 4)
    assert query.next() is None
    query.clock.now_s += 59
    assert query.next() is None
    query.clock.now_s += 1
    assert query.next() == rows(0, range(30, 34))
    append(orders.client, "orders", 1, 10)
    assert query.next() == rows(1, range(10, 20))
    append(orders.client, "orders", 1, 1)
    query.limit = ReadAllAvailable()  # Trigger.Once
    assert query.next() == rows(1, range(20, 21))


def test_at_least_and_at_most_go_together(orders: RunningBroker, client: Client) -> None:
    options = {"minOffsetsPerTrigger": 4, "maxOffsetsPerTrigger": 5}
    query = Query(orders, startingOffsets='{"orders":{"0":-1,"1":-1}}', **options)
    assert query.limit == ReadMaxRows(5)
    assert query.next() == []
    append(client, "orders", 0, 3)
    assert query.next() is None
    append(client, "orders", 0, 3)
    assert query.next() == rows(0, range(30, 35))
    with pytest.raises(Misconfigured, match=r"minOffsetsPerTrigger \(6\) is more than"):
        Query(orders, minOffsetsPerTrigger=6, maxOffsetsPerTrigger=5)


def test_what_is_available_now_is_read_in_limited_batches_and_no_more(
    orders: RunningBroker, client: Client
) -> None:
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 25}
    query = Query(orders, minOffsetsPerTrigger=25, **options)
    query.reader.prepareForTriggerAvailableNow()
    append(client, "orders", 0, 100)
    orders.create_topic("orders2", partitions=1)
    found = [*(query.next() or []), *(query.next() or [])]
    assert sorted(found) == rows(0, range(30)) + rows(1, range(10))
    assert query.next() is None
    query = query.again()
    query.reader.prepareForTriggerAvailableNow()
    left = []
    while (batch := query.next()) is not None:
        left += batch
    assert left == rows(0, range(30, 130))


@pytest.mark.parametrize("start", ["earliest", "latest", str(NINE_MS + 5)])
def test_topics_and_partitions_found_while_running_start_where_the_user_said(
    orders: RunningBroker, client: Client, start: str
) -> None:
    options = {"startingTimestamp": start} if start.isdigit() else {"startingOffsets": start}
    query = Query(
        orders,
        subscribe="orders",
        startingOffsetsByTimestampStrategy="latest",
        **options,
    )
    query.next()
    client.create_partitions({"orders": 3})
    append(client, "orders", 2, 4, NINE_MS)
    append(client, "orders", 2, 4, NINE_MS + 10)
    first = 4 if start.isdigit() else 0
    assert query.plan()
    assert json.loads(query.log[-1])["starts"] == {"orders": {"2": first}}
    query = query.again()
    append(client, "orders", 2, 4, NINE_MS)
    assert query.run() == rows(2, range(first, 8))
    assert query.next() == rows(2, range(8, 12))


def test_a_pattern_finds_topics_while_running(orders: RunningBroker, client: Client) -> None:
    query = Query(orders, subscribe=None, subscribePattern="ord.*")
    assert query.next() == []
    orders.create_topic("ordinary", partitions=1)
    append(client, "ordinary", 0, 2)
    assert query.next() == rows(0, range(2), "ordinary")


def test_retention_that_overtakes_a_stream_is_lost_data(orders: RunningBroker) -> None:
    strict = Query(orders, startingOffsets="earliest", maxOffsetsPerTrigger=8)
    lenient = Query(
        orders, startingOffsets="earliest", maxOffsetsPerTrigger=8, failOnDataLoss="false"
    )
    assert strict.next() == lenient.next() == rows(0, range(6)) + rows(1, range(2))
    orders.log("orders", 0).delete_records(20)
    with pytest.raises(
        DataLost, match="orders-0 was to be read from offset 6, and starts at 20 now"
    ):
        strict.next()
    found: list[Row] = []
    while (batch := lenient.next()) is not None:
        found += batch
    assert sorted(found) == rows(0, range(20, 30)) + rows(1, range(2, 10))


def test_a_topic_that_was_created_again_is_lost_data(orders: RunningBroker, client: Client) -> None:
    strict = Query(orders, startingOffsets="earliest")
    lenient = Query(orders, startingOffsets="earliest", failOnDataLoss="false")
    strict.next()
    lenient.next()
    client.delete_topics(["orders"])
    with pytest.raises(DataLost, match="orders-0 does not exist any more"):
        strict.next()
    assert lenient.next() is None
    orders.create_topic("orders", partitions=1)
    append(client, "orders", 0, 3)
    with pytest.raises(DataLost, match="orders-1 does not exist any more"):
        strict.next()
    assert lenient.next() == rows(0, range(3))
    append(client, "orders", 0, 2)
    assert lenient.next() == rows(0, range(3, 5))


@pytest.mark.parametrize("is_planned", [False, True])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_topic_that_was_created_again_is_lost_data_where_it_is_longer_now(
    orders: RunningBroker, client: Client, is_planned: bool, is_restarted: bool
) -> None:
    """By its offsets alone it would be read on, in the middle of other records."""
    strict = Query(orders, startingOffsets="earliest")
    lenient = Query(orders, startingOffsets="earliest", failOnDataLoss="false")
    for query in strict, lenient:
        assert len(query.next() or ()) == 40
    if is_planned:
        append(client, "orders", 0, 5)
        assert strict.plan()
        assert lenient.plan()
    client.delete_topics(["orders"])
    orders.create_topic("orders", partitions=2)
    append(client, "orders", 0, 50)
    append(client, "orders", 1, 50)
    if is_restarted:
        strict, lenient = strict.again(), lenient.again()
    strict.clock.now_s += stream_looks.DISCOVERY_S
    lenient.clock.now_s += stream_looks.DISCOVERY_S
    with pytest.raises(
        DataLost, match=r"Topic orders has id \S{22}, and had \S{22} when it was read"
    ):
        strict.next()
    found: list[Row] = []
    while (batch := lenient.next()) is not None:
        found += batch
    assert sorted(found) == rows(0, range(30, 50)) + rows(1, range(10, 50))


def test_a_checkpoint_without_ids_is_gone_on_with_and_gets_them(orders: RunningBroker) -> None:
    query = Query(orders, log=['{"orders": {"0": 30, "1": 10}}'])
    query.committed = 1
    append(orders.client, "orders", 0, 5)
    assert query.next() == rows(0, range(30, 35))
    assert len(json.loads(query.log[-1])["ids"]["orders"]) == 22


def test_what_is_done_is_committed_to_the_users_group(
    orders: RunningBroker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(orders, startingOffsets="earliest", commitOffsetsToGroup="lag")
    assert query.plan()
    assert client.offset_fetch("lag") == {}
    query.run()
    committed = client.offset_fetch("lag")
    assert {each: it and it.offset for each, it in committed.items()} == {
        ("orders", 0): 30,
        ("orders", 1): 10,
    }
    append(client, "orders", 0, 5)
    start, query.reader.commit = query.begins_at(), lambda end: None
    assert query.next() == rows(0, range(30, 35))
    assert query.next() is None  # Spark asks, and commits nothing after the last micro-batch
    assert client.offset_fetch("lag")["orders", 0].offset == 35
    assert start != query.begins_at()
    assert caplog.records == []


def test_a_commit_that_is_refused_does_not_end_the_query(
    orders: RunningBroker, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    refusal = RequestRefused(ErrorCode.unknown_member_id, "the group has members")
    failing(monkeypatch, Groups, "commit", refusal)
    query = Query(orders, startingOffsets="earliest", commitOffsetsToGroup="lag")
    query.next()
    append(client, "orders", 0, 5)
    assert query.next() == rows(0, range(30, 35))
    assert "The offsets of this query are not committed: the group has members" in caplog.text
    with pytest.raises(Misconfigured, match="names no group"):
        Query(orders, commitOffsetsToGroup=" ")


def test_a_stream_goes_on_over_a_restart_of_the_broker(orders: RunningBroker) -> None:
    query = Query(orders, startingOffsets="earliest")
    query.next()
    assert query.next() is None
    orders.restart()
    assert query.next() is None
    append(orders.client, "orders", 1, 2)
    orders.restart()
    assert query.next() == rows(1, range(10, 12))


def test_an_idle_stream_hears_of_records_at_once(
    orders: RunningBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.spark", IDLE_WAIT_MS=int(PATIENCE_S * 1000))
    query = Query(orders, startingOffsets="earliest")
    query.next()
    assert query.next() is None  # from now on it waits
    appending = threading.Timer(0.05, append, (client, "orders", 1, 1))
    appending.start()
    began = time.monotonic()
    assert query.next() == rows(1, range(10, 11))
    assert time.monotonic() - began < PATIENCE_S / 2
    appending.join()


def test_an_idle_stream_asks_five_times_a_second(
    orders: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.spark", IDLE_WAIT_MS=200, DISCOVERY_S=60)
    query = Query(orders, startingOffsets="earliest")
    query.next()
    asked = noted_calls(monkeypatch, Offsets, "list")
    began = time.monotonic()
    looks = 0
    while time.monotonic() - began < 0.7:
        assert query.next() is None
        looks += 1
    assert looks <= 5
    assert len(asked) <= looks


def test_a_checkpoint_of_sparks_own_source_is_taken_over(orders: RunningBroker) -> None:
    query = Query(orders, log=['{"orders":{"0":20,"1":10}}', '{"orders":{"0":25,"1":10}}'])
    query.committed = 1
    assert query.next() == rows(0, range(20, 25))
    assert query.next() == rows(0, range(25, 30))


@pytest.mark.parametrize(
    ("offset", "said"),
    [
        ('{"version": 2, "offsets": {}}', "of version 2; this horolog knows version 1"),
        ('{"version": 1}', "is not horolog's"),
        ('{"orders": 7}', "is not horolog's"),
        ('{"orders": {"0": -1}}', "is not horolog's"),
        ('{"orders": {"0": 5, "1": 5, "2": 5}}', "does not say where orders-2 starts"),
    ],
)
def test_a_checkpoint_that_cannot_be_understood_is_refused(
    orders: RunningBroker, offset: str, said: str
) -> None:
    query = Query(orders, log=['{"orders": {"0": 4, "1": 4}}', offset])
    query.committed = 1
    with pytest.raises(Misconfigured, match=said):
        query.next()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingOffsets": "latest"}, "are for batches, not streams"),
        ({"endingTimestamp": "5"}, "are for batches, not streams"),
        ({"maxTriggerDelay": "soon"}, "'maxTriggerDelay': soon is not a duration"),
        ({"maxOffsetsPerTrigger": "0"}, "at least 1"),
    ],
)
def test_options_that_no_stream_has_are_refused(
    broker: RunningBroker, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Misconfigured, match=said):
        Query(broker, **options).next()


def test_the_log_ends_are_reported_as_latest_offset(orders: RunningBroker) -> None:
    query = Query(orders, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    assert query.reader.reportLatestOffset() is None
    query.next()
    reported = query.reader.reportLatestOffset()
    assert reported is not None
    assert reported["offsets"] == {"orders": {"0": 30, "1": 10}}


A, B, C = (TopicPartition("t", number) for number in range(3))
SIZES = st.lists(st.integers(0, 10**12), min_size=1, max_size=5)


@given(SIZES, st.integers(1, 10**13))
def test_a_limit_is_shared_without_starving_a_partition(sizes: list[int], most: int) -> None:
    positions = {TopicPartition("t", number): 5 for number in range(len(sizes))}
    ends = {each: 5 + sizes[each.partition] for each in positions}
    shared = limited(positions, ends, most)
    assert all(positions[each] <= shared[each] <= ends[each] for each in positions)
    assert all(shared[each] > positions[each] for each in positions if sizes[each.partition])
    assert sum(shared.values()) - 5 * len(sizes) <= most + len(sizes)
    assert sum(sizes) > most or shared == ends


def test_an_offset_is_written_as_documented() -> None:
    offset = StreamOffset({A: 120, B: 7}, {B: 0})
    assert json.dumps(offset.to_json()) == (
        '{"version": 1, "offsets": {"t": {"0": 120, "1": 7}}, "starts": {"t": {"1": 0}}}'
    )
    assert StreamOffset.from_json(offset.to_json()) == offset
