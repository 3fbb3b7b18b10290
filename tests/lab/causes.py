"""Appends in the order of their answers, by which cuts are shown to be closed."""

import random
import threading
from typing import NamedTuple

from running_broker import NOW_MS

from horolog.client import Client
from horolog.errors import HorologError
from horolog.record import Codec, LogRecord, build_batch
from horolog.sources import Cut
from horolog.storage import TopicPartition

PARTITIONS = [TopicPartition(f"t{topic}", number) for topic in range(5) for number in range(10)]
SMALL = build_batch([LogRecord(NOW_MS, None, b"v")])
LARGE = build_batch([LogRecord(NOW_MS, None, bytes(200_000))] * 3, codec=Codec.GZIP)


class Arrival(NamedTuple):
    """An answered append, and how many had been answered when it was sent."""

    partition: TopicPartition
    offset: int
    causes: int


class Arrivals:
    """Appends in the order of their answers."""

    def __init__(self) -> None:
        self.answered: list[Arrival] = []
        self._lock = threading.Lock()

    def write_until_killed(self, address: str, seed: int) -> None:
        """Append at random, until the broker answers no more."""
        try:
            while True:
                self.write(address, seed, timeout_ms=2_000)
                seed += 1
        except HorologError:
            return

    def write(self, address: str, seed: int, timeout_ms: int = 60_000) -> None:
        """Append at random, to any partition; what was answered before is a cause of it."""
        chosen = random.Random(seed)
        with Client(address, timeout_ms=timeout_ms) as client:
            for _ in range(12):
                partition = chosen.choice(PARTITIONS)
                causes = len(self.answered)
                batch = LARGE if chosen.random() < 0.3 else SMALL
                offset = client.produce(*partition, batch).base_offset
                assert offset is not None
                with self._lock:
                    self.answered.append(Arrival(partition, offset, causes))

    def check(self, cut: Cut) -> None:
        """Check that the causes of all that is in a cut are in it, too."""
        entries = cut.by_partition()
        assert {entry.why for entry in entries.values()} == {None}
        within = [its.offset < entries[its.partition].offset for its in self.answered]
        causes = max(
            (its.causes for its, is_in in zip(self.answered, within, strict=True) if is_in),
            default=0,
        )
        assert all(within[:causes])
