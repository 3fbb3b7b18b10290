"""Files that were taken out of a log and are not deleted yet.

Files of deleted segments remain for `file.delete.delay.ms` under another name, so that readers
finish. Set-aside files remain for `retention.ms` (removal/set_aside.py).

Invariant: no segment of the log uses these files.
"""

from collections.abc import Sequence
from typing import NamedTuple

from horolog.config import TopicConfig
from horolog.storage import names
from horolog.storage.files import Files
from horolog.storage.producers.states import remove_snapshot
from horolog.storage.removal.retention import Because
from horolog.storage.removal.set_aside import set_aside_of
from horolog.storage.segments.segment import Segment


class DeletedSegment(NamedTuple):
    """Segment that retention deleted, and the reason."""

    base_offset: int
    size: int
    reason: str
    because: Because = Because.EXPIRED


class RemovedFiles:
    """Files to be deleted later. Only the thread that writes the log uses it."""

    __slots__ = ("_directory", "_files", "_set_aside", "_to_remove")

    def __init__(self, files: Files, directory: str, set_aside: Sequence[str]) -> None:
        """Start with the names of the directory's set-aside files."""
        self._files = files
        self._directory = directory
        self._to_remove: list[tuple[int, str]] = []  # monotonic ms from which on, and path
        self._set_aside = list(set_aside)

    def set_aside(self) -> list[tuple[str, int]]:
        """Return names and sizes of the set-aside files that exist."""
        paths = [(name, f"{self._directory}/{name}") for name in tuple(self._set_aside)]
        return [(name, self._files.size(path)) for name, path in paths if self._files.exists(path)]

    def add_set_aside(self, name: str) -> None:
        """Add the name of a file that was set aside."""
        if name not in self._set_aside:
            self._set_aside.append(name)

    def remove_segment_later(self, segment: Segment, due_ms: int) -> None:
        """Rename the files of a segment, and delete them from `due_ms` on (monotonic clock).

        Raises:
            StorageFailed: the disk refused.
        """
        self._to_remove += [(due_ms, path) for path in segment.mark_deleted()]
        remove_snapshot(self._files, self._directory, segment.base_offset)

    def remove_replaced_later(self, segment: Segment, due_ms: int) -> None:
        """Rename the files of a replaced segment for later deletion.

        Snapshots of producers remain.

        Raises:
            StorageFailed: the disk refused; to be called again.
        """
        known = {path for _, path in self._to_remove}
        paths = [path for path in segment.mark_deleted() if path not in known]
        self._to_remove += [(due_ms, path) for path in paths]

    @property
    def are_waiting(self) -> bool:
        """True if files wait for their deletion."""
        return bool(self._to_remove)

    def remove_due(self, monotonic_ms: int) -> int:
        """Delete the files whose `file.delete.delay.ms` has elapsed. Returns their number."""
        removed = 0
        for due_ms, path in list(self._to_remove):
            if due_ms <= monotonic_ms:
                self._files.remove(path)
                self._to_remove.remove((due_ms, path))
                removed += 1
        return removed

    def expire_set_aside(self, config: TopicConfig, now_ms: int) -> list[DeletedSegment]:
        """Delete files that were set aside `retention.ms` ago."""
        limit_ms, removed = config.retention_ms, []
        if limit_ms < 0 or "delete" not in config.cleanup_policy:
            return []
        for name in list(self._set_aside):
            path = f"{self._directory}/{name}"
            aside, size = set_aside_of(name), self._files.size(path)
            if self._files.exists(path) and aside is not None:
                age_ms = now_ms - self._files.modified_ms(path)
                if age_ms <= limit_ms:
                    continue
                self._files.remove(path)
                reason = f"{name} was set aside {age_ms} ms ago, retention.ms is {limit_ms}"
                removed.append(DeletedSegment(aside.base_offset, size, reason))
            self._files.remove(path + names.CUT_TIMES)  # also where the user removed the other
            self._set_aside.remove(name)
        return removed
