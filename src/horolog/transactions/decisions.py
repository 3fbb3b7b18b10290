"""Decisions of a transaction coordinator: each returns the next state, or refuses the request.

A state counts once its record is written. After a failed write the decision is made again from the
same state, so that a fence whose write failed does not bump the epoch twice (KAFKA-9666).
"""

from collections.abc import Collection

from horolog.errors import ErrorCode, RequestRefused
from horolog.offsets import TopicPartition
from horolog.schemas.transactions import SECOND_FLOW, TransactionStatus
from horolog.transactions.values import LAST_EPOCH, NONE, CoordinatedTransaction, ProducerIdentity

_COMPLETE = {
    TransactionStatus.PREPARE_COMMIT: TransactionStatus.COMPLETE_COMMIT,
    TransactionStatus.PREPARE_ABORT: TransactionStatus.COMPLETE_ABORT,
}


# --- InitProducerId -----------------------------------------------------------------------


def check_initialisable(
    transaction: CoordinatedTransaction, expected: ProducerIdentity | None
) -> None:
    """Refuse an InitProducerId that cannot be answered now, or never (KIP-360).

    Raises:
        RequestRefused: PRODUCER_FENCED for a producer that another has replaced,
            CONCURRENT_TRANSACTIONS while markers are being written.
    """
    producer = transaction.producer
    if expected is not None and producer.epoch != NONE:
        is_retry = expected.id == transaction.previous_id and expected.epoch >= LAST_EPOCH - 1
        if expected.id != producer.id and not is_retry:
            raise _fenced(expected, producer)
    if transaction.is_preparing:
        raise concurrent()
    if expected is None or producer.epoch == NONE:
        return
    if expected.epoch not in (producer.epoch, transaction.last_epoch):
        # Of an open transaction, too: a producer that is fenced cannot abort its successor's.
        raise _fenced(expected, producer)


def rotates(transaction: CoordinatedTransaction, expected: ProducerIdentity | None) -> bool:
    """Return True if InitProducerId needs a new producer id, because the epochs are used up."""
    epoch = transaction.producer.epoch
    return transaction.is_exhausted and (
        expected is None or expected.epoch == epoch or epoch == LAST_EPOCH
    )


def initialised(
    transaction: CoordinatedTransaction,
    expected: ProducerIdentity | None,
    timeout_ms: int,
    now_ms: int,
    new_id: int | None,
) -> CoordinatedTransaction:
    """Return the state after InitProducerId, which `check_initialisable` has accepted.

    Args:
        expected: the client's present producer, from version 3 on.
    """
    producer, previous_id = transaction.producer, transaction.producer.id
    if new_id is not None:
        producer = ProducerIdentity(new_id, 0)
    elif expected is None or producer.epoch == NONE or expected.epoch == producer.epoch:
        producer = ProducerIdentity(producer.id, producer.epoch + 1)
    else:  # a retry whose answer was lost: the same answer
        previous_id = transaction.previous_id
    return transaction._replace(
        producer=producer,
        timeout_ms=timeout_ms,
        status=TransactionStatus.EMPTY,
        partitions=frozenset(),
        started_ms=NONE,
        updated_ms=now_ms,
        last_epoch=NONE if expected is None else expected.epoch,
        previous_id=previous_id,
        next_id=NONE,
    )


# --- adding partitions --------------------------------------------------------------------


def check_producer(transaction: CoordinatedTransaction, producer: ProducerIdentity) -> None:
    """Refuse a producer that is not the present one, or must wait for the previous transaction.

    Raises:
        RequestRefused: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED or CONCURRENT_TRANSACTIONS.
    """
    if transaction.is_preparing and producer == transaction.next_producer:
        raise concurrent()
    present = transaction.producer
    if producer.id != present.id:
        raise RequestRefused(
            ErrorCode.invalid_producer_id_mapping,
            f"the transactional id has another producer id than {producer.id}",
        )
    if producer.epoch != present.epoch or producer.epoch == LAST_EPOCH:
        raise _fenced(producer, present)
    if transaction.is_preparing:
        raise concurrent()


def with_partitions(
    transaction: CoordinatedTransaction,
    partitions: Collection[TopicPartition],
    client_version: int,
    now_ms: int,
) -> CoordinatedTransaction:
    """Return the state with further partitions, or the same state if it has them."""
    if transaction.status is TransactionStatus.ONGOING and transaction.partitions.issuperset(
        partitions
    ):
        return transaction
    is_first = transaction.status is not TransactionStatus.ONGOING
    return transaction._replace(
        status=TransactionStatus.ONGOING,
        partitions=transaction.partitions.union(partitions),
        started_ms=now_ms if is_first else transaction.started_ms,
        updated_ms=now_ms,
        client_version=client_version if is_first else transaction.client_version,
        previous_id=transaction.producer.id,
    )


# --- ending -------------------------------------------------------------------------------


def ended(
    transaction: CoordinatedTransaction,
    producer: ProducerIdentity,
    client_version: int,
    now_ms: int,
    *,
    commit: bool,
) -> CoordinatedTransaction:
    """Return the state after EndTxn, or the same state where a retry has its answer already.

    The caller must reserve a next producer id if `wants_next_id` is true of the result.

    Raises:
        RequestRefused: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE, or
            CONCURRENT_TRANSACTIONS while markers are being written.
    """
    if transaction.is_preparing and producer == transaction.next_producer:
        raise concurrent()  # an abort of the next transaction, which is empty
    bumps = client_version >= SECOND_FLOW
    is_retry = bumps and _is_retry(transaction, producer)
    present = transaction.producer
    if producer.id != present.id and not is_retry:
        raise RequestRefused(
            ErrorCode.invalid_producer_id_mapping,
            f"the transactional id has another producer id than {producer.id}",
        )
    if producer.epoch != present.epoch and not is_retry:
        raise _fenced(producer, present)
    status, prepare = transaction.status, _prepare(commit=commit)
    if status is TransactionStatus.ONGOING:
        return prepared(transaction, client_version, now_ms, commit=commit)
    if transaction.is_preparing:
        raise concurrent()
    if status is _COMPLETE[prepare] and (is_retry or not bumps):
        return transaction
    if is_retry or not bumps or commit:
        raise _wrong_state(transaction, commit=commit)
    # Under version 2 the client cannot know whether a write has begun what it aborts.
    return prepared(transaction, client_version, now_ms, commit=commit)


def prepared(
    transaction: CoordinatedTransaction,
    client_version: int,
    now_ms: int,
    *,
    commit: bool,
    fences: bool = False,
) -> CoordinatedTransaction:
    """Return the state with its outcome decided; `fences` bumps the epoch in every version.

    A producer that a timeout has fenced may initialise again, until another has done so (KIP-588).
    Under version 2 markers have the bumped epoch, so that no producer of the previous epoch can
    write after them (KIP-890).
    """
    epoch = transaction.producer.epoch
    bumps = fences or client_version >= SECOND_FLOW
    is_empty = transaction.status is not TransactionStatus.ONGOING
    return transaction._replace(
        producer=ProducerIdentity(transaction.producer.id, min(epoch + bumps, LAST_EPOCH)),
        status=_prepare(commit=commit),
        started_ms=now_ms if is_empty else transaction.started_ms,
        updated_ms=now_ms,
        last_epoch=epoch if bumps else transaction.last_epoch,
        previous_id=transaction.producer.id,
        client_version=client_version,
    )


def wants_next_id(transaction: CoordinatedTransaction) -> bool:
    """Return True if Prepare must reserve the producer id that Complete takes (KAFKA-18660)."""
    return (
        transaction.is_preparing
        and transaction.client_version >= SECOND_FLOW
        and transaction.producer.epoch == LAST_EPOCH
        and transaction.next_id == NONE
    )


def completed(transaction: CoordinatedTransaction, now_ms: int) -> CoordinatedTransaction:
    """Return the state once all markers are written."""
    return transaction._replace(
        producer=transaction.next_producer,
        status=_COMPLETE[transaction.status],
        partitions=frozenset(),
        updated_ms=now_ms,
        previous_id=transaction.producer.id,
        next_id=NONE,
    )


def _is_retry(transaction: CoordinatedTransaction, producer: ProducerIdentity) -> bool:
    """Return True if an EndTxn of version 2 repeats an answered one, after the epoch bump."""
    present = transaction.producer
    if transaction.status in (
        TransactionStatus.EMPTY,
        TransactionStatus.ONGOING,
    ):  # no end has bumped the epoch last
        return False
    if producer.id == present.id and producer.epoch == present.epoch - 1:
        return True
    return (
        producer == ProducerIdentity(transaction.previous_id, LAST_EPOCH - 1)
        and present.epoch == 0
        and transaction.status in _COMPLETE.values()
    )


def _prepare(*, commit: bool) -> TransactionStatus:
    return TransactionStatus.PREPARE_COMMIT if commit else TransactionStatus.PREPARE_ABORT


def concurrent() -> RequestRefused:
    """Return the refusal while the previous transaction ends; clients retry."""
    return RequestRefused(
        ErrorCode.concurrent_transactions, "the transaction before is still being ended"
    )


def _fenced(producer: ProducerIdentity, present: ProducerIdentity) -> RequestRefused:
    return RequestRefused(
        ErrorCode.producer_fenced,
        f"the producer {producer.id} with epoch {producer.epoch} is fenced: "
        f"the present epoch is {present.epoch}",
    )


def _wrong_state(transaction: CoordinatedTransaction, *, commit: bool) -> RequestRefused:
    return RequestRefused(
        ErrorCode.invalid_txn_state,
        f"a transaction in state {transaction.status.name} cannot be "
        f"{'committed' if commit else 'aborted'}",
    )
