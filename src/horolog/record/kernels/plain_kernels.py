"""The text of the kernels that walk over plain messages of v0 and v1.

`list_messages` says where each message begins, with its offset and timestamp, from one header to
the next. `place_messages` gives messages their offsets, and an append time if wished.
"""

from horolog.record.kernels import layout
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
from horolog.record.timestamps import NO_TIMESTAMP


@kernel
def list_messages(data: Bytes, state: Int64s, rows: Int64s) -> int:
    """Write a row for each message, up to one that is compressed, of another kind, or damaged."""
    magic = state[layout.LIST_MAGIC]
    append_time = state[layout.LIST_APPEND_TIME] != 0
    with_crcs = state[layout.LIST_WITH_CRCS] != 0
    position, last = state[layout.LIST_POSITION], state[layout.LIST_LAST_OFFSET]
    smallest = 22 if magic else 14
    room = len(rows) // layout.LIST_ROW
    end_of_data = len(data)
    count = 0
    status = layout.DONE
    while position < end_of_data:
        left = end_of_data - position
        if left < layout.MESSAGE_OVERHEAD + smallest:
            status = layout.CUT_OFF
            break
        offset = i64(data, position)
        size = i32(data, position + 8)
        attributes = byte_at(data, position + 17)
        is_append_time = magic != 0 and attributes & layout.IS_STAMPED != 0
        if (
            byte_at(data, position + 16) != magic
            or size < smallest
            or attributes & layout.COMPRESSED != 0
            or offset <= last
            or is_append_time != append_time
        ):
            status = layout.RUN_ENDS
            break
        if size > left - layout.MESSAGE_OVERHEAD:
            status = layout.CUT_OFF
            break
        end = position + layout.MESSAGE_OVERHEAD + size
        if with_crcs:
            crc = i32(data, position + 12) & 0xFFFFFFFF
            if crc32(data, position + layout.MESSAGE_CRC_START, end) != crc:
                status = layout.RUN_ENDS
                break
        if count == room:
            status = layout.FULL
            break
        time = NO_TIMESTAMP
        if magic:
            time = i64(data, position + 18)
        row = count * layout.LIST_ROW
        rows[row] = position
        rows[row + 1] = offset
        rows[row + 2] = time
        position, last = end, offset
        count += 1
    state[layout.LIST_POSITION] = position
    state[layout.LIST_LAST_OFFSET] = last
    state[layout.LIST_COUNT] = count
    return status


@kernel
def place_messages(data: Room, state: Int64s) -> int:
    """Change the messages in place; DONE, or CUT_OFF before bytes that are no whole message."""
    magic, position = state[layout.LIST_MAGIC], state[layout.PLACE_POSITION]
    is_stamped = magic != 0 and state[layout.PLACE_STAMPED] != 0
    offset, time = state[layout.PLACE_OFFSET], state[layout.PLACE_TIME]
    smallest = 22 if magic else 14
    end_of_data = len(data)
    status = layout.DONE
    while position < end_of_data:
        left = end_of_data - position
        size = -1
        if left >= layout.MESSAGE_OVERHEAD + smallest:
            size = i32(data, position + 8)
        if size < smallest or size > left - layout.MESSAGE_OVERHEAD:
            status = layout.CUT_OFF
            break
        end = position + layout.MESSAGE_OVERHEAD + size
        put_i64(data, position, offset)
        if is_stamped:
            data[position + 17] = byte_at(data, position + 17) | layout.IS_STAMPED
            put_i64(data, position + 18, time)
            put_i32(data, position + 12, crc32(data, position + layout.MESSAGE_CRC_START, end))
        offset += 1
        position = end
    state[layout.PLACE_POSITION] = position
    state[layout.PLACE_OFFSET] = offset
    return status
