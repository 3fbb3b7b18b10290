"""Holds back disk space, so that topics can be deleted on a full disk.

A deletion is a record of the metadata log, and needs some blocks before it frees any. The file has
no content that is read.
"""

from pathlib import Path
from typing import Final

from horolog.errors import StorageFailed
from horolog.storage import names
from horolog.storage.files import Files

BYTES: Final = 1 << 20


class Reserve:
    """Reserved file of a log directory."""

    def __init__(self, files: Files, log_dir: Path) -> None:
        self._files = files
        self._path = str(log_dir / names.RESERVE)

    def hold(self) -> None:
        """Reserve the space, unless it is reserved or the disk is full."""
        try:
            if not self._files.exists(self._path):
                self._files.write_at(self._files.create(self._path), [bytes(BYTES)], 0)
        except StorageFailed:
            self.release()

    def release(self) -> bool:
        """Free the space; False if it was not reserved."""
        try:
            is_held = self._files.exists(self._path)
            if is_held:
                self._files.remove(self._path)
        except StorageFailed:
            return False
        return is_held
