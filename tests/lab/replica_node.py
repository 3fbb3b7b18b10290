"""A node that has replicas, and nothing else of a broker: logs, and fetchers of their leaders."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import UUID

from patience import PATIENCE_S, eventually
from storelogs import NOW, open_dir

from horolog.broker import (
    Checkers,
    ClockExchange,
    LiveSettings,
    Partition,
    ReplicaFetchers,
    ReplicaStatus,
    new_event_loop,
)
from horolog.client import Address, FetchingReplica, Security
from horolog.clock import Clock, ManualClock
from horolog.config import Settings, TopicConfig
from horolog.storage import Log, StampClock, TopicPartition

T = TypeVar("T")

QUICK = {"replica.fetch.backoff.ms": "20", "replica.fetch.wait.max.ms": "100"}
MOST_UNCOMPRESSED = 64 << 20


class ReplicaNode:
    """Node 2 of a cluster, unless another id is given; the test decides whom it follows."""

    def __init__(
        self,
        path: Path,
        addresses: Mapping[int, Address],
        *,
        node_id: int = 2,
        broker_epoch: Callable[[], int] = lambda: 7,
        level: int = 33,
        config: TopicConfig | None = None,
        settings: Mapping[str, str] | None = None,
        security: Security | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.path = path
        self.addresses = dict(addresses)
        self.replica = FetchingReplica(node_id, broker_epoch)
        self.level = level
        self.config = config or TopicConfig(retention_ms=-1)
        self._settings = Settings({**QUICK, **(settings or {})})
        self._security = security or Security()
        self.clock = clock or ManualClock(NOW)
        self.partitions: dict[TopicPartition, Partition] = {}

    def __enter__(self) -> Self:
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._workers = ThreadPoolExecutor(2)
        self._checkers = Checkers()
        self.log_dir = open_dir(self.path, self.config, follows=True)
        self.run(self._start())
        return self

    async def _start(self) -> None:
        live = LiveSettings(self._settings)
        self.stamps = StampClock()
        """Clock of append times of the node."""
        for key, log in self.log_dir.logs.items():
            self.partitions[key] = self._serve(log)
        self.fetchers = ReplicaFetchers(
            self.replica,
            self.addresses.get,
            lambda: self.level,
            live,
            self._security,
            self.clock,
            ClockExchange(self.stamps, self.clock, live),
        )

    def __exit__(self, *_: object) -> None:
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()
        self._workers.shutdown()
        self._checkers.shutdown()
        self.log_dir.close(clean=False)
        self.partitions.clear()

    async def _stop(self) -> None:
        await self.fetchers.close()
        for partition in self.partitions.values():
            await partition.close()

    def _serve(self, log: Log) -> Partition:
        return Partition(log, self._workers, self._checkers, MOST_UNCOMPRESSED)

    # What the test asks.

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the node's event loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    def call(self, call: Callable[[], T]) -> T:
        """Call a function on the node's event loop."""

        async def run() -> T:
            return call()

        return self.run(run())

    def log(self, topic: str = "t", index: int = 0) -> Log:
        return self.log_dir.logs[TopicPartition(topic, index)]

    def follow(
        self, leader: int, epoch: int, topic_id: UUID, *, topic: str = "t", index: int = 0
    ) -> None:
        """Take the role of a follower, as the metadata of the cluster say."""

        async def follow() -> None:
            key = TopicPartition(topic, index)
            if key not in self.partitions:
                self.log_dir.create(*key, topic_id, self.config, NOW)
                self.partitions[key] = self._serve(self.log_dir.logs[key])
            partition = self.partitions[key]
            role = partition.change(lambda log: log.become_follower(epoch))
            self.fetchers.follow(partition, leader, epoch, topic_id)
            await role

        self.run(follow())

    def lead(self, epoch: int, *, topic: str = "t", index: int = 0) -> None:
        """Take the role of a leader."""

        async def lead() -> None:
            partition = self.partitions[TopicPartition(topic, index)]
            self.fetchers.stop(partition)
            await partition.change(lambda log: log.become_leader(epoch, is_replicated=True))

        self.run(lead())

    def status(self, topic: str = "t", index: int = 0) -> ReplicaStatus | None:
        partition = self.partitions[TopicPartition(topic, index)]
        return self.call(lambda: self.fetchers.status_of(partition))

    def has_reached(
        self, end: int, *, committed: int | None = None, topic: str = "t", index: int = 0
    ) -> bool:
        """Whether the log comes to have this end, and the high watermark."""
        log = self.log(topic, index)
        found = eventually(
            lambda: (
                log.log_end_offset == end and (committed is None or log.high_watermark == committed)
            )
        )
        if not found:
            raise AssertionError(
                (log.log_end_offset, log.high_watermark, self.status(topic, index))
            )
        return found
