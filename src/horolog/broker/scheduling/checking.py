"""Threads for batches whose validation takes too long for the event loop.

A batch of some kilobytes can decompress to a gigabyte, seconds of work. So each is first checked
as far as QUICK_BYTES go, some 15 ms at worst; the few that are larger begin again in a thread of
their own, which they share. In both, clients take turns. What waits for the disk has other threads.
"""

from typing import Final

from horolog.broker.scheduling.fair_pool import FairPool

QUICK_BYTES: Final = 4 << 20
"""Largest decompressed size of a batch that the quick threads validate."""

_QUICK_THREADS: Final = 2


class Checkers:
    """Threads that validate batches of all partitions."""

    def __init__(self) -> None:
        self.quick = FairPool(_QUICK_THREADS, "horolog-check")
        self.slow = FairPool(1, "horolog-check-large")

    def shutdown(self) -> None:
        """Accept no more batches, and return when all validations have ended."""
        self.quick.shutdown()
        self.slow.shutdown()
