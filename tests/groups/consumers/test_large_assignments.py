"""Assignments that a thread makes, while the members of the group go on."""

from uuid import UUID

import pytest
from overrides import override

from horolog.groups import (
    Beat,
    Beaten,
    Capacity,
    ConsumerGroup,
    ConsumerLimits,
    GroupTimes,
    Now,
    assigned,
    heartbeat,
    large_job,
)
from horolog.metadata import Topic, TopicRegistry

T = UUID(int=1)


class Large:
    """A group whose assignments all take long."""

    def __init__(self) -> None:
        self.topics = TopicRegistry()
        self.topics.put(Topic(name="t", topic_id=T, partitions=tuple(range(4))))
        times = GroupTimes(10_000, 1_000, 1_000)
        self.group = ConsumerGroup("g", ConsumerLimits(), Capacity(), lambda: times)
        self.now_ms = 10_000

    def beat(self, member: str, epoch: int, instance: str | None = None) -> Beaten:
        joins = epoch == 0
        beat = Beat(
            *(member, epoch, instance, None, 60_000 if joins else -1),
            topics=frozenset({"t"}) if joins else None,
            owned={} if joins else None,
        )
        step = heartbeat(self.group, beat, self.topics, Now(self.now_ms, self.now_ms))
        self.group.apply(step, self.now_ms)
        assert isinstance(step.answer, Beaten)
        return step.answer

    def assign(self, *between: tuple[str, int, str | None]) -> None:
        """Let a thread assign, and these beat meanwhile."""
        job = large_job(self.group, self.topics, self.now_ms)
        assert job is not None
        for beat in between:
            self.beat(*beat)
        step = assigned(self.group, job, job.made(), self.now_ms)
        self.group.apply(step, self.now_ms)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Large:
    large = Large()
    override(monkeypatch, "horolog.groups", _MOST_AT_ONCE=1)
    return large


def test_a_member_gets_partitions_once_they_are_assigned(large: Large) -> None:
    assert large.beat("a", 0) == Beaten("a", 1, 1_000, {})
    large.assign()

    assert large.beat("a", 1) == Beaten("a", 2, 1_000, {T: frozenset(range(4))})
    assert large.group.state == "Stable"


def test_one_that_joins_meanwhile_is_in_the_next_assignment(large: Large) -> None:
    large.beat("a", 0)
    large.assign(("b", 0, None))
    assert (large.group.epoch, large.group.assignment_epoch) == (3, 2)
    assert large_job(large.group, large.topics, large.now_ms) is None  # not yet
    large.now_ms += 1_000
    large.assign()

    assert [large.group.members[it].target for it in "ab"] == [
        {T: frozenset({0, 1})},
        {T: frozenset({2, 3})},
    ]


def test_an_assignment_to_a_static_member_that_gave_its_place_away_does_not_count(
    large: Large,
) -> None:
    large.beat("a", 0, "i")
    large.assign(("a", -2, "i"), ("b", 0, "i"))
    assert (large.group.epoch, large.group.assignment_epoch) == (2, 1)
    large.assign()

    assert large.beat("b", 1).assignment == {T: frozenset(range(4))}


def test_an_assignment_does_not_count_behind_a_newer_one(large: Large) -> None:
    large.beat("a", 0)
    job = large_job(large.group, large.topics, large.now_ms)
    assert job is not None
    large.assign()
    records = large.group.members["a"].target

    assert assigned(large.group, job, job.made(), large.now_ms).records == ()
    assert records == {T: frozenset(range(4))}
