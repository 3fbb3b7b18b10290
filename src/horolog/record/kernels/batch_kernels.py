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
_MOST_CODEC = 4
_LAST_SAFE_OFFSET = (1 << 63) - (1 << 32)


def _plan_batches(data, state, plan, facts):
    position, left = state[layout.PLAN_POSITION], state[layout.PLAN_LEFT]
    first, last = state[layout.PLAN_FIRST_OFFSET], state[layout.PLAN_LAST_OFFSET]
    least = state[layout.PLAN_LEAST_OFFSET]
    room = min(
        np.int64(len(facts)) // layout.FACTS_SIZE, np.int64(len(plan)) // layout.STRETCH_SIZE
    )
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
            or attributes & ~(layout.IS_STAMPED | layout.COMPRESSED) != 0
            or attributes & layout.COMPRESSED > _MOST_CODEC
            or (count > 0 and attributes & layout.COMPRESSED != state[layout.PLAN_CODEC])
        ):
            break
        base_offset, delta = i64(data, position), i32(data, position + 23)
        records = i32(data, position + 57)
        if (
            delta < 0
            or records <= 0
            or base_offset < max(first, least)
            or base_offset > _LAST_SAFE_OFFSET
            or base_offset + delta > last
        ):
            break
        state[layout.PLAN_CODEC] = attributes & layout.COMPRESSED
        start, end = position + _HEADER_SIZE, position + _OVERHEAD + length
        row = np.uint64(count * layout.STRETCH_SIZE)
        plan[row + np.uint64(layout.STRETCH_START)] = start
        plan[row + np.uint64(layout.STRETCH_END)] = end
        plan[row + np.uint64(layout.STRETCH_RECORDS_LEFT)] = records
        plan[row + np.uint64(layout.STRETCH_BASE_OFFSET)] = base_offset
        is_stamped = attributes & layout.IS_STAMPED != 0 and state[layout.PLAN_AS_CREATED] == 0
        time = i64(data, position + 35) if is_stamped else i64(data, position + 27)
        plan[row + np.uint64(layout.STRETCH_BASE)] = time
        plan[row + np.uint64(layout.STRETCH_APPEND_TIME)] = np.int64(is_stamped)
        row = np.uint64(count * layout.FACTS_SIZE)
        facts[row + np.uint64(layout.FACT_CRC)] = i32(data, position + 17) & 0xFFFFFFFF
        facts[row + np.uint64(layout.FACT_PRODUCER_ID)] = i64(data, position + 43)
        epoch = (byte_at(data, position + 51) << 8) | byte_at(data, position + 52)
        epoch -= (epoch >> 15) << 16
        facts[row + np.uint64(layout.FACT_PRODUCER_EPOCH)] = epoch
        facts[row + np.uint64(layout.FACT_BASE_SEQUENCE)] = i32(data, position + 53)
        least = base_offset + delta + 1
        position = end
        left -= end - start
        count += 1
    state[layout.PLAN_POSITION], state[layout.PLAN_LEFT] = position, left
    state[layout.PLAN_LEAST_OFFSET], state[layout.PLAN_COUNT] = least, count


plan_batches: Callable[..., None] = compile_kernel(
    numba.void(BYTES_IN, INT64S, INT64S, INT64S), _plan_batches
)
