"""Reusable memory for large requests; the kernel provides it page by page.

To provide a page costs the kernel more than to copy a part of a request into it. So mappings that
were used are kept for a while, and lent again. A mapping is free once nothing refers to the request
that was in it: a thread that checks a batch may have a view of it for longer than its connection.
"""

import mmap
import weakref
from typing import Final

MOST_IDLE_BYTES: Final = 32 << 20
"""Most bytes that are kept for later requests, beyond the budget of all connections."""

_ROUNDED_TO_BYTES: Final = 256 << 10  # so that requests of about one size fit the same mapping

# Pages of a mapping that are never touched are not reserved either.
_FLAGS: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)


class Mappings:
    """Lends anonymous mappings to all connections; on the event loop only.

    Views may be let go of in any thread.
    """

    def __init__(self, most_idle_bytes: int = MOST_IDLE_BYTES) -> None:
        self._most_idle_bytes = most_idle_bytes
        self._idle: list[mmap.mmap] = []  # any thread appends; only the event loop removes
        self._was_used = False  # since the last call of `release_idle`

    def lend(self, size: int) -> memoryview:
        """Return writable memory of `size` bytes, which may contain bytes of an earlier request.

        It is part of a mapping that is less than twice as large, in steps of 256 KiB.

        Raises:
            MemoryError: there is no memory for it.
        """
        self._was_used = True
        mapping = self._take_idle(size) or _mapped(size)
        import ctypes  # noqa: PLC0415 - as in `kernels`: 5 ms that a start need not wait for

        # All views of a view refer to what the first one is of. Its type is made by its length,
        # of which there are few.
        root = (ctypes.c_ubyte * len(mapping)).from_buffer(mapping)
        weakref.finalize(root, self._on_unused, mapping).atexit = False
        return memoryview(root).cast("B")[:size]

    def release_idle(self) -> None:
        """Return memory to the system unless some was lent since the last call."""
        if not self._was_used:
            self._idle.clear()
        self._was_used = False

    @property
    def idle_bytes(self) -> int:
        """Bytes that are kept for later requests."""
        return sum(map(len, self._idle))

    def _take_idle(self, size: int) -> mmap.mmap | None:
        """Return the mapping that was used last, as it may still be in the processor's caches.

        A far larger mapping is not used: a slow client with a small request would hold memory that
        it was not charged for.
        """
        most = 2 * _rounded(size)
        for place in reversed(range(len(self._idle))):
            if size <= len(self._idle[place]) < most:
                return self._idle.pop(place)
        return None

    def _on_unused(self, mapping: mmap.mmap) -> None:
        if self.idle_bytes + len(mapping) <= self._most_idle_bytes:
            self._idle.append(mapping)


def _rounded(size: int) -> int:
    return -(-size // _ROUNDED_TO_BYTES) * _ROUNDED_TO_BYTES


def _mapped(size: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, _rounded(size), flags=_FLAGS)
    except OSError as error:
        raise MemoryError(f"no memory for a request of {size} bytes: {error.strerror}") from error
