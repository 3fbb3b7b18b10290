"""Consumer groups whose partitions a thread assigns, by requests to a broker."""

import pytest
from bench import raw
from overrides import override
from running_broker import MakeBroker


def test_a_joining_member_is_answered_with_its_partitions_though_a_thread_assigns_them(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_broker(group_consumer_assignment_interval_ms="0")
    broker.create_topic("t", 4)
    override(monkeypatch, "horolog.groups", _MOST_AT_ONCE=1)
    with raw.Connection(broker.address) as connection:

        def beat(body: bytes) -> raw.Beaten:
            return raw.beaten(connection.ask(raw.CONSUMER_HEARTBEAT, body))

        first = beat(raw.joining_request("g", "a", ["t"]))
        second = beat(raw.joining_request("g", "b", ["t"]))
        assert (second.epoch, second.partitions) == (3, {})
        (topic,) = first.partitions or {}
        given_up = beat(raw.heartbeat_request("g", "a", first.epoch))
        kept = beat(raw.heartbeat_request("g", "a", 2, given_up.partitions))
        got = beat(raw.heartbeat_request("g", "b", 3))

    assert (first.epoch, first.partitions) == (2, {topic: [0, 1, 2, 3]})
    assert (given_up.epoch, given_up.partitions) == (2, {topic: [0, 1]})
    assert (kept.epoch, kept.partitions) == (3, None)
    assert (got.epoch, got.partitions) == (3, {topic: [2, 3]})
