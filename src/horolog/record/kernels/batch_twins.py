"""The plain-Python twin of the kernel that plans batches for `gather`."""

import struct
from typing import Any

from horolog.record.kernels import layout

Ints = Any  # integers by position: array, memoryview or numpy array

_HEADER = struct.Struct(">qiibIhiqqqhii")
_OVERHEAD = 12  # bytes before what a batch's length counts
_MAGIC = 2
_MOST_CODEC = 4
_LAST_SAFE_OFFSET = (1 << 63) - (1 << 32)  # sums with a delta stay below 64 bits


def plan_batches(data: memoryview, state: Ints, plan: Ints, facts: Ints) -> None:
    """A stretch and facts of each batch, up to one that needs a decision.

    That is any but a batch of v2 with records, whole, within the offsets to read and after the
    batch before, of its codec, and neither control nor transactional nor with a delete horizon.
    """
    position, left, count = state[layout.PLAN_POSITION], state[layout.PLAN_LEFT], 0
    room = min(len(facts) // layout.FACTS_SIZE, len(plan) // layout.STRETCH_SIZE)
    while count < room and left > 0 and len(data) - position >= _HEADER.size:
        (
            base_offset,
            length,
            _,
            magic,
            crc,
            attributes,
            delta,
            base_time,
            max_time,
            *producer,
            records,
        ) = _HEADER.unpack_from(data, position)
        if (
            magic != _MAGIC
            or not _HEADER.size - _OVERHEAD <= length <= len(data) - position - _OVERHEAD
            or attributes & ~(layout.IS_STAMPED | layout.COMPRESSED)
            or attributes & layout.COMPRESSED > _MOST_CODEC
            or (count and attributes & layout.COMPRESSED != state[layout.PLAN_CODEC])
            or delta < 0
            or records <= 0
            or base_offset < max(state[layout.PLAN_FIRST_OFFSET], state[layout.PLAN_LEAST_OFFSET])
            or base_offset > _LAST_SAFE_OFFSET
            or base_offset + delta > state[layout.PLAN_LAST_OFFSET]
        ):
            break
        state[layout.PLAN_CODEC] = attributes & layout.COMPRESSED
        start, end = position + _HEADER.size, position + _OVERHEAD + length
        is_stamped = bool(attributes & layout.IS_STAMPED) and not state[layout.PLAN_AS_CREATED]
        time = max_time if is_stamped else base_time
        at = count * layout.STRETCH_SIZE
        for index, number in enumerate((start, end, records, base_offset, time, is_stamped)):
            plan[at + index] = number
        for index, number in enumerate((crc, *producer)):
            facts[count * layout.FACTS_SIZE + index] = number
        state[layout.PLAN_LEAST_OFFSET] = base_offset + delta + 1
        position, left, count = end, left - (end - start), count + 1
    state[layout.PLAN_POSITION], state[layout.PLAN_LEFT] = position, left
    state[layout.PLAN_COUNT] = count
