"""The checkpoints of a log directory, which the next start reads.

Four files of Kafka's: up to where the disk has each log for sure, where it starts, its high
watermark, and up to where it was cleaned, if it ever was. Next to them is one of ours: for which
topic they were written (directory/checkpoint_ids.py).

A partition that is there and was not opened keeps the lines that were found about it. Those
of a partition that is not there are removed, at a start, at its deletion, and at the latest
before one of the same name is made: they would be taken for its own.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from horolog.errors import StorageFailed
from horolog.storage import names
from horolog.storage.directory.checkpoint_ids import (
    NO_IDS,
    Checkpointed,
    CheckpointId,
    read_checkpoint_ids,
    write_checkpoint_ids,
)
from horolog.storage.directory.checkpoints import read_offsets, write_offsets
from horolog.storage.directory.contents import set_aside
from horolog.storage.files import Files
from horolog.storage.logs.log import Log
from horolog.storage.names import TopicPartition

_logger = logging.getLogger(__name__)


_MOST_SENTENCES = 10


class OffsetCheckpoints:
    """Kafka's checkpoints of a directory.

    Call `read`, then `keep`; then any number of threads may write.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._found: dict[str, dict[TopicPartition, int]] = {}
        self._found_ids = NO_IDS
        self._starts_are_ours = False  # the file of log starts that was found
        self._left_alone: frozenset[TopicPartition] = frozenset()
        self._on_disk: dict[str, Collection[TopicPartition]] = {}  # of which there are lines
        self._ids_on_disk: Collection[TopicPartition] = ()
        self._damaged: set[str] = set()  # files that were found so
        # What was written last, of files that are skipped where it is the same.
        self._written: dict[str, dict[TopicPartition, int]] = {}
        self._writing = threading.Lock()

    def read(self, which: Collection[str] | None = None) -> None:
        """Read all files, or the given ones; of a damaged file the valid lines count."""
        for name in _OFFSETS:
            self._found[name] = self._read(name) if which is None or name in which else {}
        self._on_disk.update(self._found)
        for name in _SKIPPED - self._damaged:
            self._written[name] = dict(self._found[name])
        try:
            self._found_ids = read_checkpoint_ids(self._files, self._path(names.CHECKPOINT_IDS))
        except StorageFailed as error:
            _logger.warning("Checkpoints count for any topic of their name: %s", error)
        self._ids_on_disk = self._found_ids.entries.keys()
        starts = self._path(names.LOG_START_OFFSETS)
        self._starts_are_ours = self._found_ids.are_of(self._files, starts)

    def _read(self, name: str) -> dict[TopicPartition, int]:
        """Return every line that can be read, and keep a copy of a damaged file."""
        path, damage = self._path(name), list[str]()
        try:
            offsets = read_offsets(self._files, path, damage)
        except StorageFailed as error:
            offsets, damage = {}, [str(error)]
        for sentence in damage[:_MOST_SENTENCES]:
            _logger.warning("%s", sentence)
        if damage:
            self._damaged.add(name)
            kept = set_aside(self._files, path)
            _logger.error(
                "%s is damaged: %d line(s) of it count, and the file is kept as %s",
                path,
                len(offsets),
                kept,
            )
        return offsets

    def of(self, partition: TopicPartition) -> Checkpointed:
        """Return the checkpoints that were read for a partition."""
        return Checkpointed(
            self._found[names.RECOVERY_POINTS].get(partition),
            self._found[names.LOG_START_OFFSETS].get(partition),
            self._found_ids.entries.get(partition),
            self._starts_are_ours,
            self._found[names.HIGH_WATERMARKS].get(partition),
            self._found[names.CLEANER_OFFSETS].get(partition),
        )

    def keep(
        self, left_alone: Collection[TopicPartition], logs: Mapping[TopicPartition, Log]
    ) -> None:
        """Keep the lines of partitions that were left alone; remove those of absent ones.

        Args:
            left_alone: partitions that are there and were not opened.
        """
        self._left_alone = frozenset(left_alone)
        present = {*left_alone, *logs}
        self.forget({key for keys in self._on_disk.values() for key in keys} - present, logs)

    def forget(self, gone: Iterable[TopicPartition], logs: Mapping[TopicPartition, Log]) -> None:
        """Remove the lines of partitions that are not there any more.

        Where the disk refuses, they are removed before one of the same name is made.
        """
        try:
            self.make_room(gone, logs)
        except StorageFailed as error:
            _logger.warning("Lines of deleted partitions stay in the checkpoints: %s", error)

    def make_room(self, keys: Iterable[TopicPartition], logs: Mapping[TopicPartition, Log]) -> None:
        """Remove the lines of these partitions from the files on disk.

        Raises:
            StorageFailed: the disk refused; some may still be there.
        """
        keys = set(keys)
        with self._writing:
            self._left_alone -= keys
        for name in _OFFSETS:
            with self._writing:
                if not keys.isdisjoint(self._on_disk.get(name, ())):
                    self._write(name, logs)
        with self._writing:
            if not keys.isdisjoint(self._ids_on_disk):
                self._write(names.LOG_START_OFFSETS, logs)

    def write(self, logs: Mapping[TopicPartition, Log], only: str | None = None) -> None:
        """Write all files, or one of them. Two of them are written only if they have changed.

        Raises:
            StorageFailed: the disk refused; of each file the old or the new content is there.
        """
        for name in _OFFSETS if only is None else (only,):
            with self._writing:
                self._write(name, logs)

    def note_cleaned(self, partition: TopicPartition, offset: int) -> None:
        """Write down up to where a log was cleaned, where no log is open; the other lines stay.

        Raises:
            StorageFailed: the disk refused; the earlier content stays.
        """
        with self._writing:
            found = self._found[names.CLEANER_OFFSETS]
            found[partition] = offset
            self._left_alone |= found.keys()
            self._write(names.CLEANER_OFFSETS, {})

    # Under the lock: what is older must have been written before newer offsets are asked for.

    def _write(self, name: str, logs: Mapping[TopicPartition, Log]) -> None:
        found, offset_of = self._found.get(name, {}), _OFFSETS[name]
        offsets = {key: found[key] for key in sorted(self._left_alone) if key in found}
        for key, log in dict(logs).items():  # others may be made or deleted meanwhile
            offset = offset_of(log)
            if offset is not None:
                offsets[key] = offset
        if name in _SKIPPED and offsets == self._written.pop(name, None):
            self._written[name] = offsets
            return
        self._on_disk[name] = {*self._on_disk.get(name, ()), *offsets}  # a failure may leave either
        before = None
        if name == names.LOG_START_OFFSETS:
            before = partial(self._write_ids, logs)
        write_offsets(self._files, self._path(name), offsets, before)
        self._on_disk[name] = offsets.keys()
        if name in _SKIPPED:
            self._written[name] = offsets

    def _write_ids(self, logs: Mapping[TopicPartition, Log], new_starts: str) -> None:
        found = self._found_ids.entries if self._starts_are_ours else {}
        ids = {key: found[key] for key in sorted(self._left_alone) if key in found}
        for key, log in dict(logs).items():
            if log.topic_id is not None and not log.retention_exempt:
                ids[key] = CheckpointId(log.topic_id, log.log_start_offset)
        path, written_ns = self._path(names.CHECKPOINT_IDS), self._files.modified_ns(new_starts)
        write_checkpoint_ids(self._files, path, ids, written_ns)
        self._ids_on_disk = ids.keys()

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"


def _start_to_write(log: Log) -> int | None:
    """Return the log start for Kafka's file, unless the first segment shows it."""
    start = log.log_start_offset
    return start if start > log.segments[0].base_offset else None


_SKIPPED = frozenset({names.CLEANER_OFFSETS, names.HIGH_WATERMARKS})
"""Most logs are never cleaned; in a cluster, high watermarks are written every few seconds."""

_OFFSETS: dict[str, Callable[[Log], int | None]] = {
    names.RECOVERY_POINTS: lambda log: log.recovery_point,
    names.LOG_START_OFFSETS: _start_to_write,
    names.HIGH_WATERMARKS: lambda log: log.high_watermark,
    names.CLEANER_OFFSETS: lambda log: log.cleaner_point,
}
