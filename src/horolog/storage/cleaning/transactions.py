"""Transactions of the batches that a pass cleans, and the batches of them that may go.

What a batch does to the transaction of its producer is one function (`cleaning_kernels.step`), for
batches that come one by one as for many small ones; between them one number is kept for each
producer with an open transaction.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from horolog.buffers import Buffer
from horolog.record import cleaning
from horolog.record.batch import BatchHeader
from horolog.record.cleaning import Int64Array, Mask, SmallBatches
from horolog.record.kernels import cleaning_kernels
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
        """The aborted transactions of which a batch has come, up to their markers."""

    def meet(self, header: BatchHeader, batch: Buffer) -> bool:
        """Return True if a batch may go.

        It is of an aborted transaction, or ends one that is gone.

        Raises:
            CorruptBatch: a marker cannot be read.
        """
        first, self._begun = self._begun, self._begun_by(header.last_offset)
        for number in range(first, self._begun):
            self._meet(self._aborted[number].producer_id, BEGINS_ABORTED, number)
        return self._meet(header.producer_id, _kind_of(header, batch), 0)

    def _meet(self, producer_id: int, kind: int, number: int) -> bool:
        known = self._known.pop(producer_id, 0)
        known, fate = cleaning_kernels.step(known, kind, number)
        if known:
            self._known[producer_id] = known
        self._keep(fate)
        return fate == _MAY_GO

    def meet_small(self, small: SmallBatches) -> Mask:
        """Do what `meet` does for many small batches. Returns 1 for each that may go."""
        may_go = np.zeros(len(small.kinds), np.uint8)
        rows = np.flatnonzero(small.kinds != OF_NONE)
        if not len(rows):
            return may_go
        last_offsets = small.next_offsets[rows] - 1
        first, self._begun = self._begun, self._begun_by(int(last_offsets[-1]))
        begun = np.arange(first, self._begun)
        before = np.searchsorted(last_offsets, self._first_offsets[begun])
        producer_ids = [self._aborted[number].producer_id for number in begun.tolist()]
        kinds = np.insert(small.kinds[rows], before, BEGINS_ABORTED)
        numbers = np.insert(np.zeros(len(rows), np.int64), before, begun)
        producers, places = np.unique(
            np.insert(small.producer_ids[rows], before, producer_ids), return_inverse=True
        )
        fates = self._fates(producers, places, kinds, numbers)
        may_go[rows] = fates[kinds != BEGINS_ABORTED] == _MAY_GO
        return may_go

    def _fates(
        self, producers: Int64Array, places: Int64Array, kinds: Int64Array, numbers: Int64Array
    ) -> Int64Array:
        ids = producers.tolist()
        known = np.array([self._known.pop(id_, 0) for id_ in ids], np.int64)
        fates = cleaning.meet_all(known, places, kinds, numbers)
        self._known.update((id_, now) for id_, now in zip(ids, known.tolist(), strict=True) if now)
        for fate in fates[fates > _MAY_GO].tolist():
            self._keep(fate)
        return fates

    def _begun_by(self, offset: int) -> int:
        """Return how many aborted transactions began before a batch with this last offset."""
        return max(self._begun, int(np.searchsorted(self._first_offsets, offset, "right")))

    def _keep(self, fate: int) -> None:
        if fate > _MAY_GO:
            self.kept.append(self._aborted[(fate >> 1) - 1])


def _kind_of(header: BatchHeader, batch: Buffer) -> int:
    if not header.is_control:
        return OF_RECORDS if header.is_transactional else OF_NONE
    if not header.records_count:
        return OF_EMPTIED_MARKER  # by a pass before
    marker = read_marker(batch)
    if marker is None:
        return OF_NONE  # none that is known
    return OF_ABORT if marker.is_abort else OF_COMMIT
