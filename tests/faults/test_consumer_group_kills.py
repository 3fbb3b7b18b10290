"""Consumer groups (KIP-848) whose members and broker are killed while records flow."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from broker_nursery import Nursery
from killed_broker import reported, say
from member_soak import MemberSoak

SEED = int(os.environ.get("SEED") or random.randrange(1 << 30))
KILLS = int(os.environ.get("KILLS") or 300)


def soak(
    nursery: Nursery, directory: Path, kills: int, seed: int, *, progress: bool = False
) -> MemberSoak:
    with reported(MemberSoak(nursery, directory, seed)) as run:
        run.run(kills, progress=progress)
    return run


@pytest.mark.timeout(1800)  # seconds on a machine that is not busy
def test_killed_members_and_brokers_lose_no_record_and_give_no_partition_twice(
    nursery: Nursery, tmp_path: Path
) -> None:
    run = soak(nursery, tmp_path, kills=1, seed=78)
    assert run.counts["kills of a stable group"] > 0
    assert run.counts["members killed"] > 0
    assert run.counts["joins by classic"] > 0


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_hundreds_of_kills_lose_no_record_and_give_no_partition_twice(
    nursery: Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        say(f"\n{KILLS} kills; to do the same again: make soak KILLS={KILLS} SEED={SEED}\n")
        run = soak(nursery, tmp_path, KILLS, SEED, progress=True)
        say(f"\n{run.summary}\n")
    assert run.counts["kills of a stable group"] > 0
