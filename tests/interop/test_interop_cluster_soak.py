"""Clusters of Kafka's and horolog's brokers under faults: `make soak-cluster FAULTS= SEED=`."""

import os
import random
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from cluster_soak import ONCE, PLAIN, STAMPED, ClusterSoak, given_number, problems_of_files
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from patience import eventually
from tools.cluster import Cluster

FAULTS = given_number("FAULTS", 4)
MINUTES = given_number("MINUTES", 1 << 30)
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
        until = time.monotonic() + MINUTES * 60
        for number in range(1, FAULTS + 1):
            if time.monotonic() > until:
                say(f"{MINUTES} minutes are over")
                break
            say(f"{number}: {soak.fault()}; {soak.history.count} acknowledged")
        assert not (problems := soak.finish()), f"SEED={SEED}: {problems[:20]}"
        say(f"all {soak.history.count} acknowledged records are there")


def test_soak_finds_what_is_lost_doubled_and_different(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "hh")
    with ExitStack() as stack:
        soak = ClusterSoak(cluster, SEED, stack)
        history, needed = soak.history, {(it, 0) for it in (PLAIN, ONCE, STAMPED)}
        assert eventually(lambda: all(len(history.acknowledged[it]) > 20 for it in needed))
        soak.end_load()
        once = history.acknowledged[ONCE, 0]
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        producer.produce(ONCE, once[min(once)].value, partition=0)
        assert producer.flush(60) == 0
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for future in admin.delete_records([TopicPartition(PLAIN, 0, 1)]).values():
            future.result(60)
        found = soak.problems()
        segment = cluster.nodes[0].log_dir / f"{STAMPED}-0" / f"{0:020}.log"
        whole = segment.read_bytes()
        segment.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        differing = list(problems_of_files(cluster.nodes, soak.topics))
    of_plain, of_once = f"{(PLAIN, 0)} 0: ", f"{(ONCE, 0)} "
    lost = [it for it in found if it.startswith(of_plain) and "there is nothing" in it]
    doubled = [it for it in found if it.startswith(of_once) and "after number" in it]
    assert any("was acknowledged" in it for it in lost), found
    assert len(doubled) == 1, found
    assert set(found) == {*lost, *doubled}
    assert [it.split(" at ")[0] for it in differing] == [f"{STAMPED}-0 differs in h1 and h2"]
