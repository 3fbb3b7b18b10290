"""What `inter.broker.protocol.version` changes: a follower's fetch, and so the format it gets."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from batches import batch
from following import batches_of, is_caught_up, status_of
from overrides import override
from partition_files import formats_in
from patience import eventually
from running_broker import ANY_TIME, NOW_MS, MakeBroker, RunningBroker, a_broker

from horolog.broker import served
from horolog.clock import ManualClock
from horolog.record import AppendTimeStretch, Codec
from horolog.wire import ApiKey, Versions

source = a_broker("t", of_topics=ANY_TIME, inter_broker_protocol_version="2.8")
T = [("t", 0)]
COUNT = 20


@pytest.fixture
def attach(make_broker: MakeBroker, source: RunningBroker) -> Callable[..., RunningBroker]:
    def attach(**settings: str) -> RunningBroker:
        return make_broker(clock=source.clock, horolog_follow=source.address, **settings)

    return attach


def fill(source: RunningBroker) -> None:
    for number in range(COUNT):
        times = (NOW_MS - 9 * number, NOW_MS - 9 * number + 4)
        source.append("t", batch(*times, codec=tuple(Codec)[number % 3]))
        assert isinstance(source.clock, ManualClock)
        source.clock.advance(10)


@pytest.mark.parametrize(
    ("protocol", "stored"),
    [("0.8.2", 0), ("0.9.0", 0), ("0.10.0", 1), ("0.10.2", 1), ("0.11.0-IV0", 2), ("2.8", 2)],
)
def test_a_leader_converts_down_to_what_its_follower_knows(
    source: RunningBroker,
    attach: Callable[..., RunningBroker],
    protocol: str,
    stored: int,
) -> None:
    fill(source)
    old = {"inter_broker_protocol_version": protocol, "log_message_format_version": "0.8.2"}
    shadow = attach(**old)
    fill(source)
    assert is_caught_up(shadow, source, T)
    assert formats_in(Path(source.log("t").directory)) == {2}
    assert formats_in(Path(shadow.log("t").directory)) == {stored}
    end = source.log("t").log_end_offset
    assert shadow.log("t").log_end_offset == end
    its, ours = (
        source.log("t").append_times(0, end),
        shadow.log("t").append_times(0, end, seen=True),
    )
    if stored == 2:
        assert batches_of(shadow.client, "t") == batches_of(source.client, "t")
        assert ours == its
        return
    # A fetch before v4 has no place for append times: they are only seen.
    assert all(each.is_seen for each in ours)
    assert shadow.log("t").append_times(0, end) == [AppendTimeStretch(0, None)]
    assert seen_no_earlier(its, ours)
    for ms in (NOW_MS - 100, NOW_MS - 50, NOW_MS + 4, NOW_MS + 5):
        at_source, here = (each.log("t").find_by_timestamp(ms) for each in (source, shadow))
        expected = None if stored == 0 or at_source is None else at_source.offset
        assert (None if here is None else here.offset) == expected


def seen_no_earlier(its: list[AppendTimeStretch], ours: list[AppendTimeStretch]) -> bool:
    """Whether each record was seen at or after the time when it was appended."""
    appended = {each.offset: each.ms for each in its}
    seen: Iterator[Any] = iter(ours)
    now, following = next(seen), next(seen, None)
    for offset in sorted(appended):
        while following is not None and following.offset <= offset:
            now, following = following, next(seen, None)
        if now.ms < appended[offset]:
            return False
    return True


def test_each_node_stores_its_own_format_unless_the_topic_has_one(
    source: RunningBroker, attach: Callable[..., RunningBroker]
) -> None:
    source.restart(log_message_format_version="0.10.0")
    source.create_topic("of_topic", message_format_version="0.9.0")
    shadow = attach(inter_broker_protocol_version="2.8", log_message_format_version="0.11.0")
    assert is_caught_up(shadow, source, [*T, ("of_topic", 0)])

    def formats(broker: RunningBroker) -> list[int]:
        return [broker.log(topic).config.message_format_version for topic in ("t", "of_topic")]

    assert formats(source) == [1, 0]
    assert formats(shadow) == [2, 0]
    source.alter("of_topic", message_format_version="0.10.0")
    assert eventually(lambda: formats(shadow) == [2, 1])


def test_a_leader_that_has_no_such_old_fetch_is_named(
    source: RunningBroker, attach: Callable[..., RunningBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Apache Kafka 4, which converts nothing any more."""
    override(
        monkeypatch,
        "horolog.broker.handlers",
        served=lambda: {**served(), ApiKey.FETCH: Versions(4, 18)},
    )
    shadow = attach(inter_broker_protocol_version="0.10.0", log_message_format_version="0.9.0")

    def why() -> str:
        found = status_of(shadow, "t")
        return "" if found is None or found.why is None else found.why

    assert eventually(lambda: "Fetch in version 0 to 2 is needed" in why()), why()
    assert "answers 4 to 18" in why()
