"""FindCoordinator: which broker looks after a group: this one.

v1  coordinators of transactions, not served here
v2  like v1
v3  flexible
v4  several keys (KIP-699)
v5  like v4
v6  coordinators of share groups, not served here
"""

from typing import Any, Final

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode
from horolog.wire.api import ApiKey

GROUP: Final = 0
# What every client takes for final; librdkafka would ask again until its time is over.
_NOT_SERVED: Final = {
    1: (
        ErrorCode.transactional_id_authorization_failed,
        "This broker runs no transactions: leave out transactional.id",
    ),
    2: (ErrorCode.invalid_request, "This broker has no share groups"),
}


@api(ApiKey.FIND_COORDINATOR)
def find_coordinator(request: Request, broker: Broker) -> dict[str, Any]:
    """This broker, for every group."""
    body = request.body
    key_type = getattr(body, "key_type", GROUP)
    if request.version < 4:
        return _coordinator(request, broker, body.key, key_type)
    return {
        "coordinators": [
            {"key": key, **_coordinator(request, broker, key, key_type)}
            for key in body.coordinator_keys
        ]
    }


def _coordinator(request: Request, broker: Broker, key: str, key_type: int) -> dict[str, Any]:
    error, message = ErrorCode.none, None
    if key_type != GROUP:
        unknown = ErrorCode.invalid_request, f"there is no key type {key_type}"
        error, message = _NOT_SERVED.get(key_type, unknown)
    elif not key:
        error, message = ErrorCode.invalid_group_id, "a group id must not be empty"
    if error is not ErrorCode.none:
        nowhere = {"node_id": -1, "host": "", "port": -1}
        return {"error_code": error, "error_message": message, **nowhere}
    here = broker.endpoint(request.peer.listener)
    return {
        "error_code": error,
        "error_message": None,
        "node_id": broker.config.node_id,
        "host": here.host,
        "port": here.port,
    }
