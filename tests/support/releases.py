"""An Apache Kafka of any release, ready for topics."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patience import PATIENCE_S
from tools.peers.kafka import Kafka, release

from horolog.client import Client


@contextmanager
def running(peer: str, directory: Path) -> Iterator[Kafka]:
    """Started; under a ZooKeeper it takes connections before there is a controller."""
    with release(peer, directory) as kafka:
        until_s = time.monotonic() + PATIENCE_S
        with Client(kafka.bootstrap) as client:
            while client.metadata([]).controller_id is None:
                assert time.monotonic() < until_s, kafka.tail()
                time.sleep(0.1)
        yield kafka
