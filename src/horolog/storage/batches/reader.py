"""A `.log` file, read batch by batch: the only place that walks one.

The broker, recovery, verification, the tools and Spark all read segments here. A batch is
judged by its header: of a large one little more is read than that, small ones come many to
a read, and stretches of selected ones are read ahead, the further the longer they last. How
far is a `ReadAhead`; what a file system reads at no extra cost is in its `Files`.

Batches are of any format. A message of v0 or v1 is a batch of its own; where a compressed one
begins is known only from the batch before it (see `record/batch.py`).
"""

import re
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
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
    SMALLEST_BATCH,
    BatchHeader,
    parse_header,
)
from horolog.record.kernels.loading import CLEANING_KERNELS
from horolog.record.old_format.plain import PlainMessages, list_messages
from horolog.storage.files import Files, OpenFile
from horolog.storage.names import MAX_OFFSET

MAX_HELD_BYTES: Final = 256 << 20
"""A longer batch is never in memory as a whole."""

_SMALL_BATCH = 4 << 10
PIECE_BYTES = 1 << 20
_READ_AHEAD_BYTES = 4 << 20
_LISTED_BYTES = 64 << 10  # in the window, or it is read anew: what is listed at a time
_WORTH_NO_COPY = 256 << 10
_CRC_START = 21
_MIN_LENGTH = HEADER_SIZE - LOG_OVERHEAD
_OFFSET_AND_LENGTH = Struct(">qi")
_DELTA_AND_COUNT, _DELTA_POSITION = Struct(">i30xi"), 23
_OLD_CRC = zlib.crc32, 16  # and where what it covers begins
# What a batch can have at its magic byte. Before that a message of v0 or v1 has its size, which is
# no zero, and behind it attributes, the timestamp in v1, and the length of its key.
_SIZE = rb".{8}\x00(?!\x00\x00[\x00-\x0d]).{7}"
_KEY = rb"(?:\xff{4}|\x00)"
_MAY_BEGIN = re.compile(
    rb"(?=.{16}\x02|"
    + _SIZE
    + rb"(?:\x00[\x00-\x03]"
    + _KEY
    + rb"|\x01[\x00-\x0b].{8}"
    + _KEY
    + rb"))",
    re.DOTALL,
)
_LOOKED_AT = 30  # bytes
# Base offset, length, magic, last offset delta, largest timestamp.
_PASSED = Struct(">qi4xb6xi8xq")
_MUCH_TO_PASS = 128 << 10  # bytes of windows, before a search counts as long
_ANY_TIME: Final = -(1 << 63)
_FIRST_PIECE, _LARGEST_PIECE = 64 << 10, 256 << 10


class ReadAhead(NamedTuple):
    """Bytes that one read takes, at least."""

    header: int = _SMALL_BATCH
    """For a header, unless the batch before it is small."""
    small_batches: int = 64 << 10
    """Where the batch before is small."""
    batch: int = 0
    """For a batch whose bytes are needed."""


HEADERS: Final = ReadAhead()
"""Headers only, and few batches as a whole."""
FEWEST_BYTES: Final = ReadAhead(header=HEADER_SIZE)
"""Reads nothing but the header of large batches that are not selected."""
EVERYTHING: Final = ReadAhead(_READ_AHEAD_BYTES, _READ_AHEAD_BYTES, _READ_AHEAD_BYTES)
"""Every byte of every batch."""


class TornTail(CorruptBatch):
    """The rest behind the last whole batch is too short to be a batch."""


class BatchReader:
    """A window that moves over the first `size` bytes of a file. Not for several threads."""

    __slots__ = (
        "_batch_read",
        "_file",
        "_files",
        "_header_read",
        "_is_small",
        "_limit",
        "_next",
        "_small_read",
        "_start",
        "_window",
        "in_any_order",
        "least_offset",
        "size",
    )

    def __init__(
        self,
        files: Files,
        file: OpenFile,
        size: int,
        ahead: ReadAhead = HEADERS,
        least_offset: int = 0,
        limit: int | None = None,
    ) -> None:
        """Read a file whose batches have offsets from `least_offset` on and before `limit`."""
        self.size = size
        self.in_any_order = False
        """Whether offsets are left to the caller to judge: in walks they must grow otherwise."""
        self.least_offset = least_offset
        """No batch begins before it."""
        self._limit = limit
        self._next = 0, least_offset  # a position, and the least offset of a batch there
        self._files = files
        self._file = file
        if files.least_read:
            ahead = ReadAhead(*(max(size, files.least_read) for size in ahead))
        self._header_read, self._small_read, self._batch_read = ahead
        self._window: bytes | bytearray = b""
        self._start = 0
        self._is_small = False

    @classmethod
    def of_file(cls, files: Files, path: str, ahead: ReadAhead = HEADERS) -> "BatchReader":
        """Return a reader of a file of batches that is no segment's log.

        Raises:
            FileMissing: it is not there.
        """
        return cls(files, files.get(path), files.size(path), ahead)

    # Headers.

    def headers(
        self, start: int = 0, end: int | None = None, *, before: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every batch in `[start, end)`, or up to the offset `before`.

        Raises:
            CorruptBatch: what is at a position is no batch, or its offsets do not follow: a base
                offset has no checksum.
            TornTail: what is left is shorter than a batch.
        """
        position, end = start, self.size if end is None else end
        while position < end:
            header = self._following(position, end)
            if before is not None and header.base_offset >= before:
                self.check_leap(position, header)
                return
            yield position, header
            position += header.size

    def stretches(
        self, start: int = 0, end: int | None = None, *, check_crcs: bool = False
    ) -> Iterator[tuple[int, BatchHeader, PlainMessages | None]]:
        """Walk as `headers` does; plain messages of v0 and v1 that follow each other come as one.

        Args:
            start: the position of a batch.
            check_crcs: whether a stretch ends before a message whose checksum is wrong; that of
                a batch that comes alone is left to the caller.

        Yields:
            Position and header of a batch, or of the first of several messages and all of them,
            with positions that count from there.

        Raises:
            CorruptBatch, TornTail: as `headers`.
        """
        position, end = start, self.size if end is None else end
        while position < end:
            header = self._following(position, end)
            listed = None
            if header.magic != MAGIC and not header.codec_number:
                listed = self._listed(position, header, end, check_crcs)
            yield position, header, listed
            position += header.size if listed is None else listed.end

    def _listed(
        self, position: int, header: BatchHeader, end: int, check_crcs: bool
    ) -> PlainMessages | None:
        place = position - self._start
        if len(self._window) - place < min(_LISTED_BYTES, end - position):
            self._load(position, PIECE_BYTES)
            place = 0
        data = memoryview(self._window)[place : place + end - position]
        listed = list_messages(data, header, check_crcs=check_crcs)
        if listed is None or len(listed.positions) == 1:
            return None
        self._next = position + listed.end, listed.next_offset
        return listed

    def whole_headers(
        self, start: int = 0, *, before: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Walk up to the last whole batch: a live file ends with a part of one."""
        try:
            yield from self.headers(start, before=before)
        except TornTail:
            return

    def header(self, position: int) -> BatchHeader:
        """Return the header of the batch at a position.

        Raises:
            CorruptBatch, TornTail: as `headers`.
        """
        return self._header(position, self.size)

    def _following(self, position: int, end: int) -> BatchHeader:
        """Return the header of the next batch of a walk, after checking that its offsets follow."""
        following, least_offset = self._next
        if following != position:
            least_offset = self.least_offset
        header = self._header(position, end)
        if not self.in_any_order:
            self._check_order(position, header, least_offset)
        return header

    def _check_order(self, position: int, header: BatchHeader, least_offset: int) -> None:
        if header.base_offset < least_offset:
            raise self.corrupt(
                position,
                f"the batch begins at offset {header.base_offset}, before {least_offset}",
            )
        if self._limit is not None and header.next_offset > self._limit:
            raise self.corrupt(
                position,
                f"the batch ends with offset {header.last_offset}, and the segment's offsets are "
                f"before {self._limit}",
            )

    def check_leap(self, position: int, header: BatchHeader) -> None:
        """Refuse the batch that ends a walk if its base offset is damaged.

        Compaction may have left out what is before it; then what follows it continues behind it.

        Raises:
            CorruptBatch: it does not.
        """
        after, behind = position + header.size, None
        if not self.in_any_order:
            with suppress(CorruptBatch):  # beyond the end
                behind = self._header(after, self.size) if after < self.size else None
        if behind is not None:
            self._check_order(after, behind, header.next_offset)

    def _check_behind(self, position: int, least_offset: int) -> None:
        """Make sure that the last batch of a walk is not one with a wrong base offset.

        It would have the offsets of the next batch, which would be left out. Other damage there is
        not looked at.
        """
        behind = None
        with suppress(CorruptBatch):
            behind = self._header(position, self.size)
        if behind is not None and behind.base_offset < least_offset and not self.in_any_order:
            raise self.corrupt(
                position,
                f"the batch begins at offset {behind.base_offset}, before {least_offset}",
            )

    def _header(self, position: int, end: int) -> BatchHeader:
        place = position - self._start
        if not 0 <= place <= len(self._window) - HEADER_SIZE:
            size = self._small_read if self._is_small else self._header_read
            self._window = self._files.read_buffer(self._file, min(size, end - position), position)
            self._start, place = position, 0
        following, least_offset = self._next
        if following != position:
            least_offset = self.least_offset
        try:
            header = parse_header(self._window, place, least_offset)
        except CorruptBatch as error:
            kind = TornTail if position + HEADER_SIZE > end else CorruptBatch
            raise self.corrupt(position, error.reason, kind) from None
        size = header.batch_length + LOG_OVERHEAD
        last_offset_delta = header.last_offset_delta
        if last_offset_delta < max(0, header.records_count - 1):  # readers skip batches by it
            raise self.corrupt(
                position,
                f"the batch at offset {header.base_offset} cannot end before that of its records: "
                f"its last offset delta is {last_offset_delta}, its count {header.records_count}",
            )
        if position + size > end:
            raise self.corrupt(
                position,
                f"the batch at offset {header.base_offset} of {size} bytes does not fit: only "
                f"{end - position} are there",
                TornTail,
            )
        self._is_small = size < _SMALL_BATCH
        self._next = position + size, header.base_offset + last_offset_delta + 1
        return header

    def find(
        self, start: int, offset: int, timestamp: int = _ANY_TIME, *, within: int | None = None
    ) -> tuple[int, BatchHeader] | None:
        """Return the first batch from `start` on that reaches an offset and a time.

        The batches before it are passed by their lengths, since every fetch and every lookup
        walks here; where they are many, that counts as `Files.may_block`.

        Args:
            start: the position of a batch.
            offset: its last one is there or behind.
            timestamp: its largest one is that or later.
            within: bytes behind `start` in which it must begin; None for any number.

        Raises:
            CorruptBatch, TornTail: as `headers`.
        """
        position, size = start, self.size
        limit = size if within is None else min(size, start + within + 1)
        read = 0
        while position < limit:
            window = self._window
            header = self._header(position, size)
            if (
                header.base_offset + header.last_offset_delta >= offset
                and header.max_timestamp >= timestamp
            ):
                if not self.in_any_order:
                    self._check_order(position, header, self.least_offset)
                return position, header
            if self._window is not window:
                read += len(self._window)
            read += _SMALL_BATCH if header.magic != MAGIC else 0
            if read > _MUCH_TO_PASS:
                self._files.may_block()
            position += header.size
            if position - self._start <= len(self._window) - HEADER_SIZE:
                position = self._pass(position, offset, timestamp)
        return None

    def _pass(self, position: int, offset: int, timestamp: int) -> int:
        """Return the position after the batches of the window that end before an offset or a time.

        Whatever is out of the ordinary is judged when it is read.
        """
        window, unpack_from = self._window, _PASSED.unpack_from
        first = place = position - self._start
        last, end, next_offset = len(window) - HEADER_SIZE, self.size - self._start, 0
        while place <= last:
            base_offset, length, magic, last_offset_delta, largest = unpack_from(window, place)
            following = place + length + LOG_OVERHEAD
            if magic != MAGIC or length < _MIN_LENGTH or last_offset_delta < 0 or following > end:
                break
            if base_offset + last_offset_delta >= offset and largest >= timestamp:
                break
            place, next_offset = following, base_offset + last_offset_delta + 1
            self._is_small = length < _SMALL_BATCH
        if place > first:
            self._next = self._start + place, next_offset
        return self._start + place

    # Whole batches.

    def held_records(self, position: int, header: BatchHeader) -> memoryview:
        """Return the first stored bytes of a batch's records that are in memory."""
        begin = position + HEADER_SIZE - self._start
        if begin < 0:
            return memoryview(b"")
        return memoryview(self._window)[begin : begin + header.size - HEADER_SIZE]

    def more_records(self, position: int, header: BatchHeader, held: int) -> Iterator[memoryview]:
        """Yield the records of a batch after the first `held` bytes, in pieces.

        More than a few pieces count as `may_block`.
        """
        at, stop, ahead = position + HEADER_SIZE + held, position + header.size, _FIRST_PIECE
        while at < stop:
            if ahead > _LARGEST_PIECE:
                self._files.may_block()
            self._load(at, min(ahead, stop - at))
            piece = memoryview(self._window)
            if not piece:
                raise self.corrupt(position, "the file became shorter while it was read")
            yield piece
            at, ahead = at + len(piece), min(4 * ahead, PIECE_BYTES)

    def batch(self, position: int, header: BatchHeader) -> memoryview:
        """Return the bytes of a batch, valid until the next read."""
        size = header.size
        begin = position - self._start
        if not 0 <= begin <= len(self._window) - size:
            ahead = self._small_read if size < _SMALL_BATCH else self._batch_read
            self._load(position, max(ahead, size))
            begin = 0
            if len(self._window) < size:
                raise self.corrupt(position, "the file became shorter while it was read")
        return memoryview(self._window)[begin : begin + size]

    def start_of(self, position: int, size: int) -> bytes:
        """Return the first bytes of a batch."""
        return bytes(self._read(size, position))

    def check(self, position: int, header: BatchHeader) -> None:
        """Compare a batch with its checksum, a piece at a time.

        Raises:
            CorruptBatch: they differ.
        """
        if header.size <= PIECE_BYTES:
            self.batch(position, header)
        crc_of, start = (crc32c.crc32c, _CRC_START) if header.magic == MAGIC else _OLD_CRC
        crc, at, stop = 0, position + start, position + header.size
        while at < stop:
            begin = at - self._start
            if not 0 <= begin < len(self._window):
                self._load(at, max(min(PIECE_BYTES, stop - at), self._batch_read))
                begin = 0
            piece = memoryview(self._window)[begin : begin + stop - at]
            if not piece:
                raise self.corrupt(position, "the file became shorter while it was read")
            crc, at = crc_of(piece, crc), at + len(piece)
        if crc != header.crc:
            raise self.corrupt(
                position,
                f"Record is corrupt (stored crc = {header.crc}, computed crc = {crc})",
            )

    def selected(
        self, position: int, end_offset: int, wants: Callable[[BatchHeader], bool] | None
    ) -> Iterator[Buffer]:
        """Buffers of whole selected batches, from `position` to before `end_offset`.

        Without `wants` all are selected, and read ahead from the start. A buffer holds about
        4 MiB wherever the selected ones are, since to decode one costs a little by itself; it is
        valid until the next is asked for. Ends with the last whole batch.

        Raises:
            CorruptBatch: as `headers`.
        """
        ahead = _READ_AHEAD_BYTES if wants is None else 0
        gathered = bytearray()
        while position < self.size:
            following, least_offset = self._next
            try:
                if following == position and least_offset >= end_offset:
                    self._check_behind(position, least_offset)
                    break
                header = self._following(position, self.size)
                if header.base_offset >= end_offset:
                    self.check_leap(position, header)
                    break
            except CorruptBatch:
                if gathered:
                    yield gathered
                raise
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
        """Return the consecutive selected batches from a position on.

        Goes no further than one read of `ahead` bytes. Without `wants` every batch before
        `end_offset` is selected, and hardly looked at here.
        """
        begin = position - self._start
        if not 0 <= begin <= len(self._window) - first.size:
            self._load(position, max(ahead, first.size, self._files.least_read))
            begin = 0
        window, end = self._window, begin + first.size
        if end > len(window):
            raise self.corrupt(position, "the file became shorter while it was read")
        last, next_offset = begin, first.next_offset
        limit = MAX_OFFSET if self._limit is None else self._limit
        if wants is None and not self.in_any_order:
            least = min(next_offset, MAX_OFFSET)
            state = array("q", (end, last, least, end_offset, min(limit, MAX_OFFSET)))
            CLEANING_KERNELS.run.pass_whole(window, state)
            end, last, next_offset = state[:3]
        while end + SMALLEST_BATCH <= len(window):
            base_offset, length = _OFFSET_AND_LENGTH.unpack_from(window, end)
            is_old = window[end + MAGIC_POSITION] != MAGIC
            following = end + length + LOG_OVERHEAD
            least = end + (SMALLEST_BATCH if is_old else HEADER_SIZE)
            if base_offset >= end_offset or not least <= following <= len(window):
                break
            # A header that is out of the ordinary is judged when it is read.
            if is_old and window[end + MAGIC_POSITION] > MAGIC:
                break
            delta = count = 0
            if not is_old:
                delta, count = _DELTA_AND_COUNT.unpack_from(window, end + _DELTA_POSITION)
            behind = base_offset + delta + 1
            if delta < max(0, count - 1):
                break
            if not ((next_offset <= base_offset and behind <= limit) or self.in_any_order):
                break
            if wants is not None and (is_old or not wants(parse_header(window, end))):
                break
            next_offset = behind
            last, end = end, following
        self._next = position + end - begin, parse_header(window, last).next_offset
        return memoryview(window)[begin:end]

    # What is no batch.

    def is_zeros(self, start: int, end: int | None = None) -> bool:
        """Return True if `[start, end)` is not empty and contains only zeros."""
        position, end = start, self.size if end is None else end
        while position < end:
            position = self._files.data_from(self._file, position)
            if position >= end:
                break
            piece = self._read(min(PIECE_BYTES, end - position), position)
            if not piece or piece.count(0) != len(piece):
                return False
            position += len(piece)
        return start < end

    def find_batch_like(self, start: int, *, old_formats: bool = True) -> int:
        """Return the first position from `start` on at which a batch may begin, or -1.

        A message of v0 or v1 is looked for if `old_formats`; found if it is smaller than 16 MiB.
        """
        position = start
        while position + SMALLEST_BATCH <= self.size:
            place = position - self._start
            if not 0 <= place <= len(self._window) - SMALLEST_BATCH:
                self._load(position, PIECE_BYTES)
                place = 0
            if len(self._window) - place < SMALLEST_BATCH:
                break  # the file became shorter while it was read
            found = self._find_in_window(place, old_formats=old_formats)
            if found >= 0:
                return self._start + found
            position = self._start + max(place, len(self._window) - _LOOKED_AT) + 1
        return -1

    def _find_in_window(self, place: int, *, old_formats: bool) -> int:
        window = self._window
        if not old_formats:
            return max(-1, window.find(MAGIC, place + MAGIC_POSITION) - MAGIC_POSITION)
        if not any(window[place : place + _LOOKED_AT]) and window.count(0, place) == (
            len(window) - place
        ):
            return -1  # a preallocated file, say: the pattern takes its time
        found = _MAY_BEGIN.search(window, place)
        return -1 if found is None else found.start()

    # The file.

    def will_need(self, position: int, size: int) -> None:
        """Ask the system to read a stretch (`Files.will_need`)."""
        if position < self.size:
            self._files.will_need(self._file, min(size, self.size - position), position)

    def _read(self, size: int, position: int) -> bytes | bytearray:
        size = max(0, min(size, self.size - position))
        return self._files.read_buffer(self._file, size, position)

    def _load(self, position: int, size: int) -> None:
        self._window = self._read(size, position)
        self._start = position

    def corrupt(
        self, position: int, reason: str, kind: type[CorruptBatch] = CorruptBatch
    ) -> CorruptBatch:
        """Return the error for damage at a position."""
        return kind(reason, position, path=self._file.path)
