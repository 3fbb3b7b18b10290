"""Append times that never go backwards in a partition, not even when the clock does.

The floor is the last append time that this partition gave to a record, never a create time:
no later record gets an earlier one. Apache Kafka has no floor: its LogAppendTime is the
leader's clock as it is.

    append-time-checkpoint  the floor; written at every roll and close. After a kill recovery
                            reads later append times from the tail of the log (recovery/loading.py)
    append-time-resets      where the floor was lowered: one line per reset

A clock that was once far ahead leaves a floor far ahead. A *reset* lowers the floor to the
clock, from an offset on: by an operator's command, or by the first append to a log whose
records are all gone. Append times go back at these offsets and nowhere else, and no segment
holds records of both sides (`Log`). The line of a reset is synced before any record is
appended below the old floor. The checkpoint names how many resets it knows of, so that one
that a kill left behind is not taken for the floor.
"""

import logging
from contextlib import suppress

from horolog.errors import CorruptFile, StorageFailed
from horolog.storage import names
from horolog.storage.directory.checkpoints import (
    AppendTimeFloor,
    AppendTimeReset,
    read_append_time,
    read_append_time_resets,
    write_append_time,
    write_append_time_resets,
)
from horolog.storage.files import Files

_logger = logging.getLogger(__name__)


class AppendTimes:
    """The append times of one log.

    `last` is the floor in milliseconds, None before the first record with an append time;
    `resets` are in order of offsets, and replaced, never changed.
    """

    __slots__ = ("_directory", "_files", "_saved", "_saved_resets", "last", "resets")

    def __init__(self, files: Files, directory: str) -> None:
        self.last: int | None = None
        self.resets: tuple[AppendTimeReset, ...] = ()
        self._saved: AppendTimeFloor | None = None
        self._saved_resets: tuple[AppendTimeReset, ...] | None = ()  # None: a write failed
        self._files = files
        self._directory = directory

    @classmethod
    def read(cls, files: Files, directory: str) -> "AppendTimes":
        """Read the floor that an earlier process wrote.

        A damaged file counts as missing, with a warning.
        """
        times = cls(files, directory)
        try:
            times.resets = times._saved_resets = tuple(
                read_append_time_resets(files, times._resets_path)
            )
        except CorruptFile as error:
            _logger.warning("Where append times were reset is unknown: %s", error)
        try:
            times._saved = read_append_time(files, times._floor_path)
        except CorruptFile as error:
            _logger.warning("The last append time is taken from the log itself: %s", error)
        if times._saved is not None:
            times.last = times._saved.last_ms
        if times.resets and (times._saved is None or times._saved.resets != len(times.resets)):
            times.last = times.resets[-1].new_ms  # written before the last reset, or missing
        return times

    @property
    def reset_offset(self) -> int:
        """First offset after the last reset; -1 without a reset."""
        return self.resets[-1].offset if self.resets else -1

    def next(self, now_ms: int) -> int:
        """Return the append time of a batch that arrives now."""
        last = self.last
        return now_ms if last is None or last < now_ms else last

    def gave(self, append_time_ms: int) -> None:
        """Raise the floor to the append time of a batch that is in the log."""
        if self.last is None or append_time_ms > self.last:
            self.last = append_time_ms

    def found(self, append_time_ms: int | None, next_offset: int) -> None:
        """Raise the floor to the largest append time of a segment that ends before `next_offset`.

        One from before the last reset does not count.
        """
        if append_time_ms is not None and next_offset > self.reset_offset:
            self.gave(append_time_ms)

    def reset(self, offset: int, now_ms: int) -> AppendTimeReset:
        """Lower the floor to the clock for records from `offset` on, and write that down.

        Raises:
            StorageFailed: the disk refused; the floor is what it was.
        """
        assert self.last is not None
        reset = AppendTimeReset(offset, self.last, now_ms, now_ms)
        self._write_resets((*self.resets, reset))
        self.last = now_ms
        with suppress(StorageFailed):  # the list alone says it, and the next save tries again
            self.save()
        return reset

    def truncate(self, end_offset: int, *, with_records: bool = False) -> None:
        """Move resets beyond the log end to the log end, because the records after it were cut off.

        `with_records`: they go with the records; the leader has not given out these times.
        """
        kept = tuple(reset._replace(offset=min(reset.offset, end_offset)) for reset in self.resets)
        if with_records:
            kept = tuple(reset for reset in self.resets if reset.offset < end_offset)
        if kept != self.resets:
            self._write_resets(kept)

    def save(self) -> None:
        """Write the floor to its file, unless the file is up to date."""
        if self._saved_resets != self.resets:
            self._write_resets(self.resets)
        if self.last is None:
            return
        floor = AppendTimeFloor(self.last, len(self.resets))
        if floor != self._saved:
            write_append_time(self._files, self._floor_path, floor)
            self._saved = floor

    def _write_resets(self, resets: tuple[AppendTimeReset, ...]) -> None:
        self._saved_resets = None  # a write that fails may have replaced the file all the same
        if resets or self._files.exists(self._resets_path):
            write_append_time_resets(self._files, self._resets_path, resets)
            self._files.sync_path(self._directory)
        self.resets = self._saved_resets = resets

    @property
    def _floor_path(self) -> str:
        return f"{self._directory}/{names.APPEND_TIME}"

    @property
    def _resets_path(self) -> str:
        return f"{self._directory}/{names.APPEND_TIME_RESETS}"
