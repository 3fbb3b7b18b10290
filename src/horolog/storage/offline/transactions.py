"""Which transactions of a log on disk were aborted, and how far it is decided (KIP-98).

Read from the control batches that end transactions only: Kafka's own
index of aborted transactions may be missing from a copy. So all headers of the log are
walked over, at 61 bytes a batch, and only when committed records are asked for.
"""

from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

from horolog.buffers import Buffer
from horolog.record.batch import BatchHeader, verify_crc
from horolog.record.markers import read_marker
from horolog.storage import names
from horolog.storage.adoption.transaction_state import read_prepared_commits
from horolog.storage.files import Files
from horolog.storage.names import TopicPartition


class AbortedRange(NamedTuple):
    """What a producer wrote from `first_offset` up to the marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int


def is_aborted(header: BatchHeader, aborted: Iterable[tuple[int, int, int]]) -> bool:
    """Whether a batch holds records of one of these aborted transactions."""
    return (
        header.is_transactional
        and not header.is_control
        and any(
            producer_id == header.producer_id and first <= header.base_offset <= last
            for producer_id, first, last in aborted
        )
    )


class TransactionScan:
    """Takes the batches of one partition in offset order."""

    def __init__(self) -> None:
        self.aborted: list[AbortedRange] = []
        self._open: dict[int, int] = {}

    def add(self, header: BatchHeader, read: Callable[[], Buffer]) -> None:
        """Take the next batch, which is only read if it is a marker.

        Raises:
            CorruptBatch: it is a damaged one.
        """
        producer_id = header.producer_id
        if not header.is_transactional:
            return
        if not header.is_control:
            self._open.setdefault(producer_id, header.base_offset)
            return
        first_offset = self._open.get(producer_id)
        if first_offset is None:
            return
        batch = read()
        verify_crc(batch, 0, header)
        marker = read_marker(batch)
        del self._open[producer_id]
        if marker is not None and marker.is_abort:
            self.aborted.append(AbortedRange(producer_id, first_offset, header.last_offset))

    def forget_open(self) -> None:
        """Whether what is open ends is not known: the log is damaged."""
        self._open.clear()

    @property
    def has_open(self) -> bool:
        """Whether a transaction has not ended."""
        return bool(self._open)

    def end_open(self, end: int, committed: Container[int]) -> None:
        """Take those that are open as aborted up to the log end, or of some producers as committed.

        As a broker does with what was open when it took the log over (`ReadableLog.aborted`).
        """
        for producer_id, first_offset in self._open.items():
            if producer_id not in committed:
                self.aborted.append(AbortedRange(producer_id, first_offset, end))
        self._open.clear()

    def last_stable_offset(self, end: int) -> int:
        """The offset before which every transaction has ended; `end` if all have."""
        return min(self._open.values(), default=end)


def committed_by(files: Files, log_dir: str, partition: TopicPartition) -> frozenset[int] | None:
    """The producer ids whose open transactions are committed; None if one may still be ended.

    In a log directory that horolog has adopted no coordinator is left that could end one. In any
    other a Kafka may be at work, or the directory is a copy of what one is writing.

    Raises:
        StorageFailed: the disk refused.
    """
    if not files.exists(f"{log_dir}/{names.METADATA_STORE}"):
        return None
    return read_prepared_commits(files, log_dir).get(partition, frozenset())
