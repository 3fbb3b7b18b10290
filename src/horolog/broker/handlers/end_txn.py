"""EndTxn: commit or abort a transaction.

v2  error PRODUCER_FENCED; before it is INVALID_PRODUCER_EPOCH
v3  flexible
v4  as v3, of clients that know TRANSACTION_ABORTABLE
v5  the end bumps the epoch; the producer of the next transaction is in the answer (KIP-890)
"""

from typing import TYPE_CHECKING, Final

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.transaction_errors import transaction_code
from horolog.errors import ErrorCode, HorologError
from horolog.schemas.transactions import FIRST_FLOW, SECOND_FLOW
from horolog.transactions.values import NONE, Producer
from horolog.wire.api import ApiKey
from horolog.wire.requests import EndTxnRequest

if TYPE_CHECKING:
    from horolog.wire.responses import EndTxnResponse

_KNOWS_FENCED: Final = 2
_BUMPS_EPOCH: Final = 5


@api(ApiKey.END_TXN)
async def end_txn(request: Request[EndTxnRequest], broker: Broker) -> "EndTxnResponse":
    """Decide a transaction; answered once that is written, and before the markers are."""
    body = request.body
    try:
        producer = await broker.transactions.end(
            body.transactional_id,
            Producer(body.producer_id, body.producer_epoch),
            SECOND_FLOW if request.version >= _BUMPS_EPOCH else FIRST_FLOW,
            commit=body.committed,
        )
    except HorologError as error:
        return {
            "error_code": transaction_code(error, knows_fenced=request.version >= _KNOWS_FENCED),
            "producer_id": NONE,
            "producer_epoch": NONE,
        }
    return {
        "error_code": ErrorCode.none,
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
    }
