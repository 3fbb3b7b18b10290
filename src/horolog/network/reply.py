"""Encoded responses: bytes, and records that are still in their file.

A Fetch response has slices of segment files. They are read piece by piece when the socket has
room: a slow consumer holds a file open, not megabytes.
"""

from collections.abc import Callable, Sequence
from threading import BoundedSemaphore
from typing import Final, TypeAlias

from horolog.buffers import Buffer
from horolog.errors import StorageFailed
from horolog.storage.batches.slices import Slice

PIECE_BYTES: Final = 256 * 1024


class FileSlots:
    """Limits the responses that hold a file open. Thread-safe.

    `on_refused` is called, in the caller's thread, when no slot is free.
    """

    def __init__(self, count: int) -> None:
        self._free = BoundedSemaphore(count)
        self.is_exhausted = False
        """True if a slot was refused since the last release."""
        self.on_refused: Callable[[], None] = lambda: None

    def acquire(self) -> bool:
        """Take a slot if one is free."""
        if self._free.acquire(blocking=False):
            return True
        if not self.is_exhausted:
            self.is_exhausted = True
            self.on_refused()
        return False

    def release(self) -> None:
        """Release a slot."""
        self._free.release()
        self.is_exhausted = False


class SlicedRecords:
    """Records in a file, which are sent unchanged.

    Owns the slice and holds its file open.

    The caller has acquired a slot of `slots`; it is released when the records are sent or the
    connection is dropped.
    """

    __slots__ = ("_end", "_slice", "_slots")

    def __init__(self, records: Slice, slots: FileSlots) -> None:
        self._slots = slots
        self._slice = records
        self._end = records.position + records.size

    def __del__(self) -> None:
        self._slots.release()

    def __len__(self) -> int:
        """Return the number of bytes that are not sent yet."""
        return self._end - self._slice.position

    def take_cached(self, max_bytes: int) -> Buffer | None:
        """Return the next bytes if they are in the page cache, otherwise None."""
        self._slice.size = min(max_bytes, len(self))
        piece = self._slice.read_cached()
        if piece is not None:
            self._slice.position += len(piece)
        return piece

    def send_cached(self, socket_fd: int, max_bytes: int) -> int | None:
        """Send the next bytes to a non-blocking socket without copying; return their number.

        Returns None without sending if the bytes are not in the page cache.

        Raises:
            BlockingIOError: the socket's buffer is full.
            ConnectionError: the client has disconnected.
        """
        self._slice.size = min(max_bytes, len(self))
        sent = self._slice.send_cached(socket_fd)
        if sent is not None:
            self._slice.position += sent
        return sent

    def take(self, max_bytes: int) -> Buffer:
        """Return the next bytes; may wait for the disk, so never on the event loop.

        Raises:
            StorageFailed: the read failed, or the file was truncated.
        """
        self._slice.size = min(max_bytes, len(self))
        piece = self._slice.read()
        if len(piece) < self._slice.size:
            raise StorageFailed("a segment ended while its records were being sent")
        self._slice.position += len(piece)
        return piece


ReplyPart: TypeAlias = Buffer | SlicedRecords
Reply: TypeAlias = Sequence[ReplyPart]
