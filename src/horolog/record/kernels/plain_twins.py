"""The plain-Python twins of the kernels that walk over plain messages of v0 and v1.

`list_messages` says where each message begins, with its offset and timestamp, from one header to
the next. `place_messages` gives messages their offsets, and an append time if wished.
"""

import struct
import zlib
from typing import Any

from horolog.record.kernels import layout
from horolog.record.timestamps import NO_TIMESTAMP

Ints = Any  # integers by position: array, memoryview or numpy array

_ENTRY = struct.Struct(">qiIbb")  # offset, size, CRC-32, magic, attributes
_SIZE = struct.Struct(">i")
_CRC = struct.Struct(">I")
_I64 = struct.Struct(">q")
_SMALLEST = (14, 22)
_ATTRIBUTES = 17
_TIMESTAMP = 18


def list_messages(data: memoryview, state: Ints, rows: Ints) -> int:
    """A row for each plain message, up to one that is compressed, of another kind, or damaged."""
    magic, append_time = state[layout.LIST_MAGIC], bool(state[layout.LIST_APPEND_TIME])
    position, count, last = state[layout.LIST_POSITION], 0, state[layout.LIST_LAST_OFFSET]
    smallest, room = _SMALLEST[magic], len(rows) // layout.LIST_ROW
    status = layout.DONE
    while position < len(data):
        left = len(data) - position
        if left < layout.MESSAGE_OVERHEAD + smallest:
            status = layout.CUT_OFF
            break
        offset, size, crc, own_magic, attributes = _ENTRY.unpack_from(data, position)
        if (
            own_magic != magic
            or size < smallest
            or attributes & layout.COMPRESSED
            or offset <= last
            or bool(magic and attributes & layout.IS_STAMPED) != append_time
        ):
            status = layout.RUN_ENDS
            break
        if size > left - layout.MESSAGE_OVERHEAD:
            status = layout.CUT_OFF
            break
        end = position + layout.MESSAGE_OVERHEAD + size
        if (
            state[layout.LIST_WITH_CRCS]
            and zlib.crc32(data[position + layout.MESSAGE_CRC_START : end]) & 0xFFFFFFFF != crc
        ):
            status = layout.RUN_ENDS
            break
        if count == room:
            status = layout.FULL
            break
        at = count * layout.LIST_ROW
        rows[at], rows[at + 1] = position, offset
        rows[at + 2] = _I64.unpack_from(data, position + _TIMESTAMP)[0] if magic else NO_TIMESTAMP
        position, last, count = end, offset, count + 1
    state[layout.LIST_POSITION] = position
    state[layout.LIST_LAST_OFFSET], state[layout.LIST_COUNT] = last, count
    return status


def place_messages(data: memoryview, state: Ints) -> int:
    """Change the messages in place; DONE, or CUT_OFF before bytes that are no whole message."""
    magic, position = state[layout.LIST_MAGIC], state[layout.PLACE_POSITION]
    status = layout.DONE
    while position < len(data):
        left = len(data) - position
        size = -1
        if left >= layout.MESSAGE_OVERHEAD + _SMALLEST[magic]:
            (size,) = _SIZE.unpack_from(data, position + 8)
        if not _SMALLEST[magic] <= size <= left - layout.MESSAGE_OVERHEAD:
            status = layout.CUT_OFF
            break
        end = position + layout.MESSAGE_OVERHEAD + size
        _I64.pack_into(data, position, state[layout.PLACE_OFFSET])
        if magic and state[layout.PLACE_STAMPED]:
            data[position + _ATTRIBUTES] |= layout.IS_STAMPED
            _I64.pack_into(data, position + _TIMESTAMP, state[layout.PLACE_TIME])
            _CRC.pack_into(
                data, position + 12, zlib.crc32(data[position + layout.MESSAGE_CRC_START : end])
            )
        state[layout.PLACE_OFFSET] += 1
        position = end
    state[layout.PLACE_POSITION] = position
    return status
