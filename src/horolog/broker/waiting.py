"""A fetch that waits for more to read, up to its own time limit."""

import asyncio
from collections.abc import Sequence

from horolog.broker.partition import Partition


class Wait:
    """Done when the partitions have grown by so many bytes, or one is gone, or time is up."""

    def __init__(
        self, partitions: Sequence[Partition], wanted_bytes: int, max_wait_ms: float
    ) -> None:
        loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = loop.create_future()
        self._partitions = partitions
        self._wanted_bytes = wanted_bytes
        self._timer = loop.call_later(max_wait_ms / 1000, self.end)
        for partition in partitions:
            partition.listeners[self] = None
        self.done.add_done_callback(self._stop)

    def on_growth(self, size: int) -> None:
        """So many bytes were appended."""
        self._wanted_bytes -= size
        if self._wanted_bytes <= 0:
            self.end()

    def on_gone(self) -> None:
        """A partition is no longer served."""
        self.end()

    def end(self) -> None:
        """Wait no longer."""
        if not self.done.done():
            self.done.set_result(None)

    def _stop(self, _: "asyncio.Future[None]") -> None:
        self._timer.cancel()
        for partition in self._partitions:
            partition.listeners.pop(self, None)
