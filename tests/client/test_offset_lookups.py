"""Offsets by time where brokers do not know them: in topics that store format v0."""

from dataclasses import replace

import pytest
from overrides import override
from record_reading import offsets_at
from running_broker import NOW_MS, RunningBroker, a_broker

from horolog.client import Client, partition_facts, served_partitions
from horolog.errors import ErrorCode, RequestRefused
from horolog.record import LogRecord, TimeRange, build_batch
from horolog.wire import TIME_RANGES

NEW, OLD = ("new", 0), ("old", 0)
NOT_ANNOUNCED = replace(TIME_RANGES, name="not.announced")


def fill(broker: RunningBroker) -> None:
    """Topic `new`, and `old`, which stores v0 since it has four records."""
    for topic in ("new", "old"):
        broker.append(topic, build_batch([LogRecord(NOW_MS + ms, None, b"") for ms in range(4)]))
    broker.alter("old", message_format_version="0.9.0")


broker = a_broker("new", "old", prepare=fill, inter_broker_protocol_version="2.8")


def test_a_format_without_times_is_refused_unless_it_may_be(client: Client) -> None:
    targets = {OLD: NOW_MS + 2, NEW: NOW_MS + 2}
    with pytest.raises(RequestRefused, match="offsets of old-0") as refused:
        client.list_offsets(targets)
    assert refused.value.code is ErrorCode.unsupported_for_message_format
    found = client.list_offsets(targets, may_lack_times=True)
    assert (found[OLD], found[NEW] and found[NEW].offset) == (None, 2)


def test_what_cannot_be_searched_may_hold_any_time(client: Client) -> None:
    assert client.offsets.none_before(NOW_MS + 2, [OLD, NEW]) == {OLD: 0, NEW: 2}
    assert client.offsets.none_before(NOW_MS + 9, [OLD, NEW]) == {OLD: 0}
    assert client.offsets.none_before(-1, [OLD, NEW]) == {OLD: 0, NEW: 0}
    largest = client.offsets.largest([OLD, NEW])
    assert (largest[OLD], largest[NEW] and largest[NEW].timestamp) == (None, NOW_MS + 3)


def test_commands_show_and_read_such_a_topic(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = partition_facts(client, "old", served_partitions(client, "old").leaders)
    assert [(each.end, each.latest_ms) for each in found] == [(4, None)]
    # As Apache Kafka answers.
    override(monkeypatch, "horolog.client", TIME_RANGES=NOT_ANNOUNCED)
    for topic in ("new", "old"):
        assert offsets_at(client, topic, TimeRange.between(NOW_MS + 2, None)) == [2, 3]
