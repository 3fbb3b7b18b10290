"""A slice of a segment file, handed to the socket piece by piece; and how many there may be."""

from collections.abc import Callable
from threading import BoundedSemaphore

from horolog.errors import StorageFailed
from horolog.record.compression import Buffer
from horolog.storage.slices import Slice


class FileSlots:
    """How many answers may hold a file of their own; shared by all threads.

    `on_refused` is called, in whichever thread asked, when there is no slot left.
    """

    def __init__(self, count: int) -> None:
        self._free = BoundedSemaphore(count)
        self.is_exhausted = False
        """Whether a slot was refused since one was last given back."""
        self.on_refused: Callable[[], None] = lambda: None

    def acquire(self) -> bool:
        """Take a slot if there is one."""
        if self._free.acquire(blocking=False):
            return True
        if not self.is_exhausted:
            self.is_exhausted = True
            self.on_refused()
        return False

    def release(self) -> None:
        """Give a slot back."""
        self._free.release()
        self.is_exhausted = False


class SlicedRecords:
    """The `FileRecords` of a reply: takes the slice over, and holds its file open.

    How many of them there may be is counted by `slots`; the caller has taken the slot that is
    given back when this is sent, or dropped with its connection.
    """

    __slots__ = ("_end", "_slice", "_slots")

    def __init__(self, records: Slice, slots: FileSlots) -> None:
        self._slots = slots
        self._slice = records
        self._end = records.position + records.size

    def __del__(self) -> None:
        self._slots.release()

    def __len__(self) -> int:
        return self._end - self._slice.position

    def take_cached(self, max_bytes: int) -> Buffer | None:
        """The next bytes if they can be had without waiting for the disk."""
        self._slice.size = min(max_bytes, len(self))
        piece = self._slice.read_cached()
        if piece is not None:
            self._slice.position += len(piece)
        return piece

    def send_cached(self, socket_fd: int, max_bytes: int) -> int | None:
        """Send the next bytes to a non-blocking socket without copying; how many it took.

        None, and nothing is sent, if that could wait for the disk.

        Raises:
            BlockingIOError: the socket is full.
            ConnectionError: the client is gone.
        """
        self._slice.size = min(max_bytes, len(self))
        sent = self._slice.send_cached(socket_fd)
        if sent is not None:
            self._slice.position += sent
        return sent

    def take(self, max_bytes: int) -> Buffer:
        """The next bytes; may wait for the disk.

        Raises:
            StorageFailed: the disk refused, or the file has become shorter.
        """
        self._slice.size = min(max_bytes, len(self))
        piece = self._slice.read()
        if len(piece) < self._slice.size:
            raise StorageFailed("a segment ended while its records were being sent")
        self._slice.position += len(piece)
        return piece
