"""When each record of a segment was appended: `<base>.appendtimes`, which Apache Kafka ignores.

Two clocks: the records of a CreateTime topic carry their producers' times, this file the
broker's. An entry is written whenever the millisecond changes, before the batch that it is
about, so that a kill leaves at most an entry too many. Big-endian:

     0  4  "hat1"
     4  8  base offset of the segment
    12  8  middle of the times that fit, milliseconds since the epoch
    20  4  CRC-32C of all before
    24  4  how many entries are covered
    28  8  offset after the last covered batch; the base offset if none is covered
    36  8  bytes of `.log` up to there
    44  4  CRC-32C of the first 21 bytes of that batch: offset, size, epoch, checksum
    48  4  CRC-32C of these 24 bytes; if it is wrong, a kill came between, and nothing is covered

then for each entry:

     0  8  44 bits: append time - middle; 12: of such a CRC of its batch; 8: check of the entry
     8  4  (offset - base offset) << 1, and 1 if append times are unknown from there on

An entry holds for its batch and all that follow until the next entry. Append times never
go back, so that times and offsets are both sorted.

What is true of the log is proved when the file is opened (`AppendTimeFile.proof`), because
Apache Kafka may have appended or truncated since, at the same offsets:

- A finished file covers the log as far as it says, if the last covered batch is there.
- A file that is appended to has a marker beside it, `<base>.appending.deleted`. A start of Kafka
  removes every file of that suffix. So where it is left, the machine has not been started since,
  and the log is no copy (the marker names the start of the machine and the log's inode), a kill
  has stopped horolog, nobody else has appended, and the file covers all of the log.
- Else each entry counts whose batch is in the log, and that batch alone after the last of them.

What is not covered has no append time, except in batches stamped with LogAppendTime. Where a
log is appended to after such records, an entry marks them as unknown.
"""

import logging
import sys
import weakref
from contextlib import suppress
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import crc32c

from horolog.errors import CorruptBatch, CorruptIndex
from horolog.record.batch import UNKNOWN_COUNT
from horolog.storage import names
from horolog.storage.files import FileMissing, Files
from horolog.storage.index.entries import Entries

if TYPE_CHECKING:
    from horolog.record.batch import BatchHeader
    from horolog.storage.segment_reader import SegmentReader

_logger = logging.getLogger(__name__)

_HEADER = Struct(">4sqq")
_COVERED = Struct(">IqqI")
_CRC = Struct(">I")
_MAGIC = b"hat1"
_COVERED_AT = _HEADER.size + _CRC.size
HEADER_SIZE: Final = _COVERED_AT + _COVERED.size + _CRC.size
ENTRY: Final = Struct(">qI")
IDENTITY_SIZE: Final = 21  # bytes of a batch up to its checksum, and the checksum

_CHECK_BITS = 20  # of the batch and of the entry
_BATCH_BITS = 0xFFF << 8
_MOST = 1 << 43  # of milliseconds from the middle, either way: 278 years
_MIDDLE_AHEAD = 1 << 42  # so that a clock may jump 400 years ahead, and 100 back
_FARTHEST = (1 << 63) - 1 - _MOST  # a middle from which every time is an int64
_MAX_BYTES = 1 << 62
_MANY = 1 << 16  # entries read at once


class Stretch(NamedTuple):
    """Records that were appended in one millisecond, or whose append time is unknown."""

    offset: int
    """Of the first; it ends where the next stretch begins."""
    ms: int | None


class Found(NamedTuple):
    """The first record that was appended at or after a time."""

    offset: int
    ms: int | None
    """None where append times are unknown and this is the first record that may be the one."""


class Proof(NamedTuple):
    """How much of a file is true of its log."""

    entries: int
    """How many, from the first on."""
    end: int
    """Offset before which append times are known, as far as entries do not say otherwise."""


class _Covered(NamedTuple):
    entries: int
    end: int
    size: int
    identity: int


_NOTHING = Proof(0, 0)


def identity_of(batch: bytes | memoryview) -> int:
    """What tells a batch from any other, by its first bytes."""
    return crc32c.crc32c(memoryview(batch)[:IDENTITY_SIZE])


class AppendTimeFile:
    """The append times of one segment: written by the one thread that appends, read by any."""

    __slots__ = (
        "_entries",
        "_files",
        "_first_ms",
        "_is_damaged",
        "_is_growing",
        "_middle_ms",
        "_proof",
        "_segment",
        "_stem",
        "last_ms",
    )

    def __init__(self, files: Files, stem: str, segment: "SegmentReader") -> None:
        """Of a segment.

        Args:
            files: the way to the disk.
            stem: path of the segment's files without their suffixes.
            segment: whose batches prove the entries.
        """
        self._files = files
        self._stem = stem
        self._segment: SegmentReader = weakref.proxy(segment)  # it holds this
        self._entries = Entries(
            files, stem + names.APPEND_TIMES, ENTRY, _MAX_BYTES, start=HEADER_SIZE
        )
        self._middle_ms = 0
        self._proof: Proof | None = None
        self._is_growing = False
        self._is_damaged = False  # and that was said
        self.last_ms: int | None = None
        """Of the last entry, while the segment is appended to. None: the next batch gets one."""
        self._first_ms: int | None = None

    @property
    def path(self) -> str:
        """The file."""
        return self._entries.path

    def rename(self, path: str) -> None:
        """The file has another name now, because the segment is deleted."""
        self._entries.path = path

    # Reading.

    def stretches(self, from_offset: int, to_offset: int) -> list[Stretch]:
        """When the records of these offsets were appended, in order; the first one begins there.

        Args:
            from_offset: of the first record.
            to_offset: after the last; at most the segment's end, as the caller took it before.

        Raises:
            StorageFailed: the disk refused.
        """
        count, end = self.proof()
        known_to = min(to_offset, end)
        if not count or from_offset >= known_to:
            return [Stretch(from_offset, None)]
        first = min(self._entries.search(1, self._last_at(from_offset)), count) - 1
        last = min(self._entries.search(1, self._last_at(known_to - 1)), count)
        found = [] if first >= 0 else [Stretch(from_offset, None)]
        before = (-1 << 63, 0)
        for entry in ENTRY.iter_unpack(self._entries.read_between(max(0, first), last)):
            time, place = entry
            if not _is_intact(entry) or not _follows(before, entry):
                self._say_damaged()  # and where the stretch before it ends is unknown
                found[-1:] = [Stretch(found[-1].offset if found else from_offset, None)]
                continue
            before = entry
            offset = max(from_offset, self._segment.base_offset + (place >> 1))
            found.append(Stretch(offset, None if place & 1 else self._ms_of(time)))
        if known_to < to_offset:
            found.append(Stretch(known_to, None))
        return found

    def at(self, offset: int) -> int | None:
        """When a record of this segment was appended; None if that is unknown.

        Raises:
            StorageFailed: the disk refused.
        """
        return self.stretches(offset, offset + 1)[0].ms

    def first_from(self, ms: int, from_offset: int, to_offset: int) -> Found | None:
        """The first record of these offsets that was appended at or after `ms`; None if none was.

        Raises:
            StorageFailed: the disk refused.
        """
        count, end = self.proof()
        found = None
        if count:
            entries = self._entries
            holding = min(entries.search(1, self._last_at(from_offset)), count) - 1
            after = min(entries.search(0, ((ms - self._middle_ms) << _CHECK_BITS) - 1), count)
            # Records whose time is unknown come before the first that is known to be late enough.
            index = after - 1 if after > 0 and entries[after - 1][1] & 1 else after
            index = max(index, holding, 0)
            around = range(max(0, min(holding, index) - 1), min(count, max(after, index) + 1))
            near = (index, index - 1, after, after - 1, holding)
            if not all(_is_intact(entries[each]) for each in set(near) if each in around):
                self._say_damaged()
                return Found(from_offset, None)
            if index < count:
                time, place = entries[index]
                offset = self._segment.base_offset + (place >> 1)
                found = Found(max(offset, from_offset), None if place & 1 else self._ms_of(time))
        if (found is None or found.offset >= end) and end < to_offset:
            found = Found(max(end, from_offset), None)
        return found if found is not None and found.offset < to_offset else None

    @property
    def known_to(self) -> int:
        """The offset before which append times are known, but where entries say otherwise."""
        return self.proof().end

    @property
    def latest_ms(self) -> int | None:
        """The last append time that is known; None if there is none.

        Raises:
            StorageFailed: the disk refused.
        """
        count = self.proof().entries
        return self._known_ms(count - 1) if count else None

    @property
    def earliest_ms(self) -> int | None:
        """The first append time, if it is known.

        Raises:
            StorageFailed: the disk refused.
        """
        return self._known_ms(0) if self.proof().entries else None

    @property
    def first_ms(self) -> int | None:
        """The first append time that is known; None if there is none.

        Raises:
            StorageFailed: the disk refused.
        """
        if self._first_ms is None:
            known = (self._known_ms(index) for index in range(min(2, self.proof().entries)))
            self._first_ms = next((ms for ms in known if ms is not None), None)
        return self._first_ms

    @property
    def is_whole(self) -> bool:
        """Whether the append time of every record is known; reads all entries.

        Raises:
            StorageFailed: the disk refused.
        """
        end = self._segment.end.next_offset
        base = self._segment.base_offset
        return end == base or all(each.ms is not None for each in self.stretches(base, end))

    def damage(self) -> str | None:
        """What is wrong with the file itself, None if nothing is; reads all of it.

        Raises:
            StorageFailed: the disk refused.
        """
        if self._read_header() is None:
            return "Its header is damaged: it says nothing"
        before = (-1 << 63, 0)
        for first in range(0, len(self._entries), _MANY):
            some = self._entries.read_between(first, min(first + _MANY, len(self._entries)))
            for number, entry in enumerate(ENTRY.iter_unpack(some), first):
                if not _is_intact(entry) or not _follows(before, entry):
                    return f"Entry {number} is damaged"
                before = entry
        return None

    def mended(self) -> bytes | None:
        """The file without its damaged entries; None if its header is, so that it says nothing.

        Where an entry is damaged, append times are unknown from the one before it on, since that
        is where its records would have begun.

        Raises:
            StorageFailed: the disk refused.
        """
        header = self._read_header()
        if header is None:
            return None
        _, covered = header
        kept: list[tuple[int, ...]] = []
        dropped = 0  # of those that are covered
        for number, entry in enumerate(ENTRY.iter_unpack(self._entries.read())):
            if _is_intact(entry) and (not kept or _follows(kept[-1], entry)):
                kept.append(entry)
                continue
            dropped += covered is not None and number < covered.entries
            if kept:
                time, place = kept[-1]
                kept[-1] = ((time & ~0xFF) | _check_of(time, place | 1), place | 1)
        data = self._files.read_at(self._files.get(self.path), HEADER_SIZE, 0)
        rest = data[_COVERED_AT:]
        if covered is not None:
            covered = covered._replace(entries=covered.entries - dropped)
            rest = _with_crc(_COVERED.pack(*covered))
        return data[:_COVERED_AT] + rest + b"".join(ENTRY.pack(*entry) for entry in kept)

    def proof(self) -> Proof:
        """How much of the file is true of the log; see the module.

        Raises:
            StorageFailed: the disk refused.
        """
        if self._is_growing:
            return Proof(len(self._entries), names.MAX_OFFSET)
        proof = self._proof
        if proof is None:
            self._files.may_block()
            proof = self._prove()
            if not self._is_growing:
                self._proof = proof
        return proof

    def _prove(self) -> Proof:
        header = self._read_header()
        if header is None:
            return _NOTHING
        self._middle_ms, written = header
        count = len(self._entries)
        if self._is_marked():
            counted = self._count_true(0, count)
            if counted or not self._segment.size:
                return Proof(counted, names.MAX_OFFSET)
        covered, end = 0, self._segment.base_offset
        if written is not None and self._is_there(written):
            covered, end = min(written.entries, count), written.end
        counted = self._count_true(covered, count)
        if counted > covered:
            found = self._batch_at(self._offset(counted - 1))
            end = end if found is None else found[1].next_offset
        return Proof(counted, end)

    def _is_there(self, covered: _Covered) -> bool:
        """Whether the last covered batch is in the log, where it was."""
        if covered.end <= self._segment.base_offset:
            return False
        found = self._batch_at(covered.end - 1)
        if found is None:
            return False
        position, batch, identity = found
        return (batch.next_offset, position + batch.size, identity) == covered[1:]

    def _count_true(self, first: int, count: int) -> int:
        """How many entries are of batches in the log, when those before `first` are."""
        for one_less in (count, count - 1):
            if one_less > first and self._is_true(one_less - 1):
                break
        else:
            low, one_less = first, count
            while low < one_less:
                middle = (low + one_less) // 2
                if self._is_true(middle):
                    low = middle + 1
                else:
                    one_less = middle
        # Twelve bits are few: two entries have to be right.
        is_sure = one_less < first + 2 or self._is_true(one_less - 2)
        return one_less if is_sure else first

    def _is_true(self, index: int) -> bool:
        time, place = self._entries[index]
        offset = self._segment.base_offset + (place >> 1)
        found = self._batch_at(offset)
        return (
            found is not None
            and _begins_at(found[1], offset)
            and (found[2] ^ time) & _BATCH_BITS == 0
            and _is_intact((time, place))
        )

    def _batch_at(self, offset: int) -> "tuple[int, BatchHeader, int] | None":
        """Position, header and identity of the batch that holds an offset, or of the next."""
        segment = self._segment
        try:
            found = segment.locate(offset) if segment.size else None
            if found is None:
                return None
            position, header = found
            batch = self._files.read_at(segment.log.open(), IDENTITY_SIZE, position)
        except (CorruptBatch, CorruptIndex):
            return None
        return position, header, identity_of(batch)

    def _read_header(self) -> tuple[int, _Covered | None] | None:
        """The middle of its times, and what the file says that it covers."""
        try:
            data = self._files.read_at(self._files.get(self.path), HEADER_SIZE, 0)
        except FileMissing:
            return None
        head, rest = _checked(data[:_COVERED_AT]), _checked(data[_COVERED_AT:])
        if len(data) < HEADER_SIZE or head is None:
            return None
        magic, base_offset, middle_ms = _HEADER.unpack(head)
        is_ours = magic == _MAGIC and base_offset == self._segment.base_offset
        if not is_ours or abs(middle_ms) > _FARTHEST:
            return None
        return middle_ms, None if rest is None else _Covered(*_COVERED.unpack(rest))

    def _is_marked(self) -> bool:
        marker = self._files.read_whole(self._stem + names.APPENDING, 1 << 12)
        return bool(marker) and marker == self._mark()

    def _mark(self) -> bytes:
        """What the marker holds; empty where the start of the machine is unknown.

        A copy of a directory that is written to may have more of the log than of this file: its
        log is another file.
        """
        boot = _boot_id()
        return f"{boot} {self._files.inode(self._segment.log.path)}".encode() if boot else b""

    def _say_damaged(self) -> None:
        if self._is_damaged:
            return
        self._is_damaged = True
        _logger.warning("%s is damaged: append times there are unknown", self.path)

    def _last_at(self, offset: int) -> int:
        """The largest second column of an entry for this offset."""
        return (offset - self._segment.base_offset) << 1 | 1

    def _offset(self, index: int) -> int:
        return self._segment.base_offset + (self._entries[index][1] >> 1)

    def _ms_of(self, time: int) -> int:
        return (time >> _CHECK_BITS) + self._middle_ms

    def _known_ms(self, index: int) -> int | None:
        if index < 0:
            return None
        time, place = self._entries[index]
        return None if place & 1 else self._ms_of(time)

    # Writing.

    @property
    def is_growing(self) -> bool:
        """Whether the file is made ready for appends."""
        return self._is_growing

    @property
    def is_ready(self) -> bool:
        """Whether `add` finds the file open."""
        return self._is_growing and self._files.is_open(self._entries.path)

    def fits(self, ms: int) -> bool:
        """Whether the file can say this time, if it is growing; else the segment must end."""
        return not self._is_growing or -_MOST <= ms - self._middle_ms < _MOST

    def make_ready(self, next_ms: int) -> None:
        """Make ready for appends; a file is made if there is none.

        Args:
            next_ms: the append time of the next batch.

        Raises:
            StorageFailed: the disk refused.
        """
        if self._is_growing:
            try:
                self._files.get(self.path)
            except FileMissing:  # somebody has removed it
                pass
            else:
                return
        self._open(next_ms)

    def _open(self, first_ms: int) -> None:
        self._is_growing, self._proof, self._first_ms = False, None, None
        entries, end = self._entries, self._segment.end.next_offset
        entries.recount()
        proof = self.proof()
        if not proof.entries:
            proof = Proof(0, self._segment.base_offset)
            self._middle_ms = max(-_FARTHEST, min(first_ms + _MIDDLE_AHEAD, _FARTHEST))
            file = self._files.create(self.path)
            entries.recount()
            head = _HEADER.pack(_MAGIC, proof.end, self._middle_ms)
            nothing = _COVERED.pack(0, proof.end, 0, 0)
            self._files.write_at(file, [_with_crc(head), _with_crc(nothing)], 0)
        else:
            entries.keep(proof.entries)
            entries.trim()
            self._cover(proof)
        found = self._batch_at(proof.end) if proof.end < end else None
        if found is not None:
            _, batch, identity = found
            ms = first_ms if not proof.entries else self._ms_of(entries[proof.entries - 1][0])
            self._add_entry(batch.base_offset, ms, identity, is_unknown=True)
        # Last: from here on a kill leaves a file that covers all of the log.
        self._files.replace(self._stem + names.APPENDING, self._mark(), sync=False)
        self.last_ms = self._known_ms(len(entries) - 1)
        self._is_growing = True

    def add(self, offset: int, ms: int, batch: bytes) -> None:
        """Say when the batch that comes next is appended; `take_back` if it does not come.

        Args:
            offset: of its first record.
            ms: when; `fits`.
            batch: its first bytes, as they will be stored.

        Raises:
            StorageFailed: the disk refused; nothing was noted.
        """
        self.last_ms = None
        check = crc32c.crc32c(batch[:IDENTITY_SIZE])
        if not self.fits(ms):  # else the segment would have ended: there is no entry yet
            self._open(ms)
        try:
            self._add_entry(offset, ms, check)
        except FileMissing:  # somebody has removed it
            self._open(ms)
            self._add_entry(offset, ms, check)
        self.last_ms = ms

    def add_unknown(self, offset: int, batch: bytes) -> None:
        """Say that append times are unknown from a batch on; as `add`, after `make_ready`.

        Raises:
            StorageFailed: the disk refused; nothing was noted.
        """
        before = self.last_ms if self.last_ms is not None else self._middle_ms - _MIDDLE_AHEAD
        self._add_entry(offset, before, identity_of(batch), is_unknown=True)

    def take_back(self) -> None:
        """The batch of the last entry was refused by the disk: its entry is overwritten."""
        self._entries.keep(len(self._entries) - 1)
        self.last_ms = self._first_ms = None

    def finish(self) -> None:
        """Write how far the file covers its log, as nothing more follows.

        Raises:
            StorageFailed: the disk refused.
        """
        if not self._is_growing and not self._is_marked():
            return
        proof = self.proof()
        end = min(proof.end, self._segment.end.next_offset)
        with suppress(FileMissing):  # then append times are unknown
            self._entries.keep(proof.entries)
            self._entries.trim()
            self._cover(Proof(proof.entries, end))
        self._files.remove(self._stem + names.APPENDING)
        self._files.forget(self.path)  # a finished segment needs no more open files than before
        self._proof, self._is_growing = Proof(proof.entries, end), False

    def truncate(self, proof: Proof) -> None:
        """Forget what was cut off the segment; `proof` was asked for before.

        Raises:
            StorageFailed: the disk refused.
        """
        next_offset = self._segment.end.next_offset
        self._is_growing, self._proof, self._first_ms = False, None, None
        if not self._files.exists(self.path):
            return
        count = min(proof.entries, self._entries.search(1, self._last_at(next_offset - 1)))
        self._entries.keep(count)
        self._entries.trim()
        self._cover(Proof(count, min(proof.end, next_offset)))
        self._files.remove(self._stem + names.APPENDING)

    def _add_entry(self, offset: int, ms: int, check: int, *, is_unknown: bool = False) -> None:
        time = (ms - self._middle_ms) << _CHECK_BITS | (check & _BATCH_BITS)
        place = (offset - self._segment.base_offset) << 1 | is_unknown
        self._entries.append(time | _check_of(time, place), place)

    def _cover(self, proof: Proof) -> None:
        """Write what is proved into the header."""
        end = min(proof.end, self._segment.end.next_offset)
        found = self._batch_at(end - 1) if end > self._segment.base_offset else None
        covered = _Covered(0, self._segment.base_offset, 0, 0)
        if found is not None:
            position, header, identity = found
            covered = _Covered(proof.entries, end, position + header.size, identity)
        content = _with_crc(_COVERED.pack(*covered))
        self._files.write_at(self._files.get(self.path), [content], _COVERED_AT)


def _begins_at(batch: "BatchHeader", offset: int) -> bool:
    """Whether a batch begins there; of a compressed message of v0 or v1, as far as is known."""
    if batch.records_count == UNKNOWN_COUNT:
        return batch.base_offset <= offset <= batch.last_offset
    return batch.base_offset == offset


def _check_of(time: int, place: int) -> int:
    """The 8 bits that check an entry."""
    crc: int = crc32c.crc32c(ENTRY.pack(time & ~0xFF, place))
    return (crc ^ crc >> 8 ^ crc >> 16 ^ crc >> 24) & 0xFF


def _follows(before: tuple[int, ...], entry: tuple[int, ...]) -> bool:
    """Whether neither time nor offset go back from one entry to the next."""
    return before[0] >> _CHECK_BITS <= entry[0] >> _CHECK_BITS and before[1] <= entry[1]


def _is_intact(entry: tuple[int, ...]) -> bool:
    time, place = entry
    return time & 0xFF == _check_of(time, place)


def _with_crc(content: bytes) -> bytes:
    return content + _CRC.pack(crc32c.crc32c(content))


def _checked(data: bytes) -> bytes | None:
    """What comes before the CRC, if that is right."""
    content = data[: -_CRC.size]
    return content if content and _with_crc(content) == data else None


@cache
def _boot_id() -> str:
    """What names the time since the machine was started; empty where that is unknown."""
    if sys.platform == "darwin":
        return _boot_session_of_macos()
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""


def _boot_session_of_macos() -> str:
    import ctypes  # noqa: PLC0415 - 5 ms that no other system need wait for

    text, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    sysctl = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    if sysctl is None or sysctl(b"kern.bootsessionuuid", text, ctypes.byref(size), None, 0):
        return ""
    return text.value.decode("ascii", "replace")
