"""Flushing a log: what the disk is known to have, and what a failed sync leaves in doubt.

Invariant: the disk has every record before the recovery point. After a sync that failed, the disk
may have forgotten pages that memory still has, and would report success without writing them; so
the log is in doubt, and refuses appends, until all from the recovery point on is written again.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from horolog.errors import StorageFailed
from horolog.storage import names
from horolog.storage.file_errors import SyncFailed
from horolog.storage.files import Files
from horolog.storage.logs.readable import ReadableLog

_PIECE_BYTES = 8 << 20


class Flusher:
    """Flushes one log, also in another thread while records are appended.

    Flushes take turns.

    It keeps what is known of the disk; the log itself is an argument, so that the files of a log
    are closed with its last reference, and not at the next collection of cycles.
    """

    __slots__ = (
        "_directory",
        "_due_ms",
        "_files",
        "_flushing",
        "has_new_names",
        "is_in_doubt",
        "on_failure",
        "recovery_point",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        *,
        recovery_point: int,
        is_in_doubt: bool,
    ) -> None:
        """Start with the recovery point and the doubt that an earlier process left.

        Args:
            recovery_point: all records before this offset are flushed.
            is_in_doubt: whether an earlier process has seen a sync fail, and none succeed since.
        """
        self.recovery_point = recovery_point
        """All records before this offset are flushed."""
        self.is_in_doubt = is_in_doubt
        """Whether a flush failed: appends are refused until one succeeds."""
        self.has_new_names = True
        """Whether the directory has files whose names may not be on the disk."""
        self.on_failure: Callable[[], None] = lambda: None
        """Called, by the thread that writes, after the disk has refused a write or a sync."""
        self._files = files
        self._directory = directory
        self._due_ms: int | None = None  # when a flush was last due, or nothing to flush
        self._flushing = threading.Lock()

    def flush(self, log: ReadableLog, up_to: int | None = None) -> None:
        """Wait until the disk has all records before `up_to`, by default all records.

        Raises:
            StorageFailed: the disk refused; the recovery point stays where it was.
        """
        with self._flushing:
            if self.is_in_doubt:
                self._flush_again(log)
            active = log.segments[-1]
            target = log.log_end_offset if up_to is None else up_to
            if target <= self.recovery_point:
                return
            try:
                for segment in log.segments_from(self.recovery_point):
                    if segment.base_offset < target:
                        segment.sync(indexes=segment is not active)
                self._sync_names()
            except SyncFailed:
                self.doubt()
                raise
            self.recovery_point = max(self.recovery_point, target)

    def _flush_again(self, log: ReadableLog) -> None:
        """End the doubt, in pieces: where the disk still fails, that costs one of them."""
        self.has_new_names = True
        self._sync_names()
        for segment in log.segments_from(self.recovery_point):
            point = max(self.recovery_point, segment.base_offset)
            while (written := segment.write_again(point, _PIECE_BYTES)) > point:
                segment.sync(indexes=False)
                self.recovery_point = point = written
        self._files.remove(self._sync_failed_path)
        self.is_in_doubt = False

    def doubt(self) -> None:
        """Record that a sync failed; the marker carries that state over a process restart."""
        self.is_in_doubt = True
        with suppress(StorageFailed):  # until a restart, memory knows it
            self._files.replace(self._sync_failed_path, b"", sync=False)
        self.on_failure()

    @property
    def _sync_failed_path(self) -> str:
        return f"{self._directory}/{names.SYNC_FAILED}"

    def _sync_names(self) -> None:
        if self.has_new_names:
            self.has_new_names = False  # first, for a roll may come meanwhile
            try:
                self._files.sync_path(self._directory)
            except StorageFailed:
                self.has_new_names = True
                raise

    @contextmanager
    def truncating(self) -> Iterator[None]:
        """No flush runs until the block ends; a sync that fails in it leaves the log in doubt."""
        with self._flushing:
            try:
                yield
            except SyncFailed:
                self.doubt()
                raise

    def is_due(self, log: ReadableLog, now_ms: int, flush_ms: int) -> bool:
        """Return True if `flush_ms` has elapsed with unflushed records."""
        if log.log_end_offset <= self.recovery_point:
            self._due_ms = now_ms
            return False
        if self._due_ms is None:
            self._due_ms = now_ms
        if now_ms - self._due_ms < flush_ms:
            return False
        self._due_ms = now_ms
        return True

    # Closing.

    @contextmanager
    def settling(self, log: ReadableLog) -> Iterator[None]:
        """No flush runs until the block ends; a doubt is ended first.

        Raises:
            StorageFailed: the disk refused; the log is still in doubt.
        """
        with self._flushing:
            if self.is_in_doubt:
                self._flush_again(log)
            yield

    def unsynced_paths(self, log: ReadableLog) -> list[str]:
        """List the files with records from the recovery point on, with their indexes."""
        if self.recovery_point >= log.log_end_offset:
            return []
        segments = log.segments_from(self.recovery_point)
        return [path for segment in segments for path in segment.paths]

    def synced_everything(self, log: ReadableLog) -> None:
        """The disk has all records of the log, and the names of its files."""
        self.has_new_names = False
        self.recovery_point = log.log_end_offset
