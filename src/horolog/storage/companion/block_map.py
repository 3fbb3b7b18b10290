"""Block map of one segment.

It finds the parts of a log that may contain a time (blocks.py).

Only the summary of a finished segment is kept in memory. An entry is used once the header of its
last batch in the log has proved it. Parts without a proved entry may contain any time. So a
missing, torn, outdated or foreign map costs time, never a record.

The map is in the companion. While the segment is appended to, it is in the file beside it
(marker.py). An incomplete map is completed from the records (`complete`), in the companion, or in a
cache if the directory is read-only (block_cache.py).
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import reduce
from struct import Struct
from typing import TYPE_CHECKING, Final

import crc32c

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, RequestRefused, StorageFailed
from horolog.offsets import TimeBlock
from horolog.record import scan
from horolog.record.batch import MAGIC, BatchHeader
from horolog.record.time_stats import NO_RECORDS, OF_APPEND_TIME, OF_CREATE_TIME, TimeStats
from horolog.record.timestamps import ALL_TIMES, LOG_APPEND_TIME, NO_TIMESTAMP, TimeRange
from horolog.storage.batches.reader import (
    EVERYTHING,
    FEWEST_BYTES,
    MAX_HELD_BYTES,
    BatchReader,
)
from horolog.storage.companion.block_messages import AppendTimesOf, rows_of
from horolog.storage.companion.block_writer import BlockWriter
from horolog.storage.companion.blocks import (
    BLOCK_BYTES,
    ENTRY_SIZE,
    Span,
    blocks_of,
    earliest,
    iter_places,
    may_hold,
    possible_entries,
    spans,
    unpack,
)
from horolog.storage.companion.file import Companion
from horolog.storage.companion.folding import NO_BLOCK, folded, place_of, row_of
from horolog.storage.companion.marker import MARKER_SIZE
from horolog.storage.companion.proof import IDENTITY_SIZE, LastBatch, identity_of, proved

if TYPE_CHECKING:
    from horolog.storage.companion.block_cache import BlockCache

_logger = logging.getLogger(__name__)

_MAX_BYTES: Final = 1 << 30  # of a batch, decompressed
_SHORT_GAP: Final = 16 << 20  # is scanned before the first append
FOLDED_AT_ONCE: Final = 256
_POSITION_AND_SIZE: Final = Struct(">II")
_SIZE: Final = Struct(">4xI144x")
_OF_LOG: Final = Struct(">QqqqqI")  # as `_version`, and a checksum of the batches
_BATCH: Final = Struct(">qqI")
_PROOF: Final = Struct(">III132xI4x")  # position, size, position and identity of the last batch


_UNKNOWN: Final = (ALL_TIMES.first_ms, True)
"""The earliest time of a stretch whose times are unknown, and whether a record may have none."""


class MapLook:
    """Proved entries of a block map, read once."""

    def __init__(self, entries: bytes, base_offset: int, size: int) -> None:
        self._entries = entries
        self._base_offset = base_offset
        self._size = size
        self.covered = _covered(entries)
        """Number of the log's bytes that the entries cover."""

    @property
    def is_worth_completing(self) -> bool:
        """Return True if the map lacks more than the end of a growing log."""
        missing = self._size - self.covered
        return missing > 0 and (not self.covered or missing > _SHORT_GAP)

    def spans(self, windows: Sequence[TimeRange], next_offset: int | None) -> list[Span]:
        """Return the parts of the log that may contain a record in every window."""
        return spans(self._entries, windows, self._base_offset, self._size, next_offset)

    def time_blocks(self, next_offset: int, *, of_append: bool) -> Iterator[TimeBlock]:
        """The blocks in order, and what is between and behind them, whose times are unknown.

        Args:
            next_offset: the offset after the last of the log.
            of_append: by append times; otherwise by the records' own timestamps.
        """
        at, offset = 0, self._base_offset
        for block in blocks_of(self._entries):
            if block.end > self._size:
                break
            if block.position > at:
                yield TimeBlock(offset, block.base_offset, block.position - at, *_UNKNOWN)
            least = earliest(block.times, of_append=of_append)
            yield TimeBlock(block.base_offset, block.next_offset, block.size, *least)
            at, offset = block.end, block.next_offset
        if at < self._size:
            yield TimeBlock(offset, next_offset, self._size - at, *_UNKNOWN)

    def end_before(self, offset: int) -> tuple[int, int] | None:
        """Return position and base offset of the first proved block at or behind an offset.

        No batch that has an earlier offset is behind it. None without such a block.
        """
        for position, base_offset in iter_places(self._entries):
            if base_offset >= offset and position <= self._size:
                return position, base_offset
        return None

    def summary(self) -> TimeStats | None:
        """Return the statistics of all blocks; None if they do not cover the whole log."""
        if self.covered != self._size:
            return None
        return reduce(TimeStats.followed_by, (block.times for block in blocks_of(self._entries)))


class BlockMap:
    """Block map of one segment. One thread writes to a growing map; any number of threads read."""

    __slots__ = (
        "_base_offset",
        "_cache",
        "_companion",
        "_growing",
        "_log",
        "_summary",
        "_tried",
        "_writer",
    )

    def __init__(
        self, companion: Companion, base_offset: int, cache: "BlockCache | None" = None
    ) -> None:
        self._companion = companion
        self._log = companion.log
        self._growing = companion.marker
        self._base_offset = base_offset
        self._cache = cache
        self._writer: BlockWriter | None = None
        self._summary: tuple[int, TimeStats] | None = None  # of a finished segment, and its bytes
        self._tried = -1  # bytes that have been covered, as far as that was possible

    # Of the segment that is appended to.

    def create(self) -> BlockWriter:
        """Start the map of a new, empty segment, and return its writer."""
        self._companion.grow()
        self._summary = None
        self._writer = BlockWriter(self._log.files, self._growing.path)
        return self._writer

    def reopen(self, size: int, append_times: AppendTimesOf | None = None) -> BlockWriter:
        """Return a writer that continues the map. A short gap at the end of the log is scanned."""
        self._companion.grow()
        self._summary = None
        entries, in_file = self._proved(self._read(self._companion.map), size), 0
        if not entries:  # killed as it was appended to: the map is in the other file
            entries = self._proved(self._read(self._growing.map), size)
            in_file = len(entries) // ENTRY_SIZE
            self._cut_growing(in_file)
        writer = BlockWriter(
            self._log.files, self._growing.path, in_file, b"" if in_file else entries
        )
        covered = _end_of(entries)
        if covered < size <= covered + _SHORT_GAP:
            with suppress(CorruptBatch):  # what has no entry is read when a time is asked for
                offset = unpack(entries, len(entries) - ENTRY_SIZE).next_offset if entries else 0
                offset = max(offset, self._base_offset)
                for row in self._rows(covered, size, offset, append_times):
                    writer.add(row, place_of(row)[1])
        self._writer = writer
        return writer

    def _cut_growing(self, count: int) -> None:
        """Cut the file of the growing map after its first `count` entries."""
        files, path, size = self._log.files, self._growing.path, MARKER_SIZE + count * ENTRY_SIZE
        try:
            if files.size(path) > size:
                files.truncate(files.get(path), size)
        except StorageFailed as error:
            _logger.warning("The block map keeps entries that are not of this log: %s", error)

    def closed(self, size: int) -> bytes | None:
        """Return the entries of a segment that is being finished, for `finish`.

        None if they are in the companion already.
        """
        if self._writer is not None:
            self._writer.close()
        elif not self._read(self._growing.map):
            return None
        return self.entries(size)

    def finish(self, entries: bytes | None) -> None:
        """Write the entries into the companion, the rest of which is finished."""
        self._companion.is_growing = False
        if entries is not None:
            self.put(entries)
        self._writer = None

    def put(self, entries: bytes) -> None:
        """Replace the map in the companion. A refusal of the disk is logged only."""
        try:
            self._companion.write_map(entries)
        except StorageFailed as error:
            _logger.warning("The block map is not written: %s", error)

    def leave(self) -> None:
        """Drop the writer and the summary, because the segment is cut."""
        self._writer, self._summary = None, None
        self._companion.is_growing = False

    # Of any segment.

    def spans(self, window: TimeRange, size: int, next_offset: int | None = None) -> list[Span]:
        """Return the parts of the first `size` bytes that may contain a record in a window.

        Args:
            next_offset: where the segment's offsets end, if that is known.
        """
        if not size:
            return []
        if self._summary is None or self._summary[0] != size:
            look = self.look(size)
            if self._writer is None and (summary := look.summary()) is not None:
                self._summary = size, summary
            return look.spans((window,), next_offset)
        if not may_hold(window, self._summary[1]):
            return []
        return self.look(size).spans((window,), next_offset)

    def entries(self, size: int) -> bytes:
        """Return the proved entries within the first `size` bytes of the log."""
        writer = self._writer
        if writer is not None:
            not_published = writer.open_blocks()
            in_file, unwritten = writer.published
            written = self._read(self._growing.map)[: in_file * ENTRY_SIZE] if in_file else b""
            if len(written) < in_file * ENTRY_SIZE:
                written = b""
            entries = written + unwritten
            end = _end_of(entries)
            for position, _, entry in _placed(not_published):
                if position >= end:
                    entries += entry
            return entries_within(entries, size)
        entries = self._proved(
            self._read(self._companion.map) or self._read(self._growing.map), size
        )
        if self._cache is not None and _covered(entries) < size:
            cached = self._cached(self._cache, size)
            if _covered(cached) > _covered(entries):
                return cached
        return entries

    def is_final(self, size: int) -> bool:
        """Return True if the map covers the whole log, or as much of it as can be read."""
        return self._tried == size or self.is_complete(size)

    def is_complete(self, size: int) -> bool:
        """Return True if the map covers the whole log."""
        is_known = self._summary is not None and self._summary[0] == size
        return is_known or _covered(self.entries(size)) == size

    def times(
        self, size: int, from_offset: int = 0, to_offset: int | None = None
    ) -> TimeStats | None:
        """Return the statistics of the first `size` bytes; None if the map does not prove them.

        The statistics equal those of a scan of the records. Blocks that end before `from_offset`
        are left out, and those that end after `to_offset`.
        """
        entries = self.entries(size)
        blocks = blocks_of(entries)
        if _covered(entries) != size or not all(block.is_exact for block in blocks):
            return None
        counted = (
            block.times
            for block in blocks
            if block.next_offset > from_offset
            and (to_offset is None or block.next_offset <= to_offset)
        )
        return reduce(TimeStats.followed_by, counted, NO_RECORDS)

    def look(self, size: int) -> "MapLook":
        """Read the proved entries once, for several questions."""
        return MapLook(self.entries(size), self._base_offset, size)

    def complete(self, size: int, append_times: AppendTimesOf | None = None) -> bool:
        """Scan the parts of a finished segment that the map lacks.

        Return True if it covers the log now.

        If the map cannot be written, the next caller scans again.
        """
        if self._writer is not None or not size:
            return False
        entries = self.entries(size)
        if _covered(entries) == size:
            return True
        blocks = bytearray()
        at, offset = 0, self._base_offset
        try:
            for start, end, entry in (*_placed(entries), (size, size, b"")):
                if start > at:
                    for part in self._scanned(at, start, offset, append_times):
                        blocks += part
                blocks += entry
                at = end
                if entry:
                    offset = unpack(entry, 0).next_offset
        except CorruptBatch as error:
            _logger.info("%s: no block map beyond the damage: %s", self._log.path, error)
        self._save(bytes(blocks))
        self._tried = size
        return _covered(bytes(blocks)) == size

    def _save(self, entries: bytes) -> None:
        try:
            if self._cache is not None:
                of_log = _OF_LOG.pack(*self._version(), self._sum_of(_end_of(entries)))
                self._cache.write(self._log.path, of_log + entries)
            elif not self._log.files.read_only:
                self.put(entries)
        except StorageFailed as error:
            _logger.warning("The block map is not written: %s", error)

    # Proof.

    def _cached(self, cache: "BlockCache", size: int) -> bytes:
        """Return the proved entries from the cache.

        A path may have had another log with the same last batch. So the headers of all batches are
        compared, unless the file is the same and unchanged.
        """
        content = cache.read(self._log.path)
        if content is None or len(content) < _OF_LOG.size:
            return b""
        entries = possible_entries(content[_OF_LOG.size :], self._base_offset)
        if entries_within(entries, size) != entries:
            return b""
        *before, batches = _OF_LOG.unpack_from(content)
        now = self._version()
        if tuple(before[3:]) != now[3:]:
            return b""  # append times are others
        try:
            if tuple(before) != now and batches != self._sum_of(_end_of(entries)):
                return b""
        except CorruptBatch:
            return b""
        return self._proved(entries, size)

    def _version(self) -> tuple[int, int, int, int, int]:
        """Return inode, last change and size of the log, and the last two of the companion."""
        files, log, companion = self._log.files, self._log.path, self._companion.path
        of_log = files.inode(log), files.modified_ns(log), files.size(log)
        return *of_log, files.modified_ns(companion), files.size(companion)

    def _sum_of(self, size: int) -> int:
        """Return a checksum over the offsets, sizes and checksums of all batches.

        Raises:
            CorruptBatch: something is no batch.
        """
        checksum = 0
        for _, header in self._log.batches(size, FEWEST_BYTES).headers() if size else ():
            checksum = crc32c.crc32c(
                _BATCH.pack(header.base_offset, header.size, header.crc), checksum
            )
        return checksum

    def _read(self, read: Callable[[], bytes]) -> bytes:
        """Read entries from the companion, or from the file of a growing map."""
        try:
            return possible_entries(read(), self._base_offset)
        except StorageFailed as error:
            _logger.warning("The block map is not read: %s", error)
            return b""

    def _proved(self, entries: bytes, size: int) -> bytes:
        """Return the entries up to the last one whose batch is in the log (proof.py)."""
        entries = entries_within(entries, size)

        def is_in_log(number: int) -> bool:
            at, length, *last = _PROOF.unpack_from(entries, number * ENTRY_SIZE)
            return LastBatch(last[0], at + length, last[1]).is_in(self._log)

        return entries[: proved(0, len(entries) // ENTRY_SIZE, is_in_log) * ENTRY_SIZE]

    # From the records.

    def _scanned(
        self, start: int, end: int, offset: int, append_times: AppendTimesOf | None
    ) -> Iterator[bytes]:
        """Yield the entries of a part of the log, from its records."""
        total, pending = NO_BLOCK, list[bytes]()
        try:
            for row in self._rows(start, end, offset, append_times):
                pending.append(row)
                if len(pending) == FOLDED_AT_ONCE:
                    entries, total = folded(total, pending, BLOCK_BYTES)
                    pending = []
                    yield entries
        except CorruptBatch:
            yield folded(total, pending, BLOCK_BYTES, closing=True)[0]
            raise
        yield folded(total, pending, BLOCK_BYTES, closing=True)[0]

    def _rows(
        self, start: int, end: int, offset: int, append_times: AppendTimesOf | None
    ) -> Iterator[bytes]:
        """Yield the rows of the batches in a part of the log.

        `offset` is the least offset there.

        The last batch before damage is left out, since its base offset may be wrong.
        """
        scan.load_kernels(end - start)
        # A compressed message of v0 or v1 takes its base offset from the least offset.
        log = self._log.batches(end, EVERYTHING, least_offset=offset)
        rows: Iterable[bytes] = ()
        for position, header, listed in log.stretches(start, end):
            yield from rows
            if listed is not None:
                data = log.start_of(position, listed.end)
                rows = rows_of(data, position, listed, append_times, offset)
                offset = listed.next_offset
                continue
            rows = (_row_in(log, position, header, append_times, offset),)
            offset = header.next_offset
        yield from rows


def _row_in(
    log: BatchReader,
    position: int,
    header: BatchHeader,
    append_times: AppendTimesOf | None,
    least_offset: int,
) -> bytes:
    """Return the row of a batch in the log, with the append time that the caller knows."""
    append_ms: int | None = None
    if header.timestamp_type is LOG_APPEND_TIME:
        append_ms = _stamped_ms(header)
    elif append_times is not None:
        append_ms = append_times(header.base_offset, header.base_offset + 1)[0].ms
    batch: Buffer
    facts = None
    if header.size > MAX_HELD_BYTES:
        batch = log.start_of(position, IDENTITY_SIZE)
    else:
        batch = log.batch(position, header)
        with suppress(CorruptBatch, RequestRefused):  # then anything may be in it
            facts = scan.scan_batch(
                batch, header, max_bytes=_MAX_BYTES, arrival_ms=append_ms, create_times=True
            )
    return row_with(position, header, batch, facts, append_ms, least_offset)


def row_with(
    position: int,
    header: BatchHeader,
    batch: Buffer | None,
    facts: scan.RecordFacts | None,
    append_ms: int | None,
    least_offset: int | None = None,
) -> bytes:
    """Return the row of a batch whose records were scanned.

    `facts` count create times.

    A batch that is stamped with LogAppendTime has its own append time.
    """
    is_stamped = header.timestamp_type is LOG_APPEND_TIME
    base_offset = header.base_offset
    if header.magic != MAGIC and least_offset is not None:
        base_offset = min(base_offset, least_offset)  # its own is of the last message in it
    return row_of(
        position,
        header.size,
        base_offset,
        header.last_offset,
        0 if batch is None else identity_of(batch),
        facts.counts[0] if facts is not None and header.is_control else 0,
        _stamped_ms(header) if is_stamped else append_ms,
        OF_APPEND_TIME if is_stamped else OF_CREATE_TIME,
        None if facts is None else facts.counts.tobytes(),
    )


def _stamped_ms(header: BatchHeader) -> int | None:
    return None if header.max_timestamp == NO_TIMESTAMP else header.max_timestamp


def entries_within(entries: bytes, size: int) -> bytes:
    """Return the entries within the first `size` bytes of the log."""
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
    """Return the number of bytes of the log that entries cover."""
    return sum(size for (size,) in _SIZE.iter_unpack(entries))


def _placed(entries: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield start, end and bytes of each entry."""
    for place in range(0, len(entries), ENTRY_SIZE):
        position, size = _POSITION_AND_SIZE.unpack_from(entries, place)
        yield position, position + size, entries[place : place + ENTRY_SIZE]
