"""Reads one partition for a replica: real bytes of the log, up to its end.

What is not committed may be truncated while the answer waits to be sent, so it is copied. What is
committed stays in its file, if it is large.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple, cast

from horolog.broker.broker import BrokerParts
from horolog.broker.fetch_reading import with_append_time_entries
from horolog.broker.fetch_sessions import SessionPartition
from horolog.broker.partition import Partition
from horolog.buffers import Buffer
from horolog.errors import ErrorCode, RequestRefused
from horolog.network.reply import SlicedRecords
from horolog.record.builder import empty_batch
from horolog.storage.file_errors import WouldBlock
from horolog.storage.logs.epochs import LeaderEpochs
from horolog.storage.logs.view import LogView
from horolog.wire.features import WITH_APPEND_TIMES, WITH_SEEN_TIMES
from horolog.wire.fetch import DivergingEpoch, FetchedAbort, FetchedPartition
from horolog.wire.requests import FetchPartition

__all__ = ["ReplicaRead", "Watched", "diverging_answer"]

_MOST_OFFSETS: Final = 1 << 31  # of one batch
_NO_EPOCH: Final = -1
_COPIED_BYTES: Final = 64 * 1024  # fewer are copied into the answer
_SHARED_BYTES: Final = 16 * 1024  # fewer are kept until the next read, for the other replicas


class Watched(NamedTuple):
    """Partition at a look at it, with what the replica is told of it."""

    partition: Partition
    leader_epoch: int
    end_offset: int
    high_watermark: int
    log_start_offset: int
    until_ms: int
    """Monotonic time when its progress has to be noted again."""

    @property
    def has_grown(self) -> bool:
        """True if a further look may find records, or another leader."""
        log = self.partition.log
        return (
            log.log_end_offset != self.end_offset
            or log.leader_epoch != self.leader_epoch
            or log.is_following
        )

    @property
    def is_same(self) -> bool:
        """True if nothing has changed."""
        log = self.partition.log
        return (
            not self.has_grown
            and log.high_watermark == self.high_watermark
            and log.log_start_offset == self.log_start_offset
            and not self.partition.is_closed
        )


class ReplicaRead:
    """One read for a replica.

    Replicas that are at the same offset are given what was read for the first of them.

    Args:
        max_bytes: limit of the records, beyond the first batch of an answer.
        is_first: nothing was read for this answer yet, so that the first batch is read whole.
    """

    __slots__ = ("_asked", "_broker", "_partition", "_read", "_requested")

    def __init__(
        self,
        broker: BrokerParts,
        partition: Partition,
        view: LogView,
        requested: FetchPartition | SessionPartition,
        max_bytes: int,
        *,
        is_first: bool,
        level: int,
    ) -> None:
        log = partition.log
        self._broker, self._partition, self._requested = broker, partition, requested
        self._read = partial(
            _read,
            broker,
            view,
            requested,
            max_bytes,
            epochs=log.epochs,
            at_least_one=is_first,
            level=level,
        )
        offsets = view.log_start_offset, view.high_watermark, view.last_stable_offset
        offset, end = requested.fetch_offset, view.end_offset
        self._asked = (offset, end, max_bytes, is_first, level, log.leader_epoch, *offsets)

    def nowait(self) -> FetchedPartition:
        """Read what the page cache has.

        Raises:
            WouldBlock: it does not have it.
            RequestRefused: the offset is out of range (1).
            CorruptBatch: the file is damaged there.
        """
        partition, asked = self._partition, self._asked
        offset, end, level = asked[0], asked[1], asked[4]
        if offset >= end:
            return self._read(may_wait=False)
        if (shared := partition.read_for_replica) is not None and shared[0] == asked:
            return shared[1]
        if not level and partition.is_hot(offset, committed=False):
            # A file system in memory does not tell what the page cache has: it is there, too.
            return self._kept(self._read(may_wait=True))
        read = partial(self._read, may_wait=False)
        return self._kept(self._broker.partitions.without_blocking(read))

    async def wait(self) -> FetchedPartition:
        """Read in a reading thread, which may wait for the disk.

        Raises:
            RequestRefused, CorruptBatch: as `nowait`.
        """
        broker = self._broker
        read = partial(self._read, may_wait=True)
        return self._kept(await asyncio.get_running_loop().run_in_executor(broker.readers, read))

    def _kept(self, found: FetchedPartition) -> FetchedPartition:
        is_shared = len(found.records) <= _SHARED_BYTES
        self._partition.read_for_replica = (self._asked, found) if is_shared else None
        return found


def diverging_answer(
    partition: Partition, view: LogView, requested: FetchPartition | SessionPartition
) -> FetchedPartition | None:
    """Return the answer that says where a replica's log parts from this one; None if it does not.

    Raises:
        RequestRefused: its last epoch is not known here, or its offset is before the log (1).
    """
    diverging = _diverging(partition, view, requested)
    return None if diverging is None else _answer(requested.partition, view, diverging=diverging)


def _diverging(
    partition: Partition, view: LogView, requested: FetchPartition | SessionPartition
) -> DivergingEpoch | None:
    """Return where the log of a replica parts from this one; None if it is a prefix.

    Raises:
        RequestRefused: its last epoch is not known here, or its offset is before the log (1).
    """
    epoch, offset = requested.last_fetched_epoch, requested.fetch_offset
    if epoch == _NO_EPOCH:
        return None
    end = partition.log.end_of_epoch(epoch)
    if end is None or offset < view.log_start_offset:
        raise RequestRefused(
            ErrorCode.offset_out_of_range,
            f"{partition.name} has no end of epoch {epoch}, or begins behind offset {offset}",
        )
    if end.epoch < epoch or end.start_offset < offset:
        return DivergingEpoch(end.epoch, end.start_offset)
    return None


def _read(
    broker: BrokerParts,
    view: LogView,
    requested: FetchPartition | SessionPartition,
    max_bytes: int,
    *,
    epochs: LeaderEpochs,
    at_least_one: bool,
    level: int,
    may_wait: bool,
) -> FetchedPartition:
    """Read one partition; what is below the high watermark stays in its file.

    Raises:
        RequestRefused: the offset is out of range (1).
        CorruptBatch: the file is damaged there.
        WouldBlock: the page cache does not have it, and the call may not wait.
    """
    offset, end = requested.fetch_offset, view.end_offset
    is_committed = offset < view.high_watermark
    up_to = view.high_watermark if is_committed else None
    found = view.read(offset, max_bytes, min_one_batch=at_least_one, up_to=up_to)
    records: Buffer | SlicedRecords | None = b""
    if found.size:
        if is_committed and found.size > _COPIED_BYTES and broker.slices_to_send.acquire():
            records = SlicedRecords(found, broker.slices_to_send)
        else:
            records = found.read_cached() if not may_wait else found.read()
        if records is None:
            raise WouldBlock
    elif offset < end and up_to is None and at_least_one:
        # A gap at the log end, as compaction leaves it: the replica has to reach the end.
        records = empty_batch(
            offset, min(end, offset + _MOST_OFFSETS) - 1, epochs.epoch_at(end - 1)
        )
    aborted: Sequence[FetchedAbort] | None = None
    if level & WITH_APPEND_TIMES:
        seen = bool(level & WITH_SEEN_TIMES)
        size = len(cast("Buffer", records))
        aborted = with_append_time_entries(view, offset, size, None, found, seen=seen)
    return _answer(requested.partition, view, cast("Buffer", records), aborted)


def _answer(
    index: int,
    view: LogView,
    records: Buffer = b"",
    aborted: Sequence[FetchedAbort] | None = None,
    diverging: DivergingEpoch | None = None,
) -> FetchedPartition:
    return FetchedPartition(
        index,
        0,
        view.high_watermark,
        view.last_stable_offset,
        view.log_start_offset,
        records,
        aborted,
        diverging,
    )
