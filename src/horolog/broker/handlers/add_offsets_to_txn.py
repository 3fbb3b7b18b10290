"""AddOffsetsToTxn: the offsets of a group, before they are committed in a transaction.

v2  error PRODUCER_FENCED; before it is INVALID_PRODUCER_EPOCH
v3  flexible
v4  as v3, of clients that know TRANSACTION_ABORTABLE
"""

from typing import TYPE_CHECKING, Final

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.transaction_errors import transaction_code
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.storage.names import CONSUMER_OFFSETS, TopicPartition
from horolog.transactions.values import Producer
from horolog.wire.api import ApiKey
from horolog.wire.requests import AddOffsetsToTxnRequest

if TYPE_CHECKING:
    from horolog.wire.responses import AddOffsetsToTxnResponse

_KNOWS_FENCED: Final = 2


@api(ApiKey.ADD_OFFSETS_TO_TXN)
async def add_offsets_to_txn(
    request: Request[AddOffsetsToTxnRequest], broker: Broker
) -> "AddOffsetsToTxnResponse":
    """Add the partition of `__consumer_offsets` that has the group."""
    body = request.body
    try:
        if not body.group_id:
            raise RequestRefused(ErrorCode.invalid_group_id, "a group id must not be empty")
        index = broker.groups.transactions.partition_of(body.group_id)
        partition = TopicPartition(CONSUMER_OFFSETS, index)
        producer = Producer(body.producer_id, body.producer_epoch)
        await broker.transactions.add_partitions(body.transactional_id, producer, [partition])
    except HorologError as error:
        return {
            "error_code": transaction_code(error, knows_fenced=request.version >= _KNOWS_FENCED)
        }
    return {"error_code": ErrorCode.none}
