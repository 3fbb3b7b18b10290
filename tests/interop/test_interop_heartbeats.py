"""Random heartbeats of consumer groups, to Apache Kafka and to horolog: the same answers to all."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from bench.sides import horolog
from heartbeat_twins import HeartbeatTwins
from tools.peers.kafka import Kafka

EPISODES, STEPS = 40, 80
SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "1",
    "group.consumer.max.session.timeout.ms": "3600000",
    "group.consumer.session.timeout.ms": "3600000",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: Any) -> Iterator[tuple[str, str]]:
    ours, theirs = tmp_path_factory.mktemp("ours"), tmp_path_factory.mktemp("theirs")
    with (
        horolog(SETTINGS, directory=ours) as side,
        Kafka(theirs, settings=SETTINGS) as kafka,
    ):
        yield side.bootstrap, kafka.bootstrap


@pytest.mark.parametrize("seed", range(EPISODES))
def test_heartbeats_and_commits_are_answered_as_by_kafka(
    addresses: tuple[str, str], seed: int
) -> None:
    twins = HeartbeatTwins(*addresses, f"heartbeats-{seed}-", Random(seed))
    try:
        twins.prepare()
        for _ in range(STEPS):
            twins.step()
        twins.look()
    finally:
        twins.close()
