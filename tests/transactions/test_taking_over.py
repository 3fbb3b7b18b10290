"""What becomes of a source's transactions at a promotion, case by case."""

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from horolog.record.builder import build_batch
from horolog.schemas.transactions import Status
from horolog.storage.names import CONSUMER_OFFSETS, TopicPartition
from horolog.storage.producers.states import NEVER_GIVEN, LastEnd
from horolog.transactions.replay import record_of
from horolog.transactions.taking_over import (
    MOST_DECIDED,
    MOST_NOTES,
    FollowedStates,
    PartitionHere,
    ProducersHere,
    TakenOver,
    taken_over,
)
from horolog.transactions.values import Producer, Transaction

A, B = TopicPartition("t", 0), TopicPartition("u", 0)
CAME_MS, BEGUN_MS, NOW_MS = 100, 200, 1_000
ONGOING = Transaction(
    Producer(7, 3),
    60_000,
    Status.ONGOING,
    frozenset({tuple(A), tuple(B)}),
    started_ms=10,
    updated_ms=10,
    client_version=2,
)
PREPARED = ONGOING._replace(producer=Producer(7, 4), status=Status.PREPARE_COMMIT, updated_ms=20)
COMPLETE = PREPARED._replace(status=Status.COMPLETE_COMMIT, partitions=frozenset(), updated_ms=30)
MARKER = LastEnd(4, True, 21)


def here(
    *,
    confirmed_ms: int = -1,
    end: LastEnd | None = None,
    opened: int | None = 3,
    behind: bool = False,
) -> PartitionHere:
    """What is here; `opened` is the epoch of what is open where there is no end."""
    its = ProducersHere(
        50,
        {7: opened} if opened is not None and end is None else {},
        {} if end is None else {7: end},
    )
    return PartitionHere(its, confirmed_ms, behind)


def states(
    *log: Transaction | None,
    name: str = "x",
    parts: Mapping[TopicPartition, PartitionHere] = MappingProxyType({}),
) -> FollowedStates:
    known = FollowedStates(parts)
    known.begin(lambda _: CAME_MS)
    for state in log:
        known.take(build_batch([record_of(name, state, 1)]))
    return known


def decide(known: FollowedStates, partitions: Mapping[TopicPartition, PartitionHere]) -> TakenOver:
    return taken_over(known, partitions, BEGUN_MS, NOW_MS, is_current=True)


def test_commit_goes_on_where_every_partition_was_confirmed_after_it_came() -> None:
    found = decide(states(PREPARED), {A: here(confirmed_ms=101), B: here(confirmed_ms=101)})
    assert not found.changed
    assert not found.notes
    assert found.outcomes[A].goes_on == found.outcomes[B].goes_on == {7}


@pytest.mark.parametrize("confirmed_ms", [-1, 99, 100])
def test_commit_without_a_marker_is_aborted_whole_where_a_partition_is_not_confirmed(
    confirmed_ms: int,
) -> None:
    parts = {A: here(confirmed_ms=101), B: here(confirmed_ms=confirmed_ms)}
    found = decide(states(PREPARED), parts)
    assert found.changed == {"x": PREPARED._replace(status=Status.PREPARE_ABORT)}
    assert found.outcomes[A].goes_on == found.outcomes[B].goes_on == {7}
    (said,) = found.notes[B]
    assert "committed at the source, and aborted here in all partitions" in said
    assert "from offset 50 on may not have arrived" in said
    assert "arrived" in found.notes[A][0]


def test_commit_with_a_marker_is_completed_and_named() -> None:
    found = decide(states(PREPARED), {A: here(end=MARKER), B: here()})
    assert not found.changed
    assert found.outcomes[B].goes_on == {7}
    assert list(found.notes) == [B]


def test_partition_that_lacks_records_of_a_commit_with_a_marker_aborts_its_part() -> None:
    found = decide(states(PREPARED), {A: here(end=MARKER), B: here(behind=True)})
    assert found.changed["x"].status is Status.PREPARE_COMMIT
    assert found.changed["x"].partitions == {tuple(A)}
    assert found.outcomes[B] == (frozenset(), frozenset())
    assert "did not arrive" in found.notes[B][0]


def test_marker_that_came_before_its_state_decides() -> None:
    found = decide(states(ONGOING), {A: here(end=MARKER), B: here(confirmed_ms=201)})
    after = found.changed["x"]
    assert (after.status, after.producer) == (Status.PREPARE_COMMIT, Producer(7, 4))
    abort = decide(states(ONGOING), {A: here(end=LastEnd(4, False, 21)), B: here()})
    assert abort.changed["x"].status is Status.PREPARE_ABORT


@pytest.mark.parametrize(("ms", "is_its"), [(9, False), (10, False), (11, True)])
def test_marker_of_the_first_flow_is_told_from_the_one_before_by_its_time(
    ms: int, is_its: bool
) -> None:
    state = ONGOING._replace(client_version=0)
    found = decide(states(state), {A: here(end=LastEnd(3, True, ms)), B: here()})
    expected = Status.PREPARE_COMMIT if is_its else Status.PREPARE_ABORT
    assert found.changed["x"].status is expected


def test_what_is_open_goes_on_only_where_everything_was_confirmed_since_the_beginning() -> None:
    sure, known = here(confirmed_ms=BEGUN_MS), states(ONGOING)
    assert not decide(known, {A: sure, B: sure}).changed
    stale = here(confirmed_ms=BEGUN_MS - 1)
    found = decide(known, {A: sure, B: stale})
    assert found.changed["x"].status is Status.PREPARE_ABORT
    assert found.changed["x"].producer == Producer(7, 4), "its producer is fenced"
    assert set(found.notes) == {A, B}
    late = taken_over(known, {A: sure, B: sure}, BEGUN_MS, NOW_MS, is_current=False)
    assert late.changed["x"].status is Status.PREPARE_ABORT


@pytest.mark.parametrize("state", [ONGOING, PREPARED])
def test_transaction_with_offsets_of_a_group_is_aborted_as_these_are_not_here(
    state: Transaction,
) -> None:
    sure = here(confirmed_ms=BEGUN_MS)
    state = state._replace(partitions=state.partitions | {(CONSUMER_OFFSETS, 3)})
    found = decide(states(state), {A: sure, B: sure})
    assert found.changed["x"].status is Status.PREPARE_ABORT
    assert set(found.notes) == {A, B}


def test_completed_commit_is_completed_in_a_partition_that_lacks_its_marker() -> None:
    found = decide(states(PREPARED, COMPLETE), {A: here(end=MARKER), B: here(confirmed_ms=101)})
    assert not found.changed
    assert not found.notes
    assert found.outcomes[B].committed == {7}
    unsure = decide(states(PREPARED, COMPLETE), {A: here(end=MARKER), B: here()})
    assert unsure.outcomes[B].committed == {7}
    assert list(unsure.notes) == [B]


def test_completed_commit_that_did_not_arrive_is_named_and_not_cut_within_a_partition() -> None:
    found = decide(states(PREPARED, COMPLETE), {A: here(end=MARKER), B: here(behind=True)})
    assert found.outcomes[B] == (frozenset(), frozenset())
    assert "did not arrive" in found.notes[B][0]


def test_completed_abort_is_aborted_where_its_marker_is_missing() -> None:
    log = [
        PREPARED._replace(status=Status.PREPARE_ABORT),
        COMPLETE._replace(status=Status.COMPLETE_ABORT),
    ]
    found = decide(states(*log), {A: here(), B: here()})
    assert found.outcomes[A] == found.outcomes[B] == (frozenset(), frozenset())


def test_next_transaction_does_not_take_what_the_former_has_left_open() -> None:
    after = ONGOING._replace(producer=Producer(7, 4), started_ms=40, updated_ms=40)
    parts = {A: here(end=MARKER), B: here(confirmed_ms=BEGUN_MS)}
    found = decide(states(PREPARED, COMPLETE, after), parts)
    assert found.outcomes[B] == (frozenset(), {7})
    assert found.changed["x"].status is Status.PREPARE_ABORT


@pytest.mark.parametrize("version", [0, 2])
def test_what_is_open_of_the_next_transaction_does_not_end_as_the_former(version: int) -> None:
    """The marker of the former is in front of what a restart, or a truncation, has replayed."""
    epoch = 4 if version else 3
    former = PREPARED._replace(
        producer=Producer(7, epoch), status=Status.PREPARE_ABORT, client_version=version
    )
    done = former._replace(status=Status.COMPLETE_ABORT, partitions=frozenset())
    present = PREPARED._replace(
        producer=Producer(7, 5 if version else 3), updated_ms=60, client_version=version
    )
    sure = here(confirmed_ms=101, opened=epoch)
    found = decide(states(former, done, present), {A: sure, B: sure})
    assert found.outcomes[A].goes_on == found.outcomes[B].goes_on == {7}
    assert not found.changed


def test_what_is_open_ends_as_the_first_transaction_whose_marker_is_missing() -> None:
    """The partition stopped in the middle of history."""
    second = PREPARED._replace(producer=Producer(7, 5), status=Status.PREPARE_ABORT, updated_ms=40)
    log = [PREPARED, COMPLETE, second, second._replace(status=Status.COMPLETE_ABORT)]
    end = LastEnd(5, False, 41)
    found = decide(states(*log), {A: here(end=end), B: here(confirmed_ms=101)})
    assert found.outcomes[B] == (frozenset(), {7})


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commits", [True, False])
def test_first_transaction_whose_marker_is_missing_counts_however_many_came_since(
    version: int, commits: bool
) -> None:
    """A partition is behind by a moment; the states are of what was decided in that moment."""
    outcomes = [True, commits] + [not commits] * 2 * MOST_DECIDED
    log = []
    for number, is_commit in enumerate(outcomes):
        prepare = PREPARED._replace(
            producer=Producer(7, 4 + number if version else 3),
            status=Status.PREPARE_COMMIT if is_commit else Status.PREPARE_ABORT,
            started_ms=10 * number + 5,
            updated_ms=10 * number + 8,
            client_version=version,
        )
        after = Status.COMPLETE_COMMIT if is_commit else Status.COMPLETE_ABORT
        log += [prepare, prepare._replace(status=after, partitions=frozenset())]
    last = LastEnd(log[-1].producer.epoch, not commits, log[-1].updated_ms + 1)
    first = LastEnd(log[0].producer.epoch, True, log[0].updated_ms + 1)
    opened = ProducersHere(50, {7: first.epoch}, {7: first})  # of the second
    parts = {A: here(end=last), B: PartitionHere(opened, 101)}
    found = decide(states(*log, parts=parts), parts)
    assert found.outcomes[B] == (frozenset(), {7} if commits else frozenset())
    assert not found.changed


def test_open_transaction_whose_state_did_not_come_is_aborted_and_named() -> None:
    found = decide(states(), {A: here()})
    assert found.outcomes[A] == (frozenset(), frozenset())
    assert found.notes[A] == ["1 open transactions are aborted, of which no end and no state came"]


@pytest.mark.parametrize(
    ("end", "is_its"),
    [
        (LastEnd(4, True, 30), False),
        (LastEnd(4, True, 31), True),
        (LastEnd(5, True, 5), True),
        (LastEnd(5, False, 31), False),
    ],
)
def test_marker_of_a_transaction_that_began_after_the_states_which_came_decides(
    end: LastEnd, is_its: bool
) -> None:
    found = decide(states(COMPLETE), {A: here(end=end), B: here()})
    assert found.outcomes[B] == (frozenset(), {7} if is_its else frozenset())
    assert list(found.notes) == [B]


def test_removed_transactional_id_has_nothing_open() -> None:
    found = decide(states(PREPARED, None), {A: here(opened=None)})
    assert not found.changed
    assert not found.notes


def test_only_so_many_transactions_are_named() -> None:
    known = FollowedStates({})
    known.begin(lambda _: CAME_MS)
    for number in range(MOST_NOTES + 5):
        state = PREPARED._replace(producer=Producer(number, 4))
        known.take(build_batch([record_of(f"x{number}", state, 1)]))
    found = decide(known, {A: here(), B: here()})
    assert len(found.notes[A]) == MOST_NOTES + 1
    assert found.notes[A][-1] == "and 5 other transactions"


def test_damaged_records_are_counted_and_ids_that_no_broker_gives_do_not_count() -> None:
    known = states(PREPARED)
    for damaged in (b"", b"\x00" * 7, b"\xff" * 100):
        known.take(damaged)
    assert known.unreadable == 3
    known.take(build_batch([record_of("y", PREPARED._replace(next_id=NEVER_GIVEN), 1)]))
    assert known.highest_id == 7
