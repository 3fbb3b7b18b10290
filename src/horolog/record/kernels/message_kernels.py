"""The text of the kernels between messages of v0 and v1 and records of v2.

`to_records` reads messages and writes records, `to_messages` the way back. Both take data that
may end within an entry and an `out` that may be full, and continue from their state: an array of
64-bit integers. Bytes after a message's value are ignored, and any negative length is null, as in
Kafka.
"""

from typing import Final

from horolog.record.batch import CODEC_BITS, LOG_APPEND_TIME_BIT
from horolog.record.kernels.layout import CUT_OFF, DONE, FULL, MALFORMED
from horolog.record.kernels.machine import (
    Bytes,
    Int64s,
    Room,
    byte_at,
    copy_bytes,
    crc32,
    i32,
    i64,
    int64,
    kernel,
    put_i32,
    put_i64,
)
from horolog.record.kernels.record_kernels import (
    TRUNCATED,
    put_varint,
    read_fields,
    read_varint,
    varint_size,
)
from horolog.record.timestamps import NO_TIMESTAMP

# --- between messages of v0 and v1 and records of v2 -------------------------------------

# State of both directions: how far it has come ...
(
    CHANGE_POSITION,  # bytes of the data that are done with; on error, the message at fault
    CHANGE_FILLED,  # bytes written to out
    CHANGE_NEED,  # bytes of the entry that extends past the data or that out has no room for
    # ... what it must know ...
    CHANGE_MAGIC,  # the format of the messages: 0 or 1
    CHANGE_MODE,  # to records: INNER or PLAIN, and bits; to messages: KEEP_TIMES or 0
    CHANGE_BASE_TIME,  # of the batch of records
    CHANGE_APPEND_TIME,  # whether it is an append time, which every record then has
    CHANGE_FIRST_OFFSET,  # that messages are numbered from; of the first one, if read
    # ... and what it has seen.
    CHANGE_COUNT,
    CHANGE_LAST_OFFSET,
    CHANGE_TIMED,  # how many had a timestamp
    CHANGE_MAX,  # the largest of them
    CHANGE_HEADERS,  # that messages cannot hold
    CHANGE_SKIP_BELOW,  # to messages: records of a smaller offset are left out
    CHANGE_STATE_SIZE,
) = range(15)

INNER: Final = 0  # messages of a compressed one: none is compressed
PLAIN: Final = 1  # a run of plain messages: it ends before one that is different
WITH_CRCS: Final = 2  # added to the mode
RENUMBER: Final = 4  # added to it: offset deltas are 0, 1, 2, ... whatever the offsets say
KEEP_TIMES: Final = 1  # each message has its record's own time, not the append time of all

# What reading messages answers; DONE, CUT_OFF and FULL too, and MALFORMED for records.
(
    SMALL_MESSAGE,
    OTHER_MAGIC,
    WRONG_CRC,
    NESTED,
    BEYOND_MESSAGE,
    FAR_OFFSET,  # too far from the first one for an offset delta
    RUN_ENDS,  # a message that is no part of the run
) = range(4, 11)

MESSAGE_OVERHEAD: Final = 12  # offset and size
LONGEST_RECORD_HEAD: Final = 41  # bytes that a record has besides key and value, at most
MESSAGE_CRC_START: Final = 16

# --- the kernels ---------------------------------------------------------------------------

_ENTRY_BYTES = 18
_MAX_DELTA = (1 << 31) - 1
_MIN_DELTA = -(1 << 31)


def _field(data, position, end):
    """Return size (negative for null) and end of a key or value; -1 as the end if too long."""
    if end - position < 4:
        return -1, -1
    size = i32(data, position)
    if size > end - position - 4:
        return size, -1
    return size, position + 4 + max(size, 0)


def _put_field(data, end, size, out, position):
    """Write a key or value of a message, which ends at `end`, as records have it."""
    position = put_varint(out, position, max(size, -1))
    if size > 0:
        copy_bytes(data, end - size, size, out, position)
        position += size
    return position


@kernel
def to_records(data: Bytes, state: Int64s, out: Room) -> int:
    """Write a record for each whole message; without `out` only check the messages.

    Return DONE at the end of the data, CUT_OFF before a message that extends past it, FULL,
    RUN_ENDS, or the fault of the message at CHANGE_POSITION.
    """
    magic = state[CHANGE_MAGIC]
    mode = state[CHANGE_MODE]
    with_crcs = mode & WITH_CRCS != 0
    renumber = mode & RENUMBER != 0
    append_time = state[CHANGE_APPEND_TIME] != 0
    base_time = state[CHANGE_BASE_TIME]
    first, last = state[CHANGE_FIRST_OFFSET], state[CHANGE_LAST_OFFSET]
    count = state[CHANGE_COUNT]
    timed, largest = state[CHANGE_TIMED], state[CHANGE_MAX]
    smallest = 22 if magic else 14
    end_of_data = len(data)
    position, filled, need = 0, 0, 0
    status = DONE
    while position < end_of_data:
        left = end_of_data - position
        if left < _ENTRY_BYTES:
            status = CUT_OFF
            break
        is_run = mode & PLAIN != 0 and count > 0
        own_magic = byte_at(data, position + 16)
        size = i32(data, position + 8)
        if own_magic != magic:
            status = RUN_ENDS if is_run else OTHER_MAGIC
            break
        if size < smallest:
            status = RUN_ENDS if is_run else SMALL_MESSAGE
            break
        if size > left - MESSAGE_OVERHEAD:
            need = MESSAGE_OVERHEAD + size
            status = CUT_OFF
            break
        attributes = byte_at(data, position + 17)
        if attributes & CODEC_BITS != 0:
            status = RUN_ENDS if is_run else NESTED
            break
        offset = i64(data, position)
        time = NO_TIMESTAMP
        if magic:
            time = i64(data, position + 18)
        if is_run and not renumber:
            is_append_time = magic != 0 and attributes & LOG_APPEND_TIME_BIT != 0
            if (
                offset <= last
                or is_append_time != append_time
                or (is_append_time and time != base_time)
            ):
                status = RUN_ENDS
                break
        end = position + MESSAGE_OVERHEAD + size
        if with_crcs:
            crc = i32(data, position + 12) & 0xFFFFFFFF
            if crc32(data, position + MESSAGE_CRC_START, end) != crc:
                status = RUN_ENDS if is_run else WRONG_CRC
                break
        key_at = position + (26 if magic else 18)
        key_size, key_end = _field(data, key_at, end)
        value_size, value_end = -1, -1
        if key_end >= 0:
            value_size, value_end = _field(data, key_end, end)
        if value_end < 0:
            status = RUN_ENDS if is_run else BEYOND_MESSAGE
            break
        start_offset = first if count > 0 else offset
        delta = int64(offset - start_offset)
        # The difference wraps; where it does, both have other signs than the result.
        wraps = (offset ^ start_offset) < 0 and (offset ^ delta) < 0
        if renumber:
            delta, wraps = count, False
        if wraps or delta > _MAX_DELTA or delta < _MIN_DELTA:
            status = RUN_ENDS if is_run else FAR_OFFSET
            break
        if append_time:
            time = base_time
        elif count == 0:
            base_time = time
        if len(out) > 0:
            room = LONGEST_RECORD_HEAD + max(key_size, 0) + max(value_size, 0)
            if room > len(out) - filled:
                need = room
                status = FULL
                break
            key_size, value_size = max(key_size, -1), max(value_size, -1)
            time_delta = int64(time - base_time)
            body = (
                2
                + varint_size(time_delta)
                + varint_size(delta)
                + varint_size(key_size)
                + max(key_size, 0)
                + varint_size(value_size)
                + max(value_size, 0)
            )
            filled = put_varint(out, filled, body)
            out[filled] = 0
            filled = put_varint(out, filled + 1, time_delta)
            filled = put_varint(out, filled, delta)
            filled = _put_field(data, key_end, key_size, out, filled)
            filled = _put_field(data, value_end, value_size, out, filled)
            out[filled] = 0
            filled += 1
        if time != NO_TIMESTAMP:
            if timed == 0 or time > largest:
                largest = time
            timed += 1
        first, last = start_offset, offset
        count += 1
        position = end
    state[CHANGE_POSITION], state[CHANGE_FILLED] = position, filled
    state[CHANGE_NEED] = need
    state[CHANGE_BASE_TIME] = base_time
    state[CHANGE_FIRST_OFFSET], state[CHANGE_LAST_OFFSET] = first, last
    state[CHANGE_COUNT] = count
    state[CHANGE_TIMED], state[CHANGE_MAX] = timed, largest
    return status


def _put_cell(data, start, size, out, position):
    """Write a key or value as messages have it."""
    put_i32(out, position, size)
    position += 4
    if size > 0:
        copy_bytes(data, start, size, out, position)
        position += size
    return position


@kernel
def to_messages(data: Bytes, state: Int64s, out: Room) -> int:
    """Write a message for each whole record, numbered by its offset delta.

    Return DONE at the end of the data, CUT_OFF before a record that extends past it, FULL or
    MALFORMED.
    """
    magic = state[CHANGE_MAGIC]
    append_time = state[CHANGE_APPEND_TIME] != 0
    base_time = state[CHANGE_BASE_TIME]
    first, last = state[CHANGE_FIRST_OFFSET], state[CHANGE_LAST_OFFSET]
    count, headers_seen = state[CHANGE_COUNT], state[CHANGE_HEADERS]
    timed, largest = state[CHANGE_TIMED], state[CHANGE_MAX]
    skip_below = state[CHANGE_SKIP_BELOW]
    keep_times = state[CHANGE_MODE] == KEEP_TIMES
    overhead = MESSAGE_OVERHEAD + (22 if magic else 14)
    attributes = LOG_APPEND_TIME_BIT if magic != 0 and append_time else 0
    end_of_data = len(data)
    position, filled, need = 0, 0, 0
    status = DONE
    while position < end_of_data:
        size, body = read_varint(data, position, end_of_data, 5)
        if body == TRUNCATED:
            status = CUT_OFF
            break
        if body < 0 or size < 1:
            status = MALFORMED
            break
        if size > end_of_data - body:
            need = body - position + size
            status = CUT_OFF
            break
        end = body + size
        fields = read_fields(data, body, end)
        time, delta, key_size, key_start, value_size, value_start, headers, headers_start = fields
        if headers_start < 0:
            status = MALFORMED
            break
        time = base_time if append_time and not keep_times else int64(base_time + time)
        key_size, value_size = max(key_size, -1), max(value_size, -1)
        offset = int64(first + delta)
        if offset < skip_below:
            position = end
            continue
        total = overhead + max(key_size, 0) + max(value_size, 0)
        if total > len(out) - filled:
            need = total
            status = FULL
            break
        put_i64(out, filled, offset)
        put_i32(out, filled + 8, total - MESSAGE_OVERHEAD)
        out[filled + 16] = magic
        out[filled + 17] = attributes
        at = filled + 18
        if magic:
            put_i64(out, at, time)
            at += 8
        at = _put_cell(data, key_start, key_size, out, at)
        at = _put_cell(data, value_start, value_size, out, at)
        put_i32(out, filled + 12, crc32(out, filled + MESSAGE_CRC_START, at))
        if time != NO_TIMESTAMP:
            if timed == 0 or time > largest:
                largest = time
            timed += 1
        filled = at
        headers_seen += headers
        last = offset
        count += 1
        position = end
    state[CHANGE_POSITION], state[CHANGE_FILLED] = position, filled
    state[CHANGE_NEED] = need
    state[CHANGE_LAST_OFFSET], state[CHANGE_COUNT] = last, count
    state[CHANGE_HEADERS] = headers_seen
    state[CHANGE_TIMED], state[CHANGE_MAX] = timed, largest
    return status
