"""Partitions that a broker in this process leads for replicas, as a broker of a cluster does.

The metadata are an image that the test changes. Proposals are sent once the test has called
`answer_with`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from running_broker import RunningBroker

from horolog.broker.cluster.leading import Leaders
from horolog.broker.cluster.placement import ClusterPlacement
from horolog.broker.dispatch import SHORTCUTS_IN_CLUSTER, Dispatcher
from horolog.broker.partition import Partition
from horolog.clock import ManualClock
from horolog.errors import StorageFailed
from horolog.metadata import Image
from horolog.metadata.image_changes import Changes
from horolog.replication.leading import RETRY_MS
from horolog.schemas.metadata import (
    BrokerChange,
    BrokerEndpoint,
    PartitionRecord,
    RegisterBroker,
    TopicRecord,
)
from horolog.wire import ApiKey

HERE: Final = 1
EPOCH: Final = 5
"""Leader epoch of the partitions at first."""
BROKER_EPOCHS: Final[Mapping[int, int]] = {1: 101, 2: 102, 3: 103}


class LedPartitions:
    """Makes a broker lead the partitions of a topic; brokers 2 and 3 are their other replicas.

    Args:
        isr: in-sync replicas at first.
        min_isr: `min.insync.replicas`; None for the topic's.
        has_shortcuts: whether a later fetch of a session is answered by its shortcut.
    """

    def __init__(
        self,
        broker: RunningBroker,
        topic: str = "t",
        *,
        replicas: tuple[int, ...] = (1, 2, 3),
        isr: tuple[int, ...] = (1, 2, 3),
        min_isr: int | None = None,
        lag_max_ms: int = 30_000,
        has_shortcuts: bool = True,
    ) -> None:
        if has_shortcuts:
            dispatcher = broker.service.server.shared.dispatch
            assert isinstance(dispatcher, Dispatcher)
            dispatcher.shortcuts = dispatcher.shortcuts | SHORTCUTS_IN_CLUSTER
        self.broker, self.topic, self.image = broker, topic, Image()
        self._min_isr, self._lag_max_ms = min_isr, lag_max_ms
        self.proposed: list[Any] = []
        """What the controllers were asked for, whole requests."""
        self._answer: Callable[[Any], Any] | None = None
        self.fetched_by: list[tuple[str, int, int]] = []
        """Partition, replica and offset of each fetch that was noted."""
        topic_id = broker.broker.topics.find(topic).topic_id
        self.topic_id: UUID = topic_id
        records: list[Any] = [
            RegisterBroker(
                node,
                False,
                UUID(int=node),
                epoch,
                (BrokerEndpoint("PLAINTEXT", f"host{node}", 9000 + node),),
                (),
                None,
                False,
                False,
                (UUID(int=900 + node),),
            )
            for node, epoch in BROKER_EPOCHS.items()
        ]
        records.append(TopicRecord(topic, topic_id))
        for index in broker.broker.topics.find(topic).partitions:
            placed = PartitionRecord(index, topic_id, replicas, isr, (), (), HERE, 0, EPOCH, 1)
            records.append(placed)
        for record in records:
            self.image.apply(record)
        broker.run(self._begin())

    async def _begin(self) -> None:
        parts = self.broker.broker
        parts.placement = ClusterPlacement(HERE, self, parts.partitions)
        parts.led = parts.placement.led
        parts.replicas = self
        self.leaders = Leaders(
            HERE,
            self,
            self._ask,
            lambda: BROKER_EPOCHS[HERE],
            parts.clock,
            lag_max_ms=self._lag_max_ms,
        )
        for index in parts.topics.find(self.topic).partitions:
            await self._lead(index)

    async def _lead(self, index: int) -> None:
        parts, record = self.broker.broker, self.record(index)
        partition = parts.partitions[self.topic, index]
        await partition.change(
            lambda log: log.become_leader(
                record.leader_epoch, is_replicated=len(record.replicas) > 1
            )
        )
        if self._min_isr is not None:
            partition.log.config = replace(partition.log.config, min_insync_replicas=self._min_isr)
        self.leaders.lead(partition, record)

    async def _ask(self, api_key: ApiKey, body: Any, /, *, timeout_ms: int) -> Any:
        assert api_key is ApiKey.ALTER_PARTITION
        self.proposed.append(body)
        if self._answer is None:
            raise StorageFailed("no controller answers")
        return self._answer(body)

    def answer_with(self, answer: Callable[[Any], Any]) -> None:
        """Send proposals, and answer them so from now on; it may raise a HorologError."""
        is_first, self._answer = self._answer is None, answer
        if is_first:
            self.broker.call(self.leaders.start)

    def close(self) -> None:
        """Send no more."""
        self.broker.run(self.leaders.close())

    def record(self, index: int = 0) -> PartitionRecord:
        """The partition in the image."""
        found: PartitionRecord = self.image.topics[self.topic].partitions[index]
        return found

    def partition(self, index: int = 0) -> Partition:
        """The partition here."""
        found: Partition = self.broker.broker.partitions[self.topic, index]
        return found

    def tick(self) -> bool:
        """Let the time of a retry pass; True, so that a condition can begin with it."""
        assert isinstance(self.broker.clock, ManualClock)
        self.broker.clock.advance(RETRY_MS)
        return True

    # --- what the controllers decide --------------------------------------------------

    def change(self, index: int = 0, **fields: Any) -> None:
        """Change a partition that stays led here."""

        async def change() -> None:
            known, partition = self.record(index), self.partition(index)
            new = known._replace(partition_epoch=known.partition_epoch + 1, **fields)
            self.image.apply(new)
            is_replicated = len(new.replicas) > 1
            await partition.change(lambda log: log.set_replicated(is_replicated))
            self.leaders.lead(partition, new)

        self.broker.run(change())

    def fence(self, broker_id: int) -> None:
        """Fence a broker."""

        async def fence() -> None:
            change = BrokerChange(broker_id, BROKER_EPOCHS[broker_id], 1)
            self.image.apply(change)
            brokers = {broker_id: self.image.brokers[broker_id]}
            self.leaders.on_changes(Changes(offset=1, brokers=brokers))
            await self.leaders.look()

        self.broker.run(fence())

    def lose(self, index: int = 0, leader: int = 2) -> None:
        """Let another broker lead a partition, in the next epoch."""

        async def lose() -> None:
            known = self.record(index)
            epoch = known.leader_epoch + 1
            self.image.apply(
                known._replace(
                    leader=leader, leader_epoch=epoch, partition_epoch=known.partition_epoch + 1
                )
            )
            partition = self.partition(index)
            self.leaders.stop(known)
            await partition.change(lambda log: log.become_follower(epoch))

        self.broker.run(lose())

    def win(self, index: int = 0) -> None:
        """Let this broker lead a partition again, in the next epoch."""

        async def win() -> None:
            known = self.record(index)
            self.image.apply(
                known._replace(
                    leader=HERE,
                    leader_epoch=known.leader_epoch + 1,
                    partition_epoch=known.partition_epoch + 1,
                )
            )
            await self._lead(index)

        self.broker.run(win())

    # --- what requests ask ------------------------------------------------------------

    @property
    def note_every_ms(self) -> int:
        """As the leader."""
        return self.leaders.note_every_ms

    def check_replica(self, partition: Partition, replica_id: int) -> None:
        """As the leader."""
        self.leaders.check_replica(partition, replica_id)

    def fetched(
        self,
        partition: Partition,
        replica_id: int,
        broker_epoch: int,
        offset: int,
        log_start: int,
        leader_end: int,
    ) -> None:
        """As the leader."""
        self.leaders.fetched(partition, replica_id, broker_epoch, offset, log_start, leader_end)
        self.fetched_by.append((partition.name, replica_id, offset))

    # --- what replicas send -----------------------------------------------------------

    def fields(
        self,
        offsets: Mapping[int, int],
        *,
        replica: int = 2,
        broker_epoch: int | None = None,
        epoch: int | None = None,
        last_epoch: int = -1,
        start: int = 0,
        topic_id: UUID | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """The fields of a fetch from these offsets, by partition."""
        partitions = [
            {
                "partition": index,
                "current_leader_epoch": EPOCH if epoch is None else epoch,
                "fetch_offset": offset,
                "last_fetched_epoch": last_epoch,
                "log_start_offset": start,
                "partition_max_bytes": 1 << 20,
            }
            for index, offset in offsets.items()
        ]
        topics = [{"topic_id": topic_id or self.topic_id, "partitions": partitions}]
        known = BROKER_EPOCHS.get(replica, -1)
        state = {
            "replica_id": replica,
            "replica_epoch": known if broker_epoch is None else broker_epoch,
        }
        fields = {"max_wait_ms": 0, "min_bytes": 1, "topics": topics if partitions else []}
        return {**fields, "replica_state": state, **more}

    def fetch(self, offset: int, index: int = 0, *, version: int = 18, **more: Any) -> Any:
        """The answer about one partition."""
        fields = self.fields({index: offset}, **more)
        if version < 15:
            fields["replica_id"] = fields.pop("replica_state")["replica_id"]
        (topic,) = self.broker.ask(ApiKey.FETCH, version, **fields).responses
        return topic.partitions[0]

    def reach(self, offset: int, *replicas: int, index: int = 0) -> None:
        """Let replicas fetch from an offset."""
        for replica in replicas:
            found = self.fetch(
                offset, index, replica=replica, epoch=self.record(index).leader_epoch
            )
            assert found.error_code == 0, found
