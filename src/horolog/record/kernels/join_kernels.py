"""The text of the kernel that adds a batch's records to a joined batch."""

from horolog.record.kernels import layout
from horolog.record.kernels.machine import Bytes, Int64s, Room, byte_at, copy_bytes, kernel
from horolog.record.kernels.record_kernels import put_varint, read_varint, varint_size


@kernel
def join(data: Bytes, state: Int64s, out: Room) -> int:
    """Write the records of a batch behind those in `out`, with the deltas that they have there.

    Length, time and offset of a record are written anew; the rest of it is copied, not looked at.
    DONE, FULL where `out` has no room, or MALFORMED where the batch is better passed on as it is:
    it does not contain that many records with the offset deltas 0, 1, 2, ..., or a time is too far
    from the base. Only with DONE the state counts the batch; `out` has no bytes that count beyond.
    """
    records, shift = state[layout.JOIN_RECORDS], state[layout.JOIN_SHIFT]
    delta, filled = state[layout.JOIN_DELTA], state[layout.JOIN_FILLED]
    position, end, room = 0, len(data), len(out)
    for expected in range(records):
        size, body = read_varint(data, position, end, 5)
        if body < 0 or size < 0 or size > end - body:
            return layout.MALFORMED
        body_end = body + size
        time, cursor = read_varint(data, body + 1, body_end, 10)
        if cursor < 0 or time > layout.FARTHEST_TIME_DELTA or time < -layout.FARTHEST_TIME_DELTA:
            return layout.MALFORMED
        own_delta, cursor = read_varint(data, cursor, body_end, 5)
        if cursor < 0 or own_delta != expected:
            return layout.MALFORMED
        time += shift
        rest = body_end - cursor
        size = 1 + varint_size(time) + varint_size(delta) + rest
        if varint_size(size) + size > room - filled:
            return layout.FULL
        filled = put_varint(out, filled, size)
        out[filled] = byte_at(data, body)
        filled = put_varint(out, filled + 1, time)
        filled = put_varint(out, filled, delta)
        copy_bytes(data, cursor, rest, out, filled)
        filled += rest
        delta += 1
        position = body_end
    if position != end:
        return layout.MALFORMED
    state[layout.JOIN_DELTA], state[layout.JOIN_FILLED] = delta, filled
    return layout.DONE
