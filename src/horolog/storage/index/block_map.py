"""The block map of one segment: which stretches of its log may hold a time (index/blocks.py).

    <base>.blocks      next to the log, written by the broker and by `horolog log reindex`

Nothing is kept in memory but a summary of a finished segment. An entry is used once it is
proved by the header of its last batch in the log; what no proved entry covers may hold
anything. So a missing, torn, outdated or foreign map costs time, never a record.

A map that lacks something is completed from the records (`complete`): next to the log where
this process may write there, otherwise in a cache directory (index/block_cache.py).
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from struct import Struct
from typing import Final, Protocol

import crc32c

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, RequestRefused, StorageFailed
from horolog.record import scan
from horolog.record.batch import HEADER_SIZE as BATCH_HEADER_SIZE
from horolog.record.batch import MAGIC, BatchHeader
from horolog.record.timestamps import LOG_APPEND_TIME, NO_TIMESTAMP
from horolog.storage import names
from horolog.storage.batches.log_file import LogFile
from horolog.storage.batches.reader import EVERYTHING, MAX_HELD_BYTES, BatchReader
from horolog.storage.index.block_messages import AppendTimesOf, sets_of
from horolog.storage.index.block_rows import row_of
from horolog.storage.index.block_writer import BlockWriter
from horolog.storage.index.blocks import (
    BLOCK_BYTES,
    ENTRY_SIZE,
    HAS_APPEND_TIMES,
    HEADER_SIZE,
    IS_CONTROL,
    LACKS_APPEND_TIMES,
    OF_APPEND_TIME,
    OF_CREATE_TIME,
    Block,
    Met,
    MetSet,
    Span,
    Window,
    fold,
    joined,
    may_hold,
    pack_header,
    sound,
    spans,
    unpack,
)

_logger = logging.getLogger(__name__)

_MAX_BYTES: Final = 1 << 30  # of a batch, decompressed
LONGEST_MAP: Final = 64 << 20
_MUCH: Final = 4 << 20  # to be scanned: worth loading the kernels
_SHORT_GAP: Final = 16 << 20  # is scanned before the first append
_POSITION_AND_SIZE: Final = Struct(">II")
_SIZE: Final = Struct(">4xI144x")
_PROOF: Final = Struct(">III128xI8x")  # position, size, position and CRC of the last header


class Cache(Protocol):
    """Where maps are kept of logs whose directories are not written to."""

    def read(self, path: str) -> bytes | None:
        """The map of the log at a path."""

    def write(self, path: str, content: bytes) -> None:
        """Keep it; may fail."""


class MapLook:
    """The proved entries of a map as they were at one moment."""

    def __init__(self, entries: bytes, base_offset: int, size: int) -> None:
        self._entries = entries
        self._base_offset = base_offset
        self._size = size
        self.covered = _covered(entries)
        """How many of the log's bytes they cover."""

    @property
    def is_worth_completing(self) -> bool:
        """Whether more is missing than the end of a log that is appended to."""
        missing = self._size - self.covered
        return missing > 0 and (not self.covered or missing > _SHORT_GAP)

    def spans(self, windows: Sequence[Window], next_offset: int | None) -> list[Span]:
        """The stretches that may hold a record in all of the windows; see `BlockMap.spans`."""
        return spans(self._entries, windows, self._base_offset, self._size, next_offset)


class BlockMap:
    """See the module. One writer while the segment grows; any number of readers."""

    __slots__ = (
        "_base_offset",
        "_cache",
        "_is_abandoned",
        "_log",
        "_replacing",
        "_summary",
        "_tried",
        "_writer",
        "path",
    )

    def __init__(self, log: LogFile, base_offset: int, cache: Cache | None = None) -> None:
        self.path = log.path.removesuffix(names.LOG) + names.BLOCKS
        self._log = log
        self._base_offset = base_offset
        self._cache = cache
        self._writer: BlockWriter | None = None
        self._replacing = threading.Lock()
        self._is_abandoned = False
        self._summary: tuple[int, Block] | None = None  # of so many bytes of a finished segment
        self._tried = -1  # so many bytes have been covered, as far as that was possible

    # Of the segment that is appended to.

    def create(self) -> BlockWriter:
        """Begin with an empty log."""
        self._log.files.remove(self.path)
        self._summary = None
        self._writer = BlockWriter(self._log.files, self.path, self._base_offset)
        return self._writer

    def reopen(self, size: int, append_times: AppendTimesOf | None = None) -> BlockWriter:
        """Go on where the log ends. A short stretch at its end that is not covered is scanned."""
        with self._replacing:  # no other thread replaces the file from here on
            self._writer = BlockWriter(self._log.files, self.path, self._base_offset)
        self._summary = None
        entries = self._proved(self._in_file(), size)
        covered = _end_of(entries)
        self._cut_file(entries)
        writer = BlockWriter(
            self._log.files, self.path, self._base_offset, len(entries) // ENTRY_SIZE
        )
        is_near = size - covered <= _SHORT_GAP
        if entries and is_near:
            writer.resume(entries[-ENTRY_SIZE:])
        if covered < size and is_near:
            with suppress(CorruptBatch):  # what has no entry is read when a time is asked for
                offset = unpack(entries, len(entries) - ENTRY_SIZE).next_offset if entries else 0
                offset = max(offset, self._base_offset)
                for met in self._met(covered, size, offset, append_times):
                    if isinstance(met, MetSet):
                        writer.add_set(met)
                    else:
                        writer.add(row_of(*met), met[1])
        self._writer = writer
        return writer

    def finish(self) -> None:
        """Write what is not written yet: the segment is finished."""
        if self._writer is not None:
            self._writer.finish()
            self._writer = None

    def truncate_to(self, size: int) -> None:
        """Forget what is about the log behind a position; the segment is reopened next."""
        self._writer, self._summary = None, None
        self._cut_file(_fitting(self._in_file(), size))

    def _cut_file(self, entries: bytes) -> None:
        """Leave these entries in the file, its first ones."""
        files, size = self._log.files, HEADER_SIZE + len(entries)
        try:
            if files.size(self.path) > size:
                files.truncate(files.get(self.path), size)
                files.forget(self.path)
        except StorageFailed as error:
            _logger.warning("The block map keeps entries that are not of this log: %s", error)

    def abandon(self) -> None:
        """Replace no file from here on: other files may have these names."""
        with self._replacing:
            self._is_abandoned = True

    # Of any segment.

    def spans(self, window: Window, size: int, next_offset: int | None) -> list[Span]:
        """The stretches of the first `size` bytes that may hold a record in a window.

        Args:
            window: the times.
            size: of whole batches.
            next_offset: where the segment's offsets end, if that is known.
        """
        if not size:
            return []
        summary = self._summary
        if summary is not None and summary[0] == size and not may_hold(window, summary[1]):
            return []
        entries = self.entries(size)
        self._summarise(entries, size)
        return spans(entries, (window,), self._base_offset, size, next_offset)

    def entries(self, size: int) -> bytes:
        """The proved entries within the first `size` bytes of the log."""
        writer = self._writer
        if writer is not None:
            not_published = writer.open_blocks()
            in_file, unwritten = writer.published
            written = self._in_file()[: in_file * ENTRY_SIZE] if in_file else b""
            if len(written) < in_file * ENTRY_SIZE:
                written = b""
            entries = written + unwritten
            for block in not_published:
                if block.position >= _end_of(entries):
                    entries += block.pack()
            return _fitting(entries, size)
        entries = self._proved(self._in_file(), size)
        if self._cache is not None and _covered(entries) < size:
            cached = self._cache.read(self._log.path)
            if cached is not None:
                others = self._proved(sound(cached, self._base_offset), size)
                if _covered(others) > _covered(entries):
                    return others
        return entries

    def is_final(self, size: int) -> bool:
        """Whether the whole log is covered, or as much of it as can be."""
        return self._tried == size or self.is_complete(size)

    def is_complete(self, size: int) -> bool:
        """Whether the whole log is covered."""
        if self._summary is not None and self._summary[0] == size:
            return True
        return _covered(self.entries(size)) == size

    def whole(self, size: int) -> list[Block] | None:
        """The blocks of the first `size` bytes, proved; None if they do not cover all of them."""
        entries = self.entries(size)
        if _covered(entries) != size:
            return None
        return [unpack(entries, place) for place in range(0, len(entries), ENTRY_SIZE)]

    def look(self, size: int) -> "MapLook":
        """What is covered now, read once."""
        return MapLook(self.entries(size), self._base_offset, size)

    def complete(self, size: int, append_times: AppendTimesOf | None = None) -> bool:
        """Cover all of a segment that is not appended to; whether it is covered now.

        Reads the records of every stretch that is not covered. Where nothing can be written, the
        next caller will do it again.
        """
        if self._writer is not None or not size:
            return False
        entries = self.entries(size)
        if _covered(entries) == size:
            return True
        blocks = bytearray()
        at, offset = 0, self._base_offset
        try:
            for start, end, entry in (*_with_gaps(entries), (size, size, b"")):
                if start > at:
                    for block in self._scanned(at, start, offset, append_times):
                        blocks += block.pack()
                blocks += entry
                at = end
                if entry:
                    offset = unpack(entry, 0).next_offset
        except CorruptBatch as error:
            _logger.info("%s: no block map beyond the damage: %s", self._log.path, error)
        self._save(pack_header(self._base_offset) + bytes(blocks))
        self._tried = size
        return _covered(bytes(blocks)) == size

    def _save(self, content: bytes) -> None:
        files = self._log.files
        try:
            if self._cache is not None:
                self._cache.write(self._log.path, content)
            elif not files.read_only:
                with self._replacing:
                    if not self._is_abandoned and self._writer is None:
                        files.replace(self.path, content, sync=False)
        except StorageFailed as error:
            _logger.warning("The block map is not written: %s", error)

    def _summarise(self, entries: bytes, size: int) -> None:
        if self._writer is None and _covered(entries) == size:
            whole = unpack(entries, 0)
            for place in range(ENTRY_SIZE, len(entries), ENTRY_SIZE):
                whole = joined(whole, unpack(entries, place))
            self._summary = size, whole

    # Proof.

    def _in_file(self) -> bytes:
        try:
            content = self._log.files.read_whole(self.path, LONGEST_MAP)
        except StorageFailed as error:
            _logger.warning("The block map is not read: %s", error)
            return b""
        return b"" if content is None else sound(content, self._base_offset)

    def _proved(self, entries: bytes, size: int) -> bytes:
        """The entries of this log: those up to the last whose batch is in it."""
        entries = _fitting(entries, size)
        low, high = 0, len(entries) // ENTRY_SIZE
        if high and self._is_in_log(entries, high - 1):
            return entries
        while low < high:  # logs are appended to and cut: where one fails, all behind it do
            middle = (low + high) // 2
            if self._is_in_log(entries, middle):
                low = middle + 1
            else:
                high = middle
        return entries[: low * ENTRY_SIZE]

    def _is_in_log(self, entries: bytes, number: int) -> bool:
        position, size, last_position, crc = _PROOF.unpack_from(entries, number * ENTRY_SIZE)
        end = position + size
        length = min(BATCH_HEADER_SIZE, end - last_position)
        header = self._log.files.read_at(self._log.open(), length, last_position)
        return len(header) == length and bool(crc32c.crc32c(header) == crc)

    # From the records.

    def _scanned(
        self, start: int, end: int, offset: int, append_times: AppendTimesOf | None
    ) -> Iterator[Block]:
        pending: list[Met | MetSet] = []
        size = 0
        for part in self._met(start, end, offset, append_times):
            added = part.met[1] if isinstance(part, MetSet) else part[1]
            if pending and size + added > BLOCK_BYTES:
                yield fold(pending)
                pending, size = [], 0
            pending.append(part)
            size += added
        if pending:
            yield fold(pending)

    def _met(
        self, start: int, end: int, offset: int, append_times: AppendTimesOf | None
    ) -> "Iterator[Met | MetSet]":
        """The batches in a stretch of the log, all of whose offsets are `offset` or later."""
        if end - start > _MUCH:
            scan.load_kernels()
        log = self._log.batches(end, EVERYTHING)
        for position, header, listed in log.stretches(start, end):
            if listed is not None:
                data = log.start_of(position, listed.end)
                yield from sets_of(data, position, listed, append_times, offset)
                offset = listed.next_offset
                continue
            met = met_of(log, position, header, append_times)
            if header.magic != MAGIC:  # with the offset of the last message in it
                met = (*met[:3], min(offset, header.base_offset), *met[4:])
            yield met
            offset = header.next_offset


def met_of(
    log: BatchReader, position: int, header: BatchHeader, append_times: AppendTimesOf | None = None
) -> Met:
    """What a block map holds of a batch in a log.

    Its append time is known if its records are stamped with it, or if the caller knows it.
    """
    append_ms: int | None
    if header.timestamp_type is LOG_APPEND_TIME:
        append_ms = None if header.max_timestamp == NO_TIMESTAMP else header.max_timestamp
    else:
        at = header.base_offset
        append_ms = None if append_times is None else append_times(at, at + 1)[0].ms
    if header.size > MAX_HELD_BYTES:
        head = log.start_of(position, BATCH_HEADER_SIZE)
        return met_with(position, header, head, None, append_ms)
    batch, facts = log.batch(position, header), None
    with suppress(CorruptBatch, RequestRefused):  # then anything may be in it
        facts = scan.scan_batch(
            batch, header, max_bytes=_MAX_BYTES, arrival_ms=append_ms, create_times=True
        )
    return met_with(position, header, batch, facts, append_ms)


def met_with(
    position: int,
    header: BatchHeader,
    batch: Buffer | None,
    facts: scan.RecordFacts | None,
    append_ms: int | None,
) -> Met:
    """The same of a batch whose records were scanned; `facts` are by create times."""
    kind = OF_CREATE_TIME
    if header.timestamp_type is LOG_APPEND_TIME:
        kind = OF_APPEND_TIME
        append_ms = None if header.max_timestamp == NO_TIMESTAMP else header.max_timestamp
    if header.is_control:
        kind |= IS_CONTROL
    return (
        position,
        header.size,
        b"" if batch is None else bytes(memoryview(batch)[: min(BATCH_HEADER_SIZE, header.size)]),
        header.base_offset,
        header.last_offset,
        kind | (LACKS_APPEND_TIMES if append_ms is None else HAS_APPEND_TIMES),
        append_ms or 0,
        None if facts is None else facts.tally,
    )


def _fitting(entries: bytes, size: int) -> bytes:
    """Those within the first `size` bytes of the log."""
    count = len(entries) // ENTRY_SIZE
    while count:
        position, length = _POSITION_AND_SIZE.unpack_from(entries, (count - 1) * ENTRY_SIZE)
        if position + length <= size:
            break
        count -= 1
    return entries[: count * ENTRY_SIZE]


def _end_of(entries: bytes) -> int:
    if not entries:
        return 0
    position, size = _POSITION_AND_SIZE.unpack_from(entries, len(entries) - ENTRY_SIZE)
    return int(position + size)


def _covered(entries: bytes) -> int:
    """How many bytes of the log they cover."""
    return sum(size for (size,) in _SIZE.iter_unpack(entries))


def _with_gaps(entries: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Start, end and bytes of each entry."""
    for place in range(0, len(entries), ENTRY_SIZE):
        position, size = _POSITION_AND_SIZE.unpack_from(entries, place)
        yield position, position + size, entries[place : place + ENTRY_SIZE]
