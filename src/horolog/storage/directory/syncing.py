"""Sync many files with one `syncfs`.

An fsync per file waits for one commit of the file system's journal each: four files for each of
3,500 partitions take minutes. `syncfs` needs one commit for all of them, but also waits for what
other processes have written. A few files are therefore synced one by one, in parallel.
"""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final

from horolog.errors import StorageFailed
from horolog.storage.files import Files

MANY: Final = 64
_PARALLEL_SYNCS = 16  # one commit of the file system's journal completes all waiting fsyncs
_SYNCFS_REPORTS_ERRORS_SINCE = (5, 8)  # the Linux version


def sync_all(files: Files, paths: Iterable[str], fd: int) -> dict[str, StorageFailed]:
    """Sync files and directories; return the errors by path.

    Many are synced with one `syncfs` if they are on one file system.

    Args:
        fd: any file on the same file system that was opened before they were written: `syncfs`
            reports only write errors that happened after its descriptor was opened.
    """
    names = list(dict.fromkeys(paths))
    if len(names) >= MANY and _sync_as_a_whole(files, names, fd):
        return {}

    def sync(path: str) -> StorageFailed | None:
        try:
            files.sync_path(path)
        except StorageFailed as error:
            return error
        return None

    if len(names) == 1:
        outcomes = [sync(names[0])]
    else:
        with ThreadPoolExecutor(_PARALLEL_SYNCS) as pool:
            outcomes = list(pool.map(sync, names))
    return {path: error for path, error in zip(names, outcomes, strict=True) if error is not None}


def _sync_as_a_whole(files: Files, paths: Sequence[str], fd: int) -> bool:
    """Sync all paths by one `syncfs`; return False if that is impossible."""
    syncfs = system_call()
    if syncfs is None:
        return False
    try:
        device = os.fstat(fd).st_dev
        if any(os.stat(path).st_dev != device for path in paths):
            return False
    except OSError:
        return False  # a path is gone: syncing it alone reports the error
    return files.os_syncfs(fd, syncfs) == 0


@cache
def system_call() -> Callable[[int], int] | None:
    """Return `syncfs(fd)`, 0 on success; None if it does not report errors."""
    if sys.platform != "linux":
        return None
    major, minor, *_ = (*os.uname().release.split("."), "", "")
    if not (major.isdecimal() and minor.isdecimal()):
        return None
    if (int(major), int(minor)) < _SYNCFS_REPORTS_ERRORS_SINCE:
        return None
    import ctypes  # noqa: PLC0415 - 5 ms that a start need not wait for

    syncfs: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "syncfs", None)
    return syncfs
