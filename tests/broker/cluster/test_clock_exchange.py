"""Clocks of append times that travel with fetches from one broker of horolog to another."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from batches import batch
from leading_log import LeadingLog, ReplicasLeader, stored_in
from led_partitions import BROKER_EPOCHS, EPOCH, LedPartitions
from patience import eventually
from replica_node import ReplicaNode
from running_broker import ANY_TIME, NOW_MS, RunningBroker, a_broker

from horolog.broker import ClockExchange, LiveSettings
from horolog.client import Address
from horolog.clock import ManualClock
from horolog.config import Settings
from horolog.storage import StampClock
from horolog.wire import NO_CLOCK

HOUR_MS = 3_600_000
NODE_TOPIC = UUID(int=1 << 100)

broker = a_broker("t", of_topics=ANY_TIME)


@pytest.fixture
def led(broker: RunningBroker) -> Iterator[LedPartitions]:
    led = LedPartitions(broker)
    yield led
    led.close()


MakeNode = Callable[..., ReplicaNode]


@pytest.fixture
def make_node(broker: RunningBroker, tmp_path: Path) -> MakeNode:
    def make(now_ms: int = NOW_MS) -> ReplicaNode:
        host, port = broker.address.rsplit(":", 1)
        return ReplicaNode(
            tmp_path / "replica",
            {1: Address(host, int(port))},
            broker_epoch=lambda: BROKER_EPOCHS[2],
            clock=ManualClock(now_ms),
        )

    return make


def exchange(now_ms: int = NOW_MS, **settings: str) -> tuple[ClockExchange, StampClock]:
    stamps = StampClock()
    named = {name.replace("_", "."): value for name, value in settings.items()}
    live = LiveSettings(Settings(named))
    return ClockExchange(stamps, ManualClock(now_ms), live), stamps


def test_a_clock_rises_to_another_ones_and_never_falls() -> None:
    clocks, stamps = exchange()
    assert clocks.tell() == NOW_MS
    clocks.hear(NOW_MS + 500, "broker 2")
    assert stamps.last_ms == clocks.tell() == NOW_MS + 500
    clocks.hear(NOW_MS - 500, "broker 2")
    clocks.hear(NO_CLOCK, "broker 2")
    assert clocks.tell() == NOW_MS + 500


def test_a_clock_that_is_too_far_ahead_moves_none(caplog: pytest.LogCaptureFixture) -> None:
    clocks, stamps = exchange(horolog_timestamp_warn_ahead_ms="10000")
    clocks.hear(NOW_MS + 10_000, "broker 2")
    assert stamps.last_ms == NOW_MS + 10_000
    for ahead_ms in (10_001, HOUR_MS, (1 << 63) - 1 - NOW_MS):
        clocks.hear(NOW_MS + ahead_ms, "broker 2")
    assert stamps.last_ms == NOW_MS + 10_000
    assert caplog.text.count("append times of broker 2 are") == 1, "once a minute"


def test_a_replica_has_the_append_times_of_its_leader(
    broker: RunningBroker, led: LedPartitions, make_node: MakeNode
) -> None:
    clock = broker.clock
    assert isinstance(clock, ManualClock)
    for number in range(20):
        broker.append("t", batch(NOW_MS - number * HOUR_MS))
        clock.advance(1_000 * number)
    with make_node(NOW_MS) as node:
        node.follow(1, EPOCH, led.topic_id)
        assert node.has_reached(20)
        theirs, ours = led.partition().log, node.log()
        assert stored_in(ours) == stored_in(theirs)
        for log in (theirs, ours):
            times = log.look(to_end=True).append_times_within(0, 1 << 20)
            assert [it.ms for it in times][:2] == [NOW_MS, NOW_MS + 1_000]
            assert not any(it.is_seen for it in times)
        at_once = theirs.look(to_end=True).append_times_within(0, 1 << 20)
        assert ours.look(to_end=True).append_times_within(0, 1 << 20) == at_once
        # It leads, with a slower clock: append times do not go back.
        node.lead(EPOCH + 1)
        assert ours.floor.last == theirs.floor.last


def test_fetches_carry_the_clocks_of_both_brokers(
    broker: RunningBroker, led: LedPartitions, make_node: MakeNode
) -> None:
    stamps = broker.broker.partitions
    with make_node(NOW_MS - 5_000) as slower:
        slower.follow(1, EPOCH, led.topic_id)
        assert eventually(lambda: slower.stamps.last_ms >= NOW_MS)
    with make_node(NOW_MS + 7_000) as faster:
        faster.follow(1, EPOCH, led.topic_id)
        assert eventually(lambda: stamps.stamp_ms >= NOW_MS + 7_000)
        offset = broker.append("t", batch(NOW_MS))
        log = led.partition().log
        (stretch,) = log.look(to_end=True).append_times_within(offset, 1)
        assert stretch.ms == NOW_MS + 7_000, "after what the other broker stamped"
    with make_node(NOW_MS + 2 * HOUR_MS) as wrong:
        wrong.follow(1, EPOCH, led.topic_id)
        assert wrong.has_reached(1)
        assert stamps.stamp_ms < NOW_MS + HOUR_MS


def test_a_floor_of_a_partition_is_no_clock(
    broker: RunningBroker, led: LedPartitions, make_node: MakeNode
) -> None:
    """A log may have been stamped by a clock that was wrong, or is of another cluster."""
    with make_node() as node:
        node.follow(1, EPOCH, led.topic_id)
        log = node.log()
        node.call(lambda: log.floor.gave(NOW_MS + 1_000_000))
        broker.append("t", batch(NOW_MS))
        assert node.has_reached(1)
        assert broker.broker.partitions.stamp_ms < NOW_MS + 1_000_000


def test_apache_kafka_is_told_no_clock(tmp_path: Path) -> None:
    leading = LeadingLog(tmp_path / "leader", NODE_TOPIC)
    with ReplicasLeader(leading) as leader:
        address = Address(leader.broker.host, leader.broker.port)
        with ReplicaNode(tmp_path / "replica", {1: address}) as node:
            leading.fill(1)
            node.follow(1, 0, NODE_TOPIC)
            assert node.has_reached(1)
        assert {request.append_clock_ms for request in leader.fetches} == {NO_CLOCK}
        assert {request.isolation_level for request in leader.fetches} == {0}
