"""The last segment of a log: appends, rolls and truncates; readers have its `Segment`.

One thread at a time. What it appends is published with the segment's end, as one value.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import sub
from typing import TYPE_CHECKING, TypeAlias

from horolog.buffers import Buffer
from horolog.config import LONG_MAX, TopicConfig
from horolog.errors import CorruptBatch, StorageFailed
from horolog.record.old_format.plain import PlainMessages
from horolog.record.time_stats import OF_APPEND_TIME, OF_CREATE_TIME
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.storage import names
from horolog.storage.batches.log_file import SegmentEnd
from horolog.storage.companion.append_times import AppendTimeEntry
from horolog.storage.companion.block_writer import BlockWriter
from horolog.storage.companion.counts import NONE, BlockTotals
from horolog.storage.companion.folding import pack_row, row_of
from horolog.storage.companion.proof import identity_of
from horolog.storage.files import Files
from horolog.storage.index.abort import AbortedTxn
from horolog.storage.index.growing import IndexWriter
from horolog.storage.segments.numbered import Numbered
from horolog.storage.segments.segment import Segment

if TYPE_CHECKING:
    from horolog.storage.segments.runs import NumberedRun

_logger = logging.getLogger(__name__)


_Bounds: TypeAlias = tuple[TopicConfig, bool, IndexWriter, int, int, int, int, int]
"""Up to where a batch needs no look at files and ages: the settings, whether time counts, the
indexes, `Files.closings` when all files were open, and the largest epoch, offset, append time and
timestamp. A plain tuple, which is unpacked three times faster than a named one."""


class ActiveSegment:
    """Appends to one segment; has it made ready for that when first asked to (`reopen`)."""

    __slots__ = (
        "_append_times",
        "_blocks",
        "_bounds",
        "_counted",
        "_damage",
        "_entries",
        "_files",
        "_interval_bytes",
        "_torn",
        "created_ms",
        "jitter_ms",
        "segment",
    )

    def __init__(
        self,
        files: Files,
        segment: Segment,
        config: TopicConfig,
        *,
        created_ms: int,
        jitter_ms: int = 0,
    ) -> None:
        """Wrap a segment whose end is known.

        Args:
            created_ms: the clock when it was created or opened.
            jitter_ms: by how much earlier than `segment.ms` it is rolled.
        """
        self.segment = segment
        self._append_times = segment.append_times
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        self._files = files
        self._interval_bytes = config.index_interval_bytes
        self._entries: IndexWriter | None = None  # None until it is reopened
        self._blocks: BlockWriter | None = None  # as well
        self._bounds: _Bounds | None = None
        self._counted = NONE  # up to the end of the block writer before that one
        self._damage: str | None = None  # of what is in the segment: nothing is appended to it
        self._torn = False  # bytes that are no part of the log may follow its end

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
    ) -> "ActiveSegment":
        """Create an empty segment with its three files.

        Raises:
            StorageFailed: the disk refused; there is none of them, unless it refused that too.
        """
        segment = Segment(files, directory, base_offset, config, size=0, has_aborted=False)
        active = cls(files, segment, config, created_ms=created_ms, jitter_ms=jitter_ms)
        try:
            files.create(segment.log.path, config.segment_bytes if config.preallocate else 0)
            active._torn = config.preallocate
            segment.indexes.create()
            files.remove(segment.path_of(names.TXN_INDEX))  # of one that was cut off from its start
        except StorageFailed:
            # The log continues where it was, and beyond the offset at which this one begins.
            stem = segment.log.path.removesuffix(names.LOG)
            for suffix in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
                with suppress(StorageFailed):  # the next start leaves it out: it is empty
                    files.remove(stem + suffix)
            raise
        active._entries = IndexWriter(files, segment.indexes, config.index_interval_bytes)
        active._blocks = segment.blocks.create()
        return active

    def is_ready(self, append_ms: int | None) -> bool:
        """Return True if the files are open that a leader's append at this time writes to."""
        entries, blocks, times = self._entries, self._blocks, self._append_times
        return (
            entries is not None
            and blocks is not None
            and blocks.is_ready
            and self._files.is_open(self.segment.log.path)
            and times.is_growing
            and (
                (append_ms == times.last_ms and not times.last_is_seen)
                or self._files.is_open(times.path)
            )
            and (entries.until_entry >= 0 or entries.are_open())
        )

    def takes(self, batch: Numbered, config: TopicConfig, by_time: bool) -> bool:
        """Return True if a batch is within the bounds that `bound` has set, and has room.

        Its append time is known, and not as when a follower saw it.
        """
        bounds, append_ms = self._bounds, batch.append_ms
        if bounds is None:
            return False
        known, known_by_time, entries, closings, epoch, offset, last_ms, timestamp = bounds
        return (
            config is known
            and by_time is known_by_time
            and closings == self._files.closings
            and self._append_times.is_growing
            and not entries.are_full
            and append_ms is not None
            and append_ms <= last_ms
            and batch.max_timestamp <= timestamp
            and batch.leader_epoch <= epoch
            and batch.last_offset <= offset
            and self.segment.end.size <= config.segment_bytes - batch.size
        )

    def bound(self, batch: Numbered, config: TopicConfig, by_time: bool) -> None:
        """Set the bounds for `takes` by a batch that begins no segment, if its files are open."""
        segment, times, files, entries = (
            self.segment,
            self._append_times,
            self._files,
            self._entries,
        )
        closings, until_ms = files.closings, LONG_MAX
        if not segment.size:
            return  # it has no age yet
        if entries is None or not (
            entries.are_open()
            and self._blocks is not None
            and self._blocks.is_ready
            and files.is_open(segment.log.path)
            and files.is_open(times.path)
        ):
            return
        if by_time:
            since_ms = self.since_ms(config, is_known=True)
            if since_ms is None:
                return
            until_ms = since_ms + config.longest_segment_ms - self.jitter_ms
        by_append_time = config.horolog_roll_by == "append-time"
        self._bounds = (
            config,
            by_time,
            entries,
            closings,
            batch.leader_epoch,
            segment.base_offset + names.MAX_RELATIVE_OFFSET,
            min(until_ms, times.most_ms) if by_append_time else times.most_ms,
            LONG_MAX if by_append_time else until_ms,
        )

    @property
    def counts(self) -> BlockTotals:
        """Totals of the appends since the log was opened, earlier segments included.

        Any thread may ask.
        """
        blocks = self._blocks
        return self._counted if blocks is None else blocks.counts()

    def count_from(self, counts: BlockTotals) -> None:
        """Set the totals of the segments before this one."""
        self._counted = counts
        if self._blocks is not None:
            self._blocks.count_from(counts)

    def make_ready(self, append_ms: int | None, *, is_counted: bool = True) -> None:
        """Open or create the files that the next append writes to.

        Args:
            append_ms: the append time of its batch; None if that is unknown.
            is_counted: whether the records of batches are counted, for the block map.

        Raises:
            StorageFailed: the disk refused, or what is in the segment is damaged.
        """
        with self._judging_damage():
            if self._entries is None:
                self.reopen()
            if is_counted and self._blocks is None:  # first: append times take the map's place
                segment = self.segment
                blocks = segment.blocks.reopen(segment.end.size, self._append_times.stretches)
                blocks.count_from(self._counted)
                self._blocks = blocks
            if append_ms is not None:
                self._append_times.make_ready(append_ms)

    @contextmanager
    def _judging_damage(self) -> Iterator[None]:
        """Turn damage of existing batches into StorageFailed, and refuse later writes.

        No producer may be told that its own batch is corrupt.
        """
        if self._damage is not None:
            raise StorageFailed(self._damage)
        try:
            yield
        except CorruptBatch as error:
            self._damage = (
                f"Nothing is appended to {self.segment.log.path}, which is damaged: {error}. The "
                f"next start sets aside what is damaged and what follows it; {names.SEE_VERIFY}"
            )
            _logger.error("%s", self._damage)
            raise StorageFailed(self._damage) from error

    def append(
        self,
        batches: "Numbered | list[Numbered] | NumberedRun",
        aborted: Sequence[AbortedTxn] = (),
    ) -> None:
        """Write a batch, or several that follow each other; note them in the companion files.

        Args:
            batches: one without particulars, or several in order; plain messages that arrived
                together count as one.
            aborted: the transactions that markers among them abort.

        Raises:
            StorageFailed: the disk refused; nothing of them is in the log.
        """
        segment, times = self.segment, self._append_times
        entries, blocks = self._entries, self._blocks
        assert entries is not None, "make_ready comes first"
        if blocks is not None and not blocks.is_ready:
            blocks.write()
        start, changed = segment.end.size, 0
        parts: Sequence[Buffer]
        rows: Iterable[tuple[int, int, int, int]]
        block_rows: Sequence[tuple[bytes | None, int]] = ()  # but the last
        row: bytes | None = None
        # Append times are written first, so that a kill leaves no batch without its time.
        if isinstance(batches, Numbered):  # no list is made for a leader's own
            parts, size, ms, counts = batches.parts, batches.size, batches.append_ms, batches.counts
            base, last = batches.base_offset, batches.last_offset
            first_time = batches.max_timestamp
            identity = identity_of(parts[0])
            if ms != times.last_ms or times.last_is_seen:
                changed = 1
                times.add(((base, ms, identity, False),))
            last_position, position = start, start + size
            rows = ((start, size, last, first_time),)
            flags = OF_APPEND_TIME if batches.is_stamped else OF_CREATE_TIME
            end = last + 1
            row = pack_row(start, size, start, 1, base, end, identity, 0, ms, ms, flags, counts)
        elif isinstance(batches, list):
            changes: list[AppendTimeEntry] = []
            parts = joined = list[Buffer]()
            rows = listed = list[tuple[int, int, int, int]]()
            block_rows = counted = list[tuple[bytes | None, int]]()
            position, last_time = start, (times.last_ms, times.last_is_seen)
            for batch in batches:
                identity, its, row = _noted(batch, position)
                is_seen = batch.particulars.is_seen
                if (batch.append_ms, is_seen) != last_time:
                    last_time = batch.append_ms, is_seen
                    changes.append((batch.base_offset, last_time[0], identity, is_seen))
                joined += batch.parts
                listed += its
                counted.append((row, batch.size))
                position += batch.size
            changed = len(changes)
            if changes:
                times.add(changes)
            row, size = counted.pop()
            first_time, last_position, last = listed[0][3], listed[-1][0], batch.last_offset
            base = batch.base_offset if batch.particulars.messages is None else last
        else:
            parts, rows = [batches.data], batches.rows(start, *entries.spacing)
            columns = batches.changes(times.last_ms, is_seen=times.last_is_seen)
            changed = 0 if columns is None else len(columns.ms)
            if columns is not None:
                times.add_columns(columns)
            size = batches.size
            position = start + size
            first_time = int(batches.max_timestamps[0])
            last_position = start + int(batches.starts[-1])
            base, last = int(batches.base_offsets[-1]), batches.last_offset
        before = entries.noted() if aborted else None
        try:
            self._files.write_at(segment.log.open(), parts, start)
            largest = entries.add(rows)
            if aborted:  # before the marker can be read
                segment.add_aborted(aborted)
        except StorageFailed:
            if before is not None:
                entries.go_back(before)
            times.take_back(changed)
            self._take_back(start)
            raise
        if blocks is not None:
            for earlier in block_rows:
                blocks.add(*earlier)
            blocks.add(row, size)
        if start == 0:
            segment.set_first(first_time)
        segment.end = tuple.__new__(  # the constructor takes three times as long
            SegmentEnd, (position, last + 1, last_position, base, largest)
        )

    def takes_run(self, run: "NumberedRun", segment_bytes: int) -> bool:
        """Return True if the open files have room for a run as a whole."""
        times, size = self._append_times, run.size
        if run.append_ms is None:
            return times.last_ms is None and self.has_room(
                size, run.last_offset, segment_bytes, None
            )
        return all(
            self.has_room(size, run.last_offset, segment_bytes, ms) and times.fits(ms)
            for ms in (int(run.append_ms[0]), int(run.append_ms[-1]))
        )

    def _take_back(self, position: int) -> None:
        self._torn = True
        log = self.segment.log
        try:
            self._files.truncate(log.open(), position)
        except StorageFailed as error:
            # Readers stop at the end, and the next append writes over it.
            _logger.warning("%s: a refused append could not be cut off: %s", log.path, error)

    def has_room(
        self, size: int, last_offset: int, segment_bytes: int, append_ms: int | None = None
    ) -> bool:
        """Return True if the files have room for a batch."""
        segment = self.segment
        return (
            segment.end.size <= segment_bytes - size
            and last_offset - segment.base_offset <= names.MAX_RELATIVE_OFFSET
            and not (self._entries is not None and self._entries.are_full)
            and (
                append_ms is None
                or append_ms == self._append_times.last_ms
                or self._append_times.fits(append_ms)
            )
        )

    def age_ms(
        self, config: TopicConfig, max_timestamp: int, append_ms: int | None, now_ms: int
    ) -> int:
        """Return the time of an incoming batch minus the time from which `horolog.roll.by` counts.

        By the first time, as in Kafka (not in KIP-33, which compares single messages), the largest
        timestamp of the first batch against the largest of the incoming one; so, too, where append
        times count and that of the batch is unknown. A segment that begins without a time counts
        from its creation by the clock.

        Args:
            append_ms: its append time; None if that is unknown.
        """
        since_ms = self.since_ms(config, is_known=append_ms is not None)
        if config.horolog_roll_by == "append-time" and append_ms is not None:
            return 0 if since_ms is None else append_ms - since_ms
        if since_ms is None:
            return now_ms - self.created_ms
        return max_timestamp - since_ms if max_timestamp != NO_TIMESTAMP else 0

    def since_ms(self, config: TopicConfig, *, is_known: bool) -> int | None:
        """Return the time from which `horolog.roll.by` counts; None if the segment has none yet.

        Args:
            is_known: whether the append time of the batch that comes next is known.
        """
        by = config.horolog_roll_by
        if by == "append-time" and is_known:
            times, takes_seen = self._append_times, config.horolog_seen_as_append_time
            return times.first_seen_ms if takes_seen else times.first_ms
        if by == "largest-time":
            largest = self.segment.largest_to_search()
            return None if largest is None else largest.timestamp
        return self.segment.first_timestamp

    def finish(self) -> None:
        """Write the last time entry, trim all files, and seal the indexes.

        Raises:
            StorageFailed: the disk refused, or what is in the segment is damaged.
        """
        with self._judging_damage():
            segment = self.segment
            if self._torn:
                self._files.truncate(segment.log.open(), segment.end.size)
                segment.forget_aborted_from(segment.end.next_offset)
                self._torn = False
            blocks = segment.blocks.closed(segment.end.size)
            self._append_times.finish()
            segment.indexes.finish(segment.end)
            segment.blocks.finish(blocks)
            self._counted = self.counts
            self._blocks = self._entries = None
            self._bounds = None

    def reopen(self) -> None:
        """Make a finished segment ready to be appended to.

        Bytes are counted from the last entry as if nothing had happened, so that rebuilt
        indexes are the same; Kafka begins to count again and leaves a wider gap.
        """
        segment = self.segment
        indexes, size = segment.indexes, segment.end.size
        _ = segment.first_timestamp  # read now, where damage is judged; `age_ms` asks for it
        # First: lookups use this where the indexes grow.
        segment.end = segment.end._replace(largest=indexes.largest(size))
        indexes.reopen(size)
        since = size - indexes.offsets.last.position
        self._entries = IndexWriter(self._files, indexes, self._interval_bytes, since)


def _noted(
    batch: Numbered, position: int
) -> tuple[int, Sequence[tuple[int, int, int, int]], bytes | None]:
    """Return the identity of a batch, and its rows for the indexes and for the block map.

    There is no row for the block map where nothing is known of the records.
    """
    header, messages, is_seen, _ = batch.particulars
    head = batch.parts[0]
    identity = last_identity = identity_of(head)
    rows: Sequence[tuple[int, int, int, int]]
    if messages is None:
        rows = ((position, batch.size, batch.last_offset, batch.max_timestamp),)
    else:
        rows = list(_rows_of(messages, position))
    if batch.counts is None:
        return identity, rows, None
    last_position = rows[-1][0]
    if messages is not None:
        last_identity = identity_of(memoryview(head)[last_position - position :])
    row = row_of(
        position,
        batch.size,
        batch.base_offset,
        batch.last_offset,
        last_identity,
        header is not None and header.is_control,  # a marker is one record
        None if is_seen else batch.append_ms,
        OF_APPEND_TIME if batch.is_stamped else OF_CREATE_TIME,
        batch.counts,
        len(rows),
        last_position,
    )
    return identity, rows, row


def _rows_of(
    messages: Sequence[PlainMessages], position: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yield the index rows of plain messages that are written at a position."""
    shift = position - messages[0].positions[0]
    for listed in messages:
        begins = [shift + begin for begin in listed.positions]
        ends = [*begins[1:], shift + listed.end]
        sizes = map(sub, ends, begins)
        yield from zip(begins, sizes, listed.offsets, listed.times, strict=True)
