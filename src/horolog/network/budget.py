"""How many bytes all connections together may hold in memory.

Requests being received or worked on, and answers made but not sent, count against one
budget. A connection that finds it spent stops reading until others have given back, so
that the kernel, and in the end the client, waits instead of the broker growing.
"""

from collections import deque
from collections.abc import Callable

SMALL_BYTES = 64 * 1024


class ByteBudget:
    """A count of bytes, and who waits for some. For the event loop's thread only."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def used(self) -> int:
        """Bytes held now."""
        return self._used

    @property
    def is_spent(self) -> bool:
        """Whether more is held than there should be."""
        return self._used > self._limit

    @property
    def someone_waits(self) -> bool:
        """Whether a connection stands still for want of bytes."""
        return bool(self._waiting)

    def take(self, size: int) -> bool:
        """Take `size` bytes if they are there and nobody was first.

        What is alone always fits, so a limit below the largest request slows but never stops.
        """
        if self._used and (self._waiting or self._used + size > self._limit):
            return False
        self._used += size
        return True

    def force(self, size: int) -> None:
        """Take bytes that are held already, whether they fit or not."""
        self._used += size

    def wait(self, size: int, when_taken: Callable[[], None]) -> None:
        """Call back once `size` bytes have been taken for the caller, in the order of asking."""
        self._waiting.append((size, when_taken))

    def cancel(self, when_taken: Callable[[], None]) -> None:
        """Wait no longer."""
        self._waiting = deque(entry for entry in self._waiting if entry[1] != when_taken)

    def give(self, size: int) -> None:
        """Give bytes back, and let those go on whose turn it is."""
        self._used -= size
        assert self._used >= 0
        while self._waiting:
            wanted, when_taken = self._waiting[0]
            if self._used and self._used + wanted > self._limit:
                return
            self._waiting.popleft()
            self._used += wanted
            when_taken()
