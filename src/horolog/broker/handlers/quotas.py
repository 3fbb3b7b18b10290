"""Requests about quotas of clients (KIP-546)."""

from typing import TYPE_CHECKING

from horolog.broker.authorisation import CLUSTER
from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.changes import check_number, note_changes
from horolog.broker.handlers.results import PartOutcome, each
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.quotas.entities import Entity, check_entity, check_filter, check_quota, is_match
from horolog.quotas.model import Quotas
from horolog.wire.api import ApiKey
from horolog.wire.requests import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    EntryData,
)

if TYPE_CHECKING:
    from horolog.wire.responses import (
        AlterClientQuotasEntryData,
        AlterClientQuotasResponse,
        DescribeClientQuotasEntryData,
        DescribeClientQuotasResponse,
    )

# --- DescribeClientQuotas: the quotas of entities that a filter takes -------------------
#
# v1  flexible


@api(ApiKey.DESCRIBE_CLIENT_QUOTAS)
async def describe_client_quotas(
    request: Request[DescribeClientQuotasRequest], broker: BrokerParts
) -> "DescribeClientQuotasResponse":
    """Describe quotas, or say why the filter is invalid."""
    seen: set[str] = set()
    parts = []
    entries: list[DescribeClientQuotasEntryData] = []
    try:
        broker.access.check(request.peer, ApiKey.DESCRIBE_CLIENT_QUOTAS, CLUSTER)
        async for part in each(request, request.body.components):
            check_filter(part.entity_type, part.match_type, part.match, seen)
            parts.append((part.entity_type, part.match_type, part.match))
        async for entity, values in each(request, broker.quotas.quotas.by_entity().items()):
            if is_match(entity, parts, strict=request.body.strict):
                entries.append(
                    {
                        "entity": [
                            {"entity_type": kind, "entity_name": name} for kind, name in entity
                        ],
                        "values": [{"key": key, "value": value} for key, value in values.items()],
                    }
                )
    except RequestRefused as error:
        return {"error_code": error.code, "error_message": str(error), "entries": None}
    return {"error_code": ErrorCode.none, "error_message": None, "entries": entries}


# --- AlterClientQuotas: sets and removes quotas -----------------------------------------
#
# v1  flexible
#
# Each entity has its own error.


@api(ApiKey.ALTER_CLIENT_QUOTAS)
async def alter_client_quotas(
    request: Request[AlterClientQuotasRequest], broker: BrokerParts
) -> "AlterClientQuotasResponse":
    """Set and remove quotas; with `validate_only` only check them."""
    changes: dict[tuple[Entity, str], float | None] = {}
    outcomes = []
    seen: set[Entity] = set()
    try:
        broker.access.check(request.peer, ApiKey.ALTER_CLIENT_QUOTAS, CLUSTER)
        check_number(len(request.body.entries), "quotas")
        async for entry in each(request, request.body.entries):
            try:
                changes |= await _changes(request, entry, broker.quotas.quotas, seen)
                outcomes.append(PartOutcome())
            except RequestRefused as error:
                outcomes.append(PartOutcome(error.code, str(error)))
        check_number(len(changes), "quotas")
        if changes and not request.body.validate_only:
            await broker.controller.change_quotas(changes)
            await note_changes(request, (_line(*change) for change in changes.items()))
    except HorologError as error:
        outcomes = [PartOutcome(code_for(error), str(error))] * len(request.body.entries)
    results: list[AlterClientQuotasEntryData] = []
    for entry, outcome in zip(request.body.entries, outcomes, strict=True):
        await request.pause()
        results.append(
            {
                "error_code": outcome.error_code,
                "error_message": outcome.message,
                "entity": [
                    {"entity_type": part.entity_type, "entity_name": part.entity_name}
                    for part in entry.entity
                ],
            }
        )
    return {"entries": results}


def _line(changed: tuple[Entity, str], value: float | None) -> str:
    entity, key = changed
    about = " and ".join(f"{kind} {name or '<default>'}" for kind, name in entity)
    return f"removed {key} of {about}" if value is None else f"set {key} of {about} to {value}"


async def _changes(
    request: Request[AlterClientQuotasRequest], entry: EntryData, quotas: Quotas, seen: set[Entity]
) -> dict[tuple[Entity, str], float | None]:
    """Return the changes of one entity, and add it to those seen.

    Removing a quota that is not there is no error and no change, whatever its name.

    Raises:
        RequestRefused: one of them is not allowed, or comes twice; none is made then.
    """
    entity = check_entity([(part.entity_type, part.entity_name) for part in entry.entity])
    if entity in seen:
        raise RequestRefused(ErrorCode.invalid_request, "an entity is changed once in a request")
    seen.add(entity)
    changes: dict[tuple[Entity, str], float | None] = {}
    keys: set[str] = set()
    async for change in each(request, entry.ops):
        if change.key in keys:
            raise RequestRefused(ErrorCode.invalid_request, "a quota is changed once in a request")
        keys.add(change.key)
        if not change.remove:
            check_quota(entity, change.key, change.value)
            changes[entity, change.key] = change.value
        elif quotas.get(entity, change.key) is not None:
            changes[entity, change.key] = None
    return changes
