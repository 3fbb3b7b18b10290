"""A stretch of a segment's file that a fetch is answered with.

It holds the file open, so it can be read after its segment has been deleted.
"""

import os
from dataclasses import dataclass

from horolog.buffers import Buffer
from horolog.storage import page_cache
from horolog.storage.files import Files, OpenFile


@dataclass(slots=True, eq=False)
class Slice:
    """A stretch of a file that begins with a whole batch, or is empty.

    Without a file it is the bytes of `held`.
    """

    _files: Files
    _file: OpenFile | None
    position: int
    size: int
    _held: bytes = b""
    begins_empty: bool = False
    """Whether compaction has left no record of the first batch."""

    @property
    def path(self) -> str | None:
        """Path of the file; None for held bytes."""
        return None if self._file is None else self._file.path

    def read(self) -> Buffer:
        """Return the bytes; may wait for the disk.

        Raises:
            StorageFailed: the disk refused.
        """
        if self._file is None or self.size == 0:
            return self._held
        return self._files.read_at(self._file, self.size, self.position)

    def read_cached(self) -> Buffer | None:
        """Return the bytes if the page cache has all of them, otherwise None."""
        if self._file is None or self.size == 0:
            return self._held
        return page_cache.read_cached(self._file.fd, self.size, self.position)

    def send_cached(self, socket_fd: int) -> int | None:
        """Send the bytes to a non-blocking socket without copying them; how many it took.

        None, and nothing is sent, if the page cache does not have them all, or after an error: a
        read that may wait for the disk says what is wrong.

        Raises:
            BlockingIOError: the socket is full.
            ConnectionError: the client is gone.
        """
        if self._file is None or not page_cache.is_cached(self._file.fd, self.size, self.position):
            return None
        try:
            return os.sendfile(socket_fd, self._file.fd, self.position, self.size) or None
        except (BlockingIOError, ConnectionError):
            raise
        except OSError:
            return None
