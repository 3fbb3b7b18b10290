"""DescribeTransactions: the states of transactional ids (KIP-664)."""

from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode, HorologError, code_for
from horolog.transactions.values import NONE, STATUS_NAMES
from horolog.wire.api import ApiKey
from horolog.wire.requests import DescribeTransactionsRequest

if TYPE_CHECKING:
    from horolog.wire.responses import DescribeTransactionsResponse, TransactionState


@api(ApiKey.DESCRIBE_TRANSACTIONS)
async def describe_transactions(
    request: Request[DescribeTransactionsRequest], broker: Broker
) -> "DescribeTransactionsResponse":
    """Each id with its producer, and the partitions and the start of its open transaction."""
    states: list[TransactionState] = []
    for transactional_id in dict.fromkeys(request.body.transactional_ids):
        await request.checkpoint()
        states.append(_described(broker, transactional_id))
    return {"transaction_states": states}


def _described(broker: Broker, transactional_id: str) -> "TransactionState":
    try:
        transaction = broker.transactions.describe(transactional_id)
    except HorologError as error:
        return {
            "error_code": code_for(error),
            "transactional_id": transactional_id,
            "transaction_state": "",
            "transaction_timeout_ms": 0,
            "transaction_start_time_ms": 0,
            "producer_id": 0,
            "producer_epoch": 0,
            "topics": [],
        }
    return {
        "error_code": ErrorCode.none,
        "transactional_id": transactional_id,
        "transaction_state": STATUS_NAMES[transaction.status],
        "transaction_timeout_ms": transaction.timeout_ms,
        "transaction_start_time_ms": transaction.started_ms if transaction.is_open else NONE,
        "producer_id": transaction.producer.id,
        "producer_epoch": transaction.producer.epoch,
        "topics": [
            {"topic": topic, "partitions": indexes}
            for topic, indexes in transaction.topics().items()
        ],
    }
