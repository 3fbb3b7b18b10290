"""Cache of block maps for logs in read-only directories, such as backups.

One small file for each segment in a directory of the user's own, named after the path of the log:

     0  4  "hbc3"
     4  4  length of the path, big-endian
     8     the path in UTF-8, preceded by the file system that has it and a zero byte
           44 bytes about the file of the log and its batches (block_map.py)
           the entries of the map (blocks.py)

The log proves a map whenever it is used, so an outdated file does no harm. Writing a map prunes the
cache. Maps of deleted segments go, and maps that were unused for 90 days. Above 512 MiB the least
recently used maps go.
"""

import hashlib
import os
import re
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from horolog.cache_places import cache_places
from horolog.errors import StorageFailed
from horolog.storage.companion.blocks import LONGEST_MAP
from horolog.storage.files import Files

CACHE_DIR_VARIABLE: Final = "HOROLOG_CACHE_DIR"
MOST_BYTES: Final = 512 << 20
"""Limit for all maps. A small map counts as one block of the disk."""
LONGEST_UNUSED_S: Final = 90 * 86_400

_LONGEST_PATH = 8 << 10
_START = Struct(">4sI")
_MAGIC = b"hbc3"
_NAME = re.compile(r"[0-9a-f]{40}\.blocks((\.[0-9]+){1,2}(\.tmp)?)?")
_BLOCK_OF_DISK = 4 << 10
PRUNED_AFTER = MOST_BYTES // 16  # bytes that this process has written
_ABANDONED_S = 3_600  # files that a killed process was writing


class _Entry(NamedTuple):
    path: str
    size: int
    used_s: float
    is_map: bool
    """False for a file that a process is writing, or was writing when it was killed."""


class BlockCache:
    """Block maps by the path of their log.

    `where` names the file system of that path.

    Any number of processes and threads may use one directory.
    """

    def __init__(self, directory: Path, where: str = "") -> None:
        self._directory = directory
        self._where = where
        self._files = Files(max_open=1)
        self._unpruned: int | None = None  # bytes written since; None: nothing was yet

    def read(self, path: str) -> bytes | None:
        """Return the block map of the log at a path; None if the cache has none.

        Raises:
            StorageFailed: it cannot be read.
        """
        file, key = self._file(path), self._key(path)
        content = self._files.read_whole(file, LONGEST_MAP)
        start = _START.size + len(key)
        if content is None or content[:start] != _START.pack(_MAGIC, len(key)) + key:
            return None
        with suppress(OSError):  # it was pruned meanwhile
            os.utime(file)
        return content[start:]

    def write(self, path: str, content: bytes) -> None:
        """Store the block map of the log at a path.

        Raises:
            StorageFailed: the disk refused.
        """
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageFailed(f"Cannot create {self._directory}: {error.strerror}") from error
        # A name of its own for each writer: tasks build the map of one segment side by side.
        target, key = self._file(path), self._key(path)
        own = f"{target}.{os.getpid()}.{threading.get_ident()}"
        self._files.replace(own, _START.pack(_MAGIC, len(key)) + key + content, sync=False)
        self._files.rename(own, target)
        written = max(len(content), _BLOCK_OF_DISK)
        if self._unpruned is None or self._unpruned + written > PRUNED_AFTER:
            self._unpruned = 0
            self._prune(os.stat(target).st_mtime)
        self._unpruned += written

    def _key(self, path: str) -> bytes:
        full = path if self._where else os.path.abspath(path)
        return f"{self._where}\0{full}".encode("utf-8", "surrogateescape")

    def _file(self, path: str) -> str:
        name = hashlib.sha256(self._key(path)).hexdigest()[:40]
        return f"{self._directory}/{name}.blocks"

    # Pruning.

    def _prune(self, now_s: float) -> None:
        """Remove unused, outdated and abandoned files. `now_s` is the time of the newest file."""
        kept: list[_Entry] = []
        for entry in self._entries():
            limit_s = LONGEST_UNUSED_S if entry.is_map else _ABANDONED_S
            if now_s - entry.used_s > limit_s or (entry.is_map and _is_gone(entry.path)):
                _remove(entry.path)
            else:
                kept.append(entry)
        total = sum(entry.size for entry in kept)
        for entry in sorted(kept, key=lambda entry: entry.used_s):
            if total <= MOST_BYTES:
                return
            if entry.is_map:
                _remove(entry.path)
                total -= entry.size

    def _entries(self) -> Iterator[_Entry]:
        """Yield the files of the cache; files with other names are left alone."""
        with suppress(OSError), os.scandir(self._directory) as listing:
            for file in listing:
                match = _NAME.fullmatch(file.name)
                if match is None or not file.is_file(follow_symlinks=False):
                    continue
                with suppress(OSError):  # another process has removed it
                    status = file.stat(follow_symlinks=False)
                    size = max(status.st_size, _BLOCK_OF_DISK)
                    yield _Entry(file.path, size, status.st_mtime, match[1] is None)


def _is_gone(path: str) -> bool:
    """Return True if a map is of a local segment that was deleted from an existing directory.

    A file of another version counts as gone.
    """
    try:
        with open(path, "rb") as file:
            magic, length = _START.unpack(file.read(_START.size))
            key = file.read(min(length, _LONGEST_PATH))
    except (OSError, ValueError):
        return False
    except struct_error:
        return True
    if magic != _MAGIC or len(key) != length:
        return True
    where, _, log = key.partition(b"\0")
    if where:
        return False
    return not os.path.lexists(log) and os.path.isdir(os.path.dirname(log))


def _remove(path: str) -> None:
    with suppress(OSError):  # another process has removed it
        os.unlink(path)


def block_cache(where: str = "") -> BlockCache | None:
    """Return the user's cache; None if no directory is private to the user.

    The cache is in `HOROLOG_CACHE_DIR`, otherwise in the user's cache directory or a temporary one.
    """
    chosen = os.environ.get(CACHE_DIR_VARIABLE)
    if chosen is not None:
        return BlockCache(Path(chosen) / "blocks", where) if chosen else None
    for directory in (place / "blocks" for place in cache_places()):
        if _is_ours(directory):
            return BlockCache(directory, where)
    return None


def _is_ours(directory: Path) -> bool:
    """Return True if a directory exists, or can be created, to which no other user can write.

    Another user's map could hide records.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.lstat()
    except OSError:
        return False
    is_private = status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(status.st_mode) and is_private and os.access(directory, os.W_OK)
