"""The producers of archived records, from the headers of their batches."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from horolog.errors import CorruptFile
from horolog.jobs.archives.manifest import ArchivedFile
from horolog.jobs.archives.rows import read_rows
from horolog.jobs.archives.store import ArchiveStore
from horolog.record.batch_producers import producer_column
from horolog.record.stretches import Int64Array

_LAST = "last_offset"
_FACTS = ("base_offset", "producer_id", "producer_epoch", "base_sequence")


class ArchivedProducers:
    """The columns of producers for the rows of one file, asked for in offset order.

    Headers are read as rows come, and only those are held that rows may still be of.
    """

    def __init__(
        self, store: ArchiveStore, batches: Sequence[ArchivedFile], file: ArchivedFile
    ) -> None:
        """Read nothing yet.

        Args:
            batches: the files of headers that may have batches of the file.
            file: of records of one partition.
        """
        self._name = f"{store.name}/{file.path}"
        self._rest = _facts(store, batches, file.first_offset, file.last_offset)
        self._last = np.empty(0, np.int64)
        self._facts = np.empty((0, len(_FACTS)), np.int64)

    def column(self, name: str, offsets: Int64Array) -> pa.Array:
        """One of `batch_producers.TYPES`, of rows at or after those of the last call.

        Raises:
            CorruptFile: a row is of no batch, or a file is damaged.
        """
        self._read_to(int(offsets[0]), int(offsets[-1]))
        places = np.searchsorted(self._last, offsets)
        if places[-1] == len(self._last) or (self._facts[places, 0] > offsets).any():
            raise CorruptFile(f"{self._name}: there are records of no batch in the archive")
        return producer_column(name, self._facts, places, offsets)

    def _read_to(self, first: int, last: int) -> None:
        """Hold the headers of offsets from the first to the last one."""
        lasts, facts = [self._last], [self._facts]
        while not len(lasts[-1]) or lasts[-1][-1] < last:
            found = next(self._rest, None)
            if found is None:
                break
            lasts.append(found[0])
            facts.append(found[1])
        self._last, self._facts = np.concatenate(lasts), np.concatenate(facts)
        gone = int(np.searchsorted(self._last, first))
        self._last, self._facts = self._last[gone:], self._facts[gone:]


def _facts(
    store: ArchiveStore, batches: Sequence[ArchivedFile], first: int, last: int
) -> Iterator[tuple[Int64Array, Int64Array]]:
    """The last offsets and the facts of batches from that of the first offset on, in order."""
    for batch in sorted(batches, key=lambda each: each.first_offset):
        if batch.last_offset < first or batch.first_offset > last:
            continue
        end = (1 << 63) - 1
        for rows in read_rows(store, batch, first, end, column=_LAST, columns=_FACTS):
            columns = [rows.column(name).to_numpy() for name in _FACTS]
            yield rows.column(_LAST).to_numpy(), np.stack(columns, axis=1)
