"""What recovery takes off a log and keeps: nothing that could still be read is deleted.

    <base offset>.log.<byte>.cut      what began at this byte of the segment, 0 for all of it
    <base offset>.log.<byte>.<n>.cut  the same of a later recovery
    <the same name>.times             when its records were appended, as far as that is sure

They are in the partition's directory, where Kafka ignores names that end so, and are never
served. Indexes and seals are not kept: they are made from the log. `retention.bytes` does not
count them. They expire when `retention.ms` have passed since recovery, by the files' times, and
are deleted with their topic.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from horolog.errors import CorruptBatch
from horolog.record.batch import MAGIC, BatchHeader
from horolog.storage import names
from horolog.storage.batch_reader import BatchReader, TornTail
from horolog.storage.files import Files, OpenFile

_NAME = re.compile(r"(\d{20})\.log(?:\.(\d+))?(?:\.\d+)?\.cut", re.ASCII)
_PIECE_BYTES = 1 << 20
_MAGIC_AT = 16
_LEAST_CHARGE = 1 << 10  # of what is tried, however small it claims to be
_BUDGET_BYTES = 1 << 28  # of checksums that turned out wrong, besides the size of what is searched


class SetAside(NamedTuple):
    """Where a file that was set aside comes from, as its name says."""

    base_offset: int
    """Of the segment."""
    position: int
    """The byte of the segment at which it began."""


def set_aside_of(name: str) -> SetAside | None:
    """What a file of this name holds, None if it was not set aside by recovery."""
    match = _NAME.fullmatch(name)
    return None if match is None else SetAside(int(match[1]), int(match[2] or 0))


def set_aside_in(present: Iterable[str]) -> list[str]:
    """The names among these of files that were set aside, in order."""
    return sorted(name for name in present if set_aside_of(name) is not None)


def keep_stretch(
    files: Files, log: OpenFile, start: int, end: int, now_ms: int, times: bytes | None = None
) -> str:
    """Copy a stretch of a log into a file next to it, before it is cut off; its path.

    `times`: what is sure of append times (`AppendTimeFile.excerpt`).

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
    finally:
        files.forget(temporary)
    path, number = f"{log.path}.{start}{names.CUT}", 1
    while files.exists(path) and not _are_equal(files, path, target, end - start):
        number += 1
        path = f"{log.path}.{start}.{number}{names.CUT}"
    _keep_times(files, path, times)
    files.touch(temporary, now_ms)
    files.rename(temporary, path)
    files.sync_path(os.path.dirname(path))
    return path


def keep_segment(
    files: Files, directory: str, base_offset: int, now_ms: int, times: bytes | None = None
) -> str:
    """Give the log of a segment a name under which it is not served; its path.

    `times` as in `keep_stretch`.

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
    """Set a file aside as the whole of a segment's log; its new path.

    `times` as in `keep_stretch`.

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
    """Write them first, so that a kill leaves no records without what was known of them."""
    if times is not None:
        files.replace(path + names.CUT_TIMES, times)


def _are_equal(files: Files, path: str, content: OpenFile, size: int) -> bool:
    """Whether a file has this content: a recovery that was killed has set it aside before."""
    if files.size(path) != size:
        return False
    file = files.get(path)
    return all(
        files.read_at(file, _PIECE_BYTES, at) == files.read_at(content, _PIECE_BYTES, at)
        for at in range(0, size, _PIECE_BYTES)
    )


def is_torn_tail(files: Files, file: OpenFile, start: int, end: int) -> bool:
    """Whether `[start, end)` of a log is nothing but zeros or the beginning of a batch.

    Not so where it holds a whole batch, be it damaged or in the wrong place, nor where it does
    not begin as a batch does: that may be a whole one with a damaged header.
    """
    log = BatchReader(files, file, end)
    if log.is_zeros(start):
        return True
    try:
        log.header(start)
    except TornTail:
        with suppress(CorruptBatch):  # too much looks like batches: it may hold one
            return next(whole_batches(log, start), None) is None
    except CorruptBatch:
        pass
    return False


def is_whole(files: Files, path: str) -> bool:
    """Whether a file is batches from its first byte to its last, and not empty."""
    log, end = BatchReader.of_file(files, path), 0
    try:
        for position, header in whole_batches(log):
            if position != end:
                return False
            end += header.size
    except CorruptBatch:
        return False
    return 0 < log.size == end


def whole_batches(log: BatchReader, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch from `start` on whose checksum is right.

    Bytes that are no batch are skipped: a damaged batch by its length if another follows there,
    otherwise byte by byte.

    Raises:
        CorruptBatch: too much looks like a batch and is none.
    """
    search = _Search(log, start)
    position = start
    while position >= 0:
        header = search.at(position)
        if header is None:
            position = search.behind(position)
        else:
            yield position, header
            position += header.size


class _Search:
    """Looks for whole batches in a log from some position on."""

    def __init__(self, log: BatchReader, start: int) -> None:
        self._log = log
        self._old_formats = True  # behind a batch of v2 no message of v0 or v1 is looked for
        self._budget = _BUDGET_BYTES + log.size - start

    def at(self, position: int) -> BatchHeader | None:
        """The whole batch that begins at a position, if one does."""
        try:
            header = self._log.header(position)
            if header.base_offset < 0:
                return None
        except CorruptBatch:
            return None
        try:
            self._log.check(position, header)
        except CorruptBatch as error:
            self._budget -= max(header.size, _LEAST_CHARGE)
            if self._budget < 0:
                raise CorruptBatch("too much only looks like batches") from error
            return None
        self._old_formats = header.magic != MAGIC
        return header

    def behind(self, position: int) -> int:
        """Where the next whole batch after the one that is none at `position` begins, or -1."""
        following = position
        with suppress(CorruptBatch):  # its header does not say where it ends
            following += self._log.header(position).size
        if following > position and self.at(following) is not None:
            return following
        while (position := self._next_like(position + 1)) >= 0:
            if self.at(position) is not None:
                return position
        return -1

    def _next_like(self, start: int) -> int:
        return self._log.find_batch_like(start, old_formats=self._old_formats)
