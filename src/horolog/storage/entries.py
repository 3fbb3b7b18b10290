"""Fixed-width entries in a file, seen as a sequence that can be searched by a column.

The file may be longer than what is in use: Kafka preallocates the indexes of the
active segment with zeros and cuts them when the segment is finished. Entries
are read from the page cache with `pread`; kept in memory are their number, with
what each block of 128 begins once there was a search, and of all files together
the blocks that were searched last: so a search reads at most one block, however
many there are.

One thread appends; any number may search what was there when they began.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import count
from struct import Struct

from horolog.buffers import Buffer
from horolog.errors import CorruptIndex
from horolog.record.batch import SMALLEST_BATCH
from horolog.storage.batches.log_file import LogFile, SegmentFile
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.kept_blocks import Columns

_READ_BLOCKS = 1024
_AROUND_BYTES = 128 << 10
_BLOCK_ENTRIES = 128  # what a search reads at once when it has come close
_MOST_BYTES = (1 << 31) - 1  # of a file, as in Kafka: what is behind is no entry
_contents = count()


class _Content:
    """State of the entries until some of them may change."""

    __slots__ = ("number", "starts")

    def __init__(self) -> None:
        self.number = next(_contents)
        """Number that no other content has; blocks are kept by it."""
        self.starts = array("q")
        """The first column of the first entry of each block."""


class Entries(SegmentFile):
    """The entries of one file, of two columns; `capacity` is how many a new index has room for.

    They begin at byte `start`, behind a header if the file has one.
    """

    __slots__ = (
        "_content",
        "_count",
        "_end",
        "_layout",
        "_log",
        "_start",
        "capacity",
    )

    def __init__(
        self,
        files: Files,
        path: str,
        layout: Struct,
        max_bytes: int,
        *,
        start: int = 0,
        log: LogFile | None = None,
        end: Callable[[], int | None] | None = None,
    ) -> None:
        """Prepare to read entries.

        With a `log`, each entry but one names another of its batches.

        `end`: says where in a file that is opened for the first time the entries end, if before it.
        """
        super().__init__(files, path)
        self._end = end
        self._log = log
        self._start = start
        self.capacity = max_bytes // layout.size
        self._layout = layout
        self._count: int | None = None
        self._content = _Content()

    def __len__(self) -> int:
        """Number of entries in use, taken from the file's length when it is first opened."""
        if self._count is None:
            self._count = self._used()
        return self._count

    def __getitem__(self, index: int) -> tuple[int, ...]:
        width = self._layout.size
        file = self.open()
        data = self.files.read_at(file, width, self._start + index * width)
        if len(data) < width:
            raise CorruptIndex(f"{self.path} ends before entry {index}")
        return self._layout.unpack(data)

    @property
    def allocated_bytes(self) -> int:
        """The length of a file of full capacity."""
        return self._start + self.capacity * self._layout.size

    def append(self, *values: int) -> None:
        """Write one more entry at the end of those in use."""
        self.append_packed(self._layout.pack(*values))

    def append_all(self, entries: Sequence[tuple[int, ...]]) -> None:
        """Append entries in one write."""
        self.append_packed(b"".join(self._layout.pack(*values) for values in entries))

    def append_packed(self, entries: Buffer) -> None:
        """Append entries in their stored form in one write."""
        count, width = self._count, self._layout.size
        if count is None:
            count = len(self)
        self.files.write_at(self.open(), (entries,), self._start + count * width)
        self._count = count + len(entries) // width

    def search(self, column: int, value: int) -> int:
        """Count the entries, from the first on, whose `column` is at or below `value`."""
        low, block = self._block(value) if column == 0 else self._block_by_halving(column, value)
        return low + bisect_right(block[column], value)

    def search_range(self, value: int, later: int) -> tuple[int, int]:
        """Return what `search` of the second column does for two values; the later is not less."""
        low, (_, found) = self._block_by_halving(1, value)
        first = low + bisect_right(found, value)
        if found and found[-1] > later:
            return first, low + bisect_right(found, later)
        return first, self.search(1, later)

    def last_at(self, value: int) -> tuple[int, int] | None:
        """Return the last entry whose first column is at or below `value`, or None."""
        _, (first, second) = self._block(value)
        index = bisect_right(first, value) - 1
        return (first[index], second[index]) if index >= 0 else None

    def first_behind(self, value: int) -> tuple[int, int] | None:
        """Return the next entry above `value`; None if it is in another block."""
        _, (first, second) = self._block(value)
        index = bisect_right(first, value)
        return (first[index], second[index]) if index < len(first) else None

    def _block(self, value: int) -> tuple[int, Columns]:
        """Return the block to search by the first column, and the number of its first entry."""
        content = self._content  # before their number: what is read now is not kept for others
        count = len(self) if self._count is None else self._count
        low = 0
        if count > _BLOCK_ENTRIES:
            starts = content.starts
            if len(starts) * _BLOCK_ENTRIES < count:
                starts = self._starts_of(content, count)
            low = max(0, bisect_right(starts, value) - 1) * _BLOCK_ENTRIES
        return low, self._kept_block(content, low, count)

    def _kept_block(self, content: _Content, low: int, count: int) -> Columns:
        size = min(_BLOCK_ENTRIES, count - low)
        block = self.files.index_blocks.get(content.number, low)
        # Entries were appended, and are never changed.
        if block is None or len(block[0]) != size:
            block = self._read_block(content, low, size)
        return block

    def _read_block(self, content: _Content, low: int, size: int) -> Columns:
        if not size:
            return self._columns(b"")
        self._read_around(low)
        block = self._columns(self.read_between(low, low + size))
        if len(block[0]) == size:
            self.files.index_blocks.keep(content.number, low, block)
        return block

    def _block_by_halving(self, column: int, value: int) -> tuple[int, Columns]:
        content, count = self._content, len(self)
        low, high = 0, max(0, count - 1) // _BLOCK_ENTRIES  # of blocks
        while low < high:
            middle = (low + high + 1) // 2
            if self[middle * _BLOCK_ENTRIES][column] <= value:
                low = middle
            else:
                high = middle - 1
        low *= _BLOCK_ENTRIES
        return low, self._kept_block(content, low, count)

    def _columns(self, data: bytes) -> Columns:
        """Return whole entries as two columns, which C code can search."""
        whole = len(data) - len(data) % self._layout.size
        codes = self._layout.format
        first: array[int] = array(codes[1])
        second: array[int] = array(codes[2])
        if whole:
            rows = self._layout.iter_unpack(data[:whole])
            for column, values in zip((first, second), zip(*rows, strict=True), strict=True):
                column.extend(values)
        return first, second

    def _read_around(self, index: int) -> None:
        """Have the page cache get the stretch of the file that holds an entry.

        Searches by turns would else wait for the disk once for each page of the index.
        """
        position = self._start + index * self._layout.size
        position -= position % _AROUND_BYTES
        self.files.will_need(self.open(), _AROUND_BYTES, position)

    def read_between(self, first: int, last: int) -> bytes:
        """Return the bytes of the entries from number `first` on, before number `last`."""
        width = self._layout.size
        size = max(0, last - first) * width
        return self.files.read_at(self.open(), size, self._start + first * width)

    def _starts_of(self, content: _Content, count: int) -> "array[int]":
        """Return the first column of the first entry of each block."""
        known, found = content.starts, array("q")
        stride = _BLOCK_ENTRIES * self._layout.size
        # One read of many pages instead of one of each page.
        for first in range(len(known) * _BLOCK_ENTRIES, count, _READ_BLOCKS * _BLOCK_ENTRIES):
            last = min(first + _READ_BLOCKS * _BLOCK_ENTRIES, count)
            part = self.read_between(first, last)
            whole = (last - first) * self._layout.size
            if len(part) < whole:
                raise CorruptIndex(f"{self.path} ends before entry {count}")
            found.extend(self._layout.unpack_from(part, at)[0] for at in range(0, whole, stride))
        content.starts = known + found  # a new one: another thread may be searching in the old one
        return content.starts

    def read(self) -> bytes:
        """Return the stored bytes of all entries in use; empty if the file is missing."""
        width = self._layout.size
        try:
            data = self.read_between(0, len(self))
        except FileMissing:
            return b""
        return data[: len(data) // width * width]

    def create(self) -> None:
        """Create an empty file of full capacity."""
        self.files.create(self.path, self.allocated_bytes)
        self._count = 0
        self._content = _Content()

    def keep(self, count: int) -> None:
        """Forget all entries from number `count` on; the file keeps its length."""
        self._count = min(count, len(self))
        self._content = _Content()

    def recount(self) -> None:
        """Ask the file again how many are in use."""
        self._count = None
        self._content = _Content()

    def trim(self) -> None:
        """Cut the file after the last entry in use."""
        end = self._start + len(self) * self._layout.size
        self.files.truncate(self.open(), end)

    def allocate(self) -> None:
        """Make room for more entries, with zeros behind those in use."""
        self.trim()  # what was forgotten must not come back as an entry
        self.capacity = max(self.capacity, len(self))
        self.files.truncate(self.open(), self.allocated_bytes)

    def _used(self) -> int:
        """Entries before the zeros at the end, if any.

        Every entry but the first differs from zero, since both columns grow; the first
        is distinguished from padding by the second, and dropped where that is not possible.
        """
        try:
            file = self.open()
        except FileMissing:
            return 0
        start = self._start
        size = min(self.files.length(file), _MOST_BYTES)
        if self._end is not None and (end := self._end()) is not None:
            size = min(size, end)
        low, high = 0, (size - start) // self._layout.size
        if self._log is not None:  # what is behind is untrue, and may be gigabytes
            log_size = self.files.length(self._log.open())
            high = min(high, log_size // SMALLEST_BATCH + 1)
        if high <= 0:
            return 0
        zero = bytes(self._layout.size)
        width = self._layout.size
        if self.files.read_at(file, width, start + (high - 1) * width) != zero:
            return high
        while low < high:
            middle = (low + high) // 2
            if middle > 0 and self.files.read_at(file, width, start + middle * width) != zero:
                low = middle + 1
            elif middle == 0:
                return 1 if self.files.read_at(file, width, start) != zero else 0
            else:
                high = middle
        return low
