"""Transactions of real clients, and a broker and clients that are killed."""

import os
import random
from pathlib import Path

import pytest
from broker_nursery import Nursery
from killed_broker import reported, say
from transaction_soak import TransactionSoak

SEED = int(os.environ.get("SEED") or random.randrange(1 << 30))
KILLS = int(os.environ.get("KILLS") or 300)
MOST_STEPS = 60  # of a promotion, that change the disk
HOW = [{"catches_up": c, "dies": d} for d in (False, True) for c in (True, False)]
A_FEW_S = 1800  # for what takes seconds on a machine that is not busy


def soak(
    nursery: Nursery,
    path: Path,
    *,
    seed: int,
    kills: int = 1 << 30,
    ways: list[str | None] | None = None,
    progress: bool = False,
    **more: int,
) -> TransactionSoak:
    with reported(TransactionSoak(nursery, path, seed, ways_to_die=ways, **more)) as run:
        run.run(kills, progress=progress)
    return run


@pytest.mark.timeout(A_FEW_S)
def test_committed_records_are_given_once_and_whole_over_kills(
    nursery: Nursery, tmp_path: Path
) -> None:
    few = {"producers": 1, "seconds": 1, "transformers": 1, "ended_a_life": 4}
    run = soak(nursery, tmp_path, seed=5, ways=["marker:5", "complete:3"], **few)
    assert run.counts["kills at marker"] == run.counts["kills at complete"] == 1
    assert run.counts["transactions committed"] > 0


def over_a_promotion(
    nursery: Nursery,
    path: Path,
    seed: int,
    *,
    catches_up: bool,
    ended: int,
    dies: bool = False,
    **more: int,
) -> TransactionSoak:
    """A promotion after this number of transactions, of a source that may die between markers.

    Whoever is promoted may die, too, at a step of the promotion, and is promoted again.
    """
    with reported(TransactionSoak(nursery, path, seed, ways_to_die=[], **more)) as run:
        run.follow(dies=f"promote:{run.rng.randrange(MOST_STEPS)}" if dies else None)
        run.load(ended)
        if not catches_up:
            run.await_states()
            run.load_until(f"marker:{run.rng.randrange(2 * ended)}")
        run.promote(catches_up=catches_up)
        run.load(ended)
        run.finish()
    return run


@pytest.mark.slow
@pytest.mark.timeout(A_FEW_S)
@pytest.mark.parametrize("how", HOW)
def test_no_committed_transaction_is_cut_by_a_promotion(
    nursery: Nursery, tmp_path: Path, how: dict[str, bool]
) -> None:
    few = {"producers": 1, "seconds": 1, "transformers": 1, "ended": 4}
    run = over_a_promotion(nursery, tmp_path, 4, **few, **how)
    assert run.counts["transactions committed"] > 0


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("turn", range(max(KILLS // 20, 1)))
def test_no_committed_transaction_is_cut_by_many_promotions(
    nursery: Nursery, tmp_path: Path, turn: int, how: dict[str, bool]
) -> None:
    run = over_a_promotion(nursery, tmp_path, SEED + turn, ended=60, **how)
    assert run.counts["transactions committed"] > 0


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_committed_records_are_given_once_and_whole_over_hundreds_of_kills(
    nursery: Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        say(f"\n{KILLS} kills; to do the same again: make soak KILLS={KILLS} SEED={SEED}\n")
        run = soak(nursery, tmp_path, kills=KILLS, seed=SEED, progress=True)
        say(f"\n{run.summary}\n")
    assert run.counts["transactions that timed out"] > 0
    assert run.counts["kills at marker"] > 0
    assert run.counts["kills at complete"] > 0
