"""Which transactions of a log on disk were aborted, and how far it is decided (KIP-98).

Read from the control batches that end transactions only: Kafka's own
index of aborted transactions may be missing from a copy. So all headers of the log are
walked over, at 61 bytes a batch, and only when committed records are asked for.
"""

from collections.abc import Callable
from typing import NamedTuple

from horolog.buffers import Buffer
from horolog.record.batch import BatchHeader
from horolog.record.markers import read_marker


class AbortedRange(NamedTuple):
    """What a producer wrote from `first_offset` up to the marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int


class TransactionScan:
    """Takes the batches of one partition in offset order."""

    def __init__(self) -> None:
        self.aborted: list[AbortedRange] = []
        self._open: dict[int, int] = {}

    def add(self, header: BatchHeader, read: Callable[[], Buffer]) -> None:
        """Take the next batch, which is only read if it is a marker."""
        producer_id = header.producer_id
        if not header.is_transactional:
            return
        if not header.is_control:
            self._open.setdefault(producer_id, header.base_offset)
            return
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return
        marker = read_marker(read())
        if marker is not None and marker.is_abort:
            self.aborted.append(AbortedRange(producer_id, first_offset, header.last_offset))

    def forget_open(self) -> None:
        """Whether what is open ends is not known: the log is damaged."""
        self._open.clear()

    def last_stable_offset(self, end: int) -> int:
        """The offset before which every transaction has ended; `end` if all have."""
        return min(self._open.values(), default=end)
