"""Batches that wait until nothing earlier can come, and the time that streams have of it."""

import json
import pickle
import random
from typing import Any

import pytest
from log_reading import Read, schema_of
from running_broker import MakeBroker, RunningBroker
from streaming_query import EARLIEST, NINE_MS, Query

from horolog.clock import MINUTE_MS, SECOND_MS, ManualClock
from horolog.errors import Misconfigured
from horolog.record import LogRecord, build_batch
from horolog.sources import NotComplete

pytestmark = pytest.mark.usefixtures("eager_streams")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NINE_MS)


@pytest.fixture
def orders(make_broker: MakeBroker, clock: ManualClock) -> RunningBroker:
    broker = make_broker(clock=clock)
    broker.create_topic("orders", 2, message_timestamp_before_max_ms=str(MINUTE_MS))
    tick(broker)
    return broker


def tick(broker: RunningBroker) -> None:
    broker.run(broker.broker.partitions.keep_stamp_clock())


def put(broker: RunningBroker, *times: int, partition: int = 0) -> None:
    broker.append("orders", build_batch([LogRecord(ms, b"k", b"v") for ms in times]), partition)


def read(broker: RunningBroker, **options: Any) -> list[int]:
    given = {"subscribe": "orders", "kafka__bootstrap__servers": broker.address, **options}
    return [row["timestampMs"] for row in Read(**given).rows()]


def test_a_batch_requires_that_its_range_is_complete(
    orders: RunningBroker, clock: ManualClock
) -> None:
    put(orders, NINE_MS - 1, NINE_MS)
    upto = {"toTimestamp": NINE_MS}
    for options in ({"complete": "require"}, {"complete": "wait", "completeTimeout": "10ms"}):
        with pytest.raises(NotComplete, match=r"not until 2023-11-14T22:13:20\.000Z yet"):
            read(orders, **upto, **options)
    clock.step("1m")
    tick(orders)
    for how in ("require", "wait"):
        assert read(orders, **upto, complete=how) == [NINE_MS - 1]


def test_what_cannot_be_complete_is_refused_by_name(orders: RunningBroker) -> None:
    orders.create_topic("free")
    upto = {"toTimestamp": NINE_MS, "complete": "require"}
    with pytest.raises(Misconfigured, match=r"message\.timestamp\.before\.max\.ms"):
        read(orders, **upto, subscribe="free")
    with pytest.raises(Misconfigured, match="ends before"):
        read(orders, complete="require")
    with pytest.raises(Misconfigured, match="it is one of wait, require"):
        read(orders, toTimestamp=NINE_MS, complete="perhaps")
    with pytest.raises(Misconfigured, match="files do not say"):
        Read(orders.log_dir / "orders-0", **upto).rows()
    with pytest.raises(Misconfigured, match="includeCompleteUntil"):
        Query(orders, complete="require").next()
    with pytest.raises(Misconfigured, match=r"completeUntil .* is for streams"):
        read(orders, schema=schema_of(["completeUntil"]))


def asking(source: Any, **options: Any) -> Query:
    query = Query(source, includeCompleteUntil="true", **(EARLIEST | options))
    query.schema = schema_of(["partition", "offset", "timestampMs", "completeUntil"])
    query.reader = query.new_reader()
    return query


def batch_of(query: Query) -> list[tuple[int, int | None]]:
    """Time and complete time of each row of the next micro-batch."""
    if not query.plan():
        return []
    end = json.loads(query.log[query.committed])
    found = []
    for partition in query.reader.partitions(query.begins_at(), end):
        for table in query.unopened().read(pickle.loads(pickle.dumps(partition))):
            for row in table.to_pylist():
                until = row["completeUntil"]
                until_ms = None if until is None else round(until.timestamp() * 1000)
                found.append((row["timestampMs"], until_ms))
    query.committed += 1
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("most", [None, 3])
def test_no_row_of_a_later_micro_batch_is_earlier(
    orders: RunningBroker, clock: ManualClock, seed: int, most: int | None
) -> None:
    chosen = random.Random(seed)
    query = asking(orders, maxOffsetsPerTrigger=most)
    known_ms = None
    seen = 0
    for _ in range(25):
        for _ in range(chosen.randrange(4)):
            late = [chosen.randrange(MINUTE_MS) for _ in range(chosen.randrange(1, 4))]
            put(orders, *(clock.now_ms() - ms for ms in late), partition=chosen.randrange(2))
        clock.step(chosen.randrange(20 * SECOND_MS))
        tick(orders)
        found = batch_of(query)
        for ms, _ in found:
            assert known_ms is None or ms >= known_ms
        for _, until_ms in found:
            assert known_ms is None or until_ms >= known_ms
            seen += until_ms is not None
        known_ms = found[-1][1] if found else known_ms
        if chosen.random() < 0.3:
            query = query.again()
    assert seen


def test_a_micro_batch_that_is_repeated_has_the_same_time(
    orders: RunningBroker, clock: ManualClock
) -> None:
    """Also later, when more is complete: rows that are earlier may be behind its end."""
    put(orders, NINE_MS)
    query = asking(orders)
    assert query.plan()
    clock.step("5m")
    tick(orders)
    put(orders, NINE_MS + 4 * MINUTE_MS)
    again = query.again()
    assert batch_of(again) == [(NINE_MS, NINE_MS - MINUTE_MS)]
    assert batch_of(again) == [(NINE_MS + 4 * MINUTE_MS, NINE_MS + 4 * MINUTE_MS)]


def test_a_partition_that_comes_later_counts(orders: RunningBroker, clock: ManualClock) -> None:
    query = asking(orders)
    put(orders, NINE_MS)
    batch_of(query)
    orders.client.create_partitions({"orders": 3})
    put(orders, NINE_MS - MINUTE_MS, partition=2)
    clock.step("5m")
    tick(orders)
    put(orders, clock.now_ms())
    found = batch_of(query)
    assert {ms for ms, _ in found} == {NINE_MS - MINUTE_MS, clock.now_ms()}


def test_files_have_no_complete_time(orders: RunningBroker) -> None:
    put(orders, NINE_MS)
    with pytest.raises(Misconfigured, match="needs a broker"):
        batch_of(asking(orders.log_dir))
