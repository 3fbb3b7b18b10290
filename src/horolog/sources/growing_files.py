"""Log in files for streams, while brokers append to it and delete from it.

Each look lists the files. Only where something has changed since the look before, logs are opened
again: a log ends at its last whole batch then, and starts at its log start offset or first segment.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace

from horolog.client import FoundOffset
from horolog.errors import Misconfigured
from horolog.sources.bounds import Bounds
from horolog.sources.file_log import FileLog
from horolog.sources.file_systems import Root
from horolog.sources.options import ReadOptions
from horolog.sources.plan import BrokerStretch, SegmentStretch
from horolog.sources.row_filter import RowFilter
from horolog.storage.file_errors import FileMissing
from horolog.storage.listing import FileEntry
from horolog.storage.names import TopicPartition

REMOTE_LOOK_S = 1.0
"""Seconds between two listings of an object store, which charges for each."""

_VANISHED_AGAIN = 3


class GrowingFiles:
    """Logs in files that a stream reads repeatedly. Close it after use."""

    def __init__(self, options: ReadOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock  # in seconds
        self._stack = ExitStack()
        self._roots = [
            self._stack.enter_context(Root(path, options.store)) for path in options.paths
        ]
        self._is_local = all(root.is_local for root in self._roots)
        self._listed: list[list[FileEntry]] | None = None
        self._listed_at = 0.0
        self._log: FileLog | None = None
        self._latest: dict[TopicPartition, int] = {}

    def __enter__(self) -> "GrowingFiles":
        return self

    def __exit__(self, *exc: object) -> None:
        self._forget()
        self._stack.close()

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """Topic ids by name, as of the last look at the files."""
        return {} if self._log is None else self._log.topic_ids

    # As `bounds.StreamLog`.

    def partitions(self, *, may_miss: bool = False) -> Collection[TopicPartition]:
        """Return the partitions that the read subscribes to.

        Raises:
            Misconfigured: one that is named is not there, or there is no log at all, unless those
                `may_miss`.
        """
        if not may_miss:
            self._forget()  # it may have been opened with something missing
        return self._look(may_miss=may_miss).partitions()

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition."""
        return self._opened().earliest(self._held(partitions))

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the present end of each partition."""
        log = self._look(may_miss=True)
        held = self._held(partitions)
        missing = held - self._latest.keys()
        self._latest |= log.latest(missing)
        return {partition: self._latest[partition] for partition in held}

    def cut_ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return where a read as of a time ends, by partition; empty for any other read."""
        return self._opened().cut_ends(self._held(partitions))

    def at_or_after(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """Return the earliest offset at or after each time; None where no record is that late."""
        held = self._held(times_ms)
        return self._opened().at_or_after({partition: times_ms[partition] for partition in held})

    def none_before(
        self, from_ms: int, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return an offset of each partition before which no record reaches a time."""
        found = self.at_or_after(dict.fromkeys(partitions, from_ms))
        return {partition: at for partition, at in found.items() if at is not None}

    def time_at(self, partition: TopicPartition, offset: int) -> int | None:
        """Return the time of the first record of the batch that holds or follows an offset.

        None where there is none, or it has no timestamp.
        """
        return self._opened().time_at(partition, offset)

    def largest(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, FoundOffset | None]:
        """Return None for each partition: its largest time is unknown without reading the log."""
        return dict.fromkeys(partitions)

    def now_ms(self) -> None:
        """Return None: files have no clock."""

    def wait_for_records(self, positions: Mapping[TopicPartition, int], max_wait_ms: int) -> None:
        """Sleep for `max_wait_ms`: files do not announce that they grow."""
        time.sleep(max_wait_ms / 1000)

    # What to read.

    def segments(self, stretches: Iterable[BrokerStretch]) -> list[SegmentStretch]:
        """Return the stretches of files that hold the offsets of broker stretches.

        Raises:
            DataLost: some are gone, and data loss is to fail.
        """
        log = self._look(may_miss=True)
        found: list[SegmentStretch] = []
        for stretch in stretches:
            bounds = {stretch.partition: Bounds(stretch.start, stretch.end)}
            row_filter = RowFilter().within(stretch.times).within(self._options.appended)
            pieces = log.stretches(bounds, row_filter)
            found += [replace(piece, times=stretch.times) for piece in pieces]
        return found

    # Details.

    def _look(self, *, may_miss: bool) -> FileLog:
        """Return the log as it is now, opened again if the files have changed."""
        now = self._clock()
        is_due = self._is_local or now - self._listed_at >= REMOTE_LOOK_S
        if self._log is None or is_due:
            listed = [_entries(root, may_miss=may_miss) for root in self._roots]
            if self._log is None or listed != self._listed:
                self._forget()
                self._log = self._open(may_miss=may_miss)
                self._listed = listed
            self._listed_at = now
        return self._log

    def _open(self, *, may_miss: bool) -> FileLog:
        for _ in range(_VANISHED_AGAIN):
            try:
                return FileLog(self._options, may_miss=may_miss)
            except FileMissing:  # deleted since it was listed
                continue
        return FileLog(self._options, may_miss=may_miss)

    def _opened(self) -> FileLog:
        return self._look(may_miss=True) if self._log is None else self._log

    def _held(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions that still exist: files may vanish between two questions."""
        return set(partitions) & set(self._opened().partitions())

    def _forget(self) -> None:
        if self._log is not None:
            self._log.__exit__()
        self._log, self._latest = None, {}


def _entries(root: Root, *, may_miss: bool) -> list[FileEntry]:
    found = root.matches(may_miss=may_miss)
    try:
        return [entry for match in found for entry in match.entries(may_miss=True)]
    except Misconfigured:
        if not may_miss:
            raise
        return []
