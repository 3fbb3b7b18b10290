"""EndTxn: commit or abort a transaction.

v2  error PRODUCER_FENCED; before it is INVALID_PRODUCER_EPOCH
v3  flexible
v4  as v3, of clients that know TRANSACTION_ABORTABLE
v5  the end bumps the epoch; the producer of the next transaction is in the answer (KIP-890)
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from horolog.broker.authorisation import Authorise
from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api, shortcut
from horolog.broker.handlers.transaction_errors import transaction_code
from horolog.errors import ErrorCode, HorologError
from horolog.network.peer import Peer
from horolog.network.reply import Reply
from horolog.schemas.transactions import FIRST_FLOW, SECOND_FLOW
from horolog.transactions.values import NONE, Producer
from horolog.wire.api import ApiKey
from horolog.wire.requests import EndTxnRequest
from horolog.wire.transactions import SingleEnd, ended_answers, read_end

if TYPE_CHECKING:
    from horolog.wire.responses import EndTxnResponse

_KNOWS_FENCED: Final = 2
_BUMPS_EPOCH: Final = 5


@api(ApiKey.END_TXN)
async def end_txn(request: Request[EndTxnRequest], broker: Broker) -> "EndTxnResponse":
    """Decide a transaction; answered once that is written, and before the markers are."""
    body = request.body
    producer = Producer(body.producer_id, body.producer_epoch)
    code, after = await _end(
        broker, request.version, body.transactional_id, producer, commit=body.committed
    )
    return {"error_code": code, "producer_id": after.id, "producer_epoch": after.epoch}


@shortcut(ApiKey.END_TXN)
def end_single(
    broker: Broker, authorise: Authorise, peer: Peer, frame: bytes
) -> Coroutine[Any, Any, Reply] | None:
    """Decide a transaction, without decoding the request by its schema."""
    asked = read_end(frame)
    if asked is None:
        return None
    authorise(peer, ApiKey.END_TXN)
    return _end_single(broker, asked)


async def _end_single(broker: Broker, asked: SingleEnd) -> Reply:
    version, correlation_id, transactional_id, producer_id, epoch, committed = asked
    producer = Producer(producer_id, epoch)
    code, after = await _end(broker, version, transactional_id, producer, commit=committed)
    answers = ended_answers(version)
    if version < _BUMPS_EPOCH:
        return (answers.pack(correlation_id, code),)
    return (answers.pack(correlation_id, code, *after),)


async def _end(
    broker: Broker, version: int, transactional_id: str, producer: Producer, *, commit: bool
) -> tuple[ErrorCode, Producer]:
    """The error code, and the producer of the next transaction."""
    flow = SECOND_FLOW if version >= _BUMPS_EPOCH else FIRST_FLOW
    try:
        after = await broker.transactions.end(transactional_id, producer, flow, commit=commit)
    except HorologError as error:
        code = transaction_code(error, knows_fenced=version >= _KNOWS_FENCED)
        return code, Producer(NONE, NONE)
    return ErrorCode.none, after
