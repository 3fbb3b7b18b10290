"""A file of record batches of which the last record of each key counts; replaced when it has grown.

For what Kafka keeps in a compacted internal topic, in a directory whose internal topics are
another's: groups (`group_file`) and transactional ids (`transaction_file`). Batches are appended,
and survive a kill of the process. A file that has grown to several times its bytes is replaced by
the batches that count.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from horolog.errors import StorageFailed
from horolog.storage.files import Files
from horolog.storage.record_file import RecordFile

GROWN: Final = 4  # times what counts
_LEAST_BYTES: Final = 1 << 20  # below it the file is not replaced

_logger = logging.getLogger(__name__)


class CompactedFile(ABC):
    """See the module. One thread at a time; `load` of the subclass comes first."""

    def __init__(
        self,
        files: Files,
        path: str,
        *,
        now_ms: Callable[[], int],
        least_bytes: int = _LEAST_BYTES,
    ) -> None:
        """At a path.

        Args:
            files: reads and writes.
            path: of the file; made by the first append.
            now_ms: the time of the broker's clock, which records are stamped with.
            least_bytes: a smaller file is never replaced.
        """
        self._files = files
        self._file = RecordFile(files, path)
        self._now_ms = now_ms
        self._least_bytes = self._replace_at = least_bytes

    def close(self) -> None:
        """Wait until the disk has all that was appended.

        Raises:
            StorageFailed: the disk refused.
        """
        self._file.sync()

    @abstractmethod
    def _batches_that_count(self) -> Iterable[bytes] | None:
        """The last record of each key, read from the file; None if the file must stay as it is.

        Raises:
            StorageFailed: the file cannot be read.
        """

    def append(self, batches: Sequence[bytes]) -> None:
        """Append batches, all or none; replace the file if it has grown.

        Raises:
            StorageFailed: the disk refused; the file is as it was.
        """
        self._file.append_all(batches, sync=False)
        if self._file.size >= self._replace_at:
            self._replace()

    def _note_loaded(self, what: str, grown: int = GROWN) -> None:
        """Name in the log what is damaged; replace the file at `grown` times its bytes."""
        for lost in self._file.lost:
            _logger.error("%s may be lost: %s", what, lost)
        self._replace_at = max(self._least_bytes, grown * self._file.size)

    def _replace(self) -> None:
        """Put what counts in the place of all; a failure leaves the file."""
        try:
            batches = self._batches_that_count()
            if batches is not None:
                self._file.replace(batches)
        except StorageFailed as error:
            _logger.warning("%s is not replaced by a smaller one: %s", self._file.path, error)
        self._replace_at = max(self._least_bytes, GROWN * self._file.size)
