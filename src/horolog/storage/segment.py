"""One data file of a log and the two indexes that point into it.

    <base>.log         batches of format v2, one after the other
    <base>.index       where offsets live in it (index/offset.py)
    <base>.timeindex   from where to look for a moment (index/time.py)
    <base>.seal        what both must look like, once the segment is finished (index/seal.py)

Appends at its end, reads anywhere; knows nothing of other segments. One writer;
readers take `end` first and never look past it. Indexes only narrow a search: with
wrong or missing ones every answer is the same, just slower.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress

from horolog.config import TopicConfig
from horolog.errors import CorruptBatch, CorruptIndex, StorageFailed
from horolog.record.batch import BatchHeader, verify_crc
from horolog.record.compression import Buffer
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.storage import names
from horolog.storage.batch_reader import find_batch
from horolog.storage.files import FileMissing, Files
from horolog.storage.index.abort import AbortedTransaction, read_aborted, write_aborted
from horolog.storage.index.builder import IndexBuilder
from horolog.storage.index.indexes import Indexes, LogFile
from horolog.storage.index.time import TimeEntry
from horolog.storage.segment_end import SegmentEnd
from horolog.storage.slices import Slice

MAX_RELATIVE_OFFSET = (1 << 31) - 1

_logger = logging.getLogger(__name__)


class Segment:
    """See the module. A timestamp below zero counts like any other; -1 is none (KIP-228)."""

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        config: TopicConfig,
        *,
        size: int,
        created_ms: int,
        jitter_ms: int = 0,
        has_aborted: bool | None = None,
    ) -> None:
        """A segment whose files are there; `size` bytes of its log are whole batches.

        `has_aborted`: whether there is a file of aborted transactions; if None, it is looked for.
        """
        self._stem = f"{directory}/{base_offset:020d}"
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        # Of a segment that is not appended to only the size is needed.
        self.end = SegmentEnd(size, base_offset)
        self.log = LogFile(files, self._stem + names.LOG)
        self.indexes = Indexes(self.log, self._stem, base_offset, config)
        self._files = files
        self._first_timestamp: int | None = None
        self._first_known = False
        self._has_aborted = has_aborted
        self._torn = False  # bytes that are no part of the log may lie beyond its end

    @classmethod
    def create(
        cls,
        files: Files,
        directory: str,
        base_offset: int,
        config: TopicConfig,
        *,
        created_ms: int,
        jitter_ms: int = 0,
    ) -> "Segment":
        """A new, empty segment to append to, with its three files.

        Raises:
            StorageFailed: the disk refused; there is none of them, unless it refused that too.
        """
        segment = cls(
            files,
            directory,
            base_offset,
            config,
            size=0,
            created_ms=created_ms,
            jitter_ms=jitter_ms,
            has_aborted=False,
        )
        try:
            files.create(segment.log.path, config.segment_bytes if config.preallocate else 0)
            segment._torn = config.preallocate
            segment.indexes.create()
        except StorageFailed:
            # The log goes on where it was, and beyond the offset at which this one begins.
            for suffix in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
                with suppress(StorageFailed):
                    files.remove(segment._stem + suffix)
            raise
        return segment

    @property
    def size(self) -> int:
        """Bytes of whole batches in the log."""
        return self.end.size

    @property
    def is_ready(self) -> bool:
        """Whether the next append finds the files open that it writes to."""
        return (
            self.indexes.is_growing
            and self.indexes.are_ready
            and self._files.is_open(self.log.path)
        )

    @property
    def txn_index_path(self) -> str | None:
        """Where its aborted transactions are, None if there are none: ours never have any."""
        if self._has_aborted is None:
            self._has_aborted = self._files.exists(self._stem + names.TXN_INDEX)
        return self._stem + names.TXN_INDEX if self._has_aborted else None

    # Appending.

    def append(self, stamped: bytes, records: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Write one batch: its header and its records.

        Raises:
            StorageFailed: the disk refused; nothing of the batch is in the log.
        """
        position, base_offset = self.end.size, self.end.next_offset
        size = len(stamped) + len(records)
        try:
            self._files.write_at(self.log.open(), (stamped, records), position)
            largest = self.indexes.add(position, size, last_offset, max_timestamp)
        except StorageFailed:
            self._take_back(position)
            raise
        if position == 0:
            self._set_first(max_timestamp)
        self.end = SegmentEnd(position + size, last_offset + 1, position, base_offset, largest)

    def _take_back(self, position: int) -> None:
        self._torn = True
        try:
            self._files.truncate(self.log.open(), position)
        except StorageFailed as error:
            # Nobody reads past the end, and the next append writes over it.
            _logger.warning("%s: a refused append could not be cut off: %s", self.log.path, error)

    def has_room(self, size: int, last_offset: int, segment_bytes: int) -> bool:
        """Whether the log and its indexes can take a batch of this size and last offset."""
        return (
            self.end.size <= segment_bytes - size
            and last_offset - self.base_offset <= MAX_RELATIVE_OFFSET
            and not self.indexes.are_full
        )

    def waited_ms(self, max_timestamp: int, now_ms: int) -> int:
        """How far an incoming batch lies after the first one, by record time if there is any.

        Kafka's rule (not KIP-33's, which compares single messages): the largest timestamp
        of the first batch against the largest of the incoming one. A segment that begins
        without a time goes by the wall clock for all its life.
        """
        first = self.first_timestamp
        if first is None:
            return now_ms - self.created_ms
        return max_timestamp - first if max_timestamp != NO_TIMESTAMP else 0

    @property
    def first_timestamp(self) -> int | None:
        """The largest timestamp of the first batch; None if it has none, or there is no batch."""
        if not self._first_known:
            for _, header in self.headers(0, self.end.size):
                self._set_first(header.max_timestamp)
                break
        return self._first_timestamp

    def _set_first(self, max_timestamp: int) -> None:
        self._first_timestamp = None if max_timestamp == NO_TIMESTAMP else max_timestamp
        self._first_known = True

    def finish(self) -> None:
        """Write the last time entry, cut all files to what is in use, and seal the indexes."""
        if self._torn:
            self._files.truncate(self.log.open(), self.end.size)
            self._torn = False
        self.indexes.finish(self.end.size, self.end.next_offset)

    @property
    def is_growing(self) -> bool:
        """Whether it can be appended to as it is; else it must be reopened."""
        return self.indexes.is_growing

    def reopen(self) -> None:
        """Make a finished segment ready to be appended to."""
        self.end = self.end._replace(largest=self.indexes.largest(self.end.size))
        self.indexes.reopen(self.end.size)

    def adopt(self, facts: IndexBuilder) -> None:
        """Take over what a walk over all headers found."""
        self.end = SegmentEnd(facts.end, facts.next_offset)
        self._first_timestamp, self._first_known = facts.first_timestamp, facts.end > 0
        self.indexes.adopt(facts)

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Remove the batch that holds `offset` and all that follow, to append after the rest."""
        found = self.locate(offset)
        position = self.end.size if found is None else found[0]
        self.indexes.truncate_to(offset, self.end.size)
        self._files.truncate(self.log.open(), position)
        next_offset = self.indexes.relearn_largest(position)
        if next_offset is None:
            next_offset = self.base_offset
            self.created_ms = now_ms
            self._first_known = False
            self._first_timestamp = None
        self.end = SegmentEnd(position, next_offset, largest=self.indexes.largest(position))
        self.forget_aborted_from(next_offset)
        self.reopen()

    def forget_aborted_from(self, offset: int) -> None:
        """Forget the aborted transactions whose markers were cut off."""
        path = self.txn_index_path
        if path is not None:
            try:
                found = read_aborted(self._files, path)
            except CorruptIndex:
                return  # made again when it is found so (recovery.py)
            self.write_aborted([entry for entry in found if entry.last_offset < offset])

    def write_aborted(self, entries: Sequence[AbortedTransaction]) -> None:
        """Replace the index of aborted transactions."""
        write_aborted(self._files, self._stem + names.TXN_INDEX, entries)
        self._has_aborted = bool(entries)

    @property
    def paths(self) -> list[str]:
        """The files that must outlive a crash once the segment is finished; indexes may be gone."""
        indexes = self.indexes.offsets.entries.path, self.indexes.times.entries.path
        return [self.log.path, *filter(self._files.exists, indexes)]

    def sync(self, *, indexes: bool) -> None:
        """Wait until the disk has the log, and the indexes where they must outlive a crash."""
        self._files.sync(self.log.open())
        if indexes:
            for index in (self.indexes.offsets, self.indexes.times):
                try:
                    self._files.sync(self._files.get(index.entries.path))
                except FileMissing:
                    continue  # deleted meanwhile

    def write_again(self, offset: int, max_bytes: int) -> int:
        """Write whole batches from `offset` on over themselves; the offset after the last.

        Raises:
            StorageFailed: the disk refused, or has forgotten what was written.
        """
        found = self.locate(offset)
        if found is None:
            return offset
        (position, _), file = found, self.log.open()
        try:
            for at, header in self.headers(position, self.end.size):
                batch = self.read_batch(at, header)
                verify_crc(batch, 0, header)
                self._files.write_at(file, [batch], at)
                offset = header.next_offset
                if at + header.size - position >= max_bytes:
                    break
        except CorruptBatch as error:
            raise StorageFailed(
                f"{file.path} lacks what was written to it: {error}. The next start cuts it there"
            ) from error
        return offset

    # Reading.

    @property
    def hurries(self) -> bool:
        """See `Files.hurries`."""
        return self._files.hurries

    def may_wait(self) -> None:
        """See `Files.may_wait`."""
        self._files.may_wait()

    def headers(self, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every batch in a stretch of the file; see `BatchReader`."""
        return self.log.batches(end).headers(start)

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """The bytes of one batch."""
        return self._files.read_at(self.log.open(), header.size, position)

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Where the batch lies that holds `offset`, or else the next one; None beyond the end."""
        end = self.end
        if end.last_base_offset is not None and offset >= end.last_base_offset:
            start = end.last_position
        else:
            start = self.indexes.position_before(offset, end.size)
        return find_batch(self._files, self.log.open(), offset, start, end.size)

    def slice(
        self, offset: int, max_bytes: int, *, min_one_batch: bool, before: int | None = None
    ) -> Slice | None:
        """What a fetch from `offset` is given; None if this segment has nothing there.

        The slice begins with the batch that holds the offset and may end within a batch,
        as Kafka's do; it is empty where not even the first batch fits. It ends before the
        batch that holds the offset `before`, and is empty where that is the first.
        """
        end = self.end.size
        found = self.locate(offset)
        if found is None:
            return None
        position, header = found
        if before is not None:
            if header.next_offset > before:
                return Slice(self._files, None, 0, 0)
            limit = self.locate(before)
            end = end if limit is None else min(end, limit[0])
        # What was appended since `end` was read is not shown, but for the batch that was found.
        size = min(max_bytes, max(end - position, header.size))
        if size < header.size:
            size = header.size if min_one_batch else 0
        return Slice(self._files, self.log.open(), position, size)

    def largest(self) -> TimeEntry | None:
        """The largest timestamp and the last offset of its batch; see `Indexes.largest`."""
        return self.indexes.largest(self.end.size)

    def largest_to_search(self) -> TimeEntry | None:
        """The same for a lookup; see `Indexes.largest_to_search`."""
        end = self.end  # taken first: when the segment is finished meanwhile, it says the same
        return end.largest if self.is_growing else self.indexes.largest_to_search(self.end.size)

    def modified_ms(self) -> int:
        """When the log was last changed: all that is known of a segment without times."""
        return self._files.modified_ms(self.log.open().path)

    # Deleting.

    def abandon(self) -> None:
        """Let go of the files: their directory has another name now."""
        self.log.is_abandoned = True
        self.indexes.abandon()
        self._files.forget(*(self._stem + suffix for suffix in names.SEGMENT_SUFFIXES))

    def mark_deleted(self) -> list[str]:
        """Give the files names that say so, readers not disturbed; the paths to remove later."""
        self.indexes.abandon()
        paths = []
        for suffix in names.SEGMENT_SUFFIXES:
            path = self._stem + suffix
            if suffix == names.SEAL:
                self._files.remove(path)
            elif self._files.exists(path):
                self._files.rename(path, path + names.DELETED)
                paths.append(path + names.DELETED)
        return paths
