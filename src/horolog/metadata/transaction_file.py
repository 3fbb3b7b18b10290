"""Transactional ids in one file: records of `__transaction_state` (transactions/replay.py).

For a directory whose `__transaction_state` is another's. It has the form and the promises of
`horolog-groups.log` (metadata/group_file.py): appends survive a kill of the process, and a file
that has grown is replaced by the last record of each id.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from horolog.buffers import Buffer
from horolog.errors import StorageFailed
from horolog.record.builder import build_batch
from horolog.storage.files import Files
from horolog.storage.record_file import RecordFile
from horolog.transactions.replay import Replay, record_of

_GROWN: Final = 4  # times what counts
_LEAST_BYTES: Final = 1 << 20  # below it the file is not replaced
_RECORDS: Final = 500  # in one batch of a replacement

_logger = logging.getLogger(__name__)


class TransactionFile:
    """See the module. One thread at a time; `load` comes first."""

    def __init__(
        self,
        files: Files,
        path: str,
        *,
        now_ms: Callable[[], int],
        least_bytes: int = _LEAST_BYTES,
    ) -> None:
        """At a path; the first append makes the file.

        Args:
            files: reads and writes.
            path: of the file.
            now_ms: the time of the broker's clock.
            least_bytes: a smaller file is never replaced.
        """
        self._file = RecordFile(files, path)
        self._now_ms = now_ms
        self._least_bytes = self._replace_at = least_bytes

    def load(self, take: Callable[[Buffer], None]) -> None:
        """Give all batches to `take`; what is damaged is named in the log, and left out.

        Raises:
            StorageFailed: the file cannot be read.
        """
        for batch in self._file.read():
            take(batch)
        for lost in self._file.lost:
            _logger.error("Transactions may be lost: %s", lost)
        self._replace_at = max(self._least_bytes, _GROWN * self._file.size)

    def append(self, batches: Sequence[bytes]) -> None:
        """Append batches, all or none.

        Raises:
            StorageFailed: the disk refused; it is as it was.
        """
        self._file.append_all(batches, sync=False)
        if self._file.size >= self._replace_at:
            self._replace()

    def close(self) -> None:
        """Wait until the disk has all.

        Raises:
            StorageFailed: the disk refused.
        """
        self._file.sync()

    def _replace(self) -> None:
        """Put the last record of each id in the place of all; a failure leaves the file."""
        try:
            replay = Replay()
            for batch in self._file.read():
                replay.take(batch)
            if not replay.unreadable:
                now_ms = self._now_ms()
                records = [record_of(each, state, now_ms) for each, state in replay.states.items()]
                pieces = (
                    records[first : first + _RECORDS] for first in range(0, len(records), _RECORDS)
                )
                self._file.replace(map(build_batch, pieces))
        except StorageFailed as error:
            _logger.warning("%s is not replaced by a smaller one: %s", self._file.path, error)
        self._replace_at = max(self._least_bytes, _GROWN * self._file.size)
