"""Walk over the records of one batch, in pieces, through its decompression.

A kernel walks. The goal of a search and its results are in a state, an array that
`kernels/layout.py` describes.
"""

from array import array
from collections.abc import Iterable
from typing import Final

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch
from horolog.record.batch import HEADER_SIZE, MAGIC, BatchHeader
from horolog.record.compression import Codec, fleeting_chunks
from horolog.record.kernels.layout import (
    APPEND_TIME,
    BAD_HEADER_COUNT,
    BAD_LENGTH,
    BASE,
    BEYOND_RECORD,
    COUNT,
    DONE,
    ENOUGH,
    FOUND,
    LEFTOVER,
    LONG_VARINT,
    MIN_DELTA,
    NULL_HEADER_KEY,
    POSITION,
    RECORDS_LEFT,
    UNUSED_BYTES,
    WALK_STATE_SIZE,
)
from horolog.record.kernels.loading import SCAN_KERNELS
from horolog.record.old_format.reading import open_message
from horolog.record.timestamps import LOG_APPEND_TIME

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1

MUCH: Final = 4 << 20
"""Bytes of records that are worth loading the kernels: seconds of work in plain Python."""

_WRONG = {
    LONG_VARINT: "a varint is too long",
    BAD_LENGTH: "its length is negative",
    BEYOND_RECORD: "a field runs past the record's end",
    BAD_HEADER_COUNT: "its number of headers is impossible",
    NULL_HEADER_KEY: "a header has no key",
    UNUSED_BYTES: "it is longer than its fields",
}

FRESH_STATE: Final = array("q", bytes(8 * WALK_STATE_SIZE))
"""State of a walk that has not begun. Copy it."""
FRESH_STATE[MIN_DELTA] = INT64_MIN

NOTHING: Final = array("q")
"""Argument in place of times or faults that are not wanted."""

_SHORTEST_RECORD = 7  # a length and six fields of a byte each


def new_state(header: BatchHeader, min_offset: int | None = None) -> "array[int]":
    """Return the state of a walk over a batch; times count from `min_offset` on.

    Raises:
        CorruptBatch: the header has a negative number of records.
    """
    if header.records_count < 0:
        raise CorruptBatch(f"Found invalid record count {header.records_count} in magic v2 batch")
    state = FRESH_STATE[:]
    state[RECORDS_LEFT] = header.records_count
    if header.timestamp_type is LOG_APPEND_TIME:
        state[APPEND_TIME] = 1
        state[BASE] = header.max_timestamp
    else:
        state[BASE] = header.base_timestamp
    if min_offset is not None:
        least = min_offset - header.base_offset
        if not INT64_MIN <= least <= INT64_MAX:
            least = INT64_MIN if least < 0 else INT64_MAX
        state[MIN_DELTA] = least
    return state


def times_for(piece: Buffer, state: "array[int]") -> "array[int]":
    """Return room for the timestamps of all records that may end within a piece."""
    room = min(len(piece) // _SHORTEST_RECORD + 1, state[RECORDS_LEFT])
    return array("q", bytes(8 * room))


def opened_batch(
    batch: Buffer, header: BatchHeader, max_bytes: int
) -> tuple[BatchHeader, Iterable[Buffer] | None]:
    """Return a message of v0 or v1 as a batch of v2 with its records; None as records of v2."""
    if header.magic == MAGIC:
        return header, None
    return open_message(batch, header, max_bytes=max_bytes)


def walk_records(
    batch: Buffer,
    header: BatchHeader,
    state: "array[int]",
    max_bytes: int,
    times: "array[int] | None" = None,
    faults: "array[int]" = NOTHING,
    records: Iterable[Buffer] | None = None,
    *,
    is_counted: bool = True,
) -> int:
    """Walk over the records piece by piece; return the status with which the walk ends."""
    walk = Walk(header, state)
    for piece in records_of(batch, header, max_bytes) if records is None else records:
        status = walk.step(piece, times, faults)
        if status != DONE:
            return status
    walk.finish(is_counted=is_counted)
    return DONE


class Walk:
    """Walk over the records of one batch, which come in pieces."""

    __slots__ = ("_carry", "_passed", "header", "state")

    def __init__(self, header: BatchHeader, state: "array[int]") -> None:
        self.header = header
        self.state = state
        """State: the search, and what was found so far."""
        self._carry = b""
        self._passed = 0

    def step(
        self,
        piece: Buffer,
        times: "array[int] | None" = None,
        faults: "array[int]" = NOTHING,
    ) -> int:
        """Walk through a piece; FOUND or ENOUGH end the walk.

        Raises:
            CorruptBatch: the records break the format.
        """
        state = self.state
        if self._passed >= MUCH:
            SCAN_KERNELS.load()
        if self._carry:
            piece = self._carry + bytes(piece)
        if times is None:
            status: int = SCAN_KERNELS.run.walk(piece, 0, state, NOTHING, faults)
        else:
            count = state[COUNT]
            room = times_for(piece, state)
            status = SCAN_KERNELS.run.walk(piece, 0, state, room, faults)
            times += room[: state[COUNT] - count]
        if status == FOUND:
            return status
        position = state[POSITION]
        if status == DONE:
            self._carry = bytes(piece[position:])
            self._passed += position
        elif status != ENOUGH:
            raise _malformed(self.header, state, status, self._passed + position)
        return status

    def finish(self, *, is_counted: bool = True) -> None:
        """End the walk after the last piece.

        Raises:
            CorruptBatch: they are not all that there must be.
        """
        state, header = self.state, self.header
        if state[RECORDS_LEFT] if is_counted else self._carry:
            raise CorruptBatch(
                "Incorrect declared batch size, premature EOF reached: "
                f"{state[COUNT]} of {header.records_count} records are there",
                _place(header, self._passed + len(self._carry)),
            )


def records_of(
    batch: Buffer, header: BatchHeader, max_bytes: int, *, is_search: bool = False
) -> Iterable[Buffer]:
    """Return the records of a whole batch of v2, decompressed, in pieces."""
    size = header.size
    payload = memoryview(batch)[HEADER_SIZE:size]
    if len(payload) != size - HEADER_SIZE:
        raise CorruptBatch(
            f"The batch at offset {header.base_offset} is {size} bytes long and only "
            f"{len(batch)} are there"
        )
    if header.codec_number and header.records_count:  # else there is nothing to decompress
        return fleeting_chunks(header.codec, payload, max_bytes=max_bytes, is_search=is_search)
    return _pieces(payload)


def _pieces(payload: memoryview) -> Iterable[Buffer]:
    if SCAN_KERNELS.is_loaded or len(payload) <= MUCH:
        return (payload,)
    return (payload[start : start + MUCH] for start in range(0, len(payload), MUCH))


def _malformed(
    header: BatchHeader, state: "array[int]", status: int, position: int
) -> CorruptBatch:
    if status == LEFTOVER:
        what = "Incorrect declared batch size, records still remaining in file"
    else:
        what = f"Record {state[COUNT]} of the batch is malformed: {_WRONG[status]}"
    if header.codec is not Codec.NONE:
        what += f", at byte {position} of the decompressed records"
    return CorruptBatch(what, _place(header, position))


def _place(header: BatchHeader, position: int) -> int | None:
    return HEADER_SIZE + position if header.codec is Codec.NONE else None
