"""The broker's topics, and the rules for creating one; error messages are Apache Kafka's."""

import re
from bisect import bisect_left
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from horolog.errors import ErrorCode, RequestRefused
from horolog.storage.names import INTERNAL_TOPICS

MAX_NAME_LENGTH: Final = 249
MAX_NEW_PARTITIONS: Final = 10_000

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic. `partitions` ascend, from 0 without gaps unless it was adopted with gaps.

    `adopted`: its directories were found on disk and it has no settings here, so its records do
    not expire. `compacted`: adopted from a Kafka that compacts it, so records without a key are
    refused. `unsettled`: a stored setting is invalid, so its retention is unknown. `followed`:
    another cluster leads it (docs/following.md). `salvaged`: adopted because its settings are lost.
    """

    name: str
    topic_id: UUID
    partitions: tuple[int, ...]
    overrides: Mapping[str, str] = field(default_factory=dict)
    adopted: bool = False
    compacted: bool = False
    unsettled: bool = False
    followed: bool = False
    salvaged: bool = False

    def has_partition(self, index: int) -> bool:
        """True if the topic has this partition, offline or not."""
        its = self.partitions
        if 0 <= index < len(its) and its[index] == index:
            return True
        at = bisect_left(its, index)  # there are gaps
        return at < len(its) and its[at] == index

    def has_partitions(self, indices: Sequence[int]) -> bool:
        """True if the topic has all of these partitions, of which there is at least one."""
        its = self.partitions
        if min(indices) >= 0 and max(indices) < len(its) and its[-1] == len(its) - 1:
            return True
        return all(map(self.has_partition, indices))

    @property
    def may_expire(self) -> bool:
        """True if retention by age and size applies."""
        return not self.adopted and not self.unsettled

    @property
    def is_internal(self) -> bool:
        """True if clients cannot write to it."""
        return self.name in INTERNAL_TOPICS


class TopicRegistry:
    """Topics of a broker, indexed by name and by id."""

    def __init__(self, rack: str | None = None) -> None:
        self.rack = rack
        """Rack of the broker, and so of each replica."""
        self.version = 0
        """Raised by every change of a topic."""
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._by_folded: dict[str, set[str]] = {}  # names that collide in Kafka's metrics

    def __iter__(self) -> Iterator[Topic]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def put(self, topic: Topic) -> None:
        """Add or replace a topic."""
        self.version += 1
        old = self._by_name.get(topic.name)
        if old is not None:
            self._by_id.pop(old.topic_id, None)
        self._by_name[topic.name] = topic
        self._by_folded.setdefault(_folded(topic.name), set()).add(topic.name)
        self._by_id[topic.topic_id] = topic

    def remove(self, name: str) -> None:
        """Remove a topic."""
        self.version += 1
        topic = self._by_name.pop(name)
        del self._by_id[topic.topic_id]
        alike = self._by_folded[_folded(name)]
        alike.discard(name)
        if not alike:
            del self._by_folded[_folded(name)]

    def names(self) -> list[str]:
        """Return the names of all topics."""
        return list(self._by_name)

    def find(self, name: str) -> Topic | None:
        """Return the topic with this name, or None."""
        return self._by_name.get(name)

    def find_id(self, topic_id: UUID | None) -> Topic | None:
        """Return the topic with this id, or None."""
        return None if topic_id is None else self._by_id.get(topic_id)

    def id_of(self, name: str) -> UUID | None:
        """Return the id of the topic with this name; None if it does not exist."""
        topic = self._by_name.get(name)
        return None if topic is None else topic.topic_id

    def named(self, name: str | None) -> Topic:
        """Return the topic with this name, or raise UNKNOWN_TOPIC_OR_PARTITION."""
        topic = None if name is None else self._by_name.get(name)
        if topic is None:
            raise unknown_topic(name)
        return topic

    def with_id(self, topic_id: UUID | None) -> Topic:
        """Return the topic with this id, or raise UNKNOWN_TOPIC_ID."""
        topic = None if topic_id is None else self._by_id.get(topic_id)
        if topic is None:
            raise RequestRefused(ErrorCode.unknown_topic_id, f"no topic has the id {topic_id}")
        return topic

    def check_new_name(self, name: str, internal: Container[str] = ()) -> None:
        """Refuse a name that exists, is invalid, is reserved, or collides with another.

        Those of `internal` are not reserved.
        """
        check_name(name)
        if name in INTERNAL_TOPICS and name not in internal:
            raise RequestRefused(
                ErrorCode.invalid_topic_exception,
                f"Topic name is invalid: '{name}' is reserved for an internal topic of Kafka",
            )
        if name in self._by_name:
            raise RequestRefused(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
        for other in self._by_folded.get(_folded(name), ()):
            raise RequestRefused(
                ErrorCode.invalid_topic_exception,
                f"Topic '{name}' collides with existing topic: {other}",
            )


class NewPartitions:
    """The partitions that one request may still create: 10,000 in total, as in Kafka."""

    def __init__(self) -> None:
        self._left = MAX_NEW_PARTITIONS

    def take(self, count: int) -> None:
        """Count new partitions; refuse those over the limit."""
        if count > self._left:
            raise RequestRefused(
                ErrorCode.policy_violation,
                "Excessively large number of partitions per request: at most "
                f"{MAX_NEW_PARTITIONS} are created by one",
            )
        self._left -= max(count, 0)


def unknown_topic(name: str | None) -> RequestRefused:
    """The error for an unknown topic."""
    return RequestRefused(
        ErrorCode.unknown_topic_or_partition, f"This server does not host the topic {name!r}."
    )


def _folded(name: str) -> str:
    return name.replace(".", "_")


def check_name(name: str) -> None:
    """Refuse an invalid topic name."""
    why = None
    if not name:
        why = "the empty string is not allowed"
    elif name in (".", ".."):
        why = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        why = f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif not _LEGAL_NAME.match(name):
        why = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    if why is not None:
        raise RequestRefused(ErrorCode.invalid_topic_exception, f"Topic name is invalid: {why}")


def partitions_of_new_topic(
    *,
    count: int,
    replication_factor: int,
    assignments: Mapping[int, Sequence[int]],
    repeated: int | None,
    broker_id: int,
    default_count: int,
) -> int:
    """Return the number of partitions of a new topic; refuse with Kafka's error codes.

    `assignments` are broker ids by partition, empty if the broker chooses; `repeated` is a
    partition that is assigned twice, or None.
    """
    if assignments:
        if replication_factor != -1:
            raise RequestRefused(
                ErrorCode.invalid_request,
                "A manual partition assignment was specified, but replication factor was "
                "not set to -1.",
            )
        if count != -1:
            raise RequestRefused(
                ErrorCode.invalid_request,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            )
        if repeated is not None:
            raise RequestRefused(
                ErrorCode.invalid_replica_assignment,
                f"Found multiple manual partition assignments for partition {repeated}",
            )
        for partition, brokers in assignments.items():
            check_assignment(partition, brokers, broker_id)
        if sorted(assignments) != list(range(len(assignments))):
            raise RequestRefused(
                ErrorCode.invalid_replica_assignment,
                "partitions should be a consecutive 0-based integer sequence",
            )
        return len(assignments)
    if replication_factor < -1 or replication_factor == 0:
        raise RequestRefused(
            ErrorCode.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if count < -1 or count == 0:
        raise RequestRefused(
            ErrorCode.invalid_partitions,
            "Number of partitions was set to an invalid non-positive value.",
        )
    if replication_factor > 1:
        raise RequestRefused(
            ErrorCode.invalid_replication_factor,
            f"Unable to replicate the partition {replication_factor} time(s): The target "
            f"replication factor of {replication_factor} cannot be reached because only 1 "
            "broker(s) are registered.",
        )
    return default_count if count == -1 else count


def check_assignment(partition: int, brokers: Sequence[int], broker_id: int) -> None:
    """Refuse an assignment to a broker other than this one."""
    if list(brokers) != [broker_id]:
        raise RequestRefused(
            ErrorCode.invalid_replica_assignment,
            f"The manual partition assignment for partition {partition} must name broker "
            f"{broker_id} alone: there is no other",
        )


def check_partition_increase(topic: Topic, count: int) -> None:
    """Refuse a number of partitions that is not larger than the current one."""
    present, highest = len(topic.partitions), topic.partitions[-1]
    if present <= highest and count <= highest:
        raise RequestRefused(
            ErrorCode.invalid_partitions,
            f"The topic {topic.name} was adopted with gaps and its highest partition is {highest}: "
            f"{count} partitions would not contain it.",
        )
    if count == present:
        raise RequestRefused(
            ErrorCode.invalid_partitions, f"Topic already has {present} partition(s)."
        )
    if count < present:
        raise RequestRefused(
            ErrorCode.invalid_partitions,
            f"The topic {topic.name} currently has {present} partition(s); {count} would not "
            "be an increase.",
        )
