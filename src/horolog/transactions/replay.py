"""Transactional ids as records of `__transaction_state`, and what a log of those adds up to."""

from typing import Final

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, HorologError, RequestRefused
from horolog.record.batch import parse_header
from horolog.record.builder import LogRecord, read_records
from horolog.schemas.transactions import (
    read_transaction,
    read_transaction_key,
    transaction_bytes,
    transaction_key,
)
from horolog.transactions.values import NONE, CoordinatedTransaction, transaction_of

MOST_BATCH_BYTES: Final = 64 << 20
"""That a batch may hold when decompressed."""


def record_of(
    transactional_id: str, transaction: CoordinatedTransaction | None, now_ms: int
) -> LogRecord:
    """The record of a state; None removes the id.

    Raises:
        struct.error: the id is longer than 32,767 bytes.
    """
    value = None if transaction is None else transaction_bytes(transaction.value())
    return LogRecord(now_ms, transaction_key(transactional_id), value)


class TransactionReplay:
    """The states that records leave; the last one of each id counts."""

    def __init__(self) -> None:
        self.states: dict[str, CoordinatedTransaction] = {}
        self.uncertain: set[str] = set()
        """The ids whose last state is damaged, so that the one before it counts."""
        self.unreadable = 0
        """Records, or whole batches, that are left out because they are damaged."""
        self.reason: str | None = None
        """Damage of the first record that is left out."""

    def take(self, batch: Buffer) -> None:
        """Apply a batch; batches come in the order of the log. One without records is ignored."""
        try:
            if parse_header(batch).is_control:
                return
            records = list(read_records(batch, max_bytes=MOST_BATCH_BYTES))
        except (CorruptBatch, RequestRefused) as error:
            self._note(error)
            return
        for record in records:
            try:
                self._apply(record)
            except CorruptBatch as error:
                self._note(error)

    def _note(self, error: HorologError) -> None:
        self.unreadable += 1
        self.reason = self.reason or str(error)

    def _apply(self, record: LogRecord) -> None:
        key, value = record.key, record.value
        if key is None:
            raise CorruptBatch("a record of __transaction_state has no key")
        transactional_id = read_transaction_key(key)
        if transactional_id is None:
            return
        try:
            after = None if value is None else transaction_of(read_transaction(value))
        except CorruptBatch:
            self.uncertain.add(transactional_id)
            raise
        self.note(transactional_id, after, record.timestamp)

    def note(
        self, transactional_id: str, after: CoordinatedTransaction | None, written_ms: int = NONE
    ) -> None:
        """Let a state count; None removes the id.

        Args:
            written_ms: the time of its record, in milliseconds.
        """
        self.uncertain.discard(transactional_id)
        if after is None:
            self.states.pop(transactional_id, None)
        else:
            self.states[transactional_id] = after
