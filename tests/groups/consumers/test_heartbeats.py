"""Heartbeats of one consumer group: what members are told, by the facts of Apache Kafka 4.4.

The paragraphs are those of the facts that were seen with 4.4.0, as docstrings name them.
"""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from horolog.errors import RequestRefused
from horolog.groups import (
    Beat,
    Capacity,
    ConsumerGroup,
    ConsumerLimits,
    GroupTimes,
    Now,
    Resolution,
    expired,
    heartbeat,
    patterns_due,
    resolved,
)
from horolog.metadata import Topic, TopicRegistry

Has = dict[str, list[int]]
MS = 1_000_000


class Lab:
    """A group whose members subscribe to `t` unless they say otherwise."""

    def __init__(self, interval_ms: int = 0, session_ms: int = 10_000) -> None:
        self.times = GroupTimes(session_ms, 1_000, interval_ms)
        self.topics = TopicRegistry()
        self.now_ms = MS
        self.log: list[tuple[Any, Any]] = []
        self.last: list[str] = []
        self.group = self.new_group()
        for name, count in {"t": 4, "u": 2}.items():
            self.create(name, count)

    def new_group(self) -> ConsumerGroup:
        return ConsumerGroup("g", ConsumerLimits(), Capacity(), lambda: self.times)

    def create(self, name: str, partitions: int) -> None:
        topic_id = UUID(int=self.topics.version + 1)
        self.topics.put(Topic(name=name, topic_id=topic_id, partitions=tuple(range(partitions))))

    def take(self, step: Any) -> None:
        self.last = [type(key).__name__.removesuffix("Key") for key, _ in step.records]
        self.log += step.records
        self.group.apply(step, self.now_ms)

    def join(self, member: str, *topics: str, **said: Any) -> tuple[int, Has | None]:
        new = {"rebalance_timeout_ms": 5_000, "owned": {}, "topics": list(topics or "t")}
        return self.beat(member, 0, **(new | said))

    def beat(self, member: str, epoch: int, **said: Any) -> tuple[int, Has | None]:
        if said.get("topics") is not None:
            said["topics"] = frozenset(said["topics"])
        if said.get("owned") is not None:
            said["owned"] = {
                self.id_of(name): frozenset(partitions)
                for name, partitions in said["owned"].items()
            }
        now = Now(self.now_ms, self.now_ms)
        step = heartbeat(self.group, Beat(member, epoch, **said), self.topics, now)
        self.take(step)
        has = step.answer.assignment
        return step.answer.epoch, has if has is None else self.named(has)

    def id_of(self, name: str) -> UUID:
        topic = self.topics.find(name)
        assert topic is not None
        return topic.topic_id

    def named(self, has: Any) -> Has:
        found = {
            topic.name: sorted(has[topic.topic_id])
            for topic in self.topics
            if topic.topic_id in has
        }
        return dict(sorted(found.items()))

    def error(self, member: str, epoch: int, **said: Any) -> int:
        with pytest.raises(RequestRefused) as refused:
            self.beat(member, epoch, **said)
        return int(refused.value.code)

    def wait(self, ms: int) -> list[str]:
        """The members that are there when the time has passed."""
        self.now_ms += ms
        step = expired(self.group, self.topics, self.now_ms)
        if step is not None:
            self.take(step)
        return sorted(self.group.members)

    def resolve(self, *topics: str) -> tuple[str, ...]:
        """Resolve what is due to these topics; the patterns."""
        due = patterns_due(self.group, self.topics, self.now_ms)
        if due:
            version, now = self.topics.version, Now(self.now_ms, self.now_ms)
            found = Resolution(dict.fromkeys(due, topics), version, 0, now)
            self.group.resolved_at_ms, self.group.resolved_version = self.now_ms, version
            self.take(resolved(self.group, self.topics, found))
        return due


def two_members() -> Lab:
    """§5.8: `a` has 0 and 1, `b` 2 and 3, in epoch 3."""
    lab = Lab()
    assert lab.join("a") == (2, {"t": [0, 1, 2, 3]})
    assert lab.join("b") == (3, {})
    assert lab.beat("a", 2) == (2, {"t": [0, 1]})
    assert lab.beat("a", 2) == (2, None)
    assert lab.beat("a", 2, owned={"t": [0, 1]}) == (3, None)
    assert lab.beat("b", 3) == (3, {"t": [2, 3]})
    return lab


def test_an_answer_that_was_lost_is_given_again() -> None:
    """§1.4 and §5.9: to a full heartbeat, and in the previous epoch to one that owns a part."""
    lab = two_members()
    assert lab.beat("a", 3, topics=["t"], owned={"t": [0, 1]}) == (3, None)
    full = {"topics": ["t"], "rebalance_timeout_ms": 1, "owned": {}}
    assert lab.beat("a", 3, **full) == (3, {"t": [0, 1]})
    assert lab.beat("a", 2, owned={"t": [0]}) == (3, None)
    assert lab.error("a", 2) == 110
    assert lab.error("a", 2, owned={"t": [0, 3]}) == 110
    assert lab.error("a", 1, owned={}) == 110


def test_the_first_epoch_is_two_but_of_a_member_without_topics() -> None:
    """§3.1"""
    assert Lab().join("a") == (2, {"t": [0, 1, 2, 3]})
    lab = Lab()
    assert lab.beat("a", 0, topics=[], owned={}, rebalance_timeout_ms=1) == (1, {})
    assert lab.last == ["Member", "Current"]


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ({"topics": ["t", "u"]}, ["Member", "GroupEpoch", "Target", "Target", "TargetEpoch"]),
        ({"topics": ["t"]}, []),
        ({"assignor": "uniform"}, ["Member"]),  # which is the default
        ({"assignor": "range"}, ["Member", "GroupEpoch", "TargetEpoch"]),
        ({"rack_id": "r"}, ["Member"]),
        ({"rebalance_timeout_ms": 7}, ["Member"]),
        ({"client_id": "c", "client_host": "/h"}, ["Member"]),
        ({"instance_id": "i"}, None),
        ({"regex": "x.*"}, ["Member"]),
        ({"regex": ""}, []),
    ],
)
def test_what_a_member_changes_is_recorded_and_may_raise_the_epoch(
    said: dict[str, Any], written: list[str] | None
) -> None:
    """§3.2, §3.3 and §10.4"""
    lab = two_members()
    if written is None:
        assert lab.error("a", 3, **said) == 25
        return
    epoch = 4 if "GroupEpoch" in written else 3
    lab.beat("a", 3, **said)
    assert (lab.group.epoch, [it for it in lab.last if it != "Current"]) == (epoch, written)


def test_joining_again_gives_up_all_that_was_to_be_given_up() -> None:
    """§3.4"""
    lab = Lab()
    lab.join("a")
    lab.join("b")
    assert lab.beat("a", 2) == (2, {"t": [0, 1]})
    assert lab.join("a") == (3, {"t": [0, 1]})
    assert lab.beat("b", 3) == (3, {"t": [2, 3]})
    lab.join("a")
    assert lab.last == []


def test_assignments_are_made_by_a_heartbeat_once_the_interval_is_over() -> None:
    """§4.1, §4.2 and §10.3"""
    lab = Lab(interval_ms=1_000)
    lab.join("a")
    assert lab.join("b") == (2, {})
    assert lab.last == ["Member", "GroupEpoch", "Current"]
    assert lab.group.state.value == "Assigning"
    lab.wait(999)
    assert lab.beat("b", 2) == (2, None)
    lab.wait(1)
    assert lab.group.state.value == "Assigning"
    assert lab.beat("b", 2) == (3, None)
    assert lab.beat("a", 2) == (2, {"t": [0, 1]})
    lab.beat("a", -1)
    lab.beat("b", -1)
    assert lab.join("c") == (6, {"t": [0, 1, 2, 3]})  # the interval begins anew without members


def test_what_is_not_subscribed_any_more_goes_before_an_assignment_is_made() -> None:
    """§5.6"""
    lab = Lab(interval_ms=60_000)
    assert lab.join("a", "t", "u") == (2, {"t": [0, 1, 2, 3], "u": [0, 1]})
    assert lab.beat("a", 2, topics=["t"]) == (2, {"t": [0, 1, 2, 3]})
    assert lab.beat("a", 2, owned={"t": [0, 1, 2, 3]}) == (2, None)
    assert lab.beat("a", 2, regex="x.*", topics=[]) == (2, {})
    assert lab.beat("a", 2, owned={}) == (2, None)


def test_changed_topics_are_seen_by_the_next_heartbeat() -> None:
    """§3.5 and §5.10"""
    lab = Lab()
    lab.join("a", "t", "u", "v")
    lab.create("v", 1)
    assert lab.group.epoch == 2
    assert lab.beat("a", 2) == (3, {"t": [0, 1, 2, 3], "u": [0, 1], "v": [0]})
    assert lab.last == ["GroupEpoch", "Target", "TargetEpoch", "Current"]
    topic = lab.topics.find("v")
    assert topic is not None
    lab.topics.put(replace(topic, partitions=(0, 1)))
    assert lab.beat("a", 3) == (4, {"t": [0, 1, 2, 3], "u": [0, 1], "v": [0, 1]})
    lab.topics.remove("t")
    assert lab.beat("a", 4) == (4, {"u": [0, 1], "v": [0, 1]})
    lab.create("t", 1)
    assert lab.beat("a", 4, owned={"u": [0, 1], "v": [0, 1]})[0] == 6
    lab.create("unrelated", 1)
    lab.beat("a", 6)
    assert lab.last == []


def test_sessions_end_and_begin_with_heartbeats_that_succeed() -> None:
    """§6.1 and §10.5"""
    lab = two_members()
    lab.wait(6_000)
    lab.beat("b", 3)
    assert lab.error("a", 9) == 110
    assert lab.wait(4_000) == ["b"]
    assert lab.last == ["Current", "Target", "Member", "GroupEpoch"]
    assert lab.error("a", 3) == 25
    assert lab.beat("b", 3) == (4, {"t": [0, 1, 2, 3]})
    assert lab.wait(10_000) == []
    assert lab.last == ["Current", "Target", "Member", "GroupEpoch", "TargetEpoch"]
    assert (lab.group.epoch, lab.group.metadata_hash) == (5, 0)


def test_a_member_that_does_not_revoke_is_fenced() -> None:
    """§6.3: by the timeout of the moment when it had to."""
    lab = Lab(session_ms=3_600_000)
    lab.join("a", rebalance_timeout_ms=2_000)
    lab.join("b")
    lab.beat("a", 2)
    lab.wait(1_500)
    lab.beat("a", 2, rebalance_timeout_ms=60_000)
    assert lab.wait(499) == ["a", "b"]
    assert lab.wait(1) == ["b"]


def test_a_member_that_revokes_a_part_has_its_time_again() -> None:
    """§6.3"""
    lab = Lab(session_ms=3_600_000)
    lab.join("a", rebalance_timeout_ms=2_000)
    lab.join("b")
    lab.beat("a", 2)
    lab.wait(1_500)
    lab.join("c")
    lab.join("d")
    assert lab.beat("a", 2, owned={"t": [0, 1]}) == (2, {"t": [0]})
    assert lab.wait(1_999) == ["a", "b", "c", "d"]
    assert lab.wait(1) == ["b", "c", "d"]


def test_a_member_without_time_to_revoke_is_fenced_at_once() -> None:
    """§6.3"""
    lab = Lab()
    lab.join("a", rebalance_timeout_ms=0)
    lab.join("b")
    lab.beat("a", 2)
    assert lab.wait(0) == ["b"]


def test_a_static_member_that_left_for_now_keeps_its_partitions_till_its_session_ends() -> None:
    """§6.5, §7.2 and §7.3"""
    lab = Lab()
    lab.join("a", instance_id="i")
    lab.wait(6_000)
    assert lab.beat("a", -2, instance_id="i") == (-2, None)
    assert (lab.group.epoch, lab.last) == (2, ["Current"])
    assert lab.beat("a", -2, instance_id="i") == (-2, None)
    assert lab.error("a", 2) == 110
    assert lab.join("b") == (3, {})
    assert lab.beat("b", 3) == (3, None)
    assert lab.wait(3_999) == ["a", "b"]
    assert lab.wait(1) == ["b"]
    assert lab.beat("b", 3) == (4, {"t": [0, 1, 2, 3]})


def test_a_static_member_is_replaced_without_an_assignment() -> None:
    """§7.4, §10.6; and 111 while it has not left"""
    lab = Lab()
    lab.join("a", instance_id="i")
    for member in "ab":
        assert lab.error(member, 0, topics=["t"], owned={}, instance_id="i") == 111
    lab.beat("a", -2, instance_id="i")
    assert lab.join("b", instance_id="i") == (2, {"t": [0, 1, 2, 3]})
    assert (lab.group.epoch, lab.last[:6]) == (
        2,
        ["Current", "Target", "Member", "Member", "Target", "Current"],
    )
    assert lab.error("a", 2, instance_id="i") == 82
    assert lab.error("a", -2, instance_id="i") == 82
    assert lab.beat("b", 2) == (2, None)  # by its id alone


def test_patterns_wait_ten_seconds_for_each_other() -> None:
    """§8.4 to §8.8"""
    lab = Lab(session_ms=3_600_000)
    assert lab.join("a", regex="t.*", topics=[]) == (1, {})
    assert lab.last == ["Member", "Current"]
    assert lab.resolve("t") == ("t.*",)
    assert lab.last == ["Pattern", "GroupEpoch"]
    assert lab.beat("a", 1) == (2, {"t": [0, 1, 2, 3]})
    assert lab.join("b", regex="t.*", topics=[])[0] == 3  # it is known
    lab.join("c", regex="u.*", topics=[])
    lab.wait(10_000)
    assert lab.resolve("t") == ()
    lab.wait(1)
    assert set(lab.resolve("t")) == {"t.*", "u.*"}
    lab.wait(10_001)
    assert lab.resolve("t") == ()
    lab.create("t2", 1)
    assert len(lab.resolve("t", "t2")) == 2
    lab.wait(600_000)
    assert len(lab.resolve("t", "t2")) == 2
    lab.beat("c", -1)
    assert lab.last == ["Current", "Target", "Member", "Pattern", "GroupEpoch"]


def test_of_two_assignors_as_often_named_the_same_counts_whoever_beats() -> None:
    """Better than 4.4.0, whose epoch rises with each heartbeat then."""
    lab = Lab()
    lab.join("a", assignor="range")
    lab.join("b", assignor="uniform")
    epoch = lab.group.epoch
    for member in "abab":
        lab.beat(member, lab.group.members[member].current.epoch)
        assert lab.group.epoch == epoch
    assert lab.group.preferred_assignor() == "uniform"


@pytest.mark.parametrize("backwards", [False, True])
def test_records_make_the_same_group_in_any_order(*, backwards: bool) -> None:
    """§6.6, §10.10 and §15.2"""
    lab = two_members()
    lab.join("c", regex="t.*")
    lab.resolve("t")
    records: dict[Any, Any] = {(type(key), key): (key, value) for key, value in lab.log}
    kept = [it for it in records.values() if it[1] is not None]
    group = lab.new_group()
    group.restore(kept[::-1] if backwards else kept, lab.now_ms, lab.now_ms)
    for name in ("members", "patterns", "epoch", "assignment_epoch", "metadata_hash", "state"):
        assert getattr(group, name) == getattr(lab.group, name), name
    assert group.held_bytes == lab.group.held_bytes
    lab.group = group
    assert lab.wait(9_999) == ["a", "b", "c"]
    assert lab.wait(1) == []
