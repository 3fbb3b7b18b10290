"""Cleaning pass over the finished segments of a log: read the dirty keys, then rewrite all batches.

    cleaning = CleaningPass(segments, key_map, rules)
    for size in cleaning.fill(from_offset): ...        # bytes that were read
    for group in cleaning.groups(config):              # segments that become one
        for some in cleaning.cleaned(group): ...       # batches, with their append times
        cleaning.take_aborted()                        # for the new segment's index

All steps are generators, so that the caller can limit the rate, show the progress, or stop. The new
segments take the place of old ones only when the caller puts them there.

Batches are read once for their keys and once to be written. No batch is held longer than its piece
of about 4 MiB, and no object is made for a record. A batch that keeps all records is written
unchanged.

Invariants: offsets and append times remain, and the marks of times that a follower saw. A group
does not reach over a reset of append times. A group that loses all records becomes a segment
without a batch, as in Kafka: some of Kafka's clients cannot skip a single empty batch.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from horolog.buffers import Buffer
from horolog.config import TopicConfig
from horolog.record import cleaning
from horolog.record.batch import CONTROL_BIT, DELETE_HORIZON_BIT, MAGIC, BatchHeader, parse_header
from horolog.record.cleaning import (
    Keys,
    Mask,
    SmallBatches,
    SmallWritten,
    StayingRecords,
    all_stay,
)
from horolog.record.kernels.cleaning_kernels import HAS_KEY, IS_TOMBSTONE, NOT_PLAIN
from horolog.record.timestamps import AppendTimeStretch
from horolog.storage import names
from horolog.storage.batches.reader import EVERYTHING
from horolog.storage.cleaning.key_map import KeyMap
from horolog.storage.cleaning.parts import Part, SmallParts, parts_of
from horolog.storage.cleaning.rules import Fate, Rules, fate_of
from horolog.storage.cleaning.transactions import CleanedTransactions
from horolog.storage.companion.time_columns import SEEN, UNKNOWN
from horolog.storage.index.abort import AbortedTxn
from horolog.storage.segments.numbered import Numbered, appended_at, as_it_is
from horolog.storage.segments.reader import SegmentReader
from horolog.storage.segments.runs import NumberedRun

_LARGEST_TIME: Final = (1 << 63) - 1
_NEAR: Final = 1 << 14  # offsets whose append times are read at once


class Cleaned(NamedTuple):
    """Rewritten piece of a log. Its buffers are valid until the next piece."""

    batches: Sequence[Numbered | NumberedRun]
    read_bytes: int
    """Bytes of the old piece."""
    read_records: int
    """Number of records in the old piece, with markers."""
    kept_records: int

    @property
    def kept_bytes(self) -> int:
        """Bytes of the batches that remain."""
        return sum(batch.size for batch in self.batches)


class _CleanedSource:
    """Segment that a pass reads."""

    def __init__(self, segment: SegmentReader, end_offset: int) -> None:
        """Prepare to read a segment; the next one begins at `end_offset`."""
        self.segment = segment
        self.end_offset = end_offset
        self.modified_ms = segment.modified_ms()
        self._has_times = segment.has_append_times
        self._near = range(0)  # the offsets of
        self._times: Sequence[AppendTimeStretch] = ()

    @property
    def first_ms(self) -> int | None:
        """First append time, known or seen; None without one."""
        if not self._has_times:
            return None
        first_ms = self.segment.append_times.first_seen_ms
        return next(self._all_times(), None) if first_ms is None else first_ms

    @property
    def last_ms(self) -> int | None:
        """Last append time, known or seen; None without one."""
        if not self._has_times:
            return None
        last_ms = self.segment.append_times.latest_ms
        return max(self._all_times(), default=None) if last_ms is None else last_ms

    def _all_times(self) -> Iterator[int]:
        """Yield all append times, known or seen, in order. Used where entries are damaged."""
        stretches = self.stretches(self.segment.base_offset, self.end_offset)
        return (stretch.ms for stretch in stretches if stretch.ms is not None)

    def size_of(self, suffix: str) -> int:
        """Return the size of the segment's file with this suffix."""
        return self.segment.log.files.size(self.segment.path_of(suffix))

    def stretches(self, first_offset: int, end_offset: int) -> Sequence[AppendTimeStretch]:
        """Return the append times of a range of offsets, known or seen."""
        if not self._has_times:
            return ()
        return self.segment.append_times.stretches(first_offset, end_offset, seen=True)

    def appended(self, header: BatchHeader) -> AppendTimeStretch:
        """Return the append time of a batch."""
        if header.base_offset not in self._near or header.last_offset not in self._near:
            end_offset = max(header.next_offset, min(header.base_offset + _NEAR, self.end_offset))
            self._near = range(header.base_offset, end_offset)
            self._times = self.stretches(header.base_offset, end_offset)
        return appended_at(header, self._times)

    def runs(self, written: SmallWritten) -> Iterator[NumberedRun]:
        """Yield rewritten batches with their append times."""
        bases = written.base_offsets
        if not len(bases):
            return
        if not self._has_times:
            yield NumberedRun(*written, None, is_seen=False)
            return
        times = self.segment.append_times.columns(int(bases[0]), int(bases[-1]) + 1).of(bases)
        changes = [0, *(np.flatnonzero(np.diff(times.kinds)) + 1).tolist(), len(bases)]
        for first, end in pairwise(changes):
            kind = times.kinds[first]
            ms = None if kind == UNKNOWN else times.ms[first:end]
            yield NumberedRun(*written.between(first, end), ms, is_seen=bool(kind == SEEN))


class CleaningGroup(NamedTuple):
    """Segments that become one. They become several if the index files have no room for all."""

    sources: Sequence[_CleanedSource]

    @property
    def segments(self) -> Sequence[SegmentReader]:
        """The old segments."""
        return [source.segment for source in self.sources]

    @property
    def base_offset(self) -> int:
        """Base offset of the new segment."""
        return self.sources[0].segment.base_offset

    @property
    def size(self) -> int:
        """Bytes of the old segments' logs."""
        return sum(segment.size for segment in self.segments)


class CleaningPass:
    """Cleaning pass over one log.

    Methods raise StorageFailed where the disk refuses.
    """

    def __init__(self, segments: Sequence[SegmentReader], key_map: KeyMap, rules: Rules) -> None:
        """Prepare a pass over a log.

        Args:
            segments: all finished ones from the first of the log up to `rules.end_offset`, in
                order.
        """
        self._segments = [segment for segment in segments if segment.base_offset < rules.end_offset]
        following = [segment.base_offset for segment in self._segments[1:]]
        self._end_offsets = [*following, rules.end_offset]
        self._map = key_map
        self._rules = rules
        self._transactions = CleanedTransactions(rules.aborted)
        lasts = (producer.last_data_offset for producer in rules.producers.values())
        ends = [offset + 1 for offset in lasts if offset is not None]
        # Of batches that may stay empty; or whose markers may, of producers without other batches.
        self._ends = np.array([*ends, rules.end_offset], np.int64)
        without = [key for key, last in rules.producers.items() if last.last_data_offset is None]
        self._without_records = np.array(without, np.int64)
        self.keyless = 0
        """Records without a key among those that `fill` has read."""

    @property
    def end_offset(self) -> int:
        """Offset up to which the log is clean after the pass.

        The table had no room for later keys.
        """
        return self._map.end_offset

    # Which keys there are.

    def fill(self, from_offset: int) -> Iterator[int]:
        """Store the latest offset of each key from an offset on, until the table is full.

        Records of aborted transactions do not count.

        Yields:
            How many bytes were read since the last time.

        Raises:
            CorruptBatch: a segment is damaged.
        """
        # Markers before that are not read, so nothing would end what they have ended: a later
        # transaction of the same producer, committed, would count as aborted.
        aborted = [
            transaction
            for transaction in self._rules.aborted
            if transaction.last_offset >= from_offset
        ]
        transactions = CleanedTransactions(aborted)
        self._map.clear(self._rules.end_offset - from_offset)
        self._map.end_offset = from_offset
        for segment, end_offset in zip(self._segments, self._end_offsets, strict=True):
            if end_offset <= from_offset:
                continue
            start, least = 0, segment.base_offset
            if from_offset > segment.base_offset:
                start = segment.indexes.position_before(from_offset, segment.size)
            reader = segment.batches(EVERYTHING)
            some: Iterable[Keys]
            for buffer in reader.selected(start, names.MAX_OFFSET, None):
                for part in parts_of(buffer, least, self._map.secret, all_kinds=True):
                    least = part.next_offset
                    if isinstance(part, SmallParts):
                        are_hidden = transactions.meet_small(part.small) > 0
                        are_hidden |= part.small.attributes & CONTROL_BIT > 0
                        some = [part.keys_behind(from_offset, are_hidden)]
                    else:
                        if part.header.is_control or part.header.producer_id >= 0:
                            is_hidden = transactions.meet(part.header, part.data)
                            if is_hidden or part.header.is_control:
                                continue
                        if part.next_offset <= from_offset:
                            continue
                        some = cleaning.read_keys(
                            cleaning.open_records(part.data, part.header), self._map.secret
                        )
                    if not all(self._note(keys, from_offset) for keys in some):
                        return
                    self._map.end_offset = max(part.next_offset, from_offset)
                yield len(buffer)
            self._map.end_offset = end_offset

    def _note(self, keys: Keys, from_offset: int) -> bool:
        """Store keys. Returns False if there was no room for all."""
        noted = self._map.put(keys, from_offset)
        self.keyless += int(np.count_nonzero(keys.flags & HAS_KEY == 0))
        if noted < len(keys.offsets):
            self._map.end_offset = int(keys.offsets[noted])
            return False
        return True

    # What the segments become.

    def groups(self, config: TopicConfig) -> Iterator[CleaningGroup]:
        """Yield the segments up to the end of the table, grouped by what fits into one segment.

        Limits are `segment.bytes`, the sizes of indexes and 2^31 offsets, as in Kafka. Append times
        must not go back within a group.
        """
        group: list[_CleanedSource] = []
        for segment, end_offset in zip(self._segments, self._end_offsets, strict=True):
            if segment.base_offset >= self._map.end_offset:
                break
            source = _CleanedSource(segment, end_offset)
            if group and not _fits(group, source, config):
                yield CleaningGroup(group)
                group = []
            group.append(source)
        if group:
            yield CleaningGroup(group)

    def cleaned(self, group: CleaningGroup) -> Iterator[Cleaned]:
        """Yield the batches of the new segment of a group.

        Groups must come in order.

        Raises:
            CorruptBatch: a segment is damaged.
            RequestRefused: a batch decompresses to too much, or becomes too large.
        """
        for source in group.sources:
            segment, least = source.segment, source.segment.base_offset
            for buffer in segment.batches(EVERYTHING).selected(0, names.MAX_OFFSET, None):
                batches: list[Numbered | NumberedRun] = []
                read = kept = 0
                for part in parts_of(buffer, least, self._map.secret, all_kinds=True):
                    least = part.next_offset
                    if isinstance(part, SmallParts):
                        counts = self._clean_small(part, source, batches)
                    else:
                        counts = self._clean(part, source, batches)
                    read, kept = read + counts[0], kept + counts[1]
                yield Cleaned(batches, len(buffer), read, kept)

    def take_aborted(self) -> list[AbortedTxn]:
        """Return the aborted transactions that ended in pieces since the last call."""
        aborted, self._transactions.kept = self._transactions.kept, []
        return aborted

    def _clean_small(
        self, parts: SmallParts, source: _CleanedSource, batches: list[Numbered | NumberedRun]
    ) -> tuple[int, int]:
        """Rewrite many small batches, as `_clean` does one.

        Headers are parsed only for batches that stay empty.
        """
        small, rules = parts.small, self._rules
        keep, *_ = self._map.judge(
            small.keys, keeps_tombstones=True, keeps_keyless=rules.keeps_keyless
        )
        may_go = self._transactions.meet_small(small)
        if (small.attributes & NOT_PLAIN).any():
            self._apply_rules(small, keep, may_go)
        kept = small.counts_of(keep)
        may_stay_empty = np.isin(small.next_offsets, self._ends)
        if len(self._without_records):
            may_stay_empty |= np.isin(small.producer_ids, self._without_records)
        first = 0
        for end in [*np.flatnonzero(may_stay_empty & (kept == 0)).tolist(), len(kept)]:
            written = cleaning.write_small_batches(
                parts.view, small, keep, may_go, first, end, self._horizon_ms
            )
            batches.extend(source.runs(written))
            if end < len(kept):
                part = parts.part(end)
                fate = fate_of(part.header, rules, bool(may_go[end]), source.modified_ms)
                self._add_emptied(part, source, fate, batches)
            first = end + 1
        return len(keep), int(kept.sum())

    def _apply_rules(self, small: SmallBatches, keep: Mask, may_go: Mask) -> None:
        """Change the mask of kept records as `fate_of` demands for their batches."""
        are_markers = small.attributes & CONTROL_BIT > 0
        are_over = small.attributes & DELETE_HORIZON_BIT > 0
        are_over &= small.base_timestamps <= self._rules.now_ms
        lose_records = (may_go > 0) & (are_over | ~are_markers)
        tombstone, keys = HAS_KEY | IS_TOMBSTONE, small.keys
        goes = (keys.flags & tombstone == tombstone) & (keys.offsets < self._map.end_offset)
        keep[goes & small.of_records(are_over)] = 0
        keep[small.of_records(are_markers)] = 1
        keep[small.of_records(lose_records)] = 0

    def _add_emptied(
        self, part: Part, source: _CleanedSource, fate: Fate, batches: list[Numbered | NumberedRun]
    ) -> None:
        """Add an empty batch in place of one without remaining records, if its fate demands it.

        The empty batch has no time. Kafka leaves the time of the removed records in its header, and
        our time index would contain it.
        """
        if fate.stays_empty:
            batches.append(_numbered(cleaning.emptied(part.header), part.header, source))

    def _clean(
        self, part: Part, source: _CleanedSource, batches: list[Numbered | NumberedRun]
    ) -> tuple[int, int]:
        """Add the rewritten batch. Returns how many records it had, and how many remain."""
        header, rules = part.header, self._rules
        may_go = False
        if header.is_control or header.producer_id >= 0:
            may_go = self._transactions.meet(header, part.data)
        fate = fate_of(header, rules, may_go, source.modified_ms)
        count = header.records_count
        if not count and header.magic == MAGIC:
            self._add_emptied(part, source, fate, batches)
            return 0, 0
        opened, staying = None, StayingRecords()
        horizon_ms = None
        if fate.loses_records:
            kept = 0
        elif header.is_control and not fate.needs_horizon:
            kept = count
        else:
            opened = cleaning.open_records(part.data, header)
            for keys in cleaning.read_keys(opened, self._map.secret):
                verdict = (
                    all_stay(keys)
                    if header.is_control
                    else self._map.judge(
                        keys,
                        keeps_tombstones=fate.keeps_tombstones,
                        keeps_keyless=rules.keeps_keyless,
                    )
                )
                staying.add(keys, verdict)
            count, kept = staying.count, staying.kept
            gets_horizon = staying.tombstones and header.magic == MAGIC
            if fate.needs_horizon or (gets_horizon and not header.has_delete_horizon):
                horizon_ms = self._horizon_ms
        if not kept:
            self._add_emptied(part, source, fate, batches)
        elif kept == count and horizon_ms is None:
            batches.append(_numbered(part.data, header, source))
        else:
            assert opened is not None
            new = cleaning.retained(opened, header, staying, horizon_ms=horizon_ms)
            batches.append(_numbered(new, header, source))
        return count, kept

    @property
    def _horizon_ms(self) -> int:
        return min(self._rules.now_ms + self._rules.delete_retention_ms, _LARGEST_TIME)


def _numbered(data: Buffer, header: BatchHeader, source: _CleanedSource) -> Numbered:
    """Return a batch ready to append, with the append time of the old batch of this header."""
    appended = source.appended(header)
    new = parse_header(memoryview(data), 0, header.base_offset)
    return as_it_is(new, [data], appended.ms, is_seen=appended.is_seen)


def _fits(group: Sequence[_CleanedSource], source: _CleanedSource, config: TopicConfig) -> bool:
    """Return True if one segment has room for the group and one more segment."""
    all_of_them, first = [*group, source], group[0].segment.base_offset
    if sum(one.segment.size for one in all_of_them) > config.segment_bytes:
        return False
    for suffix in (names.OFFSET_INDEX, names.TIME_INDEX):
        if sum(one.size_of(suffix) for one in all_of_them) > config.segment_index_bytes:
            return False
    if source.end_offset - 1 - first > names.MAX_RELATIVE_OFFSET:
        return False
    latest_ms = next((one.last_ms for one in reversed(group) if one.last_ms is not None), None)
    return latest_ms is None or source.first_ms is None or latest_ms <= source.first_ms
