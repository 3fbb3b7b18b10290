"""Random requests of consumer groups, to Apache Kafka and to horolog: the same answers to all."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from bench.sides import horolog
from group_twins import TOPICS, Twins
from tools.peers.kafka import Kafka

EPISODES, STEPS = 12, 60
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    # A transaction that has offsets of one group may have those of all.
    "offsets.topic.num.partitions": "1",
}
OF_KAFKA = {
    "group.coordinator.rebalance.protocols": "classic",
    "transaction.state.log.num.partitions": "1",
}


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: Any) -> Iterator[tuple[str, str]]:
    ours, theirs = tmp_path_factory.mktemp("ours"), tmp_path_factory.mktemp("theirs")
    with (
        horolog(SETTINGS, directory=ours) as side,
        Kafka(theirs, settings={**SETTINGS, **OF_KAFKA}) as kafka,
    ):
        yield side.bootstrap, kafka.bootstrap


@pytest.mark.parametrize("seed", range(EPISODES))
def test_groups_offsets_and_transactions_are_answered_as_by_kafka(
    addresses: tuple[str, str], seed: int
) -> None:
    twins = Twins(*addresses, f"episode-{seed}-", Random(seed))
    try:
        twins.prepare()
        for topic in TOPICS:
            twins.create(topic)
        for _ in range(STEPS):
            twins.step()
        twins.look()
    finally:
        twins.close()
