"""What a log directory writes down about its logs, for the next start to go by.

Three files: up to where the disk has each log for sure, where it starts, its high watermark.
A partition that is there and was not opened keeps the lines that were found about it.
"""

import logging
import threading
from collections.abc import Callable, Container, Mapping

from horolog.errors import StorageFailed
from horolog.storage import names
from horolog.storage.checkpoints import read_offsets, write_offsets
from horolog.storage.contents import set_aside
from horolog.storage.files import Files
from horolog.storage.log import Log
from horolog.storage.names import TopicPartition

_logger = logging.getLogger(__name__)


_MOST_SENTENCES = 10


class OffsetCheckpoints:
    """See the module. First `read`, then `keep`, then written by any number of threads."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._kept: dict[str, dict[TopicPartition, int]] = {}
        self._writing = threading.Lock()

    def read(self) -> Mapping[str, Mapping[TopicPartition, int]]:
        """All offsets by the name of their file; a damaged file counts as an empty one."""
        files = (names.RECOVERY_POINTS, names.LOG_START_OFFSETS, names.HIGH_WATERMARKS)
        self._kept = {name: self._read(name) for name in files}
        return self._kept

    def _read(self, name: str) -> dict[TopicPartition, int]:
        """Every line that can be read; of a damaged file a copy is kept beside it."""
        path, damage = self._path(name), list[str]()
        try:
            offsets = read_offsets(self._files, path, damage)
        except StorageFailed as error:
            offsets, damage = {}, [str(error)]
        for sentence in damage[:_MOST_SENTENCES]:
            _logger.warning("%s", sentence)
        if damage:
            kept = set_aside(self._files, path)
            _logger.error(
                "%s is damaged: %d line(s) of it count, and the file is kept as %s",
                *(path, len(offsets), kept),
            )
        return offsets

    def keep(self, partitions: Container[TopicPartition]) -> None:
        """Of all lines that were read, only those of these partitions are written again."""
        self._kept = {
            name: {key: offsets[key] for key in sorted(offsets) if key in partitions}
            for name, offsets in self._kept.items()
        }

    def write(self, logs: Mapping[TopicPartition, Log]) -> None:
        """Write down all three.

        Raises:
            StorageFailed: the disk refused; of each file the old or the new content is there.
        """
        self._write(names.RECOVERY_POINTS, logs, lambda log: log.recovery_point)
        self.write_starts(logs)
        self._write(names.HIGH_WATERMARKS, logs, lambda log: log.high_watermark)

    def write_starts(self, logs: Mapping[TopicPartition, Log]) -> None:
        """Write down where the logs start, so far as their first segments do not tell.

        Raises:
            StorageFailed: the disk refused; what was written down before stands.
        """
        self._write(names.LOG_START_OFFSETS, logs, _start_to_write)

    def _write(
        self,
        name: str,
        logs: Mapping[TopicPartition, Log],
        offset_of: Callable[[Log], int | None],
    ) -> None:
        with self._writing:  # what is older must have been written before this is asked for
            offsets = dict(self._kept.get(name, {}))
            for key, log in list(logs.items()):  # others may be made or deleted meanwhile
                offset = offset_of(log)
                if offset is not None:
                    offsets[key] = offset
            write_offsets(self._files, self._path(name), offsets)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"


def _start_to_write(log: Log) -> int | None:
    start = log.log_start_offset
    return start if start > log.segments[0].base_offset else None
