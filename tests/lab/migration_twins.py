"""Random members of both protocols in one group of two brokers, which changes over and back.

Classic members are static, and the default assignor is `range`: so what a member is to have does
not follow from the ids that each broker makes for classic members.
"""

from random import Random
from typing import Any, Final

from step_twins import StepTwins

from horolog.wire import ApiKey

SETTINGS: Final = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "1",
    "group.consumer.max.session.timeout.ms": "3600000",
    "group.consumer.session.timeout.ms": "3600000",
    "group.consumer.assignors": "range,uniform",
    "group.consumer.max.size": "6",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}
"""Settings of both brokers."""
CLASSIC: Final = {"k0": "s0", "k1": "s1", "k2": "s2"}
"""Classic members and their instance ids."""
CONSUMERS: Final = ("m0", "m1", "m2")
TAKERS: Final = {"n0": "s0", "n1": "s1"}
"""Members of the consumer protocol that take the place of classic ones, and give it back."""
_TOPICS: Final = {"a": 3, "b": 2}
_TIMEOUT_MS: Final = 600_000


class MigrationTwins(StepTwins):
    """A group whose members speak either protocol."""

    def __init__(self, ours: str, theirs: str, prefix: str, chance: Random) -> None:
        super().__init__(ours, theirs, prefix)
        self.chance = chance
        self.epochs: dict[str, int] = {}
        self.had: dict[str, dict[str, list[int]]] = {}

    def run(self, steps: int) -> None:
        self.begin(**_TOPICS)
        for _ in range(steps):
            self.step_of_either()
            self.written(only_last=True)
        self.look()

    def step_of_either(self) -> None:
        """A step of a member, of a protocol that the group may have."""
        group_type = self.kind()
        if group_type == "consumer":
            self.in_consumer_group()
        elif group_type == "classic":
            self.in_classic_group()
        else:
            self.chance.choice([self.consumer_joins, self.first_classic_joins])()

    def kind(self) -> str:
        """The type of the group; empty if there is none, or none with members."""

        def listed(twin: Any) -> Any:
            groups = twin.connection.ask(ApiKey.LIST_GROUPS, 5).groups
            found = [(it.group_type, it.group_state) for it in groups]
            ids = [it.group_id for it in groups]
            return found[ids.index(self.prefix)] if self.prefix in ids else ("", "Empty")

        group_type, state = self.alike("list", listed)
        return "" if state == "Empty" else str(group_type)

    def in_consumer_group(self) -> None:
        kinds = {
            self.consumer_joins: 3,
            self.consumer_beats: 10,
            self.classic_joins: 8,
            self.classic_syncs: 5,
            self.classic_beats: 6,
            self.consumer_leaves: 2,
            self.classic_leaves: 1,
            self.look: 2,
        }
        (kind,) = self.chance.choices(list(kinds), list(kinds.values()))
        kind()

    def in_classic_group(self) -> None:
        """What does not wait for other members."""
        kinds = [self.consumer_joins, self.classic_beats, self.classic_leaves, self.classic_syncs]
        self.chance.choice(kinds)()

    # --- members of the consumer protocol -------------------------------------------------

    def consumer_joins(self) -> None:
        member = self.chance.choice([*CONSUMERS, *TAKERS])
        topics = self.chance.sample(list(_TOPICS), self.chance.randint(1, 2))
        answer = self.beat(
            member,
            0,
            topics=topics,
            owned={},
            rebalance_timeout_ms=_TIMEOUT_MS,
            instance_id=TAKERS.get(member),
        )
        self._noted(member, answer)

    def consumer_beats(self) -> None:
        member = self._one_of([*CONSUMERS, *TAKERS])
        owned = self.had.get(member, {}) if self.chance.random() < 0.8 else None
        answer = self.beat(member, self._epoch(member), owned=owned)
        self._noted(member, answer)

    def consumer_leaves(self) -> None:
        member = self._one_of([*CONSUMERS, *TAKERS])
        epoch = -2 if member in TAKERS and self.chance.random() < 0.5 else -1
        said = {"instance_id": TAKERS[member]} if epoch == -2 else {}
        self.beat(member, epoch, **said)

    def _noted(self, member: str, answer: Any) -> None:
        error, _, epoch, _, has, _ = answer
        if not error:
            self.epochs[member] = epoch
            self.had[member] = self.had.get(member, {}) if has is None else has

    # --- members of the classic protocol --------------------------------------------------

    def first_classic_joins(self) -> None:
        member = self.chance.choice(list(CLASSIC))
        error, epoch, *_ = self._join(member)
        if not error:
            self.epochs[member] = epoch
            partitions = {name: list(range(count)) for name, count in _TOPICS.items()}
            self._sync(member, assigned={member: partitions})
            self.skip()  # a Kafka has an empty group before the first member

    def classic_joins(self) -> None:
        member = self._one_of(list(CLASSIC))
        error, epoch, *_ = self._join(member)
        if not error:
            self.epochs[member] = epoch
            if self.chance.random() < 0.7:
                self._sync(member)

    def classic_syncs(self) -> None:
        self._sync(self._one_of(list(CLASSIC)))

    def classic_beats(self) -> None:
        member = self._one_of(list(CLASSIC))
        self.classic_beat(member, self._epoch(member))

    def classic_leaves(self) -> None:
        member = self._one_of(list(CLASSIC))
        by_instance = self.chance.random() < 0.5
        said: dict[str, Any] = {"group_instance_id": CLASSIC[member]} if by_instance else {}
        if by_instance and self.chance.random() < 0.5:
            said["member_id"] = ""
        self.classic_leave(member, **said)

    def _join(self, member: str) -> Any:
        topics = self.chance.sample(list(_TOPICS), self.chance.randint(1, 2))
        owned = self.had.get(member, {}) if self.chance.random() < 0.8 else {}
        said: dict[str, Any] = {}
        if self.chance.random() < 0.3:
            said["member_id"] = ""  # begins anew
            owned = {}
        return self.classic_join(
            member,
            topics,
            owned=owned,
            generation=self._epoch(member),
            group_instance_id=CLASSIC[member],
            **said,
        )

    def _sync(self, member: str, **said: Any) -> None:
        error, given = self.sync(
            member, self._epoch(member), group_instance_id=CLASSIC[member], **said
        )
        if not error and isinstance(given, tuple):
            self.had[member] = given[1]

    def _one_of(self, members: list[str]) -> str:
        known = [it for it in members if it in self.epochs]
        return self.chance.choice(known if known and self.chance.random() < 0.9 else members)

    def _epoch(self, member: str) -> int:
        epoch = self.epochs.get(member, 2)
        return epoch if self.chance.random() < 0.93 else epoch + self.chance.choice([-1, 1])
