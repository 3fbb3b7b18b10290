"""FindCoordinator: the coordinator of a group or a transactional id, which is this broker.

On a shadow, too: it answers InitProducerId with COORDINATOR_LOAD_IN_PROGRESS until a promotion,
which all clients retry. Here aiokafka gives up at that error.

v1  coordinators of transactions
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
from horolog.broker.scheduling.codec_threads import Checkpoint, no_checkpoint
from horolog.errors import ErrorCode
from horolog.wire.api import ApiKey
from horolog.wire.requests import FindCoordinatorRequest

if TYPE_CHECKING:
    from horolog.wire.responses import Coordinator, FindCoordinatorResponse

GROUP: Final = 0
TRANSACTION: Final = 1
_SHARE: Final = 2

_MANY: Final = 1_000  # keys


@api(ApiKey.FIND_COORDINATOR)
def find_coordinator(
    request: Request[FindCoordinatorRequest], broker: Broker
) -> "FindCoordinatorResponse | Apart":
    """This broker, for every group and transactional id."""
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


def _answer(
    find: "Callable[[str], Coordinator]",
    keys: Sequence[str],
    checkpoint: Checkpoint = no_checkpoint,
) -> "FindCoordinatorResponse":
    found: list[Coordinator] = []
    for key in keys:
        checkpoint()
        found.append(find(key))
    return {"coordinators": found}


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
    if key_type == GROUP:
        if not key:
            return ErrorCode.invalid_group_id, "a group id must not be empty"
    elif key_type == TRANSACTION:
        if not key:
            return ErrorCode.invalid_request, "a transactional id must not be empty"
    elif key_type == _SHARE:
        return ErrorCode.invalid_request, "This broker has no share groups"
    else:
        return ErrorCode.invalid_request, f"there is no key type {key_type}"
    return ErrorCode.none, None
