import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.sources import EpochSpan, ReplicaStretch, merge_replicas


def test_one_replica_is_the_log() -> None:
    assert merge_replicas([[EpochSpan(5, 9, 0), EpochSpan(9, 20, 3)]]) == [ReplicaStretch(0, 5, 20)]


def test_replicas_of_one_epoch_complete_each_other() -> None:
    first, second = [EpochSpan(100, 200, 4)], [EpochSpan(150, 300, 4)]
    assert merge_replicas([first, second]) == [
        ReplicaStretch(0, 100, 200),
        ReplicaStretch(1, 200, 300),
    ]
    assert merge_replicas([second, first]) == [
        ReplicaStretch(1, 100, 200),
        ReplicaStretch(0, 200, 300),
    ]


@pytest.mark.parametrize("end", [180, 120])
def test_the_higher_leader_epoch_wins_and_nothing_of_a_lower_one_follows_it(end: int) -> None:
    """The other's writer had missed an election; its tail was never served."""
    missed_the_election = [EpochSpan(0, 150, 1)]
    elected = [EpochSpan(0, 100, 1), EpochSpan(100, end, 2)]
    pieces = merge_replicas([missed_the_election, elected])
    assert pieces == [ReplicaStretch(0, 0, 100), ReplicaStretch(1, 100, end)]


def test_a_hole_that_no_replica_fills_stays_a_hole() -> None:
    pieces = merge_replicas([[EpochSpan(0, 10, 0)], [EpochSpan(30, 40, 0)]])
    assert pieces == [ReplicaStretch(0, 0, 10), ReplicaStretch(1, 30, 40)]


def test_no_replicas_have_no_log() -> None:
    assert merge_replicas([]) == []
    assert merge_replicas([[]]) == []


SPANS = st.lists(
    st.builds(
        lambda start, lengths: [
            EpochSpan(
                start + sum(length for _, length in lengths[:n]),
                start + sum(length for _, length in lengths[: n + 1]),
                sum(step for step, _ in lengths[: n + 1]),
            )
            for n in range(len(lengths))
        ],
        st.integers(0, 20),
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), max_size=4),
    ),
    max_size=4,
)


@given(SPANS)
def test_at_each_offset_the_highest_epoch_is_read_unless_a_higher_one_came_before(replicas) -> None:
    epochs = [
        {offset: span.epoch for span in spans for offset in range(span.start, span.end)}
        for spans in replicas
    ]
    read = {
        offset: piece.replica for piece in merge_replicas(replicas) for offset in range(*piece[1:])
    }
    newest = -1
    for offset in range(100):
        best = max((each[offset] for each in epochs if offset in each), default=-1)
        if best < 0 or best < newest:
            assert offset not in read
        else:
            assert epochs[read[offset]][offset] == best
            newest = best
