"""The text of the kernel that adds a batch's records to a joined batch."""

from typing import Final

from horolog.record.kernels.layout import DONE, FULL, MALFORMED
from horolog.record.kernels.machine import Bytes, Int64s, Room, byte_at, copy_bytes, kernel
from horolog.record.kernels.record_kernels import put_varint, read_varint, varint_size

# --- records of several batches as those of one ------------------------------------------

(
    JOIN_RECORDS,  # of the batch that is added
    JOIN_SHIFT,  # its base timestamp less that of the joined batch
    JOIN_DELTA,  # of the next record in the joined batch
    JOIN_FILLED,  # bytes written to out
    JOIN_STATE_SIZE,
) = range(5)

FARTHEST_TIME_DELTA: Final = 1 << 61
"""Largest delta of timestamps that are joined: a sum of two does not overflow."""

# --- the kernels ---------------------------------------------------------------------------


@kernel
def join(data: Bytes, state: Int64s, out: Room) -> int:
    """Append the records of a batch to those in `out`, with their deltas in the joined batch.

    Length, time and offset of a record are written anew; the rest of it is copied unread.

    Return DONE, FULL without room in `out`, or MALFORMED if the batch is better passed on
    unchanged: it does not have the declared number of records with the offset deltas 0, 1, 2, ...,
    or a time is too far from the base. The state counts the batch only with DONE; bytes of `out`
    behind that do not count.
    """
    records, shift = state[JOIN_RECORDS], state[JOIN_SHIFT]
    delta, filled = state[JOIN_DELTA], state[JOIN_FILLED]
    position, end, room = 0, len(data), len(out)
    for expected in range(records):
        size, body = read_varint(data, position, end, 5)
        if body < 0 or size < 0 or size > end - body:
            return MALFORMED
        body_end = body + size
        time, cursor = read_varint(data, body + 1, body_end, 10)
        if cursor < 0 or time > FARTHEST_TIME_DELTA or time < -FARTHEST_TIME_DELTA:
            return MALFORMED
        own_delta, cursor = read_varint(data, cursor, body_end, 5)
        if cursor < 0 or own_delta != expected:
            return MALFORMED
        time += shift
        rest = body_end - cursor
        size = 1 + varint_size(time) + varint_size(delta) + rest
        if varint_size(size) + size > room - filled:
            return FULL
        filled = put_varint(out, filled, size)
        out[filled] = byte_at(data, body)
        filled = put_varint(out, filled + 1, time)
        filled = put_varint(out, filled, delta)
        copy_bytes(data, cursor, rest, out, filled)
        filled += rest
        delta += 1
        position = body_end
    if position != end:
        return MALFORMED
    state[JOIN_DELTA], state[JOIN_FILLED] = delta, filled
    return DONE
