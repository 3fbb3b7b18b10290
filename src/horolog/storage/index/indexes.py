"""The offset index and the time index of one segment, and whether they are trusted.

They are trusted when this process wrote them, when they are exactly as their seal says
(companion/seal.py), or when the headers of the whole segment were compared with them (`check`),
which also writes a seal. Whenever an entry is used, trusted or not, the batch that it
points to is read.

What that batch cannot prove is what a time entry says about all batches before it: that
none of them is later. `check` proves it. Retention always waits for that. A lookup does
where the segments are small (see `Log`); in larger ones that another broker wrote it uses
the entry until a background task has checked them, since reading all headers of many
gigabytes takes seconds. Indexes that turn out wrong are rebuilt.

A reader takes the segment's end first. Entries that were appended after that are no part
of what it reads: they are skipped, not taken for wrong.

One writer while the segment grows; any number of readers. A finished segment is
repaired by the reader that notices.
"""

import logging
import threading
from contextlib import suppress
from typing import Final, NamedTuple

from horolog.errors import CorruptBatch, CorruptIndex, StorageFailed
from horolog.record.batch import BatchHeader
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.storage import names
from horolog.storage.batches.log_file import SegmentEnd, TimeEntry
from horolog.storage.batches.reader import BatchReader
from horolog.storage.companion.file import Companion
from horolog.storage.companion.proof import LastBatch
from horolog.storage.companion.seal import FileSum, Seal, packed_seal, read_seal, seal_of_log
from horolog.storage.file_errors import FileMissing
from horolog.storage.index.builder import IndexBuilder, is_later
from horolog.storage.index.proofs import batch_of_time_entry, points_to_its_batch
from horolog.storage.index.sparse import OffsetIndex, OffsetPosition, TimeIndex

_logger = logging.getLogger(__name__)

_NEAR_BYTES = 8 << 20  # farther from the last offset entry there is one missing
# Of a log, behind an index entry: at most, and behind the next entry that is known.
_SEARCHED_BYTES = 128 << 10
_BEHIND_NEXT_BYTES = 8 << 10
_MOST_HEADERS = 50_000  # read to prove an entry, before a scan by a task is the better way
ANY_SIZE: Final = 1 << 31
"""Size limit of an index that is only read."""


class Trust(NamedTuple):
    """Policy for indexes that are neither sealed nor checked."""

    repairs: bool = False
    """All headers of the segment are read, and the indexes rebuilt where they are wrong.

    Without it they are used as far as batches prove them, and nothing is ever written.
    """
    interval_bytes: int = 4096
    """`index.interval.bytes` of what is rebuilt."""


PROVE: Final = Trust()


class Proved(NamedTuple):
    """A proved largest timestamp; None if the segment has no timestamps."""

    largest: TimeEntry | None


class Indexes:
    """The offset index and the time index of a segment; see the module.

    Methods raise StorageFailed where the disk refuses.
    """

    def __init__(
        self,
        companion: Companion,
        base_offset: int,
        trust: Trust,
        *,
        max_bytes: int = ANY_SIZE,
    ) -> None:
        """The indexes of a log.

        Args:
            companion: of the log that they are about; has their seal.
            trust: what is done about indexes that are neither sealed nor checked.
            max_bytes: an index of a segment that is appended to gets.
        """
        log = companion.log
        files, stem = log.files, log.path.removesuffix(names.LOG)
        self.offsets = OffsetIndex(files, stem + names.OFFSET_INDEX, base_offset, max_bytes, log)
        self.times = TimeIndex(files, stem + names.TIME_INDEX, base_offset, max_bytes, log)
        self._companion = companion
        self._log = log
        self._files = files
        self._stem = stem
        self._base_offset = base_offset
        self._trust = trust
        self.largest_seen: TimeEntry | None = None
        """Largest timestamp of all batches; only where `_largest_known`. Set by appends."""
        self._largest_known = False
        self._proved: Proved | None = None
        self.is_checked = False
        """They are what the log says. Reset where an entry or a file turns out otherwise."""
        self._is_sealed = False
        self._left_out = False  # by a seal that did not fit the indexes
        self.has_markers = False
        """Whether a scan of the log has found control batches."""
        self._is_damaged = False  # the log is, so that its indexes cannot be checked
        self._unwritten: StorageFailed | None = None  # why the disk has not taken them
        self.is_growing = False
        """Whether they have room for more entries, and are only changed by the writer."""
        self._repair = threading.Lock()
        self._replacing = threading.Lock()
        self._is_abandoned = False  # the files have other names now, and are not rebuilt

    def abandon(self) -> None:
        """Replace no file from here on: other files may have these names."""
        with self._replacing:
            self._is_abandoned = True

    # Of the segment that is appended to: `IndexWriter` adds the entries.

    def create(self) -> None:
        """Create empty files with room for all entries."""
        self.offsets.entries.create()
        self.times.entries.create()
        self._companion.write_seal(b"")
        self._largest_known = self.is_checked = self.is_growing = True

    def finish(self, end: SegmentEnd) -> None:
        """Write the last time entry, trim both files, and seal them."""
        self.check(end.size)
        if not self._are_whole():
            self._make_whole(end.size)
        else:
            if self.largest_seen is not None:
                self.times.maybe_append(*self.largest_seen)
            self.offsets.entries.trim()
            self.times.entries.trim()
            self._seal(end.size, end.next_offset, self._last_position(end))
        self.is_growing = False

    def note_left_out(self) -> None:
        """Note in the seal that offsets behind the last batch may be in no segment."""
        seal = read_seal(self._companion)
        if seal is not None:
            self._companion.write_seal(packed_seal(seal._replace(leaves_out=True)))

    def reopen(self, log_size: int) -> None:
        """Preallocate the indexes of a finished segment again, to append to it."""
        self.check(log_size)
        with self._repair:  # no reader repairs them from here on
            if not self._are_whole():
                self._make_whole(log_size)
            self._companion.write_seal(b"")
            self.offsets.entries.allocate()
            self.times.entries.allocate()
            self.is_growing = True

    def _are_whole(self) -> bool:
        return self.is_checked and all(
            self._files.exists(index.entries.path) for index in (self.offsets, self.times)
        )

    # Of any segment.

    def largest(self, log_size: int) -> TimeEntry | None:
        """Return the largest timestamp, and the last offset of the batch that first reached it.

        From appending, from the seal, or else from all headers: never from the time
        index alone. None if no record has a timestamp.
        """
        if not self._largest_known:
            self._files.may_block()
            with self._repair:
                if not self._largest_known and self.seal_facts(log_size) is None:
                    self._rebuild(log_size)
        return self.largest_seen

    def largest_to_search(self, log_size: int) -> TimeEntry | None:
        """Return the largest timestamp; without a seal, the one of `proved_largest`."""
        if self._largest_known or self.is_growing:
            return self.largest(log_size)
        proved = self.proved_largest(log_size)
        return self.largest(log_size) if proved is None else proved.largest

    def proved_largest(self, log_size: int) -> "Proved | None":
        """Return the largest timestamp if the seal or the batch of the last entry proves it.

        That nothing before that batch is later is taken from the entry until `check` has read
        all headers; what follows is read. So a large log that others wrote is not read as a
        whole before it is searched.
        """
        if not self._largest_known and self._proved is None:
            self._files.may_block()
            if self.seal_facts(log_size) is None:
                self._proved = self._largest_from_last_entry(log_size)
        return Proved(self.largest_seen) if self._largest_known else self._proved

    def _largest_from_last_entry(self, log_size: int) -> "Proved | None":
        try:
            entry = self.times.last
            if entry.timestamp == NO_TIMESTAMP:
                return None
            log = self._log.batches(log_size)
            found = self._batch_of(entry, log)
            if found is None:
                return None
            largest: TimeEntry | None = entry
            headers = log.headers(found[0])
            for steps, (_, header) in enumerate(headers):
                if steps > _MOST_HEADERS and not self._trust.repairs:
                    return None
                if is_later(header.max_timestamp, largest):
                    largest = TimeEntry(header.max_timestamp, header.last_offset)
        except (FileMissing, CorruptIndex, CorruptBatch):
            return None
        return Proved(largest)

    def need_no_check(self, log_size: int) -> bool:
        """Return True if the largest timestamp is proved, and the time index where it is used.

        Also where that is impossible because the log is damaged.
        """
        if not (self._largest_known or self.is_growing or self._is_damaged):
            self._files.may_block()
            self.seal_facts(log_size)
        return self._largest_known or self.is_growing or self._is_damaged

    def check(self, log_size: int) -> bool:
        """Compare both indexes with the log, repair them if allowed; True if right.

        Raises:
            CorruptBatch: the log itself is damaged, so that it cannot be known.
        """
        if not self.is_checked and not self.is_growing:
            self._files.may_block()
            with self._repair:
                if not self.is_checked and not self.is_growing:
                    seal = seal_of_log(self._companion, log_size)
                    files = self._files
                    if (
                        seal is not None
                        and seal.offset_index.is_of(files, self.offsets.entries.path)
                        and seal.time_index.is_of(files, self.times.entries.path)
                    ):
                        self.largest_seen, self._largest_known = seal.largest, True
                        self.is_checked = True
                    elif self._trust.repairs:
                        self._rebuild(log_size)
        return self.is_checked

    def position_before(self, offset: int, log_size: int) -> int:
        """Return a position at or before the batch of an offset, from where to walk."""
        entry = self._entry_before(offset, log_size)
        if entry.position == 0 or points_to_its_batch(
            self._log, self._base_offset, entry, log_size
        ):
            return entry.position
        self._distrust()
        if self.is_growing or not self.check(log_size):
            return 0
        return self._entry_before(offset, log_size).position

    def position_for(
        self, timestamp: int, from_offset: int, end: SegmentEnd, log: BatchReader
    ) -> int:
        """Return a position from where to walk to find a timestamp at or after an offset.

        `log` ends there; what it has read to prove an entry, the walk need not read again.
        """
        if self._is_sealed and not self.is_checked:
            self._is_sealed = False  # tried once
            with suppress(CorruptBatch):  # then entries count that their batches prove
                self.check(end.size)  # reads no more than the indexes, if the seal is theirs
        for is_again in (False, True):  # once more if there was no entry that could be proved
            if is_again and not self.check(end.size):
                break
            entry = self._time_before(timestamp, end)
            if entry is None or not (is_again or self.is_checked or len(self.times.entries)):
                continue
            if entry.timestamp == NO_TIMESTAMP or entry.offset <= from_offset:
                break
            found = self._batch_of(entry, log)
            if found is not None:
                position, header = found
                # Up to the end of that batch nothing is later than the entry.
                return position if entry.timestamp == timestamp else position + header.size
            self._distrust()
        return self.position_before(from_offset, end.size)

    def _batch_of(self, entry: TimeEntry, log: BatchReader) -> tuple[int, BatchHeader] | None:
        start = self._entry_before(entry.offset, log.size).position
        if not self._files.is_nonblocking:
            # The search begins here and continues behind: one wait for the disk instead of two.
            log.will_need(start, self._searched_bytes(entry.offset, start))
        within = None if self.is_checked else _NEAR_BYTES
        return batch_of_time_entry(log, entry, start, within)

    def _searched_bytes(self, offset: int, start: int) -> int:
        """Return how many bytes of the log a search from this entry may read."""
        try:
            after = self.offsets.position_after(offset)
        except (FileMissing, CorruptIndex):
            after = None
        if after is None or after < start:
            return _SEARCHED_BYTES
        return min(_SEARCHED_BYTES, after - start + _BEHIND_NEXT_BYTES)

    def adopt(self, facts: IndexBuilder) -> None:
        """Store the facts of a walk over all headers, and write the indexes it built.

        Where the disk refuses them, on a full one say, the segment is read without: entries that
        are there are proved by their batches.
        """
        self.largest_seen, self._largest_known = facts.largest, True
        self.is_checked = self.is_growing = self._is_damaged = False
        self._unwritten = None
        try:
            self._replace(self.offsets, facts.offset_entries)
            self._replace(self.times, facts.time_entries)
            self.is_checked = True
            self.seal(facts)
        except StorageFailed as error:
            self._unwritten = error
            _logger.warning("The indexes of %s are not written: %s", self._log.path, error)

    def seal(self, facts: IndexBuilder) -> None:
        """Seal the indexes that a walk over all headers built, and that are in their files."""
        self.largest_seen = facts.largest
        self._seal(facts.end, facts.next_offset, facts.last_position)

    def scan(self, log_size: int, *, keep: bool = True) -> IndexBuilder:
        """Build both indexes from the headers of the whole log; true entries are kept.

        Raises:
            CorruptBatch: the log is damaged.
        """
        facts = IndexBuilder(
            self._base_offset,
            self._trust.interval_bytes,
            self.offsets.entries.read() if keep else b"",
            self.times.entries.read() if keep else b"",
        )
        return facts.add_all(self._log.batches(log_size).stretches())

    def seal_facts(self, log_size: int) -> Seal | None:
        """Return the seal if it is of this log. The indexes are compared when they are used."""
        seal = seal_of_log(self._companion, log_size)
        if seal is not None:
            self.largest_seen, self._largest_known, self._is_sealed = seal.largest, True, True
        return seal

    def reseal_aborted(self) -> None:
        """Update an existing seal to the current index of aborted transactions."""
        seal = read_seal(self._companion)
        if seal is None:
            return
        path = self._stem + names.TXN_INDEX
        seal = seal._replace(aborted=FileSum.of(self._files, path))
        self._companion.write_seal(packed_seal(seal))

    def _entry_before(self, offset: int, log_size: int) -> OffsetPosition:
        try:
            entry = self.offsets.lookup(offset)
            if entry.position >= log_size > 0 and self._may_be_newer:
                entry = self.offsets.last_before(log_size)
            return entry
        except (FileMissing, CorruptIndex):
            self._distrust()
            return OffsetPosition(self._base_offset, 0)

    def _time_before(self, timestamp: int, end: SegmentEnd) -> TimeEntry | None:
        try:
            entry = self.times.lookup(timestamp)
            if entry.offset >= end.next_offset > self._base_offset and self._may_be_newer:
                entry = self.times.last_before(end.next_offset)
            return entry
        except (FileMissing, CorruptIndex):
            self._distrust()
            return None

    @property
    def _may_be_newer(self) -> bool:
        """True if entries may be newer than the end that a reader took."""
        return self.is_growing or self.is_checked

    def _distrust(self) -> None:
        self._files.may_block()
        if self.is_checked:
            _logger.warning("%s does not fit its log", self.offsets.entries.path)
        self.is_checked = False
        if not self.is_growing:
            self.offsets.reload()
            self.times.reload()
            with self._replacing, suppress(StorageFailed):  # it is compared with them in any case
                if self._may_replace:
                    self._left_out = self._says_left_out()
                    self._companion.write_seal(b"")

    def _rebuild(self, log_size: int) -> None:
        try:
            facts = self.scan(log_size)
        except CorruptBatch:
            self._is_damaged = True
            raise
        self.has_markers = facts.has_markers
        if facts.untrue:
            _logger.warning("%d index entries do not fit %s", facts.untrue, self._log.path)
        with self._replacing:
            if self._may_replace:
                self.adopt(facts)
            else:
                self.largest_seen, self._largest_known = facts.largest, True

    def _make_whole(self, log_size: int) -> None:
        self._rebuild(log_size)
        if self._unwritten is not None:
            raise self._unwritten

    @property
    def _may_replace(self) -> bool:
        return not (self._files.read_only or self._is_abandoned)

    def _replace(self, index: OffsetIndex | TimeIndex, content: bytearray) -> None:
        path, expected = index.entries.path, bytes(content)
        try:
            file, size = self._files.get(path), self._files.size(path)
        except FileMissing:
            file, size = None, 0
        if (
            file is None
            or size < len(expected)
            or self._files.read_at(file, len(expected), 0) != expected
        ):
            self._files.replace(path, expected, sync=False)
        elif size > len(expected):  # preallocated; this also works on a full disk
            self._files.truncate(file, len(expected))
        index.reload()

    def _last_position(self, end: SegmentEnd) -> int:
        """Return the position of the last batch."""
        if end.last_base_offset is not None:
            return end.last_position
        last = 0
        for position, _ in self._log.batches(end.size).headers(self.offsets.last.position):
            last = position
        return last

    def _seal(self, log_size: int, next_offset: int, last_position: int) -> None:
        suffixes = (names.OFFSET_INDEX, names.TIME_INDEX, names.TXN_INDEX)
        offsets, times, aborted = (
            FileSum.of(self._files, self._stem + suffix) for suffix in suffixes
        )
        last = LastBatch.at(self._log, last_position, log_size)
        largest, leaves_out = self.largest_seen, self._says_left_out()
        seal = Seal(next_offset, largest, offsets, times, aborted, last, leaves_out)
        self._companion.write_seal(packed_seal(seal))

    def _says_left_out(self) -> bool:
        """Return True if offsets after the segment may be in no segment."""
        seal = read_seal(self._companion)
        return self._left_out if seal is None else seal.leaves_out
