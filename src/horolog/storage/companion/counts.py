"""Totals of blocks, for counters that only grow: numbers, and no times.

A writer sums up each block when it is finished (`BlockWriter.counts`), so that nothing is counted
for an append.
"""

from collections.abc import Iterable
from operator import add
from struct import Struct
from typing import Final, NamedTuple

from horolog.record.time_stats import LATENCY_COUNT
from horolog.storage.companion.blocks import ENTRY_SIZE

# Of an entry (blocks.py): its size, records, records without a time, latencies.
_NUMBERS: Final = Struct(">4xI20xI52xI8x12I8x")
assert _NUMBERS.size == ENTRY_SIZE


class BlockTotals(NamedTuple):
    """Totals of records and of their batches."""

    numbers: tuple[int, ...] = (0,) * (3 + LATENCY_COUNT)
    """All that follow, in order."""

    @property
    def size(self) -> int:
        """Bytes of the batches."""
        return self.numbers[0]

    @property
    def records(self) -> int:
        """Without control records."""
        return self.numbers[1]

    @property
    def untimed(self) -> int:
        """Records without a create time."""
        return self.numbers[2]

    @property
    def latencies(self) -> tuple[int, ...]:
        """Records in each class of `LATENCY_BOUNDS`; the first class was ahead of the clock."""
        return self.numbers[3:]

    def plus(self, other: "BlockTotals") -> "BlockTotals":
        """The sum."""
        return BlockTotals(tuple(map(add, self.numbers, other.numbers)))


NONE: Final = BlockTotals()


def sum_of(all_counts: Iterable[BlockTotals]) -> BlockTotals:
    """The sum of many."""
    return _summed(all_count.numbers for all_count in all_counts)


def counts_of(entries: bytes) -> BlockTotals:
    """The totals of blocks, by their entries."""
    if len(entries) == ENTRY_SIZE:
        return BlockTotals(_NUMBERS.unpack(entries))
    return _summed(_NUMBERS.iter_unpack(entries))


def _summed(rows: Iterable[tuple[int, ...]]) -> BlockTotals:
    return BlockTotals(tuple(map(sum, zip(*rows, strict=True))) or NONE.numbers)
