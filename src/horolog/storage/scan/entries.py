"""Comparison of a segment's index entries with the batches of its log.

An entry is valid if no lookup goes wrong by it. Kafka before 0.11 wrote the first offset of a batch
into its offset index. A follower writes the last offset of several batches that it appended at
once. Kafka before 3.8 wrote the offset of the record into the time index. Kafka before 4 wrote
append times of v0 into it, whose messages have no times.
"""

from collections.abc import Iterator
from struct import Struct
from typing import ClassVar, Final

from horolog.record.batch import BatchHeader
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.index.sparse import OffsetIndex, TimeIndex
from horolog.storage.scan.findings import Finding, fault
from horolog.storage.segments.reader import SegmentReader

_BLOCK_ENTRIES = 4096
_CHUNK_BYTES = 1 << 16
_NEVER = 1 << 63
_LEAST = -(1 << 63)
_NO_ENTRY: Final[tuple[int, ...]] = (_NEVER,) * 5


def reindex(log_path: str) -> str:
    """Return the advice that repairs an index of this log."""
    return f"horolog log reindex {log_path} rebuilds it from the log"


class ComparedIndex:
    """Index file of a segment, compared with the log in the order of its entries."""

    LAYOUT: ClassVar[Struct]
    _last: tuple[int, ...]  # the latest entry that follows the ones before it

    def __init__(self, files: Files, path: str, log_path: str, base_offset: int = 0) -> None:
        """Read the first entry of the file at `path`. The log may still grow."""
        self.path = path
        self.exists = files.exists(path)
        self._size = files.size(path)
        self._files = files
        self._base_offset = base_offset
        self._mend = reindex(log_path)
        self._used = self._used_entries()
        self._wrong_count = 0
        self._first_wrong: tuple[int, str] | None = None
        self._entries = self._read()
        self._number = -1
        self._entry = _NO_ENTRY
        self._advance()

    def _out_of_order(self, entry: tuple[int, ...]) -> str | None:
        """Return the reason why an entry cannot follow `_last`; None if it can."""
        raise NotImplementedError

    def _advance(self) -> None:
        """Move to the next entry that can follow the one before."""
        for number, entry in self._entries:
            wrong = self._out_of_order(entry)
            if wrong is None:
                self._number, self._entry, self._last = number, entry, entry
                return
            self._note_wrong(number, wrong)
        self._number, self._entry = -1, _NO_ENTRY

    def _note_wrong(self, number: int, what: str) -> None:
        """Count a wrong entry. Only the first one of the file is described."""
        self._wrong_count += 1
        if self._first_wrong is None or number < self._first_wrong[0]:
            self._first_wrong = number, what

    def _read(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield number and columns of each entry in use."""
        width = self.LAYOUT.size
        for start in range(0, self._used, _BLOCK_ENTRIES):
            count = min(_BLOCK_ENTRIES, self._used - start)
            try:
                block = self._files.read_at(
                    self._files.get(self.path), count * width, start * width
                )
            except FileMissing:
                return
            whole = block[: len(block) // width * width]
            yield from enumerate(self.LAYOUT.iter_unpack(whole), start)

    def faults(self, *, may_have_room: bool) -> Iterator[Finding]:
        """Yield all findings, after the last batch."""
        width, used_bytes = self.LAYOUT.size, self._used * self.LAYOUT.size
        if not self.exists:
            yield self.fault("The index is missing")
            return
        if self._size % width:
            what = f"Its {self._size} bytes are no whole number of entries of {width} bytes"
            yield self.fault(what, self._size // width * width)
        elif self._size > used_bytes and not may_have_room:
            yield self.fault(
                f"{self._size - used_bytes} bytes of zeros follow its {self._used} entries, which "
                "are taken for entries in a segment that is finished",
                used_bytes,
            )
        if self._first_wrong is not None:
            number, what = self._first_wrong
            more = self._wrong_count - 1
            what = f"Entry {number} {what}" + (f"; {more} more are wrong" if more else "")
            yield self.fault(what, number * width)

    def fault(self, what: str, position: int | None = None) -> Finding:
        """Return a fault of the index, at a byte of the file or as a whole."""
        return fault(self.path, what, self._mend, position=position)

    def _used_entries(self) -> int:
        last = position = 0
        try:
            # A live segment's index is preallocated: ten megabytes, nearly all of them a hole.
            while position < self._size:
                file = self._files.get(self.path)
                position = self._files.data_from(file, position)
                chunk = self._files.read_at(file, _CHUNK_BYTES, position)
                if not chunk:
                    break  # only a hole was left, or the file has become shorter
                last = position + used if (used := len(chunk.rstrip(b"\0"))) else last
                position += len(chunk)
        except FileMissing:
            return 0
        width = self.LAYOUT.size
        if not last and self._size == width:
            return 1  # no padding: the time 1970-01-01T00:00 of the first offset is all zeros
        return min(-(-last // width), self._size // width)


class OffsetEntries(ComparedIndex):
    """Offset index of a segment, compared with the log."""

    LAYOUT = OffsetIndex.LAYOUT
    _last = -1, -1
    _group: tuple[int, int] | None = None  # number and offset of an entry beyond its batch
    groups = 0
    """Number of entries for several batches at once, as a follower writes them."""

    @property
    def next_position(self) -> int:
        """Position of the next entry's batch. Earlier batches need no `meet`."""
        return self._entry[1] if self._group is None else 0

    def meet(self, position: int, header: BatchHeader, largest: int | None, *, judge: bool) -> None:
        """Compare the next batch with the entries up to it; `judge`: its header is valid."""
        if not judge:
            self._group = None
        if self._group is not None:
            self._end_of_group(*self._group, header.last_offset)
        while self._entry[1] <= position:
            offset = self._base_offset + self._entry[0]
            if self._entry[1] < position:
                self._note_false("where no batch begins")
            elif not judge:
                pass
            elif offset < header.base_offset:
                self._note_false(f"and the batch there begins with offset {header.base_offset}")
            elif offset > header.last_offset:
                self._group = self._number, offset
                self.groups += 1
            self._advance()

    def skip_to(self, position: int) -> Iterator[tuple[int, int]]:
        """Skip the entries up to a position. Then yield later ones, where reading may continue."""
        self._group = None
        while self._number >= 0:
            if self._entry[1] > position:
                yield self._entry[1], self._base_offset + self._entry[0]
            self._advance()

    def finish(self, end: int) -> None:
        """Report the remaining entries as wrong, because the log ends at byte `end`."""
        if self._group is not None:
            self._end_of_group(*self._group, _NEVER)
        while self._number >= 0:
            self._note_false(f"and the log ends at byte {end}")
            self._advance()

    def _end_of_group(self, number: int, offset: int, last_offset: int) -> None:
        """Check that a batch of the group ends with the offset of the group's entry."""
        if last_offset >= offset:
            self._group = None
        if last_offset > offset:
            self._note_wrong(number, f"names offset {offset}, with which no batch ends")

    def _note_false(self, why: str) -> None:
        offset, position = self._entry
        says = f"says that offset {self._base_offset + offset} is at byte {position}, "
        self._note_wrong(self._number, says + why)

    def _out_of_order(self, entry: tuple[int, ...]) -> str | None:
        (offset, position), (last_offset, last_position) = entry, self._last
        if offset > last_offset and position > last_position:
            return None
        return (
            f"(relative offset {offset}, byte {position}) does not follow the one before "
            f"(relative offset {last_offset}, byte {last_position})"
        )


class TimeEntries(ComparedIndex):
    """Time index of a segment, compared with the log."""

    LAYOUT = TimeIndex.LAYOUT
    _last = NO_TIMESTAMP, 0

    @property
    def next_offset(self) -> int:
        """Offset of the next entry. Batches that end before it need no `meet`."""
        return self._base_offset + self._entry[1]

    @property
    def last_timestamp(self) -> int:
        """Largest timestamp of the entries read so far; -1 without any."""
        return self._last[0]

    def meet(self, position: int, header: BatchHeader, largest: int | None, *, judge: bool) -> None:
        """Compare the next batch of the log with the entries up to its end.

        `largest` is the largest timestamp of all earlier batches; `judge`: all of them were read.
        """
        while (offset := self.next_offset) <= header.last_offset:
            timestamp, why = self._entry[0], None
            if offset < header.base_offset:
                why = "which is in no batch"
            elif header.magic and header.max_timestamp != timestamp:
                why = f"and that of the batch there is {header.max_timestamp}"
            elif largest is not None and largest >= timestamp:
                why = f"and {largest} came before it"
            if judge and why is not None:
                says = f"says that {timestamp} is the largest timestamp up to offset {offset}, "
                self._note_wrong(self._number, says + why)
            self._advance()

    def finish(self, end: int) -> None:
        """Report the remaining entries as wrong, because they are beyond the last batch."""
        while self._number >= 0:
            what = f"names offset {self.next_offset}, which is beyond the log's end"
            self._note_wrong(self._number, what)
            self._advance()

    def _out_of_order(self, entry: tuple[int, ...]) -> str | None:
        (timestamp, offset), (last_timestamp, last_offset) = entry, self._last
        if timestamp > last_timestamp and offset >= last_offset:
            return None
        return (
            f"(timestamp {timestamp}, relative offset {offset}) does not follow the one "
            f"before (timestamp {last_timestamp}, relative offset {last_offset})"
        )


def misfits(entries: OffsetEntries | TimeEntries, reader: SegmentReader, end: int) -> list[Finding]:
    """Compare a new index with the whole batches before byte `end`; return its faults."""
    largest: int | None = None
    for position, header in reader.headers(0, end):
        entries.meet(position, header, largest, judge=True)
        if header.max_timestamp != NO_TIMESTAMP:
            largest = max(header.max_timestamp, largest if largest is not None else _LEAST)
    entries.finish(end)
    return list(entries.faults(may_have_room=False))
