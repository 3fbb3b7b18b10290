"""Append times that never go backwards in a partition, not even when the clock does.

The floor is the last append time that this partition gave out itself, never a create
time. It is kept in a small file of our own at every roll and close; after a kill the
tail of the log is walked for append times that are later (recovery.py). Kafka has no
such floor: its LogAppendTime is the leader's clock as it is.
"""

import logging

from horolog.errors import CorruptFile
from horolog.storage.checkpoints import read_append_time, write_append_time
from horolog.storage.files import Files

_logger = logging.getLogger(__name__)


class AppendTimes:
    """The append times of one log."""

    __slots__ = ("_files", "_path", "_saved", "last")

    def __init__(self, files: Files, path: str) -> None:
        self.last: int | None = None
        self._saved: int | None = None
        self._files = files
        self._path = path

    @classmethod
    def read(cls, files: Files, path: str) -> "AppendTimes":
        """Those of a log that has been there before; a damaged file counts as none."""
        times = cls(files, path)
        try:
            times.last = times._saved = read_append_time(files, path)
        except CorruptFile as error:
            _logger.warning("The last append time is taken from the log itself: %s", error)
        return times

    def next(self, now_ms: int) -> int:
        """The append time of a batch that arrives now."""
        return now_ms if self.last is None else max(now_ms, self.last)

    def gave(self, append_time_ms: int) -> None:
        """Remember that a batch with this append time is in the log."""
        if self.last is None or append_time_ms > self.last:
            self.last = append_time_ms

    def save(self) -> None:
        """Write the last one down, if it is not."""
        if self.last is not None and self.last != self._saved:
            write_append_time(self._files, self._path, self.last)
            self._saved = self.last
