"""Building blocks of responses: outcomes, iteration with time slices, and large responses."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from horolog.broker.authorisation import CLUSTER
from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import Apart, Request
from horolog.broker.scheduling.codec_threads import Checkpoint, no_checkpoint
from horolog.errors import ErrorCode, HorologError, code_for
from horolog.network.peer import Peer
from horolog.rights.entries import CLUSTER_NAME
from horolog.wire.acl import AclOperation
from horolog.wire.api import ApiKey

T = TypeVar("T")
ResponseT = TypeVar("ResponseT", bound=Mapping[str, Any])


class PartOutcome(NamedTuple):
    """Error code and message of a part of a request."""

    error_code: ErrorCode = ErrorCode.none
    message: str | None = None


def cluster_bits(broker: BrokerParts, peer: Peer, api_key: ApiKey) -> int:
    """Return the operations that a client may do with the cluster; 0 if it may not know them."""
    access, operation = broker.access, AclOperation.DESCRIBE
    if not access.allows_operation(peer, api_key, operation, CLUSTER, CLUSTER_NAME):
        return 0
    return access.bits(peer, CLUSTER)


async def outcome_of(call: Awaitable[object]) -> PartOutcome:
    """Await a call, and return the code and text of the error that it raises, if any."""
    try:
        await call
    except HorologError as error:
        return PartOutcome(code_for(error), str(error))
    return PartOutcome()


async def each(request: Request[Any], items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items of a request; other requests have their turn in between."""
    for item in items:
        await request.checkpoint()
        yield item


def apart_if(is_large: bool, make: Callable[[Checkpoint], ResponseT]) -> "ResponseT | Apart":
    """Return the response that `make` builds, or have a large one built in a thread."""
    return Apart(make) if is_large else make(no_checkpoint)
