"""What blocks add up to, for counters that only grow: numbers, and no times.

A writer sums up each block when it is finished (`BlockWriter.counts`), so that nothing is counted
for an append.
"""

from struct import Struct
from typing import Final, NamedTuple

from horolog.record.time_stats import LATENCY_COUNT
from horolog.storage.index.blocks import ENTRY_SIZE

# Of an entry (index/blocks.py): its size, records, records without a time, latencies.
_NUMBERS: Final = Struct(">4xI20xI52xI8x12I8x")
assert _NUMBERS.size == ENTRY_SIZE


class Counts(NamedTuple):
    """Of records, and of the batches that they are in."""

    size: int = 0
    """Bytes of the batches."""
    records: int = 0
    """Without control records."""
    untimed: int = 0
    """Without a create time."""
    latencies: tuple[int, ...] = (0,) * LATENCY_COUNT
    """Records in each class of `LATENCY_BOUNDS`; the first class was ahead of the clock."""

    def plus(self, other: "Counts", times: int = 1) -> "Counts":
        """The sum; with -1 as `times` the difference."""
        mine, others = (*self[:3], *self.latencies), (*other[:3], *other.latencies)
        size, records, untimed, *latencies = [
            one + times * two for one, two in zip(mine, others, strict=True)
        ]
        return Counts(size, records, untimed, tuple(latencies))


NONE: Final = Counts()


def counts_of(entries: bytes) -> Counts:
    """What blocks add up to, by their entries."""
    if not entries:
        return NONE
    size, records, untimed, *latencies = map(sum, zip(*_NUMBERS.iter_unpack(entries), strict=True))
    return Counts(size, records, untimed, tuple(latencies))
