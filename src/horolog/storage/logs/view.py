"""View of a log at one moment, so that all parts of an answer come from the same segments.

Retention, the cleaner, and a topic's deletion replace the segments of a log at any time. An answer
with records of one moment and aborted transactions of another would give aborted records as
committed. The segments of a view stay readable as long as their deleted files are there.

Any thread may ask it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from horolog.config import TopicConfig
from horolog.errors import ErrorCode, RequestRefused
from horolog.record.batch import BatchHeader
from horolog.record.builder import empty_batch
from horolog.record.time_stats import NO_RECORDS, TimeStats
from horolog.record.timestamps import AppendTimeStretch
from horolog.storage.batches.slices import Slice
from horolog.storage.directory.checkpoints import AheadSpan, AppendTimeReset
from horolog.storage.files import Files
from horolog.storage.index.abort import AbortedTxn
from horolog.storage.lookup.by_append_time import (
    AppendedAt,
    Stamps,
    append_times,
    find_by_append_time,
    held_parts,
    with_ends,
)
from horolog.storage.lookup.cuts import CutLog
from horolog.storage.lookup.unread import Unread, dropping, unread
from horolog.storage.names import TopicPartition
from horolog.storage.producers.replay import opened_at
from horolog.storage.producers.states import Unended
from horolog.storage.removal.retention_report import SegmentRetention, report
from horolog.storage.segments.segment import Segment

_MOST_OFFSETS = 1 << 31  # of one batch
_MOST_EMPTY = 1000  # batches that one read passes


@dataclass(slots=True, eq=False)
class LogView:
    """A view of a log.

    Appends are seen beyond its offsets, never before them.

    Methods raise StorageFailed where the disk refuses.
    """

    files: Files
    name: TopicPartition
    segments: tuple[Segment, ...]
    log_start_offset: int
    """The first readable offset, which a segment has."""
    end_offset: int
    """The log end at the moment of the view."""
    high_watermark: int
    """Consumers read up to here."""
    last_stable_offset: int
    """Consumers of committed records read up to here; at most the high watermark."""
    unended: tuple[Unended, ...]
    """The transactions that count as aborted or committed without a marker."""
    has_transactions: bool
    """Whether there may be an open or aborted transaction."""
    has_limit: bool
    """Whether reads end at the high watermark; otherwise at the log end."""
    is_of_replica: bool
    """Whether reads return batches of the log alone, and none for a range without records."""
    append_time_resets: tuple[AppendTimeReset, ...]
    """Where append times were lowered, in order of offsets."""
    config: TopicConfig
    """The effective settings."""
    retention_exempt: bool
    """Adopted: no retention."""
    max_batch_bytes: int
    """A lookup decompresses no more of one batch."""

    # Batches.

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool = True,
        up_to: int | None = None,
    ) -> Slice:
        """Return the stretch of a file that answers a fetch; see `ReadableLog.read`.

        Raises:
            RequestRefused: the offset is out of range (1).
            CorruptBatch: the file is damaged there.
        """
        end_offset = self.segments[-1].end.next_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise RequestRefused(
                ErrorCode.offset_out_of_range,
                f"Received request for offset {offset} for partition {self.name.topic}-"
                f"{self.name.partition}, but we only have log segments in the range "
                f"{self.log_start_offset} to {end_offset}.",
            )
        if self.has_limit:
            up_to = min(self.high_watermark, end_offset if up_to is None else up_to)
        before = up_to if up_to is not None and up_to < end_offset else None
        if offset < end_offset and (before is None or offset < before):
            segments = self._from(offset)
            for segment, following in zip_longest(segments, segments[1:]):
                found = segment.slice(
                    offset,
                    max_bytes,
                    min_one_batch=min_one_batch,
                    before=before,
                    limit=None if following is None else following.base_offset,
                )
                if found is not None:
                    return found
            if self.is_of_replica:
                return Slice(self.files, None, 0, 0)
            gap = self.gap(offset, before or end_offset)
            # Else retention has just deleted what was there.
            is_gap = segments[0].base_offset <= offset
            if is_gap and (min_one_batch or max_bytes >= gap.size):
                return gap
        return Slice(self.files, None, 0, 0)

    def gap(self, offset: int, end_offset: int) -> Slice:
        """Return an empty batch that covers a range of offsets without records."""
        held = empty_batch(offset, min(end_offset, offset + _MOST_OFFSETS) - 1)
        return Slice(self.files, None, 0, len(held), held)

    def behind_empty_batches(self, offset: int, up_to: int) -> int:
        """Return the first offset with records from `offset` on, at most `up_to`.

        Behind many batches without records it is where the next one begins.

        Raises:
            CorruptBatch: the file is damaged there.
        """
        return self._behind(offset, up_to, lambda header: not header.records_count)

    def first_record(
        self, offset: int, up_to: int, aborted: Sequence[AbortedTxn] = ()
    ) -> int | None:
        """Return the smallest possible offset of the next record; None if no record follows.

        Markers of transactions are passed, and the records of those that are given, up to the same
        number of batches as empty ones.

        Raises:
            CorruptBatch: the file is damaged there.
        """
        drops = dropping(aborted)

        def passes(header: BatchHeader) -> bool:
            return header.is_control or not header.records_count or drops(header)

        found = self._behind(offset, up_to, passes)
        return None if found >= up_to else found

    def _behind(self, offset: int, up_to: int, passes: Callable[[BatchHeader], bool]) -> int:
        """Return the offset after the batches that are passed, at most `up_to`."""
        seen = 0
        for segment in self._from(offset):
            found = segment.locate(offset)
            if found is None:
                continue
            for _, header in segment.headers(found[0], segment.size):
                if header.next_offset > up_to:
                    return up_to
                if seen == _MOST_EMPTY or not passes(header):
                    return max(offset, header.base_offset)
                seen += 1
        return up_to

    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions that reach into `[offset, end_offset)`.

        A transaction that was open when its broker stopped for good has no producer left that could
        end it; it counts as aborted unless its commit was decided, and so everything up to the log
        end is stable.

        Raises:
            CorruptIndex: an index of aborted transactions is missing or damaged.
        """
        found: list[AbortedTxn] = []
        for segment in self._from(offset):
            # Each is where its marker is.
            found += segment.aborted(offset)
            if found and found[-1].last_stable_offset >= end_offset:
                break  # those that ended later began later
        found += [
            AbortedTxn(transaction.producer_id, transaction.first_offset, end_offset, end_offset)
            for transaction in self.unended
            if not transaction.is_committed
        ]
        return [e for e in found if e.last_offset >= offset and e.first_offset < end_offset]

    def end_of_read(self, offset: int, size: int, end_offset: int) -> int:
        """Return an offset after the batches of a read, at most `end_offset`.

        As near as the offset index says without a look into the log.
        """
        segment = self._from(offset)[0]
        end, before = segment.size, segment.indexes.position_before
        behind = before(offset, end) + size
        if behind >= end:
            return end_offset
        # The first batch is at most one interval of the index behind its entry.
        first = segment.locate(offset)
        behind = size + (before(offset, end) if first is None else first[0])
        return bisect_left(range(end_offset), behind, lo=offset, key=lambda at: before(at, end))

    # Times.

    def append_times(
        self, from_offset: int, to_offset: int, *, seen: bool = False
    ) -> list[AppendTimeStretch]:
        """Return the append times of these records; see `ReadableLog.append_times`.

        Raises:
            CorruptBatch: the log is damaged where append times have to be read from it.
        """
        found: list[AppendTimeStretch] = []
        for segment, end_offset, size in with_ends(self._from(from_offset)):
            first, last = max(from_offset, segment.base_offset), min(to_offset, end_offset)
            if first < last:
                found += append_times(segment, first, last, size, seen=seen)
        return found

    def append_times_within(
        self, offset: int, size: int, *, read: Slice | None = None, seen: bool = False
    ) -> list[AppendTimeStretch]:
        """Return the append times of the batches in `size` bytes, from the batch with an offset on.

        Args:
            read: result of `read` from the offset on, which has found that batch.
            seen: give also when a follower saw those of which that is unknown.

        Raises:
            RequestRefused: the records were deleted before the look (1).
            CorruptBatch: the log is damaged where append times have to be read from it.
        """
        if offset < self.segments[0].base_offset:
            raise RequestRefused(
                ErrorCode.offset_out_of_range,
                f"Offset {offset} of {self.name.topic}-{self.name.partition} is before the log "
                f"start offset {self.log_start_offset}.",
            )
        latest = self.segments[-1].append_times.latest_at(offset)
        if latest is not None:
            return [latest]
        for segment, end_offset, log_size in with_ends(self._from(offset)):
            if read is not None and read.path == segment.log.path:
                start = read.position
            elif (found := segment.locate(offset)) is not None:
                start = found[0]
            else:
                continue
            end, stamps = offset, Stamps()
            for position, header in segment.headers(start, log_size):
                if position - start >= size:
                    break
                end = header.next_offset
                stamps.add(header)
            end = min(end, end_offset)
            return append_times(segment, offset, end, log_size, stamps, seen=seen)
        return []

    def find_by_append_time(self, ms: int) -> AppendedAt | None:
        """Return the first record that was appended at or after `ms`; see `ReadableLog`.

        Raises:
            CorruptBatch: the log is damaged where it has to be read.
        """
        start, resets = (
            self.log_start_offset,
            {append_time_reset.offset for append_time_reset in self.append_time_resets},
        )
        return find_by_append_time(self._from(start), ms, start, resets)

    def cut_log(
        self,
        ahead: AheadSpan | None,
        floor_ms: int | None,
        cleaner_point: int | None,
        *,
        follows: bool,
        has_open: bool,
    ) -> CutLog:
        """Return the readable part of the log, to be cut at an append time."""
        start = self.log_start_offset
        return CutLog(
            held_parts(self._from(start), start),
            start,
            self.high_watermark,
            self.append_time_resets,
            ahead,
            floor_ms,
            cleaner_point,
            follows,
            has_open,
            self.config.compacts,
        )

    def opened_at(self, offset: int) -> tuple[int, Mapping[int, int]]:
        """Return an offset up to another, and the transactions that are open there.

        They are first offsets by producer id.
        """
        directory = self.segments[0].log.path.rpartition("/")[0]
        return opened_at(self.files, directory, self.segments, offset)

    def time_stats(self) -> tuple[TimeStats, int]:
        """Return statistics of the times of all readable records, from block maps alone.

        The block that has the log start counts as a whole; one that has the high watermark of a
        cluster does not count.

        Returns:
            The times, and how many offsets are in segments without a whole block map: these are
            left out.
        """
        known, unknown, start = NO_RECORDS, 0, self.log_start_offset
        for segment, end_offset, size in with_ends(self._from(start)):
            end = self.high_watermark if self.has_limit else end_offset
            found = segment.blocks.times(size, start, end)
            if found is None:
                unknown += max(0, min(end, end_offset) - max(start, segment.base_offset))
            else:
                known = known.followed_by(found)
        return known, unknown

    def unread(
        self,
        from_offset: int,
        to_offset: int,
        aborted: Sequence[AbortedTxn] = (),
        *,
        create_times: bool = True,
    ) -> Unread:
        """Count the records between two offsets at batch ends, without those `aborted`.

        Args:
            create_times: by create times; otherwise by timestamps, which may be append times.
        """
        start = max(from_offset, self.log_start_offset)
        end = min(to_offset, self.high_watermark)
        return unread(
            self._from(start), start, end, self.max_batch_bytes, aborted, create_times=create_times
        )

    def retention_report(
        self,
        now_ms: int,
        config: TopicConfig | None = None,
        *,
        first_offset: int = 0,
        names_markers: bool = False,
    ) -> Iterator[SegmentRetention]:
        """Report retention of each segment; see removal/retention_report.py.

        May be iterated during appends; a segment is read when it is its turn.

        Args:
            config: settings to be tried, as if the topic had them.
            first_offset: only segments with this base offset, or a later one.
            names_markers: look for markers that keep segments.

        Raises:
            CorruptBatch: the log is damaged where it has to be read.
        """
        return report(
            self.segments,
            self.config if config is None else config,
            self.log_start_offset,
            self.high_watermark,
            now_ms,
            self.append_time_resets,
            is_exempt=self.retention_exempt and config is None,
            first_offset=first_offset,
            names_markers=names_markers,
        )

    def _from(self, offset: int) -> tuple[Segment, ...]:
        return segments_from(self.segments, offset)


def segments_from(segments: tuple[Segment, ...], offset: int) -> tuple[Segment, ...]:
    """Return the segment with an offset, and all later segments."""
    return segments[max(0, bisect_right(segments, offset, key=_base_offset) - 1) :]


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
