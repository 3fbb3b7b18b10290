"""Answers on their way out: bytes, and records that are still in their file.

A fetch answers with slices of segment files. They are read piece by piece, when the
socket has room for the piece: a slow consumer holds a file open, not megabytes.
"""

from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from horolog.wire.packing import Bytes

PIECE_BYTES: Final = 256 * 1024


class FileRecords(Protocol):
    """Records in a file, to be sent as they lie there."""

    def __len__(self) -> int:
        """Bytes not yet taken."""
        ...

    def take_cached(self, max_bytes: int) -> Bytes | None:
        """The next bytes if they can be had without waiting for the disk."""
        ...

    def send_cached(self, socket_fd: int, max_bytes: int) -> int | None:
        """Send the next bytes to a non-blocking socket without copying; how many it took.

        None, and nothing is sent, if that could wait for the disk.

        Raises:
            BlockingIOError: the socket is full.
            ConnectionError: the client is gone.
        """
        ...

    def take(self, max_bytes: int) -> Bytes:
        """The next bytes; may wait for the disk, so never on the event loop."""
        ...


Part: TypeAlias = Bytes | FileRecords
Reply: TypeAlias = Sequence[Part]
