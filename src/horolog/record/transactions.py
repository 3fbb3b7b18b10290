"""Which batches of a log belong to aborted transactions (KIP-98)."""

from collections.abc import Iterable

from horolog.record.batch import BatchHeader
from horolog.record.markers import read_marker

__all__ = ["AbortedTransactions"]


class AbortedTransactions:
    """Which batches a read-committed consumer leaves out (KIP-98).

    A producer's transaction is aborted from its listed first offset on, up to its
    next abort marker.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._ahead = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self._open: set[int] = set()

    def reach(self, offset: int) -> None:
        """Take what comes next to be after this offset: batches up to it belong to none."""
        while self._ahead and self._ahead[-1][0] <= offset:
            self._open.add(self._ahead.pop()[1])

    def drop(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether this batch, the next in offset order, belongs to an aborted transaction."""
        self.reach(header.last_offset)
        if header.producer_id not in self._open or not header.is_transactional:
            return False
        if not header.is_control:
            return True
        marker = read_marker(batch)
        if marker is not None and marker.is_abort:
            self._open.discard(header.producer_id)
        return False
