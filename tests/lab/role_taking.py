"""A broker's logs, and roles for them by metadata that the test writes.

    with RoleTaking(tmp_path) as node:
        node.write(topic("t"), placed("t", leader=1))
        node.settle()
        node.log("t").is_following

The controllers answer nothing by themselves; whom it follows is in `node.follows`.
"""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Self, TypeVar
from uuid import UUID

from batches import batch
from patience import PATIENCE_S, eventually
from storelogs import NOW, open_dir

from horolog.broker import (
    Checkers,
    DirectoryAssignments,
    Leaders,
    LiveSettings,
    Partition,
    Partitions,
    Roles,
    new_event_loop,
)
from horolog.broker.cluster.view import ClusterView
from horolog.clock import ManualClock
from horolog.config import Settings
from horolog.errors import StorageFailed
from horolog.metadata import Image
from horolog.metadata.image_changes import TrackedImage
from horolog.metadata.topics import Topic, TopicRegistry
from horolog.schemas.metadata import PartitionRecord, Record, RemoveTopic, TopicRecord
from horolog.storage import Files, Log, TopicPartition
from horolog.wire import ApiKey

T = TypeVar("T")

HERE: Final = 1
DIRECTORY: Final = UUID(int=1_000)


def id_of(name: str, life: int = 0) -> UUID:
    """The id of a topic in one of its lives."""
    return UUID(bytes=name.encode().ljust(15, b"\0") + bytes([life]))


def topic(name: str = "t", life: int = 0) -> TopicRecord:
    return TopicRecord(name, id_of(name, life))


def gone(name: str = "t", life: int = 0) -> RemoveTopic:
    return RemoveTopic(id_of(name, life))


def placed(
    name: str = "t",
    index: int = 0,
    *,
    leader: int = HERE,
    epoch: int = 0,
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] | None = None,
    life: int = 0,
    partition_epoch: int = 0,
    directories: tuple[UUID, ...] = (),
) -> PartitionRecord:
    """A partition after a change."""
    return PartitionRecord(
        index,
        id_of(name, life),
        replicas,
        replicas if isr is None else isr,
        (),
        (),
        leader,
        0,
        epoch,
        max(epoch, partition_epoch),
        directories,
    )


class Follows:
    """Notes whom the node follows."""

    def __init__(self, now: dict[TopicPartition, tuple[int, int]]) -> None:
        self._now = now

    def follow(
        self, partition: Partition, leader_id: int, leader_epoch: int, topic_id: UUID
    ) -> None:
        assert partition.log.is_following
        assert partition.log.topic_id == topic_id
        assert not partition.is_closed
        self._now[TopicPartition(partition.topic, partition.index)] = leader_id, leader_epoch

    def stop(self, partition: Partition) -> None:
        self._now.pop(TopicPartition(partition.topic, partition.index), None)

    def on_brokers(self) -> None:
        """Addresses do not matter."""


class RoleTaking:
    """Node 1 of a cluster, with logs of its own and no network."""

    def __init__(self, path: Path, *, files: Files | None = None) -> None:
        self.path = path
        self.follows: dict[TopicPartition, tuple[int, int]] = {}
        """Leader and epoch by partition."""
        self.assigned: list[Any] = []
        """Requests to assign replicas to directories."""
        self.assigning: Any = lambda body: {}
        """Gives the error of each partition in them; raises one."""
        self._files = files
        self._before = Image()
        self._tracked = TrackedImage(self._before)

    def __enter__(self) -> Self:
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._workers = ThreadPoolExecutor(4)
        self._checkers = Checkers()
        self.clock = ManualClock(NOW)
        assigned = {
            TopicPartition(its.name, index): its.topic_id
            for its in self._tracked.image.topics.values()
            for index, state in its.partitions.items()
            if HERE in state.replicas
        }
        self.log_dir = open_dir(self.path, files=self._files, assigned=assigned)
        self.run(self._begin())
        return self

    async def _begin(self) -> None:
        self.view = ClusterView()
        self.view.image = self._tracked.image
        self.topics = TopicRegistry()
        live = LiveSettings(Settings())
        self._fill()
        self.partitions = Partitions(
            self.log_dir, list(self.topics), live, self.clock, self._workers, self._checkers
        )
        self.leaders = Leaders(HERE, self.view, self._ask, lambda: 7, self.clock, lag_max_ms=30_000)
        self.directories = DirectoryAssignments(
            HERE, DIRECTORY, self.view, self._ask, lambda: 7, retry_s=0.01
        )
        self.roles = Roles(
            HERE,
            self.view,
            self.topics,
            self.partitions,
            self.leaders,
            Follows(self.follows),
            self.directories,
            on_failure=lambda why: None,
            retry_s=0.05,
        )

    def __exit__(self, *_: object) -> None:
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()
        self._workers.shutdown()
        self._checkers.shutdown()

    async def _end(self) -> None:
        await self.roles.close()
        await self.leaders.close()
        await self.directories.close()
        await self.partitions.close(clean=True)

    async def _ask(self, api_key: ApiKey, body: Any, /, *, timeout_ms: int) -> Any:
        if api_key is not ApiKey.ASSIGN_REPLICAS_TO_DIRS:
            raise StorageFailed("no controller answers")
        self.assigned.append(body)
        errors = self.assigning(body)
        return SimpleNamespace(
            error_code=0,
            directories=[
                SimpleNamespace(
                    id_=directory["id_"],
                    topics=[
                        SimpleNamespace(
                            topic_id=its["topic_id"],
                            partitions=[
                                SimpleNamespace(
                                    partition_index=one["partition_index"],
                                    error_code=errors.get(one["partition_index"], 0),
                                )
                                for one in its["partitions"]
                            ],
                        )
                        for its in directory["topics"]
                    ],
                )
                for directory in body["directories"]
            ],
        )

    # --- metadata -----------------------------------------------------------------------

    def _fill(self) -> None:
        image = self._tracked.image
        for known in list(self.topics):
            its = image.topics.get(known.name)
            if its is None or its.topic_id != known.topic_id:
                self.topics.remove(known.name)
        for its in image.topics.values():
            self.topics.put(
                Topic(name=its.name, topic_id=its.topic_id, partitions=tuple(its.partitions))
            )

    def write(self, *records: Record) -> None:
        """Apply records in one step, as a batch of the metadata log."""

        async def apply() -> None:
            for record in records:
                self._tracked.apply(record)
            changes = self._tracked.take(1)
            self._fill()
            for call in self.view.on_changes:
                call(changes)

        if hasattr(self, "_loop"):
            self.run(apply())
        else:  # before it starts
            for record in records:
                self._tracked.apply(record)
            self._tracked.take(1)

    def start(self) -> Self:
        """Take the roles of the image."""
        self.run(self.roles.start())
        return self

    def settle(self) -> None:
        """Wait until no role is wanted any more."""
        assert eventually(lambda: self.roles.is_settled)

    # --- what the test asks -------------------------------------------------------------

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the node's event loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    def partition(self, name: str = "t", index: int = 0) -> Partition | None:
        async def find() -> Partition | None:
            return self.partitions.find(name, index)

        return self.run(find())

    def log(self, name: str = "t", index: int = 0) -> Log:
        partition = self.partition(name, index)
        assert partition is not None
        log: Log = partition.log
        return log

    def role(self, name: str = "t", index: int = 0) -> tuple[str, int]:
        """Role and leader epoch of a log, as all parts have it."""
        partition = self.partition(name, index)
        if partition is None:
            assert (name, index) not in self.follows
            return "none", -1
        log, followed = partition.log, self.follows.get(TopicPartition(name, index))
        if not log.is_following:
            assert followed is None
            is_replicated = log.known_high_watermark is not None
            assert (partition.leading is not None) == is_replicated
            return "leads" if is_replicated else "leads alone", log.leader_epoch
        assert partition.leading is None
        if followed is None:
            return "waits", log.leader_epoch
        assert followed[1] == log.leader_epoch
        return f"follows {followed[0]}", log.leader_epoch

    def append(self, name: str = "t", index: int = 0) -> None:
        """Append a batch of two records as a producer."""

        async def append() -> None:
            partition = self.partitions[name, index]
            appended = partition.writes.append(batch(NOW, NOW), NOW, 9, "a")
            if isinstance(appended, asyncio.Future):
                await appended

        self.run(append())

    def directories_on_disk(self) -> set[str]:
        """Names of partitions' directories, without those that are being removed."""
        return {
            found.name
            for found in self.path.iterdir()
            if found.is_dir() and not found.name.endswith("-delete")
        }
