"""Request that waits for partitions (Kafka's purgatories), until a time.

A fetch waits until they have grown by `min_bytes`, a produce request with acks=all until offsets
are below the high watermark, DeleteRecords until all live replicas start behind an offset. Each
waits for one mark, and nothing else that a partition does completes it.
"""

import asyncio
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Protocol


class Mark(IntEnum):
    """Offset of a partition that requests wait for."""

    LOG_END = 0
    """Replicas read up to here."""
    HIGH_WATERMARK = 1
    """Consumers read up to here."""
    LAST_STABLE = 2
    """Consumers of committed records read up to here."""
    LOW_WATERMARK = 3
    """Smallest log start offset of all live replicas."""


class Waiting(Protocol):
    """Request that waits."""

    def end(self) -> None:
        """End the wait as if the timeout had elapsed."""
        ...


class MarkListener(Protocol):
    """Waits for a mark of a partition."""

    def on_moved(self, partition: "Growing", size: int) -> None:
        """Note that `size` bytes are new before the mark; or 0, where it may have moved."""
        ...

    def on_gone(self) -> None:
        """Note that a partition is closed, or led by another broker now."""
        ...


class Watcher(Protocol):
    """Is told of all changes of a partition."""

    def on_changed(self, size: int) -> None:
        """Note that it has grown by `size` bytes, or, with 0, that a mark may have moved."""
        ...

    def on_gone(self) -> None:
        """Note that it is closed, or led by another broker now."""
        ...


class Growing(Protocol):
    """Partition that notifies its listeners when a mark moves, or when it is gone."""

    listeners: tuple[dict[MarkListener, None], ...]
    """Requests that wait, by mark."""

    @property
    def is_closed(self) -> bool:
        """True if the partition is no longer served."""
        ...

    def mark(self, mark: Mark) -> int:
        """Return the offset of a mark now."""
        ...


class Delayed:
    """Wait for a mark of partitions, from its creation until `until` (event loop time, seconds)."""

    def __init__(
        self, partitions: Iterable[Growing], until: float, mark: Mark = Mark.HIGH_WATERMARK
    ) -> None:
        loop = asyncio.get_running_loop()
        self.mark = mark
        self._timed_out: asyncio.Future[bool] = loop.create_future()
        self._partitions = tuple(partitions)
        self._grown_bytes = 0
        self._min_bytes: int | None = None
        self._missing: dict[Growing, int] = {}
        self._timer = loop.call_at(until, self.end)
        for partition in self._partitions:
            partition.listeners[mark][self] = None
            if partition.is_closed:
                self.on_gone()

    async def grown_by(self, size: int) -> bool:
        """Wait until the partitions have grown by `size` bytes in total, or one is gone.

        Returns:
            True after the timeout or a call of `end`: the request must be answered.
        """
        self._min_bytes = size
        self._count(0)
        return await self._timed_out

    async def reached(self, offsets: Mapping[Growing, int]) -> bool:
        """Wait until the mark of each partition is at or behind its offset, or one is gone.

        Returns:
            True after the timeout or a call of `end`: the request must be answered.
        """
        self._missing = {
            partition: offset
            for partition, offset in offsets.items()
            if partition.mark(self.mark) < offset
        }
        if not self._missing:
            self._complete(timed_out=False)
        return await self._timed_out

    def on_moved(self, partition: Growing, size: int) -> None:
        """Count `size` bytes that are new before the mark; the partition calls this."""
        missing = self._missing.get(partition)
        if missing is not None:
            if partition.mark(self.mark) >= missing:
                del self._missing[partition]
                if not self._missing:
                    self._complete(timed_out=False)
        elif size:
            self._count(size)

    def _count(self, size: int) -> None:
        self._grown_bytes += size
        if self._min_bytes is not None and self._grown_bytes >= self._min_bytes:
            self._complete(timed_out=False)

    def on_gone(self) -> None:
        """End the wait because a partition is closed, or led by another broker now."""
        self._complete(timed_out=False)

    def end(self) -> None:
        """End the wait as if the timeout had elapsed."""
        self._complete(timed_out=True)

    def close(self) -> None:
        """Cancel the timer and stop listening to the partitions."""
        self._timer.cancel()
        for partition in self._partitions:
            partition.listeners[self.mark].pop(self, None)

    def _complete(self, *, timed_out: bool) -> None:
        if not self._timed_out.done():
            self._timed_out.set_result(timed_out)
