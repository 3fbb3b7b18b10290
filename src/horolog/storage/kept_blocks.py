"""Blocks of index files that searches have read, in a bounded amount of memory.

Apache Kafka maps its indexes, and they stay in memory while the page cache evicts the rest. Here
nothing is mapped, so that thousands of partitions hold few files: what was searched last is kept
instead, for all indexes of a log directory together.
"""

import threading
from array import array
from collections import OrderedDict
from contextlib import suppress
from typing import Final, TypeAlias

Columns: TypeAlias = "tuple[array[int], array[int]]"
"""The entries of a block, by columns: they take as many bytes as in the file."""

MOST_BYTES: Final = 16 << 20


_NUMBER_BITS = 32  # of an entry; the file of an index is shorter


class KeptBlocks:
    """The blocks that were used last; safe for any number of threads."""

    __slots__ = ("_blocks", "_bytes", "_lock", "_most_bytes")

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        # By whole numbers: thousands of tuples would wake the garbage collector.
        self._blocks: OrderedDict[int, Columns] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, content: int, number: int) -> "Columns | None":
        """Return a kept block by the number of its content and of its first entry."""
        key = content << _NUMBER_BITS | number
        block = self._blocks.get(key)  # without the lock: each of these calls is atomic
        # As long as nothing has to go soon, the order does not matter.
        if block is not None and self._bytes > self._most_bytes // 2:
            with suppress(KeyError):  # another thread has just dropped it
                self._blocks.move_to_end(key)
        return block

    def keep(self, content: int, number: int, block: Columns) -> None:
        """Keep a block, in place of those that were used longest ago.

        Args:
            content: a number that nothing else has ever had.
        """
        key = content << _NUMBER_BITS | number
        with self._lock:
            before = self._blocks.pop(key, None)
            self._blocks[key] = block
            self._bytes += _bytes_of(block) - (_bytes_of(before) if before else 0)
            while self._bytes > self._most_bytes:
                _, oldest = self._blocks.popitem(last=False)
                self._bytes -= _bytes_of(oldest)


def _bytes_of(block: Columns) -> int:
    return sum(len(column) * column.itemsize for column in block)
