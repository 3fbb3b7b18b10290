"""Requests about access control entries: DescribeAcls, CreateAcls, DeleteAcls.

An entry or filter with the number 0 (UNKNOWN) closes the connection, and an entry of ANY or MATCH
fails all that come with it, as in Apache Kafka. Everything else that is wrong is answered with it.
"""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from horolog.broker.authorisation import CLUSTER
from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.changes import check_number, note_changes
from horolog.broker.handlers.results import PartOutcome, each
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.network.dispatching import Hangup
from horolog.rights.checks import check_entry, check_filter
from horolog.rights.entries import AclEntry, AclFilter
from horolog.rights.model import Rights
from horolog.wire.acl import AclPattern
from horolog.wire.api import ApiKey
from horolog.wire.requests import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)

if TYPE_CHECKING:
    from horolog.wire.responses import (
        CreateAclsResponse,
        DeleteAclsFilterResult,
        DeleteAclsMatchingAcl,
        DeleteAclsResponse,
        DescribeAclsResource,
        DescribeAclsResponse,
    )

_AT_ONCE: Final = 1_000
_ANY: Final = 1  # in all enumerations


def _rights(request: Request[Any], broker: BrokerParts, api_key: ApiKey) -> Rights:
    """Return the rights, if there are any and the client may use them.

    Raises:
        RequestRefused: the broker has no authorizer (54), or the client may not (31).
    """
    rights = broker.access.rights
    if rights is None:
        raise RequestRefused(
            ErrorCode.security_disabled, "No Authorizer is configured on the broker"
        )
    broker.access.check(request.peer, api_key, CLUSTER)
    return rights


async def _found(
    request: Request[Any], rights: Rights, entries: AclFilter
) -> list[tuple[UUID, AclEntry]]:
    """Return the entries that a filter takes, in a stable order."""
    known = list(rights.items())
    found: list[tuple[UUID, AclEntry]] = []
    for start in range(0, len(known), _AT_ONCE):
        await request.checkpoint()
        found += [it for it in known[start : start + _AT_ONCE] if entries.takes(it[1])]
    return found


# --- DescribeAcls: the entries that a filter takes --------------------------------------
#
# v1  patterns
# v2  flexible
# v3  users as resources (KIP-373)


@api(ApiKey.DESCRIBE_ACLS)
async def describe_acls(
    request: Request[DescribeAclsRequest], broker: BrokerParts
) -> "DescribeAclsResponse":
    """List the entries by resource."""
    try:
        rights = _rights(request, broker, ApiKey.DESCRIBE_ACLS)
    except RequestRefused as error:
        return {"error_code": error.code, "error_message": str(error), "resources": []}
    entries = _filter(request.body)
    found = sorted(entry for _, entry in await _found(request, rights, entries))
    resources: list[DescribeAclsResource] = []
    of_resource = attrgetter("resource_type", "name", "pattern")
    for (kind, name, pattern), its in groupby(found, of_resource):
        await request.checkpoint()
        resources.append(
            {
                "resource_type": kind,
                "resource_name": name,
                "pattern_type": pattern,
                "acls": [
                    {
                        "principal": entry.principal,
                        "host": entry.host,
                        "operation": entry.operation,
                        "permission_type": entry.permission,
                    }
                    for entry in its
                ],
            }
        )
    return {"error_code": ErrorCode.none, "error_message": None, "resources": resources}


def _filter(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Return the filter of a request.

    Raises:
        Hangup: it has the number 0.
    """
    kind, pattern = asked.resource_type_filter, asked.pattern_type_filter
    operation, permission = asked.operation, asked.permission_type
    _check_known(kind, pattern, operation, permission)
    name, principal, host = asked.resource_name_filter, asked.principal_filter, asked.host_filter
    return AclFilter(kind, name, pattern, principal, host, operation, permission)


def _check_known(*numbers: int) -> None:
    """Check that no number is 0.

    Raises:
        Hangup: one is.
    """
    if 0 in numbers:
        raise Hangup("an access control entry or a filter of them has the number 0")


# --- CreateAcls: makes entries; one that is there already is no error -------------------
#
# v1 to v3 as DescribeAcls


@api(ApiKey.CREATE_ACLS)
async def create_acls(
    request: Request[CreateAclsRequest], broker: BrokerParts
) -> "CreateAclsResponse":
    """Make the valid entries, all of them or none; each has its own error."""
    asked = request.body.creations
    try:
        _rights(request, broker, ApiKey.CREATE_ACLS)
        _check_numbers(asked)
        outcomes, good = [], dict[AclEntry, None]()
        async for creation in each(request, asked):
            entry = _entry(creation)
            outcome = PartOutcome()
            try:
                check_entry(entry, broker.metadata_version)
                good[entry] = None
            except RequestRefused as error:
                outcome = PartOutcome(error.code, str(error))
            outcomes.append(outcome)
        check_number(len(good), "access control entries")
        await broker.controller.create_entries(good)
        await note_changes(request, (f"added {entry}" for entry in good))
    except HorologError as error:
        if isinstance(error, Hangup):
            raise
        outcomes = [PartOutcome(code_for(error), str(error))] * len(asked)
    return {
        "results": [
            {"error_code": error_code, "error_message": message} for error_code, message in outcomes
        ]
    }


def _entry(asked: AclCreation) -> AclEntry:
    return AclEntry(
        asked.resource_type,
        asked.resource_name,
        asked.resource_pattern_type,
        asked.principal,
        asked.host,
        asked.operation,
        asked.permission_type,
    )


def _check_numbers(asked: Iterable[AclCreation]) -> None:
    """Check the numbers of all entries.

    Raises:
        Hangup: one is 0.
        RequestRefused: one is for filters only (-1).
    """
    is_for_filters = False
    for creation in asked:
        pattern = creation.resource_pattern_type
        numbers = creation.resource_type, pattern, creation.operation, creation.permission_type
        _check_known(*numbers)
        is_for_filters |= _ANY in numbers or pattern == AclPattern.MATCH
    if is_for_filters:
        raise RequestRefused(
            ErrorCode.unknown_server_error, "ANY and MATCH are for filters, not for an entry"
        )


# --- DeleteAcls: deletes the entries that filters take, and lists them ------------------
#
# v1 to v3 as DescribeAcls


@api(ApiKey.DELETE_ACLS)
async def delete_acls(
    request: Request[DeleteAclsRequest], broker: BrokerParts
) -> "DeleteAclsResponse":
    """Delete what each filter takes. A filter that takes nothing is no error."""
    asked = request.body.filters
    try:
        rights = _rights(request, broker, ApiKey.DELETE_ACLS)
        filters = [_filter(one) async for one in each(request, asked)]
        outcomes = [_outcome(entries) async for entries in each(request, filters)]
        taken: list[list[tuple[UUID, AclEntry]]] = []
        count = 0
        for entries, outcome in zip(filters, outcomes, strict=True):
            taken.append([] if outcome.error_code else await _found(request, rights, entries))
            count += len(taken[-1])
            check_number(count, "access control entries")
        # Another request may have deleted some meanwhile.
        deleted = await broker.controller.delete_entries([it[0] for its in taken for it in its])
        taken = [[it for it in its if it[0] in deleted] for its in taken]
        removed = {entry_id: entry for its in taken for entry_id, entry in its}
        await note_changes(request, (f"removed {entry}" for entry in removed.values()))
    except Hangup:
        raise
    except HorologError as error:
        outcomes = [PartOutcome(code_for(error), str(error))] * len(asked)
        taken = [[]] * len(asked)
    return {"filter_results": [_deleted(*it) for it in zip(taken, outcomes, strict=True)]}


def _outcome(entries: AclFilter) -> PartOutcome:
    """Return the error of a filter by itself."""
    try:
        check_filter(entries)
    except RequestRefused as error:
        return PartOutcome(error.code, str(error))
    return PartOutcome()


def _deleted(
    entries: Iterable[tuple[UUID, AclEntry]], outcome: PartOutcome
) -> "DeleteAclsFilterResult":
    deleted: list[DeleteAclsMatchingAcl] = [
        {
            "error_code": ErrorCode.none,
            "error_message": None,
            "resource_type": entry.resource_type,
            "resource_name": entry.name,
            "pattern_type": entry.pattern,
            "principal": entry.principal,
            "host": entry.host,
            "operation": entry.operation,
            "permission_type": entry.permission,
        }
        for _, entry in entries
    ]
    error_code, message = outcome
    return {"error_code": error_code, "error_message": message, "matching_acls": deleted}
