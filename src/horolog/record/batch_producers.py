"""Producer id, epoch and sequence of the rows of a table, from the batches' headers.

The sequence of a record is the first sequence of its batch, plus the record's distance from the
batch's first offset, wrapping after 2147483647 (KIP-98). Compaction keeps both. Rows of batches
without a producer have nulls, and so do sequences of batches without sequences.
"""

from array import array

import numpy as np
import pyarrow as pa

from horolog.record.batch import BatchHeader
from horolog.record.stretches import Int64Array, stretch_of

PRODUCER_TYPES = {"producer_id": pa.int64(), "producer_epoch": pa.int32(), "sequence": pa.int32()}

_FACTS = 4  # of a batch: base offset, producer id, producer epoch, base sequence
_SEQUENCES = 1 << 31


class BatchProducers:
    """Producers of batches in offset order, as columns of their records."""

    def __init__(self) -> None:
        self._facts = array("q")
        self.next_offset = -1

    def follows(self, header: BatchHeader) -> bool:
        """Return True if a batch is after all that were added, as in an undamaged log."""
        return header.base_offset >= self.next_offset

    def add(self, header: BatchHeader) -> None:
        """Add a batch, for which `follows` is true."""
        self._facts.extend(
            (header.base_offset, header.producer_id, header.producer_epoch, header.base_sequence)
        )
        # A damaged header may say that its batch ends before it begins.
        self.next_offset = max(header.base_offset, header.next_offset)

    def add_all(self, facts: Int64Array, next_offset: int) -> None:
        """Add batches that follow one another from `next_offset` on.

        Args:
            facts: base offset, producer id, producer epoch and base sequence of each.
        """
        self._facts.frombytes(facts.tobytes())
        self.next_offset = next_offset

    def clear(self) -> None:
        """Remove all batches."""
        self._facts = array("q")
        self.next_offset = -1

    def column(self, name: str, offsets: Int64Array) -> pa.Array:
        """Return a column of `PRODUCER_TYPES` for rows with these offsets, of all batches added."""
        facts = np.frombuffer(self._facts, np.int64).reshape(-1, _FACTS)
        return producer_column(name, facts, stretch_of(facts[:, 0], offsets), offsets)


def producer_column(
    name: str, facts: Int64Array, batch: Int64Array, offsets: Int64Array
) -> pa.Array:
    """Return one of the columns `PRODUCER_TYPES`.

    Args:
        facts: base offset, producer id, producer epoch and base sequence of each batch.
        batch: the place in `facts` of each record's batch.
    """
    base_offset, producer_id, epoch, base_sequence = facts.T
    is_null = producer_id < 0  # of each batch
    match name:
        case "producer_id":
            values = producer_id[batch]
        case "producer_epoch":
            values = epoch[batch]
        case _:
            is_null = is_null | (base_sequence < 0)
            values = (offsets + (base_sequence - base_offset)[batch]) % _SEQUENCES
    mask = is_null[batch] if is_null.any() else None
    return pa.array(values.astype(PRODUCER_TYPES[name].to_pandas_dtype(), copy=False), mask=mask)
