"""How kernels lay out what they are given: arrays of 64-bit integers, by position.

The walk's state, a plan of stretches, gather's state and scatter's state; then the numbers
that each of them answers with. numba freezes all of these into the code.
"""

from typing import Final

# --- the walk through the records of one batch ------------------------------------------

# The state: where the walk is ...
PHASE: Final = 0  # which field comes next
SKIP: Final = 1  # bytes of the current key or value still to pass
LEFT: Final = 2  # bytes of the current record not yet read
RECORDS_LEFT: Final = 3
HEADERS_LEFT: Final = 4
POSITION: Final = 5  # out: bytes of this piece that are done with; on error, the field at fault
# ... what it must know of the batch ...
BASE: Final = 6  # the base timestamp; with APPEND_TIME the timestamp of every record
APPEND_TIME: Final = 7
# ... what it has seen ...
TIMESTAMP: Final = 8  # of the current record
DELTA: Final = 9
# (of which the first part, the counts, is what block maps are made of)
COUNT: Final = 10
TIMED: Final = 11  # how many records had a timestamp, that is another than -1
MAX: Final = 12
MIN: Final = 13
FIRST_TIME: Final = 14  # of the first record that had one, and of the last
LAST_TIME: Final = 15
SETBACKS: Final = 16  # how many were earlier than the one before
LATENCIES: Final = 17  # with MEASURE, how many were how old at NOW: a number for each class
LATENCY_COUNT: Final = 12
NULL_KEYS: Final = 29
SPARSE: Final = 30  # an offset delta was not the record's position
NEXT_DELTA: Final = 31  # the smallest offset delta that may follow
DISORDER: Final = 32  # an offset delta was smaller than that
# ... what it looks for ...
SEARCH: Final = 33
TARGET: Final = 34
MIN_DELTA: Final = 35  # the search, MAX and MIN skip records of a smaller offset delta
# ... and what it notes as a fault.
CHECK: Final = 36  # bits
NOW: Final = 37
BEFORE_MAX: Final = 38  # how far a timestamp may be before NOW, and after it
AFTER_MAX: Final = 39
FAULTS: Final = 40  # how many were noted
KEYLESS: Final = 41  # whether the current record has no key
MEASURE: Final = 42
WALK_STATE_SIZE: Final = 43

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

NO_SEARCH: Final = 0
AT_OR_AFTER: Final = 1  # which a record without a timestamp never is
EQUAL: Final = 2

CHECK_KEYS: Final = 1  # that there is a key
CHECK_TIMES: Final = 2  # that a timestamp is within the bounds (KIP-937), or -1

# A fault is three integers: the record's position in the batch, its timestamp, and whether the
# key is what it lacks.
FAULT_SIZE: Final = 3

AT_RECORD: Final = 0
AT_ATTRIBUTES: Final = 1
AT_TIMESTAMP: Final = 2
AT_OFFSET: Final = 3
AT_KEY: Final = 4
AT_VALUE: Final = 5
AT_HEADER_COUNT: Final = 6
AT_HEADER_KEY: Final = 7
AT_HEADER_VALUE: Final = 8

# What a walk answers.
DONE: Final = 0  # the piece is used up
FOUND: Final = 1  # TIMESTAMP and DELTA are those of the record looked for
LONG_VARINT: Final = 2
BAD_LENGTH: Final = 3
BEYOND_RECORD: Final = 4
BAD_HEADER_COUNT: Final = 5
NULL_HEADER_KEY: Final = 6
UNUSED_BYTES: Final = 7
LEFTOVER: Final = 8
ENOUGH: Final = 9  # there is no room to note another fault
NEXT_RECORD: Final = 10  # not an answer: _fields has finished a record

# --- between records and columns --------------------------------------------------------

# A plan has six numbers for each stretch of records in the data, all of one batch.
STRETCH_START: Final = 0
STRETCH_END: Final = 1
STRETCH_RECORDS_LEFT: Final = 2  # counted down
STRETCH_BASE_OFFSET: Final = 3
STRETCH_BASE: Final = 4  # the base timestamp; with APPEND_TIME the timestamp of every record
STRETCH_APPEND_TIME: Final = 5
STRETCH_SIZE: Final = 6

# --- planning batches: a stretch and facts of each ----------------------------------------

# The state.
PLAN_POSITION: Final = 0  # of the next batch
PLAN_LEFT: Final = 1  # bytes of records to plan, before the last batch
PLAN_LEAST_OFFSET: Final = 2  # of the next batch
PLAN_FIRST_OFFSET: Final = 3  # no batch that reaches beyond these
PLAN_LAST_OFFSET: Final = 4
PLAN_AS_CREATED: Final = 5  # whether batches with an append time are to have their create times
PLAN_COUNT: Final = 6  # out: how many were planned
PLAN_CODEC: Final = 7  # out: the codec of all of them, if there are any
PLAN_STATE_SIZE: Final = 8

# The facts.
FACT_CRC: Final = 0
FACT_PRODUCER_ID: Final = 1
FACT_PRODUCER_EPOCH: Final = 2
FACT_BASE_SEQUENCE: Final = 3
FACTS_SIZE: Final = 4

# gather's state: the rows to read, both ends included ...
FIRST_MS: Final = 0
LAST_MS: Final = 1
FIRST_OFFSET: Final = 2
LAST_OFFSET: Final = 3
COLUMNS: Final = 4  # bits: those of key, value and headers that are filled
# ... how full the columns are ...
ROWS: Final = 5
KEY_BYTES: Final = 6
VALUE_BYTES: Final = 7
HEADERS: Final = 8
HEADER_KEY_BYTES: Final = 9
HEADER_VALUE_BYTES: Final = 10
BYTES_LEFT: Final = 11  # of the room that all columns share
SEEN: Final = 12  # bits
# ... and how far it has come.
GATHER_STRETCH: Final = 13  # the stretch it is in; past the last one when it is through
GATHER_POSITION: Final = 14  # where the next record of that stretch begins
NEED: Final = 15  # size of the record there, when it is not there as a whole or has no room
GATHER_STATE_SIZE: Final = 16

WITH_KEY: Final = 1
WITH_VALUE: Final = 2
WITH_HEADERS: Final = 4

NULL_KEY: Final = 1
NULL_VALUE: Final = 2
NULL_HEADER_VALUE: Final = 4
NOT_ASCII: Final = 8  # in a header's key

# What a gather or scatter answers; DONE too.
CUT_OFF: Final = 1
FULL: Final = 2
MALFORMED: Final = 3

# scatter's state.
ROW: Final = 0  # the next row to write
FIRST_ROW: Final = 1  # of this batch; offset deltas count from it, where none are given
BASE_TIMESTAMP: Final = 2
MAX_TIMESTAMP: Final = 3  # of the rows that have a timestamp, -1 until there is one
SCATTER_TIMED: Final = 4
FILLED: Final = 5  # bytes written to out
RECORD_BYTES: Final = 6  # of the record that had no room
END_ROW: Final = 7  # where to stop
SCATTER_STATE_SIZE: Final = 8

ROW_BYTES: Final = 32  # what a row costs besides its keys and values, or more
HEADER_BYTES: Final = 9

# --- between messages of v0 and v1 and records of v2 -------------------------------------

# State of both directions: how far it has come ...
CHANGE_POSITION: Final = 0  # bytes of the data that are done with; on error, the message at fault
CHANGE_FILLED: Final = 1  # bytes written to out
CHANGE_NEED: Final = 2  # bytes of the entry that extends past the data or that out has no room for
# ... what it must know ...
CHANGE_MAGIC: Final = 3  # the format of the messages: 0 or 1
CHANGE_MODE: Final = 4  # to records: INNER or PLAIN, and bits; to messages: KEEP_TIMES or 0
CHANGE_BASE_TIME: Final = 5  # of the batch of records
CHANGE_APPEND_TIME: Final = 6  # whether it is an append time, which every record then has
CHANGE_FIRST_OFFSET: Final = 7  # that messages are numbered from; of the first one, if read
# ... and what it has seen.
CHANGE_COUNT: Final = 8
CHANGE_LAST_OFFSET: Final = 9
CHANGE_TIMED: Final = 10  # how many had a timestamp
CHANGE_MAX: Final = 11  # the largest of them
CHANGE_HEADERS: Final = 12  # that messages cannot hold
CHANGE_SKIP_BELOW: Final = 13  # to messages: records of a smaller offset are left out
CHANGE_STATE_SIZE: Final = 14

INNER: Final = 0  # messages of a compressed one: none is compressed
PLAIN: Final = 1  # a run of plain messages: it ends before one that is different
WITH_CRCS: Final = 2  # added to the mode
RENUMBER: Final = 4  # added to it: offset deltas are 0, 1, 2, ... whatever the offsets say
KEEP_TIMES: Final = 1  # each message has its record's own time, not the append time of all

# What reading messages answers; DONE, CUT_OFF and FULL too, and MALFORMED for records.
SMALL_MESSAGE: Final = 4
OTHER_MAGIC: Final = 5
WRONG_CRC: Final = 6
NESTED: Final = 7
BEYOND_MESSAGE: Final = 8
FAR_OFFSET: Final = 9  # too far from the first one for an offset delta
RUN_ENDS: Final = 10  # a message that is no part of the run

MESSAGE_OVERHEAD: Final = 12  # offset and size
LONGEST_RECORD_HEAD: Final = 41  # bytes that a record has besides key and value, at most
MESSAGE_CRC_START: Final = 16

# --- plain messages of v0 and v1, where they are -----------------------------------------

# State of listing them ...
LIST_POSITION: Final = 0  # where to continue in the data
LIST_COUNT: Final = 1  # how many were listed
LIST_MAGIC: Final = 2  # the format of all: 0 or 1
LIST_APPEND_TIME: Final = 3  # whether the timestamp of all is an append time
LIST_LAST_OFFSET: Final = 4  # the next offset must be larger
LIST_WITH_CRCS: Final = 5
LIST_STATE_SIZE: Final = 6

# ... which answers with DONE, CUT_OFF, RUN_ENDS, or FULL where all rows are taken. For each message
# a row has its position, its offset and its timestamp (-1 in v0).
LIST_ROW: Final = 3

# State of giving them offsets and an append time; their format is LIST_MAGIC.
PLACE_POSITION: Final = 0
PLACE_OFFSET: Final = 1  # of the next message
PLACE_STAMPED: Final = 3  # whether v1 gets PLACE_TIME as append time, and a new checksum
PLACE_TIME: Final = 4
PLACE_STATE_SIZE: Final = 5

# --- records of several batches as those of one ------------------------------------------

JOIN_RECORDS: Final = 0  # of the batch that is added
JOIN_SHIFT: Final = 1  # its base timestamp less that of the joined batch
JOIN_DELTA: Final = 2  # of the next record in the joined batch
JOIN_FILLED: Final = 3  # bytes written to out
JOIN_STATE_SIZE: Final = 4

FARTHEST_TIME_DELTA: Final = 1 << 61
"""Largest delta of timestamps that are joined: a sum of two does not overflow."""

# --- block maps: batches that follow one another, as numbers, and entries -------------------

# Of one batch, or of all of a block. What begins with BLOCK_STATS is a `TimeStats`, and ends with
# the counts of a scan.
BLOCK_POSITION: Final = 0
BLOCK_BYTES: Final = 1
BLOCK_LAST_POSITION: Final = 2
BLOCK_BATCHES: Final = 3  # 0: there is none yet
BLOCK_BASE_OFFSET: Final = 4
BLOCK_NEXT_OFFSET: Final = 5
BLOCK_IDENTITY: Final = 6  # of the last batch
BLOCK_STATS: Final = 7
BLOCK_CONTROL: Final = 7  # control records
BLOCK_APPEND_MIN: Final = 8
BLOCK_APPEND_MAX: Final = 9
BLOCK_FLAGS: Final = 10
BLOCK_COUNTS: Final = 11
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

# --- cleaning: the keys of records, the latest offset of each, and the records that stay ----

# State of reading keys, of records that come in pieces ...
KEYS_RECORDS: Final = 0  # how many records must still come
KEYS_BASE_OFFSET: Final = 1
KEYS_LAST_DELTA: Final = 2  # no offset delta is larger
KEYS_LEAST: Final = 3  # nor is the next one smaller than this
KEYS_POSITION: Final = 4  # out: bytes of the piece that are done with
KEYS_ROWS: Final = 5  # out: how many records were noted
# ... and the record that continues in the next piece.
KEYS_REST: Final = 6  # bytes of it that must still come
KEYS_KEY_LEFT: Final = 7  # bytes of its key that are not hashed yet; -1 once the record is noted
KEYS_KEY_SIZE: Final = 8  # -1 for null
KEYS_DELTA: Final = 9  # of its offset
KEYS_HASH: Final = 10  # four numbers
KEYS_STATE_SIZE: Final = 14

# State of reading the keys of small batches: of at most this size, or the checksum takes longer
# than what is saved.
SMALL_BYTES: Final = 2048
# Attributes: of batches that are compressed, and of others that are not plain.
COMPRESSED: Final = 0x07
IS_STAMPED: Final = 0x08  # with an append time
IS_TRANSACTIONAL: Final = 0x10
IS_CONTROL: Final = 0x20
HAS_HORIZON: Final = 0x40
NOT_PLAIN: Final = COMPRESSED | IS_TRANSACTIONAL | IS_CONTROL | HAS_HORIZON
SMALL_POSITION: Final = 0  # where the first begins; out: where the next one does
SMALL_RECORDS: Final = 1  # out: of all of them
SMALL_OTHERS: Final = 2  # attributes of batches that are not read; COMPRESSED is among them
SMALL_STATE_SIZE: Final = 3
# What there is of each of them, in rows.
SMALL_START: Final = 0  # its position
SMALL_FIRST: Final = 1  # the number of its first record
SMALL_NEXT: Final = 2  # the offset behind it
SMALL_ATTRIBUTES: Final = 3
SMALL_BASE_TIME: Final = 4
SMALL_PRODUCER: Final = 5
SMALL_KIND: Final = 6
SMALL_ROW: Final = 7

# What a batch is to the transactions of its producer.
OF_NONE: Final = 0
OF_RECORDS: Final = 1
OF_COMMIT: Final = 2  # the marker of one
OF_ABORT: Final = 3
OF_EMPTIED_MARKER: Final = 4
BEGINS_ABORTED: Final = 5  # no batch: an aborted transaction begins here
# What is known of the transaction of a producer: bits, and above them 1 more than the number of the
# aborted one that is open.
IS_SEEN: Final = 1  # a batch of the aborted one has come
IS_COMMITTED: Final = 2  # a batch of another one was
OPEN_SHIFT: Final = 2

HAS_KEY: Final = 1
IS_TOMBSTONE: Final = 2  # it has no value
IS_BARE: Final = 4  # it has no headers, and ends where it says

# State of writing what stays of them.
WRITE_FROM: Final = 0  # the number of the first
WRITE_END: Final = 1  # before this one
WRITE_HORIZON: Final = 2  # the delete horizon that batches with tombstones get
WRITE_FILLED: Final = 3  # out: bytes written
WRITE_STATE_SIZE: Final = 4
# What there is of each batch that was written, in rows.
WRITTEN_START: Final = 0  # its position
WRITTEN_BASE: Final = 1  # its base offset
WRITTEN_NEXT: Final = 2  # the offset behind it
WRITTEN_MAX_TIME: Final = 3  # its largest timestamp
WRITTEN_ROW: Final = 4

# State of passing whole batches of v2 by their lengths.
PASS_POSITION: Final = 0  # of the first; out: behind the last
PASS_LAST: Final = 1  # in and out: the position of the last before that
PASS_NEXT: Final = 2  # in and out: no batch begins before this offset
PASS_END: Final = 3  # none begins there or behind
PASS_LIMIT: Final = 4  # none ends behind this offset
PASS_STATE_SIZE: Final = 5

# A map of keys has three unsigned numbers for each slot: both halves of a hash, and the offset
# plus 1; that is 0 where the slot is free.
SLOT_SIZE: Final = 3

# State of noting offsets in a map.
NOTE_FROM: Final = 0  # records before this offset are passed
NOTE_ROOM: Final = 1  # how many more keys there is room for
NOTE_STATE_SIZE: Final = 2

# State of judging which records stay.
JUDGE_END: Final = 0  # records from there on are not in the map, and stay
JUDGE_TOMBSTONES: Final = 1  # whether tombstones stay; out: how many did
JUDGE_KEYLESS: Final = 2  # whether records without a key stay; out: how many there were
JUDGE_KEPT: Final = 3  # out
JUDGE_STATE_SIZE: Final = 4

# State of writing the records that stay, of records that come in pieces.
RETAIN_BASE: Final = 0  # the base timestamp
RETAIN_TIME_SHIFT: Final = 1  # added to each timestamp delta
RETAIN_OFFSET_SHIFT: Final = 2  # subtracted from each offset delta
RETAIN_FILLED: Final = 3  # out: bytes written
RETAIN_TIMED: Final = 4  # in and out: how many records had a timestamp
RETAIN_MAX: Final = 5  # in and out: the largest of them
RETAIN_POSITION: Final = 6  # out: bytes of the piece that are done with
RETAIN_ROWS: Final = 7  # out: how many records were judged
RETAIN_REST: Final = 8  # bytes of the last record that must still come
RETAIN_STAYS: Final = 9  # whether that one stays
RETAIN_STATE_SIZE: Final = 10
