"""Requests of the consumer protocol, in which the broker assigns partitions (KIP-848)."""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID, uuid4

from horolog.broker.authorisation import GROUP, NO_BITS, TOPIC, refusal
from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import Apart, Request, api
from horolog.broker.handlers.group_tools import MANY_DESCRIBED, MOST_AGAIN_BYTES
from horolog.broker.handlers.groups import group_error_code
from horolog.broker.handlers.results import apart_if, each
from horolog.broker.scheduling.codec_threads import Checkpoint
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for, printable
from horolog.groups.consumers.group import ConsumerGroup
from horolog.groups.consumers.values import (
    LEAVES,
    LEAVES_FOR_NOW,
    Beat,
    ConsumerMember,
    Partitions,
    partitions_of,
)
from horolog.metadata.topics import TopicRegistry
from horolog.wire.acl import AclOperation
from horolog.wire.api import ApiKey
from horolog.wire.requests import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
)

if TYPE_CHECKING:
    from horolog.wire import responses as r

# --- ConsumerGroupHeartbeat: a member joins a group, stays, resubscribes or leaves --------
#
# v0  flexible; the broker may make the id of a new member
# v1  patterns of topics (KIP-848's regex); the client makes its id (KIP-1082)


_OWN_IDS = 1  # the first version in which clients make the ids of members


@api(ApiKey.CONSUMER_GROUP_HEARTBEAT)
async def consumer_group_heartbeat(
    request: Request[ConsumerGroupHeartbeatRequest], broker: BrokerParts
) -> "r.ConsumerGroupHeartbeatResponse":
    """Take a heartbeat; the answer says what the member may have now."""
    body, access, peer = request.body, broker.access, request.peer
    try:
        _check_served(broker)
        access.check(peer, ApiKey.CONSUMER_GROUP_HEARTBEAT, GROUP, body.group_id)
        await _check_topics(request, broker)
        beat = await _beat(request, broker)
        beaten = await broker.groups.consumer_heartbeat(
            body.group_id,
            beat,
            partial(access.sees, peer, AclOperation.DESCRIBE, TOPIC),
        )
    except HorologError as error:
        return {
            "error_code": group_error_code(error),
            "error_message": _message(error),
            "member_epoch": 0,
            "heartbeat_interval_ms": 0,
        }
    assignment: r.Assignment | None = None
    if beaten.assignment is not None:
        assignment = {"topic_partitions": _assigned(beaten.assignment)}
    return {
        "error_code": ErrorCode.none,
        "member_id": beaten.member_id,
        "member_epoch": beaten.epoch,
        "heartbeat_interval_ms": beaten.heartbeat_interval_ms,
        "assignment": assignment,
    }


def _check_served(broker: BrokerParts) -> None:
    if not broker.serves_consumer_protocol:
        raise RequestRefused(
            ErrorCode.unsupported_version, "the consumer protocol is not enabled here"
        )


async def _check_topics(
    request: Request[ConsumerGroupHeartbeatRequest], broker: BrokerParts
) -> None:
    """Refuse names of topics of which the client may not describe each."""
    if broker.access.rights is None:
        return
    for name in request.body.subscribed_topic_names or ():
        await request.checkpoint()
        broker.access.check(request.peer, ApiKey.CONSUMER_GROUP_HEARTBEAT, TOPIC, name)


async def _beat(request: Request[ConsumerGroupHeartbeatRequest], broker: BrokerParts) -> Beat:
    """Return a heartbeat as a value, once its form is checked."""
    body = request.body
    _check_form(body, request.version)
    assignors = broker.config.group_consumer_assignors
    if body.server_assignor is not None and body.server_assignor not in assignors:
        raise RequestRefused(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {body.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(assignors)}.",
        )
    topics: frozenset[str] | None = None
    if body.subscribed_topic_names is not None:
        topics = frozenset([name async for name in each(request, body.subscribed_topic_names)])
    return Beat(
        member_id=body.member_id or _new_id(),
        epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=body.rebalance_timeout_ms,
        topics=topics,
        regex=body.subscribed_topic_regex,
        assignor=body.server_assignor,
        owned=await _owned(request, body.topic_partitions),
        client_id=request.client_id,
        client_host=f"/{request.peer.host}",
    )


async def _owned(
    request: Request[ConsumerGroupHeartbeatRequest],
    topics: Sequence[ConsumerGroupHeartbeatTopicPartitions] | None,
) -> Partitions | None:
    if topics is None:
        return None
    owned: dict[UUID, set[int]] = {}
    async for topic in each(request, topics):
        owned.setdefault(topic.topic_id or UUID(int=0), set()).update(topic.partitions)
    return {topic_id: frozenset(of) for topic_id, of in owned.items()}


def _check_form(body: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Refuse a heartbeat that no client sends, as Apache Kafka does."""
    epoch = body.member_epoch
    _check_text("GroupId", body.group_id)
    _check_text("InstanceId", body.instance_id)
    _check_text("RackId", body.rack_id)
    if version >= _OWN_IDS or epoch != 0:
        _check_text("MemberId", body.member_id)
    if epoch == 0:
        if body.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if body.topic_partitions is None or body.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if body.subscribed_topic_names is None and body.subscribed_topic_regex is None:
            raise _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    elif epoch == LEAVES_FOR_NOW and body.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < 0 and epoch not in (LEAVES, LEAVES_FOR_NOW):
        raise _invalid("MemberEpoch is invalid.")


def _check_text(name: str, text: str | None) -> None:
    if text is not None and not text.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> RequestRefused:
    return RequestRefused(ErrorCode.invalid_request, message)


def _new_id() -> str:
    """Return an id in the form of Kafka's: a UUID of 22 characters."""
    return urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()


def _message(error: HorologError) -> str | None:
    refused = code_for(error) in (
        ErrorCode.group_authorization_failed,
        ErrorCode.topic_authorization_failed,
    )
    return None if refused else printable(str(error))


def _assigned(partitions: Partitions) -> "list[r.ConsumerGroupHeartbeatAnswerTopicPartitions]":
    return [{"topic_id": topic_id, "partitions": sorted(of)} for topic_id, of in partitions.items()]


# --- ConsumerGroupDescribe: members of consumer groups, and what they have ----------------
#
# v0  flexible
# v1  the type of a member: classic or consumer (KIP-1099)
#
# A group that is named several times is described each time, as by Apache Kafka. But once
# `MOST_AGAIN_BYTES` were repeated, it gets INVALID_REQUEST: the answer to a small request would
# have no bounds.


_LARGE_BYTES: Final = 64 << 10
_CLASSIC: Final = 0
_CONSUMER: Final = 1


class _FoundConsumers(NamedTuple):
    """A group at one moment; its members are values that do not change."""

    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: Sequence[ConsumerMember]
    size: int


@api(ApiKey.CONSUMER_GROUP_DESCRIBE)
async def consumer_group_describe(
    request: Request[ConsumerGroupDescribeRequest], broker: BrokerParts
) -> "r.ConsumerGroupDescribeResponse | Apart":
    """Describe each requested group; an empty id comes first."""
    access, peer, asked = broker.access, request.peer, request.body.group_ids
    found: dict[str, _FoundConsumers | RequestRefused] = {}
    size = 0
    async for group_id in each(request, asked):
        if group_id not in found:
            found[group_id] = await _found(request, group_id, broker)
        of = found[group_id]
        size += of.size if isinstance(of, _FoundConsumers) else 0
    bits: dict[str, int] = {}
    if request.body.include_authorized_operations:
        bits = {it: access.bits(peer, GROUP, it) for it in found}
    ordered = sorted(asked, key=bool)
    names = _names(broker.topics, found.values())
    make = partial(_descriptions, ordered, found, names, bits)
    return apart_if(len(asked) > MANY_DESCRIBED or size > _LARGE_BYTES, make)


async def _found(
    request: Request[ConsumerGroupDescribeRequest], group_id: str, broker: BrokerParts
) -> _FoundConsumers | RequestRefused:
    try:
        _check_served(broker)
        if not group_id:
            raise RequestRefused(ErrorCode.invalid_group_id, "GroupId can't be empty.")
        broker.access.check(request.peer, ApiKey.CONSUMER_GROUP_DESCRIBE, GROUP, group_id)
        group = broker.groups.consumer_group(group_id)
        if group is None:
            said = "is not a consumer group" if broker.groups.has(group_id) else "not found"
            raise RequestRefused(ErrorCode.group_id_not_found, f"Group {group_id} {said}.")
        await _check_seen(request, group, broker)
    except RequestRefused as error:
        return error
    members = list(group.members.values())
    return _FoundConsumers(
        group.state.value,
        group.epoch,
        group.assignment_epoch,
        group.preferred_assignor(),
        members,
        group.held_bytes,
    )


async def _check_seen(
    request: Request[ConsumerGroupDescribeRequest], group: ConsumerGroup, broker: BrokerParts
) -> None:
    """Refuse a group with topics of which the client may not describe each."""
    if broker.access.rights is None:
        return
    ids: set[UUID] = set()
    for member in list(group.members.values()):
        await request.checkpoint()
        ids.update(member.current.assigned, member.current.pending, member.target or ())
    for topic_id in ids:
        await request.checkpoint()
        topic = broker.topics.find_id(topic_id)
        if topic is not None:
            broker.access.check(request.peer, ApiKey.CONSUMER_GROUP_DESCRIBE, TOPIC, topic.name)


def _names(
    topics: TopicRegistry, found: Iterable[_FoundConsumers | RequestRefused]
) -> dict[UUID, str]:
    names: dict[UUID, str] = {}
    for group in found:
        for member in group.members if isinstance(group, _FoundConsumers) else ():
            for ids in (member.current.assigned, member.current.pending, member.target or {}):
                for topic_id in ids:
                    if topic_id not in names and (topic := topics.find_id(topic_id)) is not None:
                        names[topic_id] = topic.name
    return names


def _descriptions(
    asked: Sequence[str],
    found: Mapping[str, _FoundConsumers | RequestRefused],
    names: Mapping[UUID, str],
    bits: Mapping[str, int],
    checkpoint: Checkpoint,
) -> "r.ConsumerGroupDescribeResponse":
    described: dict[str, r.ConsumerGroupDescribeDescribedGroup] = {}
    answers: list[r.ConsumerGroupDescribeDescribedGroup] = []
    again_bytes = 0
    for group_id in asked:
        checkpoint()
        group = found[group_id]
        if group_id in described:
            again_bytes += group.size if isinstance(group, _FoundConsumers) else 0
            if again_bytes > MOST_AGAIN_BYTES:
                group = _invalid("the answer repeats too many members")
                described[group_id] = _described(group_id, group, names)
        else:
            described[group_id] = _described(group_id, group, names)
            is_told = isinstance(group, _FoundConsumers)
            operations = bits.get(group_id, NO_BITS) if is_told else NO_BITS
            described[group_id]["authorized_operations"] = operations
        answers.append(described[group_id])
    return {"groups": answers}


def _described(
    group_id: str, group: _FoundConsumers | RequestRefused, names: Mapping[UUID, str]
) -> "r.ConsumerGroupDescribeDescribedGroup":
    if isinstance(group, RequestRefused):
        is_hidden = code_for(group) in (refusal(GROUP).code, ErrorCode.invalid_group_id)
        return {
            "error_code": code_for(group),
            "error_message": None if is_hidden else printable(str(group)),
            "group_id": group_id,
            "group_state": "",
            "group_epoch": 0,
            "assignment_epoch": 0,
            "assignor_name": "",
            "members": [],
        }
    return {
        "error_code": ErrorCode.none,
        "group_id": group_id,
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor,
        "members": [_member(member, names) for member in group.members],
    }


def _member(member: ConsumerMember, names: Mapping[UUID, str]) -> "r.ConsumerGroupDescribeMember":
    metadata, current = member.metadata, member.current
    has = partitions_of(current.assigned)
    for topic_id, partitions in partitions_of(current.pending).items():
        has[topic_id] = has.get(topic_id, frozenset()) | partitions
    return {
        "member_id": member.member_id,
        "instance_id": metadata.instance_id,
        "rack_id": metadata.rack_id,
        "member_epoch": current.epoch,
        "client_id": metadata.client_id,
        "client_host": metadata.client_host,
        "subscribed_topic_names": metadata.topics,
        "subscribed_topic_regex": member.regex,
        "assignment": {"topic_partitions": _named(has, names)},
        "target_assignment": {"topic_partitions": _named(member.target or {}, names)},
        "member_type": _CLASSIC if member.is_classic else _CONSUMER,
    }


def _named(
    partitions: Partitions, names: Mapping[UUID, str]
) -> "list[r.ConsumerGroupDescribeTopicPartitions]":
    """Return partitions with the names of their topics, without topics that are gone."""
    return [
        {"topic_id": topic_id, "topic_name": names[topic_id], "partitions": sorted(of)}
        for topic_id, of in partitions.items()
        if topic_id in names
    ]
