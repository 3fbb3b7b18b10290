"""Reads the metadata store of a log directory that a broker may be using, and writes nothing there.

SQLite would create a `-shm` file even to read, finish what a killed broker left in the write-ahead
log, and meet the locks of a live one. So both files are copied, again if the broker wrote a
checkpoint meanwhile, and SQLite sees only the copy.
"""

import os
import stat
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from horolog.errors import StorageFailed
from horolog.metadata.rows import Stored
from horolog.metadata.salvage import open_store
from horolog.metadata.store import FILE_NAME

_MAX_COPIES = 10
_CHUNK_BYTES = 1 << 20


def read_stored(log_dir: Path, now_ms: int) -> Stored | None:
    """What a broker that starts in a log directory now finds in its store; None if there is none.

    Raises:
        StorageFailed: it cannot be read, or changes faster than it can be copied.
        Misconfigured: a newer version has written it.
    """
    path = log_dir / FILE_NAME
    if not os.path.lexists(path):
        return None
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise StorageFailed(f"{path} is not a regular file")
    with tempfile.TemporaryDirectory(prefix="horolog-metadata-") as aside:
        try:
            copy = copy_of_both(path, Path(aside))
        except OSError as error:
            raise StorageFailed(f"{path} cannot be read or copied: {error}") from error
        if copy is None:
            raise StorageFailed(f"{path} changes faster than it can be copied")
        store, stored = open_store(copy, 0, now_ms)
        store.close()
        return stored


def copy_of_both(path: Path, target: Path) -> Path | None:
    """A copy of a store and its write-ahead log in a directory, as they were at one moment.

    None if they change too fast.

    Raises:
        OSError: they cannot be read, or the copy cannot be written.
    """
    wal = path.with_name(f"{path.name}-wal")
    copy = target / path.name
    for _ in range(_MAX_COPIES):
        before = _copied(path, copy)
        log_before = _copied(wal, target / wal.name)
        # Appending to the log changes no frame; a checkpoint changes the file, then the header.
        if _read(path, None) == before and _read(wal, None, only=32) == log_before:
            return copy
    return None


class _Content(NamedTuple):
    """A fingerprint of a file's content: length and checksum."""

    size: int
    crc: int


def _copied(source: Path, target: Path) -> _Content | None:
    """Copy a file; the first 32 bytes of a write-ahead log show whether it was restarted."""
    with suppress(FileNotFoundError):  # the first copy
        target.unlink()
    is_log = source.name.endswith("-wal")
    found = _read(source, target)
    return _read(target, None, only=32) if is_log and found is not None else found


def _read(source: Path, target: Path | None, only: int | None = None) -> _Content | None:
    try:
        fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    size, crc = 0, 0
    with open(fd, "rb") as file, open(target or os.devnull, "wb") as out:
        while chunk := file.read(_CHUNK_BYTES if only is None else only - size):
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
            out.write(chunk)
    return _Content(size, crc)
