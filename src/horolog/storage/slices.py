"""A stretch of a segment's file that a fetch is answered with.

It holds the file open, so it can be read after its segment has been deleted.
"""

import errno
import os
from typing import Final

from horolog.errors import StorageFailed
from horolog.record.compression import Buffer
from horolog.storage.files import Files, OpenFile

# Where the kernel cannot say whether a read would wait for the disk, every read may.
_NOWAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
_WOULD_BLOCK = frozenset({errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL})


class Slice:
    """`size` bytes at `position` of a file; they begin with a whole batch if there are any."""

    __slots__ = ("_file", "_files", "position", "size")

    def __init__(self, files: Files, file: OpenFile | None, position: int, size: int) -> None:
        self._files = files
        self._file = file
        self.position = position
        self.size = size

    def read(self) -> Buffer:
        """The bytes; may wait for the disk.

        Raises:
            StorageFailed: the disk refused.
        """
        if self._file is None or self.size == 0:
            return b""
        return self._files.read_at(self._file, self.size, self.position)

    def read_cached(self) -> Buffer | None:
        """The bytes if the page cache has them all; None if reading would wait for the disk."""
        if self._file is None or self.size == 0:
            return b""
        if _NOWAIT is None:
            return None
        buffer = bytearray(self.size)
        try:
            read = os.preadv(self._file.fd, [buffer], self.position, _NOWAIT)
        except OSError as error:
            if error.errno in _WOULD_BLOCK:
                return None
            raise StorageFailed(f"Cannot read {self._file.path}: {error.strerror}") from error
        return buffer if read == self.size else None
