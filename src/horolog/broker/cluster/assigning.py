"""Reports to the controllers in which directory a replica is: AssignReplicasToDirs (KIP-858).

They place a replica without a directory, or in one that was lost, and elect no leader from there.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any, Final
from uuid import UUID

from horolog.broker.cluster.controllers import AskController
from horolog.broker.cluster.placement import ObservedImage
from horolog.errors import ErrorCode, HorologError
from horolog.metadata.image_changes import PartitionKey
from horolog.replication.roles import needs_directory
from horolog.wire.api import ApiKey

__all__ = ["DirectoryAssignments"]

_LOG = logging.getLogger(__name__)

MOST_AT_ONCE: Final = 2_250
"""Replicas of one request, as Kafka's brokers send."""
ANSWER_MS: Final = 10_000
_RETRY_S: Final = 1.0

_GONE: Final = (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id)


class DirectoryAssignments:
    """Assigns replicas to the directory of this broker. For the event loop's thread.

    Args:
        ask: asks the active controller.
        broker_epoch: returns the epoch of this broker's registration.
    """

    def __init__(
        self,
        node_id: int,
        directory_id: UUID,
        view: ObservedImage,
        ask: AskController,
        broker_epoch: Callable[[], int],
        retry_s: float = _RETRY_S,
    ) -> None:
        self._node_id = node_id
        self._directory_id = directory_id
        self._view = view
        self._ask = ask
        self._broker_epoch = broker_epoch
        self._retry_s = retry_s
        self._wanted: dict[PartitionKey, None] = {}
        self._sending: asyncio.Task[None] | None = None
        self._complaint: str | None = None

    @property
    def is_sending(self) -> bool:
        """True while replicas are to be assigned."""
        return self._sending is not None

    def look(self, key: PartitionKey) -> None:
        """Assign a replica whose log is here, unless the metadata say so already."""
        if self._is_needed(key):
            self._wanted[key] = None
            if self._sending is None:
                self._sending = asyncio.get_running_loop().create_task(self._send())

    async def close(self) -> None:
        """Stop sending."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])

    def _is_needed(self, key: PartitionKey) -> bool:
        topic = self._view.image.by_id.get(key.topic_id)
        partition = None if topic is None else topic.partitions.get(key.partition)
        return partition is not None and needs_directory(
            self._node_id, self._directory_id, partition
        )

    async def _send(self) -> None:
        try:
            while self._wanted:
                batch = [key for key in self._wanted if self._is_needed(key)][:MOST_AT_ONCE]
                if not batch:
                    break
                done = await self._assign(batch)
                for key in done:
                    self._wanted.pop(key, None)
                if len(done) < len(batch):
                    await asyncio.sleep(self._retry_s)
            self._wanted.clear()
        finally:
            self._sending = None

    async def _assign(self, batch: Collection[PartitionKey]) -> list[PartitionKey]:
        """Ask the controllers; return the replicas that they have assigned, or do not know."""
        topics: dict[UUID, list[int]] = {}
        for topic_id, index in batch:
            topics.setdefault(topic_id, []).append(index)
        request = {
            "broker_id": self._node_id,
            "broker_epoch": self._broker_epoch(),
            "directories": [
                {
                    "id_": self._directory_id,
                    "topics": [
                        {
                            "topic_id": topic_id,
                            "partitions": [{"partition_index": index} for index in indexes],
                        }
                        for topic_id, indexes in topics.items()
                    ],
                }
            ],
        }
        try:
            body = await self._ask(ApiKey.ASSIGN_REPLICAS_TO_DIRS, request, timeout_ms=ANSWER_MS)
        except HorologError as error:
            self._complain(str(error))
            return []
        if body.error_code != ErrorCode.none:
            self._complain(f"error {body.error_code}")
            return []
        answered = _answers(body)
        done = [key for key in batch if answered.get(key) in (ErrorCode.none, *_GONE)]
        if len(done) < len(batch):
            codes = {answered.get(key) for key in batch} - {ErrorCode.none, *_GONE}
            self._complain(f"errors {sorted(map(str, codes))}")
        else:
            self._complaint = None
        return done

    def _complain(self, why: str) -> None:
        """Log a reason, once until the controllers have assigned something."""
        if self._complaint is None:
            _LOG.warning("replicas are not assigned to this broker's directory yet: %s", why)
        self._complaint = why


def _answers(body: Any) -> dict[PartitionKey, int]:
    return {
        PartitionKey(topic.topic_id, partition.partition_index): partition.error_code
        for directory in body.directories
        for topic in directory.topics
        for partition in topic.partitions
    }
