"""The entries of the two indexes, compared with the batches of their log while that is read.

An entry is valid if no lookup goes wrong by it: Kafka before 0.11 wrote the first offset of
a batch into its offset index, a follower the last one of several batches that it
appended at once, and Kafka before 3.8 the offset of the record into the time index. Kafka
before 4 wrote append times of v0 into it, whose messages have no times.
"""

from collections.abc import Iterator
from struct import Struct

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


def reindex(log_path: str) -> str:
    """How an operator repairs an index of a log."""
    return f"horolog log reindex {log_path} rebuilds it from the log"


class IndexFile:
    """One index file: how much of it is in use, and what of that is wrong."""

    def __init__(self, files: Files, path: str, layout: Struct, mend: str) -> None:
        self.path = path
        self.exists = files.exists(path)
        self.size = files.size(path)
        self._files = files
        self._layout = layout
        self._mend = mend
        self._used = self._used_entries()
        self._wrong = 0
        self._first_wrong: tuple[int, str] | None = None

    @property
    def padding(self) -> int:
        """Bytes of zeros behind the entries in use."""
        return max(0, self.size - self._used * self._layout.size)

    def wrong(self, number: int, what: str) -> None:
        """Note a wrong entry; only the first in the file is described."""
        self._wrong += 1
        if self._first_wrong is None or number < self._first_wrong[0]:
            self._first_wrong = number, what

    def entries(self) -> Iterator[tuple[int, ...]]:
        """Number and columns of each entry in use."""
        width = self._layout.size
        for start in range(0, self._used, _BLOCK_ENTRIES):
            count = min(_BLOCK_ENTRIES, self._used - start)
            try:
                block = self._files.read_at(
                    self._files.get(self.path), count * width, start * width
                )
            except FileMissing:
                return
            whole = block[: len(block) // width * width]
            for index, columns in enumerate(self._layout.iter_unpack(whole)):
                yield (start + index, *columns)

    def faults(self, *, may_have_room: bool) -> Iterator[Finding]:
        """Report all faults, after all entries were compared."""
        width = self._layout.size
        if not self.exists:
            yield fault(self.path, "The index is missing", self._mend)
            return
        if self.size % width:
            what = f"Its {self.size} bytes are no whole number of entries of {width} bytes"
            yield fault(self.path, what, self._mend, position=self.size // width * width)
        elif self.padding and not may_have_room:
            yield fault(
                self.path,
                f"{self.padding} bytes of zeros follow its {self._used} entries, which are taken "
                "for entries in a segment that is finished",
                self._mend,
                position=self._used * width,
            )
        if self._first_wrong is not None:
            number, what = self._first_wrong
            more = self._wrong - 1
            what = f"Entry {number} {what}" + (f"; {more} more are wrong" if more else "")
            yield fault(self.path, what, self._mend, position=number * width)

    def fault(self, what: str) -> Finding:
        """A finding about the index as a whole."""
        return fault(self.path, what, self._mend)

    def _used_entries(self) -> int:
        last = position = 0
        try:
            # A live segment's index is preallocated: ten megabytes, nearly all of them a hole.
            while position < self.size:
                file = self._files.get(self.path)
                position = self._files.data_from(file, position)
                chunk = self._files.read_at(file, _CHUNK_BYTES, position)
                if not chunk:
                    break  # only a hole was left, or the file has become shorter
                last = position + used if (used := len(chunk.rstrip(b"\0"))) else last
                position += len(chunk)
        except FileMissing:
            return 0
        width = self._layout.size
        if not last and self.size == width:
            return 1  # no padding: the time 1970-01-01T00:00 of the first offset is all zeros
        return min(-(-last // width), self.size // width)


class OffsetEntries:
    """The offset index, compared with the log while that is read."""

    LAYOUT = OffsetIndex.LAYOUT

    def __init__(self, file: IndexFile, base_offset: int) -> None:
        self.file = file
        self.next_position = _NEVER
        """Batches before it need not be passed to `meet`."""
        self.groups = 0
        """Entries that name the end of several batches, as a follower writes them."""
        self._base_offset = base_offset
        self._entries = file.entries()
        self._number = self._offset = self._position = -1
        self._last_offset, self._last_position = -1, -1
        self._group: tuple[int, int] | None = None
        self._advance()

    def meet(self, position: int, header: BatchHeader, largest: int | None, *, judge: bool) -> None:
        """Compare the entries up to a batch with it; `judge` says whether its header is valid."""
        if not judge:
            self._group = None
        if self._group is not None:
            self._end_of_group(header.last_offset)
        while self._position <= position and self._number >= 0:
            number, offset = self._number, self._base_offset + self._offset
            if self._position < position:
                self._wrong("where no batch begins")
            elif not judge:
                pass
            elif offset < header.base_offset:
                self._wrong(f"and the batch there begins with offset {header.base_offset}")
            elif offset > header.last_offset:
                self._group = number, offset
                self.groups += 1
            self._advance()
        self.next_position = position if self._group is not None else self._position

    def skip_to(self, position: int) -> Iterator[tuple[int, int]]:
        """Skip entries up to `position`; then yield those beyond, where reading may continue."""
        self._group = None
        while self._number >= 0:
            if self._position > position:
                yield self._position, self._base_offset + self._offset
            self._advance()

    def finish(self, end: int, *, judge: bool) -> None:
        """Report the entries left: all are wrong if the log was read to its `end`."""
        if judge and self._group is not None:
            self._end_of_group(_NEVER)
        while judge and self._number >= 0:
            self._wrong(f"and the log ends at byte {end}")
            self._advance()

    def _end_of_group(self, last_offset: int) -> None:
        assert self._group is not None
        number, offset = self._group
        if last_offset >= offset:
            self._group = None
        if last_offset > offset:
            self.file.wrong(number, f"names offset {offset}, with which no batch ends")

    def _wrong(self, why: str) -> None:
        offset = self._base_offset + self._offset
        says = f"says that offset {offset} is at byte {self._position}, "
        self.file.wrong(self._number, says + why)

    def _advance(self) -> None:
        for number, offset, position in self._entries:
            if offset > self._last_offset and position > self._last_position:
                self._number, self._offset, self._position = number, offset, position
                self._last_offset, self._last_position = offset, position
                self.next_position = position
                return
            self.file.wrong(
                number,
                f"(relative offset {offset}, byte {position}) does not follow the one before "
                f"(relative offset {self._last_offset}, byte {self._last_position})",
            )
        self._number, self._position = -1, _NEVER
        self.next_position = _NEVER


class TimeEntries:
    """The time index, compared with the log while that is read."""

    LAYOUT = TimeIndex.LAYOUT

    def __init__(self, file: IndexFile, base_offset: int) -> None:
        self.file = file
        self.next_offset = _NEVER
        """Batches that end before it need not be passed to `meet`."""
        self.last_timestamp = NO_TIMESTAMP
        self._base_offset = base_offset
        self._entries = file.entries()
        self._number = self._timestamp = self._offset = -1
        self._last_offset = 0
        self._advance()

    def meet(self, position: int, header: BatchHeader, largest: int | None, *, judge: bool) -> None:
        """Compare the entries up to the end of a batch with it.

        `largest` is the timestamp of all batches before it; `judge`: all of these were read.
        """
        while self.next_offset <= header.last_offset:
            if judge:
                self._judge(header, largest)
            self._advance()

    def _judge(self, header: BatchHeader, largest: int | None) -> None:
        says = f"says that {self._timestamp} is the largest timestamp up to offset "
        says += str(self.next_offset)
        if self.next_offset < header.base_offset:
            self.file.wrong(self._number, f"{says}, which is in no batch")
        elif header.magic and header.max_timestamp != self._timestamp:
            self.file.wrong(
                self._number, f"{says}, and that of the batch there is {header.max_timestamp}"
            )
        elif largest is not None and largest >= self._timestamp:
            self.file.wrong(self._number, f"{says}, and {largest} came before it")

    def finish(self, end: int, *, judge: bool) -> None:
        """Report the entries left: they are beyond the last batch, which ends at byte `end`."""
        while judge and self._number >= 0:
            self.file.wrong(
                self._number, f"names offset {self.next_offset}, which is beyond the log's end"
            )
            self._advance()

    def _advance(self) -> None:
        for number, timestamp, offset in self._entries:
            if timestamp > self.last_timestamp and offset >= self._last_offset:
                self._number, self._timestamp = number, timestamp
                self.last_timestamp, self._last_offset = timestamp, offset
                self.next_offset = self._base_offset + offset
                return
            self.file.wrong(
                number,
                f"(timestamp {timestamp}, relative offset {offset}) does not follow the one "
                f"before (timestamp {self.last_timestamp}, relative offset {self._last_offset})",
            )
        self._number, self.next_offset = -1, _NEVER


def misfits(entries: OffsetEntries | TimeEntries, reader: SegmentReader, end: int) -> list[Finding]:
    """Compare a finished index with the whole batches before byte `end`."""
    largest: int | None = None
    for position, header in reader.headers(0, end):
        entries.meet(position, header, largest, judge=True)
        if header.max_timestamp != NO_TIMESTAMP:
            largest = max(header.max_timestamp, largest if largest is not None else _LEAST)
    entries.finish(end, judge=True)
    return list(entries.file.faults(may_have_room=False))
