"""The numbers that kernels sum up, as the value that they stand for, and the reverse."""

from array import array
from collections.abc import Sequence

from horolog.record import NO_APPEND_TIME, TimeStats
from horolog.storage import NO_BLOCK, Block, folded


def stats_of(numbers: Sequence[int]) -> TimeStats:
    """Control records, append times and flags, then what a scan counts (`Counts`)."""
    control, append_min, append_max, flags, *counts = numbers
    count, timed, largest, smallest, first, last, out_of_order, *latencies = counts
    has_append_times = append_min <= append_max
    return TimeStats(
        count - control,
        count - timed,
        out_of_order,
        smallest if timed else None,
        largest if timed else None,
        first if timed else None,
        last if timed else None,
        append_min if has_append_times else None,
        append_max if has_append_times else None,
        tuple(latencies),
        control,
        flags,
    )


def entry_of(block: Block) -> bytes:
    """The entry of a block map that says this."""
    times, (least, largest) = block.times, NO_APPEND_TIME
    numbers = (
        *block[:-1],
        times.control_records,
        least if times.append_min_ms is None else times.append_min_ms,
        largest if times.append_max_ms is None else times.append_max_ms,
        times.flags,
        *times.counts(),
    )
    return folded(NO_BLOCK, [array("q", numbers).tobytes()], block.size, closing=True)[0]
