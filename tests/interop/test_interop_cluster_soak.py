"""Clusters of Kafka's and horolog's brokers under faults: `make soak-cluster FAULTS= SEED=`."""

import os
import random
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from cluster_soak import ClusterSoak, given_number
from tools.cluster import Cluster

FAULTS = given_number("FAULTS", 4)
SEED = given_number("SEED", random.SystemRandom().randrange(1 << 30))
BROKERS = os.environ.get("BROKERS") or "khh"
CONTROLLERS = given_number("CONTROLLERS", 1)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_nothing_acknowledged_is_lost_under_faults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def say(line: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()

    say(f"SEED={SEED} BROKERS={BROKERS} FAULTS={FAULTS}")
    settings = {"broker.session.timeout.ms": "6000"}
    cluster = Cluster(tmp_path, BROKERS, CONTROLLERS, of_controllers=settings)
    with ExitStack() as stack:
        soak = ClusterSoak(cluster, SEED, stack)
        for number in range(1, FAULTS + 1):
            say(f"{number}: {soak.fault()}; {soak.history.count} acknowledged")
        assert not (problems := soak.finish()), f"SEED={SEED}: {problems[:20]}"
