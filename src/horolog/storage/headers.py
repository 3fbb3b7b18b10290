"""Walking the batch headers of a `.log` file without reading the records.

Small batches come many to a read; of large ones little more than the header is
read. The walk is bounded by a size that the caller knows to be whole batches.
"""

from collections.abc import Iterator
from struct import Struct

from horolog.errors import CorruptBatch
from horolog.record.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, parse_header
from horolog.storage.files import Files, OpenFile

_OFFSETS = Struct(">qiib6xi")  # base offset, length, epoch, magic, ..., last offset delta
_MIN_LENGTH = HEADER_SIZE - LOG_OVERHEAD
_SMALL_READ = 4 << 10
_LARGE_READ = 64 << 10


def walk_headers(
    files: Files, file: OpenFile, start: int, end: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch in `[start, end)`.

    Raises:
        CorruptBatch: what is at a position is no batch of format v2, or reaches beyond `end`.
    """
    position = start
    read_size = _SMALL_READ
    chunk, chunk_start = b"", start
    while position < end:
        if position + HEADER_SIZE > chunk_start + len(chunk):
            chunk_start = position
            chunk = files.read_at(file, min(read_size, end - position), position)
            read_size = _SMALL_READ
        try:
            header = parse_header(chunk, position - chunk_start)
        except CorruptBatch as error:
            raise CorruptBatch(f"{file.path}, byte {position}: {error}") from None
        if position + header.size > end or header.last_offset_delta < 0:
            raise CorruptBatch(
                f"{file.path}, byte {position}: the batch at offset {header.base_offset} of "
                f"{header.size} bytes does not fit into the {end} bytes of the log"
            )
        yield position, header
        if header.size < _SMALL_READ:
            read_size = _LARGE_READ
        position += header.size


def find_batch(
    files: Files, file: OpenFile, start: int, end: int, offset: int
) -> tuple[int, BatchHeader] | None:
    """The first batch in `[start, end)` that ends at or after `offset`; None if none does.

    The batches before it are passed by their lengths, since every fetch walks here.

    Raises:
        CorruptBatch: as `walk_headers`.
    """
    chunk = files.read_at(file, min(_SMALL_READ, end - start), start)
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
    for position, header in walk_headers(files, file, start + place, end):
        if header.last_offset >= offset:
            return position, header
    return None
