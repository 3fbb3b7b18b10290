"""Append times travel with what a follower fetches; if there are none, it notes what it saw."""

from collections.abc import Callable

import pytest
from batches import batch
from following import is_caught_up
from overrides import override
from running_broker import ANY_TIME, NOW_MS, MakeBroker, RunningBroker, a_broker

from horolog.client import RecordClock
from horolog.clock import DAY_MS, ManualClock
from horolog.record import AppendTimeStretch
from horolog.wire import APPEND_TIME, FEATURES, SEEN_TIME

source = a_broker("t", of_topics=ANY_TIME)
T = [("t", 0)]


@pytest.fixture
def here() -> ManualClock:
    """The follower's own clock, a day ahead of the source's."""
    return ManualClock(NOW_MS + DAY_MS)


@pytest.fixture
def attach(
    make_broker: MakeBroker, source: RunningBroker, here: ManualClock
) -> Callable[..., RunningBroker]:
    def attach(to: RunningBroker = source) -> RunningBroker:
        return make_broker(clock=here, horolog_follow=to.address)

    return attach


def times(broker: RunningBroker) -> list[AppendTimeStretch]:
    log = broker.log("t")
    return log.append_times(0, log.log_end_offset, seen=True)


def advance(broker: RunningBroker, ms: int) -> None:
    assert isinstance(broker.clock, ManualClock)
    broker.clock.advance(ms)


def test_append_times_and_their_resets_are_those_of_the_leader(
    source: RunningBroker, attach: Callable[..., RunningBroker]
) -> None:
    shadow = attach()
    for ms in (0, 500, 40 * DAY_MS):
        advance(source, ms)
        source.append("t", batch(NOW_MS))
    assert is_caught_up(shadow, source, T)
    advance(source, -40 * DAY_MS)
    source.client.topics.reset_append_times("t")
    source.append("t", batch(NOW_MS))
    assert is_caught_up(shadow, source, T)
    assert times(shadow) == times(source)
    assert [each.ms for each in times(shadow)] == [
        NOW_MS,
        NOW_MS + 500,
        NOW_MS + 500 + 40 * DAY_MS,
        NOW_MS + 500,
    ]
    (reset,) = shadow.log("t").floor.resets
    assert reset.offset == 3
    assert [segment.base_offset for segment in shadow.log("t").segments] == [0, 3]
    found = shadow.client.find_records({T[0]: NOW_MS + 400}, RecordClock.APPEND)[T[0]]
    assert found is not None
    assert (found.offset, found.ms) == (1, NOW_MS + 500)


def test_of_a_source_without_append_times_it_is_kept_when_they_were_seen(
    source: RunningBroker,
    attach: Callable[..., RunningBroker],
    here: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of Apache Kafka. Who follows this follower is given what it saw, as such."""
    others = {n: each for n, each in FEATURES.items() if n not in (APPEND_TIME, SEEN_TIME)}
    with monkeypatch.context() as patched:
        override(patched, "horolog.broker", FEATURES=others)
        shadow = attach()
        source.append("t", batch(NOW_MS))
        assert is_caught_up(shadow, source, T)
        here.advance(50)
        source.append("t", batch(NOW_MS))
        assert is_caught_up(shadow, source, T)
    seen = [
        AppendTimeStretch(0, NOW_MS + DAY_MS, is_seen=True),
        AppendTimeStretch(1, NOW_MS + DAY_MS + 50, is_seen=True),
    ]
    assert times(shadow) == seen
    found = shadow.client.find_records({T[0]: NOW_MS}, RecordClock.APPEND)[T[0]]
    assert found is not None
    assert (found.offset, found.ms) == (0, None)
    here.advance(7)
    another = attach(shadow)
    assert is_caught_up(another, shadow, T)
    assert times(another) == seen


@pytest.mark.parametrize("jump_ms", [-2 * DAY_MS, 0, 3 * DAY_MS])
def test_append_times_do_not_go_back_where_leaders_change_and_their_clocks_differ(
    source: RunningBroker, attach: Callable[..., RunningBroker], here: ManualClock, jump_ms: int
) -> None:
    shadow = attach()
    advance(source, 500)
    source.append("t", batch(NOW_MS))
    assert is_caught_up(shadow, source, T)
    here.step(jump_ms)
    shadow.client.promote(["t"])
    shadow.append("t", batch(NOW_MS))
    source.demote(shadow, "t")
    assert is_caught_up(source, shadow, T)
    last_ms = NOW_MS + DAY_MS + max(0, jump_ms)  # a broker stamps no earlier than it could have
    expected = [NOW_MS + 500, last_ms]
    assert [each.ms for each in times(shadow)] == sorted({*expected})
    source.client.promote(["t"])
    advance(source, 100)
    source.append("t", batch(NOW_MS))
    last = source.log("t").append_times(2, 3)
    assert [each.ms for each in last] == [max(last_ms, NOW_MS + 600)]
    assert times(source)[: len(times(shadow))] == times(shadow)
    assert source.log("t").floor.resets == ()


@pytest.mark.parametrize("role", ["promoted", "demoted"])
def test_a_kill_after_a_change_of_leaders_confuses_no_append_times(
    source: RunningBroker,
    attach: Callable[..., RunningBroker],
    here: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    role: str,
) -> None:
    """The clock of append times is that of what this broker led, and of nothing else."""
    override(monkeypatch, "horolog.broker", STAMP_CLOCK_MS=DAY_MS)  # not before the kill
    if role == "promoted":
        here.advance(-2 * DAY_MS)
        shadow = attach()
        source.append("t", batch(NOW_MS))
        assert is_caught_up(shadow, source, T)
        shadow.client.promote(["t"])
        shadow.restart(crash=True)
        assert shadow.broker.partitions.stamp_ms == NOW_MS - DAY_MS
    else:
        shadow = attach()
        assert is_caught_up(shadow, source, T)
        shadow.client.promote(["t"])
        advance(source, DAY_MS)
        source.append("t", batch(NOW_MS))
        source.clock.step(-DAY_MS)
        source.demote(shadow, "t")
        assert is_caught_up(source, shadow, T)
        source.restart(crash=True)
        assert source.broker.partitions.stamp_ms == NOW_MS + DAY_MS
