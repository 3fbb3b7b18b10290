"""The numba kernel that plans batches for `gather`; see its twin, `batch_twins`."""

from collections.abc import Callable

import numba
import numpy as np

from horolog.record.kernels import layout
from horolog.record.kernels.cache import compile_kernel
from horolog.record.kernels.record_kernels import byte_at, i32, i64
from horolog.record.kernels.scan_kernels import BYTES_IN, INT64S

_HEADER_SIZE = 61
_OVERHEAD = 12
_MAGIC = 2
_LOG_APPEND_TIME_BIT = 8
_LAST_SAFE_OFFSET = (1 << 63) - (1 << 32)


def _plan_batches(data, state, plan, crcs):
    position, left = state[layout.PLAN_POSITION], state[layout.PLAN_LEFT]
    first, last = state[layout.PLAN_FIRST_OFFSET], state[layout.PLAN_LAST_OFFSET]
    room = min(np.int64(len(crcs)), np.int64(len(plan)) // layout.STRETCH_SIZE)
    end_of_data = np.int64(len(data))
    count = np.int64(0)
    while count < room and left > 0 and end_of_data - position >= _HEADER_SIZE:
        length = np.int64(i32(data, position + 8))
        attributes = byte_at(data, position + 22)
        if (
            byte_at(data, position + 16) != _MAGIC
            or length < _HEADER_SIZE - _OVERHEAD
            or length > end_of_data - position - _OVERHEAD
            or byte_at(data, position + 21) != 0
            or attributes & ~_LOG_APPEND_TIME_BIT != 0
        ):
            break
        base_offset, delta = i64(data, position), i32(data, position + 23)
        records = i32(data, position + 57)
        if (
            delta < 0
            or records <= 0
            or base_offset < first
            or base_offset > _LAST_SAFE_OFFSET
            or base_offset + delta > last
        ):
            break
        start, end = position + _HEADER_SIZE, position + _OVERHEAD + length
        row = np.uint64(count * layout.STRETCH_SIZE)
        plan[row + np.uint64(layout.STRETCH_START)] = start
        plan[row + np.uint64(layout.STRETCH_END)] = end
        plan[row + np.uint64(layout.STRETCH_RECORDS_LEFT)] = records
        plan[row + np.uint64(layout.STRETCH_BASE_OFFSET)] = base_offset
        is_stamped = attributes != 0
        time = i64(data, position + 35) if is_stamped else i64(data, position + 27)
        plan[row + np.uint64(layout.STRETCH_BASE)] = time
        plan[row + np.uint64(layout.STRETCH_APPEND_TIME)] = np.int64(is_stamped)
        crcs[np.uint64(count)] = i32(data, position + 17) & 0xFFFFFFFF
        position = end
        left -= end - start
        count += 1
    state[layout.PLAN_POSITION], state[layout.PLAN_LEFT] = position, left
    state[layout.PLAN_COUNT] = count


plan_batches: Callable[..., None] = compile_kernel(
    numba.void(BYTES_IN, INT64S, INT64S, INT64S), _plan_batches
)
