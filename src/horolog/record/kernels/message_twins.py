"""The plain-Python twins of the kernels between messages of v0 and v1 and records of v2.

`to_records` reads messages and writes records, `to_messages` the way back. Both take data that
may end within an entry and an `out` that may be full, and continue from their state: an array of
64-bit integers that twin and kernel share. Bytes after a message's value are ignored, and any
negative length is null, as in Kafka.
"""

import struct
import zlib
from typing import Any

from horolog.record.kernels import layout
from horolog.record.kernels.record_bytes import read_record, record_bytes
from horolog.record.kernels.scan_twins import OddError, read_varint, to_int64
from horolog.record.timestamps import NO_TIMESTAMP

Ints = Any  # integers by position: array, memoryview or numpy array

_ENTRY = struct.Struct(">qiIbb")  # offset, size, CRC-32, magic, attributes
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_SMALLEST = (14, 22)
_KEY_AT = (18, 26)
_MAX_DELTA = (1 << 31) - 1


def to_records(data: memoryview, state: Ints, out: memoryview) -> int:
    """Write a record for each whole message; without `out` only look at them.

    DONE at the end of the data, CUT_OFF where a message extends past it, FULL, RUN_ENDS, or what
    is wrong with the message at CHANGE_POSITION.
    """
    state[layout.CHANGE_POSITION] = state[layout.CHANGE_FILLED] = state[layout.CHANGE_NEED] = 0
    while state[layout.CHANGE_POSITION] < len(data):
        status = _message_to_record(data, state[layout.CHANGE_POSITION], state, out)
        if status != layout.DONE:
            return status
    return layout.DONE


def _message_to_record(data: memoryview, position: int, state: Ints, out: memoryview) -> int:
    magic = state[layout.CHANGE_MAGIC]
    left = len(data) - position
    if left < _ENTRY.size:
        return layout.CUT_OFF
    offset, size, crc, own_magic, attributes = _ENTRY.unpack_from(data, position)
    mode = state[layout.CHANGE_MODE]
    is_run = mode & layout.PLAIN and state[layout.CHANGE_COUNT] > 0
    if own_magic != magic:
        return layout.RUN_ENDS if is_run else layout.OTHER_MAGIC
    if size < _SMALLEST[magic]:
        return layout.RUN_ENDS if is_run else layout.SMALL_MESSAGE
    if size > left - layout.MESSAGE_OVERHEAD:
        state[layout.CHANGE_NEED] = layout.MESSAGE_OVERHEAD + size
        return layout.CUT_OFF
    if attributes & layout.COMPRESSED:
        return layout.RUN_ENDS if is_run else layout.NESTED
    time = _I64.unpack_from(data, position + 18)[0] if magic else NO_TIMESTAMP
    if is_run and not mode & layout.RENUMBER:
        is_append_time = bool(magic and attributes & layout.IS_STAMPED)
        if (
            offset <= state[layout.CHANGE_LAST_OFFSET]
            or is_append_time != bool(state[layout.CHANGE_APPEND_TIME])
            or (is_append_time and time != state[layout.CHANGE_BASE_TIME])
        ):
            return layout.RUN_ENDS
    end = position + layout.MESSAGE_OVERHEAD + size
    checked = data[position + layout.MESSAGE_CRC_START : end]
    if mode & layout.WITH_CRCS and zlib.crc32(checked) != crc:
        return layout.RUN_ENDS if is_run else layout.WRONG_CRC
    key, value_at = _field(data, position + _KEY_AT[magic], end)
    value, after = _field(data, value_at, end) if value_at >= 0 else (None, -1)
    if after < 0:
        return layout.RUN_ENDS if is_run else layout.BEYOND_MESSAGE
    first = state[layout.CHANGE_FIRST_OFFSET] if state[layout.CHANGE_COUNT] else offset
    delta = state[layout.CHANGE_COUNT] if mode & layout.RENUMBER else offset - first
    if not -_MAX_DELTA - 1 <= delta <= _MAX_DELTA:
        return layout.RUN_ENDS if is_run else layout.FAR_OFFSET
    if state[layout.CHANGE_APPEND_TIME]:
        time = state[layout.CHANGE_BASE_TIME]
    elif not state[layout.CHANGE_COUNT]:
        state[layout.CHANGE_BASE_TIME] = time
    if len(out):
        filled = state[layout.CHANGE_FILLED]
        room = layout.LONGEST_RECORD_HEAD + len(key or b"") + len(value or b"")
        if room > len(out) - filled:
            state[layout.CHANGE_NEED] = room
            return layout.FULL
        record = record_bytes(time - state[layout.CHANGE_BASE_TIME], delta, key, value, ())
        out[filled : filled + len(record)] = record
        state[layout.CHANGE_FILLED] = filled + len(record)
    if time != NO_TIMESTAMP:
        if not state[layout.CHANGE_TIMED] or time > state[layout.CHANGE_MAX]:
            state[layout.CHANGE_MAX] = time
        state[layout.CHANGE_TIMED] += 1
    state[layout.CHANGE_FIRST_OFFSET] = first
    state[layout.CHANGE_LAST_OFFSET] = offset
    state[layout.CHANGE_COUNT] += 1
    state[layout.CHANGE_POSITION] = end
    return layout.DONE


def _field(data: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    """A key or value and where it ends; -1 where it extends past the message."""
    if end - position < _I32.size:
        return None, -1
    (size,) = _I32.unpack_from(data, position)
    start = position + _I32.size
    if size < 0:
        return None, start
    if size > end - start:
        return None, -1
    return bytes(data[start : start + size]), start + size


def to_messages(data: memoryview, state: Ints, out: memoryview) -> int:
    """Write a message for each whole record, numbered by its offset delta.

    DONE at the end of the data, CUT_OFF where a record extends past it, FULL, or MALFORMED.
    """
    state[layout.CHANGE_POSITION] = state[layout.CHANGE_FILLED] = state[layout.CHANGE_NEED] = 0
    while state[layout.CHANGE_POSITION] < len(data):
        status = _record_to_message(data, state[layout.CHANGE_POSITION], state, out)
        if status != layout.DONE:
            return status
    return layout.DONE


def _record_to_message(data: memoryview, position: int, state: Ints, out: memoryview) -> int:
    try:
        size, length = read_varint(bytes(data[position : position + 5]), 0, 5)
    except IndexError:
        return layout.CUT_OFF
    except OddError:
        return layout.MALFORMED
    start = position + length
    if size < 1:
        return layout.MALFORMED
    if size > len(data) - start:
        state[layout.CHANGE_NEED] = length + size
        return layout.CUT_OFF
    record = read_record(bytes(data[start : start + size]))
    if record is None:
        return layout.MALFORMED
    time, delta, key, value, headers = record
    base = state[layout.CHANGE_BASE_TIME]
    is_append_time = bool(state[layout.CHANGE_APPEND_TIME])
    has_base_time = is_append_time and state[layout.CHANGE_MODE] != layout.KEEP_TIMES
    time = base if has_base_time else to_int64(base + time)
    magic = state[layout.CHANGE_MAGIC]
    total = layout.MESSAGE_OVERHEAD + _SMALLEST[magic] + len(key or b"") + len(value or b"")
    filled = state[layout.CHANGE_FILLED]
    offset = to_int64(state[layout.CHANGE_FIRST_OFFSET] + delta)
    if offset < state[layout.CHANGE_SKIP_BELOW]:
        state[layout.CHANGE_POSITION] = start + size
        return layout.DONE
    if total > len(out) - filled:
        state[layout.CHANGE_NEED] = total
        return layout.FULL
    out[filled : filled + total] = message_bytes(
        magic, offset, key, value, time, is_append_time=is_append_time
    )
    if time != NO_TIMESTAMP:
        if not state[layout.CHANGE_TIMED] or time > state[layout.CHANGE_MAX]:
            state[layout.CHANGE_MAX] = time
        state[layout.CHANGE_TIMED] += 1
    state[layout.CHANGE_FILLED] = filled + total
    state[layout.CHANGE_HEADERS] += len(headers)
    state[layout.CHANGE_LAST_OFFSET] = offset
    state[layout.CHANGE_COUNT] += 1
    state[layout.CHANGE_POSITION] = start + size
    return layout.DONE


def message_bytes(
    magic: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    timestamp: int = NO_TIMESTAMP,
    *,
    codec: int = 0,
    is_append_time: bool = False,
) -> bytes:
    """One message of format v0 or v1, offset and size first; v0 has neither time nor its type."""
    body = bytearray((magic, codec | (layout.IS_STAMPED if magic and is_append_time else 0)))
    if magic:
        body += _I64.pack(timestamp)
    for field in (key, value):
        body += _I32.pack(-1) if field is None else _I32.pack(len(field)) + field
    crc = zlib.crc32(body)
    return struct.pack(">qiI", offset, len(body) + 4, crc) + body
