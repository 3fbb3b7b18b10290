"""FindCoordinator: the coordinator of a group, which is this broker.

v1  coordinators of transactions, not served here
v2  like v1
v3  flexible
v4  several keys (KIP-699)
v5  like v4
v6  coordinators of share groups, not served here
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Apart, Request, api
from horolog.errors import ErrorCode
from horolog.wire.api import ApiKey
from horolog.wire.requests import FindCoordinatorRequest

if TYPE_CHECKING:
    from horolog.wire.responses import Coordinator, FindCoordinatorResponse

GROUP: Final = 0

_MANY: Final = 1_000  # keys
# Every client treats it as fatal; librdkafka retries other errors until its timeout.
_NOT_SERVED: Final = {
    1: (
        ErrorCode.transactional_id_authorization_failed,
        "This broker runs no transactions: leave out transactional.id",
    ),
    2: (ErrorCode.invalid_request, "This broker has no share groups"),
}


@api(ApiKey.FIND_COORDINATOR)
def find_coordinator(
    request: Request[FindCoordinatorRequest], broker: Broker
) -> "FindCoordinatorResponse | Apart":
    """This broker, for every group."""
    body = request.body
    here = broker.endpoint(request.peer.listener)
    find = partial(_coordinator, broker.config.node_id, here.host, here.port, body.key_type)
    if request.version < 4:
        found = find(body.key)
        return {
            "error_code": found["error_code"],
            "error_message": found["error_message"],
            "node_id": found["node_id"],
            "host": found["host"],
            "port": found["port"],
        }
    make = partial(_answer, find, body.coordinator_keys)
    if len(body.coordinator_keys) > _MANY:
        return Apart(make)
    return make()


def _answer(find: "Callable[[str], Coordinator]", keys: Sequence[str]) -> "FindCoordinatorResponse":
    return {"coordinators": [find(key) for key in keys]}


def _coordinator(node_id: int, host: str, port: int, key_type: int, key: str) -> "Coordinator":
    error, message = _refusal(key, key_type)
    is_here = error is ErrorCode.none
    return {
        "key": key,
        "error_code": error,
        "error_message": message,
        "node_id": node_id if is_here else -1,
        "host": host if is_here else "",
        "port": port if is_here else -1,
    }


def _refusal(key: str, key_type: int) -> tuple[ErrorCode, str | None]:
    if key_type != GROUP:
        unknown = ErrorCode.invalid_request, f"there is no key type {key_type}"
        return _NOT_SERVED.get(key_type, unknown)
    if not key:
        return ErrorCode.invalid_group_id, "a group id must not be empty"
    return ErrorCode.none, None
