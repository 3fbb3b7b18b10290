"""DescribeClientQuotas: none are set, as there are no quotas (KIP-546).

v1  flexible
"""

from typing import TYPE_CHECKING, Final

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode, RequestRefused, code_for
from horolog.wire.api import ApiKey
from horolog.wire.requests import ComponentData, DescribeClientQuotasRequest

if TYPE_CHECKING:
    from horolog.wire.responses import DescribeClientQuotasResponse

_ENTITY_TYPES: Final = frozenset({"user", "client-id", "ip"})
_EXACT, _ANY = 0, 2  # match types; 1 is the default entity


@api(ApiKey.DESCRIBE_CLIENT_QUOTAS)
async def describe_client_quotas(
    request: Request[DescribeClientQuotasRequest], broker: Broker
) -> "DescribeClientQuotasResponse":
    """No entry, or why the filter is none, as in Kafka."""
    seen: set[str] = set()
    try:
        for component in request.body.components:
            await request.checkpoint()
            _check(component, seen)
    except RequestRefused as error:
        return {"error_code": code_for(error), "error_message": str(error), "entries": None}
    return {"error_code": ErrorCode.none, "error_message": None, "entries": []}


def _check(component: ComponentData, seen: set[str]) -> None:
    kind, how = component.entity_type, component.match_type
    if kind not in _ENTITY_TYPES:
        error_code = ErrorCode.unsupported_version if kind else ErrorCode.invalid_request
        raise RequestRefused(error_code, f"there is no entity type {kind!r:.60} of quotas")
    if not _EXACT <= how <= _ANY:
        raise RequestRefused(ErrorCode.invalid_request, f"Unknown match type {how}")
    if (component.match is not None) != (how == _EXACT):
        raise RequestRefused(
            ErrorCode.invalid_request, f"a match of type {how} of {kind} has a name iff it is exact"
        )
    if kind in seen or (seen and "ip" in {kind, *seen}):
        raise RequestRefused(
            ErrorCode.invalid_request, f"{kind} cannot be combined with {', '.join(sorted(seen))}"
        )
    seen.add(kind)
