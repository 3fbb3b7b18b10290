"""Streams that write exactly once to Apache Kafka while a task or the driver is killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from killed_streams import KilledStreams, prepare
from tools.peers.kafka import NEWEST, Kafka

from horolog.client import Client

pytestmark = [pytest.mark.timeout(3600), pytest.mark.spark]


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    with Kafka(tmp_path / "kafka", peer=NEWEST) as kafka, Client(kafka.bootstrap) as client:
        prepare(client)
        yield kafka.bootstrap


class TestStreams(KilledStreams):
    """To Apache Kafka."""
