"""Reader of one segment: its `.log` and its companion files.

    <base>.log         batches of any format, one after the other (batches/reader.py)
    <base>.index       where offsets are in it (index/sparse.py)
    <base>.timeindex   from where to look for a moment (index/sparse.py)
    <base>.txnindex    its aborted transactions, if there are any (index/abort.py)
    <base>.companion   ours: append times of its records, a seal that says what the indexes must
                       look like, and a map of blocks that may hold a time (`storage/companion`)

The broker, recovery, tools and Spark's file source read segments here. Nothing of a topic's
settings is needed: whether indexes are checked and repaired, or used as far as their batches
prove them, is a `Trust`; how far is read ahead, a `ReadAhead`. Who walks `batches` uses no index.

A reader takes `end` first and never looks past it. Indexes only narrow a search: with wrong
or missing ones every answer is the same, just slower.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from horolog.errors import CorruptBatch, CorruptIndex
from horolog.record.batch import HEADER_SIZE, BatchHeader, parse_header
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.storage import names
from horolog.storage.batches.log_file import LogFile, SegmentEnd, TimeEntry
from horolog.storage.batches.reader import FEWEST_BYTES, HEADERS, BatchReader, ReadAhead, TornTail
from horolog.storage.batches.slices import Slice
from horolog.storage.batches.whole import whole_batches
from horolog.storage.companion.append_times import AppendTimeFile
from horolog.storage.companion.block_map import BlockMap, entries_within
from horolog.storage.companion.file import Companion
from horolog.storage.companion.proof import Proof
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.index.abort import AbortedTxn, read_aborted
from horolog.storage.index.indexes import ANY_SIZE, PROVE, Indexes, Trust

if TYPE_CHECKING:
    from horolog.storage.companion.block_cache import BlockCache

_logger = logging.getLogger(__name__)

_MUCH_TO_CHECK = 64 << 10  # bytes whose headers may take long
_PREALLOCATED_BYTES = 1 << 20  # of zeros: so is the rest, which may be a segment's largest size


class _InOrder(NamedTuple):
    """A checked stretch of the log whose batches have increasing offsets."""

    modified_ns: int
    """When the file was last changed; -1 of one that is appended to."""
    start: int
    end: int
    next_offset: int


class Kept(NamedTuple):
    """Valid companion data of a log before its end is cut off."""

    times: Proof
    blocks: bytes


class SegmentReader:
    """A segment for readers.

    A timestamp below zero counts like any other; -1 is none (KIP-228).

    Methods raise StorageFailed where the disk refuses.
    """

    def __init__(
        self,
        files: Files,
        stem: str,
        base_offset: int,
        size: int,
        *,
        trust: Trust = PROVE,
        max_index_bytes: int = ANY_SIZE,
        has_aborted: bool | None = None,
        block_cache: "BlockCache | None" = None,
    ) -> None:
        """Prepare to read a segment whose files exist.

        Args:
            files: the way to the disk, or to an object store.
            stem: path of its files without their suffixes.
            base_offset: as its files are named.
            size: bytes of its log that are to be read; whole batches, unless `whole_end` is asked.
            trust: what is done about indexes that are neither sealed nor checked.
            max_index_bytes: an index gets, if it is appended to.
            has_aborted: whether there is a file of aborted transactions; if None, it is looked for.
            block_cache: for the block map, where none is to be written next to the log.
        """
        self.base_offset = base_offset
        self.end = SegmentEnd(size, base_offset)
        """End of the segment; of one that is not appended to only the size is known."""
        self.log = LogFile(files, stem + names.LOG, base_offset)
        self.companion = companion = Companion(self.log, base_offset)
        self.indexes = Indexes(companion, base_offset, trust, max_bytes=max_index_bytes)
        self.blocks = BlockMap(companion, base_offset, block_cache)
        self._files = files
        self._stem = stem
        self._ending = ""  # that the names of its files have once it is deleted
        self._deleted_as: str | None = None  # the same, from before the first of them is renamed
        self._first_timestamp: int | None = None
        self._first_known = False
        self._has_aborted = has_aborted
        self._aborted_size: int | None = None  # bytes that are published; None: all there are
        self._append_times: AppendTimeFile | None = None
        self._found_size = size  # behind it is what this process has appended
        self._in_order = _InOrder(-1, 0, 0, 0)
        self._is_damaged = False  # and that was logged

    @classmethod
    def at(cls, files: Files, path: str, base_offset: int) -> "SegmentReader":
        """Return a reader of all bytes of a `.log` file, torn ones included.

        Raises:
            FileMissing: it is not there.
            StorageFailed: it is no regular file, or cannot be opened.
        """
        files.get(path)
        return cls(files, path.removesuffix(names.LOG), base_offset, files.size(path))

    def path_of(self, suffix: str) -> str:
        """Return the path of the segment's file with a suffix, even if that file does not exist."""
        return self._stem + suffix + self._ending

    @property
    def append_times(self) -> AppendTimeFile:
        """Append times of its records, for use while this reader exists."""
        if self._append_times is None:
            self._append_times = AppendTimeFile(self.companion, self)
        return self._append_times

    @property
    def has_append_times(self) -> bool:
        """True if it has append times, proved or not."""
        return self.companion.exists and self.append_times.has_any

    def companion_before_cut(self) -> "Kept":
        """Return the companion's data for `cut_companion`, before the end is cut off."""
        return Kept(self.append_times.proof(), self.blocks.entries(self.end.size))

    def cut_companion(self, before: "Kept") -> None:
        """Limit the companion to the shorter log."""
        self.blocks.leave()
        self.append_times.truncate(before.times)
        self.blocks.put(entries_within(before.blocks, self.end.size))

    @property
    def size(self) -> int:
        """Bytes of whole batches in the log."""
        return self.end.size

    def may_block(self) -> None:
        """Refuse where a call must not wait for the disk (`Files.may_block`)."""
        self._files.may_block()

    def headers(self, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every batch in a stretch of the file; see `BatchReader`."""
        return self.log.batches(end).headers(start)

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """Return the bytes of one batch."""
        return self._files.read_at(self.log.open(), header.size, position)

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Return position and header of the batch with `offset`, or of the next one."""
        return self._locate(offset)[1]

    def _locate(self, offset: int) -> tuple[int, tuple[int, BatchHeader] | None]:
        """Return the position where the search began, and the result of `locate`."""
        end = self.end
        if end.last_base_offset is not None and offset >= end.last_base_offset:
            start = end.last_position
        else:
            start = self.indexes.position_before(offset, end.size)
        return start, self.log.batches(end.size).find(start, offset)

    def size_up_to(self, offset: int) -> int:
        """Return the position just past the last batch with an offset before this one.

        Raises:
            CorruptBatch: damage hides where that is.
        """
        found = self.locate(offset)
        if found is None:
            return self.size
        position, header = found
        self.log.batches(self.size).check_leap(position, header)
        return position if header.base_offset >= offset else position + header.size

    def _check_order(self, start: int, end: int, limit: int | None) -> None:
        """Check that the batches of a stretch follow each other by their offsets.

        A base offset has no checksum: with a changed one a consumer would skip records in silence.
        Each batch is looked at once while the file of a finished segment stays as it is; where the
        segment is appended to, those that were there before.

        Raises:
            CorruptBatch: one does not follow, or reaches the next segment's offset, the `limit`.
        """
        is_growing = self.indexes.is_growing
        if is_growing:
            end = min(end, self._found_size)
        if start >= end:
            return
        modified_ns = -1 if is_growing else self._files.modified_ns(self.log.open().path)
        known, first, least_offset = self._in_order, start, self.base_offset
        continues = known.modified_ns == modified_ns and known.start <= start <= known.end
        if continues:
            start, first, least_offset = known.start, known.end, known.next_offset
        if first >= end:
            return
        if end - first > _MUCH_TO_CHECK:
            self._files.may_block()
        log = self.log.batches(self.end.size, least_offset=least_offset, limit=limit)
        at, next_offset = first, least_offset
        try:
            for position, header, listed in log.stretches(first):
                if position >= end:
                    break
                at = position + (header.size if listed is None else listed.end)
                next_offset = header.next_offset if listed is None else listed.next_offset
        except TornTail:
            pass
        except CorruptBatch as error:
            if not self._is_damaged:  # consumers ask again and again
                self._is_damaged = True
                _logger.error("Fetches from damaged %s fail: %s", self.log.path, error)
            raise
        self._in_order = _InOrder(modified_ns, start, at, next_offset)

    def slice(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool,
        before: int | None = None,
        limit: int | None = None,
    ) -> Slice | None:
        """Return the bytes of a fetch from `offset`; None if this segment has none.

        The slice begins with the batch that holds the offset and may end within a batch,
        as Kafka's do; it is empty where not even the first batch fits. It ends before the
        batch that holds the offset `before`, and is empty where that is the first.
        All its offsets are before `limit`, if given.

        Raises:
            CorruptBatch: what is there, or has to be passed, is damaged.
        """
        end = self.end.size
        start, found = self._locate(offset)
        if found is None:
            self._check_order(start, end, limit)
            return None
        position, header = found
        self._check_order(start, position + header.size, limit)
        if before is not None:
            if header.next_offset > before:
                return Slice(self._files, None, 0, 0)
            stop = self.locate(before)
            end = end if stop is None else min(end, stop[0])
        # What was appended since `end` was read is not shown, but for the batch that was found.
        size = min(max_bytes, max(end - position, header.size))
        if size < header.size:
            size = header.size if min_one_batch else 0
        self._check_order(start, position + size, limit)
        begins_empty = not header.records_count
        return Slice(self._files, self.log.open(), position, size, begins_empty=begins_empty)

    def largest(self) -> TimeEntry | None:
        """Return the largest timestamp and the last offset of its batch; see `Indexes.largest`."""
        return self.indexes.largest(self.end.size)

    def largest_to_search(self) -> TimeEntry | None:
        """Return the largest timestamp for a lookup; see `Indexes.largest_to_search`."""
        end = self.end  # taken first: when the segment is finished meanwhile, it says the same
        return (
            end.largest
            if self.indexes.is_growing
            else self.indexes.largest_to_search(self.end.size)
        )

    def modified_ms(self) -> int:
        """Return when the log was last changed, for segments without timestamps."""
        return self._files.modified_ms(self.log.open().path)

    def batches(self, ahead: ReadAhead = HEADERS) -> BatchReader:
        """Return a reader of all batches up to the end.

        Raises:
            FileMissing: the segment is gone.
        """
        return self.log.batches(self.end.size, ahead)

    def position_for(self, timestamp: int | None, from_offset: int) -> int:
        """Return a position before all records from `from_offset` and from `timestamp` on.

        No batch in front of that has a record of both.
        """
        end = self.end
        if end.size == 0:
            return 0
        if timestamp is None:
            return self.indexes.position_before(from_offset, end.size)
        return self.indexes.position_for(timestamp, from_offset, end, self.log.batches(end.size))

    def complete_blocks(self) -> bool:
        """Cover all of a finished segment by its block map; see `BlockMap.complete`."""
        known = self.append_times.stretches if self.has_append_times else None
        return self.blocks.complete(self.end.size, known)

    @property
    def first_timestamp(self) -> int | None:
        """Largest timestamp of the first batch; None without a batch or a timestamp."""
        if not self._first_known:
            for _, header in self.headers(0, self.end.size):
                self.set_first(header.max_timestamp)
                break
        return self._first_timestamp

    def set_first(self, max_timestamp: int) -> None:
        """Set the largest timestamp of the first batch."""
        self._first_timestamp = None if max_timestamp == NO_TIMESTAMP else max_timestamp
        self._first_known = True

    def whole_end(self) -> SegmentEnd:
        """Return the end of the whole batches, behind which a broker may append or may have died.

        What follows is a part of a batch, or zeros. A batch of its full length whose checksum
        does not match is damaged, as is something before whole batches that follow: that is for
        who reads it to report, and the end is behind them.

        Raises:
            FileMissing: the segment is gone.
        """
        end = self.walked_end()
        return self._behind_damage(end) if end.size < self.end.size else end

    def walked_end(self) -> SegmentEnd:
        """Return the end of the batches by their headers."""
        size, indexes = self.end.size, self.indexes
        seal = indexes.seal_facts(size)
        if seal is not None:
            return SegmentEnd(size, seal.next_offset)
        log, end = self.batches(FEWEST_BYTES), SegmentEnd(0, self.base_offset)
        try:
            start = indexes.position_before(self.base_offset + ANY_SIZE, size)
        except CorruptBatch:  # they were to be rebuilt, from what is damaged
            start = 0
        for begin in dict.fromkeys((start, 0)):  # the last entry may be of the batch that is torn
            try:
                for position, header in log.whole_headers(begin):
                    end = SegmentEnd(position + header.size, header.next_offset)
            except CorruptBatch:
                pass
            if end.size:
                break
        return end

    def _behind_damage(self, end: SegmentEnd) -> SegmentEnd:
        log, size = self.batches(), self.end.size
        if log.is_zeros(end.size, min(end.size + _PREALLOCATED_BYTES, size)):
            return end
        due = _next_offset_of_torn(log, end.size)
        with suppress(CorruptBatch):  # too much looks like batches
            for position, header in whole_batches(log, end.size):
                if due is not None and header.base_offset != due:
                    continue  # in a value of a batch that is being written
                due = None
                # One that follows at once with smaller offsets is damaged, or what is before it.
                if header.base_offset >= end.next_offset or position == end.size:
                    least = end.next_offset + header.last_offset_delta + 1
                    end = SegmentEnd(position + header.size, max(header.next_offset, least))
        return end

    # Companion files, written from the facts of appends.

    @property
    def has_aborted(self) -> bool:
        """True if the index of aborted transactions exists."""
        if self._has_aborted is None:
            self._has_aborted = self._files.exists(self.path_of(names.TXN_INDEX))
        return self._has_aborted

    def aborted(self, from_offset: int = 0) -> list[AbortedTxn]:
        """Return the aborted transactions whose markers are in this segment from an offset on.

        Raises:
            CorruptIndex: their file is missing, or not what its format says.
        """
        if not self.has_aborted:
            return []
        if from_offset <= self.base_offset:
            from_offset = 0
        size, ending = self._aborted_size, self._ending
        path = self._stem + names.TXN_INDEX + ending
        found = read_aborted(self._files, path, size, from_offset=from_offset)
        if found is None and self._deleted_as is not None:  # it is being renamed
            path = self._stem + names.TXN_INDEX + self._deleted_as
            found = read_aborted(self._files, path, size, from_offset=from_offset)
        if self._ending != ending:  # another segment's file may have the former name by now
            return self.aborted(from_offset)
        if self.log.is_abandoned:
            raise FileMissing(f"{path} is gone")
        if found is None and self.has_aborted:  # else a truncation has just removed it
            raise CorruptIndex(
                f"{path} is missing, and the segment has aborted transactions. "
                "The next start rebuilds it from the log"
            )
        return found or []


def _next_offset_of_torn(log: BatchReader, position: int) -> int | None:
    """Return the offset after a batch that is longer than the file; None if it is no batch."""
    try:
        log.header(position)
    except TornTail:
        with suppress(CorruptBatch):  # less than a header
            return parse_header(log.start_of(position, HEADER_SIZE)).next_offset
    except CorruptBatch:
        pass
    return None
