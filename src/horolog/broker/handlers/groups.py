"""Requests about consumer groups and their members."""

import re
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from horolog.broker.authorisation import CLUSTER, refusal
from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import Apart, Request, api
from horolog.broker.handlers.results import apart_if, each
from horolog.broker.placement.placement import Placement
from horolog.broker.scheduling.codec_threads import Checkpoint
from horolog.config import Endpoint
from horolog.errors import ErrorCode, HorologError, RequestRefused, StorageFailed, code_for
from horolog.groups.values import Join, Joined, Protocol, Sync, Synced
from horolog.network.peer import Peer
from horolog.rights.entries import CLUSTER_NAME
from horolog.storage.names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from horolog.wire.acl import AclOperation, AclResource
from horolog.wire.api import ApiKey
from horolog.wire.leaders import NodeEndpoint
from horolog.wire.requests import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from horolog.wire.responses import (
        Coordinator,
        FindCoordinatorResponse,
        HeartbeatResponse,
        JoinGroupResponse,
        LeaveGroupResponse,
        SyncGroupResponse,
    )

# --- The error codes of failed operations on consumer groups ----------------------------


SAYS_EPOCH: Final = 9
"""First version of OffsetCommit that has errors for epochs, and for a group that is not there."""


def group_error_code(error: HorologError) -> ErrorCode:
    """Return the error code for a failure, as Apache Kafka's coordinator does.

    A disk that refuses is NOT_COORDINATOR: clients look for the coordinator and retry. Of
    KAFKA_STORAGE_ERROR they give up.
    """
    if isinstance(error, StorageFailed):
        return ErrorCode.not_coordinator
    return code_for(error)


def commit_error_code(error: HorologError, version: int) -> ErrorCode:
    """Return the error code for a failed commit in this version of OffsetCommit."""
    error_code = group_error_code(error)
    if error_code is ErrorCode.group_id_not_found and version < SAYS_EPOCH:
        return ErrorCode.illegal_generation
    return error_code


# --- FindCoordinator: the coordinator of a group or a transactional id
#
# Alone it is this broker. On a shadow, too: it answers InitProducerId until a promotion with
# COORDINATOR_LOAD_IN_PROGRESS, which all clients retry. Here aiokafka gives up at that error.
#
# v1  coordinators of transactions
# v2  like v1
# v3  flexible
# v4  several keys (KIP-699)
# v5  like v4
# v6  coordinators of share groups (KIP-932), which only a cluster has


GROUP: Final = 0
TRANSACTION: Final = 1
_SHARE: Final = 2
_SHARE_SINCE: Final = 6
_SHARE_KEY: Final = re.compile(r"([^:]*\S[^:]*):([A-Za-z0-9_-]{22}):([+-]?[0-9]{1,10})\Z", re.ASCII)

_KINDS: Final = {GROUP: AclResource.GROUP, TRANSACTION: AclResource.TRANSACTIONAL_ID}
_NO_NODE: Final = NodeEndpoint(-1, "", -1)
_MANY_KEYS: Final = 1_000  # keys


@api(ApiKey.FIND_COORDINATOR)
def find_coordinator(
    request: Request[FindCoordinatorRequest], broker: BrokerParts
) -> "FindCoordinatorResponse | Apart":
    """Return the coordinator of each group or transactional id."""
    body = request.body
    find: Callable[[Container[str], str], Coordinator]
    find = partial(_coordinator, broker.placement, request.peer.listener, body.key_type)
    keys = body.coordinator_keys if request.version >= 4 else [body.key]
    kind = _KINDS.get(body.key_type)
    denied = frozenset[str]()
    if body.key_type == _SHARE and broker.cluster is not None and request.version >= _SHARE_SINCE:
        find = partial(_share_coordinator, broker, request.peer)
    if kind is not None:
        allows = partial(broker.access.allows, request.peer, ApiKey.FIND_COORDINATOR, kind)
        denied = frozenset(key for key in keys if not allows(key))
    if request.version < 4:
        found = find(denied, body.key)
        return {
            "error_code": found["error_code"],
            "error_message": found["error_message"],
            "node_id": found["node_id"],
            "host": found["host"],
            "port": found["port"],
        }
    return apart_if(len(keys) > _MANY_KEYS, partial(_coordinators, partial(find, denied), keys))


def _coordinators(
    find: "Callable[[str], Coordinator]",
    keys: Sequence[str],
    checkpoint: Checkpoint,
) -> "FindCoordinatorResponse":
    coordinators: list[Coordinator] = []
    for key in keys:
        checkpoint()
        coordinators.append(find(key))
    return {"coordinators": coordinators}


def _coordinator(
    placement: Placement, listener: Endpoint, key_type: int, denied: Container[str], key: str
) -> "Coordinator":
    def found() -> NodeEndpoint:
        if key in denied:
            raise refusal(_KINDS[key_type])
        return placement.coordinator(_state_topic(key, key_type), key, listener)

    return _named(key, found)


def _share_coordinator(
    broker: BrokerParts, peer: Peer, denied: Container[str], key: str
) -> "Coordinator":
    """Return the coordinator of a partition of a share group, which brokers ask for."""

    def found() -> NodeEndpoint:
        if not broker.access.sees(peer, AclOperation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME):
            raise refusal(CLUSTER)
        return broker.placement.coordinator(SHARE_GROUP_STATE, _share_key(key), peer.listener)

    return _named(key, found)


def _share_key(key: str) -> str:
    """Return a key of the form group:topic id:partition, as its coordinator writes it.

    Raises:
        RequestRefused: it has another form.
    """
    match = _SHARE_KEY.match(key)
    if match is None:
        raise RequestRefused(ErrorCode.invalid_request, f"not group:topic id:partition: {key!r}")
    group, topic_id, partition = match.groups()
    return f"{group}:{topic_id}:{int(partition)}"


def _named(key: str, find: Callable[[], NodeEndpoint]) -> "Coordinator":
    error, message, node = ErrorCode.none, None, _NO_NODE
    try:
        node = find()
    except RequestRefused as refused:
        error, message = refused.code, str(refused)
    return {
        "key": key,
        "error_code": error,
        "error_message": message,
        "node_id": node.node_id,
        "host": node.host,
        "port": node.port,
    }


def _state_topic(key: str, key_type: int) -> str:
    """Return the internal topic of the coordinators of a kind.

    Raises:
        RequestRefused: there is none of this kind, or the key is empty.
    """
    if key_type == GROUP:
        if not key:
            raise RequestRefused(ErrorCode.invalid_group_id, "a group id must not be empty")
        return CONSUMER_OFFSETS
    if key_type == TRANSACTION:
        if not key:
            raise RequestRefused(ErrorCode.invalid_request, "a transactional id must not be empty")
        return TRANSACTION_STATE
    why = f"there is no key type {key_type}"
    if key_type == _SHARE:
        why = "This broker has no share groups"
    raise RequestRefused(ErrorCode.invalid_request, why)


# --- JoinGroup: join a consumer group; completed with the rebalance ---------------------
#
# v1  rebalance timeout; before, the session timeout serves for it
# v2  throttle time
# v4  a newcomer is first refused with its member id, and asks again with it (KIP-394)
# v5  static members by group instance id (KIP-345)
# v6  flexible
# v7  protocol type in the answer
# v8  reason
# v9  the leader may be told to skip the assignment (KIP-814)


_LARGE: Final = 64 << 10


@api(ApiKey.JOIN_GROUP)
async def join_group(
    request: Request[JoinGroupRequest], broker: BrokerParts
) -> "JoinGroupResponse | Apart":
    """Add a member to a group, and wait for the next generation."""
    body = request.body
    kind = AclResource.GROUP
    if not broker.access.allows(request.peer, ApiKey.JOIN_GROUP, kind, body.group_id):
        return _joined(request.version, Joined(refusal(kind).code, ""))
    rebalance_timeout_ms = body.session_timeout_ms
    if request.version >= 1:
        rebalance_timeout_ms = body.rebalance_timeout_ms
    protocols = [
        Protocol(protocol.name, protocol.metadata)
        async for protocol in each(request, body.protocols)
    ]
    join = Join(
        member_id=body.member_id,
        instance_id=body.group_instance_id,
        protocol_type=body.protocol_type,
        protocols=tuple(protocols),
        session_timeout_ms=body.session_timeout_ms,
        rebalance_timeout_ms=max(rebalance_timeout_ms, 0),
        client_id=request.client_id,
        client_host=f"/{request.peer.host}",
        expects_member_id=request.version >= 4,
        may_skip_assignment=request.version >= 9,
    )
    try:
        joined = await broker.groups.join(body.group_id, join)
    except RequestRefused as error:
        joined = Joined(code_for(error), body.member_id)
    answer = _joined(request.version, joined)
    size = sum(1 + len(member.metadata) for member in joined.members)
    return apart_if(size > _LARGE, lambda _: answer)


def _joined(version: int, joined: Joined) -> "JoinGroupResponse":
    return {
        "error_code": joined.error,
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        # Null since v7 only.
        "protocol_name": joined.protocol_name or ("" if version < 7 else None),
        "leader": joined.leader,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.metadata,
            }
            for member in joined.members
        ],
    }


# --- SyncGroup: a member gets its assignment; the leader sends those of all -------------
#
# v1  throttle time
# v3  group instance id (KIP-345)
# v4  flexible
# v5  the member's protocol type and name are checked, and returned (KIP-559)


@api(ApiKey.SYNC_GROUP)
async def sync_group(
    request: Request[SyncGroupRequest], broker: BrokerParts
) -> "SyncGroupResponse":
    """Wait for the assignment that the group's leader makes."""
    body = request.body
    assignments = [
        (assigned.member_id, assigned.assignment)
        async for assigned in each(request, body.assignments)
    ]
    sync = Sync(
        member_id=body.member_id,
        generation=body.generation_id,
        instance_id=body.group_instance_id,
        protocol_type=body.protocol_type,
        protocol_name=body.protocol_name,
        assignments=tuple(assignments),
    )
    try:
        broker.access.check(request.peer, ApiKey.SYNC_GROUP, AclResource.GROUP, body.group_id)
        synced = await broker.groups.sync(body.group_id, sync)
    except RequestRefused as error:
        synced = Synced(code_for(error))
    return {
        "error_code": synced.error,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol_name,
        "assignment": synced.assignment,
    }


# --- Heartbeat: extends a member's session; the response says when it must rejoin -------
#
# v1  throttle time
# v3  group instance id (KIP-345)
# v4  flexible


@api(ApiKey.HEARTBEAT)
def heartbeat(request: Request[HeartbeatRequest], broker: BrokerParts) -> "HeartbeatResponse":
    """Extend a member's session."""
    body = request.body
    try:
        broker.access.check(request.peer, ApiKey.HEARTBEAT, AclResource.GROUP, body.group_id)
        broker.groups.heartbeat(
            body.group_id,
            body.member_id,
            body.group_instance_id,
            body.generation_id,
        )
    except RequestRefused as error:
        return {"error_code": code_for(error)}
    return {"error_code": ErrorCode.none}


# --- LeaveGroup: removes members before their sessions expire ---------------------------
#
# v1  throttle time
# v3  several members, by member id or group instance id, each with its own error (KIP-345)
# v4  flexible
# v5  reason


@api(ApiKey.LEAVE_GROUP)
async def leave_group(
    request: Request[LeaveGroupRequest], broker: BrokerParts
) -> "LeaveGroupResponse":
    """Remove members from a group."""
    body = request.body
    try:
        broker.access.check(request.peer, ApiKey.LEAVE_GROUP, AclResource.GROUP, body.group_id)
        if not body.group_id:
            raise RequestRefused(ErrorCode.invalid_group_id, "a group id must not be empty")
        broker.groups.check_loaded(body.group_id)
    except RequestRefused as refused:
        return {"error_code": code_for(refused), "members": []}
    if request.version < 3:
        (error,) = await broker.groups.leave(body.group_id, [(body.member_id, None)])
        return {"error_code": error}
    members = [
        (member.member_id, member.group_instance_id) async for member in each(request, body.members)
    ]
    errors = await broker.groups.leave(body.group_id, members)
    return {
        "error_code": ErrorCode.none,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": error}
            for (member_id, instance_id), error in zip(members, errors, strict=True)
        ],
    }
