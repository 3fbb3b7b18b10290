"""Which offsets may hold a time, asked of a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from log_reading import Read, moment
from pyspark.sql.datasource import GreaterThanOrEqual, LessThan
from running_broker import RunningBroker

from horolog.cli import reading
from horolog.client import Client
from horolog.errors import RequestRefused
from horolog.record.builder import Record, build_batch
from horolog.wire.features import TIME_RANGES, RangeClock

NINE_MS = 1_700_000_000_000
BATCHES, SIZE = 40, 50_000
END = BATCHES * 10


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[Client]:
    """Of a topic with 40 batches a minute apart; the 21st has a record of long before."""
    with Client(broker.address) as client:
        broker.create_topic("orders")
        for number in range(BATCHES):
            minute = NINE_MS + 60_000 * number
            times = [minute + second * 1000 for second in range(10)]
            if number == 20:
                times[5] = NINE_MS - 5_000_000
            records = [Record(time, None, bytes(SIZE // 10)) for time in times]
            client.produce("orders", 0, build_batch(records))
        yield client


def test_a_broker_names_the_blocks_that_may_hold_a_time(client: Client) -> None:
    for minute in (0, 10, 30):
        first = NINE_MS + 60_000 * minute
        found = client.time_ranges("orders", 0, first, first + 59_999, end=END)
        assert found is not None
        assert len(found) <= 2, "its block, and the one with the late record"
        assert found[0].start <= 10 * minute < found[0].end
        assert found[0].size <= 6 * SIZE
    late = client.time_ranges("orders", 0, None, NINE_MS - 1_000_000, end=END)
    assert late is not None
    assert any(span.start <= 205 < span.end for span in late)
    assert sum(span.size for span in late) <= 12 * SIZE


def test_times_before_1970_and_records_without_a_time_are_asked_for_by_name(client: Client) -> None:
    client.produce("orders", 0, build_batch([Record(-1, None, b"")]))
    client.produce("orders", 0, build_batch([Record(-7, None, b"")]))
    end = END + 2
    for clock, first, last in ((RangeClock.RECORD, -7, -7), (RangeClock.RECORD_OR_NONE, -1, -1)):
        found = client.time_ranges("orders", 0, first, last, clock=clock, end=end)
        assert found is not None
        assert found[-1].end == end


def test_a_range_is_asked_for_within_offsets(client: Client) -> None:
    found = client.time_ranges("orders", 0, None, None, start=105, end=207)
    assert found is not None
    assert (found[0].start, found[-1].end) == (105, 207)
    assert client.time_ranges("orders", 0, None, None, start=5, end=5) == []


def test_an_answer_of_many_ranges_comes_in_parts(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = client.time_ranges("orders", 0, NINE_MS - 5_000_000, NINE_MS + 60_000, end=END)
    monkeypatch.setattr("horolog.broker.time_ranges_control.MOST_RANGES", 1)
    assert client.time_ranges("orders", 0, NINE_MS - 5_000_000, NINE_MS + 60_000, end=END) == whole
    assert whole is not None
    assert len(whole) > 1


@pytest.mark.parametrize(
    "name",
    [
        f"{TIME_RANGES}/0/record/1/2",
        f"{TIME_RANGES}/0/moon/1/2/0",
        f"{TIME_RANGES}/-1/record/1/2/0",
        f"{TIME_RANGES}/0/record/{1 << 63}/2/0",
        f"{TIME_RANGES}/7/record/1/2/0",
        f"{TIME_RANGES}/0/record/1/2/0/" + "x" * 3_000,
    ],
)
def test_a_name_of_another_form_is_refused(client: Client, name: str) -> None:
    with pytest.raises(RequestRefused):
        client._persist(lambda deadline: client._time_ranges("orders", 0, name, deadline))


def test_consume_and_spark_read_the_same_rows_and_few_bytes(
    broker: RunningBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[int] = []
    plain = Client.fetch

    def counted(self, *args, **options):  # type: ignore[no-untyped-def]
        answer = plain(self, *args, **options)
        fetched.append(len(answer.records))
        return answer

    monkeypatch.setattr(Client, "fetch", counted)
    first, last = NINE_MS + 600_000, NINE_MS + 660_000
    times = reading.TimeRange(first, last)

    def consumed() -> list[int]:
        spans, _ = reading.plan(client, "orders", times=times)
        return [
            record.offset
            for span in spans
            for _, records in reading.read_span(client, "orders", span, times)
            for record in records
        ]

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
        assert sum(fetched) <= 16 * SIZE
        with monkeypatch.context() as stock:  # as Apache Kafka answers
            stock.setattr("horolog.client.time_ranges.TIME_RANGES", "not.announced")
            fetched.clear()
            assert rows() == list(range(100, 110))
            assert sum(fetched) >= 25 * SIZE


def test_the_way_of_a_lookup_is_told(client: Client) -> None:
    client.produce("orders", 0, build_batch([Record(NINE_MS + 90_000_000, None, b"")]))
    way = client.lookup_way("orders", 0, NINE_MS + 60_000 * 30)
    assert way is not None
    assert (way.segments, way.passed, way.base_offset) == (1, 0, 0)
    assert way.entry is not None
    assert way.entry[0] <= NINE_MS + 60_000 * 30
    assert way.position > 0
    assert way.batches <= 3
    assert SIZE <= way.scanned_bytes <= 2 * SIZE
    late = client.lookup_way("orders", 0, NINE_MS + 900_000_000)
    assert late is not None
    assert (late.base_offset, late.passed, late.scanned_bytes) == (None, 1, 0)
    with pytest.raises(RequestRefused):
        client.lookup_way("orders", 9, NINE_MS)
