"""An Apache Kafka of any release, ready for topics."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patience import eventually
from tools.peers.kafka import Kafka, release

from horolog.client import Client


@contextmanager
def running(peer: str, directory: Path) -> Iterator[Kafka]:
    """Started; under a ZooKeeper it takes connections before there is a controller."""
    with release(peer, directory) as kafka:
        with Client(kafka.bootstrap) as client:
            has_controller = eventually(lambda: client.metadata([]).controller_id is not None)
            assert has_controller, kafka.tail()
        yield kafka
