"""Random members of one consumer group: joins, losses, silence, restarts, changed topics."""

from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from overrides import override

from horolog.errors import ErrorCode, RequestRefused
from horolog.groups import (
    AssignmentJob,
    Beat,
    Capacity,
    ConsumerGroup,
    ConsumerLimits,
    GroupStep,
    GroupTimes,
    Now,
    assigned,
    expired,
    heartbeat,
    large_job,
    quiet,
)
from horolog.metadata import Topic, TopicRegistry

SESSION_MS, REBALANCE_MS = 10_000, 4_000
TIMES = GroupTimes(SESSION_MS, 1_000, 0)
NAMES = ("a", "b", "c")
MEMBERS = st.sampled_from(["m0", "m1", "m2", "m3"])
TOPICS = st.sets(st.sampled_from(NAMES), min_size=1).map(frozenset)


@dataclass
class Client:
    """A consumer: what it was told, and what it uses."""

    topics: frozenset[str]
    epoch: int = 0
    has: dict[UUID, frozenset[int]] = field(default_factory=dict)

    def pairs(self) -> set[tuple[UUID, int]]:
        return {(topic_id, it) for topic_id, of in self.has.items() for it in of}


class Story(RuleBasedStateMachine):
    """One group, its log, and its clients."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.topics = TopicRegistry()
        self.made = 0
        self.log: dict[tuple[str, Any], Any] = {}
        self.clients: dict[str, Client] = {}
        self.job: AssignmentJob | None = None
        self.group = self.new_group()
        self.epochs = (0, 0)
        for name in NAMES:
            self.create(name, 3)

    def new_group(self) -> ConsumerGroup:
        return ConsumerGroup("g", ConsumerLimits(), Capacity(), lambda: TIMES)

    def create(self, name: str, partitions: int) -> None:
        self.made += 1
        self.topics.put(
            Topic(name=name, topic_id=UUID(int=self.made), partitions=tuple(range(partitions)))
        )

    def take(self, step: GroupStep | None) -> None:
        if step is None:
            return
        for key, value in step.records:
            if value is None:
                self.log.pop((type(key).__name__, key), None)
            else:
                self.log[type(key).__name__, key] = (key, value)
        self.group.apply(step, self.now_ms)

    def beat(self, member: str, **said: Any) -> None:
        client = self.clients[member]
        asked = Beat(member, client.epoch, client_id=member, **said)
        expected = quiet(self.group, asked, self.topics.version)
        try:
            step = heartbeat(self.group, asked, self.topics, Now(self.now_ms, self.now_ms))
        except RequestRefused as error:
            if error.code is not ErrorCode.unknown_member_id:
                raise
            del self.clients[member]  # it gives up all that it has
            return
        assert expected is None or (step.records, step.answer, step.timers) == (
            *([], expected.answer, expected.timers),
        )
        self.take(step)
        client.epoch = step.answer.epoch
        if step.answer.assignment is not None:
            client.has = dict(step.answer.assignment)

    # --- what happens -------------------------------------------------------------------

    @rule(member=MEMBERS, topics=TOPICS)
    def join(self, member: str, topics: frozenset[str]) -> None:
        self.clients[member] = Client(topics)
        self.beat(member, topics=topics, rebalance_timeout_ms=REBALANCE_MS, owned={})

    @rule(member=MEMBERS)
    def keep_alive(self, member: str) -> None:
        if member in self.clients:
            self.beat(member)

    @rule(member=MEMBERS)
    def say_what_it_has(self, member: str) -> None:
        if member in self.clients:
            self.beat(member, owned=self.clients[member].has)

    @rule(member=MEMBERS, topics=TOPICS)
    def subscribe_to_others(self, member: str, topics: frozenset[str]) -> None:
        if member in self.clients:
            self.clients[member].topics = topics
            self.beat(member, topics=topics)

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        if member in self.clients:
            self.clients[member].epoch = -1
            self.beat(member)
            self.clients.pop(member, None)

    @rule(ms=st.sampled_from([500, 3_000, 11_000]))
    def time_passes(self, ms: int) -> None:
        """Clients whose sessions or rebalances end have to notice it by themselves."""
        self.now_ms += ms
        self.take(expired(self.group, self.topics, self.now_ms))
        for member in [it for it in self.clients if it not in self.group.members]:
            del self.clients[member]

    @rule()
    def an_assignment_begins(self) -> None:
        """In a thread, which small groups do not need."""
        if self.job is None:
            self.job = large_job(self.group, self.topics, self.now_ms)

    @rule()
    def an_assignment_ends(self) -> None:
        if self.job is not None:
            self.take(assigned(self.group, self.job, self.job.made(), self.now_ms))
            self.job = None

    @rule(name=st.sampled_from(NAMES), partitions=st.integers(1, 6))
    def change_a_topic(self, name: str, partitions: int) -> None:
        topic = self.topics.find(name)
        if topic is None:
            self.create(name, partitions)
        elif partitions > len(topic.partitions):
            self.topics.put(replace(topic, partitions=tuple(range(partitions))))
        else:
            self.topics.remove(name)

    @rule()
    def restart(self) -> None:
        """The group comes back from its log; no session has ended meanwhile."""
        before, self.job = self.group, None
        self.group = self.new_group()
        self.group.restore([*self.log.values()][::-1], self.now_ms, self.now_ms)
        assert self.group.members == before.members
        assert self.group.state == before.state
        of_both = [
            (group.epoch, group.assignment_epoch, group.metadata_hash)
            for group in (before, self.group)
        ]
        assert of_both[0] == of_both[1]

    @precondition(lambda self: bool(self.clients))
    @rule()
    def all_is_quiet(self) -> None:
        """All members beat until nothing changes: each partition has one owner, who may."""
        for _ in range(8):
            for member in sorted(self.clients):
                self.beat(member, owned=self.clients[member].has)
                self.an_assignment_begins()
            self.an_assignment_ends()
        wanted: set[tuple[UUID, int]] = set()
        for client in self.clients.values():
            for name in client.topics:
                if (topic := self.topics.find(name)) is not None:
                    wanted |= {(topic.topic_id, it) for it in topic.partitions}
        owned = [pair for client in self.clients.values() for pair in client.pairs()]
        assert sorted(owned) == sorted(wanted)
        assert self.group.state == "Stable"
        for client in self.clients.values():
            assert client.epoch == self.group.epoch == self.group.assignment_epoch

    # --- what always holds --------------------------------------------------------------

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owned = [pair for client in self.clients.values() for pair in client.pairs()]
        assert len(owned) == len({*owned})

    @invariant()
    def epochs_only_rise(self) -> None:
        epochs = (self.group.epoch, self.group.assignment_epoch)
        assert all(before <= now for before, now in zip(self.epochs, epochs, strict=True))
        assert self.group.assignment_epoch <= self.group.epoch
        self.epochs = epochs

    @invariant()
    def every_partition_of_a_member_is_known_as_its(self) -> None:
        for member_id, member in self.group.members.items():
            for epochs in (member.current.assigned, member.current.pending):
                for topic_id, of in epochs.items():
                    assert all(self.group.owner(topic_id, it) == member_id for it in of)


class TestStory(Story.TestCase):  # type: ignore[misc,name-defined]
    settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class TestStoryOfALargeGroup(TestStory):
    """Members go on while a thread assigns partitions."""

    @pytest.fixture(autouse=True)
    def all_groups_are_large(self, monkeypatch: pytest.MonkeyPatch) -> None:
        override(monkeypatch, "horolog.groups", _MOST_AT_ONCE=-1)
