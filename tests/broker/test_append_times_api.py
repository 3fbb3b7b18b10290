"""Append times over the wire: lookups by them, and those of fetched records."""

from __future__ import annotations

import pytest
from batches import batch
from overrides import override
from raw_connection import fetch_fields
from running_broker import NOW_MS, RunningBroker, a_broker

from horolog.client import Client, RecordClock
from horolog.clock import ManualClock
from horolog.errors import RequestRefused
from horolog.record import AppendTimeStretch, LogRecord, build_batch, iter_headers
from horolog.wire import FEATURES, SEEN_TIME, ApiKey

TP = ("t", 0)


broker = a_broker("t")


def fill(client: Client, clock: ManualClock, *times: int, step: int = 10) -> None:
    """A record for each create time, appended this many milliseconds apart."""
    for time in times:
        client.produce("t", 0, build_batch([LogRecord(time, None, b"v")]))
        clock.advance(step)


def test_a_record_is_found_by_either_clock(broker: RunningBroker, clock: ManualClock) -> None:
    fill(broker.client, clock, 300, 100, 200)

    def find(time: int, by: RecordClock) -> object:
        found = broker.client.find_records({TP: time}, by)[TP]
        return found and (found.offset, found.ms)

    for number in range(3):
        for early in (9, 0):
            found = find(NOW_MS + 10 * number - early, RecordClock.APPEND)
            assert found == (number, NOW_MS + 10 * number)
    assert find(NOW_MS + 21, RecordClock.APPEND) is None
    assert find(-(1 << 63), RecordClock.APPEND) == (0, NOW_MS)
    assert find(101, RecordClock.CREATE) == (0, 300)
    assert find(301, RecordClock.CREATE) is None


def test_times_before_1970_clash_with_no_special_value(broker: RunningBroker) -> None:
    client = broker.client
    fill(client, broker.clock, -50, -7, -4, -3, 8)
    for time, offset in ((-60, 0), (-50, 0), (-49, 1), (-6, 2), (-4, 2), (-3, 3), (-2, 4)):
        found = client.find_records({TP: time}, RecordClock.CREATE)[TP]
        assert found is not None
        assert found.offset == offset
    assert client.list_offsets({TP: -2})[TP].offset == 0
    assert client.list_offsets({TP: -1})[TP].offset == 5


@pytest.mark.parametrize("committed", [False, True])
def test_fetched_records_come_with_their_append_times(
    broker: RunningBroker, clock: ManualClock, committed: bool
) -> None:
    client = broker.client
    fill(client, clock, *range(50))
    fill(client, clock, *range(50), step=0)
    seen: dict[int, int | None] = {}
    offset = 0
    while offset < 100:
        fetched = client.fetch(
            "t", 0, offset, max_bytes=700, with_append_times=True, read_committed=committed
        )
        assert fetched.aborted == []
        times = {each.offset: each.ms for each in fetched.append_times}
        assert min(times) == offset
        for _, header in iter_headers(memoryview(fetched.records)):
            at = max(start for start in times if start <= header.base_offset)
            seen[header.base_offset] = times[at]
            offset = header.next_offset
    assert seen == {n: NOW_MS + 10 * min(n, 50) for n in range(100)}
    at_end = client.fetch("t", 0, 100, max_wait_ms=0, with_append_times=True)
    assert (bytes(at_end.records), at_end.append_times) == (b"", [])


def test_what_is_unknown_is_said_to_be(broker: RunningBroker, clock: ManualClock) -> None:
    fill(broker.client, clock, 1, 2)
    broker.stop()
    for path in (broker.log_dir / "t-0").glob("*.companion"):
        path.unlink()
    broker.restart()
    client = broker.client
    fill(client, clock, 3)
    found = client.find_records({TP: NOW_MS}, RecordClock.APPEND)[TP]
    assert found is not None
    assert (found.offset, found.ms) == (0, None), "it may have been appended then"
    fetched = client.fetch("t", 0, 0, with_append_times=True)
    assert fetched.append_times == [
        AppendTimeStretch(0, None),
        AppendTimeStretch(2, NOW_MS + 20),
    ]


@pytest.mark.parametrize("version", [4, 11, 13])
def test_a_stock_fetch_is_answered_as_before(broker: RunningBroker, version: int) -> None:
    fill(broker.client, broker.clock, 1, 2)
    known = broker.client.metadata(["t"]).topics["t"]
    topic = "t" if version < 13 else known.topic_id
    with broker.connect() as connection:
        for level in (0, 1):
            fields = fetch_fields(topic, {0: 0}, isolation_level=level)
            answer = connection.ask(ApiKey.FETCH, version, **fields)
            assert not answer.responses[0].partitions[0].aborted_transactions


def test_both_clocks_at_once_are_refused(broker: RunningBroker) -> None:
    partition = {"partition_index": 0, "timestamp": 5}
    answer = broker.ask(
        ApiKey.LIST_OFFSETS,
        5,
        isolation_level=48,
        topics=[{"name": "t", "partitions": [partition]}],
    )
    assert answer.topics[0].partitions[0].error_code == 42


def test_a_broker_without_the_feature_is_not_asked(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = broker.client
    client.metadata(["t"])
    leader = client.brokers.leader
    monkeypatch.setattr(client.brokers, "leader", lambda *args: without_features(leader(*args)))
    with pytest.raises(RequestRefused, match="keeps no append times of records"):
        client.find_records({TP: 5}, RecordClock.APPEND)
    with pytest.raises(RequestRefused, match="keeps no append times of records"):
        client.fetch("t", 0, 0, with_append_times=True)


def without_features(link: object) -> object:
    link.features = {}
    return link


SEEN = [
    AppendTimeStretch(0, NOW_MS + 5, is_seen=True),
    AppendTimeStretch(2, NOW_MS + 5),
    AppendTimeStretch(3, None),
    AppendTimeStretch(4, NOW_MS + 9, is_seen=True),
]


def followed_log(broker: RunningBroker) -> Client:
    """Of a broker whose records were partly seen by it as a follower."""
    data = b"".join(batch(NOW_MS, base_offset=offset) for offset in range(6))
    broker.restart_followed("t", data, SEEN)
    return broker.client


@pytest.mark.parametrize("committed", [False, True])
def test_when_a_follower_saw_records_is_given_to_those_who_ask_for_it(
    broker: RunningBroker, committed: bool
) -> None:
    client = followed_log(broker)
    how = {"with_append_times": True, "read_committed": committed}
    for offset, expected in ((0, SEEN), (4, SEEN[3:])):
        fetched = client.fetch("t", 0, offset, with_seen_times=True, **how)
        assert fetched.append_times == expected
        assert fetched.aborted == []
    assert client.fetch("t", 0, 0, **how).append_times == [
        AppendTimeStretch(0, None),
        AppendTimeStretch(2, NOW_MS + 5),
        AppendTimeStretch(3, None),
    ]
    found = client.find_records({TP: NOW_MS}, RecordClock.APPEND)[TP]
    assert found is not None
    assert (found.offset, found.ms) == (0, None)


def test_seen_times_are_at_the_offsets_that_the_wire_page_says(broker: RunningBroker) -> None:
    followed_log(broker)
    for level, offsets in ((16, [-1, 0, 2, 3]), (80, [-1, -1, 2, 3, -5]), (64, None)):
        answer = broker.ask(ApiKey.FETCH, 11, **fetch_fields("t", {0: 0}, isolation_level=level))
        told = answer.responses[0].partitions[0].aborted_transactions
        assert (told and [each.first_offset for each in told]) == offsets


def test_a_broker_that_announces_no_seen_times_is_asked_for_none(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = {name: level for name, level in FEATURES.items() if name != SEEN_TIME}
    override(monkeypatch, "horolog.broker", FEATURES=older)
    client = followed_log(broker)
    fetched = client.fetch("t", 0, 0, with_append_times=True, with_seen_times=True)
    assert [each.is_seen for each in fetched.append_times] == [False] * 3
