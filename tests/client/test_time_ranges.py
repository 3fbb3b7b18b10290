"""Which offsets may hold a time, asked of a broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from faulty_calls import noted_calls, noted_results
from log_reading import Read, moment
from overrides import override
from pyspark.sql.datasource import GreaterThanOrEqual, LessThan
from record_reading import offsets_at
from running_broker import RunningBroker, a_broker
from scripted_broker import HangUp, Reply, ScriptedBroker

from horolog.client import Client, Link, OffsetRange, PartitionFetch, ResourceType
from horolog.errors import RequestRefused
from horolog.record import LogRecord, TimeRange, build_batch
from horolog.storage import TimeRanges
from horolog.wire import LOOKUP_WAY, SUPPORTED, TIME_RANGES, ApiKey, AskLookup, RangeClock

NINE_MS = 1_700_000_000_000
BATCHES, SIZE = 40, 50_000
END = BATCHES * 10
NOT_ANNOUNCED = replace(TIME_RANGES, name="not.announced")


def ranges_key(without: str = "", **members: object) -> str:
    """The name of a question, or of one that is wrong in one member."""
    asked = {"partition": 0, "clock": "record", "first": 1, "last": 2, "start": 0, "end": 9}
    asked |= members
    asked.pop(without, None)
    return f"{TIME_RANGES.name}/{json.dumps(asked)}"


def fill(broker: RunningBroker) -> None:
    """40 batches a minute apart; the 21st has a record of long before."""
    for number in range(BATCHES):
        minute = NINE_MS + 60_000 * number
        times = [minute + second * 1000 for second in range(10)]
        if number == 20:
            times[5] = NINE_MS - 5_000_000
        records = [LogRecord(time, None, bytes(SIZE // 10)) for time in times]
        broker.client.produce("orders", 0, build_batch(records))


def times_of(first_ms: int | None, last_ms: int | None, clock: RangeClock) -> TimeRange:
    """The range by one of the clocks of the question."""
    limits = {"first_ms": first_ms, "last_ms": last_ms}
    return TimeRange(
        **{name: ms for name, ms in limits.items() if ms is not None},
        of_append=clock is RangeClock.APPEND,
        with_untimed=clock is RangeClock.RECORD_OR_NONE,
    )


def ranges_of(
    client: Client,
    topic: str,
    partition: int,
    first_ms: int | None,
    last_ms: int | None,
    *,
    clock: RangeClock = RangeClock.RECORD,
    start: int = 0,
    end: int,
) -> list[OffsetRange] | None:
    """What the leader of one partition says of a time."""
    where = {(topic, partition): (start, end)}
    found = client.offsets.time_ranges(where, times_of(first_ms, last_ms, clock))[topic, partition]
    return None if found is None else list(found)


broker = a_broker("orders", now_ms=None, prepare=fill)


def test_a_broker_names_the_blocks_that_may_hold_a_time(client: Client) -> None:
    for minute in (0, 10, 30):
        first = NINE_MS + 60_000 * minute
        found = ranges_of(client, "orders", 0, first, first + 59_999, end=END)
        assert found is not None
        assert len(found) <= 2, "its block, and the one with the late record"
        assert found[0].start <= 10 * minute < found[0].end
        assert found[0].size <= 6 * SIZE
    late = ranges_of(client, "orders", 0, None, NINE_MS - 1_000_000, end=END)
    assert late is not None
    assert any(span.start <= 205 < span.end for span in late)
    assert sum(span.size for span in late) <= 12 * SIZE


def test_times_before_1970_and_records_without_a_time_are_asked_for_by_name(client: Client) -> None:
    client.produce("orders", 0, build_batch([LogRecord(-1, None, b"")]))
    client.produce("orders", 0, build_batch([LogRecord(-7, None, b"")]))
    end = END + 2
    for clock, first, last in ((RangeClock.RECORD, -7, -7), (RangeClock.RECORD_OR_NONE, -1, -1)):
        found = ranges_of(client, "orders", 0, first, last, clock=clock, end=end)
        assert found is not None
        assert found[-1].end == end


def test_a_range_is_asked_for_within_offsets(client: Client) -> None:
    found = ranges_of(client, "orders", 0, None, None, start=105, end=207)
    assert found is not None
    assert (found[0].start, found[-1].end) == (105, 207)
    assert ranges_of(client, "orders", 0, None, None, start=5, end=5) == []


def test_an_answer_of_many_ranges_comes_in_parts(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ranges_of(client, "orders", 0, NINE_MS - 5_000_000, NINE_MS + 60_000, end=END)
    override(monkeypatch, "horolog.broker", MOST_RANGES=1)
    assert ranges_of(client, "orders", 0, NINE_MS - 5_000_000, NINE_MS + 60_000, end=END) == whole
    assert whole is not None
    assert len(whole) > 1


def test_ranges_of_any_offsets_and_sizes_fit_an_answer(
    client: Client, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten thousand ranges, as the log of some terabytes has them."""
    first = (1 << 63) - 50_000
    ranges = [OffsetRange(first + 5 * i, first + 5 * i + 2, 1 << 60) for i in range(10_000)]

    def stored(self: object, window: object, offset: int, limit: int) -> TimeRanges:
        these = [each for each in ranges if each.start >= offset]
        end = these[limit].start if len(these) > limit else first + 50_000
        return TimeRanges(these[:limit], end, False)

    monkeypatch.setattr("horolog.storage.logs.readable.ReadableLog.time_ranges", stored)
    found = ranges_of(client, "orders", 0, None, None, end=(1 << 63) - 1)
    assert found == [OffsetRange(*each) for each in ranges]


@pytest.mark.parametrize(
    "name",
    [
        ranges_key(without="start"),
        ranges_key(clock="moon"),
        ranges_key(partition=-1),
        ranges_key(partition=7),
        ranges_key(first=1 << 63),
        ranges_key(last="2"),
        ranges_key(more=1),
        ranges_key() + "x" * 9_000,
        f"{TIME_RANGES.name}/0/record/1/2/0",
        TIME_RANGES.name,
    ],
)
def test_a_name_of_another_form_is_refused(client: Client, name: str) -> None:
    resource = (ResourceType.TOPIC, "orders")
    with pytest.raises(RequestRefused):
        client.describe_configs([resource], names=[name])
    (entry,) = client.describe_configs([resource], names=[ranges_key()])[resource].values()
    assert json.loads(entry.value or "") == {"ranges": [], "next": None}


def test_consume_and_spark_read_the_same_rows_and_few_bytes(
    broker: RunningBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = noted_results(monkeypatch, PartitionFetch, "read", lambda answer: len(answer.records))
    first, last = NINE_MS + 600_000, NINE_MS + 660_000

    def consumed() -> list[int]:
        return offsets_at(client, "orders", TimeRange.between(first, last))

    def loaded() -> list[int]:
        read = Read(**{"kafka.bootstrap.servers": broker.address, "subscribe": "orders"})
        filters = (
            GreaterThanOrEqual(("timestamp",), moment(first)),
            LessThan(("timestamp",), moment(last)),
        )
        return sorted(row["offset"] for row in read.rows(*filters))

    for rows in (consumed, loaded):
        fetched.clear()
        assert rows() == list(range(100, 110))
        assert SIZE <= sum(fetched) <= 16 * SIZE
        with monkeypatch.context() as stock:  # as Apache Kafka answers
            override(stock, "horolog.client", TIME_RANGES=NOT_ANNOUNCED)
            fetched.clear()
            assert rows() == list(range(100, 110))
            assert sum(fetched) >= 25 * SIZE


def test_a_lookup_reports_the_segment_and_entry_it_used(client: Client) -> None:
    client.produce("orders", 0, build_batch([LogRecord(NINE_MS + 90_000_000, None, b"")]))
    way = client.ask(LOOKUP_WAY, "orders", AskLookup(0, NINE_MS + 60_000 * 30))
    assert way is not None
    assert (way.segments, way.passed, way.base_offset) == (1, 0, 0)
    assert way.entry is not None
    assert way.entry[0] <= NINE_MS + 60_000 * 30
    assert way.position > 0
    assert way.batches <= 3
    assert SIZE <= way.scanned_bytes <= 2 * SIZE
    late = client.ask(LOOKUP_WAY, "orders", AskLookup(0, NINE_MS + 900_000_000))
    assert late is not None
    assert (late.base_offset, late.passed, late.scanned_bytes) == (None, 1, 0)
    with pytest.raises(RequestRefused):
        client.ask(LOOKUP_WAY, "orders", AskLookup(9, NINE_MS))


def test_many_partitions_are_asked_about_in_one_request(
    broker: RunningBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("more", 5)
    for number in range(5):
        client.produce("more", number, build_batch([LogRecord(NINE_MS + number, None, b"")] * 3))
    where = {("more", number): (0, 3) for number in range(5)} | {("orders", 0): (0, END)}
    client.offsets.time_ranges(where, TimeRange())
    sent = noted_calls(monkeypatch, Link, "send", lambda _, api_key, *__, **___: api_key)
    found = client.offsets.time_ranges(where, TimeRange(NINE_MS + 2, NINE_MS + 3))
    assert len(sent) == 1
    assert [bool(found["more", number]) for number in range(5)] == [False, False, True, True, False]
    assert list(found["orders", 0]) == ranges_of(
        client, "orders", 0, NINE_MS + 2, NINE_MS + 3, start=0, end=END
    )
    override(monkeypatch, "horolog.client", MOST_QUESTIONS=2)
    override(monkeypatch, "horolog.broker", MOST_RANGES=1)
    assert client.offsets.time_ranges(where, TimeRange(NINE_MS + 2, NINE_MS + 3)) == found
    with pytest.raises(RequestRefused, match="partition 9 of topic more"):
        client.offsets.time_ranges({**where, ("more", 9): (0, 3)}, TimeRange())
    read = Read(**{"kafka.bootstrap.servers": broker.address, "subscribe": "more"})
    with monkeypatch.context() as patch:
        override(patch, "horolog.client", MOST_QUESTIONS=500)
        sent.clear()
        rows = read.rows(GreaterThanOrEqual(("timestamp",), moment(NINE_MS + 3)))
        assert len(rows) == 6
        assert sent.count(ApiKey.DESCRIBE_CONFIGS) == 1


def test_leaders_are_asked_at_the_same_time_and_one_that_fails_spoils_no_later_answer() -> None:
    """What is under way at another leader is no answer to the next request."""

    def answer(request: Any) -> Reply:
        (resource,) = request.resources
        configs = [
            {
                "name": name,
                "value": '{"ranges":[[0,2,10]],"next":null}',
                "read_only": True,
                "config_source": 5,
                "is_sensitive": False,
                "synonyms": [],
                "config_type": 1,
                "documentation": None,
            }
            for name in resource.configuration_keys
        ]
        return {
            "throttle_time_ms": 0,
            "results": [
                {
                    "error_code": 0,
                    "error_message": None,
                    "resource_type": 2,
                    "resource_name": resource.resource_name,
                    "configs": configs,
                }
            ],
        }

    refusals = iter([HangUp(), HangUp()])

    def hang_up_first(request: Any) -> Reply:
        return next(refusals, None) or answer(request)

    announced = {
        "api_keys": [
            {"api_key": key, "min_version": its.min, "max_version": its.max}
            for key, its in SUPPORTED.items()
        ],
        "supported_features": [{"name": TIME_RANGES.name, "min_version": 1, "max_version": 1}],
    }

    def answers(describe: Callable[[Any], Reply]) -> dict[ApiKey, Any]:
        return {ApiKey.API_VERSIONS: announced, ApiKey.DESCRIBE_CONFIGS: describe}

    with (
        ScriptedBroker(answers(answer), node_id=2) as second,
        ScriptedBroker(answers(hang_up_first), others=[second], leader_of={"there": 2}) as first,
        Client(first.bootstrap) as client,
    ):
        where = {("here", 5): (0, 5), ("there", 5): (0, 5)}
        found = client.offsets.time_ranges(where, TimeRange(1, 2))
        assert found == {each: (OffsetRange(0, 2, 10),) for each in where}
        assert len(first.asked(ApiKey.DESCRIBE_CONFIGS)) == 3
        assert ranges_of(client, "there", 5, 1, 2, end=5) == [OffsetRange(0, 2, 10)]
