"""What a segment's index files and seal tell, as far as the log itself bears them out.

A seal (storage/index/seal.py) has a checksum and the log's size: what it says is so. Kafka's
own index files have neither. An entry of theirs is used only after the batch that it
points to has been found to be what the entry says, and the largest time only after the
headers behind that batch, too, were seen to be no later. Where anything differs, the
answer is "not known", and the log is read instead.
"""

from collections import deque
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from horolog.errors import CorruptBatch, CorruptIndex
from horolog.record.batch import BatchHeader
from horolog.storage import names
from horolog.storage.batch_reader import FEWEST_BYTES, BatchReader
from horolog.storage.files import FileMissing, Files
from horolog.storage.index.offset import OffsetIndex
from horolog.storage.index.seal import Seal, read_seal, tail_crc
from horolog.storage.index.time import TimeIndex

_ANY_SIZE = 1 << 31  # of an index that is only read
_UNFLUSHED = 16 << 20  # before the end of a log, where a crash may have left holes
_BATCHES_OF_AN_APPEND = 1_000
_MOST_HEADERS = 50_000  # walked to bear an index out, before a scan by a task is the better way


class Segment(NamedTuple):
    """One `.log` file as it was listed; sizes in bytes."""

    path: str
    base_offset: int
    size: int

    @property
    def stem(self) -> str:
        """The path without its suffix."""
        return self.path.removesuffix(names.LOG)


class Tail(NamedTuple):
    """Where the whole batches of a segment end: the size of them, and the offset that follows."""

    size: int
    next_offset: int


def open_walk(files: Files, segment: Segment) -> BatchReader:
    """A walk over the bytes that the segment had when it was listed.

    A segment that Kafka deletes keeps its bytes for a minute under another name.

    Raises:
        FileMissing: it is gone.
    """
    try:
        file = files.get(segment.path)
    except FileMissing:
        file = files.get(segment.path + names.DELETED)
    return BatchReader(files, file, segment.size, FEWEST_BYTES)


def seal_of(files: Files, segment: Segment) -> Seal | None:
    """The seal, unless the log has changed since."""
    seal = read_seal(files, segment.stem + names.SEAL)
    if seal is None or seal.log_size != segment.size:
        return None
    try:
        log = files.get(segment.path)
    except FileMissing:
        return None
    return seal if seal.log_tail_crc == tail_crc(files, log, segment.size) else None


def first_position(
    files: Files, segment: Segment, walk: BatchReader, *, start: int, from_ms: int | None
) -> int:
    """Where to begin reading for offsets from `start` and times from `from_ms` on.

    No earlier batch has a record of both; where the indexes cannot be borne out this is
    the start of the file.
    """
    by_offset = _position_before(files, segment, walk, start)
    if from_ms is None:
        return by_offset
    index = TimeIndex(files, segment.stem + names.TIME_INDEX, segment.base_offset, _ANY_SIZE)
    try:
        entry = index.lookup(from_ms - 1)
    except CorruptIndex:
        return by_offset
    if entry.offset < start:
        return by_offset
    found = _borne_out(files, segment, walk, entry.timestamp, entry.offset)
    return by_offset if found is None else found[0] + found[1].size


def largest_ms(files: Files, segment: Segment) -> int | None:
    """The largest time of any record, -1 counting as none; None if it is not known.

    The smallest int64 stands for a segment in which no record has a time.
    """
    seal = seal_of(files, segment)
    if seal is not None:
        return -(1 << 63) if seal.largest is None else seal.largest.timestamp
    index = TimeIndex(files, segment.stem + names.TIME_INDEX, segment.base_offset, _ANY_SIZE)
    try:
        entry = index.last
        walk = open_walk(files, segment)
        found = _borne_out(files, segment, walk, entry.timestamp, entry.offset)
        if found is None:
            return None
        position, header = found
        end = position + header.size
        for steps, (at, later) in enumerate(walk.whole_headers(end)):
            if steps > _MOST_HEADERS or later.max_timestamp > entry.timestamp:
                return None
            end = at + later.size
    except (CorruptBatch, CorruptIndex, FileMissing):
        return None
    return entry.timestamp if end == segment.size else None


def _borne_out(
    files: Files, segment: Segment, walk: BatchReader, timestamp: int, offset: int
) -> tuple[int, BatchHeader] | None:
    """The batch that a time entry points to, if it is what the entry says."""
    if timestamp < 0 or offset < segment.base_offset:
        return None  # no entry; or one that Kafka would not write
    try:
        headers = walk.whole_headers(_position_before(files, segment, walk, offset))
        for steps, (position, header) in enumerate(headers):
            if header.last_offset >= offset:
                same = header.last_offset == offset and header.max_timestamp == timestamp
                return (position, header) if same else None
            if steps > _MOST_HEADERS:
                return None
    except CorruptBatch:
        return None
    return None


def tail_of(files: Files, segment: Segment) -> Tail:
    """Where the whole batches of a partition's last segment end.

    Behind that lies what a live or a killed broker has not finished: a part of a batch,
    zeros, or a batch whose CRC does not fit. Recovery would cut it off.

    Raises:
        FileMissing: the segment is gone.
        CorruptBatch: there are messages of a format before v2, which are not read yet.
    """
    seal = seal_of(files, segment)
    if seal is not None:
        return Tail(segment.size, seal.next_offset)
    walk = open_walk(files, segment)
    start = _position_before(files, segment, walk, segment.base_offset + _ANY_SIZE)
    tail = Tail(start, segment.base_offset)
    unchecked: deque[tuple[int, BatchHeader]] = deque()
    with suppress(CorruptBatch):
        for position, header in walk.whole_headers(start):
            if header.base_offset < tail.next_offset:
                break
            tail = Tail(position + header.size, header.next_offset)
            unchecked.append((position, header))
            while tail.size - unchecked[0][0] > _UNFLUSHED:
                unchecked.popleft()
    if walk.old_message(tail.size) is not None:
        raise CorruptBatch(
            f"{segment.path}, byte {tail.size}: a message of a format before v2, which are not "
            "read yet"
        )
    for position, header in unchecked:
        try:
            walk.check(position, header)
        except CorruptBatch:
            return Tail(position, header.base_offset)
    return tail


def _position_before(files: Files, segment: Segment, walk: BatchReader, offset: int) -> int:
    """The start of a batch that lies at or before the one that holds `offset`.

    By the offset index where it can be borne out, else the start of the file.
    """
    if offset <= segment.base_offset:
        return 0
    index = OffsetIndex(files, segment.stem + names.OFFSET_INDEX, segment.base_offset, _ANY_SIZE)
    try:
        entry = index.lookup(offset)
        if not 0 < entry.position < segment.size:
            return 0
        # Kafka until 3.9 indexes an append, whose last batch only has the entry's offset.
        for _, header in islice(walk.whole_headers(entry.position), _BATCHES_OF_AN_APPEND):
            if not segment.base_offset <= header.base_offset <= entry.offset:
                return 0
            if header.last_offset == entry.offset:
                return entry.position
    except (CorruptBatch, CorruptIndex):
        return 0
    return 0
