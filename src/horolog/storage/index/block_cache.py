"""Block maps of logs whose directories are not written to: backups, other brokers' directories.

One small file for each segment in a directory of the user's own, named after the path of the
log. A map is proved by its log whenever it is used, so an outdated file does no harm.
"""

import hashlib
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from horolog.errors import StorageFailed
from horolog.storage.files import Files

CACHE_DIR_VARIABLE: Final = "HOROLOG_CACHE_DIR"
_LONGEST_MAP = 64 << 20


class BlockCache:
    """Maps by the path of their log; `where` distinguishes file systems that have that path."""

    def __init__(self, directory: Path, where: str = "") -> None:
        self._directory = directory
        self._where = where
        self._files = Files(max_open=1)

    def read(self, path: str) -> bytes | None:
        """The map of the log at a path, None if there is none.

        Raises:
            StorageFailed: it cannot be read.
        """
        return self._files.read_whole(str(self._file(path)), _LONGEST_MAP)

    def write(self, path: str, content: bytes) -> None:
        """Keep a map.

        Raises:
            StorageFailed: the disk refused.
        """
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageFailed(f"Cannot create {self._directory}: {error.strerror}") from error
        # A name of its own for each process: tasks build the map of one segment side by side.
        target = str(self._file(path))
        own = f"{target}.{os.getpid()}"
        self._files.replace(own, content, sync=False)
        self._files.rename(own, target)

    def _file(self, path: str) -> Path:
        name = hashlib.sha256(f"{self._where}\0{path}".encode()).hexdigest()[:40]
        return self._directory / f"{name}.blocks"


def block_cache(where: str = "") -> BlockCache | None:
    """The user's cache, None if there is no place that is the user's alone.

    `HOROLOG_CACHE_DIR`, else the user's cache directory, else a temporary one.
    """
    chosen = os.environ.get(CACHE_DIR_VARIABLE)
    if chosen is not None:
        return BlockCache(Path(chosen) / "blocks", where) if chosen else None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for root in (Path(home), Path(tempfile.gettempdir()) / f"horolog-{os.getuid()}"):
        directory = root / "horolog" / "blocks"
        if _is_ours(directory):
            return BlockCache(directory, where)
    return None


def _is_ours(directory: Path) -> bool:
    """Whether a directory is there, or can be made, that no other user writes to.

    Another user's map could hide records.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.lstat()
    except OSError:
        return False
    is_private = status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(status.st_mode) and is_private and os.access(directory, os.W_OK)
