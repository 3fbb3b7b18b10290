"""Consumer groups and their committed offsets."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import UUID

from horolog.client.deadline import Deadline
from horolog.client.metadata import BrokerMetadata, by_topic, refuse
from horolog.client.retrying import RetriedCalls
from horolog.errors import CorruptBatch, ErrorCode, RequestRefused
from horolog.offsets import TopicPartition
from horolog.schemas.fields import Fields, there
from horolog.wire.api import ApiKey

_LAST_WITH_NAMES: Final = 9  # of OffsetCommit and OffsetFetch
_FIRST_WITH_IDS: Final = 10  # of topics
_LAST_WITHOUT_ERRORS: Final = 5  # of DescribeGroups: a group that is not there is dead
_DEAD: Final = "Dead"
_NOT_DESCRIBED: Final = (
    ErrorCode.topic_authorization_failed,
    ErrorCode.unsupported_version,
    ErrorCode.group_id_not_found,  # by now
)
FIRST_WITH_STABLE: Final = 7  # of OffsetFetch: waits for transactions


class CommittedOffset(NamedTuple):
    """Next offset that a group will read."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class GroupListing(NamedTuple):
    """Group in a broker's list; a field is None if older brokers do not return it."""

    group: str
    state: str | None
    type: str | None
    """"classic", or "consumer" of KIP-848."""
    protocol_type: str
    """"consumer", "connect" and others; empty if the group only commits offsets."""
    coordinator: int


class GroupMember(NamedTuple):
    """Member of a group."""

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    """Instance id of a static member."""
    assigned: tuple[TopicPartition, ...] | None
    """Assigned partitions; None if the assignment is not in the format of consumers."""
    epoch: int | None = None
    """Epoch of a member of a consumer group (KIP-848)."""
    target: tuple[TopicPartition, ...] | None = None
    """Partitions that a member of a consumer group is to have."""


class GroupDescription(NamedTuple):
    """Group with its members, as its coordinator describes it."""

    group: str
    state: str
    protocol_type: str
    assignor: str
    """Protocol that the members agreed on."""
    members: tuple[GroupMember, ...] | None
    """None if the coordinator does not name them: of share groups, or of topics that are hidden."""
    type: str | None = "classic"

    @property
    def exists(self) -> bool:
        """True unless the coordinator does not know the group."""
        return self.state != _DEAD


class Groups(RetriedCalls):
    """Requests to the coordinators of groups."""

    def names(self) -> list[str]:
        """Return the names of all consumer groups in the cluster, in order."""
        return [it.group for it in self.list() if it.protocol_type in ("", "consumer")]

    def coordinator(self, group_id: str) -> BrokerMetadata:
        """Return the broker that coordinates a group."""

        def attempt(deadline: Deadline) -> BrokerMetadata:
            node_id, address = self.brokers.find_coordinator(group_id, deadline)
            return BrokerMetadata(node_id, address, None)

        return self._persist(attempt)

    def list(self) -> "list[GroupListing]":
        """Return all groups in the cluster, in the order of their names."""

        def attempt(deadline: Deadline) -> list[GroupListing]:
            groups: dict[str, GroupListing] = {}
            for node_id in self.brokers.metadata([], deadline).brokers:
                link = self.brokers.node(node_id, deadline)
                request = {"states_filter": (), "types_filter": ()}
                body = link.ask(ApiKey.LIST_GROUPS, request, deadline)
                refuse(getattr(body, "error_code", 0), "the list of groups")
                for group in body.groups:
                    groups[group.group_id] = GroupListing(
                        group.group_id,
                        getattr(group, "group_state", None) or None,
                        getattr(group, "group_type", None) or None,
                        group.protocol_type,
                        node_id,
                    )
            return [groups[name] for name in sorted(groups)]

        return self._persist(attempt)

    def describe(self, group_ids: Sequence[str]) -> dict[str, GroupDescription]:
        """Return groups with their members, and their states by Kafka's names.

        A group that does not exist is "Dead". "Empty" ones have no members. Groups of other types
        than "classic" (KIP-848) are found in the list of groups.
        """

        def attempt(deadline: Deadline) -> dict[str, GroupDescription]:
            described = {}
            for group_id in group_ids:
                link = self.brokers.coordinator(group_id, deadline)
                request = {"groups": [group_id], "include_authorized_operations": False}
                body = link.ask(
                    ApiKey.DESCRIBE_GROUPS, request, deadline, highest=_LAST_WITHOUT_ERRORS
                )
                for group in body.groups:
                    refuse(group.error_code, f"state of group {group_id}")
                    described[group_id] = GroupDescription(
                        group_id,
                        group.group_state,
                        group.protocol_type,
                        group.protocol_data,
                        tuple(map(_member, group.members)),
                    )
            return described

        found = self._persist(attempt)
        if not all(group.exists for group in found.values()):  # so are those of other types
            for listed in self.list():
                group = found.get(listed.group)
                if group is not None and not group.exists and listed.state is not None:
                    found[listed.group] = self._of_type(listed, listed.state)
        return found

    def _of_type(self, listed: GroupListing, state: str) -> GroupDescription:
        """Describe a group that is not a classic one, with members if it is a consumer group."""

        def attempt(deadline: Deadline) -> GroupDescription:
            link = self.brokers.coordinator(listed.group, deadline)
            request = {"group_ids": [listed.group], "include_authorized_operations": False}
            (group,) = link.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, request, deadline).groups
            refuse(group.error_code, f"members of group {listed.group}")
            members = tuple(map(_consumer, group.members))
            return described._replace(
                state=group.group_state, assignor=group.assignor_name, members=members
            )

        described = GroupDescription(
            listed.group, state, listed.protocol_type, "", None, listed.type
        )
        if listed.type is None or listed.type.lower() != "consumer":
            return described
        try:
            return self._persist(attempt)
        except RequestRefused as error:
            if error.code not in _NOT_DESCRIBED:
                raise
            return described

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        topic_ids: Mapping[str, UUID] = MappingProxyType({}),
    ) -> None:
        """Commit offsets for a group without members.

        Args:
            topic_ids: of the topics. If all are given, a topic that was re-created is refused, by
                brokers of horolog and by Kafka's since 4.1.

        Raises:
            RequestRefused: the coordinator refuses some partition, which it names.
        """
        topics = committed_by_topic(offsets)
        has_ids = all(topic["name"] in topic_ids for topic in topics)
        request = {
            "group_id": group_id,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [topic | {"topic_id": topic_ids.get(topic["name"])} for topic in topics],
        }
        names = {topic_id: name for name, topic_id in topic_ids.items()}
        highest = _FIRST_WITH_IDS if has_ids else _LAST_WITH_NAMES

        def attempt(deadline: Deadline) -> None:
            link = self.brokers.coordinator(group_id, deadline)
            body = link.ask(ApiKey.OFFSET_COMMIT, request, deadline, highest=highest)
            for topic in body.topics:
                name = getattr(topic, "name", None) or names.get(topic.topic_id)
                for it in topic.partitions:
                    what = f"commit of group {group_id} to {name}-{it.partition_index}"
                    refuse(it.error_code, what)

        self._persist(attempt)

    def committed(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Return committed offsets of a group; without `partitions`, all of them.

        Requested partitions without a committed offset are None. `require_stable` waits for
        transactions that commit offsets (KIP-447).

        Raises:
            RequestRefused: the coordinator refuses the group or a partition, or is older than
                Kafka 2.5 and has no `require_stable` (UNSUPPORTED_VERSION).
        """
        requested, lowest = None, 2
        if partitions is not None:
            lowest = 1
            requested = [
                {"name": name, "partition_indexes": numbers}
                for name, numbers in by_topic(partitions).items()
            ]
        if require_stable:
            lowest = FIRST_WITH_STABLE
        request = {
            "group_id": group_id,
            "topics": requested,
            "groups": [{"group_id": group_id, "topics": requested}],
            "require_stable": require_stable,
        }

        def attempt(deadline: Deadline) -> dict[TopicPartition, CommittedOffset | None]:
            link = self.brokers.coordinator(group_id, deadline)
            body = link.ask(
                ApiKey.OFFSET_FETCH, request, deadline, lowest=lowest, highest=_LAST_WITH_NAMES
            )
            answer = body.groups[0] if hasattr(body, "groups") else body
            what = f"offsets of group {group_id}"
            refuse(getattr(answer, "error_code", 0), what)
            committed: dict[TopicPartition, CommittedOffset | None] = {}
            for topic in answer.topics:
                for it in topic.partitions:
                    refuse(it.error_code, f"{what} for {topic.name}-{it.partition_index}")
                    committed[topic.name, it.partition_index] = _committed(it)
            return committed

        return self._persist(attempt)


def _member(it: Any) -> GroupMember:
    return GroupMember(
        it.member_id,
        it.client_id,
        it.client_host,
        getattr(it, "group_instance_id", None),
        _assigned(it.member_assignment),
    )


def _consumer(it: Any) -> GroupMember:
    return GroupMember(
        it.member_id,
        it.client_id,
        it.client_host,
        it.instance_id,
        _partitions(it.assignment),
        it.member_epoch,
        _partitions(it.target_assignment),
    )


def _partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    topics = assignment.topic_partitions
    return tuple(sorted((topic.topic_name, it) for topic in topics for it in topic.partitions))


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    """Return the partitions of a consumer's assignment, in order; empty without an assignment."""
    if not assignment:
        return ()
    fields = Fields(bytes(assignment), is_flexible=False)

    def of_topic() -> list[TopicPartition]:
        topic = there(fields.text())
        return [(topic, number) for number in there(fields.array(fields.i32))]

    try:
        fields.i16()  # the version
        topics = there(fields.array(of_topic))
    except CorruptBatch:
        return None
    return tuple(sorted({partition for its in topics for partition in its}))


def committed_by_topic(
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> list[dict[str, Any]]:
    """Return the topics of a request that commits offsets, in a transaction or not."""
    topics = []
    for name, numbers in by_topic(offsets).items():
        partitions = []
        for number in numbers:
            committed = offsets[name, number]
            epoch = committed.leader_epoch
            partitions.append(
                {
                    "partition_index": number,
                    "committed_offset": committed.offset,
                    "committed_leader_epoch": -1 if epoch is None else epoch,
                    "committed_metadata": committed.metadata,
                }
            )
        topics.append({"name": name, "partitions": partitions})
    return topics


def _committed(it: Any) -> CommittedOffset | None:
    if it.committed_offset < 0:
        return None
    epoch = getattr(it, "committed_leader_epoch", -1)
    return CommittedOffset(it.committed_offset, it.metadata or "", None if epoch < 0 else epoch)
