"""Which offset a follower truncates to: Kafka's cases by name, and logs that diverge at random."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replica_model import Model

from horolog.replication.truncation import Agree, AskAgain, TruncateTo, truncation
from horolog.storage import EpochStart


def follow(follower: Model, leader: Model, leads_in: int) -> int:
    """Truncate as decided; how often the leader was asked."""
    asked = 0
    epoch = follower.epochs[-1].epoch if follower.records else None
    while epoch is not None:
        asked += 1
        answer = leader.end_of(epoch, leads_in)
        match truncation(follower.epochs, len(follower.records), *answer):
            case AskAgain(earlier):
                assert earlier < epoch
                epoch = earlier
            case TruncateTo(offset):
                assert offset < len(follower.records)
                del follower.records[offset:]
                epoch = None
            case Agree():
                epoch = None
    return asked


class Case(NamedTuple):
    follower: list[tuple[int, int]]  # epoch, count
    leader: list[tuple[int, int]]
    leads_in: int
    keeps: int


KAFKAS = {
    # KIP-101
    "follower_is_behind": Case([(0, 5)], [(0, 8)], 0, 5),
    "follower_has_what_was_never_committed": Case([(0, 8)], [(0, 5), (1, 4)], 1, 5),
    "leader_lost_its_tail_and_has_written_nothing": Case([(0, 8)], [(0, 5)], 1, 5),
    "leader_is_empty": Case([(0, 8)], [], 1, 0),
    # KIP-279
    "follower_has_an_epoch_that_the_leader_never_had": Case(
        [(0, 4), (1, 3)], [(0, 6), (2, 2)], 2, 4
    ),
    "fast_failovers_leave_two_epochs_to_cut": Case(
        [(0, 3), (2, 2), (4, 2)], [(0, 3), (1, 2), (3, 2), (5, 1)], 5, 3
    ),
    "leader_knows_less_of_a_shared_epoch": Case(
        [(0, 2), (1, 5), (3, 2)], [(0, 2), (1, 3), (2, 4), (4, 1)], 4, 5
    ),
    "no_common_epoch": Case([(1, 3)], [(2, 5)], 2, 0),
}


@pytest.mark.parametrize("case", KAFKAS.values(), ids=KAFKAS)
def test_cases_of_the_kips(case: Case) -> None:
    follower, leader = Model(), Model()
    for model, written in ((follower, case.follower), (leader, case.leader)):
        for epoch, count in written:
            model.append(epoch, "", count)
    follow(follower, leader, case.leads_in)
    assert len(follower.records) == case.keeps


def test_of_epochs_that_the_leader_never_had_nothing_stays() -> None:
    """Also where the follower knows none before them: Kafka's rule would keep 50 records."""
    assert truncation([EpochStart(5, 100)], 200, 3, 150) == TruncateTo(100)


def test_a_log_without_epochs_is_cut_to_the_leaders_end() -> None:
    assert truncation([], 200, 3, 150) == TruncateTo(150)
    assert truncation([], 200, 3, 250) == Agree()


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Model], int]:
    """Replicas of one partition after elections, clean or not: any may lead next."""
    replicas = [Model() for _ in range(3)]
    epoch = draw(st.integers(0, 3))
    for _ in range(draw(st.integers(1, 8))):
        leader = draw(st.integers(0, 2))
        replicas[leader].append(epoch, f"{leader} in {epoch}", draw(st.integers(0, 4)))
        for number in draw(st.sets(st.integers(0, 2))) - {leader}:
            follow(replicas[number], replicas[leader], epoch)
            have = len(replicas[number].records)
            upto = draw(st.integers(have, max(have, len(replicas[leader].records))))
            replicas[number].records += replicas[leader].records[have:upto]
        epoch += draw(st.integers(1, 3))
    return replicas, epoch


@given(histories())
def test_a_follower_keeps_exactly_what_it_shares_with_the_leader(
    history: tuple[list[Model], int],
) -> None:
    (leader, follower, _), epoch = history
    before = list(follower.records)
    shared = 0
    for mine, theirs in zip(before, leader.records, strict=False):
        if mine != theirs:
            break
        shared += 1
    asked = follow(follower, leader, epoch)
    assert follower.records == before[:shared]
    assert asked <= len({epoch for epoch, _ in before})
