"""Heartbeats that change nothing, and the assignor that most members want."""

from typing import Any
from uuid import UUID

import pytest

from horolog.groups import (
    Beat,
    Capacity,
    ConsumerGroup,
    ConsumerLimits,
    GroupTimes,
    Now,
    Step,
    heartbeat,
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


def beaten(group: ConsumerGroup, topics: TopicRegistry, asked: Beat) -> Step:
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
        step = beaten(group, topics, Beat(member, epoch))

        assert (step.records, step.answer.epoch) == ([], epoch)


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
