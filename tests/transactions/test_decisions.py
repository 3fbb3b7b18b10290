"""From state to state of a transactional id; traps of other implementations by name."""

import pytest

from horolog.errors import ErrorCode, RequestRefused
from horolog.record import build_batch
from horolog.schemas.transactions import TransactionStatus
from horolog.transactions import decisions
from horolog.transactions.replay import TransactionReplay, record_of
from horolog.transactions.values import (
    LAST_EPOCH,
    CoordinatedTransaction,
    ProducerIdentity,
    transaction_of,
)

T0 = ("t", 0)
NEW = CoordinatedTransaction(ProducerIdentity(7, -1), 60_000)


def begun(
    transaction: CoordinatedTransaction, expected: ProducerIdentity | None = None
) -> CoordinatedTransaction:
    """After InitProducerId."""
    decisions.check_initialisable(transaction, expected)
    new_id = 99 if decisions.rotates(transaction, expected) else None
    return decisions.initialised(transaction, expected, 60_000, 5, new_id)


def ongoing(transaction: CoordinatedTransaction, version: int = 2) -> CoordinatedTransaction:
    decisions.check_producer(transaction, transaction.producer)
    return decisions.with_partitions(transaction, [T0], version, 10)


def ended(
    transaction: CoordinatedTransaction,
    producer: ProducerIdentity,
    version: int = 2,
    *,
    commit: bool = True,
) -> CoordinatedTransaction:
    after = decisions.ended(transaction, producer, version, 20, commit=commit)
    return after._replace(next_id=99) if decisions.wants_next_id(after) else after


def refused(code: ErrorCode) -> "pytest.RaisesExc[RequestRefused]":
    return pytest.RaisesExc(RequestRefused, check=lambda error: error.code is code)


def at_epoch(epoch: int) -> CoordinatedTransaction:
    return CoordinatedTransaction(ProducerIdentity(7, epoch), 60_000)


def test_first_initialisation_has_epoch_0_and_each_further_one_the_next() -> None:
    first = begun(NEW)
    assert first.producer == (7, 0)
    assert begun(first).producer == (7, 1)


def test_lost_answer_of_an_initialisation_is_given_again() -> None:
    producer = begun(NEW).producer
    bumped = begun(begun(NEW), producer)
    assert bumped.producer == (7, 1)
    assert begun(bumped, producer).producer == (7, 1)


def test_producer_that_another_has_replaced_cannot_initialise() -> None:
    state = begun(begun(begun(NEW)))
    with refused(ErrorCode.producer_fenced):
        decisions.check_initialisable(state, ProducerIdentity(7, 0))
    with refused(ErrorCode.producer_fenced):
        decisions.check_initialisable(state, ProducerIdentity(6, 2))


def test_fenced_producer_cannot_abort_the_transaction_of_its_successor() -> None:
    with refused(ErrorCode.producer_fenced):
        decisions.check_initialisable(ongoing(begun(begun(NEW))), ProducerIdentity(7, 0))


def test_exhausted_epochs_take_a_new_producer_id() -> None:
    state = begun(at_epoch(LAST_EPOCH - 1), ProducerIdentity(7, LAST_EPOCH - 1))
    assert state.producer == (99, 0)
    retried = begun(state, ProducerIdentity(7, LAST_EPOCH - 1))
    assert retried.producer == (99, 0)


@pytest.mark.parametrize(("version", "epoch"), [(1, 0), (2, 1)])
def test_end_bumps_the_epoch_under_version_2_only(version: int, epoch: int) -> None:
    state = ended(ongoing(begun(NEW), version), ProducerIdentity(7, 0), version)
    assert state.status is TransactionStatus.PREPARE_COMMIT
    assert state.producer == (7, epoch)
    done = decisions.completed(state, 30)
    assert (done.status, done.producer, done.partitions) == (
        TransactionStatus.COMPLETE_COMMIT,
        ProducerIdentity(7, epoch),
        frozenset(),
    )


def test_epochs_that_end_in_a_transaction_reserve_the_next_id_in_prepare() -> None:
    """KAFKA-18660, KAFKA-20090."""
    exhausted = ProducerIdentity(7, LAST_EPOCH - 1)
    state = ended(ongoing(at_epoch(LAST_EPOCH - 1)), exhausted)
    assert (state.producer, state.next_producer) == (
        ProducerIdentity(7, LAST_EPOCH),
        ProducerIdentity(99, 0),
    )
    with refused(ErrorCode.concurrent_transactions):
        decisions.check_producer(state, ProducerIdentity(99, 0))
    with refused(ErrorCode.concurrent_transactions):
        ended(state, exhausted)
    done = decisions.completed(state, 30)
    assert (done.producer, done.next_id) == (ProducerIdentity(99, 0), -1)
    assert ended(done, exhausted) is done  # its answer was lost
    with refused(ErrorCode.invalid_txn_state):
        ended(done, exhausted, commit=False)


def test_fence_bumps_the_epoch_once_under_both_versions() -> None:
    """KAFKA-19367, KAFKA-9666."""
    for version in (1, 2):
        state = ongoing(begun(NEW), version)
        fenced = decisions.prepared(state, version, 20, commit=False, fences=True)
        assert (fenced.status, fenced.producer) == (
            TransactionStatus.PREPARE_ABORT,
            ProducerIdentity(7, 1),
        )
        again = decisions.prepared(state, version, 20, commit=False, fences=True)
        assert again == fenced  # the write of the first one failed


@pytest.mark.parametrize("version", [1, 2])
def test_producer_whose_transaction_timed_out_goes_on_in_the_next_epoch(version: int) -> None:
    """KIP-588; as Kafka, with a retry whose answer was lost, and until another takes over."""
    state = ongoing(begun(NEW), version)
    fenced = decisions.prepared(state, version, 20, commit=False, fences=True)
    done = decisions.completed(fenced, 30)
    recovered = begun(done, state.producer)
    assert recovered.producer == ProducerIdentity(7, 1)
    assert begun(recovered, state.producer).producer == ProducerIdentity(7, 1)
    with refused(ErrorCode.producer_fenced):
        decisions.check_initialisable(begun(done), state.producer)


@pytest.mark.parametrize("version", [1, 2])
def test_producer_that_timed_out_in_the_last_epoch_goes_on_with_another_id(version: int) -> None:
    state = ongoing(at_epoch(LAST_EPOCH - 1), version)
    fenced = decisions.prepared(state, version, 20, commit=False, fences=True)
    if decisions.wants_next_id(fenced):
        fenced = fenced._replace(next_id=99)
    recovered = begun(decisions.completed(fenced, 30), state.producer)
    assert recovered.producer == ProducerIdentity(99, 0)
    assert begun(recovered, state.producer).producer == ProducerIdentity(99, 0)


def test_initialisation_waits_for_the_markers() -> None:
    for commit in (False, True):
        state = ended(ongoing(begun(NEW)), ProducerIdentity(7, 0), commit=commit)
        with refused(ErrorCode.concurrent_transactions):
            decisions.check_initialisable(state, None)


def test_lost_answer_of_an_end_is_given_again() -> None:
    old = ProducerIdentity(7, 0)
    state = ended(ongoing(begun(NEW)), old)
    with refused(ErrorCode.concurrent_transactions):
        ended(state, old)
    with refused(ErrorCode.concurrent_transactions):
        ended(state, old, commit=False)
    done = decisions.completed(state, 30)
    assert ended(done, old) is done
    with refused(ErrorCode.invalid_txn_state):
        ended(done, old, commit=False)


def test_lost_answer_of_an_end_is_given_again_under_version_1() -> None:
    producer = ProducerIdentity(7, 0)
    state = ended(ongoing(begun(NEW), 1), producer, 1)
    with refused(ErrorCode.concurrent_transactions):
        ended(state, producer, 1)
    done = decisions.completed(state, 30)
    assert ended(done, producer, 1) is done
    with refused(ErrorCode.invalid_txn_state):
        ended(done, producer, 1, commit=False)


def test_empty_transaction_is_aborted_under_version_2() -> None:
    """As Apache Kafka 4.3 decides: what a client without records commits, it does not send."""
    state = ended(begun(NEW), ProducerIdentity(7, 0), commit=False)
    assert (state.status, state.producer) == (
        TransactionStatus.PREPARE_ABORT,
        ProducerIdentity(7, 1),
    )
    done = decisions.completed(state, 30)
    assert ended(done, ProducerIdentity(7, 1), commit=False).producer == (7, 2)
    with refused(ErrorCode.invalid_txn_state):
        ended(begun(NEW), ProducerIdentity(7, 0), commit=True)
    for commit in (False, True):
        with refused(ErrorCode.invalid_txn_state):
            ended(begun(NEW), ProducerIdentity(7, 0), 1, commit=commit)


@pytest.mark.parametrize("epoch", [0, 32_765])
def test_abort_of_the_next_transaction_waits_for_the_end_of_the_one_before(epoch: int) -> None:
    """franz-go aborts a transaction without records: it was refused with INVALID_TXN_STATE."""
    first = ProducerIdentity(7, epoch)
    state = ended(ongoing(at_epoch(epoch)), first)
    following = state.next_producer
    with refused(ErrorCode.concurrent_transactions):
        ended(state, following, commit=False)
    done = decisions.completed(state, 30)
    assert ended(done, following, commit=False).status is TransactionStatus.PREPARE_ABORT


def test_epoch_is_checked_before_the_state() -> None:
    """KAFKA-19690."""
    state = begun(begun(NEW))
    with refused(ErrorCode.producer_fenced):
        decisions.check_producer(state, ProducerIdentity(7, 0))
    with refused(ErrorCode.producer_fenced):
        ended(state, ProducerIdentity(7, 0))
    with refused(ErrorCode.invalid_producer_id_mapping):
        decisions.check_producer(state, ProducerIdentity(8, 1))
    with refused(ErrorCode.invalid_producer_id_mapping):
        ended(state, ProducerIdentity(8, 1))


def test_no_producer_writes_with_the_epoch_of_the_last_marker() -> None:
    with refused(ErrorCode.producer_fenced):
        decisions.check_producer(at_epoch(LAST_EPOCH), ProducerIdentity(7, LAST_EPOCH))


def test_start_is_that_of_the_first_partition() -> None:
    state = ongoing(begun(NEW))
    more = decisions.with_partitions(state, [("t", 1)], 2, 50)
    assert (more.started_ms, more.updated_ms) == (10, 50)
    assert more.topics() == {"t": (0, 1)}
    assert decisions.with_partitions(more, [T0], 2, 60) is more


def test_version_may_change_between_transactions() -> None:
    state = decisions.completed(ended(ongoing(begun(NEW), 1), ProducerIdentity(7, 0), 1), 30)
    later = ongoing(state, 2)
    assert later.client_version == 2
    assert decisions.with_partitions(later, [("t", 1)], 1, 60).client_version == 2


def test_states_of_a_log_are_the_last_of_each_id() -> None:
    state = ongoing(begun(NEW))
    log = [
        build_batch([record_of("a", begun(NEW), 1), record_of("b", NEW, 1)]),
        build_batch([record_of("a", state, 2), record_of("b", None, 2)]),
    ]
    replay = TransactionReplay()
    for batch in log:
        replay.take(batch)
    assert replay.states == {"a": state._replace(last_epoch=-1)}
    assert transaction_of(state.value()) == state._replace(last_epoch=-1)
    replay.take(log[0][:-3])
    assert replay.unreadable == 1
