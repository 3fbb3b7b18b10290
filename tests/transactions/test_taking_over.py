"""What becomes of a source's transactions at a promotion, case by case."""

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from horolog.record.builder import build_batch
from horolog.schemas.transactions import Status
from horolog.storage.names import CONSUMER_OFFSETS, FOLLOWED_OFFSETS, TopicPartition
from horolog.storage.producers.states import NEVER_GIVEN, NO_END, LastEnd
from horolog.transactions.replay import record_of
from horolog.transactions.taking_over import (
    MOST_DECIDED,
    MOST_NOTES,
    MOST_TORN,
    FollowedStates,
    PartitionHere,
    ProducersHere,
    TakenOver,
    taken_over,
    with_places,
)
from horolog.transactions.values import LAST_EPOCH, Producer, Transaction

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
    written_ms: int = 1,
) -> FollowedStates:
    known = FollowedStates(parts)
    known.begin(lambda _: CAME_MS)
    for state in log:
        known.take(build_batch([record_of(name, state, written_ms)]))
    return known


def decide(
    known: FollowedStates,
    partitions: Mapping[TopicPartition, PartitionHere],
    *,
    is_led: bool = False,
) -> TakenOver:
    return taken_over(known, partitions, BEGUN_MS, NOW_MS, is_current=True, is_led=is_led)


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


@pytest.mark.parametrize("written_ms", [33, 30])
def test_markers_up_to_the_record_of_a_completion_are_of_that_transaction(written_ms: int) -> None:
    """A Kafka takes the state's own time before the markers, and writes the record after them."""
    complete = COMPLETE._replace(client_version=0)
    known = states(complete, written_ms=written_ms)
    marker = LastEnd(complete.producer.epoch, True, 32)
    found = decide(known, {A: here(end=marker, confirmed_ms=201)})
    assert bool(found.notes) is (written_ms < marker.timestamp)


def test_commit_with_a_marker_is_completed_and_named() -> None:
    found = decide(states(PREPARED), {A: here(end=MARKER), B: here()})
    assert not found.changed
    assert found.outcomes[B].goes_on == {7}
    assert list(found.notes) == [B]


def test_partition_that_lacks_records_of_a_commit_with_a_marker_aborts_its_part() -> None:
    found = decide(states(PREPARED), {A: here(end=MARKER), B: here(behind=True)})
    assert found.changed["x"].status is Status.PREPARE_COMMIT
    assert found.changed["x"].partitions == {tuple(A)}
    assert found.outcomes[B][:2] == (frozenset(), frozenset())
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


FOLLOWED = TopicPartition(FOLLOWED_OFFSETS, 3)


def with_offsets(state: Transaction) -> Transaction:
    return state._replace(partitions=state.partitions | {(CONSUMER_OFFSETS, 3)})


def test_offsets_of_a_group_that_are_followed_count_as_a_partition() -> None:
    sure, late = here(confirmed_ms=BEGUN_MS), here(confirmed_ms=CAME_MS)
    for state in (ONGOING, PREPARED):
        parts = {A: sure, B: sure, FOLLOWED: sure}
        found = decide(states(with_offsets(state), parts=parts), parts)
        assert not found.changed
        assert found.outcomes[FOLLOWED].goes_on == {7}
        parts = {A: sure, B: sure, FOLLOWED: late}
        found = decide(states(with_offsets(state), parts=parts), parts)
        assert found.changed["x"].status is Status.PREPARE_ABORT
        assert FOLLOWED in found.notes


def test_marker_of_the_offsets_decides_what_their_transaction_is() -> None:
    parts = {A: here(), B: here(), FOLLOWED: here(end=MARKER)}
    found = decide(states(with_offsets(PREPARED), parts=parts), parts)
    assert not found.changed
    assert found.outcomes[A].goes_on == {7}
    behind = {A: here(end=MARKER), B: here(), FOLLOWED: here(behind=True)}
    found = decide(states(with_offsets(PREPARED), parts=behind), behind)
    assert not any(found.outcomes[FOLLOWED])
    assert "did not arrive" in found.notes[FOLLOWED][0]


def test_states_that_go_on_have_the_partitions_where_their_offsets_are_carried_to() -> None:
    sure = here(confirmed_ms=BEGUN_MS)
    parts = {A: sure, B: sure, FOLLOWED: sure}
    known = states(with_offsets(ONGOING), parts=parts)
    place = TopicPartition(CONSUMER_OFFSETS, 1)
    written = with_places(decide(known, parts).changed, known.states, {7: {place}})
    assert written["x"].partitions == {A, B, FOLLOWED, place}
    assert written["x"].status is Status.ONGOING
    # A promotion that was interrupted has written it; that of a source is of its own source.
    for is_repeated, index in ((True, 3), (False, 1)):
        again = FollowedStates(parts, is_repeated=is_repeated)
        again.note("x", written["x"])
        assert again.states["x"].partitions == {A, B, (FOLLOWED_OFFSETS, index)}
    assert not with_places({}, {"x": COMPLETE}, {7: {place}})


def test_completed_commit_is_completed_in_a_partition_that_lacks_its_marker() -> None:
    parts = {A: here(end=MARKER), B: here(confirmed_ms=101)}
    found = decide(states(PREPARED, COMPLETE, parts=parts), parts)
    assert not found.changed
    assert not found.notes
    assert found.outcomes[B].committed == {7}
    parts = {A: here(end=MARKER), B: here()}
    unsure = decide(states(PREPARED, COMPLETE, parts=parts), parts)
    assert unsure.outcomes[B].committed == {7}
    assert list(unsure.notes) == [B]


def test_completed_commit_that_did_not_arrive_is_named_and_not_cut_within_a_partition() -> None:
    parts = {A: here(end=MARKER), B: here(behind=True)}
    found = decide(states(PREPARED, COMPLETE, parts=parts), parts)
    assert found.outcomes[B][:2] == (frozenset(), frozenset())
    assert "did not arrive" in found.notes[B][0]


def test_completed_abort_is_aborted_where_its_marker_is_missing() -> None:
    log = [
        PREPARED._replace(status=Status.PREPARE_ABORT),
        COMPLETE._replace(status=Status.COMPLETE_ABORT),
    ]
    found = decide(states(*log), {A: here(), B: here()})
    assert found.outcomes[A][:2] == found.outcomes[B][:2] == (frozenset(), frozenset())


def test_next_transaction_does_not_take_what_the_former_has_left_open() -> None:
    after = ONGOING._replace(producer=Producer(7, 4), started_ms=40, updated_ms=40)
    parts = {A: here(end=MARKER), B: here(confirmed_ms=BEGUN_MS)}
    found = decide(states(PREPARED, COMPLETE, after), parts)
    assert found.outcomes[B][:2] == (frozenset(), {7})
    assert found.changed["x"].status is Status.PREPARE_ABORT


def test_first_transaction_of_a_producer_in_a_partition_is_not_taken_for_the_next() -> None:
    """In the first flow both have one epoch, and the partition has no marker of it yet."""
    first = PREPARED._replace(producer=Producer(7, 3), client_version=0)
    done = first._replace(status=Status.COMPLETE_COMMIT, partitions=frozenset())
    second = ONGOING._replace(started_ms=40, updated_ms=40, client_version=0)
    opened = PartitionHere(ProducersHere(50, {7: 3}, {7: NO_END}))
    parts = {A: here(end=LastEnd(3, True, 21)), B: opened}
    found = decide(states(first, done, second, parts=parts), parts)
    assert found.outcomes[B].committed == {7}
    assert "'x' was committed at the source: " in found.notes[B][0]


def test_producers_that_have_ended_nothing_are_not_counted_as_unknown() -> None:
    parts = {A: PartitionHere(ProducersHere(50, {}, {7: NO_END, 8: LastEnd(0, True, 5)}))}
    found = taken_over(states(), parts, BEGUN_MS, NOW_MS, is_current=False)
    assert "transactions of 1 producers ended" in found.notes[A][0]
    assert found.notes[A][0].endswith("producer ids 8")


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


def test_each_partition_that_lacks_commits_is_named_however_many_came_since() -> None:
    """Nothing of them is open there: their records did not arrive either."""
    log = []
    for number in range(2 * MOST_DECIDED):
        partitions = PREPARED.partitions if number == 0 else frozenset({tuple(A)})
        prepare = PREPARED._replace(
            producer=Producer(7, 4 + number), started_ms=10 * number, partitions=partitions
        )
        log += [prepare, prepare._replace(status=Status.COMPLETE_COMMIT, partitions=frozenset())]
    parts = {A: here(end=LastEnd(log[-1].producer.epoch, True, 500)), B: here(opened=None)}
    found = decide(states(*log, parts=parts), parts)
    assert [*found.notes] == [B]
    assert len(found.notes[B]) == 1
    assert "'x' was committed at the source: records of it from offset 50" in found.notes[B][0]


@pytest.mark.parametrize("is_commit", [True, False])
def test_what_is_open_is_not_of_a_decision_of_a_later_epoch(is_commit: bool) -> None:
    """Compaction at the source has removed its own: what it was is not known, and said."""
    status = Status.PREPARE_COMMIT if is_commit else Status.PREPARE_ABORT
    later = PREPARED._replace(producer=Producer(7, 9), status=status)
    done = later._replace(
        status=Status.COMPLETE_COMMIT if is_commit else Status.COMPLETE_ABORT,
        partitions=frozenset(),
    )
    for log in ([later], [later, done]):
        parts = {A: here(end=LastEnd(9, is_commit, 30)), B: here(confirmed_ms=101)}
        found = decide(states(*log, parts=parts), parts)
        assert found.outcomes[B][:2] == (frozenset(), frozenset())
        assert "a transaction of 'x' was aborted, as no end and no state" in found.notes[B][-1]


def test_decision_of_an_epoch_that_was_raised_ends_what_its_first_state_had_open() -> None:
    """A fence at Kafka raises it by two, and a promotion by more: the state before has its own."""
    raised = PREPARED._replace(producer=Producer(7, 9), started_ms=ONGOING.started_ms)
    parts = {A: here(end=LastEnd(4, True, 21)), B: here(confirmed_ms=101)}
    found = decide(states(ONGOING, raised, parts=parts), parts)
    assert found.outcomes[B].goes_on == {7}
    assert not found.changed


def test_what_is_open_behind_the_marker_of_the_last_decision_is_of_the_next_transaction() -> None:
    state = PREPARED._replace(producer=Producer(7, 3), client_version=0)
    opened = ProducersHere(50, {7: 3}, {7: LastEnd(3, True, 30)})
    parts = {A: here(confirmed_ms=101), B: PartitionHere(opened, 101)}
    found = decide(states(state, parts=parts), parts)
    assert found.outcomes[A].goes_on == {7}
    assert found.outcomes[B] == (frozenset(), frozenset(), frozenset({7}))
    assert "a transaction of 'x' was aborted, as no end and no state" in found.notes[B][-1]


def test_marker_in_a_partition_that_the_last_decision_has_not_is_of_a_later_transaction() -> None:
    state = PREPARED._replace(producer=Producer(7, 3), client_version=0)
    c = TopicPartition("v", 0)
    parts = {A: here(end=LastEnd(3, True, 25)), c: here(end=LastEnd(3, True, 40))}
    found = decide(states(state, parts=parts), parts)
    assert "'x' was ended at the source after its last state" in found.notes[c][0]
    parts[c] = here(end=LastEnd(3, True, 15))
    assert not decide(states(state, parts=parts), parts).notes


def test_second_flow_is_not_taken_for_the_first_after_an_initialisation_alone() -> None:
    """The marker of one epoch is of the transaction before what is open with it elsewhere."""
    empty = Transaction(Producer(7, 0), 60_000, Status.EMPTY, updated_ms=5)
    found = decide(states(empty), {A: here(end=LastEnd(3, True, 30)), B: here()})
    assert found.outcomes[B][:2] == (frozenset(), frozenset())
    first = decide(states(empty), {A: here(end=LastEnd(0, True, 30)), B: here(opened=0)})
    assert first.outcomes[B][:2] == (frozenset(), {7}), "of the first flow, for certain"


def test_what_is_open_ends_as_the_first_transaction_whose_marker_is_missing() -> None:
    """The partition stopped in the middle of history."""
    second = PREPARED._replace(producer=Producer(7, 5), status=Status.PREPARE_ABORT, updated_ms=40)
    log = [PREPARED, COMPLETE, second, second._replace(status=Status.COMPLETE_ABORT)]
    end = LastEnd(5, False, 41)
    found = decide(states(*log), {A: here(end=end), B: here(confirmed_ms=101)})
    assert found.outcomes[B][:2] == (frozenset(), {7})


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
    assert found.outcomes[B][:2] == (frozenset(), {7} if commits else frozenset())
    assert not found.changed


def test_open_transaction_whose_state_did_not_come_is_aborted_and_named() -> None:
    found = decide(states(), {A: here()})
    assert found.outcomes[A][:2] == (frozenset(), frozenset())
    (said,) = found.notes[A]
    assert said == (
        "a transaction of 'producer id 7' was aborted, as no end and no state of it came, and may "
        "be committed at the source: records of it from offset 50 on and in other partitions may "
        "not have arrived"
    )


@pytest.mark.parametrize(
    ("end", "is_its"),
    [
        (LastEnd(3, True, 30), False),
        (LastEnd(3, True, 31), True),
        (LastEnd(3, False, 31), False),
        (LastEnd(4, True, 5), True),
        (LastEnd(4, False, 31), False),
        (LastEnd(5, True, 31), False),
    ],
)
def test_marker_of_a_transaction_that_began_after_the_states_which_came_decides(
    end: LastEnd, is_its: bool
) -> None:
    complete = COMPLETE._replace(producer=Producer(7, 3), client_version=0)
    found = decide(states(complete), {A: here(end=end), B: here()})
    assert found.outcomes[B][:2] == (frozenset(), {7} if is_its else frozenset())
    assert B in found.notes
    outruns = end != LastEnd(3, True, 30)
    assert ("ended at the source after its last state" in str(found.notes.get(A))) is outruns


def test_complete_state_decides_where_its_prepare_is_compacted() -> None:
    for status, is_commit in ((Status.COMPLETE_COMMIT, True), (Status.COMPLETE_ABORT, False)):
        found = decide(
            states(COMPLETE._replace(status=status)), {A: here(end=LastEnd(5, True, 40)), B: here()}
        )
        assert found.outcomes[B][:2] == (frozenset(), {7} if is_commit else frozenset())


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize(
    "state",
    [
        ONGOING,
        PREPARED,
        COMPLETE,
        COMPLETE._replace(producer=Producer(7, 8), status=Status.EMPTY),
    ],
)
def test_states_that_are_late_by_many_transactions_decide_on_none_of_the_later_ones(
    state: Transaction, is_commit: bool
) -> None:
    """`__transaction_state` is followed for itself; what is open ends as its own marker says."""
    c = TopicPartition("v", 0)
    opened = ProducersHere(50, {7: 11}, {7: LastEnd(11, not is_commit, 90)})
    parts = {A: here(end=LastEnd(12, is_commit, 99)), B: PartitionHere(opened), c: here(end=MARKER)}
    found = decide(states(state), parts)
    assert found.outcomes[B][:2] == (frozenset(), {7} if is_commit else frozenset())
    assert "'x' was ended at the source after its last state that came" in found.notes[A][-1]
    assert ("'x' was committed at the source" in str(found.notes[B])) is is_commit


@pytest.mark.parametrize("state", [ONGOING, PREPARED, COMPLETE])
def test_epoch_goes_on_above_all_that_came_where_states_are_late(state: Transaction) -> None:
    """Else the next producer's records, and the markers, would be fenced."""
    found = decide(states(state), {A: here(end=LastEnd(12, True, 99)), B: here(opened=None)})
    after = found.changed["x"]
    assert after.producer == Producer(7, 14), "an EndTxn with 13 is no retry"
    last = decide(states(state), {A: here(end=LastEnd(LAST_EPOCH, True, 99)), B: here(opened=None)})
    assert last.changed["x"].producer == Producer(7, LAST_EPOCH)
    assert last.changed["x"].is_exhausted


def test_producer_is_fenced_whose_next_transaction_began_after_its_last_state() -> None:
    """It would commit the rest of what is aborted here."""
    found = decide(states(COMPLETE), {A: here(end=MARKER), B: here(opened=4)})
    assert found.changed["x"].producer == Producer(7, 6)
    assert found.outcomes[B][:2] == (frozenset(), frozenset())


def test_what_is_open_after_a_marker_of_the_first_flow_is_not_committed_by_the_same_end() -> None:
    """Its own marker and the other partition's may be of one transaction, and it of the next."""
    complete = COMPLETE._replace(producer=Producer(7, 3), client_version=0)
    opened = ProducersHere(50, {7: 3}, {7: LastEnd(3, True, 40)})
    found = decide(states(complete), {A: here(end=LastEnd(3, True, 41)), B: PartitionHere(opened)})
    assert found.outcomes[B][:2] == (frozenset(), frozenset())
    assert "a transaction of 'x' was aborted, as no end and no state of it" in found.notes[B][-1]


def test_late_ongoing_state_is_committed_as_its_own_marker_says() -> None:
    opened = ProducersHere(50, {7: 4}, {7: LastEnd(4, True, 21)})
    found = decide(states(ONGOING), {A: PartitionHere(opened), B: here()})
    assert found.changed["x"].status is Status.PREPARE_COMMIT
    assert found.outcomes[B].goes_on == {7}
    assert found.outcomes[A][:2] == (frozenset(), frozenset())


def test_producers_of_which_no_state_came_are_counted_and_what_is_open_ends_as_they_did() -> None:
    parts = {A: here(end=MARKER), B: here()}
    found = taken_over(states(), parts, BEGUN_MS, NOW_MS, is_current=False)
    assert (
        "transactions of 1 producers ended at the source, of which no state came"
        in (found.notes[A][0])
    )
    assert found.outcomes[B][:2] == (frozenset(), {7})
    assert "'producer id 7' was committed at the source" in found.notes[B][0]
    planned = decide(states(), {A: here(end=MARKER), B: here(opened=None)})
    assert not planned.notes, "it has expired"


@pytest.mark.parametrize("ms", [12, 5])
def test_commit_of_the_first_flow_whose_marker_has_an_earlier_time_is_not_turned(ms: int) -> None:
    """The source's clock went back between the decision and the marker."""
    state = PREPARED._replace(producer=Producer(7, 3), client_version=0)
    end = LastEnd(3, True, ms)
    parts = {A: here(confirmed_ms=101, end=end), B: here()}
    found = decide(states(state), parts)
    assert not found.changed
    assert found.outcomes[B].goes_on == {7}
    assert "committed at the source: records of it" in found.notes[B][0]


@pytest.mark.parametrize(
    "end", [LastEnd(3, True, 5), LastEnd(3, False, 12), LastEnd(2, True, 12), LastEnd(4, True, 9)]
)
def test_marker_of_an_earlier_transaction_of_the_first_flow_is_not_taken_for_its_own(
    end: LastEnd,
) -> None:
    state = PREPARED._replace(producer=Producer(7, 3), client_version=0)
    found = decide(states(state), {A: here(end=end), B: here()})
    is_later = end.epoch > 3  # that it has ended is certain
    expected = Status.PREPARE_COMMIT if is_later else Status.PREPARE_ABORT
    assert found.changed.get("x", state).status is expected


@pytest.mark.parametrize("is_next", [False, True])
@pytest.mark.parametrize("rotates", [False, True])
def test_commit_whose_decision_is_compacted_away_is_completed_where_its_epoch_is_open(
    is_next: bool, rotates: bool
) -> None:
    done, opened = COMPLETE, {7: 3}
    if rotates:
        done = COMPLETE._replace(producer=Producer(9, 0), previous_id=7)
        opened = {7: LAST_EPOCH - 1}
    after = done._replace(status=Status.ONGOING, partitions=ONGOING.partitions)
    behind = TopicPartition("v", 0)
    parts = {
        A: here(end=MARKER),
        B: PartitionHere(ProducersHere(50, opened, {})),
        behind: PartitionHere(ProducersHere(50, opened, {}), is_behind=True),
    }
    found = decide(states(*[done, after][: 1 + is_next], parts=parts), parts)
    assert found.outcomes[B][:2] == (frozenset(), {7})
    assert "may not have arrived" in found.notes[B][0]
    assert found.outcomes[behind][:2] == (frozenset(), frozenset())
    assert "did not arrive" in found.notes[behind][0]


@pytest.mark.parametrize(
    ("status", "opened", "version"),
    [
        (Status.COMPLETE_ABORT, 3, 2),
        (Status.COMPLETE_COMMIT, 2, 2),
        (Status.COMPLETE_COMMIT, 4, 2),
        (Status.COMPLETE_COMMIT, 3, 0),
    ],
)
def test_what_is_open_of_another_epoch_than_the_commit_is_aborted(
    status: Status, opened: int, version: int
) -> None:
    parts = {B: here(opened=opened)}
    done = COMPLETE._replace(status=status, client_version=version)
    found = decide(states(done, parts=parts), parts)
    assert found.outcomes[B][:2] == (frozenset(), frozenset())


def test_part_that_was_aborted_stays_so_where_an_interrupted_promotion_decides_again() -> None:
    parts = {A: here(end=MARKER), B: here(behind=True)}
    after = decide(states(PREPARED), parts).changed["x"]
    parts = {A: here(end=MARKER), B: here()}
    again = decide(states(PREPARED, after, parts=parts), parts)
    assert again.outcomes[B][:2] == (frozenset(), frozenset())


@pytest.mark.parametrize("version", [0, 2])
def test_commit_that_a_promotion_has_turned_is_aborted_in_topics_that_are_promoted_later(
    version: int,
) -> None:
    state = PREPARED._replace(client_version=version)
    turned = decide(states(state), {A: here()}).changed["x"]
    assert turned.status is Status.PREPARE_ABORT
    done = turned._replace(status=Status.COMPLETE_ABORT, partitions=frozenset())
    parts = {B: here(opened=3 if version else 4)}
    found = decide(states(state, turned, done, parts=parts), parts, is_led=True)
    assert found.outcomes[B][:2] == (frozenset(), frozenset())


def test_commit_of_the_coordinator_here_is_not_turned_by_a_later_promotion() -> None:
    found = decide(states(PREPARED), {B: here()}, is_led=True)
    assert not found.changed
    assert found.outcomes[B].goes_on == {7}
    assert "committed at the source: records of it" in found.notes[B][0]


def test_later_promotion_aborts_only_what_is_in_its_topics_and_not_confirmed() -> None:
    state = ONGOING._replace(partitions=ONGOING.partitions | {(CONSUMER_OFFSETS, 3)})
    other = TopicPartition("v", 0)
    assert not decide(states(state), {other: here(opened=None)}, is_led=True).changed
    assert not decide(states(state), {B: here(confirmed_ms=BEGUN_MS)}, is_led=True).changed
    found = decide(states(state), {B: here(confirmed_ms=BEGUN_MS - 1)}, is_led=True)
    assert found.changed["x"].status is Status.PREPARE_ABORT


def test_removed_transactional_id_has_nothing_open() -> None:
    found = decide(states(PREPARED, None), {A: here(opened=None)})
    assert not found.changed
    assert not found.notes


def prepared_ids(count: int) -> FollowedStates:
    """As many transactional ids whose commit is decided."""
    known = FollowedStates({})
    for number in range(count):
        known.note(f"x{number}", PREPARED._replace(producer=Producer(number, 4)))
    return known


def test_only_so_many_transactions_are_named() -> None:
    found = decide(prepared_ids(MOST_NOTES + 5), {A: here(), B: here()})
    assert len(found.notes[A]) == MOST_NOTES + 1
    assert found.notes[A][-1] == "and 5 other transactions are aborted here"


@pytest.mark.parametrize("beyond", [0, 5])
def test_so_many_transactions_are_named_that_may_be_here_in_part(beyond: int) -> None:
    known = prepared_ids(MOST_TORN + beyond)
    ends = dict.fromkeys(range(MOST_TORN + beyond), MARKER)
    found = decide(known, {A: PartitionHere(ProducersHere(50, {}, ends)), B: here()})
    named, counted = found.notes[B][:MOST_TORN], found.notes[B][MOST_TORN:]
    assert all("committed at the source: " in each for each in named)
    due = [f"and {beyond} other transactions may be here in part"] if beyond else []
    assert (len(named), counted) == (MOST_TORN, due)


def test_damaged_records_are_counted_and_ids_that_no_broker_gives_do_not_count() -> None:
    known = states(PREPARED)
    for damaged in (b"", b"\x00" * 7, b"\xff" * 100):
        known.take(damaged)
    assert known.unreadable == 3
    known.take(build_batch([record_of("y", PREPARED._replace(next_id=NEVER_GIVEN), 1)]))
    assert known.highest_id == 7
