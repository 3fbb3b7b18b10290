"""FindCoordinator: the coordinator of a group, which is this broker.

v1  coordinators of transactions, not served here
v2  like v1
v3  flexible
v4  several keys (KIP-699)
v5  like v4
v6  coordinators of share groups, not served here
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Apart, Request, api
from horolog.errors import ErrorCode
from horolog.wire.api import ApiKey
from horolog.wire.requests import FindCoordinatorRequest

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
) -> dict[str, Any] | Apart:
    """This broker, for every group."""
    body = request.body
    key_type = body.key_type
    here = _here(request, broker)
    if request.version < 4:
        return _coordinator(here, body.key, key_type)
    make = partial(_answer, here, body.coordinator_keys, key_type)
    if len(body.coordinator_keys) > _MANY:
        return Apart(make)
    return make()


def _answer(here: dict[str, Any], keys: Sequence[str], key_type: int) -> dict[str, Any]:
    return {"coordinators": [{"key": key, **_coordinator(here, key, key_type)} for key in keys]}


def _here(request: Request[FindCoordinatorRequest], broker: Broker) -> dict[str, Any]:
    here = broker.endpoint(request.peer.listener)
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "node_id": broker.config.node_id,
        "host": here.host,
        "port": here.port,
    }


def _coordinator(here: dict[str, Any], key: str, key_type: int) -> dict[str, Any]:
    if key_type != GROUP:
        unknown = ErrorCode.invalid_request, f"there is no key type {key_type}"
        error, message = _NOT_SERVED.get(key_type, unknown)
    elif not key:
        error, message = ErrorCode.invalid_group_id, "a group id must not be empty"
    else:
        return here
    nowhere = {"node_id": -1, "host": "", "port": -1}
    return {"error_code": error, "error_message": message, **nowhere}
