"""Arrays of 64-bit integers that kernels share, by position: the walk's state and block maps.

The state of a kernel that no other uses is declared above its text. numba freezes the numbers into
the code.
"""

from typing import Final

# --- the walk through the records of one batch ------------------------------------------

# The state: where the walk is ...
(
    PHASE,  # which field comes next
    SKIP,  # bytes of the current key or value still to pass
    LEFT,  # bytes of the current record not yet read
    RECORDS_LEFT,
    HEADERS_LEFT,
    POSITION,  # out: bytes of this piece that are done with; on error, the field at fault
    # ... what it must know of the batch ...
    BASE,  # the base timestamp; with APPEND_TIME the timestamp of every record
    APPEND_TIME,
    # ... what it has seen ...
    TIMESTAMP,  # of the current record
    DELTA,
    # (of which the first part, the counts, is what block maps are made of)
    COUNT,
    TIMED,  # how many records had a timestamp, that is another than -1
    MAX,
    MIN,
    FIRST_TIME,  # of the first record that had one, and of the last
    LAST_TIME,
    SETBACKS,  # how many were earlier than the one before
    LATENCIES,  # with MEASURE, how many were how old at NOW: a number for each class
) = range(18)
LATENCY_COUNT: Final = 12
(
    NULL_KEYS,
    SPARSE,  # an offset delta was not the record's position
    NEXT_DELTA,  # the smallest offset delta that may follow
    DISORDER,  # an offset delta was smaller than that
    LONGEST,  # the largest length of a record, as the batch has it
    # ... what it looks for ...
    SEARCH,
    TARGET,
    MIN_DELTA,  # the search, MAX and MIN skip records of a smaller offset delta
    # ... and what it notes as a fault.
    CHECK,  # bits
    NOW,
    EARLIEST,  # the earliest timestamp that is no fault
    AFTER_MAX,  # how far a timestamp may be after NOW
    FAULTS,  # how many were noted
    KEYLESS,  # whether the current record has no key
    MEASURE,
    WALK_STATE_SIZE,
) = range(LATENCIES + LATENCY_COUNT, 45)

COUNTS: Final = COUNT  # where they begin
COUNTS_SIZE: Final = 19

_SECOND, _HOUR, _DAY = 1_000, 3_600_000, 86_400_000
LATENCY_BOUNDS: Final = (
    *(0, 10, 100, _SECOND, 10 * _SECOND, 60 * _SECOND),
    *(600 * _SECOND, _HOUR, _DAY, 7 * _DAY, 30 * _DAY),
)
"""Milliseconds; a latency belongs to the class numbered by how many of these it reaches.

The first class is of records that were stamped later than NOW.
"""

(
    NO_SEARCH,
    AT_OR_AFTER,  # which a record without a timestamp never is
    EQUAL,
) = range(3)

CHECK_KEYS: Final = 1  # that there is a key
CHECK_TIMES: Final = 2  # that a timestamp is within the bounds (KIP-937), or -1

# A fault is three integers: the record's position in the batch, its timestamp, and whether the
# key is what it lacks.
FAULT_SIZE: Final = 3

(
    AT_RECORD,
    AT_ATTRIBUTES,
    AT_TIMESTAMP,
    AT_OFFSET,
    AT_KEY,
    AT_VALUE,
    AT_HEADER_COUNT,
    AT_HEADER_KEY,
    AT_HEADER_VALUE,
) = range(9)

# What a walk answers.
(
    DONE,  # the piece is used up
    FOUND,  # TIMESTAMP and DELTA are those of the record looked for
    LONG_VARINT,
    BAD_LENGTH,
    BEYOND_RECORD,
    BAD_HEADER_COUNT,
    NULL_HEADER_KEY,
    UNUSED_BYTES,
    LEFTOVER,
    ENOUGH,  # there is no room to note another fault
    NEXT_RECORD,  # not an answer: _fields has finished a record
) = range(11)

# What a kernel answers that reads or writes pieces; DONE too.
(
    CUT_OFF,
    FULL,
    MALFORMED,
) = range(1, 4)

# --- block maps: batches that follow one another, as numbers, and entries -------------------

# Of one batch, or of all of a block. What begins with BLOCK_STATS is a `TimeStats`, and ends with
# the counts of a scan.
(
    BLOCK_POSITION,
    BLOCK_BYTES,
    BLOCK_LAST_POSITION,
    BLOCK_BATCHES,  # 0: there is none yet
    BLOCK_BASE_OFFSET,
    BLOCK_NEXT_OFFSET,
    BLOCK_IDENTITY,  # of the last batch
    BLOCK_CONTROL,  # control records
    BLOCK_APPEND_MIN,
    BLOCK_APPEND_MAX,
    BLOCK_FLAGS,
    BLOCK_COUNTS,
) = range(12)
BLOCK_STATS: Final = BLOCK_CONTROL
BLOCK_SIZE: Final = BLOCK_COUNTS + COUNTS_SIZE

NO_LEAST: Final = (1 << 63) - 1  # BLOCK_APPEND_MIN and _MAX where no append time is known
NO_LARGEST: Final = -(1 << 63)

# Flags of batches and of entries; what they mean is in record/time_stats.py. Those of times that
# are known are in entries alone.
HAS_CREATE_TIMES: Final = 1
HAS_APPEND_TIMES: Final = 2
LACKS_APPEND_TIMES: Final = 4
OF_CREATE_TIME: Final = 8
OF_APPEND_TIME: Final = 16
UNREADABLE: Final = 32

ENTRY_SIZE: Final = 152
