"""Facts about a batch's records, for validation and block maps.

A batch is walked once, in pieces, through its decompression (`walk`). Neither a decompression bomb
nor a record of a gigabyte is ever in memory. Importing this module imports neither numba nor numpy.

Any malformation is a CorruptBatch with the number of the record and the byte. Header keys are not
checked to be UTF-8: Kafka's readers replace invalid bytes.
"""

from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple

from horolog.buffers import Buffer
from horolog.record.batch import HEADER_SIZE, MAGIC, BatchHeader
from horolog.record.kernels.layout import (
    AFTER_MAX,
    APPEND_TIME,
    BASE,
    CHECK,
    CHECK_KEYS,
    CHECK_TIMES,
    COUNTS,
    COUNTS_SIZE,
    DONE,
    EARLIEST,
    FAULT_SIZE,
    FAULTS,
    LONGEST,
    MEASURE,
    NOW,
    NULL_KEYS,
    RECORDS_LEFT,
)
from horolog.record.kernels.loading import BLOCK_KERNELS, SCAN_KERNELS
from horolog.record.old_format.reading import open_message
from horolog.record.time_stats import Counts
from horolog.record.walk import (
    FRESH_STATE,
    INT64_MAX,
    MUCH,
    NOTHING,
    new_state,
    opened_batch,
    walk_records,
)

_ANY_COUNT = (1 << 31) - 1  # of records in pieces: as many as there are

_FRESH_PLAIN_STATE = FRESH_STATE[:]
_FRESH_PLAIN_STATE[MEASURE] = 1


def load_kernels(work_bytes: int = MUCH) -> None:
    """Load the kernels of scans, searches and block maps, and return when they are ready.

    Args:
        work_bytes: records to go through; where these are few, no kernel is loaded.
    """
    if work_bytes >= MUCH:
        SCAN_KERNELS.load()
        BLOCK_KERNELS.load()


def kernels_ready() -> bool:
    """Return True if these kernels are compiled."""
    return SCAN_KERNELS.is_loaded


class RecordFacts(NamedTuple):
    """Facts about the records of a batch, found in one pass.

    Timestamps are true ones (base plus delta, or the append time). A timestamp of -1 means that a
    record has none; it counts neither as largest nor as smallest. Both are None if no record has a
    timestamp.
    """

    count: int  # type: ignore[assignment]  # Kafka's noun; `tuple.count` is not used on facts
    max_timestamp: int | None
    min_timestamp: int | None
    has_null_key: bool
    dense_offsets: bool
    """True if the offset deltas are 0, 1, 2, ..."""
    growing_offsets: bool
    """True if the offset deltas begin at 0 or above and strictly grow."""
    last_offset_delta: int
    """Offset delta of the last record; -1 without any."""
    longest: int
    """Largest length of a record, as the batch has it; 0 without any, and in `StampedBatch`."""
    counts: Counts
    """Counts for block maps; see `TimeStats`."""


def scan_batch(
    batch: Buffer,
    header: BatchHeader,
    *,
    max_bytes: int,
    min_offset: int | None = None,
    arrival_ms: int | None = None,
    create_times: bool = False,
) -> RecordFacts:
    """Check every record of a whole batch, without its CRC, and sum up facts about them.

    Args:
        max_bytes: limit of the decompressed records.
        min_offset: only records from there on count for the timestamps.
        arrival_ms: arrival of the records, from which latencies count; without it they are zeros.
        create_times: whether to take the producers' times also from a batch that was stamped with
            its append time since.

    Raises:
        CorruptBatch: the records break the format, or are not as many as declared.
        RequestRefused: they decompress to more than `max_bytes`.
    """
    records, shift = None, 0
    if header.magic != MAGIC:
        opened = open_message(batch, header, max_bytes=max_bytes)
        shift = opened.header.base_offset - header.base_offset  # deltas count from the header given
        header, records = opened
    state = new_state(header, min_offset)
    if create_times:
        _take_create_times(state, header)
    if arrival_ms is not None:
        state[MEASURE], state[NOW] = 1, arrival_ms
    walk_records(batch, header, state, max_bytes, records=records)
    return _facts(state, shift)


def _take_create_times(state: "array[int]", header: BatchHeader) -> None:
    state[APPEND_TIME], state[BASE] = 0, header.base_timestamp


def scan_plain(batch: bytes, header: BatchHeader, *, arrival_ms: int) -> RecordFacts | None:
    """Scan a small batch in a fraction of the time of `scan_batch`.

    Args:
        batch: a whole batch of v2 and nothing else; not compressed, with create times.

    Returns:
        None if anything is wrong; `scan_batch` raises the error.
    """
    state = _FRESH_PLAIN_STATE[:]
    state[RECORDS_LEFT] = header.records_count
    state[BASE] = header.base_timestamp
    state[NOW] = arrival_ms
    walked = SCAN_KERNELS.run.walk(batch, HEADER_SIZE, state, NOTHING, NOTHING)
    if walked != DONE or state[RECORDS_LEFT]:
        return None
    return _facts(state, 0)


def scan_records(
    header: BatchHeader, records: Iterable[Buffer], *, arrival_ms: int | None = None
) -> RecordFacts:
    """Check records of v2 in pieces, whose number is not declared, and sum up facts about them.

    Args:
        header: its base timestamp is that of the records.

    Raises:
        CorruptBatch: the records break the format; also from `records`.
    """
    header = header._replace(records_count=_ANY_COUNT, attributes=0)
    state = new_state(header)
    if arrival_ms is not None:
        state[MEASURE], state[NOW] = 1, arrival_ms
    walk_records(b"", header, state, INT64_MAX, records=records, is_counted=False)
    return _facts(state, 0)


def _facts(state: "array[int]", shift: int) -> RecordFacts:
    counts = state[_COUNTS]
    count, timed, largest, smallest = counts[:4]
    null_keys, sparse, next_delta, disorder, longest = state[_SEEN]
    is_timed = timed != 0
    return tuple.__new__(  # `_make` would count the fields once more
        RecordFacts,
        (
            count,
            largest if is_timed else None,
            smallest if is_timed else None,
            null_keys != 0,
            sparse == 0,
            disorder == 0 and shift >= 0,
            next_delta - 1 + shift,
            longest,
            counts,
        ),
    )


_COUNTS: Final = slice(COUNTS, COUNTS + COUNTS_SIZE)
_SEEN: Final = slice(NULL_KEYS, LONGEST + 1)


def timestamps(
    batch: Buffer, header: BatchHeader, *, max_bytes: int, create_times: bool = False
) -> "array[int]":
    """Return the timestamp of every record in order; raises as `scan_batch`."""
    times = array("q")
    header, records = opened_batch(batch, header, max_bytes)
    state = new_state(header)
    if create_times:
        _take_create_times(state, header)
    walk_records(batch, header, state, max_bytes, times, records=records)
    return times


class Fault(NamedTuple):
    """A record that a leader refuses; `position` is its number in the batch."""

    position: int
    timestamp: int
    lacks_key: bool
    """True if the record lacks a key, otherwise its timestamp is out of bounds."""


def find_faults(
    batch: Buffer,
    header: BatchHeader,
    keys: bool,
    times: tuple[int, int, int] | None,
    *,
    limit: int,
    records: Iterable[Buffer] | None = None,
) -> list[Fault]:
    """Return the first `limit` records that lack a key, or whose timestamp is out of bounds.

    The batch was accepted by `scan_batch`, or by `scan_records` if `records` are given.

    Args:
        keys: whether each record must have a key.
        times: the earliest good timestamp, the present time, and how far a timestamp may be after
            that, all in milliseconds; the difference wraps at 64 bits, as Java's. None if any
            timestamp is good.
        limit: most faults to return.
        records: records of the batch, decompressed, cut anywhere.
    """
    is_counted = records is None
    if records is None:
        header, records = opened_batch(batch, header, INT64_MAX)
    else:
        header = header._replace(records_count=_ANY_COUNT, attributes=0)
    state = new_state(header)
    state[CHECK] = (CHECK_KEYS if keys else 0) | (CHECK_TIMES if times is not None else 0)
    if times is not None:
        state[EARLIEST], state[NOW], state[AFTER_MAX] = times
    faults = array("q", bytes(8 * FAULT_SIZE * limit))
    walk_records(
        batch, header, state, INT64_MAX, faults=faults, records=records, is_counted=is_counted
    )
    size = FAULT_SIZE
    return [
        Fault(faults[at], faults[at + 1], faults[at + 2] != 0)
        for at in range(0, state[FAULTS] * size, size)
    ]
