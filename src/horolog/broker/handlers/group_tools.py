"""Requests of tools that list, describe and delete groups."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from horolog.broker.authorisation import CLUSTER, GROUP, NO_BITS
from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import Apart, Request, api
from horolog.broker.handlers.groups import group_error_code
from horolog.broker.handlers.results import apart_if, each
from horolog.broker.scheduling.codec_threads import Checkpoint
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for, printable
from horolog.groups.consumers.group import ConsumerGroup
from horolog.groups.group import Group
from horolog.groups.values import GroupSnapshot, GroupState
from horolog.rights.entries import CLUSTER_NAME
from horolog.wire.acl import AclOperation
from horolog.wire.api import ApiKey
from horolog.wire.requests import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest

if TYPE_CHECKING:
    from horolog.wire.responses import (
        DeletableGroupResult,
        DeleteGroupsResponse,
        DescribedGroup,
        DescribeGroupsResponse,
        ListedGroup,
        ListGroupsResponse,
    )

# --- ListGroups: all consumer groups ----------------------------------------------------
#
# v1  throttle time
# v3  flexible
# v4  state, and a filter on it (KIP-518)
# v5  type, and a filter on it (KIP-848)


_MANY_LISTED: Final = 1_000


@api(ApiKey.LIST_GROUPS)
def list_groups(
    request: Request[ListGroupsRequest], broker: BrokerParts
) -> "ListGroupsResponse | Apart":
    """List the groups that pass the filters. Names are compared without case, as in Kafka."""
    states = {state.lower() for state in request.body.states_filter}
    types = {kind.lower() for kind in request.body.types_filter}
    access, describe = broker.access, AclOperation.DESCRIBE
    groups = broker.groups.all()
    if not access.sees(request.peer, describe, CLUSTER, CLUSTER_NAME):
        groups = [it for it in groups if access.sees(request.peer, describe, GROUP, it.group_id)]
    if types:
        groups = [group for group in groups if group.kind in types]
    error_code = ErrorCode.none
    if broker.groups.is_loading:
        error_code = ErrorCode.coordinator_load_in_progress
    return apart_if(len(groups) > _MANY_LISTED, partial(_listed, groups, states, error_code))


def _listed(
    groups: list[Group | ConsumerGroup],
    states: set[str],
    error_code: ErrorCode,
    checkpoint: Checkpoint,
) -> "ListGroupsResponse":
    listed: list[ListedGroup] = []
    for group in groups:
        checkpoint()
        state = group.state.value
        if states and state.lower() not in states:
            continue
        listed.append(
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type or "",
                "group_state": state,
                "group_type": group.kind,
            }
        )
    return {"error_code": error_code, "groups": listed}


# --- DescribeGroups: state, protocol and members of consumer groups ---------------------
#
# v1  throttle time
# v3  authorized operations on request
# v4  group instance id of members (KIP-345)
# v5  flexible
# v6  a group that is not there is an error with a message; before, it is a dead group
#
# A group that is named several times is described each time, as by Apache Kafka. But once
# `MOST_AGAIN_BYTES` were repeated, it gets INVALID_REQUEST: the answer to a small request would
# have no bounds.


MOST_AGAIN_BYTES: Final = 16 << 20
"""Most bytes of members that a response repeats."""
MANY_DESCRIBED: Final = 200
"""Groups that are described on the event loop, at most."""
_LARGE_BYTES: Final = 64 << 10  # of members
_MEMBER_BYTES: Final = 64  # for what making the answer of one costs


class _Found(NamedTuple):
    """Description of a group, and its size in bytes."""

    group: GroupSnapshot | ErrorCode | str
    """Without a snapshot or an error, why there is none."""
    size: int


@api(ApiKey.DESCRIBE_GROUPS)
async def describe_groups(
    request: Request[DescribeGroupsRequest], broker: BrokerParts
) -> "DescribeGroupsResponse | Apart":
    """Describe each requested group."""
    asked = request.body.groups
    found: dict[str, _Found] = {}
    size = 0
    async for group_id in each(request, asked):
        if group_id not in found:
            found[group_id] = _find(request, group_id, broker)
        size += found[group_id].size
    bits = {}
    if request.body.include_authorized_operations:
        bits = {group_id: broker.access.bits(request.peer, GROUP, group_id) for group_id in found}
    make = partial(_descriptions, asked, found, request.version, bits)
    return apart_if(len(asked) > MANY_DESCRIBED or size > _LARGE_BYTES, make)


def _find(request: Request[DescribeGroupsRequest], group_id: str, broker: BrokerParts) -> _Found:
    try:
        broker.access.check(request.peer, ApiKey.DESCRIBE_GROUPS, GROUP, group_id)
        group = broker.groups.describe(group_id)
    except RequestRefused as error:
        return _Found(code_for(error), 0)
    if group is None:
        there = broker.groups.has(group_id)
        said = "is not a classic group" if there else "not found"
        return _Found(f"Group {group_id} {said}.", 0)
    size = len(group.protocol_type) + len(group.protocol_name)
    for member in group.members:
        size += _MEMBER_BYTES + sum(len(field or "") for field in member)
    return _Found(group, size)


def _descriptions(
    asked: Sequence[str],
    found: Mapping[str, _Found],
    version: int,
    bits: Mapping[str, int],
    checkpoint: Checkpoint,
) -> "DescribeGroupsResponse":
    described: dict[str, DescribedGroup] = {}
    answers: list[DescribedGroup] = []
    again_bytes = 0
    for group_id in asked:
        checkpoint()
        group, size = found[group_id]
        if group_id in described:
            again_bytes += size
        else:
            described[group_id] = _described(group_id, group, version)
            is_told = not described[group_id]["error_code"]
            operations = bits.get(group_id, NO_BITS) if is_told else NO_BITS
            described[group_id]["authorized_operations"] = operations
        if again_bytes > MOST_AGAIN_BYTES and size:
            described[group_id] = _described(group_id, ErrorCode.invalid_request, version)
        answers.append(described[group_id])
    return {"groups": answers}


def _described(
    group_id: str, group: GroupSnapshot | ErrorCode | str, version: int
) -> "DescribedGroup":
    described: DescribedGroup = {
        "error_code": ErrorCode.none,
        "group_id": group_id,
        "group_state": "",
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
    }
    if isinstance(group, ErrorCode):
        described["error_code"] = group
    elif isinstance(group, str):
        if version >= 6:
            described["error_code"] = ErrorCode.group_id_not_found
        described["error_message"] = printable(group)
        described["group_state"] = GroupState.DEAD.value
    else:
        described["group_state"] = group.state.value
        described["protocol_type"] = group.protocol_type
        described["protocol_data"] = group.protocol_name
        described["members"] = [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in group.members
        ]
    return described


# --- DeleteGroups: deletes empty groups and their offsets -------------------------------
#
# v1  throttle time
# v2  flexible
# v3  a message with the error (KIP-1331)
#
# A group that is named several times is deleted and answered once, as by Apache Kafka.


@api(ApiKey.DELETE_GROUPS)
async def delete_groups(
    request: Request[DeleteGroupsRequest], broker: BrokerParts
) -> "DeleteGroupsResponse":
    """Delete each group, and return a result for each."""
    results: list[DeletableGroupResult] = []
    async for group_id in each(request, dict.fromkeys(request.body.groups_names)):
        result: DeletableGroupResult = {"group_id": group_id, "error_code": ErrorCode.none}
        try:
            broker.access.check(request.peer, ApiKey.DELETE_GROUPS, GROUP, group_id)
            await broker.groups.delete(group_id)
        except HorologError as error:
            result["error_code"] = group_error_code(error)
            result["error_message"] = str(error)
        results.append(result)
    return {"results": results}
