"""How far a query is behind, as its progress reports it; without Spark or Java."""

import json
import pickle
from typing import Any

import pyarrow as pa
import pytest
from faulty_calls import failing, noted_calls
from log_reading import Read, schema_of
from overrides import override
from running_broker import RunningBroker, a_broker
from streaming_query import EARLIEST, NINE_MS, Query, append

from horolog.client import Client, Offsets
from horolog.errors import ErrorCode, Misconfigured, RequestRefused
from horolog.sources import RowShaper
from horolog.spark import LagListener, PartitionLag, lag_of
from horolog.storage import TopicPartition

pytestmark = pytest.mark.usefixtures("eager_streams")


broker = a_broker("orders", partitions=2, now_ms=NINE_MS + 60_000)


def progress(query: Query, **more: Any) -> dict[str, Any]:
    """As Spark makes it after a micro-batch."""
    source = {
        "endOffset": query.log[-1],
        "latestOffset": json.dumps(query.reader.reportLatestOffset()),
    }
    made = {"id": "q", "name": None, "batchId": query.committed - 1, "stateOperators": []}
    return {**made, "sources": [source], **more}


@pytest.mark.parametrize("of_files", [False, True])
def test_lag_is_measured_in_records_and_time_for_each_partition(
    broker: RunningBroker, client: Client, of_files: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.spark.read", SystemClock=lambda: broker.clock)
    for number in range(5):
        append(client, "orders", 0, 1, NINE_MS + 10_000 * number)
    source = broker.log_dir if of_files else broker
    query = Query(source, **EARLIEST, maxOffsetsPerTrigger=2)
    query.next()
    lag = lag_of(progress(query))
    assert lag is not None
    assert lag.partitions == (
        PartitionLag("orders", 0, records=3, time_ms=40_000),
        PartitionLag("orders", 1, records=0, time_ms=0),
    )
    assert (lag.records, lag.time_ms, lag.batch_id) == (3, 40_000, 0)
    assert lag.metrics == {
        "avgOffsetsBehindLatest": "1.5",
        "maxOffsetsBehindLatest": "3",
        "minOffsetsBehindLatest": "0",
    }
    query.next()
    query.next()
    lag = lag_of(progress(query))
    assert lag is not None
    assert (lag.records, lag.time_ms) == (0, 0)


def test_what_arrives_while_a_micro_batch_is_read_counts(broker: RunningBroker) -> None:
    append(broker.client, "orders", 0, 5)
    query = Query(broker, **EARLIEST)
    assert query.plan()
    append(broker.client, "orders", 1, 4, NINE_MS)
    query.run()
    lag = lag_of(progress(query))
    assert lag is not None
    assert lag.partitions[1] == PartitionLag("orders", 1, records=4, time_ms=60_000)


def test_records_without_a_timestamp_have_no_lag_in_time(broker: RunningBroker) -> None:
    append(broker.client, "orders", 0, 2)
    append(broker.client, "orders", 0, 2, -1)
    query = Query(broker, **EARLIEST, maxOffsetsPerTrigger=2)
    query.next()
    lag = lag_of(progress(query))
    assert lag is not None
    assert lag.partitions[0] == PartitionLag("orders", 0, records=2, time_ms=None)


def test_a_broker_that_does_not_answer_ends_no_query(
    broker: RunningBroker, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    append(client, "orders", 0, 2)
    query = Query(broker, **EARLIEST)
    query.next()

    refusal = RequestRefused(ErrorCode.topic_authorization_failed, "not you")
    failing(monkeypatch, Offsets, "list", refusal)
    assert lag_of(progress(query)).records == 0
    assert "The lag of this query is not known: not you" in caplog.text


def test_lag_is_measured_once_a_micro_batch(
    broker: RunningBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(client, "orders", 0, 2)
    query = Query(broker, **EARLIEST)
    query.next()
    asked = noted_calls(monkeypatch, Offsets, "list")
    for _ in range(5):
        query.reader.reportLatestOffset()
    assert len(asked) == 1


def late_by(query: Query) -> list[tuple[int, int | None]]:
    """Partition and lateness of each row of the next micro-batch."""
    assert query.plan()
    end = json.loads(query.log[-1])
    found = [
        (row["partition"], row["lateByMs"])
        for partition in query.reader.partitions(query.begins_at(), end)
        for table in query.unopened().read(pickle.loads(pickle.dumps(partition)))
        for row in table.to_pylist()
    ]
    query.committed += 1
    return found


def counting(source: Any, **options: Any) -> Query:
    query = Query(source, includeLateness="true", **(EARLIEST | options))
    query.schema = schema_of(["partition", "timestampMs", "lateByMs"])
    query.reader = query.new_reader()
    return query


def test_a_record_is_late_by_what_the_latest_before_it_is_ahead(broker: RunningBroker) -> None:
    query = counting(broker)
    for at in (100, 300, 200, -1, 350, 340):
        append(broker.client, "orders", 0, 1, at)
    append(broker.client, "orders", 1, 1, 5)
    assert late_by(query) == [(0, 0), (0, 0), (0, 100), (0, None), (0, 0), (0, 10), (1, 0)]
    append(broker.client, "orders", 0, 1, 50)  # late by what an earlier micro-batch has read
    append(broker.client, "orders", 1, 1, 6)
    assert late_by(query) == [(0, 300), (1, 0)]
    query = query.again()
    append(broker.client, "orders", 1, 1, 1)
    assert late_by(query) == [(1, 5)]


def test_what_is_still_to_be_read_makes_no_record_late(broker: RunningBroker) -> None:
    for at in (100, 200, 300, 900):
        append(broker.client, "orders", 0, 1, at)
    query = counting(broker, maxOffsetsPerTrigger=1)
    assert [late_by(query) for _ in range(4)] == [[(0, 0)]] * 4
    append(broker.client, "orders", 0, 1, 800)
    assert late_by(query) == [(0, 100)]


def test_what_is_not_read_makes_no_record_late(broker: RunningBroker, client: Client) -> None:
    for at in (100, 900):
        append(client, "orders", 0, 1, at)
    filtered = counting(broker, toTimestamp=500)
    later = counting(broker, startingOffsets="latest")
    at_time = counting(
        broker,
        startingTimestamp=900,
        startingOffsets=None,
        startingOffsetsByTimestampStrategy="latest",
    )
    appended = counting(broker, toAppendTime=NINE_MS + 60_001)
    assert late_by(later) == []  # its start alone
    assert late_by(filtered) == [(0, 0)]
    assert late_by(at_time) == [(0, 0)]
    assert late_by(appended) == [(0, 0)] * 2
    broker.clock.advance(1_000)
    for at in (200, 150):
        append(client, "orders", 0, 1, at)
    assert late_by(filtered) == [(0, 0), (0, 50)]
    assert late_by(later) == [(0, 0), (0, 50)]
    assert late_by(at_time) == [(0, 700), (0, 750)]
    append(client, "orders", 0, 1, 120)  # only the largest time of all is known
    assert [late_by(each) for each in (filtered, later, at_time)] == [
        [(0, 0)],
        [(0, 0)],
        [(0, 780)],
    ]


def test_a_topic_that_is_created_again_has_no_lag_of_the_one_before(broker: RunningBroker) -> None:
    append(broker.client, "orders", 0, 5, 1000)
    query = counting(broker, failOnDataLoss="false")
    late_by(query)
    broker.client.delete_topics(["orders"])
    broker.create_topic("orders")
    append(broker.client, "orders", 0, 1, 10)
    assert late_by(query) == [(0, 0)]


def test_lateness_at_the_ends_of_64_bits_does_not_wrap() -> None:
    ends = [(1 << 63) - 1, -(1 << 63), 0]
    shaper = RowShaper(["lateByMs"], [True])
    shaper.begin(TopicPartition("orders", 0))
    column = shaper.late_by(pa.array(ends, pa.int64()))
    assert column.to_pylist() == [0, (1 << 63) - 1, (1 << 63) - 1]


def test_a_batch_has_no_late_records(broker: RunningBroker) -> None:
    source = {"kafka.bootstrap.servers": broker.address, "subscribe": "orders"}
    with pytest.raises(Misconfigured, match=r"lateByMs .* is for streams"):
        Read(**source, schema=schema_of(["lateByMs"])).rows()


class Event:
    def __init__(self, progress: dict[str, Any]) -> None:
        self.progress, self.id = progress, progress["id"]


def test_a_listener_keeps_and_hands_on_the_lag_of_queries_of_ours(broker: RunningBroker) -> None:
    append(broker.client, "orders", 0, 3)
    query = Query(broker, **EARLIEST, maxOffsetsPerTrigger=1)
    query.next()
    reported = []
    listener = LagListener(reported.append)
    counted = {"horolog": {"late": 3, "most_late_ms": 20}}
    dropped = [{"numRowsDroppedByWatermark": 7}]
    event = Event(progress(query, stateOperators=dropped, observedMetrics=counted))
    listener.onQueryProgress(event)
    assert listener.latest == {"q": reported[0]}
    assert reported[0].records == 2
    assert (reported[0].dropped_late, reported[0].late, reported[0].most_late_ms) == (7, 3, 20)
    others = [{"endOffset": "17", "latestOffset": None}, {"endOffset": None, "latestOffset": None}]
    other = {**event.progress, "id": "other", "sources": others}
    listener.onQueryProgress(Event(other))
    assert len(reported) == 1
    listener.onQueryTerminated(event)
    assert listener.latest == {}
    assert lag_of(None) is None
