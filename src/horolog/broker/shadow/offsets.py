"""Reads the committed offsets of the source's groups from its `__consumer_offsets`, as copied here.

The topic is followed like any other, as `FOLLOWED_OFFSETS`, beside the groups of this broker.
Offsets of a transaction count from its marker on. A promotion uses the pending ones.

Each reading continues the last one. The last values are held in memory up to a limit. Beyond it,
and if the source denies the topic, groups are asked (groups.py).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from horolog.broker.catalogue import Catalogue
from horolog.broker.partition import Partition
from horolog.broker.scheduling.uncancelled import uncancelled
from horolog.broker.shadow.follower import Follower
from horolog.broker.shadow.groups import FollowedGroups, GroupChanges
from horolog.client.groups import CommittedOffset
from horolog.errors import CorruptBatch, ErrorCode, HorologError, RequestRefused, code_for
from horolog.groups.replay import RECORD_BYTES, GroupReplay, held_bytes
from horolog.groups.rows import PendingRow
from horolog.offsets import TopicPartition
from horolog.record.batch import MAGIC, iter_headers
from horolog.record.builder import LogRecord
from horolog.schemas.offsets import OffsetKey, read_committed, read_key
from horolog.storage.file_errors import FileMissing
from horolog.storage.names import FOLLOWED_OFFSETS

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

MOST_BYTES: Final = 128 << 20
"""Limit of memory for the offsets of a source's groups, including open transactions."""

_READ_BYTES: Final = 1 << 20
_OF_OFFSETS: Final = (b"\0\0", b"\0\1")  # what keys of offsets begin with


class _Replayed(GroupReplay):
    """Last values of a partition's keys, and the keys that have changed."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: set[bytes] = set()
        self._kept_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Approximate size in memory."""
        return self._kept_bytes + self._pending.held_bytes

    def _that_count(self, records: Iterable[LogRecord]) -> list[LogRecord]:
        """Leave out the records of groups' members."""
        return [record for record in records if (record.key or b"")[:2] in _OF_OFFSETS]

    def _apply(self, records: Iterable[LogRecord]) -> None:
        for record in records:
            key = record.key or b""
            before = self._kept.get(key)
            super()._apply((record,))
            after = self._kept.get(key)
            if after is not before:
                self.changed.add(key)
                self._kept_bytes -= 0 if before is None else held_bytes(before.key, before.value)
                self._kept_bytes += 0 if after is None else held_bytes(after.key, after.value)

    def all_changed(self) -> None:
        """Count all offsets as changed."""
        self.changed.update(self._kept)

    def value(self, key: bytes) -> bytes | None:
        """Return the last value of a key."""
        kept = self._kept.get(key)
        return None if kept is None else kept.value


class _Reading:
    """Progress of reading one partition."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.replayed = _Replayed()
        self.why: str | None = None
        """Reason why it is not read."""
        self._position = 0
        self._truncations = partition.log.truncations

    @property
    def is_current(self) -> bool:
        """True if the records that were read are still in the log."""
        return not (self.partition.is_closed or self.is_cut)

    @property
    def is_cut(self) -> bool:
        """True if the log was truncated since the reading began."""
        return self._truncations != self.partition.log.truncations

    def read(self, most_bytes: int) -> None:
        """Read the records that have arrived; may wait for the disk.

        Raises:
            StorageFailed: the disk refused.
        """
        log = self.partition.log
        self._position = max(self._position, log.log_start_offset)
        while self._position < log.high_watermark:
            records = log.read(self._position, _READ_BYTES).read()
            before, view = self._position, memoryview(records)
            for position, header in iter_headers(view):
                if header.next_offset <= self._position:
                    continue
                if header.magic != MAGIC:
                    raise CorruptBatch("it has records of a format before v2", position)
                its_bytes = header.records_count * RECORD_BYTES
                is_taken = self.replayed.held_bytes + its_bytes <= most_bytes
                if is_taken and header.records_count:  # else it stands for a gap
                    self.replayed.take(view[position : position + header.size])
                if not is_taken or self.replayed.held_bytes > most_bytes:
                    raise RequestRefused(
                        ErrorCode.coordinator_not_available,
                        f"the offsets of all groups take more than {MOST_BYTES} bytes",
                    )
                self._position = header.next_offset
            if self._position == before:
                break

    def stop(self, why: str) -> None:
        """Stop reading, and free the memory."""
        self.why, self.replayed = why, _Replayed()


class SourceOffsets:
    """Committed offsets of the source. For the event loop's thread only, under `lock`."""

    def __init__(self, catalogue: Catalogue, follower: Follower, groups: FollowedGroups) -> None:
        self.lock = asyncio.Lock()
        _, _, self._topics, self._partitions, _ = catalogue
        self._follower = follower
        self._groups = groups
        self._readings: dict[int, _Reading] = {}
        self._known: object = None  # what an offset counts by, when it was last applied

    def _indexes(self) -> tuple[int, ...]:
        topic = self._topics.find(FOLLOWED_OFFSETS)
        return topic.partitions if topic is not None and topic.followed else ()

    @property
    def is_given(self) -> bool:
        """True if the committed offsets are known from the topic, without asking groups."""
        indexes = self._indexes()
        whys = (self._why(index) for index in indexes)
        return bool(indexes) and not any(whys)

    def _why(self, index: int) -> str | None:
        if self._follower.is_denied((FOLLOWED_OFFSETS, index)):
            return "the source does not let it be read"
        reading = self._readings.get(index)
        return None if reading is None else reading.why

    async def apply(self, *, closing: bool = False) -> None:
        """Commit offsets here that groups have committed at the source since the last time.

        Args:
            closing: nothing more comes: it counts as it is. Else a partition counts once all of it
                was here.
        """
        caught_up = {
            index
            for index in self._indexes()
            if self._follower.has_caught_up((FOLLOWED_OFFSETS, index))
        }  # before it is read: what has come since may be the rest of a history
        await _in_thread(self._read)
        topics, source_ids = self._groups.topic_ids(), self._groups.source_ids()
        known = topics, source_ids, self._groups.expired
        if known != self._known:  # of a topic that was not here, or expired here alone: it counts
            for reading in self._readings.values():
                reading.replayed.all_changed()
        ready = [
            reading for index, reading in self._readings.items() if closing or index in caught_up
        ]
        changes, keys = await _in_thread(partial(_changes, ready, source_ids))
        left = set(changes)
        try:
            left = await self._groups.take(changes, topics, closing=closing)
        finally:
            for reading, key in (pair for group_id in left for pair in keys[group_id]):
                reading.replayed.changed.add(key)
        self._known = known

    def _read(self) -> None:
        """Read all partitions in a thread, while nothing else uses them."""
        indexes = self._indexes()
        for index in self._readings.keys() - set(indexes):
            del self._readings[index]
        for index in indexes:
            partition = self._partitions.find(FOLLOWED_OFFSETS, index)
            if partition is None:
                self._readings.pop(index, None)
                continue
            reading = self._readings.get(index)
            if reading is None or reading.partition is not partition or not reading.is_current:
                reading = self._readings[index] = _Reading(partition)
            if reading.why is None:
                held = sum(other.replayed.held_bytes for other in self._readings.values())
                self._read_one(index, reading, MOST_BYTES - held + reading.replayed.held_bytes)

    def _read_one(self, index: int, reading: _Reading, most_bytes: int) -> None:
        try:
            reading.read(most_bytes)
            if reading.is_cut:
                del self._readings[index]  # it may be of the log before and after that
            return
        except FileMissing:  # compaction has removed a segment meanwhile
            del self._readings[index]
            return
        except HorologError as error:
            if code_for(error) is ErrorCode.offset_out_of_range:  # it was cut meanwhile
                del self._readings[index]
                return
            why = str(error)
        except Exception:  # noqa: BLE001 - a source may have anything in it
            _LOG.exception("a bug in reading offsets of the source")
            why = "a bug: see the log"
        _LOG.error("__consumer_offsets-%d of the source is not read: %s", index, why)
        reading.stop(why)

    @property
    def read(self) -> frozenset[int]:
        """Partitions that could be read."""
        return frozenset(index for index, reading in self._readings.items() if reading.why is None)

    async def pending(self, indexes: Iterable[int]) -> dict[int, list[PendingRow]]:
        """Return the offsets in open transactions of partitions that were read, in order."""
        ids, readings = self._groups.source_ids(), self._readings

        def decode() -> dict[int, list[PendingRow]]:
            return {index: readings[index].replayed.pending(ids.get) for index in indexes}

        return await _in_thread(decode)


@uncancelled
async def _in_thread(call: Callable[[], T]) -> T:
    """Call in a thread, whose data nothing else may use before its end."""
    return await asyncio.to_thread(call)


def _changes(
    readings: Iterable[_Reading], ids: Mapping[str, UUID | None]
) -> tuple[GroupChanges, dict[str, list[tuple[_Reading, bytes]]]]:
    """Return the changed offsets by group, with their keys, and reset the changes."""
    found: dict[str, dict[TopicPartition, CommittedOffset | None]] = {}
    keys: dict[str, list[tuple[_Reading, bytes]]] = {}
    for reading in readings:
        changed, reading.replayed.changed = reading.replayed.changed, set()
        for key in changed:
            try:
                named = read_key(key)
                if not isinstance(named, OffsetKey):
                    continue
                its = _committed(reading.replayed.value(key), ids.get(named.topic))
            except CorruptBatch as error:
                _LOG.warning("an offset of the source cannot be read: %s", error)
                continue
            found.setdefault(named.group, {})[named.topic, named.partition] = its
            keys.setdefault(named.group, []).append((reading, key))
    return found, keys


def _committed(value: bytes | None, source_id: UUID | None) -> CommittedOffset | None:
    if value is None:
        return None
    its = read_committed(value)
    if its.offset < 0 or its.topic_id not in (None, source_id):
        return None  # no offset, or of a topic of before, or of one that is not here yet
    epoch = None if its.leader_epoch < 0 else its.leader_epoch
    return CommittedOffset(its.offset, its.metadata, epoch)
