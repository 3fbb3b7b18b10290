"""Streams filtered by time, ended at a time, and begun with a backfill; without Spark or Java."""

import json
from collections import Counter
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from log_reading import Read, schema_of
from overrides import override
from running_broker import RunningBroker, a_broker
from streaming_query import (
    EARLIEST,
    NINE_MS,
    Query,
    Row,
    all_of,
    append,
    new_topic,
    rows,
)

from horolog.client import Client, Topics
from horolog.clock import ManualClock
from horolog.errors import Misconfigured
from horolog.record import LogRecord, build_batch
from horolog.sources import BrokerLog
from horolog.spark.read import stream_looks

pytestmark = pytest.mark.usefixtures("eager_streams")


broker = a_broker(now_ms=NINE_MS, scope="module")


def append_times(client: Client, topic: str, times: list[int], partition: int = 0) -> None:
    client.produce(topic, partition, build_batch([LogRecord(at, b"k", b"v") for at in times]))


def offsets_of(batch: list[Row] | None) -> list[int]:
    return [offset for _, _, offset in batch or []]


def test_a_stream_gives_exactly_the_rows_of_a_range_of_time(broker: RunningBroker) -> None:
    topic = new_topic(broker)
    given = {"subscribe": topic, "fromTimestamp": NINE_MS + 10, "toTimestamp": NINE_MS + 20}
    query = Query(broker, **EARLIEST, **given)
    append_times(broker.client, topic, [NINE_MS + each for each in (9, 10, 30, 19, 20)])
    assert offsets_of(all_of(query)) == [1, 3]
    query = query.again()
    append_times(broker.client, topic, [NINE_MS + each for each in (5, 40, 12)])  # 12 is late
    assert offsets_of(all_of(query)) == [7]


def test_records_without_a_timestamp_lie_in_no_range(broker: RunningBroker, client: Client) -> None:
    topic = new_topic(broker)
    append_times(client, topic, [-1, -5, 0, NINE_MS, -1])
    append_times(client, topic, [-1, -1])
    append_times(client, topic, [-5, -6])
    for options, expected in (
        ({"toTimestamp": 1}, [1, 2, 7, 8]),
        ({"fromTimestamp": -5}, [1, 2, 3, 7]),
        ({"fromTimestamp": -5, "toTimestamp": 0}, [1, 7]),
        ({"fromTimestamp": 0}, [2, 3]),
        ({"fromTimestamp": 5, "toTimestamp": 5}, []),
        ({}, [*range(9)]),
    ):
        query = Query(broker, subscribe=topic, **EARLIEST, **options)
        assert offsets_of(all_of(query)) == expected, options
        source = {"kafka.bootstrap.servers": broker.address, "subscribe": topic}
        batch = Read(**source, schema=schema_of(["offset"]), **options).offsets()
        assert batch == expected, options
        files = Read(broker.log_dir, subscribe=topic, **options).offsets()
        assert files == expected, options


def test_a_stream_from_the_earliest_record_of_a_range_skips_what_is_before(
    broker: RunningBroker, client: Client
) -> None:
    topic = new_topic(broker, partitions=2)
    for number in range(5):
        append(client, topic, 0, 10, NINE_MS + number)
    query = Query(broker, subscribe=topic, **EARLIEST, fromTimestamp=NINE_MS + 3)
    assert query.begins_at()["offsets"] == {topic: {"0": 30, "1": 0}}
    assert offsets_of(query.next()) == [*range(30, 50)]


def test_relative_times_stay_what_they_were_when_the_query_first_started(
    broker: RunningBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(broker)
    now = ManualClock(NINE_MS)
    override(monkeypatch, "horolog.sources", SystemClock=lambda: now)
    query = Query(broker, subscribe=topic, **EARLIEST, fromTimestamp="-1h")
    hour_ago = NINE_MS - 3_600_000
    append_times(client, topic, [hour_ago - 1, hour_ago])
    assert offsets_of(query.next()) == [1]
    assert json.loads(query.log[-1])["moments"] == {"fromTimestamp": hour_ago}
    now.advance("1d")
    query = query.again()
    append_times(client, topic, [hour_ago - 1, hour_ago])
    assert offsets_of(query.next()) == [3]


def test_a_relative_start_is_that_of_the_first_start_for_partitions_found_later(
    broker: RunningBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart a day later takes records of the day between from a topic that is new."""
    prefix = new_topic(broker)
    now = ManualClock(NINE_MS)
    override(monkeypatch, "horolog.sources", SystemClock=lambda: now)
    given = {"subscribe": None, "subscribePattern": f"{prefix}.*", "startingTimestamp": "-1h"}
    query = Query(broker, **given)
    hour_ago = NINE_MS - 3_600_000
    append_times(client, prefix, [hour_ago - 1, hour_ago])
    assert offsets_of(query.next()) == [1]
    assert json.loads(query.log[-1])["moments"] == {"startingTimestamp": hour_ago}
    now.advance("1d")
    query = query.again()
    broker.create_topic(f"{prefix}-later")
    append_times(client, f"{prefix}-later", [hour_ago - 1, hour_ago, NINE_MS])
    query.clock.now_s += stream_looks.DISCOVERY_S
    assert offsets_of(query.next()) == [1, 2]
    assert json.loads(query.log[-1])["moments"] == {"startingTimestamp": hour_ago}


def test_a_backfill_turns_into_the_stream(broker: RunningBroker, client: Client) -> None:
    topic = new_topic(broker, partitions=2)
    append_times(client, topic, [NINE_MS + each for each in (1, 7, 3, 9, 2)])
    append_times(client, topic, [NINE_MS + 2], partition=1)
    query = Query(broker, subscribe=topic, backfillFromTimestamp=NINE_MS + 3)
    assert query.plan()
    append_times(client, topic, [NINE_MS + each for each in (0, 8)])  # live from here on
    append_times(client, topic, [NINE_MS], partition=1)
    query = query.again()
    assert offsets_of(query.run()) == [1, 2, 3]
    assert query.next() == rows(0, range(5, 7), topic) + rows(1, range(1, 2), topic)
    assert query.next() is None
    assert "seams" not in json.loads(query.log[-1])


def test_the_live_part_after_a_backfill_is_filtered_as_asked(broker: RunningBroker) -> None:
    topic = new_topic(broker)
    append_times(broker.client, topic, [NINE_MS + each for each in (1, 7, 3, 30)])
    options = {"backfillFromTimestamp": NINE_MS + 3, "toTimestamp": NINE_MS + 20}
    query = Query(broker, subscribe=topic, **options)
    assert offsets_of(query.next()) == [1, 2]
    append_times(broker.client, topic, [NINE_MS + each for each in (0, 30, 8)])
    assert offsets_of(query.next()) == [4, 6]


def test_a_topic_created_again_during_a_backfill_is_read_live(broker: RunningBroker) -> None:
    topic = new_topic(broker)
    append(broker.client, topic, 0, 100)
    options = {"backfillFromTimestamp": NINE_MS, "maxOffsetsPerTrigger": 60}
    query = Query(broker, subscribe=topic, failOnDataLoss="false", **options)
    assert len(query.next() or []) == 60
    broker.client.delete_topics([topic])
    broker.create_topic(topic)
    append(broker.client, topic, 0, 20, NINE_MS - 5)
    assert offsets_of(query.next()) == [*range(20)]


LOG = st.lists(st.integers(0, 20), max_size=8)
STEP = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 1), LOG),
    st.tuples(st.just("plan")),
    st.tuples(st.just("run")),
    st.tuples(st.just("restart")),
)


@examples(2)
@given(
    before=st.tuples(LOG, LOG),
    from_=st.integers(0, 21),
    live=st.one_of(st.none(), st.tuples(st.integers(0, 10), st.integers(10, 21))),
    most=st.one_of(st.none(), st.integers(1, 5)),
    steps=st.lists(STEP, max_size=12),
)
def test_no_record_is_missed_or_doubled_at_the_seam(
    broker: RunningBroker,
    client: Client,
    before: tuple[list[int], list[int]],
    from_: int,
    live: tuple[int, int] | None,
    most: int | None,
    steps: list[Any],
) -> None:
    topic = new_topic(broker, partitions=2)
    held: dict[int, list[int]] = {0: [], 1: []}

    def extend(partition: int, times: list[int]) -> None:
        if times:
            append_times(client, topic, [NINE_MS + each for each in times], partition)
            held[partition] += times

    for partition, times in enumerate(before):
        extend(partition, times)
    options: dict[str, Any] = {"backfillFromTimestamp": NINE_MS + from_}
    if most is not None:
        options["maxOffsetsPerTrigger"] = most
    if live is not None:
        options |= {"fromTimestamp": NINE_MS + live[0], "toTimestamp": NINE_MS + live[1]}
    query = Query(broker, subscribe=topic, **options)
    found: list[Row] = []
    query.plan()  # the query has started: here is the seam
    for step in steps:
        match step:
            case "append", partition, times:
                extend(partition, times)
            case ("plan",):
                query.plan()
            case ("run",):
                if query.plan():
                    found += query.run()
            case _:
                query = query.again()
    found += all_of(query)

    first, last = live or (0, 1 << 40)
    expected = [
        (topic, partition, offset)
        for partition, times in held.items()
        for offset, at in enumerate(times)
        if first <= at < last and (offset >= len(before[partition]) or at >= from_)
    ]
    assert Counter(found) == Counter(expected)


def test_a_stream_ends_where_the_log_ended_when_the_brokers_clock_passed_the_stop(
    broker: RunningBroker, client: Client
) -> None:
    topic = new_topic(broker, partitions=2)
    stop_ms = broker.clock.now_ms() + 60_000
    options = {"stopAtTimestamp": stop_ms, "maxOffsetsPerTrigger": 6}
    query = Query(broker, subscribe=topic, **EARLIEST, **options)
    append(client, topic, 0, 10)
    assert len(query.next() or []) == 6
    broker.clock.advance("59s")
    assert len(query.next() or []) == 4
    assert query.next() is None
    append(client, topic, 0, 10)
    broker.clock.advance("1s")
    assert query.plan()
    append(client, topic, 0, 10)  # after the end
    append(client, topic, 1, 10)
    query = query.again()
    assert json.loads(query.log[-1])["ends"] == {topic: {"0": 20, "1": 0}}
    assert offsets_of(all_of(query)) == [*range(10, 20)]
    assert query.again().next() is None


def test_a_stop_that_passes_without_records_is_written_down(broker: RunningBroker) -> None:
    topic = new_topic(broker)
    query = Query(broker, subscribe=topic, **EARLIEST, stopAtTimestamp=broker.clock.now_ms())
    assert query.next() == []
    append(broker.client, topic, 0, 3)
    assert query.again().next() is None


def test_a_query_of_what_is_available_follows_the_log_up_to_its_stop(
    broker: RunningBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(broker)
    append(client, topic, 0, 3)
    stop_ms = broker.clock.now_ms() + 60_000
    query = Query(broker, subscribe=topic, **EARLIEST, stopAtTimestamp=stop_ms)
    query.reader.prepareForTriggerAvailableNow()
    assert offsets_of(query.next()) == [0, 1, 2]
    waits = []
    plain = BrokerLog.wait_for_records

    def wait(log: BrokerLog, *args: Any) -> None:
        plain(log, *args)
        waits.append(log)
        if len(waits) == 2:
            append(client, topic, 0, 2)
        if len(waits) == 5:
            broker.clock.advance("1m")

    monkeypatch.setattr(BrokerLog, "wait_for_records", wait)
    assert offsets_of(query.next()) == [3, 4]
    assert query.next() == []  # writes down where it ends
    assert query.next() is None
    assert len(waits) >= 5


def test_the_drivers_clock_is_used_with_a_warning_where_the_broker_has_none(
    broker: RunningBroker,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = new_topic(broker)
    now = ManualClock(NINE_MS)
    monkeypatch.setattr(Topics, "cluster_time_ms", lambda client: None)
    override(monkeypatch, "horolog.spark.read", SystemClock=lambda: now)
    query = Query(broker, subscribe=topic, **EARLIEST, stopAtTimestamp=NINE_MS + 5)
    append(client, topic, 0, 3)
    assert offsets_of(query.next()) == [0, 1, 2]
    assert query.next() is None
    now.advance(5)
    assert query.next() == []
    assert query.next() is None
    assert caplog.text.count("compared with the clock of this driver") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fromTimestamp": 5, "toTimestamp": 4}, r"fromTimestamp \(5\) is after toTimestamp"),
        ({"backfillFromTimestamp": 5, "startingOffsets": "earliest"}, "says where a stream starts"),
        ({"stopAtTimestamp": "soon"}, "'stopAtTimestamp'"),
        ({"endingTimestamp": 5}, "a stream ends at stopAtTimestamp"),
        ({"fromTimestmp": 5}, "did you mean 'fromTimestamp'"),
    ],
)
def test_moments_that_no_stream_has_are_refused(
    broker: RunningBroker, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(Misconfigured, match=said):
        Query(broker, **options).next()


@pytest.mark.parametrize("option", ["backfillFromTimestamp", "stopAtTimestamp"])
def test_a_batch_has_no_moments_of_streams(broker: RunningBroker, option: str) -> None:
    topic = new_topic(broker)
    source = {"kafka.bootstrap.servers": broker.address, "subscribe": topic}
    with pytest.raises(Misconfigured, match=f"{option} is for streams"):
        Read(**source, **{option: "5"}).offsets()
