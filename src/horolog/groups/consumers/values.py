"""Requests, answers and members of consumer groups as plain values (KIP-848)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from horolog.groups.rows import GroupRecord, GroupRow
from horolog.schemas.group_records import AssignedTopic, CurrentValue, MemberMetadataValue

LEAVES: Final = -1
"""Member epoch of a heartbeat with which a member leaves."""
LEAVES_FOR_NOW: Final = -2
"""Member epoch with which a static member leaves: it keeps its partitions for a while."""
FIRST_EPOCH: Final = 1
"""Epoch of a group whose members were assigned nothing yet: the first assignment has 2."""
UNKNOWN_STATE: Final = 127

Partitions: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partitions by the id of their topic."""
Epochs: TypeAlias = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic id, each with the epoch in which its member got it (KIP-1251)."""


_NOTHING: Final[Epochs] = MappingProxyType({})


class MemberState(IntEnum):
    """How far a member is with its target assignment."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to give up partitions, and to say so in a heartbeat."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members have not given up."""
    UNKNOWN = UNKNOWN_STATE


class MigrationPolicy(NamedTuple):
    """Whether groups with members may change between the protocols."""

    upgrade: bool = True
    downgrade: bool = True


_BOTH_WAYS: Final = MigrationPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerLimits:
    """The broker settings for consumer groups; times in milliseconds."""

    assignors: tuple[str, ...] = ("uniform", "range")
    """Those that a member may ask for; the first is the default."""
    max_size: int = 2**31 - 1
    max_bytes: int = 16 << 20
    max_classic_size: int = 2**31 - 1
    """Members of a group that becomes a classic group."""
    regex_refresh_ms: int = 600_000
    policy: MigrationPolicy = _BOTH_WAYS


class GroupTimes(NamedTuple):
    """Settings that each group may have its own of, in milliseconds."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


class TopicShape(Protocol):
    """A topic as groups see it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def topic_id(self) -> UUID:
        """Its id, which another topic of the name does not have."""
        ...

    @property
    def partitions(self) -> Sequence[int]:
        """Its partitions."""
        ...


class TopicLookup(Protocol):
    """Topics of the broker."""

    @property
    def rack(self) -> str | None:
        """Rack of their replicas, if the broker has one."""
        ...

    @property
    def version(self) -> int:
        """A number that any change of a topic raises."""
        ...

    def names(self) -> Collection[str]:
        """Return the names of all topics; the caller may keep them."""
        ...

    def find(self, name: str) -> TopicShape | None:
        """Return the topic of a name, if it exists."""
        ...

    def find_id(self, topic_id: UUID | None) -> TopicShape | None:
        """Return the topic with an id, if it exists."""
        ...


class Beat(NamedTuple):
    """A ConsumerGroupHeartbeat; None leaves what the member said before."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    """-1 leaves it, too."""
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """True if the answer has to contain the assignment."""
        if self.epoch == 0:
            return True
        is_subscribing = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and is_subscribing and self.owned is not None


class Beaten(NamedTuple):
    """The answer to a heartbeat; `assignment` is None where the member has it already."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


class Current(NamedTuple):
    """Epoch and partitions of a member, each partition with the epoch since when it has it."""

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Epochs = _NOTHING
    pending: Epochs = _NOTHING
    """Those that it has to give up."""

    @classmethod
    def of(cls, value: CurrentValue) -> "Current":
        """Return what a record says."""
        known = value.state in tuple(MemberState)
        return cls(
            value.epoch,
            value.previous_epoch,
            MemberState(value.state) if known else MemberState.UNKNOWN,
            _epochs(value.assigned, value.epoch),
            _epochs(value.pending, value.epoch),
        )

    def value(self) -> CurrentValue:
        """Return it as the value of a record."""
        assigned, pending = _topics(self.assigned), _topics(self.pending)
        return CurrentValue(self.epoch, self.previous_epoch, int(self.state), assigned, pending)

    def has(self, topic_id: UUID, partition: int) -> bool:
        """Return True if the member has a partition, to be given up or not."""
        return self.since(topic_id, partition) is not None

    def since(self, topic_id: UUID, partition: int) -> int | None:
        """Return the epoch in which the member got a partition; None if it does not have it."""
        for epochs in (self.assigned, self.pending):
            since = epochs.get(topic_id, {}).get(partition)
            if since is not None:
                return since
        return None


class ConsumerMember(NamedTuple):
    """A member of a consumer group."""

    member_id: str
    metadata: MemberMetadataValue
    topics: frozenset[str] = frozenset()
    """Those that it subscribes to by name."""
    current: Current = Current()
    target: Partitions | None = None
    """What it is to have in the end; None before it was assigned anything."""

    @property
    def is_classic(self) -> bool:
        """True if it speaks the classic protocol."""
        return self.metadata.classic is not None

    @property
    def regex(self) -> str:
        """Its pattern of topics; empty without one."""
        return self.metadata.regex or ""

    @property
    def instance_id(self) -> str | None:
        """Id of a static member."""
        return self.metadata.instance_id


class TimerKind(Enum):
    """Kinds of timers; each value says why the member is removed at its end."""

    SESSION = "its session expired"
    REBALANCE = "it did not give up partitions in time"
    JOIN = "it did not join again in time"
    SYNC = "it did not ask for its partitions in time"


class Timer(NamedTuple):
    """A timer of a member that begins now, or ends without a time in milliseconds."""

    kind: TimerKind
    member_id: str
    after_ms: int | None = None
    if_none: bool = False
    """True leaves one that runs."""


class GroupStep(NamedTuple):
    """The outcome of an operation: its answer, and the records that make it so.

    It counts once the records are in the log: `ConsumerGroup.apply` takes it then.
    """

    answer: Any
    records: Sequence[GroupRecord] = ()
    timers: Sequence[Timer] = ()
    checked_version: int | None = None
    """Version of the topics that the group's metadata hash is of now."""
    becomes: GroupRow | None = None
    """Classic group that takes the place of this one."""
    rebalances: bool = False
    """True if the members of that group have to join again."""


def partitions_of(epochs: Epochs) -> dict[UUID, frozenset[int]]:
    """Return partitions without their epochs."""
    return {topic_id: frozenset(of_topic) for topic_id, of_topic in epochs.items() if of_topic}


def _epochs(topics: Iterable[AssignedTopic], epoch: int) -> dict[UUID, dict[int, int]]:
    found: dict[UUID, dict[int, int]] = {}
    for topic_id, partitions, epochs in topics:
        since = epochs if epochs and len(epochs) == len(partitions) else [epoch] * len(partitions)
        found.setdefault(topic_id, {}).update(zip(partitions, since, strict=True))
    return found


def _topics(epochs: Epochs) -> tuple[AssignedTopic, ...]:
    return tuple(
        AssignedTopic(topic_id, tuple(of_topic), tuple(of_topic.values()))
        for topic_id, of_topic in epochs.items()
        if of_topic
    )
