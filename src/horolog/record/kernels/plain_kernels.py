"""The text of the kernels that walk over plain messages of v0 and v1.

`list_messages` finds where each message begins, with its offset and timestamp, from one header to
the next. `place_messages` gives messages their offsets, and optionally an append time.
"""

from typing import Final

from horolog.record.batch import CODEC_BITS, LOG_APPEND_TIME_BIT
from horolog.record.kernels.layout import CUT_OFF, DONE, FULL
from horolog.record.kernels.machine import (
    Bytes,
    Int64s,
    Room,
    byte_at,
    crc32,
    i32,
    i64,
    kernel,
    put_i32,
    put_i64,
)
from horolog.record.kernels.message_kernels import MESSAGE_CRC_START, MESSAGE_OVERHEAD, RUN_ENDS
from horolog.record.timestamps import NO_TIMESTAMP

# --- plain messages of v0 and v1, where they are -----------------------------------------

# State of listing them ...
(
    LIST_POSITION,  # where to continue in the data
    LIST_COUNT,  # how many were listed
    LIST_MAGIC,  # the format of all: 0 or 1
    LIST_APPEND_TIME,  # whether the timestamp of all is an append time
    LIST_LAST_OFFSET,  # the next offset must be larger
    LIST_WITH_CRCS,
    LIST_STATE_SIZE,
) = range(7)

# ... which answers with DONE, CUT_OFF, RUN_ENDS, or FULL where all rows are taken. For each message
# a row has its position, its offset and its timestamp (-1 in v0).
LIST_ROW: Final = 3

# State of giving them offsets and an append time.
(
    PLACE_POSITION,
    PLACE_OFFSET,  # of the next message
    PLACE_MAGIC,  # the format of all: 0 or 1
    PLACE_STAMPED,  # whether v1 gets PLACE_TIME as append time, and a new checksum
    PLACE_TIME,
    PLACE_STATE_SIZE,
) = range(6)

# --- the kernels ---------------------------------------------------------------------------


@kernel
def list_messages(data: Bytes, state: Int64s, rows: Int64s) -> int:
    """Write a row for each message, up to one that is compressed, of another kind, or damaged."""
    magic = state[LIST_MAGIC]
    append_time = state[LIST_APPEND_TIME] != 0
    with_crcs = state[LIST_WITH_CRCS] != 0
    position, last = state[LIST_POSITION], state[LIST_LAST_OFFSET]
    smallest = 22 if magic else 14
    room = len(rows) // LIST_ROW
    end_of_data = len(data)
    count = 0
    status = DONE
    while position < end_of_data:
        left = end_of_data - position
        if left < MESSAGE_OVERHEAD + smallest:
            status = CUT_OFF
            break
        offset = i64(data, position)
        size = i32(data, position + 8)
        attributes = byte_at(data, position + 17)
        is_append_time = magic != 0 and attributes & LOG_APPEND_TIME_BIT != 0
        if (
            byte_at(data, position + 16) != magic
            or size < smallest
            or attributes & CODEC_BITS != 0
            or offset <= last
            or is_append_time != append_time
        ):
            status = RUN_ENDS
            break
        if size > left - MESSAGE_OVERHEAD:
            status = CUT_OFF
            break
        end = position + MESSAGE_OVERHEAD + size
        if with_crcs:
            crc = i32(data, position + 12) & 0xFFFFFFFF
            if crc32(data, position + MESSAGE_CRC_START, end) != crc:
                status = RUN_ENDS
                break
        if count == room:
            status = FULL
            break
        time = NO_TIMESTAMP
        if magic:
            time = i64(data, position + 18)
        row = count * LIST_ROW
        rows[row] = position
        rows[row + 1] = offset
        rows[row + 2] = time
        position, last = end, offset
        count += 1
    state[LIST_POSITION] = position
    state[LIST_LAST_OFFSET] = last
    state[LIST_COUNT] = count
    return status


@kernel
def place_messages(data: Room, state: Int64s) -> int:
    """Number and stamp messages in place; CUT_OFF before bytes that are no whole message."""
    magic, position = state[PLACE_MAGIC], state[PLACE_POSITION]
    is_stamped = magic != 0 and state[PLACE_STAMPED] != 0
    offset, time = state[PLACE_OFFSET], state[PLACE_TIME]
    smallest = 22 if magic else 14
    end_of_data = len(data)
    status = DONE
    while position < end_of_data:
        left = end_of_data - position
        size = -1
        if left >= MESSAGE_OVERHEAD + smallest:
            size = i32(data, position + 8)
        if size < smallest or size > left - MESSAGE_OVERHEAD:
            status = CUT_OFF
            break
        end = position + MESSAGE_OVERHEAD + size
        put_i64(data, position, offset)
        if is_stamped:
            data[position + 17] = byte_at(data, position + 17) | LOG_APPEND_TIME_BIT
            put_i64(data, position + 18, time)
            put_i32(data, position + 12, crc32(data, position + MESSAGE_CRC_START, end))
        offset += 1
        position = end
    state[PLACE_POSITION] = position
    state[PLACE_OFFSET] = offset
    return status
