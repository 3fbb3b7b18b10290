"""Heartbeats that change nothing, and the assignor that most members want."""

from typing import Any
from uuid import UUID

import pytest

from horolog.groups import (
    Beat,
    Capacity,
    ConsumerGroup,
    ConsumerLimits,
    GroupStep,
    GroupTimes,
    Now,
    heartbeat,
    quiet,
)
from horolog.metadata import Topic, TopicRegistry

NOW = Now(1_000, 1_000)


class Members(dict[str, Any]):
    """Members that nobody may go through."""

    def __iter__(self) -> Any:
        raise AssertionError("all members are looked at")

    values = items = keys = __iter__


@pytest.fixture
def topics() -> TopicRegistry:
    registry = TopicRegistry()
    registry.put(Topic(name="t", topic_id=UUID(int=1), partitions=tuple(range(8))))
    return registry


@pytest.fixture
def group() -> ConsumerGroup:
    return ConsumerGroup("g", ConsumerLimits(), Capacity(), lambda: GroupTimes(10_000, 1_000, 0))


def beaten(group: ConsumerGroup, topics: TopicRegistry, asked: Beat) -> GroupStep:
    step = heartbeat(group, asked, topics, NOW)
    group.apply(step, NOW.loop_ms)
    return step


def joining(member: str, assignor: str | None = None) -> Beat:
    return Beat(
        member, 0, topics=frozenset({"t"}), rebalance_timeout_ms=60_000, owned={}, assignor=assignor
    )


def test_a_heartbeat_that_changes_nothing_looks_at_no_other_member(
    group: ConsumerGroup, topics: TopicRegistry
) -> None:
    for member in ("a", "b"):
        epoch = beaten(group, topics, joining(member)).answer.epoch
    beaten(group, topics, Beat("a", 2, owned={UUID(int=1): frozenset(range(4))}))
    beaten(group, topics, Beat("b", epoch))
    group.members = Members(group.members)

    for member in ("a", "b"):
        asked = Beat(member, epoch)
        assert quiet(group, asked, topics.version) is not None
        step = beaten(group, topics, asked)

        assert (step.records, step.answer.epoch) == ([], epoch)


@pytest.mark.parametrize(
    "said",
    [
        {"epoch": 1},
        {"epoch": -1},
        {"instance_id": "i"},
        {"rack_id": "r"},
        {"rebalance_timeout_ms": 9},
        {"topics": frozenset({"t"})},
        {"regex": ""},
        {"assignor": "range"},
        {"client_id": "c"},
        {"client_host": "/::1"},
    ],
)
def test_a_heartbeat_that_says_something_is_not_quiet(
    group: ConsumerGroup, topics: TopicRegistry, said: dict[str, Any]
) -> None:
    epoch = beaten(group, topics, joining("a")).answer.epoch
    asked = Beat("a", epoch)
    assert quiet(group, asked, topics.version) is not None
    assert quiet(group, asked._replace(owned={}), topics.version) is not None
    assert quiet(group, asked._replace(**said), topics.version) is None
    assert quiet(group, asked, topics.version + 1) is None


@pytest.mark.parametrize(
    ("named", "wanted"),
    [
        ([None], "uniform"),
        (["range"], "range"),
        (["range", None, None], "range"),  # who names none does not count
        (["range", "uniform"], "uniform"),  # the first in a `HashMap`
        (["uniform", "range", "range"], "range"),
    ],
)
def test_the_assignor_is_the_one_that_most_members_name(
    group: ConsumerGroup, topics: TopicRegistry, named: list[str | None], wanted: str
) -> None:
    for number, assignor in enumerate(named):
        beaten(group, topics, joining(f"m{number}", assignor))

    assert group.preferred_assignor() == wanted


def test_another_assignor_counts_from_the_heartbeat_that_makes_it_the_first(
    group: ConsumerGroup, topics: TopicRegistry
) -> None:
    for member in ("a", "b", "c"):
        beaten(group, topics, joining(member, "uniform"))
    epochs = [group.epoch]
    for member in ("a", "b"):
        its = group.members[member].current.epoch
        beaten(group, topics, Beat(member, its, assignor="range"))
        epochs.append(group.epoch)
    beaten(group, topics, Beat("b", -1))

    assert [epoch - epochs[0] for epoch in epochs] == [0, 0, 1]
    assert group.preferred_assignor() == "uniform"
