"""Holds back disk space, so that topics can be deleted, and rights taken away, on a full disk.

Both are records of the metadata log, which need some blocks. The file has no content that is read.
"""

from pathlib import Path
from typing import Final

from horolog.errors import StorageFailed
from horolog.storage import names
from horolog.storage.files import Files

BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 16 * 1024


class Reserve:
    """Reserved file of a log directory."""

    def __init__(self, files: Files, log_dir: Path) -> None:
        self._files = files
        self._path = str(log_dir / names.RESERVE)

    def hold(self) -> None:
        """Reserve the space that is not reserved yet, or what the disk has of it."""
        files, path = self._files, self._path
        try:
            if files.exists(path):
                file, size = files.get(path), files.size(path)
            else:
                file, size = files.create(path), 0
            for start in range(size, BYTES, _PIECE_BYTES):
                files.write_at(file, [bytes(_PIECE_BYTES)], start)
        except StorageFailed:
            pass

    def release(self) -> bool:
        """Free the space; False if it was not reserved."""
        try:
            is_held = self._files.exists(self._path)
            if is_held:
                self._files.remove(self._path)
        except StorageFailed:
            return False
        return is_held
