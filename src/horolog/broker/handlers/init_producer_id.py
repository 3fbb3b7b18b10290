"""InitProducerId: allocates an id for an idempotent producer.

v1  throttle time
v2  flexible
v3  the producer's present id and epoch: of no use without transactions (KIP-360)
v4  error PRODUCER_FENCED
v5  as v4

Transactions are not served: a transactional id is refused.
"""

from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.wire.api import ApiKey
from horolog.wire.requests import InitProducerIdRequest

if TYPE_CHECKING:
    from horolog.wire.responses import InitProducerIdResponse


@api(ApiKey.INIT_PRODUCER_ID)
async def init_producer_id(
    request: Request[InitProducerIdRequest], broker: Broker
) -> "InitProducerIdResponse":
    """Allocate a new id with epoch 0, even if the producer has one, as in Kafka."""
    try:
        if request.body.transactional_id is not None:
            raise RequestRefused(
                ErrorCode.transactional_id_authorization_failed,
                "This broker runs no transactions: leave out transactional.id",
            )
        producer_id = await broker.producer_ids.next()
    except HorologError as error:
        return {"error_code": code_for(error), "producer_id": -1, "producer_epoch": -1}
    return {"error_code": ErrorCode.none, "producer_id": producer_id, "producer_epoch": 0}
