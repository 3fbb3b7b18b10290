"""Totals of blocks, for the broker's counters of appended records.

A finished block is added up once (`BlockWriter.counts`), so that an append counts nothing.
"""

from collections.abc import Iterable
from functools import reduce
from operator import add
from struct import Struct
from typing import Final, NamedTuple

from horolog.record.time_stats import LATENCY_COUNT
from horolog.storage.companion.blocks import ENTRY_SIZE

# Of an entry (blocks.py): its size, records, records without a time, latencies.
_NUMBERS: Final = Struct(">4xI20xI52xI8x12I8x")
assert _NUMBERS.size == ENTRY_SIZE


class BlockTotals(NamedTuple):
    """Numbers of batches that are added up: bytes, records and latencies."""

    size: int = 0
    """Bytes of the batches."""
    records: int = 0
    """Number of records without control records."""
    untimed: int = 0
    """Records without a create time."""
    latencies: tuple[int, ...] = (0,) * LATENCY_COUNT
    """Records in each class of `LATENCY_BOUNDS`; the first class was ahead of the clock."""

    def plus(self, other: "BlockTotals") -> "BlockTotals":
        """Add other totals to these."""
        return BlockTotals(
            self.size + other.size,
            self.records + other.records,
            self.untimed + other.untimed,
            tuple(map(add, self.latencies, other.latencies)),
        )


NONE: Final = BlockTotals()


def sum_of(all_totals: Iterable[BlockTotals]) -> BlockTotals:
    """Return the sum of several totals."""
    return reduce(BlockTotals.plus, all_totals, NONE)


def counts_of(entries: bytes) -> BlockTotals:
    """Return the totals of blocks, from their entries."""
    return sum_of(
        BlockTotals(size, records, untimed, tuple(latencies))
        for size, records, untimed, *latencies in _NUMBERS.iter_unpack(entries)
    )
