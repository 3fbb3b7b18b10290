"""Encoded responses: bytes, and records that are still in their file.

A Fetch response has slices of segment files. They are read piece by piece when the socket has
room: a slow consumer holds a file open, not megabytes.
"""

from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from horolog.buffers import Buffer

PIECE_BYTES: Final = 256 * 1024


class FileRecords(Protocol):
    """Records in a file, sent unchanged."""

    def __len__(self) -> int:
        """Bytes not yet taken."""
        ...

    def take_cached(self, max_bytes: int) -> Buffer | None:
        """The next bytes if they are in the page cache, otherwise None."""
        ...

    def send_cached(self, socket_fd: int, max_bytes: int) -> int | None:
        """Send the next bytes to a non-blocking socket without copying; return their number.

        Returns None without sending if the bytes are not in the page cache.

        Raises:
            BlockingIOError: the socket's buffer is full.
            ConnectionError: the client has disconnected.
        """
        ...

    def take(self, max_bytes: int) -> Buffer:
        """The next bytes; may wait for the disk, so never on the event loop."""
        ...


ReplyPart: TypeAlias = Buffer | FileRecords
Reply: TypeAlias = Sequence[ReplyPart]
