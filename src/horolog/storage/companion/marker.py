"""The file `<base>.appending.deleted` beside a growing segment: a marker, and the block map so far.

      0  100 bytes: the start of the machine, a space, and the inode of the log; then zeros
    100  the block map so far (blocks.py), which is put into the companion at the end

A start of Apache Kafka removes every file of that suffix. The marker names the machine's uptime and
the log's inode. So a valid marker says: horolog was killed, the machine was not restarted, the log
is no copy, and no other broker has appended. Then the append times cover the whole log.
"""

from typing import Final

from horolog.storage import names
from horolog.storage.companion.blocks import LONGEST_MAP
from horolog.storage.directory.uptime import boot_id
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files

MARKER_SIZE: Final = 100


class AppendingMarker:
    """Marker of one segment that is appended to.

    Methods raise StorageFailed where the disk refuses.
    """

    __slots__ = ("_files", "_log_path", "path")

    def __init__(self, files: Files, stem: str) -> None:
        """Name the marker of the segment whose files begin with `stem`."""
        self._files = files
        self.path = stem + names.APPENDING
        self._log_path = stem + names.LOG

    def is_valid(self) -> bool:
        """Return True if the marker is of this log file and of the machine's current uptime."""
        marker = self._read(0, MARKER_SIZE).rstrip(b"\0")
        return bool(marker) and marker == self._content()

    def write(self) -> None:
        """Write the marker. From here on a kill leaves append times that cover the whole log."""
        if not self.is_valid():
            content = self._content().ljust(MARKER_SIZE, b"\0")
            self._files.replace(self.path, content, sync=False)

    def map(self) -> bytes:
        """Read the entries of the block map behind the marker."""
        return self._read(MARKER_SIZE, min(self._files.size(self.path), LONGEST_MAP))

    def _read(self, position: int, size: int) -> bytes:
        try:
            return self._files.read_at(self._files.get(self.path), size, position)
        except FileMissing:
            return b""

    def remove(self) -> None:
        """Remove the marker, because the companion's head has the covered range."""
        self._files.remove(self.path)

    def _content(self) -> bytes:
        """Return the marker's bytes; empty, and so never valid, without a boot id.

        The inode excludes copies of a growing directory, which may lack the latest append times.
        """
        boot = boot_id()
        return f"{boot} {self._files.inode(self._log_path)}".encode() if boot else b""
