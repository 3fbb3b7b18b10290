"""What the kernel that adds a batch's records to a joined batch must answer, in plain Python."""

from typing import Any

from horolog.record.kernels.layout import (
    DONE,
    FARTHEST_TIME_DELTA,
    FULL,
    JOIN_DELTA,
    JOIN_FILLED,
    JOIN_RECORDS,
    JOIN_SHIFT,
    MALFORMED,
)
from horolog.record.kernels.record_bytes import write_varlong
from horolog.record.kernels.scan_twins import OddError, read_varint

Ints = Any  # integers by position: array, memoryview or numpy array


def join(data: memoryview, state: Ints, out: memoryview) -> int:
    """Write the records of a batch behind those in `out`, with the deltas that they have there.

    Length, time and offset of a record are written anew; the rest of it is copied, not looked at.
    DONE, FULL where `out` has no room, or MALFORMED where the batch is better passed on as it is:
    it does not hold that many records with the offset deltas 0, 1, 2, ..., or a time is too far
    from the base. Only with DONE the state counts the batch; `out` has no bytes that count beyond.
    """
    position, delta, filled = 0, state[JOIN_DELTA], state[JOIN_FILLED]
    for expected in range(state[JOIN_RECORDS]):
        try:
            size, length = read_varint(bytes(data[position : position + 5]), 0, 5)
            body, end = position + length, position + length + size
            if size < 0 or end > len(data):
                return MALFORMED
            record = bytes(data[body:end])
            time, cursor = read_varint(record, 1, 10)
            own_delta, cursor = read_varint(record, cursor, 5)
        except (IndexError, OddError):
            return MALFORMED
        if own_delta != expected or not -FARTHEST_TIME_DELTA <= time <= FARTHEST_TIME_DELTA:
            return MALFORMED
        head = bytearray(record[:1])
        write_varlong(head, time + state[JOIN_SHIFT])
        write_varlong(head, delta)
        joined = bytearray()
        write_varlong(joined, len(head) + len(record) - cursor)
        joined += head
        joined += record[cursor:]
        if len(joined) > len(out) - filled:
            return FULL
        out[filled : filled + len(joined)] = joined
        filled += len(joined)
        delta += 1
        position = end
    if position != len(data):
        return MALFORMED
    state[JOIN_DELTA], state[JOIN_FILLED] = delta, filled
    return DONE
