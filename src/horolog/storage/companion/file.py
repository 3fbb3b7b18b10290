"""The companion of a `.log`: one file of ours beside it, which Apache Kafka ignores.

    <base>.companion            when its records were appended, its seal, and its block map
    <base>.appending.deleted    only while it is appended to (marker.py): the block map so far

Big-endian; each part has a check of its own, and is proved by its last batch (proof.py):

      0  header   4s "hcf1"
                  i64 base offset of the segment
                  i64 middle of the append times that fit, milliseconds since the epoch
                  u32 CRC-32C of these 20 bytes
     24  covered  how far append times are known (append_times.py)
                  u32 how many entries
                  i64 offset after the last batch; the base offset if none is covered
                  i64 bytes of `.log` up to there
                  u32 identity of that batch
                  u32 CRC-32C of these 24 bytes
     52  seal     80 bytes (seal.py); zeros: there is none
    132  map      u64 where the block map begins, u32 how many entries it has, u32 CRC-32C of these;
                  zeros: there is none
    148  append times, 12 bytes an entry (time_entries.py), up to the map
         block map, 152 bytes an entry (blocks.py), at the end

Invariant: while a segment is appended to, append times are only added at the end, and the map is in
the other file. So append times, which no log can restore, are never overwritten. The map is written
behind them when the segment is finished. A kill or a power loss may tear a write, so that one part
fails its check. Without seal or map reads are slower; without the covered range each entry is
compared with its batch.
"""

import threading
from struct import Struct
from typing import Final, NamedTuple

import crc32c

from horolog.storage import names
from horolog.storage.batches.log_file import LogFile, SegmentFile
from horolog.storage.companion.blocks import ENTRY_SIZE, LONGEST_MAP
from horolog.storage.companion.marker import AppendingMarker
from horolog.storage.file_errors import FileMissing

_HEADER: Final = Struct(">4sqq")
_COVERED: Final = Struct(">IqqI")
_MAP: Final = Struct(">QI")
_CRC: Final = Struct(">I")
_MAGIC: Final = b"hcf1"
_COVERED_AT: Final = _HEADER.size + _CRC.size
_SEAL_AT: Final = _COVERED_AT + _COVERED.size + _CRC.size
SEAL_SIZE: Final = 80
_MAP_AT: Final = _SEAL_AT + SEAL_SIZE
TIMES_AT: Final = _MAP_AT + _MAP.size + _CRC.size
TIME_ENTRY_SIZE: Final = 12

MOST_MS: Final = 1 << 42
"""Largest distance of append times from the middle, in both directions: 139 years."""
_FARTHEST_MS: Final = (1 << 63) - MOST_MS  # a middle from which every time is an int64


class Covered(NamedTuple):
    """Part of the log for which a companion claims append times."""

    entries: int
    end: int
    """Offset after the last covered batch."""
    size: int
    """Bytes of the log up to the end of that batch."""
    identity: int
    """Identity of the last covered batch (proof.py)."""


class Head(NamedTuple):
    """First fields of a companion."""

    middle_ms: int
    covered: Covered | None
    """None if the check of the part is wrong."""


def packed_head(base_offset: int, middle_ms: int, covered: Covered) -> bytes:
    """Return the head of a companion without seal and map."""
    header = with_crc(_HEADER.pack(_MAGIC, base_offset, middle_ms))
    return (header + with_crc(_COVERED.pack(*covered))).ljust(TIMES_AT, b"\0")


def parsed_head(data: bytes, base_offset: int) -> Head | None:
    """Parse the head of a companion; None if the header is damaged or of another segment."""
    header = checked(data[:_COVERED_AT])
    if header is None or len(data) < TIMES_AT:
        return None
    magic, written_base, middle_ms = _HEADER.unpack(header)
    if magic != _MAGIC or written_base != base_offset or abs(middle_ms) > _FARTHEST_MS:
        return None
    covered = checked(data[_COVERED_AT:_SEAL_AT])
    return Head(middle_ms, None if covered is None else Covered(*_COVERED.unpack(covered)))


def with_crc(content: bytes) -> bytes:
    """Return a part of the file: its content and a CRC-32C."""
    return content + _CRC.pack(crc32c.crc32c(content))


def checked(data: bytes) -> bytes | None:
    """Return the bytes before the CRC; None if the CRC is wrong."""
    content = data[: -_CRC.size]
    return content if content and with_crc(content) == data else None


class Companion(SegmentFile):
    """Companion file of one segment.

    Any thread reads its parts.

    While the segment is appended to, one thread adds append times (append_times.py), and the map
    is not written here.

    Methods raise StorageFailed where the disk refuses.
    """

    __slots__ = (
        "_base_offset",
        "_is_abandoned",
        "_lock",
        "is_growing",
        "log",
        "marker",
    )

    def __init__(self, log: LogFile, base_offset: int) -> None:
        self.log = log
        stem = log.path.removesuffix(names.LOG)
        super().__init__(log.files, stem + names.COMPANION)
        self.marker = AppendingMarker(log.files, stem)
        """File beside the companion while the segment is appended to."""
        self.is_growing = False
        """True while the segment is appended to: then the map is in the other file."""
        self._base_offset = base_offset
        self._lock = threading.Lock()
        self._is_abandoned = False

    def abandon(self) -> None:
        """Write nothing any more, because other files may have these names."""
        with self._lock:
            self._is_abandoned = True

    def grow(self) -> None:
        """Mark the segment as appended to, so that the map is written to the other file."""
        with self._lock:
            self.is_growing = True

    @property
    def exists(self) -> bool:
        """Return True if the file has content. A kill during its creation leaves an empty file."""
        return self._size() > 0

    def _size(self) -> int:
        size, deleted = self.files.size(self.path), self.deleted_path
        return size if size or deleted is None else self.files.size(deleted)

    def head(self) -> Head | None:
        """Read the first fields; None if they are damaged or missing."""
        return parsed_head(self._read(0, TIMES_AT), self._base_offset)

    def seal(self) -> bytes:
        """Read the bytes of the seal; without a seal they are zeros, or fewer."""
        return self._read(_SEAL_AT, SEAL_SIZE)

    def times_end(self) -> int | None:
        """Return the position where append times end; None if they reach the end of the file."""
        place = self._map_place()
        return None if place is None else place[0]

    def map(self) -> bytes:
        """Read the bytes of the block map."""
        place = self._map_place()
        return b"" if place is None else self._read(place[0], place[1] * ENTRY_SIZE)

    # Writing. Nothing is synced here.

    def remove(self) -> None:
        """Remove the file, because the segment is new."""
        self.files.remove(self.path)

    def begin(self, middle_ms: int) -> None:
        """Create the file for append times, with nothing but a head."""
        file = self.files.create(self.path)
        self.files.write_at(file, [self._new_head(middle_ms)], 0)

    def write_covered(self, covered: Covered) -> None:
        """Write up to where append times are known."""
        content = with_crc(_COVERED.pack(*covered))
        self.files.write_at(self.files.get(self.path), [content], _COVERED_AT)

    def write_seal(self, content: bytes) -> None:
        """Write the seal; empty content removes it."""
        with self._lock:
            if not self._is_abandoned and (content or any(self.seal())):
                self._write([(content or bytes(SEAL_SIZE), _SEAL_AT)])

    def clear_map(self) -> None:
        """Remove the block map, so that append times can be added in its place."""
        if self._map_place() is not None:
            self._write([(bytes(TIMES_AT - _MAP_AT), _MAP_AT)])

    def write_map(self, entries: bytes) -> None:
        """Write the block map of a finished segment behind its append times."""
        with self._lock:
            if self._is_abandoned or self.is_growing:
                return
            files, end = self.files, self.times_end()
            if end is not None:
                files.truncate(files.get(self.path), end)
            else:
                end = max(TIMES_AT, files.size(self.path))
                end += -(end - TIMES_AT) % TIME_ENTRY_SIZE
            place = with_crc(_MAP.pack(end, len(entries) // ENTRY_SIZE))
            # Its place first: a kill in between leaves no bytes that could be append times.
            self._write([(place, _MAP_AT), (entries, end)])

    def _write(self, parts: list[tuple[bytes, int]]) -> None:
        files = self.files
        if files.size(self.path) < TIMES_AT:
            files.write_at(files.create(self.path), [self._new_head(0)], 0)
        file = files.get(self.path)
        for content, position in parts:
            files.write_at(file, [content], position)
        if not self.is_growing:
            files.forget(self.path)  # a finished segment needs no more open files than before

    def _new_head(self, middle_ms: int) -> bytes:
        return packed_head(self._base_offset, middle_ms, Covered(0, self._base_offset, 0, 0))

    def _map_place(self) -> tuple[int, int] | None:
        """Return the position of the block map and its number of entries; None without a map."""
        content = checked(self._read(_MAP_AT, TIMES_AT - _MAP_AT))
        if content is None:
            return None
        position, count = _MAP.unpack(content)
        size = self._size()
        if not TIMES_AT <= position <= size or (position - TIMES_AT) % TIME_ENTRY_SIZE:
            return None
        return position, min(count, LONGEST_MAP // ENTRY_SIZE)

    def _read(self, position: int, size: int) -> bytes:
        try:
            return self.files.read_at(self.open(), size, position)
        except FileMissing:
            return b""
