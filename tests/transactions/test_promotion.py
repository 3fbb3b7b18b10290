"""How transactions of a source end at a promotion, case by case."""

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from horolog.schemas.transactions import TransactionStatus
from horolog.storage import TopicPartition
from horolog.storage.producers.states import NO_END, LastEnd
from horolog.transactions import promotion
from horolog.transactions.promotion import Ends, FollowedStates, PartitionHere, ends_of
from horolog.transactions.values import LAST_EPOCH, CoordinatedTransaction, ProducerIdentity

A, B = TopicPartition("t", 0), TopicPartition("u", 0)
NOW_MS = 90_000
FIRST, SECOND = 0, 2
COMMIT, ABORT = TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT


def state(
    status: TransactionStatus, epoch: int, at_ms: int = 1_000, flow: int = SECOND
) -> CoordinatedTransaction:
    """A state of producer 7, with a transaction in both partitions that began at 500."""
    partitions = frozenset() if status.name.startswith("COMPLETE") else frozenset([A, B])
    producer = ProducerIdentity(7, epoch)
    return CoordinatedTransaction(
        producer, 60_000, status, partitions, 500, at_ms, client_version=flow
    )


def here(
    opened: int | None = None, end: LastEnd | None = NO_END, confirmed_ms: int = 50
) -> PartitionHere:
    """A partition that ends at offset 9, with what producer 7 has there."""
    ends = MappingProxyType({} if end is None else {7: end})
    return PartitionHere(9, {} if opened is None else {7: opened}, ends, confirmed_ms)


def ended(
    partitions: Mapping[TopicPartition, PartitionHere],
    *states: CoordinatedTransaction,
    promoted: tuple[str, ...] = ("t", "u"),
    is_led: bool = False,
) -> Ends:
    known = FollowedStates(partitions)
    known.begin(10)
    for each in states:
        known.note("x", each)
    return ends_of(known, partitions, promoted, NOW_MS, is_led=is_led)


def committed(ends: Ends) -> set[TopicPartition]:
    return {key for key, ids in ends.committed.items() if 7 in ids}


@pytest.mark.parametrize("flow", [FIRST, SECOND])
def test_open_transaction_is_aborted_and_fenced(flow: int) -> None:
    ends = ended({A: here(3), B: here(3)}, state(TransactionStatus.ONGOING, 3, flow=flow))
    after = ends.changed["x"]
    assert (after.status, after.producer, after.partitions) == (
        ABORT,
        ProducerIdentity(7, 4),
        {A, B},
    )
    assert not committed(ends)
    said = (
        "a transaction of 'x' was open at the source, and aborted here: records of it from offset 9"
    )
    assert all(ends.notes[key][0].startswith(said) for key in (A, B))


@pytest.mark.parametrize(("flow", "epoch"), [(FIRST, 3), (SECOND, 4)])
@pytest.mark.parametrize(("status", "expected"), [(COMMIT, {A, B}), (ABORT, set())])
def test_decision_is_completed_by_the_coordinator_here(
    flow: int, epoch: int, status: TransactionStatus, expected: set[TopicPartition]
) -> None:
    ends = ended({A: here(3), B: here(3)}, state(status, epoch, flow=flow))
    assert (committed(ends), ends.changed, ends.notes) == (expected, {}, {})


def test_commit_is_named_where_the_source_was_not_asked_since() -> None:
    ends = ended({A: here(3), B: here(3, confirmed_ms=10)}, state(COMMIT, 4))
    assert committed(ends) == {A, B}
    assert list(ends.notes) == [B]
    assert "committed at the source: records of it from offset 9 on may not" in ends.notes[B][0]


@pytest.mark.parametrize(("flow", "epoch"), [(FIRST, 3), (SECOND, 4)])
@pytest.mark.parametrize("is_commit", [True, False])
def test_marker_in_any_partition_decides_before_its_state_came(
    flow: int, epoch: int, is_commit: bool
) -> None:
    marker = here(None, LastEnd(epoch, is_commit, 2_000))
    ends = ended({A: marker, B: here(3)}, state(TransactionStatus.ONGOING, 3, flow=flow))
    assert ends.changed["x"].status is (COMMIT if is_commit else ABORT)
    assert committed(ends) == ({B} if is_commit else set())


def test_marker_of_a_partition_that_is_still_followed_decides_too() -> None:
    partitions = {A: here(None, LastEnd(4, True, 2_000)), B: here(3)}
    ends = ended(partitions, state(TransactionStatus.ONGOING, 3), promoted=("u",))
    assert committed(ends) == {B}
    assert list(ends.notes) == [B]


def test_marker_of_the_next_life_does_not_commit_what_was_fenced_in_the_first_flow() -> None:
    """The first life timed out with epoch 3, and the next one has committed with epoch 4."""
    partitions = {A: here(None, LastEnd(4, True, 2_000)), B: here(3)}
    ends = ended(partitions, state(TransactionStatus.ONGOING, 3, flow=FIRST))
    assert ends.changed["x"].status is ABORT
    assert not committed(ends)


def test_what_is_open_is_of_the_first_transaction_whose_end_is_lacking() -> None:
    before = LastEnd(3, True, 900)
    states = [
        state(COMMIT, 3, 1_000, FIRST),
        state(TransactionStatus.COMPLETE_COMMIT, 3, 1_100, FIRST),
    ]
    later = [state(ABORT, 3, 2_000, FIRST)]
    ends = ended({A: here(3, before), B: here(None, LastEnd(3, False, 2_000))}, *states, *later)
    assert committed(ends) == {A}


def test_first_flow_without_a_known_marker_is_decided_by_the_last_state_alone() -> None:
    unknown = {A: here(3, None), B: here()}
    assert committed(ended(unknown, state(COMMIT, 3, flow=FIRST))) == {A}
    over = state(COMMIT, 3, flow=FIRST), state(TransactionStatus.COMPLETE_COMMIT, 3, flow=FIRST)
    assert not committed(ended(unknown, *over))


def test_completed_state_decides_by_its_epoch_where_the_decision_was_compacted() -> None:
    assert committed(ended({A: here(3)}, state(TransactionStatus.COMPLETE_COMMIT, 4))) == {A}
    assert not committed(ended({A: here(3)}, state(TransactionStatus.COMPLETE_COMMIT, 5)))
    last = state(TransactionStatus.COMPLETE_COMMIT, 0)._replace(
        producer=ProducerIdentity(8, 0), previous_id=7
    )
    assert committed(ended({A: here(LAST_EPOCH - 1)}, last)) == {A}


def test_epoch_goes_on_above_all_that_came_where_states_are_late() -> None:
    ends = ended(
        {A: here(None, LastEnd(9, True, 2_000))}, state(TransactionStatus.COMPLETE_COMMIT, 4)
    )
    assert ends.changed["x"].producer == ProducerIdentity(7, 11)
    assert "'x' was ended at the source after its last state that came" in ends.notes[A][0]
    ends = ended({A: here(9)}, state(TransactionStatus.EMPTY, 9))
    assert ends.changed["x"].producer == ProducerIdentity(7, 11), (
        "its producer cannot go on with a part"
    )
    assert "aborted, as no end and no state of it came" in ends.notes[A][0]


def test_producer_without_a_state_ends_by_the_marker_of_its_epoch_or_is_aborted() -> None:
    ends = ended({A: here(None, LastEnd(4, True, 1)), B: here(3)})
    assert committed(ends) == {B}
    ends = ended({A: here(None, LastEnd(5, True, 1)), B: here(3)})
    assert not committed(ends)
    assert "'producer id 7' was aborted" in ends.notes[B][0]


def test_later_promotion_leaves_what_is_open_in_topics_that_are_led() -> None:
    assert not ended({}, state(TransactionStatus.ONGOING, 3), is_led=True).changed
    ends = ended({B: here(3)}, state(TransactionStatus.ONGOING, 3), promoted=("u",), is_led=True)
    assert ends.changed["x"].status is ABORT


def test_many_transactions_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promotion, "MOST_NOTES", 2)
    partition = PartitionHere(9, dict.fromkeys(range(5), 0), {})
    ends = ends_of(FollowedStates({A: partition}), {A: partition}, ["t"], NOW_MS)
    assert len(ends.notes[A]) == 3
    assert ends.notes[A][2] == "and 3 other transactions are not as at the source"
