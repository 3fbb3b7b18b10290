"""Which batches of a log belong to aborted transactions (KIP-98)."""

from collections.abc import Iterable
from typing import NamedTuple

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch
from horolog.record.batch import BatchHeader, verify_crc
from horolog.record.markers import read_marker

__all__ = ["AbortedTransaction", "AbortedTransactions"]


class AbortedTransaction(NamedTuple):
    """What a producer wrote from `first_offset` up to its abort marker, at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int | None = None
    """None in the answer of a broker: where the transaction ends, its marker says."""


class AbortedTransactions:
    """Which batches a read-committed consumer leaves out: asked of each, in offset order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ahead = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._open: dict[int, int | None] = {}  # the last offset, by producer id

    def reach(self, offset: int) -> None:
        """Take what comes next to be after this offset: batches up to it belong to none."""
        while self._ahead and self._ahead[-1].first_offset <= offset:
            begun = self._ahead.pop()
            self._open[begun.producer_id] = begun.last_offset

    def may_hold(self, header: BatchHeader) -> bool:
        """Whether a batch belongs to an aborted transaction by what its header says.

        So does a marker where it is not known at which offset the transaction ends.
        """
        self.reach(header.last_offset)
        if header.producer_id not in self._open or not header.is_transactional:
            return False
        last_offset = self._open[header.producer_id]
        return last_offset is None or not (header.is_control or header.base_offset > last_offset)

    def drop(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether a batch belongs to an aborted transaction.

        A batch that says so, and a marker, are compared with their checksums first, as Kafka's
        consumer does: with a flipped bit, a header may say so of a committed batch.

        Raises:
            CorruptBatch: the batch is damaged.
        """
        if not self.may_hold(header):
            return False
        try:
            verify_crc(batch, 0, header)
            marker = read_marker(batch) if header.is_control else None
        except CorruptBatch as error:
            what = "marker" if header.is_control else "batch"
            raise CorruptBatch(
                f"the {what} at offset {header.base_offset} is damaged: {error.reason}"
            ) from error
        if marker is not None and marker.is_abort:
            del self._open[header.producer_id]
        return not header.is_control
