"""ListTransactions: all transactional ids that pass the filters (KIP-664).

v1  for how long a transaction has been open (KIP-994)
v2  a pattern of the transactional id (KIP-1152): INVALID_REGULAR_EXPRESSION if it is none, or
    would take seconds for the ids that pass the other filters
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Apart, Request, api
from horolog.broker.scheduling.codec_threads import Checkpoint, no_checkpoint
from horolog.errors import ErrorCode, HorologError, code_for
from horolog.patterns import name_pattern
from horolog.transactions.values import STATUS_NAMES, Transaction
from horolog.wire.api import ApiKey
from horolog.wire.requests import ListTransactionsRequest

if TYPE_CHECKING:
    from horolog.wire.responses import (
        ListTransactionsResponse,
        ListTransactionsTransactionState,
    )

_STATUSES: Final = {name: status for status, name in STATUS_NAMES.items()}
_MANY: Final = 1_000


@api(ApiKey.LIST_TRANSACTIONS)
def list_transactions(
    request: Request[ListTransactionsRequest], broker: Broker
) -> "ListTransactionsResponse | Apart":
    """The transactional ids; the filters are joined by "and", each one's values by "or"."""
    try:
        found = list(broker.transactions.all())
    except HorologError as error:
        return {
            "error_code": code_for(error),
            "unknown_state_filters": [],
            "transaction_states": [],
        }
    make = partial(_answer, request.body, found)
    filters = len(request.body.state_filters) + len(request.body.producer_id_filters)
    if max(len(found), filters) > _MANY or request.body.transactional_id_pattern:
        return Apart(make)
    return make()


def _answer(
    body: ListTransactionsRequest,
    found: list[tuple[str, Transaction, int]],
    checkpoint: Checkpoint = no_checkpoint,
) -> "ListTransactionsResponse":
    states = {_STATUSES[name] for name in body.state_filters if name in _STATUSES}
    unknown = [name for name in dict.fromkeys(body.state_filters) if name not in _STATUSES]
    producers = set(body.producer_id_filters)
    chosen: list[tuple[str, Transaction]] = []
    for transactional_id, transaction, open_ms in found:
        checkpoint()
        if (
            (not body.state_filters or transaction.status in states)
            and (not producers or transaction.producer.id in producers)
            and (body.duration_filter < 0 or open_ms > body.duration_filter)
        ):
            chosen.append((transactional_id, transaction))
    try:
        pattern = (
            name_pattern(body.transactional_id_pattern) if body.transactional_id_pattern else None
        )
        if pattern is not None and pattern.is_slow_for(each for each, _ in chosen):
            raise ValueError("it takes too long")
    except ValueError:
        return {
            "error_code": ErrorCode.invalid_regular_expression,
            "unknown_state_filters": unknown,
            "transaction_states": [],
        }
    listed: list[ListTransactionsTransactionState] = []
    for transactional_id, transaction in chosen:
        checkpoint()
        if pattern is None or pattern.matches(transactional_id):
            listed.append(
                {
                    "transactional_id": transactional_id,
                    "producer_id": transaction.producer.id,
                    "transaction_state": STATUS_NAMES[transaction.status],
                }
            )
    return {
        "error_code": ErrorCode.none,
        "unknown_state_filters": unknown,
        "transaction_states": listed,
    }
