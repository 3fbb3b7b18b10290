"""Kafka's internal topics, in which the coordinators of this broker keep their state.

A topic is created when its coordinator first needs it. It is listed, read, compacted and closed
like any topic, but clients cannot write to it or change its partitions. If another product owns the
log directory, the topic is in the state directory (metadata/home.py).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from typing import Final

from horolog.broker.catalogue import Catalogue
from horolog.broker.new_topics import INTERNAL
from horolog.broker.partition import Partition
from horolog.buffers import Buffer
from horolog.config import LONG_MAX
from horolog.errors import StorageFailed
from horolog.record.builder import LogRecord
from horolog.record.kernels.loading import REPLAY_WORTH_KERNELS
from horolog.record.stamped import stamped_records
from horolog.schemas.offsets import partition_for
from horolog.storage.file_errors import FileMissing, WouldBlock
from horolog.storage.logs.appendable import Appended
from horolog.storage.logs.incoming import Batch, StampedRecords
from horolog.storage.logs.readable import ReadableLog
from horolog.storage.names import CONSUMER_OFFSETS
from horolog.storage.validation.validate import Prepared, trusted

_LOG = logging.getLogger(__name__)

_OF_LATEST_VALUES: Final = frozenset({CONSUMER_OFFSETS})
"""Topics in which the latest value of a key counts, readable or not. In __transaction_state the
latest readable value counts."""


class StateTopic:
    """One internal topic. For the event loop's thread only."""

    def __init__(
        self,
        name: str,
        create: Callable[[str], Awaitable[object]],
        catalogue: Catalogue,
        readers: Executor,
    ) -> None:
        """Describe the topic of a name, which may not exist yet.

        Args:
            create: creates the internal topic of a name, unless it exists.
            readers: threads that loads run in.
        """
        self.name = name
        self._create = create
        self._live, self._clock, self._topics, self._partitions, self._follow_state = catalogue
        self._readers = readers
        self._loop = asyncio.get_running_loop()

    @property
    def count(self) -> int:
        """Number of its partitions, or of those that it would be created with."""
        topic = self._topics.find(self.name)
        if topic is None:
            return INTERNAL[self.name](self._live.config).partitions
        return topic.partitions[-1] + 1

    @property
    def exists(self) -> bool:
        """True if it has been created."""
        return self.name in self._topics

    @property
    def is_followed(self) -> bool:
        """True if the source writes it, which this broker follows; also before it is here."""
        topic = self._topics.find(self.name)
        if topic is None:
            return self._follow_state.awaits(self.name, self._topics)
        return topic.followed

    @property
    def is_ready(self) -> bool:
        """True if it has been created, and its settings are known."""
        topic = self._topics.find(self.name)
        return topic is not None and not topic.adopted

    @property
    def most_bytes(self) -> int:
        """Largest size of one batch: that of a segment."""
        partition = self._partitions.find(self.name, 0) or next(self._partitions_of(), None)
        return LONG_MAX if partition is None else partition.log.config.segment_bytes

    async def ready(self) -> None:
        """Create it, unless it exists.

        Raises:
            RequestRefused: its settings cannot be.
            StorageFailed: a write failed; it is not made.
        """
        if not self.is_ready:
            await self._create(self.name)

    def epoch(self, index: int) -> int:
        """Return the leader epoch of a partition; 0 if it is offline."""
        partition = self._partitions.find(self.name, index)
        return 0 if partition is None else partition.log.leader_epoch

    def partition_of(self, key: str) -> int:
        """Return the partition with the state of a group or a transactional id."""
        return partition_for(key, self.count)

    def prepared(self, index: int, batch: bytes) -> Prepared:
        """Check a whole batch of format v2 for `append`; any thread may call it.

        Raises:
            RequestRefused: it is larger than a segment may be.
            StorageFailed: the partition is offline.
        """
        return trusted(batch, self._partition(index).log.config, self._clock.now_ms())

    def append(self, index: int, batch: Batch) -> "asyncio.Future[Appended] | None":
        """Append a batch in the order of the calls; return None if it is in the log.

        Otherwise that takes a while, as a roll does: it is when the future is done. It survives a
        kill of the process; `flush.ms` and `flush.messages` of the topic say when the disk has it.

        Raises, or the future does:
            RequestRefused: it is larger than a segment may be (18), or the end of a transaction is
                of an earlier epoch (47) or coordinator (35).
            StorageFailed: a write failed, or the partition is offline.
        """
        appended = self._partition(index).append(batch, self._clock.now_ms())
        return None if isinstance(appended, Appended) else appended

    def append_record(self, key: str, record: LogRecord) -> "asyncio.Future[Appended] | None":
        """Append one record about a group or a transactional id; otherwise like `append`."""
        records = StampedRecords(stamped_records([record]), 1, record.timestamp)
        return self.append(self.partition_of(key), records)

    def append_at_once(self, key: str, records: StampedRecords) -> bool:
        """Append records about a group or a transactional id, if that does not block.

        Returns:
            False, without any effect, where the topic is not ready, the write may block or has to
            queue, or the partition is offline.

        Args:
            key: the group or the transactional id.

        Raises:
            RequestRefused: the batch is larger than a segment may be (18).
            StorageFailed: a write failed.
        """
        topic = self._topics.find(self.name)
        if topic is None or topic.adopted:
            return False
        partition = self._partitions.find(self.name, partition_for(key, topic.partitions[-1] + 1))
        if partition is None:
            return False
        try:
            partition.writes.append_own(records, records.now_ms, may_block=False)
        except WouldBlock:
            return False
        return True

    def _partitions_of(self) -> Iterator[Partition]:
        topic = self._topics.find(self.name)
        for index in () if topic is None else topic.partitions:
            partition = self._partitions.find(self.name, index)
            if partition is not None:
                yield partition

    async def load(self, index: int, take: Callable[[Buffer], None]) -> None:
        """Pass the batches of a partition to `take` in a thread, control batches too.

        Of a long history those that are superseded may be left out. Each is valid until the next.
        Of a damaged log what can be read counts; the rest is named in the broker's log.

        Raises:
            StorageFailed: the disk refused, the partition is offline, or compaction has removed a
                segment while it was read: what was taken is to be discarded.
        """
        if self.exists:
            log = self._partition(index).log
            size = sum(partition.log.size for partition in self._partitions_of())
            of_latest = self.name in _OF_LATEST_VALUES and size >= REPLAY_WORTH_KERNELS
            await self._loop.run_in_executor(self._readers, _load, log, take, of_latest)

    def _partition(self, index: int) -> Partition:
        partition = self._partitions.find(self.name, index)
        if partition is None:
            why = self._partitions.why_offline(self.name, index)
            raise StorageFailed(f"{self.name}-{index} is offline: {why}")
        return partition


def _load(log: ReadableLog, take: Callable[[Buffer], None], of_latest: bool) -> None:
    try:
        for damage in log.replay_latest(take) if of_latest else log.replay(take):
            _LOG.error("%s: some of its state may be lost: %s", log, damage)
    except FileMissing as error:
        raise StorageFailed(str(error)) from error
