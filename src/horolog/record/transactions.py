"""Walk over the batches of a log that leaves out aborted transactions (KIP-98)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch
from horolog.record.batch import BatchHeader, iter_headers, verify_crc
from horolog.record.markers import read_marker

__all__ = ["AbortedTransaction", "AbortedTransactions", "BatchWalk", "WalkedBatch"]


class AbortedTransaction(NamedTuple):
    """Batches of a producer from `first_offset` to its abort marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int | None = None
    """None in a broker's answer: the marker ends the transaction."""


class AbortedTransactions:
    """Filter of batches that a read-committed consumer leaves out; called in offset order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ahead = sorted(
            aborted, key=lambda transaction: transaction.first_offset, reverse=True
        )
        self._open: dict[int, int | None] = {}  # the last offset, by producer id

    def reach(self, offset: int) -> None:
        """Continue after this offset: earlier batches belong to no aborted transaction."""
        while self._ahead and self._ahead[-1].first_offset <= offset:
            begun = self._ahead.pop()
            self._open[begun.producer_id] = begun.last_offset

    def may_hold(self, header: BatchHeader) -> bool:
        """Return True if a batch belongs to an aborted transaction by its header.

        That includes the marker where the end of the transaction is unknown.
        """
        self.reach(header.last_offset)
        if header.producer_id not in self._open or not header.is_transactional:
            return False
        last_offset = self._open[header.producer_id]
        return last_offset is None or not (header.is_control or header.base_offset > last_offset)

    def drop(self, header: BatchHeader, batch: Buffer) -> bool:
        """Return True if a batch belongs to an aborted transaction.

        A batch whose header says so, and a marker, are compared with their checksums first, as by
        Kafka's consumer: a flipped bit can mark a committed batch as aborted.

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


class WalkedBatch(NamedTuple):
    """A batch of a walk, and whether it is aborted."""

    position: int
    header: BatchHeader
    data: memoryview
    is_aborted: bool

    @property
    def is_visible(self) -> bool:
        """True if a read-committed consumer gets records of the batch."""
        return not (self.is_aborted or self.header.is_control or self.header.records_count == 0)

    def verify(self) -> None:
        """Compare the batch with its checksum.

        Raises:
            CorruptBatch: it is damaged; the error names its offset.
        """
        try:
            verify_crc(self.data, 0, self.header)
        except CorruptBatch as error:
            raise CorruptBatch(
                f"the batch at offset {self.header.base_offset} is damaged: {error.reason}"
            ) from error


class BatchWalk:
    """Iterator over the whole batches of a buffer within a range of offsets, in offset order.

    Control batches and aborted ones are included. A batch that is partly in the range is included
    whole.

    Raises:
        CorruptBatch: the buffer contains other bytes, or a marker is damaged, or a batch whose
            header marks it as aborted.
    """

    def __init__(
        self,
        buffer: Buffer,
        aborted: Iterable[AbortedTransaction] | None,
        *,
        start: int | None = None,
        end: int | None = None,
    ) -> None:
        self._view = memoryview(buffer)
        self._transactions = AbortedTransactions(aborted) if aborted else None
        self._start, self._end = start, end
        self._headers = iter_headers(self._view, least_offset=start or 0)

    def __iter__(self) -> Iterator[WalkedBatch]:
        return self

    def __next__(self) -> WalkedBatch:
        for position, header in self._headers:
            if self._end is not None and header.base_offset >= self._end:
                break
            data = self._view[position : position + header.size]
            # Batches before the range count: a marker there ends a transaction.
            is_aborted = self._transactions is not None and self._transactions.drop(header, data)
            if self._start is None or header.next_offset > self._start:
                # Quicker than the constructor.
                return tuple.__new__(WalkedBatch, (position, header, data, is_aborted))
        raise StopIteration

    def skip_to(self, position: int, offset: int) -> None:
        """Continue at a later position, whose batch begins at this offset or after it."""
        self._headers = iter_headers(self._view, position, offset)
        if self._transactions is not None:
            self._transactions.reach(offset - 1)
