"""The last segment of a log: appends, rolls and truncates; readers have its `Segment`.

One thread at a time. What it appends is published with the segment's end, as one value.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from horolog.buffers import Buffer
from horolog.config import TopicConfig
from horolog.errors import CorruptBatch, StorageFailed
from horolog.record.time_stats import OF_APPEND_TIME, OF_CREATE_TIME
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.storage import names
from horolog.storage.batches.log_file import SegmentEnd
from horolog.storage.companion.append_times import AppendTimeEntry
from horolog.storage.companion.block_writer import BlockWriter
from horolog.storage.companion.counts import NONE, BlockTotals
from horolog.storage.companion.folding import row_of
from horolog.storage.companion.proof import identity_of
from horolog.storage.files import Files
from horolog.storage.index.abort import AbortedTxn
from horolog.storage.index.growing import IndexWriter
from horolog.storage.segments.numbered import Numbered
from horolog.storage.segments.segment import Segment

if TYPE_CHECKING:
    from horolog.storage.segments.runs import NumberedRun

_logger = logging.getLogger(__name__)


# A named tuple's own `__new__` takes three times as long.
_new_end = partial(tuple.__new__, SegmentEnd)


class ActiveSegment:
    """Appends to one segment; has it made ready for that when first asked to (`reopen`)."""

    __slots__ = (
        "_append_times",
        "_blocks",
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
        """For a segment whose end is known.

        Args:
            files: the way to the disk.
            segment: to append to.
            config: of the topic.
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
        """A new, empty segment, with its three files.

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

    @property
    def is_ready(self) -> bool:
        """Whether the next append finds the files open that it writes to."""
        entries, blocks = self._entries, self._blocks
        return (
            entries is not None
            and blocks is not None
            and blocks.is_ready
            and self._append_times.is_growing
            and self._files.are_open(self.segment.log.path, self._append_times.path)
            and entries.is_ready
        )

    @property
    def most_ms(self) -> int:
        """The latest append time that its files can say, once they are ready."""
        return self._append_times.most_ms

    @property
    def counts(self) -> BlockTotals:
        """What was appended since the log was opened, to earlier segments as well; any thread."""
        blocks = self._blocks
        return self._counted if blocks is None else blocks.counts()

    def count_from(self, counts: BlockTotals) -> None:
        """Set what was appended before this segment was created or opened."""
        self._counted = counts
        if self._blocks is not None:
            self._blocks.count_from(counts)

    def make_ready(self, append_ms: int | None, *, is_counted: bool = True) -> None:
        """Open or make what the next append writes to.

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
        """Refuse to write where batches that are there already are damaged.

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

    def append(self, batch: Numbered) -> None:
        """Write a batch, or plain messages that arrived together; note it in the companion files.

        Raises:
            StorageFailed: the disk refused; nothing of the batch is in the log.
        """
        (
            parts,
            size,
            base_offset,
            last_offset,
            max_timestamp,
            _,
            append_ms,
            counts,
            is_stamped,
            many,
            _,
            header,
        ) = batch
        if many is not None or counts is None:
            self.append_all((batch,))
            return
        assert append_ms is not None
        self.append_counted(
            parts,
            size,
            base_offset,
            last_offset,
            max_timestamp,
            append_ms,
            counts.tobytes(),
            OF_APPEND_TIME if is_stamped else OF_CREATE_TIME,
            counts[0] if header is not None and header.is_control else 0,
        )

    def append_counted(
        self,
        parts: Sequence[Buffer],
        size: int,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        append_ms: int,
        counts: bytes,
        kind: int = OF_CREATE_TIME,
        markers: int = 0,
    ) -> None:
        """As `append`, of a batch whose records were counted.

        Args:
            parts: of it; the first is the header.
            size: of all parts.
            base_offset: the first.
            last_offset: the last.
            max_timestamp: in milliseconds; -1 if no record has a time.
            append_ms: when it is appended, in milliseconds.
            counts: of its records, in the bytes of `Counts`.
            kind: `OF_CREATE_TIME` or `OF_APPEND_TIME`.
            markers: how many records are markers of transactions.

        Raises:
            StorageFailed: as `append`.
        """
        segment, entries, blocks = self.segment, self._entries, self._blocks
        times = self._append_times
        assert entries is not None, "make_ready comes first"
        assert blocks is not None
        head = parts[0]
        if not blocks.is_ready:
            blocks.write()
        position = segment.end.size
        is_new_time = append_ms != times.last_ms or times.last_is_seen
        identity = identity_of(head)
        if is_new_time:  # before the batch, so that a kill leaves no batch without its time
            times.add(base_offset, append_ms, identity)
        try:
            self._files.write_at(segment.log.open(), parts, position)
            largest = entries.add(position, size, last_offset, max_timestamp)
        except StorageFailed:
            if is_new_time:
                times.take_back()
            self._take_back(position)
            raise
        row = row_of(
            position, size, base_offset, last_offset, identity, markers, append_ms, kind, counts
        )
        blocks.add(row, size)
        if position == 0:
            segment.set_first(max_timestamp)
        segment.end = _new_end((position + size, last_offset + 1, position, base_offset, largest))

    def append_all(self, batches: Sequence[Numbered], aborted: Sequence[AbortedTxn] = ()) -> None:
        """As `append`, of batches that follow each other, in one write.

        Args:
            batches: in order.
            aborted: the transactions that markers among them abort.

        Raises:
            StorageFailed: the disk refused; nothing of them is in the log.
        """
        segment, times = self.segment, self._append_times
        changes = _changes(batches, (times.last_ms, times.last_is_seen))
        if changes:
            times.add_all(changes)
        start = segment.end.size
        parts = [part for batch in batches for part in batch.parts]
        end = self._write(parts, partial(_noted_all, batches), aborted, len(changes))
        for batch in batches:
            if start == 0:
                plain = batch.messages
                segment.set_first(plain[0].times[0] if plain else batch.max_timestamp)
            self._count(batch, start)
            start += batch.size
        segment.end = end

    def append_run(self, run: "NumberedRun") -> None:
        """As `append_all`, of a run that it `takes`.

        Raises:
            StorageFailed: the disk refused; nothing of it is in the log.
        """
        segment, times = self.segment, self._append_times
        changes = run.changes(times.last_ms, is_seen=times.last_is_seen)
        if changes is not None:
            times.add_columns(changes)
        is_first = segment.end.size == 0
        count = 0 if changes is None else len(changes.ms)
        end = self._write([run.data], partial(_noted_run, run), (), count)
        if is_first:
            segment.set_first(int(run.max_timestamps[0]))
        self._skip()
        segment.end = end

    def takes(self, run: "NumberedRun", segment_bytes: int) -> bool:
        """Whether its files, which are ready, can take a run as a whole."""
        times, size = self._append_times, run.size
        if run.append_ms is None:
            return times.last_ms is None and self.has_room(
                size, run.last_offset, segment_bytes, None
            )
        return all(
            self.has_room(size, run.last_offset, segment_bytes, ms) and times.fits(ms)
            for ms in (int(run.append_ms[0]), int(run.append_ms[-1]))
        )

    def _write(
        self,
        parts: Sequence[Buffer],
        note: Callable[[IndexWriter, int], SegmentEnd],
        aborted: Sequence[AbortedTxn],
        times: int,
    ) -> SegmentEnd:
        """Write batches for which `times` append times were added; the end of the segment then.

        `note`: notes them in the indexes, from a position on.
        """
        segment, entries, start = self.segment, self._entries, self.segment.end.size
        assert entries is not None, "make_ready comes first"
        before = entries.noted()
        try:
            self._files.write_at(segment.log.open(), parts, start)
            end = note(entries, start)
            if aborted:  # before the marker can be read
                segment.add_aborted(aborted)
        except StorageFailed:
            entries.go_back(before)
            self._append_times.take_back(times)
            self._take_back(start)
            raise
        return end

    def _count(self, batch: Numbered, position: int) -> None:
        """Have the block map know of a batch, if its records were counted."""
        blocks, messages = self._blocks, batch.messages
        if blocks is None or batch.counts is None:
            self._skip()
            return
        if not blocks.is_ready:
            blocks.write()
        last = 0 if messages is None else messages[-1].positions[-1]
        row = row_of(
            position,
            batch.size,
            batch.base_offset,
            batch.last_offset,
            identity_of(memoryview(batch.parts[0])[last:]),
            batch.counts[0] if batch.header is not None and batch.header.is_control else 0,
            None if batch.is_seen else batch.append_ms,
            OF_APPEND_TIME if batch.is_stamped else OF_CREATE_TIME,
            batch.counts.tobytes(),
            batches=sum(len(listed.positions) for listed in messages) if messages else 1,
            last_position=position + last,
        )
        blocks.add(row, batch.size)

    def _skip(self) -> None:
        """Have the block map know that nothing is known of what comes next."""
        blocks = self._blocks
        if blocks is not None:
            if not blocks.is_ready:
                blocks.write()
            blocks.skip()

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
        """Whether the files can take a batch of this size, last offset and append time."""
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
        """How much later an incoming batch is than what `horolog.roll.by` counts from.

        By the first time, as in Kafka (not in KIP-33, which compares single messages), the largest
        timestamp of the first batch against the largest of the incoming one; so, too, where append
        times count and that of the batch is unknown. A segment that begins without a time counts
        from its creation by the clock.

        Args:
            config: of the topic.
            max_timestamp: the batch's largest timestamp.
            append_ms: its append time; None if that is unknown.
            now_ms: the clock.
        """
        by = config.horolog_roll_by
        if by == "append-time" and append_ms is not None:
            times, takes_seen = self._append_times, config.horolog_seen_as_append_time
            first_ms = times.first_seen_ms if takes_seen else times.first_ms
            return 0 if first_ms is None else append_ms - first_ms
        if by == "largest-time":
            largest = self.segment.largest_to_search()
            since = None if largest is None else largest.timestamp
        else:
            since = self.segment.first_timestamp
        if since is None:
            return now_ms - self.created_ms
        return max_timestamp - since if max_timestamp != NO_TIMESTAMP else 0

    def finish(self) -> None:
        """Write the last time entry, cut all files to what is in use, and seal the indexes.

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
            self._end_blocks()
            self._entries = None

    def _end_blocks(self) -> None:
        self._counted = self.counts
        self._blocks = None

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


def _changes(batches: Sequence[Numbered], last: tuple[int | None, bool]) -> list[AppendTimeEntry]:
    """The batches whose append time is another than that of the batch before, or only seen."""
    found = []
    for batch in batches:
        if (batch.append_ms, batch.is_seen) != last:
            last = ms, is_seen = batch.append_ms, batch.is_seen
            found.append(AppendTimeEntry(batch.base_offset, ms, batch.parts[0], is_seen))
    return found


def _noted_all(batches: Sequence[Numbered], entries: IndexWriter, position: int) -> SegmentEnd:
    """As `_noted` of each, in few writes unless there are plain messages among them."""
    if any(batch.messages is not None for batch in batches):
        for batch in batches:
            end = _noted(entries, batch, position)
            position += batch.size
        return end
    about = []
    for batch in batches:
        about.append((position, batch.size, batch.last_offset, batch.max_timestamp))
        position += batch.size
    largest, last = entries.add_all(about), batches[-1]
    return SegmentEnd(position, last.last_offset + 1, about[-1][0], last.base_offset, largest)


def _noted_run(run: "NumberedRun", entries: IndexWriter, position: int) -> SegmentEnd:
    """As `_noted` of each batch of a run."""
    largest = entries.add_all(run.rows(position, *entries.spacing))
    last = position + int(run.starts[-1]), int(run.base_offsets[-1])
    return SegmentEnd(position + run.size, run.last_offset + 1, *last, largest)


def _noted(entries: IndexWriter, batch: Numbered, position: int) -> SegmentEnd:
    """Note a batch that was written at a position in the indexes; the end of its segment."""
    size, last_offset, messages = batch.size, batch.last_offset, batch.messages
    last_position, last_base = position, batch.base_offset
    if messages is None:
        largest = entries.add(position, size, last_offset, batch.max_timestamp)
    else:
        shift = position - messages[0].positions[0]
        for listed in messages:
            largest = entries.add_messages(shift + listed.positions[0], listed)
        last_position, last_base = shift + messages[-1].positions[-1], last_offset
    return SegmentEnd(position + size, last_offset + 1, last_position, last_base, largest)
