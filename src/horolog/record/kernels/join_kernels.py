"""The numba kernel that adds a batch's records to a joined batch.

It has no twin: small batches are joined by jobs, which wait for it. It sees hostile bytes: sizes
are compared with what is left before anything is read or written.

Length, time and offset of a record are written anew; the rest of it is copied, not looked at. DONE,
FULL where `out` has no room, or MALFORMED where the batch is better passed on as it is: it does not
hold that many records with the offset deltas 0, 1, 2, ..., or a time is too far from the base. Only
with DONE the state counts the batch; `out` has no bytes that count beyond.
"""

from collections.abc import Callable

import numba
import numpy as np

from horolog.record.kernels import layout
from horolog.record.kernels.cache import compile_kernel
from horolog.record.kernels.record_kernels import copy_bytes, put_varint, varint_size
from horolog.record.kernels.scan_kernels import BYTES_IN, BYTES_OUT, INT64S, read_varint


def _join(data, state, out):
    records, shift = state[layout.JOIN_RECORDS], state[layout.JOIN_SHIFT]
    delta, filled = state[layout.JOIN_DELTA], state[layout.JOIN_FILLED]
    position, end, room = np.int64(0), np.int64(len(data)), np.int64(len(out))
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
        out[filled] = data[body]
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


join: Callable[..., int] = compile_kernel(numba.int64(BYTES_IN, INT64S, BYTES_OUT), _join)
