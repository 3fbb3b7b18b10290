"""Walking the batches of a segment file, and reading no more of it than is wanted.

A batch is judged by its header. The bodies of unwanted ones are not read: of large
batches just the 61 bytes of the header are, while small ones come many to a read.
Stretches of wanted batches are read ahead, the further the longer they last.
"""

import struct
import zlib
from collections.abc import Callable, Iterator

from horolog.errors import CorruptBatch
from horolog.record.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    BatchHeader,
    parse_header,
    verify_crc,
)
from horolog.record.compression import Buffer
from horolog.spark.file_systems import least_read
from horolog.storage.files import Files, OpenFile

MAX_READ = 4 << 20
_SMALL_BATCH = 2 << 10
_SMALL_BATCHES_READ = 64 << 10
_WORTH_NO_COPY = 256 << 10
_OFFSET_AND_LENGTH = struct.Struct(">qi")
_OLD_START = struct.Struct(">8xiIb")  # length, CRC-32 from the magic byte on, magic


class SegmentWalk:
    """A window that moves over one `.log` file of `size` bytes."""

    def __init__(self, files: Files, file: OpenFile, size: int) -> None:
        self.size = size
        self.path = file.path
        self._files = files
        self._file = file
        self._least_read = least_read(files)
        self._window = memoryview(b"")
        self._start = 0
        self._last_size = 0

    def header(self, position: int) -> BatchHeader | None:
        """The header at `position`; None where less than a whole batch is left.

        Raises:
            CorruptBatch: what is there is no batch of format v2.
        """
        if position + HEADER_SIZE > self.size:
            return None
        if not self._holds(position, HEADER_SIZE):
            small = self._last_size and self._last_size < _SMALL_BATCH
            self._load(position, _SMALL_BATCHES_READ if small else HEADER_SIZE)
        try:
            header = parse_header(self._window, position - self._start)
        except CorruptBatch as error:
            raise CorruptBatch(f"{self.path}, byte {position}: {error}") from None
        if header.last_offset_delta < 0:
            raise CorruptBatch(
                f"{self.path}, byte {position}: a batch cannot end before its own base offset "
                f"{header.base_offset}"
            )
        self._last_size = header.size
        return None if position + header.size > self.size else header

    def headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every whole batch from `position` on."""
        while (header := self.header(position)) is not None:
            yield position, header
            position += header.size

    def batch(self, position: int, header: BatchHeader) -> memoryview:
        """The bytes of one whole batch, as long as the walk does not go on."""
        if not self._holds(position, header.size):
            small = header.size < _SMALL_BATCH
            self._load(position, _SMALL_BATCHES_READ if small else header.size)
        begin = position - self._start
        return self._window[begin : begin + header.size]

    def check(self, position: int, header: BatchHeader) -> None:
        """Check a batch against its CRC.

        Raises:
            CorruptBatch: it does not fit.
        """
        try:
            verify_crc(self.batch(position, header), 0, header)
        except CorruptBatch as error:
            raise CorruptBatch(f"{self.path}, byte {position}: {error}") from None

    def is_old_message(self, position: int) -> bool:
        """Whether a whole message of format v0 or v1 lies there, by its CRC-32."""
        start = self._read(position, _OLD_START.size)
        if len(start) < _OLD_START.size:
            return False
        length, crc, magic = _OLD_START.unpack(start)
        if magic not in (0, 1) or not 0 < length <= self.size - position - LOG_OVERHEAD:
            return False
        return bool(zlib.crc32(self._read(position + MAGIC_POSITION, length - 4)) == crc)

    def stretch(
        self,
        position: int,
        ahead: int,
        end_offset: int,
        wants: Callable[[BatchHeader], bool] | None,
    ) -> memoryview:
        """The whole batches from a wanted one at `position` to before the next unwanted one.

        Goes no further than one read of `ahead` bytes, and is valid as `batch` is. Without
        `wants` every batch before `end_offset` is wanted, and hardly looked at here.
        """
        first = self.header(position)
        assert first is not None
        if not self._holds(position, first.size):
            self._load(position, max(ahead, first.size))
        begin = position - self._start
        end = begin + first.size
        window = self._window
        while end + HEADER_SIZE <= len(window):
            base_offset, length = _OFFSET_AND_LENGTH.unpack_from(window, end)
            following = end + length + LOG_OVERHEAD
            if base_offset >= end_offset or not end + HEADER_SIZE <= following <= len(window):
                break
            if wants is not None and not wants(parse_header(window, end)):
                break
            end = following
        return window[begin:end]

    def _holds(self, position: int, size: int) -> bool:
        return self._start <= position and position + size <= self._start + len(self._window)

    def _read(self, position: int, size: int) -> bytes:
        return self._files.read_at(self._file, max(0, min(size, self.size - position)), position)

    def _load(self, position: int, size: int) -> None:
        size = min(max(size, self._least_read), self.size - position)
        self._window = memoryview(self._read(position, size))
        self._start = position
        if len(self._window) < size:
            raise CorruptBatch(f"{self.path} was cut at byte {position + len(self._window)}")


def wanted_batches(
    walk: SegmentWalk,
    position: int,
    end_offset: int,
    wants: Callable[[BatchHeader], bool] | None,
) -> Iterator[Buffer]:
    """Buffers of whole wanted batches of a file, from `position` to before `end_offset`.

    Without `wants` all are wanted, and read ahead from the start. A buffer holds about
    `MAX_READ` bytes however the wanted ones lie, since to decode one costs a little by
    itself; it is valid until the next is asked for.

    Raises:
        CorruptBatch: what is at a position is no batch of format v2, or not a whole one.
    """
    ahead = MAX_READ if wants is None else 0
    gathered = bytearray()
    while (header := walk.header(position)) is not None and header.base_offset < end_offset:
        if wants is not None and not wants(header):
            position += header.size
            ahead = 0
            continue
        stretch = walk.stretch(position, ahead, end_offset, wants)
        position += len(stretch)
        ahead = min(MAX_READ, max(ahead, 2 * len(stretch)))
        if len(stretch) >= _WORTH_NO_COPY and not gathered:
            yield stretch
            continue
        gathered += stretch
        if len(gathered) >= MAX_READ:
            yield gathered
            gathered = bytearray()
    if gathered:
        yield gathered
    if header is None and position < walk.size:
        raise CorruptBatch(f"{walk.path} ends within the batch at byte {position}")
