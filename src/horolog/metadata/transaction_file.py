"""Transactional ids in one file: records of `__transaction_state` (transactions/replay.py).

For a directory whose `__transaction_state` is another's. It has the form and the promises of
`horolog-groups.log` (metadata/compacted_file.py).
"""

from collections.abc import Callable, Iterable
from typing import Final

from horolog.buffers import Buffer
from horolog.metadata.compacted_file import CompactedFile
from horolog.record.builder import build_batch
from horolog.transactions.replay import Replay, record_of

_RECORDS: Final = 500  # in one batch of a replacement


class TransactionFile(CompactedFile):
    """See the module. One thread at a time; `load` comes first."""

    def load(self, take: Callable[[Buffer], None]) -> None:
        """Give all batches to `take`; what is damaged is named in the log, and left out.

        Raises:
            StorageFailed: the file cannot be read.
        """
        for batch in self._file.read():
            take(batch)
        self._note_loaded("Transactions")

    def _batches_that_count(self) -> Iterable[bytes] | None:
        replay = Replay()
        for batch in self._file.read():
            replay.take(batch)
        if replay.unreadable:
            return None
        now_ms = self._now_ms()
        records = [record_of(each, state, now_ms) for each, state in replay.states.items()]
        pieces = (records[first : first + _RECORDS] for first in range(0, len(records), _RECORDS))
        return map(build_batch, pieces)
