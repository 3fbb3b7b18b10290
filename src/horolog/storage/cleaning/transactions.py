"""Transactions of the batches that a pass cleans, and the batches of them that may go.

The kernel `cleaning_kernels.step` says what a batch does to the transaction of its producer.
Between batches one number is kept for each producer with an open transaction.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from horolog.buffers import Buffer
from horolog.record import cleaning
from horolog.record.batch import BatchHeader
from horolog.record.cleaning import BoolArray, Int64Array, Mask, SmallBatches
from horolog.record.kernels.cleaning_kernels import (
    BEGINS_ABORTED,
    OF_ABORT,
    OF_COMMIT,
    OF_EMPTIED_MARKER,
    OF_NONE,
    OF_RECORDS,
)
from horolog.record.markers import read_marker
from horolog.storage.index.abort import AbortedTxn

_MAY_GO: Final = 1


class CleanedTransactions:
    """Tracker of transactions. It meets every batch with a producer, and every control batch."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        """Start with the aborted transactions of a log."""
        self._aborted = sorted(aborted, key=lambda entry: (entry.first_offset, entry))
        self._first_offsets = np.array(
            [transaction.first_offset for transaction in self._aborted], np.int64
        )
        self._begun = 0  # how many of them have begun
        self._known: dict[int, int] = {}  # by producer id, as `cleaning_kernels.step` has it
        self.kept: list[AbortedTxn] = []
        """Aborted transactions of which a batch was met, up to their markers."""

    def meet(self, header: BatchHeader, batch: Buffer) -> bool:
        """Return True if a batch may go.

        It is of an aborted transaction, or ends one that is gone.

        Raises:
            CorruptBatch: a marker cannot be read.
        """
        kind = _kind_of(header, batch)
        if kind == OF_NONE:
            return False
        columns = [header.last_offset], [kind], [header.producer_id]
        return bool(self._meet(*(np.array(column, np.int64) for column in columns))[0])

    def meet_small(self, small: SmallBatches) -> Mask:
        """Do what `meet` does for many small batches. Returns 1 for each that may go."""
        may_go = np.zeros(len(small.kinds), np.uint8)
        rows = np.flatnonzero(small.kinds != OF_NONE)
        if len(rows):
            last_offsets = small.next_offsets[rows] - 1
            may_go[rows] = self._meet(last_offsets, small.kinds[rows], small.producer_ids[rows])
        return may_go

    def _meet(
        self, last_offsets: Int64Array, kinds: Int64Array, producer_ids: Int64Array
    ) -> BoolArray:
        """Return which of these batches, at least one, may go."""
        reached = int(np.searchsorted(self._first_offsets, last_offsets[-1], "right"))
        begun = np.arange(self._begun, max(self._begun, reached))
        self._begun += len(begun)
        before = np.searchsorted(last_offsets, self._first_offsets[begun])
        begun_ids = [self._aborted[number].producer_id for number in begun.tolist()]
        kinds = np.insert(kinds, before, BEGINS_ABORTED)
        numbers = np.insert(np.zeros(len(last_offsets), np.int64), before, begun)
        producers, places = np.unique(
            np.insert(producer_ids, before, begun_ids), return_inverse=True
        )
        ids = producers.tolist()
        known = np.array([self._known.pop(id_, 0) for id_ in ids], np.int64)
        fates = cleaning.meet_all(known, places, kinds, numbers)
        self._known.update((id_, now) for id_, now in zip(ids, known.tolist(), strict=True) if now)
        for fate in fates[fates > _MAY_GO].tolist():
            self.kept.append(self._aborted[(fate >> 1) - 1])
        may_go: BoolArray = fates[kinds != BEGINS_ABORTED] == _MAY_GO
        return may_go


def _kind_of(header: BatchHeader, batch: Buffer) -> int:
    if not header.is_control:
        return OF_RECORDS if header.is_transactional else OF_NONE
    if not header.records_count:
        return OF_EMPTIED_MARKER  # by a pass before
    marker = read_marker(batch)
    if marker is None:
        return OF_NONE  # none that is known
    return OF_ABORT if marker.is_abort else OF_COMMIT
