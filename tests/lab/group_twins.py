"""Random requests of consumer groups, sent to two brokers, whose answers have to be alike.

What only one broker can know has names here: member ids, topic ids and producer ids are those that
it gave itself. A request that waits (JoinGroup, SyncGroup) is compared once it is answered.
"""

import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final
from uuid import UUID

from patience import PATIENCE_S
from raw_connection import RawConnection

from horolog.errors import ErrorCode
from horolog.wire import ApiKey

TOPICS: Final = ("a", "b", "c")
PARTITIONS: Final = 3
GROUPS: Final = ("g", "h")
IDS: Final = ("t1", "t2")
MEMBERS: Final = tuple(f"m{n}" for n in range(4))
STATIC: Final = tuple(f"s{n}" for n in range(2))
_FAVOURITES: Final = {"g": ["range", "sticky"], "h": ["sticky", "range"]}
"""One order in each group: which of two with as many votes Kafka chooses is not defined."""
_OFFSETS: Final = (0, 1, 5, 7, 100, 2**31, 2**62, 2**63 - 1, -1, -2)
_METADATA: Final = (None, "", "m", "ä", "x" * 200, "x" * 4096, "x" * 4097, "ä" * 2049)
_LONG_MS: Final = 1_200_000  # no member is late
_QUIET_S: Final = 0.15
"""For so long nothing comes before a request is taken to wait."""


@dataclass
class Waiting:
    """A request of a member that is not answered yet."""

    key: ApiKey
    connection: RawConnection
    note: Callable[[Any], None]
    answers: Callable[[Any], Any]
    answer: Any = None
    is_answered: bool = False


@dataclass
class Twin:
    """One of the brokers, and what it has given to whom."""

    address: str
    prefix: str
    connections: dict[str, RawConnection] = field(default_factory=dict)
    member_ids: dict[str, str] = field(default_factory=dict)
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    former_ids: dict[str, UUID] = field(default_factory=dict)
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)
    waiting: dict[str, Waiting] = field(default_factory=dict)

    def connection(self, who: str) -> RawConnection:
        if who not in self.connections:
            self.connections[who] = RawConnection(self.address, timeout_s=10 * PATIENCE_S)
        return self.connections[who]

    def ask(self, who: str, key: ApiKey, version: int, /, **fields: Any) -> Any:
        try:
            return self.connection(who).ask(key, version, **fields)
        except ConnectionError:
            self.connections.pop(who).socket.close()
            return None

    def send(
        self, who: str, key: ApiKey, version: int, note: Any, answers: Any, /, **fields: Any
    ) -> None:
        self.connection(who).send(key, version, **fields)
        self.waiting[who] = Waiting(key, self.connection(who), note, answers)

    def member(self, name: str) -> str:
        return self.member_ids.get(name, name)

    def name_of(self, member_id: str) -> str:
        for name, given in self.member_ids.items():
            if given == member_id:
                return name
        return f"? {len(member_id)}"

    def topic(self, name: str) -> str:
        return self.prefix + name

    def group(self, name: str) -> str:
        return self.prefix + name if name else ""

    def poll(self) -> bool:
        """Whether another request was answered."""
        found = False
        for waiting in self.waiting.values():
            if not waiting.is_answered and not waiting.connection.is_silent(0.001):
                waiting.answer = waiting.connection.receive()[1]
                waiting.note(waiting.answer)
                waiting.is_answered = found = True
        return found


class Twins:
    """Two brokers that are asked the same."""

    def __init__(self, ours: str, theirs: str, prefix: str, chance: Random) -> None:
        self.chance = chance
        self.ours, self.theirs = Twin(ours, prefix), Twin(theirs, prefix)
        self.both = self.ours, self.theirs
        self.log: list[str] = []
        self.existing: set[str] = set()
        self.generations: dict[str, int] = {}
        self.groups_of: dict[str, str] = {}
        self.leads: dict[str, list[str]] = {}
        self.protocols: dict[tuple[str, str], list[str]] = {}
        self.subscribed: dict[str, list[str]] = {}
        self.pending: dict[str, str] = {}  # groups of members that have not joined with their ids
        self.joined: set[str] = set()  # groups that exist, because a member has joined
        self.settled: set[str] = set()  # those of them that have had a generation
        self.last_commit: tuple[Any, ...] | None = None

    def close(self) -> None:
        for twin in self.both:
            for connection in twin.connections.values():
                connection.socket.close()

    # --- comparing --------------------------------------------------------------------

    def compare(self, what: str, ours: Any, theirs: Any) -> None:
        self.log.append(f"{what} -> {ours}")
        assert ours == theirs, "\n".join([*self.log, f"ours   {ours}", f"theirs {theirs}"])

    def alike(self, what: str, ask: Callable[[Twin], Any], *, changes: bool = True) -> Any:
        """Ask both; what changes nothing is asked until both agree, or too long."""
        ours, theirs = map(ask, self.both)
        for _ in range(0 if changes else 25):
            if ours == theirs:
                break
            time.sleep(0.2)  # what follows a deletion does so in its own time
            ours, theirs = map(ask, self.both)
        self.compare(what, ours, theirs)
        self.settle()
        return ours

    def settle(self) -> None:
        """Take the answers of those that waited, which have to be the same ones."""
        if not any(twin.waiting for twin in self.both):
            return
        end, quiet = time.monotonic() + PATIENCE_S, time.monotonic() + _QUIET_S
        while True:
            ours, theirs = self.ours.poll(), self.theirs.poll()
            if ours or theirs:
                quiet = time.monotonic() + _QUIET_S
            answered = [
                {who for who, each in twin.waiting.items() if each.is_answered}
                for twin in self.both
            ]
            now = time.monotonic()
            if (now > quiet and answered[0] == answered[1]) or now > end:
                break
        if answered[0] != answered[1]:
            self.compare("answered", *answered)
        for who in sorted(answered[0]):
            told = [twin.waiting.pop(who) for twin in self.both]
            self.compare(f"{who} is answered", *[each.answers(each.answer) for each in told])

    def is_waiting(self, who: str) -> bool:
        return who in self.ours.waiting

    # --- what is asked ----------------------------------------------------------------

    def prepare(self) -> None:
        """Have the coordinators of all groups and transactions."""
        for twin in self.both:
            for kind, names in ((0, GROUPS), (1, IDS)):
                for name in names:
                    self._until_coordinated(twin, kind, twin.group(name))

    def _until_coordinated(self, twin: Twin, kind: int, key: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            found = twin.ask("admin", ApiKey.FIND_COORDINATOR, 1, key=key, key_type=kind)
            if found.error_code == 0 and not self._code(twin, kind, key):
                return
            time.sleep(0.1)
        raise AssertionError(f"no coordinator for {key}")

    def _code(self, twin: Twin, kind: int, key: str) -> int:
        if kind == 0:
            told = twin.ask("admin", ApiKey.DESCRIBE_GROUPS, 0, groups=[key]).groups[0]
            return int(told.error_code)
        told = twin.ask("admin", ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[key])
        code = int(told.transaction_states[0].error_code)
        return 0 if code == ErrorCode.transactional_id_not_found else code

    def create(self, topic: str) -> None:
        def ask(twin: Twin) -> Any:
            name = twin.topic(topic)
            fields = {"name": name, "num_partitions": PARTITIONS, "replication_factor": 1}
            told = twin.ask("admin", ApiKey.CREATE_TOPICS, 7, topics=[fields]).topics[0]
            if told.error_code == 0:
                twin.topic_ids[topic] = told.topic_id
            return int(told.error_code)

        self.alike(f"create {topic}", ask)
        self.existing.add(topic)
        for twin in self.both:
            self.until_known(twin, topic, 0)

    def delete(self, topic: str) -> None:
        def ask(twin: Twin) -> Any:
            if topic in twin.topic_ids:
                twin.former_ids[topic] = twin.topic_ids.pop(topic)
            topics = [{"name": twin.topic(topic), "topic_id": None}]
            told = twin.ask("admin", ApiKey.DELETE_TOPICS, 6, topics=topics)
            return int(told.responses[0].error_code)

        self.alike(f"delete {topic}", ask)
        self.existing.discard(topic)
        for twin in self.both:
            self.until_known(twin, topic, 3)

    def until_known(self, twin: Twin, topic: str, code: int) -> None:
        end = time.monotonic() + PATIENCE_S
        while True:
            asked = [{"name": twin.topic(topic)}]
            told = twin.ask(
                "admin", ApiKey.METADATA, 9, topics=asked, allow_auto_topic_creation=False
            )
            found = told.topics[0]
            count = 0 if code else PARTITIONS
            codes = [int(each.error_code) for each in found.partitions]
            if found.error_code == code and codes == [0] * count:
                return
            assert time.monotonic() < end, f"{topic} {found}"
            time.sleep(0.02)

    def step(self) -> None:
        """One more request."""
        chance = self.chance
        kinds: Mapping[Callable[[], None], int] = {
            self.join: 14,
            self.sync: 14,
            self.heartbeat: 5,
            self.leave: 4,
            self.commit: 20,
            self.commit_again: 12,
            self.fetch: 12,
            self.delete_group: 2,
            self.delete_offsets: 3,
            self.describe: 3,
            self.list_all: 3,
            self.toggle_topic: 2,
            self.begin: 2,
            self.add_offsets: 4,
            self.commit_in_transaction: 8,
            self.end: 4,
        }
        (kind,) = chance.choices(list(kinds), list(kinds.values()))
        kind()

    def toggle_topic(self) -> None:
        topic = self.chance.choice(TOPICS)
        (self.delete if topic in self.existing else self.create)(topic)

    # --- members ----------------------------------------------------------------------

    def _who(self) -> str:
        return self.chance.choice((*MEMBERS, *STATIC))

    def join(self) -> None:
        chance, who = self.chance, self._who()
        if self.is_waiting(who):
            return
        is_static = who in STATIC
        version = chance.randint(5 if is_static else 0, 9)
        group = self.groups_of.get(who) or chance.choice(GROUPS)
        if chance.random() < 0.03:
            group = chance.choice((*GROUPS, ""))
        knows = chance.random() < 0.85
        both = _FAVOURITES.get(group, [])
        protocols = chance.choice((both, both, both, both, both[:1], ["other"]))
        # We let the only member of a group change them, and Kafka does not.
        protocols = self.protocols.setdefault((who, group), protocols)
        kind = "consumer"
        if group in self.joined:  # Kafka keeps a group that a refused member has made
            kind = "consumer" if chance.random() < 0.95 else chance.choice(("connect", ""))
            if chance.random() < 0.02:
                protocols = []
        session = _LONG_MS if chance.random() < 0.97 else chance.choice((10, 10_000_000))
        topics = chance.sample(TOPICS, chance.randint(1, 2))
        if is_static:  # one that begins with others has the group rebalance here only
            topics = self.subscribed.setdefault(who, topics)
        metadata = subscription(list(map(self.ours.topic, topics)))

        def note(twin: Twin) -> Callable[[Any], None]:
            def of(told: Any) -> None:
                if told.error_code in (0, ErrorCode.member_id_required):
                    twin.member_ids[who] = told.member_id

            return of

        def answers(twin: Twin) -> Callable[[Any], Any]:
            def of(told: Any) -> Any:
                code = int(told.error_code)
                if code in (0, ErrorCode.member_id_required):
                    self.joined.add(group)
                if code == ErrorCode.member_id_required:
                    self.pending[who] = group
                leads = told.leader == told.member_id and code == 0
                if code == 0:
                    self.pending.pop(who, None)
                    self.settled.add(group)
                    self.groups_of[who] = group
                    self.generations[who] = told.generation_id
                    self.leads[who] = (
                        [twin.name_of(each.member_id) for each in told.members] if leads else []
                    )
                return {
                    "code": code,
                    "generation": told.generation_id,
                    "protocol": told.protocol_name,
                    "type": getattr(told, "protocol_type", None),
                    "leader": twin.name_of(told.leader),
                    "skips": getattr(told, "skip_assignment", None),
                    "members": sorted(
                        (
                            twin.name_of(each.member_id),
                            getattr(each, "group_instance_id", None),
                            bytes(each.metadata),
                        )
                        for each in told.members
                    ),
                }

            return of

        def send(twin: Twin) -> None:
            fields = {
                "group_id": twin.group(group),
                "session_timeout_ms": session,
                "rebalance_timeout_ms": _LONG_MS,
                "member_id": twin.member_ids.get(who, "") if knows else "",
                "protocol_type": kind,
                "protocols": [{"name": each, "metadata": metadata} for each in protocols],
            }
            if is_static:
                fields["group_instance_id"] = who
            twin.send(who, ApiKey.JOIN_GROUP, version, note(twin), answers(twin), **fields)

        self.log.append(f"{who} joins {group} v{version} {protocols} {kind} knows={knows}")
        for twin in self.both:
            send(twin)
        self.settle()

    def _generation(self, who: str) -> int:
        generation, chance = self.generations.get(who, 1), self.chance
        if chance.random() < 0.92:
            return generation
        return chance.choice((generation - 1, generation + 1, -1, 0, -2))

    def sync(self) -> None:
        who, chance = self._who(), self.chance
        if self.is_waiting(who) or (who not in self.groups_of and chance.random() < 0.9):
            return
        group = self.groups_of.get(who, "g")
        is_static = who in STATIC and chance.random() < 0.95
        version = chance.randint(3 if is_static else 0, 5)
        generation = self._generation(who)
        to = self.leads.get(who, [])
        names = {}
        if version >= 5:
            favourite, other = _FAVOURITES[group]
            name = favourite if chance.random() < 0.9 else other
            names = {"protocol_type": "consumer", "protocol_name": name}

        def of(told: Any) -> Any:
            return {
                "code": int(told.error_code),
                "assignment": bytes(told.assignment or b""),
                "type": getattr(told, "protocol_type", None),
                "protocol": getattr(told, "protocol_name", None),
            }

        self.log.append(f"{who} syncs {group} v{version} generation {generation} to {to} {names}")
        for twin in self.both:
            fields: dict[str, Any] = {
                "group_id": twin.group(group),
                "generation_id": generation,
                "member_id": twin.member(who),
                "assignments": [
                    {"member_id": twin.member(each), "assignment": each.encode()} for each in to
                ],
                **names,
            }
            if is_static:
                fields["group_instance_id"] = who
            twin.send(who, ApiKey.SYNC_GROUP, version, lambda told: None, of, **fields)
        self.settle()

    def heartbeat(self) -> None:
        who, chance = self._who(), self.chance
        group, generation = self.groups_of.get(who, "g"), self._generation(who)
        is_static = who in STATIC and chance.random() < 0.9
        version = chance.randint(3 if is_static else 0, 4)
        more = {"group_instance_id": who} if is_static else {}
        self.alike(
            f"{who} beats {group} v{version} {generation}",
            lambda twin: int(
                twin.ask(
                    "other",
                    ApiKey.HEARTBEAT,
                    version,
                    group_id=twin.group(group),
                    generation_id=generation,
                    member_id=twin.member(who),
                    **more,
                ).error_code
            ),
        )

    def leave(self) -> None:
        who, chance = self._who(), self.chance
        group = self.groups_of.get(who) or self.pending.get(who, "g")
        version = chance.randint(0, 5)
        by_instance = who in STATIC and chance.random() < 0.6
        others = [self._who() for _ in range(chance.choice((0, 0, 0, 1, 2)))]
        if who not in self.groups_of and group in self.joined - self.settled:
            return  # Kafka keeps a group whose only joins were refused
        if self.ours.waiting and any(self.leads.get(each) for each in (who, *others)):
            return  # any of those that wait may lead after it
        gone: set[str] = set()

        def ask(twin: Twin) -> Any:
            if version < 3:
                told = twin.ask(
                    "other",
                    ApiKey.LEAVE_GROUP,
                    version,
                    group_id=twin.group(group),
                    member_id=twin.member(who),
                )
                gone.update([] if told.error_code else [who])
                return int(told.error_code)
            members = [
                {
                    "member_id": "" if by_instance else twin.member(each),
                    "group_instance_id": each if each in STATIC else None,
                }
                for each in (who, *others)
            ]
            told = twin.ask(
                "other", ApiKey.LEAVE_GROUP, version, group_id=twin.group(group), members=members
            )
            found = [
                (each.group_instance_id, twin.name_of(each.member_id), int(each.error_code))
                for each in told.members
            ]
            gone.update(
                each for each, (*_, code) in zip((who, *others), found, strict=True) if not code
            )
            return int(told.error_code), found

        self.compare(
            f"{who} {others} leaves {group} v{version} by_instance={by_instance}",
            *map(ask, self.both),
        )
        for each in gone:
            if self.is_waiting(each) and self.ours.waiting[each].key is ApiKey.SYNC_GROUP:
                self.forget_waiting(each)
        self.settle()

    def forget_waiting(self, who: str) -> None:
        """The SyncGroup of a member that has left is answered by us only."""
        ours, theirs = (twin.waiting.pop(who) for twin in self.both)
        assert ours.connection.receive()[1].error_code == ErrorCode.unknown_member_id
        assert theirs.connection.is_silent(0.001)
        theirs.connection.socket.close()
        del self.theirs.connections[who]

    # --- offsets ----------------------------------------------------------------------

    def _partitions(self, version: int) -> list[dict[str, Any]]:
        chance, found = self.chance, []
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            index = chance.randrange(PARTITIONS)
            if chance.random() < 0.05:
                index = chance.choice((-1, PARTITIONS, 2**31 - 1))
            offset = chance.choice(_OFFSETS) if chance.random() < 0.2 else chance.randrange(100)
            each: dict[str, Any] = {"partition_index": index, "committed_offset": offset}
            if version >= 6 and chance.random() < 0.6:
                each["committed_leader_epoch"] = chance.choice((-1, 0, 3, 2**31 - 1, -2))
            if chance.random() < 0.15:
                each["committed_metadata"] = chance.choice(_METADATA)
            found.append(each)
        return found

    def _topics(self, version: int) -> list[tuple[str, list[dict[str, Any]]]]:
        chance = self.chance
        if chance.random() < 0.03:
            return []
        names = self._named_twice(chance.sample(TOPICS, chance.choice((1, 1, 2))))
        if chance.random() < 0.03:
            names.append(chance.choice(("nowhere", "")))
        return [
            (name, self._partitions(version) if chance.random() > 0.03 else []) for name in names
        ]

    def _named_twice(self, names: list[str]) -> list[str]:
        return [*names, names[0]] if self.chance.random() < 0.1 else names

    def _by(self, group: str) -> tuple[str, int, bool]:
        """Who commits, with which generation, and whether by its instance id too."""
        chance = self.chance
        if chance.random() < 0.35:
            return "", -1, False
        members = [who for who, its in self.groups_of.items() if its == group]
        who = chance.choice(members) if members and chance.random() < 0.9 else self._who()
        return who, self._generation(who), who in STATIC and chance.random() < 0.8

    def commit(self) -> None:
        chance = self.chance
        version = chance.randint(2, 10)
        group = chance.choice(GROUPS)
        by = self._by(group)
        retention = chance.choice((-1, -1, -1, 10_000_000, 0 if chance.random() < 0.1 else -1))
        former = chance.random() < 0.3
        if chance.random() < 0.02:
            group = ""
        self._commit(version, group, by, retention, former, self._topics(version))

    def commit_again(self) -> None:
        """The same one with other offsets, up to five times."""
        if self.last_commit is None:
            return
        version, group, by, retention, former, topics = self.last_commit
        for _ in range(self.chance.randint(2, 5)):
            for _, partitions in topics:
                for each in partitions:
                    each["committed_offset"] = self.chance.randrange(1000)
                    if "committed_leader_epoch" in each:
                        each["committed_leader_epoch"] = self.chance.randrange(-1, 5)
            self._commit(version, group, by, retention, former, topics)

    def _commit(
        self,
        version: int,
        group: str,
        by: tuple[str, int, bool],
        retention: int,
        former: bool,
        topics: list[tuple[str, list[dict[str, Any]]]],
    ) -> None:
        self.last_commit = version, group, by, retention, former, topics
        who, generation, by_instance = by

        def ask(twin: Twin) -> Any:
            more: dict[str, Any] = {}
            if 2 <= version <= 4:
                more["retention_time_ms"] = retention
            if version >= 7 and by_instance:
                more["group_instance_id"] = who
            named = [
                {**self._named(twin, name, version, former), "partitions": partitions}
                for name, partitions in topics
            ]
            told = twin.ask(
                f"commits {who}",
                ApiKey.OFFSET_COMMIT,
                version,
                group_id=twin.group(group),
                generation_id_or_member_epoch=generation,
                member_id=twin.member(who),
                topics=named,
                **more,
            )
            return told and sorted(
                (
                    str(topic.topic_id in twin.topic_ids.values()) if version >= 10 else topic.name,
                    each.partition_index,
                    int(each.error_code),
                )
                for topic in told.topics
                for each in topic.partitions
            )

        self.alike(f"{by} commits {group} v{version} {retention} {former} {short(topics)}", ask)

    def _named(self, twin: Twin, name: str, version: int, former: bool) -> dict[str, Any]:
        if version < 10:
            return {"name": twin.topic(name) if name else ""}
        ids = twin.former_ids if former and name in twin.former_ids else twin.topic_ids
        return {"topic_id": ids.get(name, UUID(bytes=name.encode().ljust(16, b"\0")))}

    def fetch(self) -> None:
        chance = self.chance
        version, groups = chance.randint(1, 10), [chance.choice(GROUPS)]
        if version >= 8 and chance.random() < 0.4:
            groups = chance.choices(GROUPS, k=chance.choice((2, 2, 3)))
        if chance.random() < 0.03:
            groups = [chance.choice(("", "no group"))]
        stable = version >= 7 and chance.random() < 0.5
        former = chance.random() < 0.3
        topics: list[tuple[str, list[int]]] | None = None
        if version < 2 or chance.random() < 0.5:
            names = self._named_twice(chance.sample((*TOPICS, "nowhere"), 2))
            topics = [(name, [0, 1, 2, *chance.choice(([], [3], [-1], [1, 1]))]) for name in names]
        self._fetch(version, groups, topics, stable, former)

    def _fetch(
        self,
        version: int,
        groups: list[str],
        topics: list[tuple[str, list[int]]] | None,
        stable: bool,
        former: bool,
    ) -> None:
        def asked(twin: Twin) -> Any:
            return topics and [
                {**self._named(twin, name, version, former), "partition_indexes": indexes}
                for name, indexes in topics
            ]

        def found(twin: Twin, told: Any) -> Any:
            names = {str(each): name for name, each in twin.topic_ids.items()}
            return int(getattr(told, "error_code", 0)), sorted(
                (
                    names.get(str(topic.topic_id), "?") if version >= 10 else topic.name,
                    each.partition_index,
                    each.committed_offset,
                    getattr(each, "committed_leader_epoch", -1),
                    each.metadata,
                    int(each.error_code),
                )
                for topic in told.topics
                for each in topic.partitions
            )

        def ask(twin: Twin) -> Any:
            more = {"require_stable": stable} if version >= 7 else {}
            if version >= 8:
                fields = [
                    {"group_id": twin.group(group), "topics": asked(twin)} for group in groups
                ]
                told = twin.ask("reader", ApiKey.OFFSET_FETCH, version, groups=fields, **more)
                return told and [(each.group_id, found(twin, each)) for each in told.groups]
            told = twin.ask(
                "reader",
                ApiKey.OFFSET_FETCH,
                version,
                group_id=twin.group(groups[0]),
                topics=asked(twin),
                **more,
            )
            return told and found(twin, told)

        self.alike(f"fetch v{version} {groups} {topics} stable={stable}", ask, changes=False)

    def delete_offsets(self) -> None:
        if self.ours.waiting:
            return  # whose members Kafka does not count for subscribers before it has answered them
        chance, group = self.chance, self.chance.choice((*GROUPS, *GROUPS, "no group"))
        names = self._named_twice(chance.sample((*TOPICS, "nowhere"), 2))
        indexes = chance.choice(([0], [0, 1], [2, 5], [1, 1]))

        def ask(twin: Twin) -> Any:
            topics = [
                {
                    "name": twin.topic(name),
                    "partitions": [{"partition_index": index} for index in indexes],
                }
                for name in names
            ]
            told = twin.ask(
                "admin", ApiKey.OFFSET_DELETE, 0, group_id=twin.group(group), topics=topics
            )
            return int(told.error_code), sorted(
                (topic.name, each.partition_index, int(each.error_code))
                for topic in told.topics
                for each in topic.partitions
            )

        self.alike(f"delete offsets of {group} {names} {indexes}", ask)

    def delete_group(self) -> None:
        chance, version = self.chance, self.chance.randint(0, 2)
        groups = chance.choices((*GROUPS, "no group"), k=chance.choice((1, 1, 2, 3)))

        def ask(twin: Twin) -> Any:
            names = list(map(twin.group, groups))
            told = twin.ask("admin", ApiKey.DELETE_GROUPS, version, groups_names=names)
            return sorted((each.group_id, int(each.error_code)) for each in told.results)

        found = self.alike(f"delete groups {groups}", ask)
        gone = {group for group in groups if (self.ours.group(group), 0) in found}
        self.joined -= gone
        self.settled -= gone

    def describe(self) -> None:
        chance, version = self.chance, self.chance.randint(0, 6)
        groups = [*GROUPS, "no group", *chance.choice(([], ["g"], ["no group", "h", "h"]))]
        with_operations = version >= 3 and chance.random() < 0.5
        more = {"include_authorized_operations": True} if with_operations else {}

        def ask(twin: Twin) -> Any:
            names = [twin.group(each) for each in groups]
            told = twin.ask("admin", ApiKey.DESCRIBE_GROUPS, version, groups=names, **more)
            return [
                (
                    int(each.error_code),
                    getattr(each, "authorized_operations", None),
                    each.group_state,
                    each.protocol_type,
                    each.protocol_data,
                    sorted(
                        (
                            twin.name_of(member.member_id),
                            bytes(member.member_metadata),
                            # Kafka forgets them in a rebalance that begins before the last ended.
                            each.group_state == "Stable" and bytes(member.member_assignment),
                        )
                        for member in each.members
                    ),
                )
                for each in told.groups
            ]

        self.alike(f"describe {groups} v{version} {more}", ask, changes=False)

    def list_all(self) -> None:
        chance, version = self.chance, self.chance.randint(0, 5)
        states = chance.choice(([], [], ["Stable"], ["empty"], ["Empty", "Dead"], ["?"]))
        types = chance.choice(([], [], ["classic"], ["Consumer"], ["?"]))
        more: dict[str, Any] = {"states_filter": states} if version >= 4 else {}
        if version >= 5:
            more["types_filter"] = types

        def ask(twin: Twin) -> Any:
            told = twin.ask("admin", ApiKey.LIST_GROUPS, version, **more)
            return int(told.error_code), sorted(
                (
                    each.group_id,
                    each.protocol_type,
                    getattr(each, "group_state", ""),
                    getattr(each, "group_type", ""),
                )
                for each in told.groups
                if each.group_id.startswith(twin.prefix)
            )

        self.alike(f"list v{version} {more}", ask, changes=False)

    # --- transactions -----------------------------------------------------------------

    def begin(self) -> None:
        name, version = self.chance.choice(IDS), self.chance.randint(0, 5)

        def ask(twin: Twin) -> Any:
            told = until_ended(
                lambda: twin.ask(
                    "producer",
                    ApiKey.INIT_PRODUCER_ID,
                    version,
                    transactional_id=twin.group(name),
                    transaction_timeout_ms=60_000,
                ),
                retried=(51, 15, 14),
            )
            if told.error_code == 0:
                twin.producers[name] = told.producer_id, told.producer_epoch
            return int(told.error_code), told.producer_epoch

        self.alike(f"init {name} v{version}", ask)

    def add_offsets(self) -> None:
        name, group = self.chance.choice(IDS), self.chance.choice(GROUPS)
        if name not in self.ours.producers:
            return
        version = self.chance.randint(0, 4)

        def ask(twin: Twin) -> Any:
            producer_id, epoch = twin.producers[name]
            told = until_ended(
                lambda: twin.ask(
                    "producer",
                    ApiKey.ADD_OFFSETS_TO_TXN,
                    version,
                    transactional_id=twin.group(name),
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    group_id=twin.group(group),
                )
            )
            return -1000 if told is None else int(told.error_code)

        self.alike(f"add offsets of {group} to {name}", ask)

    def commit_in_transaction(self) -> None:
        name, group = self.chance.choice(IDS), self.chance.choice(GROUPS)
        if name not in self.ours.producers:
            return
        version = self.chance.randint(0, 5)
        who, generation, by_instance = self._by(group)
        topics = self._topics(version + 4)

        def ask(twin: Twin) -> Any:
            producer_id, epoch = twin.producers[name]
            more: dict[str, Any] = {}
            if version >= 3:
                more = {"generation_id": generation, "member_id": twin.member(who)}
                if by_instance:
                    more["group_instance_id"] = who
            partitions = [
                {
                    "name": twin.topic(topic) if topic else "",
                    "partitions": [
                        {
                            key: value
                            for key, value in each.items()
                            if version >= 2 or "epoch" not in key
                        }
                        for each in its
                    ],
                }
                for topic, its in topics
            ]
            told = until_ended(
                lambda: twin.ask(
                    "producer",
                    ApiKey.TXN_OFFSET_COMMIT,
                    version,
                    transactional_id=twin.group(name),
                    group_id=twin.group(group),
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    topics=partitions,
                    **more,
                ),
                codes_of=lambda told: [
                    each.error_code for topic in told.topics for each in topic.partitions
                ],
            )
            if told is None:
                return None
            return sorted(
                (topic.name, each.partition_index, int(each.error_code))
                for topic in told.topics
                for each in topic.partitions
            )

        self.alike(f"{who} {generation} commits {group} in {name} v{version} {short(topics)}", ask)

    def end(self) -> None:
        name, commits = self.chance.choice(IDS), self.chance.random() < 0.6
        if name not in self.ours.producers:
            return
        version = self.chance.randint(0, 5)

        def ask(twin: Twin) -> Any:
            producer_id, epoch = twin.producers[name]
            told = until_ended(
                lambda: twin.ask(
                    "producer",
                    ApiKey.END_TXN,
                    version,
                    transactional_id=twin.group(name),
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    committed=commits,
                )
            )
            if told is None:
                return None
            if version >= 5 and told.error_code == 0:
                twin.producers[name] = told.producer_id, told.producer_epoch
                return 0, told.producer_epoch
            return int(told.error_code)

        self.alike(f"end {name} v{version} {commits}", ask)

    def look(self) -> None:
        """Everything that is committed, as all read it."""
        for stable in (False, True):
            self._fetch(9, list(GROUPS), None, stable, False)


def subscription(topics: list[str]) -> bytes:
    """What a consumer says that it reads (version 0)."""
    names = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


def until_ended(
    ask: Callable[[], Any],
    *,
    codes_of: Callable[[Any], Iterable[int]] = lambda told: (told.error_code,),
    retried: Container[int] = (51,),
) -> Any:
    """Ask again while the transaction before is being ended; None if the connection was closed."""
    for _ in range(200):
        told = ask()
        if told is None or not any(code in retried for code in codes_of(told)):
            return told
        time.sleep(0.05)
    raise AssertionError("it is still ended")


def short(topics: list[tuple[str, list[dict[str, Any]]]]) -> str:
    """As a line of a log."""
    return str(
        [
            (
                name,
                [
                    tuple(
                        v if not isinstance(v, str) else v[:3] + str(len(v)) for v in each.values()
                    )
                    for each in its
                ],
            )
            for name, its in topics
        ]
    )
