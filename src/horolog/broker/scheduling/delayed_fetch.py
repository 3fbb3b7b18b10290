"""Fetch request that waits for `min_bytes` until `max_wait_ms` (Kafka's fetch purgatory)."""

import asyncio
from collections.abc import Iterable
from typing import Protocol


class Growing(Protocol):
    """Partition that calls its listeners when it grows or is closed."""

    listeners: "dict[DelayedFetch, None]"

    @property
    def is_closed(self) -> bool:
        """True if the partition is no longer served."""
        ...


class DelayedFetch:
    """Counts appends to partitions from its creation until `until` (event loop time, seconds)."""

    def __init__(
        self, partitions: Iterable[Growing], until: float, *, is_committed: bool = False
    ) -> None:
        loop = asyncio.get_running_loop()
        self.is_committed = is_committed
        """True if only committed records count as growth."""
        self._timed_out: asyncio.Future[bool] = loop.create_future()
        self._partitions = tuple(partitions)
        self._grown_bytes = 0
        self._min_bytes: int | None = None
        self._timer = loop.call_at(until, self.end)
        for partition in self._partitions:
            partition.listeners[self] = None
            if partition.is_closed:
                self.on_gone()

    async def grown_by(self, size: int) -> bool:
        """Wait until the partitions have grown by `size` bytes in total, or one is closed.

        Returns:
            True after the timeout or a call of `end`: the fetch must be answered.
        """
        self._min_bytes = size
        self.on_growth(0)
        return await self._timed_out

    def on_growth(self, size: int) -> None:
        """Count `size` appended bytes; the partition calls this."""
        self._grown_bytes += size
        if self._min_bytes is not None and self._grown_bytes >= self._min_bytes:
            self._complete(timed_out=False)

    def on_gone(self) -> None:
        """End the wait because a partition is closed."""
        self._complete(timed_out=False)

    def end(self) -> None:
        """End the wait as if the timeout had elapsed."""
        self._complete(timed_out=True)

    def close(self) -> None:
        """Cancel the timer and stop listening to the partitions."""
        self._timer.cancel()
        for partition in self._partitions:
            partition.listeners.pop(self, None)

    def _complete(self, *, timed_out: bool) -> None:
        if not self._timed_out.done():
            self._timed_out.set_result(timed_out)
