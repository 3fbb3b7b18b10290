"""InitProducerId: gives a producer its id and epoch.

v1  throttle time
v2  flexible
v3  the producer's present id and epoch (KIP-360)
v4  error PRODUCER_FENCED; before it is INVALID_PRODUCER_EPOCH
v5  as v4, of clients that know TRANSACTION_ABORTABLE
"""

from typing import TYPE_CHECKING, Final

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.transaction_errors import transaction_code
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.transactions.values import NONE, Producer
from horolog.wire.api import ApiKey
from horolog.wire.requests import InitProducerIdRequest

if TYPE_CHECKING:
    from horolog.wire.responses import InitProducerIdResponse

_KNOWS_FENCED: Final = 4


@api(ApiKey.INIT_PRODUCER_ID)
async def init_producer_id(
    request: Request[InitProducerIdRequest], broker: Broker
) -> "InitProducerIdResponse":
    """A new id with epoch 0 for an idempotent producer; for a transactional one the next epoch."""
    body = request.body
    try:
        if body.transactional_id is None:
            producer = Producer(await broker.producer_ids.next(), 0)
        else:
            producer = await broker.transactions.initialise(
                body.transactional_id, body.transaction_timeout_ms, _expected(body)
            )
    except HorologError as error:
        code = transaction_code(error, knows_fenced=request.version >= _KNOWS_FENCED)
        return {"error_code": code, "producer_id": NONE, "producer_epoch": NONE}
    return {
        "error_code": ErrorCode.none,
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
    }


def _expected(body: InitProducerIdRequest) -> Producer | None:
    """The producer that the client has; None if it has none."""
    expected = Producer(body.producer_id, body.producer_epoch)
    if (expected.id == NONE) != (expected.epoch == NONE):
        raise RequestRefused(
            ErrorCode.invalid_request, "a producer id needs an epoch, and an epoch a producer id"
        )
    return None if expected.id == NONE else expected
