"""A `.log` file, read batch by batch: the only place that walks one.

The broker, recovery, verification, the tools and Spark all read segments here. A batch is
judged by its header: of a large one little more is read than that, small ones come many to
a read, and stretches of wanted ones are read ahead, the further the longer they last. How
far is a `ReadAhead`; what a file system reads at no extra cost is in its `Files`.

Only format v2 is read. Whole messages of v0 and v1 are recognised (`OldFormat`), so that they
are not taken for damage: where a header is read is the one place that knows of them.
"""

import zlib
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

import crc32c

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch
from horolog.record.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    parse_header,
)
from horolog.storage.files import Files, OpenFile

MAX_HELD_BYTES: Final = 256 << 20
"""A longer batch is never in memory as a whole."""

_SMALL_BATCH = 4 << 10
_PIECE_BYTES = 1 << 20
_READ_AHEAD_BYTES = 4 << 20
_WORTH_NO_COPY = 256 << 10
_CRC_START = 21
_MIN_LENGTH = HEADER_SIZE - LOG_OVERHEAD
_CRC_SIZE = 4
_OFFSET_AND_LENGTH = Struct(">qi")
_OFFSETS = Struct(">qiib6xi")  # base offset, length, epoch, magic, ..., last offset delta
_MESSAGE = Struct(">qiIb")  # before format v2: offset, size, CRC-32, magic
_LAST_OLD_MAGIC = 1


class ReadAhead(NamedTuple):
    """Bytes that one read takes, at least."""

    header: int = _SMALL_BATCH
    """For a header, unless the batch before it is small."""
    small_batches: int = 64 << 10
    """Where the batch before is small."""
    batch: int = 0
    """For a batch whose bytes are wanted."""


HEADERS: Final = ReadAhead()
"""Headers only, and few batches as a whole."""
FEWEST_BYTES: Final = ReadAhead(header=HEADER_SIZE)
"""Of large batches that are not wanted nothing but the header."""
EVERYTHING: Final = ReadAhead(_READ_AHEAD_BYTES, _READ_AHEAD_BYTES, _READ_AHEAD_BYTES)
"""Every byte of every batch."""


class TornTail(CorruptBatch):
    """What follows the last whole batch is too short to be one."""


class OldFormat(CorruptBatch):
    """A whole message of format v0 or v1, its checksum verified: not damaged, but not read yet."""

    def __init__(self, magic: int, position: int, *, path: str) -> None:
        super().__init__(
            f"messages of format v{magic}, a format before v2, which are not read yet",
            position,
            path=path,
        )
        self.magic = magic


class BatchReader:
    """A window that moves over the first `size` bytes of a file. Not for several threads."""

    __slots__ = (
        "_batch_read",
        "_file",
        "_files",
        "_header_read",
        "_is_small",
        "_small_read",
        "_start",
        "_window",
        "size",
    )

    def __init__(self, files: Files, file: OpenFile, size: int, ahead: ReadAhead = HEADERS) -> None:
        self.size = size
        self._files = files
        self._file = file
        self._header_read = max(ahead.header, files.least_read)
        self._small_read = max(ahead.small_batches, files.least_read)
        self._batch_read = max(ahead.batch, files.least_read)
        self._window = b""
        self._start = 0
        self._is_small = False

    @classmethod
    def of_file(cls, files: Files, path: str, ahead: ReadAhead = HEADERS) -> "BatchReader":
        """All of a file of batches that is no segment's log: set aside, or a snapshot, say.

        Raises:
            FileMissing: it is not there.
        """
        return cls(files, files.get(path), files.size(path), ahead)

    # Headers.

    def headers(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every batch in `[start, end)`.

        Raises:
            CorruptBatch: what is at a position is no batch of format v2.
            OldFormat: it is a message of a format before that.
            TornTail: what is left is shorter than a batch.
        """
        position, end = start, self.size if end is None else end
        while position < end:
            header = self._header(position, end)
            yield position, header
            position += header.size

    def whole_headers(self, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """As `headers`, up to the last whole batch: a live file ends with a part of one."""
        try:
            yield from self.headers(start)
        except TornTail:
            return

    def header(self, position: int) -> BatchHeader:
        """The header at one position.

        Raises:
            CorruptBatch, OldFormat, TornTail: as `headers`.
        """
        return self._header(position, self.size)

    def _header(self, position: int, end: int) -> BatchHeader:
        place = position - self._start
        if not 0 <= place <= len(self._window) - HEADER_SIZE:
            wanted = self._small_read if self._is_small else self._header_read
            self._window = self._files.read_at(self._file, min(wanted, end - position), position)
            self._start, place = position, 0
        try:
            header = parse_header(self._window, place)
        except CorruptBatch as error:
            old_magic = self._magic_of_old_message(position)
            if old_magic is not None:
                raise OldFormat(old_magic, position, path=self._file.path) from None
            kind = TornTail if position + HEADER_SIZE > end else CorruptBatch
            raise self._corrupt(position, error.reason, kind) from None
        size = header.batch_length + LOG_OVERHEAD
        if header.last_offset_delta < 0:
            raise self._corrupt(
                position,
                f"the batch at offset {header.base_offset} cannot end before that: its last offset "
                f"delta is {header.last_offset_delta}",
            )
        if position + size > end:
            raise self._corrupt(
                position,
                f"the batch at offset {header.base_offset} of {size} bytes does not fit: only "
                f"{end - position} are there",
                TornTail,
            )
        self._is_small = size < _SMALL_BATCH
        return header

    # Whole batches.

    def batch(self, position: int, header: BatchHeader) -> memoryview:
        """The bytes of one whole batch, valid until the reader moves on."""
        size = header.size
        begin = position - self._start
        if not 0 <= begin <= len(self._window) - size:
            ahead = self._small_read if size < _SMALL_BATCH else self._batch_read
            self._load(position, max(ahead, size))
            begin = 0
            if len(self._window) < size:
                raise self._corrupt(position, "the file became shorter while it was read")
        return memoryview(self._window)[begin : begin + size]

    def start_of(self, position: int, size: int) -> bytes:
        """The first bytes of a batch, however long it is."""
        return self._read(size, position)

    def check(self, position: int, header: BatchHeader) -> None:
        """Compare a batch with its checksum, a piece at a time.

        Raises:
            CorruptBatch: they differ.
        """
        if header.size <= _PIECE_BYTES:
            self.batch(position, header)
        crc, at, stop = 0, position + _CRC_START, position + header.size
        while at < stop:
            begin = at - self._start
            if not 0 <= begin < len(self._window):
                self._load(at, max(min(_PIECE_BYTES, stop - at), self._batch_read))
                begin = 0
            piece = memoryview(self._window)[begin : begin + stop - at]
            if not piece:
                raise self._corrupt(position, "the file became shorter while it was read")
            crc, at = crc32c.crc32c(piece, crc), at + len(piece)
        if crc != header.crc:
            raise self._corrupt(
                position,
                f"Record is corrupt (stored crc = {header.crc}, computed crc = {crc})",
            )

    def wanted(
        self, position: int, end_offset: int, wants: Callable[[BatchHeader], bool] | None
    ) -> Iterator[Buffer]:
        """Buffers of whole wanted batches, from `position` to before `end_offset`.

        Without `wants` all are wanted, and read ahead from the start. A buffer holds about
        4 MiB wherever the wanted ones are, since to decode one costs a little by itself; it is
        valid until the next is asked for. Ends with the last whole batch.

        Raises:
            CorruptBatch: what is at a position is no batch of format v2.
        """
        ahead = _READ_AHEAD_BYTES if wants is None else 0
        gathered = bytearray()
        while position < self.size:
            try:
                header = self._header(position, self.size)
            except CorruptBatch:
                if gathered:
                    yield gathered
                raise
            if header.base_offset >= end_offset:
                break
            if wants is not None and not wants(header):
                position += header.size
                ahead = 0
                continue
            stretch = self._stretch(position, header, ahead, end_offset, wants)
            position += len(stretch)
            ahead = min(_READ_AHEAD_BYTES, max(ahead, 2 * len(stretch)))
            if len(stretch) >= _WORTH_NO_COPY and not gathered:
                yield stretch
                continue
            gathered += stretch
            if len(gathered) >= _READ_AHEAD_BYTES:
                yield gathered
                gathered = bytearray()
        if gathered:
            yield gathered

    def _stretch(
        self,
        position: int,
        first: BatchHeader,
        ahead: int,
        end_offset: int,
        wants: Callable[[BatchHeader], bool] | None,
    ) -> memoryview:
        """The whole batches from a wanted one at `position` to before the next unwanted one.

        Goes no further than one read of `ahead` bytes. Without `wants` every batch before
        `end_offset` is wanted, and hardly looked at here.
        """
        begin = position - self._start
        if not 0 <= begin <= len(self._window) - first.size:
            self._load(position, max(ahead, first.size, self._files.least_read))
            begin = 0
        window, end = self._window, begin + first.size
        if end > len(window):
            raise self._corrupt(position, "the file became shorter while it was read")
        while end + HEADER_SIZE <= len(window):
            base_offset, length = _OFFSET_AND_LENGTH.unpack_from(window, end)
            following = end + length + LOG_OVERHEAD
            if base_offset >= end_offset or not end + HEADER_SIZE <= following <= len(window):
                break
            if wants is not None:
                if window[end + MAGIC_POSITION] != MAGIC:
                    break  # to be judged when it is met
                if not wants(parse_header(window, end)):
                    break
            end = following
        return memoryview(window)[begin:end]

    # What is no batch of format v2.

    def _magic_of_old_message(self, position: int) -> int | None:
        """The format of the message before format v2 at a position, if a whole one is there."""
        start = self._read(_MESSAGE.size, position)
        if len(start) < _MESSAGE.size:
            return None
        _, size, crc, magic = _MESSAGE.unpack(start)
        if not 0 <= magic <= _LAST_OLD_MAGIC or size < _MESSAGE.size - LOG_OVERHEAD:
            return None
        stop = position + LOG_OVERHEAD + size
        if stop > self.size:
            return None
        computed, at = 0, position + LOG_OVERHEAD + _CRC_SIZE
        while at < stop:
            piece = self._read(min(_PIECE_BYTES, stop - at), at)
            if not piece:
                return None
            computed, at = zlib.crc32(piece, computed), at + len(piece)
        return int(magic) if computed == crc else None

    def is_zeros(self, start: int, end: int | None = None) -> bool:
        """Whether nothing but zeros lies in `[start, end)`, which is not empty."""
        position, end = start, self.size if end is None else end
        while position < end:
            piece = self._read(min(_PIECE_BYTES, end - position), position)
            if not piece or piece.count(0) != len(piece):
                return False
            position += len(piece)
        return start < end

    def find_magic(self, start: int) -> int:
        """The first position from `start` on at which a batch of format v2 may begin, or -1."""
        position = start
        while position + HEADER_SIZE <= self.size:
            place = position - self._start
            if not 0 <= place <= len(self._window) - HEADER_SIZE:
                self._load(position, _PIECE_BYTES)
                place = 0
            room = len(self._window) - HEADER_SIZE
            if place > room:
                break  # the file became shorter while it was read
            found = self._window.find(MAGIC, place + MAGIC_POSITION, room + MAGIC_POSITION + 1)
            if found >= 0:
                return self._start + found - MAGIC_POSITION
            position = self._start + room + 1
        return -1

    # The file.

    def _read(self, size: int, position: int) -> bytes:
        return self._files.read_at(self._file, max(0, min(size, self.size - position)), position)

    def _load(self, position: int, size: int) -> None:
        self._window = self._read(size, position)
        self._start = position

    def _corrupt(
        self, position: int, reason: str, kind: type[CorruptBatch] = CorruptBatch
    ) -> CorruptBatch:
        return kind(reason, position, path=self._file.path)


def find_batch(
    files: Files, file: OpenFile, offset: int, start: int, end: int, within: int | None = None
) -> tuple[int, BatchHeader] | None:
    """The first batch in `[start, end)` that ends at or after `offset`; None if none does.

    With `within` only batches that begin at most so many bytes behind `start` count.

    The batches before it are passed by their lengths, since every fetch walks here.

    Raises:
        CorruptBatch: as `BatchReader.headers`.
    """
    chunk = files.read_at(file, min(_SMALL_BATCH, end - start), start)
    place, unpack_from = 0, _OFFSETS.unpack_from
    while place + HEADER_SIZE <= len(chunk):
        base_offset, length, _, magic, last_offset_delta = unpack_from(chunk, place)
        following = place + length + LOG_OVERHEAD
        is_odd = (
            magic != MAGIC
            or length < _MIN_LENGTH
            or last_offset_delta < 0
            or following > end - start
        )
        if is_odd:
            break  # to be judged by the walk
        if base_offset + last_offset_delta >= offset:
            return start + place, parse_header(chunk, place)
        place = following
    for position, header in BatchReader(files, file, end).headers(start + place):
        if within is not None and position - start > within:
            return None
        if header.last_offset >= offset:
            return position, header
    return None
