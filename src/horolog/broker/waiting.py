"""A fetch that waits for more to read, up to its own time limit."""

import asyncio
from collections.abc import Iterable

from horolog.broker.partition import Partition


class Wait:
    """Listens to partitions from its making on, until `until` in the loop's own time (seconds)."""

    def __init__(self, partitions: Iterable[Partition], until: float) -> None:
        loop = asyncio.get_running_loop()
        self._is_over: asyncio.Future[bool] = loop.create_future()
        self._partitions = tuple(partitions)
        self._grown_bytes = 0
        self._wanted_bytes: int | None = None
        self._timer = loop.call_at(until, self.end)
        for partition in self._partitions:
            partition.listeners[self] = None
            if partition.is_closed:
                self.on_gone()

    async def grown_by(self, size: int) -> bool:
        """Wait until all together have grown by so many bytes, or one of them is gone.

        Returns:
            Whether there is nothing more to wait for, as time is up or `end` was called.
        """
        self._wanted_bytes = size
        self.on_growth(0)
        return await self._is_over

    def on_growth(self, size: int) -> None:
        """So many bytes were appended."""
        self._grown_bytes += size
        if self._wanted_bytes is not None and self._grown_bytes >= self._wanted_bytes:
            self._settle(is_over=False)

    def on_gone(self) -> None:
        """A partition is no longer served."""
        self._settle(is_over=False)

    def end(self) -> None:
        """Wait no longer."""
        self._settle(is_over=True)

    def close(self) -> None:
        """Listen no longer."""
        self._timer.cancel()
        for partition in self._partitions:
            partition.listeners.pop(self, None)

    def _settle(self, *, is_over: bool) -> None:
        if not self._is_over.done():
            self._is_over.set_result(is_over)
