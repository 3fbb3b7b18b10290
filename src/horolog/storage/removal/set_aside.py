"""Files with bytes that recovery or a truncation took off a log.

Nothing readable is deleted.

    <base offset>.log.<byte>.cut      bytes of the segment from this byte on; 0 for the whole log
    <base offset>.log.<byte>.<n>.cut  the same of a later time
    <the same name>.times             proved append times of the records

The files are in the partition's directory. Kafka ignores their names, and they are never served.
Indexes and seals are not kept, since the log has their contents. `retention.bytes` does not count
the files. They expire `retention.ms` after their modification time, and are deleted with their
topic.
"""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from horolog.errors import StorageFailed
from horolog.storage import names
from horolog.storage.files import Files, OpenFile

_NAME = re.compile(r"(\d{20})\.log(?:\.(\d+))?(?:\.\d+)?\.cut", re.ASCII)
_PIECE_BYTES = 1 << 20


class SetAside(NamedTuple):
    """Origin of a set-aside file, from its name."""

    base_offset: int
    """Base offset of the segment."""
    position: int
    """Byte of the segment at which the file begins."""


def set_aside_of(name: str) -> SetAside | None:
    """Parse the name of a set-aside file; None for other files."""
    match = _NAME.fullmatch(name)
    return None if match is None else SetAside(int(match[1]), int(match[2] or 0))


def set_aside_in(present: Iterable[str]) -> list[str]:
    """Return the names of set-aside files, in order."""
    return sorted(name for name in present if set_aside_of(name) is not None)


def keep_stretch(
    files: Files, log: OpenFile, start: int, end: int, now_ms: int, times: bytes | None = None
) -> str:
    """Copy a range of a log's bytes to a set-aside file.

    Returns its path.

    `times` are the proved append times (`AppendTimeFile.kept_from`).

    Raises:
        StorageFailed: the disk refused, or is full; the log is as it was.
    """
    temporary = f"{log.path}.{start}.tmp"
    target = files.create(temporary)
    try:
        for position in range(start, end, _PIECE_BYTES):
            part = files.read_at(log, min(_PIECE_BYTES, end - position), position)
            files.write_at(target, [part], position - start)
        files.sync(target)
        path, number = f"{log.path}.{start}{names.CUT}", 1
        while files.exists(path) and not _are_equal(files, path, target, end - start):
            number += 1
            path = f"{log.path}.{start}.{number}{names.CUT}"
        _keep_times(files, path, times)
        files.touch(temporary, now_ms)
        files.rename(temporary, path)
    except StorageFailed:
        with suppress(StorageFailed):  # it would take room until the next start
            files.remove(temporary)
        raise
    finally:
        files.forget(temporary)
    files.sync_path(os.path.dirname(path))
    return path


def keep_segment(
    files: Files, directory: str, base_offset: int, now_ms: int, times: bytes | None = None
) -> str:
    """Set the whole log of a segment aside.

    Returns its new path.

    `times` are as in `keep_stretch`.

    Raises:
        StorageFailed: the disk refused.
    """
    stem = f"{directory}/{base_offset:020d}"
    path = keep_file(files, stem + names.LOG, stem + names.LOG, now_ms, times)
    for suffix in names.SEGMENT_SUFFIXES:
        if suffix != names.LOG:
            files.remove(stem + suffix)
    return path


def keep_file(files: Files, path: str, log: str, now_ms: int, times: bytes | None = None) -> str:
    """Rename a file to a set-aside file of a segment's whole log.

    Returns its new path.

    `times` are as in `keep_stretch`.

    Raises:
        StorageFailed: the disk refused.
    """
    target, number = f"{log}.0{names.CUT}", 1
    while files.exists(target):
        number += 1
        target = f"{log}.0.{number}{names.CUT}"
    _keep_times(files, target, times)
    files.touch(path, now_ms)
    files.rename(path, target)
    return target


def _keep_times(files: Files, path: str, times: bytes | None) -> None:
    """Write append times first, so that a kill leaves no records without them."""
    if times is not None:
        files.replace(path + names.CUT_TIMES, times)


def _are_equal(files: Files, path: str, content: OpenFile, size: int) -> bool:
    """Return True if a file has this content, because a killed recovery wrote it before."""
    if files.size(path) != size:
        return False
    file = files.get(path)
    return all(
        files.read_at(file, _PIECE_BYTES, at) == files.read_at(content, _PIECE_BYTES, at)
        for at in range(0, size, _PIECE_BYTES)
    )
