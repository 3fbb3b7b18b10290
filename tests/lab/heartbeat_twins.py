"""Random heartbeats of consumer groups, sent to two brokers, whose answers have to be alike.

Members have ids of their own, topics the ids that their broker gave them: those are compared by the
topics' names. Which of several topics comes first in a uniform assignment follows from their ids,
so groups of several topics are assigned by ranges.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final
from uuid import UUID

from patience import PATIENCE_S
from raw_connection import RawConnection

from horolog.wire import ApiKey

TOPICS: Final = {"a": 3, "b": 2, "c": 5}
MEMBERS: Final = ("m0", "m1", "m2", "m3", "m4")
INSTANCES: Final = {"s0": "i0", "s1": "i1", "s2": "i0"}
"""Members with instance ids; two of them take turns with one."""
_SETTLE_S: Final = 0.5
"""How long a change of topics takes to reach the coordinator of a Kafka."""
_LEAVES: Final = -1
_LEAVES_FOR_NOW: Final = -2


@dataclass
class Twin:
    """One of the brokers, and the ids of its topics."""

    connection: RawConnection
    prefix: str
    names: dict[UUID, str] = field(default_factory=dict)
    ids: dict[str, UUID] = field(default_factory=dict)
    former: dict[str, UUID] = field(default_factory=dict)

    def partitions(self, owned: dict[str, list[int]]) -> list[dict[str, Any]]:
        """Partitions by the name of their topic; of a topic that is gone its former id."""
        return [
            {"topic_id": self.ids.get(name, self.former.get(name)), "partitions": of}
            for name, of in owned.items()
        ]

    def named(self, assignment: Any) -> dict[str, list[int]] | None:
        if assignment is None:
            return None
        found = {self.names[it.topic_id]: sorted(it.partitions) for it in assignment}
        return dict(sorted(found.items()))


@dataclass
class Known:
    """What a member was told last."""

    epoch: int = 0
    previous: int = 0
    has: dict[str, list[int]] = field(default_factory=dict)


class HeartbeatTwins:
    """Two brokers whose groups get the same heartbeats."""

    def __init__(self, ours: str, theirs: str, prefix: str, chance: Random) -> None:
        self.chance = chance
        self.prefix = prefix
        self.both = [Twin(RawConnection(it, timeout_s=PATIENCE_S), prefix) for it in (ours, theirs)]
        self.log: list[str] = []
        self.members: dict[str, Known] = {}
        self.partitions: dict[str, int] = {}
        self.topics: Sequence[str] = ()

    def prepare(self) -> None:
        several = self.chance.random() < 0.6
        self.assignor = "range" if several else None
        self.topics = list(TOPICS) if several else ["c"]
        for name in self.topics:
            self.create(name)
        self.settle()

    def settle(self) -> None:
        """Wait until the coordinators know the topics, and have one of their own."""
        time.sleep(_SETTLE_S)
        for twin in self.both:
            asked = {"key_type": 0, "coordinator_keys": [self.prefix]}
            until = time.monotonic() + PATIENCE_S
            while True:
                (found,) = twin.connection.ask(ApiKey.FIND_COORDINATOR, 4, **asked).coordinators
                if not found.error_code or time.monotonic() > until:
                    break
                time.sleep(0.2)

    def close(self) -> None:
        for twin in self.both:
            twin.connection.socket.close()

    def label(self, twin: Twin, member_id: str) -> str:
        """What a member is called in both groups."""
        return member_id

    # --- asking ---------------------------------------------------------------------------

    def alike(self, what: str, ask: Callable[[Twin], Any]) -> Any:
        ours, theirs = map(ask, self.both)
        self.log.append(f"{what} -> {ours}")
        assert ours == theirs, "\n".join([*self.log, f"ours   {ours}", f"theirs {theirs}"])
        return ours

    def create(self, name: str, partitions: int | None = None) -> None:
        count = TOPICS[name] if partitions is None else partitions
        for twin in self.both:
            topic = {"name": self.prefix + name, "num_partitions": count}
            asked = {**topic, "replication_factor": 1}
            (made,) = twin.connection.ask(
                ApiKey.CREATE_TOPICS, 7, topics=[asked], timeout_ms=30_000
            ).topics
            assert not made.error_code, made
            twin.ids[name] = made.topic_id
            twin.names[made.topic_id] = name
        self.partitions[name] = count
        self.log.append(f"create {name}")

    def delete(self, name: str) -> None:
        for twin in self.both:
            asked = {"topics": [{"name": self.prefix + name}], "timeout_ms": 30_000}
            assert not twin.connection.ask(ApiKey.DELETE_TOPICS, 6, **asked).responses[0].error_code
            twin.former[name] = twin.ids.pop(name)
        del self.partitions[name]
        self.log.append(f"delete {name}")

    def widen(self, name: str) -> None:
        self.partitions[name] += 1
        for twin in self.both:
            topic = {"name": self.prefix + name, "count": self.partitions[name]}
            asked = {"topics": [topic], "timeout_ms": 30_000}
            (made,) = twin.connection.ask(ApiKey.CREATE_PARTITIONS, 3, **asked).results
            assert not made.error_code, made
        self.log.append(f"widen {name} to {self.partitions[name]}")

    def beat(self, member: str, epoch: int, **said: Any) -> Any:
        """A heartbeat; `owned` and `topics` by the names of topics."""
        owned, topics = said.pop("owned", None), said.pop("topics", None)

        def ask(twin: Twin) -> Any:
            fields = {
                "group_id": self.prefix,
                "member_id": member,
                "member_epoch": epoch,
                "rebalance_timeout_ms": -1,
                "subscribed_topic_names": (
                    None if topics is None else [self.prefix + name for name in topics]
                ),
                "topic_partitions": None if owned is None else twin.partitions(owned),
            }
            answer = twin.connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **(fields | said))
            assignment = answer.assignment
            has = None if assignment is None else assignment.topic_partitions
            message = None if answer.error_message is None else answer.error_message[:40]
            return (
                *(answer.error_code, answer.member_id, answer.member_epoch),
                *(answer.heartbeat_interval_ms, twin.named(has), message),
            )

        what = f"{member} e{epoch} owned={owned} topics={topics} {said}"
        answer = self.alike(what, ask)
        self._note(member, answer)
        return answer

    def _note(self, member: str, answer: Any) -> None:
        error, _, epoch, _, has, _ = answer
        if error in (25, 69, 82, 110):
            self.members.pop(member, None)
        if error or epoch < 0:
            return
        known = self.members.setdefault(member, Known())
        if epoch != known.epoch:
            known.previous, known.epoch = known.epoch, epoch
        if has is not None:
            known.has = has

    # --- steps ----------------------------------------------------------------------------

    def step(self) -> None:
        kinds = {
            self.join: 5,
            self.stay: 14,
            self.acknowledge: 16,
            self.resubscribe: 4,
            self.mistake: 4,
            self.leave: 3,
            self.commit: 4,
            self.fetch: 2,
            self.change_topics: 2,
            self.look: 3,
        }
        (kind,) = self.chance.choices(list(kinds), list(kinds.values()))
        kind()

    def _topics(self) -> list[str]:
        names = list(TOPICS) if len(self.topics) > 1 else ["c"]
        return self.chance.sample(names, self.chance.randint(0 if self._rare() else 1, len(names)))

    def _rare(self) -> bool:
        return self.chance.random() < 0.1

    def _member(self) -> str:
        if self.members and not self._rare():
            return self.chance.choice(sorted(self.members))
        return self.chance.choice([*MEMBERS, *INSTANCES])

    def join(self) -> None:
        member = self.chance.choice([*MEMBERS, *INSTANCES])
        said: dict[str, Any] = {"instance_id": INSTANCES.get(member)}
        if self._rare():
            said["rack_id"] = self.chance.choice(["r0", "r1"])
        timeout_ms = 600_000
        self.beat(
            member,
            0,
            topics=self._topics(),
            owned={},
            rebalance_timeout_ms=timeout_ms,
            server_assignor=self.assignor,
            **said,
        )

    def stay(self) -> None:
        member = self._member()
        known = self.members.get(member, Known(epoch=3))
        said: dict[str, Any] = {}
        if member in INSTANCES and self.chance.random() < 0.5:
            said["instance_id"] = INSTANCES[member]
        self.beat(member, known.epoch, **said)

    def acknowledge(self) -> None:
        member = self._member()
        known = self.members.get(member, Known(epoch=3))
        owned = dict(known.has)
        if owned and self._rare():
            owned.pop(self.chance.choice(sorted(owned)))
        if self._rare():
            owned[self.topics[0]] = [0, 1, 7]
        said: dict[str, Any] = {}
        if self._rare():
            said = {"topics": self._topics(), "rebalance_timeout_ms": 600_000}
        self.beat(member, known.epoch, owned=owned, **said)

    def resubscribe(self) -> None:
        member = self._member()
        known = self.members.get(member, Known(epoch=3))
        said: dict[str, Any] = {"topics": self._topics()}
        if self.chance.random() < 0.3:
            said["owned"] = known.has
        self.beat(member, known.epoch, **said)

    def mistake(self) -> None:
        member = self._member()
        known = self.members.get(member, Known(epoch=3))
        epochs = [known.previous, known.epoch + 1, known.epoch - 1, 0, -3, 2**31 - 1]
        mistakes: list[dict[str, Any]] = [
            {},
            {"owned": known.has},
            {"owned": {}},
            {"instance_id": self.chance.choice(["i0", "i1", "i9", "", " "])},
            {"rack_id": ""},
            {"server_assignor": self.chance.choice(["", "sticky"])},
            {"group_id": self.chance.choice(["", " ", self.prefix + "-none"])},
            {"member_id": ""},
            {"subscribed_topic_regex": "t["},
        ]
        said = self.chance.choice(mistakes)
        saved = dict(self.members)
        self.beat(member, self.chance.choice(epochs), **said)
        if "group_id" in said or "member_id" in said:
            self.members = saved

    def leave(self) -> None:
        member = self._member()
        said: dict[str, Any] = {}
        epoch = _LEAVES
        if member in INSTANCES:
            if self.chance.random() < 0.7:
                epoch = _LEAVES_FOR_NOW
            if epoch == _LEAVES_FOR_NOW or self.chance.random() < 0.7:
                said["instance_id"] = INSTANCES[member]
        answer = self.beat(member, epoch, **said)
        if not answer[0]:
            self.members.pop(member, None)

    def commit(self) -> None:
        member = self._member()
        known = self.members.get(member, Known(epoch=3))
        epoch = self.chance.choice([known.epoch] * 4 + [known.previous, known.epoch - 1, -1])
        topic = self.chance.choice(list(self.topics))
        indexes = self.chance.sample(range(5), 2)
        by_nobody = self._rare()
        version = self.chance.choice([8, 9, 9])

        def ask(twin: Twin) -> Any:
            partitions = [
                {"partition_index": it, "committed_offset": 1, "committed_leader_epoch": -1}
                for it in indexes
            ]
            answer = twin.connection.ask(
                ApiKey.OFFSET_COMMIT,
                version,
                group_id=self.prefix,
                member_id="" if by_nobody else member,
                generation_id_or_member_epoch=-1 if by_nobody else epoch,
                topics=[{"name": self.prefix + topic, "partitions": partitions}],
            )
            codes = [
                (it.partition_index, it.error_code) for of in answer.topics for it in of.partitions
            ]
            return sorted(codes)  # a Kafka answers for partitions that are not there first

        self.alike(f"commit v{version} {member} e{epoch} {topic} {indexes} {by_nobody}", ask)

    def fetch(self) -> None:
        member = self._member()
        known = self.members.get(member, Known(epoch=3))
        epoch = self.chance.choice([known.epoch, known.epoch, known.epoch - 1, -1])
        as_member = self.chance.choice([member, member, None, ""])
        if as_member is None:
            epoch = -1

        def ask(twin: Twin) -> Any:
            group = {
                "group_id": self.prefix,
                "member_id": as_member,
                "member_epoch": epoch,
                "topics": [{"name": self.prefix + self.topics[0], "partition_indexes": [0, 1]}],
            }
            (answer,) = twin.connection.ask(ApiKey.OFFSET_FETCH, 9, groups=[group]).groups
            offsets = [
                (it.committed_offset, it.error_code) for of in answer.topics for it in of.partitions
            ]
            return answer.error_code, offsets

        self.alike(f"fetch {as_member} e{epoch}", ask)

    def change_topics(self) -> None:
        name = self.chance.choice(list(self.topics))
        if name not in self.partitions:
            self.create(name)
        elif self.chance.random() < 0.5 and self.partitions[name] < 8:
            self.widen(name)
        elif len(self.topics) > 1:
            self.delete(name)
        self.settle()

    def look(self) -> None:
        def describe(twin: Twin) -> Any:
            asked = {"group_ids": [self.prefix], "include_authorized_operations": False}
            (group,) = twin.connection.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, **asked).groups
            members = [
                (
                    self.label(twin, it.member_id),
                    *(it.instance_id, it.rack_id, it.member_epoch, it.member_type),
                    sorted(it.subscribed_topic_names),
                    twin.named(it.assignment.topic_partitions),
                    twin.named(it.target_assignment.topic_partitions),
                )
                for it in group.members
            ]
            state = group.group_state, group.group_epoch, group.assignment_epoch
            return (group.error_code, *state, group.assignor_name, sorted(members))

        self.alike("describe", describe)

        def listed(twin: Twin) -> Any:
            groups = twin.connection.ask(ApiKey.LIST_GROUPS, 5).groups
            return [
                (it.group_state, it.group_type, it.protocol_type)
                for it in groups
                if it.group_id == self.prefix
            ]

        self.alike("list", listed)
