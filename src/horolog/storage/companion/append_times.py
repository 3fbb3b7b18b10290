"""Append times of the records of a segment, read from its companion and written there (file.py).

The records of a CreateTime topic carry their producers' times, the companion the broker's. An
entry is written whenever the millisecond changes. It is written before its batch, so that a kill
leaves at most one entry too many. It holds for all batches up to the next entry. Append times never
go back, so that times and offsets are both sorted.

The format is in time_entries.py. The log proves the entries when the file is opened (proof.py).
While the segment is appended to, a marker is next to the file (marker.py).

Invariant: every answer is proved. Records that are not covered have no append time, except in
batches stamped with LogAppendTime. If a log is appended to after such records, an entry marks them
as unknown.
"""

import logging
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from horolog.buffers import Buffer
from horolog.errors import CorruptIndex
from horolog.record.timestamps import AppendTimeStretch
from horolog.storage import names
from horolog.storage.companion.file import (
    MOST_MS,
    TIMES_AT,
    Companion,
    Covered,
    packed_head,
)
from horolog.storage.companion.proof import (
    NOTHING,
    Proof,
    ProvingSegment,
    batch_at,
    proof_by_head,
    prove_times,
)
from horolog.storage.companion.time_entries import (
    BEFORE_ALL,
    CHECK_BITS,
    ENTRY,
    LOST,
    earliest_for,
    first_damaged,
    is_intact,
    is_seen,
    kinds_of,
    middle_for,
    packed_entry,
    stretches_of,
    without_damaged,
)
from horolog.storage.entries import Entries
from horolog.storage.file_errors import FileMissing

if TYPE_CHECKING:
    from horolog.storage.companion.time_columns import ChangedTimes, TimeColumns

_logger = logging.getLogger(__name__)

_MAX_BYTES = 1 << 62
_NONE_SAID: Final = -1 << 63  # no append time: the next batch gets an entry
_MANY = 1 << 16  # entries read at once


class FirstAppended(NamedTuple):
    """First record that was appended at or after a time."""

    offset: int
    ms: int | None
    """None if the append time is unknown: the record is the first that may qualify."""


AppendTimeEntry: TypeAlias = tuple[int, int | None, int, bool]
"""Batch whose append time differs from that of the batch before: its first offset, that time
(None if unknown from there on), its identity, and whether the time is a seen time."""


class _Entries(Entries):
    """Entries that another process may cut off while this one reads."""

    __slots__ = ()

    def __getitem__(self, index: int) -> tuple[int, ...]:
        try:
            return super().__getitem__(index)
        except CorruptIndex:
            return LOST


class AppendTimeFile:
    """Append times of one segment.

    One thread appends; any thread reads.

    Methods raise StorageFailed where the disk refuses.
    """

    __slots__ = (
        "_base_offset",
        "_companion",
        "_entries",
        "_files",
        "_first_ms",
        "_is_damaged",
        "_latest",
        "_marker",
        "_middle_ms",
        "_proof",
        "_proves_all",
        "_segment",
        "_stored",
        "checked_to",
        "is_growing",
        "last_is_seen",
        "last_ms",
    )

    def __init__(self, companion: Companion, segment: ProvingSegment) -> None:
        """Open nothing yet; the batches of `segment` will prove the entries."""
        self._files = files = companion.log.files
        self._companion = companion
        self._marker = companion.marker
        self._segment: ProvingSegment = weakref.proxy(segment)  # it holds this
        self._base_offset = segment.base_offset
        end = companion.times_end
        self._entries = _Entries(files, companion.path, ENTRY, _MAX_BYTES, start=TIMES_AT, end=end)
        self._middle_ms = 0  # of the times that fit; known once there is a proof
        self._proof: Proof | None = None  # None: not asked for yet, or the file is growing
        self._stored = 0  # entries, of which `_proof` says how many count
        self._proves_all = False  # these, and what the header says
        self.checked_to = 0
        """Offset up to which the log was checked for damage that leaves entries unproved."""
        self.is_growing = False
        """True if the file is ready for appends: every entry is of a batch in the log."""
        self._is_damaged = False  # and that was said
        self.last_ms: int | None = None
        """Append time of the last entry of a growing segment; None if it is unknown."""
        self.last_is_seen = False
        """True if `last_ms` is the time at which a follower saw the batch."""
        self._first_ms: int | None = None  # as `first_ms`, once it is known
        self._latest: AppendTimeStretch | None = None  # of the entry added last, while it is that

    @property
    def path(self) -> str:
        """Path of the companion."""
        return self._entries.path

    def rename(self, path: str) -> None:
        """Use another path, because the file was renamed with its deleted segment."""
        self._entries.path = self._companion.path = path

    def will_rename(self, path: str) -> None:
        """Set the path that the file gets when its segment is deleted; readers try both."""
        self._entries.deleted_path = self._companion.deleted_path = path

    # Reading.

    def stretches(
        self, from_offset: int, to_offset: int, *, seen: bool = False
    ) -> list[AppendTimeStretch]:
        """Return the append times of a range of offsets, in order.

        The first stretch begins at `from_offset`.

        Args:
            to_offset: after the last; at most the segment's end, as the caller took it before.
            seen: give also when a follower saw those whose append times are not known.
        """
        count, end = self.proof()
        known_to = min(to_offset, end)
        if not count or from_offset >= known_to:
            return [AppendTimeStretch(from_offset, None)]
        first, last = self._held(from_offset, known_to, count)
        # One more: where that is damaged, it may be of a record in front of the end.
        data = self._entries.read_between(max(0, first), min(last + 1, count))
        stretches = stretches_of(data, self._base_offset, self._middle_ms)
        if len(stretches) < len(data) // ENTRY.size:
            self._warn_of_damage()
        merged = [AppendTimeStretch(from_offset, None)]
        for stretch in stretches:
            if stretch.offset >= known_to:
                break
            if stretch.is_seen and not seen:
                stretch = AppendTimeStretch(stretch.offset, None)
            if stretch.offset <= from_offset:
                merged = [stretch._replace(offset=from_offset)]
            elif stretch[1:] != merged[-1][1:]:
                merged.append(stretch)
        if known_to < to_offset:
            merged.append(AppendTimeStretch(known_to, None))
        return merged

    def _held(self, from_offset: int, to_offset: int, count: int) -> tuple[int, int]:
        """Return the first of `count` entries for a range of offsets, and the one after the last.

        The first is -1 where none holds for the offset.
        """
        ends = self._last_at(from_offset), self._last_at(to_offset - 1)
        first, last = self._entries.search_range(*ends)
        return min(first, count) - 1, min(last, count)

    def latest_at(self, from_offset: int) -> AppendTimeStretch | None:
        """Return the append time of all records from an offset on, if that is the one said last.

        None if it is not, or not known. Nothing is read.
        """
        latest = self._latest
        if latest is None or latest.offset > from_offset or not self.is_growing:
            return None
        return None if latest.ms is None or latest.is_seen else latest._replace(offset=from_offset)

    def columns(self, from_offset: int, to_offset: int) -> "TimeColumns":
        """Return known and seen append times as arrays, perhaps with a row behind the range.

        Faster than `stretches` where there are many.
        """
        from horolog.storage.companion.time_columns import (  # noqa: PLC0415 - numpy, if needed
            columns_of,
            unpacked,
        )

        count, end = self.proof()
        if from_offset < to_offset <= end:
            first, last = self._held(from_offset, to_offset, count)
            if 0 <= first < last:
                # One more: where that is damaged, it may be of a record in front of the end.
                data = self._entries.read_between(first, min(last + 1, count))
                columns = unpacked(data, self._base_offset, self._middle_ms)
                if columns is not None and len(columns.ms) >= last - first:  # else it was cut
                    return columns
        return columns_of(self.stretches(from_offset, to_offset, seen=True))

    def unknown_in(self, from_offset: int, to_offset: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of offsets that cover all of these whose append times are not in the file.

        Entries are read in pieces; where some are unknown or seen, a range has a whole piece.
        """
        count, end = self.proof()
        known_to = min(to_offset, end)
        if not count or from_offset >= known_to:
            yield from_offset, to_offset
            return
        first, last = self._held(from_offset, known_to, count)
        if first < 0:
            yield from_offset, self._offset_of(0, known_to)
        for piece in range(max(0, first), last, _MANY):
            following = min(last, piece + _MANY)
            self._files.may_block()
            if any(kinds_of(self._entries.read_between(piece, following))):
                start = max(from_offset, self._offset_of(piece, known_to))
                yield start, self._offset_of(following, known_to)
        if known_to < to_offset:
            yield known_to, to_offset

    def _offset_of(self, index: int, known_to: int) -> int:
        """Return the offset of an entry, at most one up to which all are proved."""
        if index >= self.proof().entries:
            return known_to
        return min(known_to, self._base_offset + (self._entries[index][1] >> 1))

    def at(self, offset: int) -> int | None:
        """Return the append time of one record of the segment; None if it is unknown."""
        return self.stretches(offset, offset + 1)[0].ms

    def at_or_seen(self, offset: int) -> AppendTimeStretch:
        """Return the append time of one record.

        If it is unknown, return the time at which a follower saw it.
        """
        return self.stretches(offset, offset + 1, seen=True)[0]

    def first_from(self, ms: int, from_offset: int, to_offset: int) -> FirstAppended | None:
        """Return the first of these records appended at or after `ms`; None without one."""
        count, end = self.proof()
        first = None
        if count:
            entries = self._entries
            holding = min(entries.search(1, self._last_at(from_offset)), count) - 1
            after = min(entries.search(0, ((ms - self._middle_ms) << CHECK_BITS) - 1), count)
            # Records whose time is unknown come before the first that is known to be late enough.
            index = self._after_known(max(holding, 0), after)
            around = range(max(0, min(holding, index) - 1), min(count, max(after, index) + 1))
            near = (index, index - 1, after, after - 1, holding)
            if not all(is_intact(entries[number]) for number in set(near) if number in around):
                self._warn_of_damage()
                return FirstAppended(from_offset, None)
            if index < count:
                time, place = entries[index]
                offset = self._base_offset + (place >> 1)
                first = FirstAppended(max(offset, from_offset), self._ms_if_known(time, place))
        if (first is None or first.offset >= end) and end < to_offset:
            first = FirstAppended(max(end, from_offset), None)
        return first if first is not None and first.offset < to_offset else None

    def unproved(self, to_offset: int) -> tuple[int, int] | None:
        """Return the offsets whose damage may leave append times unproved; None without any.

        A damaged batch behind `to_offset` may also be the reason.
        """
        count, end = self.proof()
        if self.is_growing or not self._stored or to_offset <= self.checked_to:
            return None
        if self._proves_all and to_offset <= end:
            return None
        last = self._base_offset
        if count:
            last += self._entries[count - 1][1] >> 1
        return max(last, self.checked_to), to_offset if self._proves_all else names.MAX_OFFSET

    @property
    def latest_ms(self) -> int | None:
        """Latest append time, known or seen.

        No later record has an earlier one. None without entries.
        """
        count = self.proof().entries
        last_two = [self._ms_at(index) for index in range(max(0, count - 2), count)]
        return next((ms for ms in reversed(last_two) if ms is not None), None)

    @property
    def earliest_ms(self) -> int | None:
        """Append time of the first entry; None if it is unknown."""
        return self._known_ms(0) if self.proof().entries else None

    @property
    def first_ms(self) -> int | None:
        """First append time that is known; None if none is."""
        if self._first_ms is None:
            count = self.proof().entries
            for first in range(0, count, _MANY):
                some = self._entries.read_between(first, min(first + _MANY, count))
                if (known := kinds_of(some).find(0)) >= 0:
                    self._first_ms = self._known_ms(first + known)
                    break
        return self._first_ms

    @property
    def first_seen_ms(self) -> int | None:
        """First append time that is known or seen by a follower; None if neither exists."""
        entries = [self._entries[index] for index in range(min(2, self.proof().entries))]
        known = (entry[0] for entry in entries if not entry[1] & 1 and is_intact(entry))
        return next((self._ms_of(time) for time in known), None)

    def seen_span(self) -> tuple[int, int] | None:
        """Return the first and the last time at which a follower saw records; None without any.

        Reads all entries.
        """
        from horolog.storage.companion.time_columns import SEEN  # noqa: PLC0415 - numpy, if needed

        count, end = self.proof()
        times = self.columns(self._base_offset, end if count else 0)
        seen = times.ms[times.kinds == SEEN]
        return (int(seen[0]), int(seen[-1])) if len(seen) else None

    @property
    def has_any(self) -> bool:
        """Return True if the file contains entries, proved or not."""
        return len(self._entries) > 0

    def damage(self) -> str | None:
        """Describe damage of the file; None without damage. Reads the whole file."""
        head = self._companion.head()
        if head is None:
            return "Its header is damaged: it says nothing of append times"
        before: tuple[int, ...] = BEFORE_ALL
        for first in range(0, len(self._entries), _MANY):
            data = self._entries.read_between(first, min(first + _MANY, len(self._entries)))
            some = list(ENTRY.iter_unpack(data))
            number = first_damaged(some, before)
            if number is not None:
                return f"Entry {first + number} is damaged"
            before = some[-1]
        return None

    def mended(self) -> bytes | None:
        """Return the file without damaged entries, seal and map; None without a header.

        Append times are unknown from the entry before a damaged one on.
        """
        head = self._companion.head()
        if head is None:
            return None
        covered = head.covered or Covered(0, self._base_offset, 0, 0)
        entries, left = without_damaged(self._entries.read(), covered.entries)
        base_offset = self._base_offset
        return packed_head(base_offset, head.middle_ms, covered._replace(entries=left)) + entries

    def kept_from(self, from_offset: int) -> bytes | None:
        """Return the proved append times from an offset on; None without any.

        Recovery keeps them for records that it takes off a damaged log, whose batches prove
        nothing. With a valid marker all entries are true, since no other broker has written.
        """
        head = self._companion.head()
        if head is None:
            return None
        middle_ms, covered = head
        if self._marker.is_valid():
            sure, end = len(self._entries), names.MAX_OFFSET
        else:
            sure, end = proof_by_head(self._segment, covered, len(self._entries))
        first = max(0, min(self._entries.search(1, self._last_at(from_offset)), sure) - 1)
        if first >= sure or end <= from_offset:
            return None
        covers = Covered(sure - first, end, 0, 0)
        start = packed_head(self._base_offset, middle_ms, covers)
        return start + self._entries.read_between(first, sure)

    def proof(self) -> Proof:
        """Return how many entries the log proves, and up to which offset (proof.py)."""
        if self.is_growing:
            return Proof(len(self._entries), names.MAX_OFFSET)
        proof = self._proof
        if proof is None:
            self._files.may_block()
            proof = self._prove()
            if not self.is_growing:
                self._entries.keep(proof.entries)  # searches are among those that are true
                self._proof = proof
        return proof

    def _prove(self) -> Proof:
        head = self._companion.head()
        if head is None:
            return NOTHING
        self._middle_ms, covered = head
        is_marked = self._marker.is_valid()
        stored = len(self._entries)
        proof = prove_times(self._segment, self._entries, covered, is_marked=is_marked)
        covers_all = covered is None or covered.end <= proof.end
        self._stored, self._proves_all = stored, proof.entries == stored and covers_all
        return proof

    def _warn_of_damage(self) -> None:
        if self._is_damaged:
            return
        self._is_damaged = True
        _logger.warning("%s is damaged: append times there are unknown", self.path)

    def _last_at(self, offset: int) -> int:
        """Return the largest second column that an entry for this offset can have."""
        return (offset - self._base_offset) << 1 | 1

    def _ms_of(self, time: int) -> int:
        return (time >> CHECK_BITS) + self._middle_ms

    def _ms_if_known(self, time: int, place: int) -> int | None:
        return None if place & 1 or is_seen(time) else self._ms_of(time)

    def _known_ms(self, index: int) -> int | None:
        if index < 0 or not is_intact(entry := self._entries[index]):
            return None
        return self._ms_if_known(*entry)

    def _ms_at(self, index: int) -> int | None:
        """Return the time of an entry, known or seen; None if the entry is damaged or missing."""
        if index < 0 or not is_intact(entry := self._entries[index]):
            return None
        return self._ms_of(entry[0])

    def _after_known(self, first: int, last: int) -> int:
        """Return the index after the last entry in [first, last) with a known append time.

        The search begins at the end, where that entry mostly is.
        """
        while first < last:
            start = max(first, last - _MANY)
            known = kinds_of(self._entries.read_between(start, last)).rfind(0)
            if known >= 0:
                return start + known + 1
            self._files.may_block()
            last = start
        return first

    # Writing.

    @property
    def most_ms(self) -> int:
        """Latest time that fits into the file while the segment is appended to."""
        return self._middle_ms + MOST_MS - 1

    def fits(self, ms: int) -> bool:
        """Return True if the time fits into the file. Otherwise the segment must be rolled."""
        return not self.is_growing or -MOST_MS <= ms - self._middle_ms < MOST_MS

    def make_ready(self, next_ms: int) -> None:
        """Make the file ready for appends; create a missing one.

        Args:
            next_ms: the append time of the next batch.
        """
        if self.is_growing:
            try:
                self._files.get(self.path)
            except FileMissing:  # the file was removed
                pass
            else:
                return
        self._open(next_ms)

    def _open(self, first_ms: int) -> None:
        self.is_growing, self._proof, self._first_ms, self._latest = False, None, None, None
        entries, end = self._entries, self._segment.end.next_offset
        entries.recount()
        proof = self.proof()
        if not proof.entries:
            proof = Proof(0, self._base_offset)
            self._middle_ms = middle_for(first_ms)
            self._companion.begin(self._middle_ms)
            entries.recount()
        else:
            self._keep(proof.entries)
            self._cover(proof)
        first_uncovered = batch_at(self._segment, proof.end) if proof.end < end else None
        if first_uncovered is not None:
            _, batch, identity = first_uncovered
            ms = self._ms_at(proof.entries - 1)
            ms = first_ms if ms is None else ms
            delta = batch.base_offset - self._base_offset
            delta_ms = ms - self._middle_ms
            entries.append_packed(packed_entry(delta_ms, delta, identity, True))
        # Last: from here on a kill leaves a file that covers all of the log.
        self._marker.write()
        time, place = entries[len(entries) - 1] if len(entries) else BEFORE_ALL
        self.last_is_seen = is_seen(time) and not place & 1
        self.last_ms = self._ms_of(time) if self.last_is_seen else self._known_ms(len(entries) - 1)
        self.is_growing = True

    def add(self, entries: Sequence[AppendTimeEntry]) -> None:
        """Say when the batches that come next are appended; `take_back` if they do not come.

        Args:
            entries: in one write; all of them fit if the first does.

        Raises:
            StorageFailed: the disk refused; nothing was noted.
        """
        _, first_ms, _, _ = entries[0]
        if first_ms is None:
            first_ms = next((ms for _, ms, _, _ in entries if ms is not None), None)
        if first_ms is not None and not -MOST_MS <= first_ms - self._middle_ms < MOST_MS:
            self._open(first_ms)  # there is no entry yet: otherwise the segment had ended
        self.last_ms, self._latest = _NONE_SAID, None
        try:
            self._entries.append_packed(self._packed(entries))
        except FileMissing:  # the file was removed
            if first_ms is not None:  # otherwise all are unknown, as without a file
                self._open(first_ms)
                self._entries.append_packed(self._packed(entries))
        offset, self.last_ms, _, self.last_is_seen = entries[-1]
        self._latest = AppendTimeStretch(offset, self.last_ms, self.last_is_seen)

    def add_columns(self, changes: "ChangedTimes") -> None:
        """Add entries in one write, at least one; the first and the last fit, and so all do.

        Raises:
            StorageFailed: the disk refused; nothing was noted.
        """
        base_offset = self._base_offset
        self.last_ms, self._latest = _NONE_SAID, None
        try:
            self._entries.append_packed(changes.packed(base_offset, self._middle_ms))
        except FileMissing:  # the file was removed
            self._open(int(changes.ms[0]))
            self._entries.append_packed(changes.packed(base_offset, self._middle_ms))
        self.last_ms, self.last_is_seen = int(changes.ms[-1]), changes.is_seen

    def take_back(self, count: int) -> None:
        """Remove the last `count` entries, because the disk refused their batches."""
        if count:
            self._entries.keep(len(self._entries) - count)
            self.last_ms, self._first_ms, self._latest = _NONE_SAID, None, None

    def finish(self) -> None:
        """Write the covered range into the header, because the segment is finished."""
        if not self.is_growing and not self._marker.is_valid():
            return
        proof = self.proof()
        end = min(proof.end, self._segment.end.next_offset)
        with suppress(FileMissing):  # then append times are unknown
            self._keep(proof.entries)
            self._cover(Proof(proof.entries, end))
        self._marker.remove()
        self._files.forget(self.path)  # a finished segment needs no more open files than before
        self._proof, self.is_growing = Proof(proof.entries, end), False

    def truncate(self, proof: Proof) -> None:
        """Remove the entries of batches that were cut off; `proof` is from before the cut."""
        next_offset = self._segment.end.next_offset
        self.is_growing, self._proof, self._first_ms, self._latest = False, None, None, None
        if not self._files.exists(self.path):
            return
        count = min(proof.entries, self._entries.search(1, self._last_at(next_offset - 1)))
        self._keep(count)
        self._cover(Proof(count, min(proof.end, next_offset)))
        self._marker.remove()

    def _packed(self, entries: Sequence[AppendTimeEntry]) -> Buffer:
        middle_ms, base_offset = self._middle_ms, self._base_offset
        packed, last_ms = bytearray(), None
        for offset, ms, identity, was_seen in entries:
            if ms is not None:
                last_ms = ms
            elif last_ms is None:  # the entry has the time of the one before
                last_ms = self._ms_at(len(self._entries) - 1)
                last_ms = earliest_for(middle_ms) if last_ms is None else last_ms
            packed += packed_entry(
                last_ms - middle_ms, offset - base_offset, identity, ms is None, was_seen
            )
        return packed

    def _keep(self, count: int) -> None:
        """Keep the first `count` entries, and remove a block map behind them."""
        self._entries.keep(count)
        self._companion.clear_map()
        self._entries.trim()

    def _cover(self, proof: Proof) -> None:
        """Write the proved range into the header."""
        end = min(proof.end, self._segment.end.next_offset)
        base_offset = self._base_offset
        last = batch_at(self._segment, end - 1) if end > base_offset else None
        covered = Covered(0, base_offset, 0, 0)
        if last is not None:
            position, header, identity = last
            covered = Covered(proof.entries, end, position + header.size, identity)
        self._companion.write_covered(covered)
