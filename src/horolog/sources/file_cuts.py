"""Logs in files, as they are cut at an append time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from horolog.errors import CorruptBatch, CorruptFile, StorageFailed
from horolog.sources.file_systems import Root
from horolog.sources.replicas import Replica
from horolog.sources.segment_parts import SegmentPart
from horolog.storage import names
from horolog.storage.directory.checkpoints import (
    AheadSpan,
    StampState,
    read_append_time,
    read_append_time_resets,
    read_cleaning,
    read_meta_properties,
    read_offsets,
    read_stamp_state,
)
from horolog.storage.directory.uptime import home_of
from horolog.storage.lookup.by_append_time import HeldPart, last_append_time
from horolog.storage.lookup.cuts import CutLog
from horolog.storage.names import TopicPartition
from horolog.storage.offline.transactions import open_before

_NEVER = -(1 << 63)


class _LogDir(NamedTuple):
    """Statements of a log directory about append times, read before its logs were listed."""

    state: StampState | None
    """Its clock of append times; None of another broker's."""
    is_home: bool
    """A broker of this machine writes there, or did until it was killed: it is no copy."""
    ends: Mapping[TopicPartition, int] | None
    """Ends of the logs when a broker stopped cleanly; None if it did not."""

    def settled_ms(
        self, partition: TopicPartition, replica: Replica, latest_ms: Callable[[], int]
    ) -> int:
        """Return the time before which a log has all that it was given; far ago if unknown.

        Logs of a directory that is copied while it is written may be of another time each.
        """
        is_whole = self.ends is not None and self.ends.get(partition) == replica.end
        if not (is_whole or self.is_home):
            return _NEVER
        return latest_ms() if self.state is None else self.state.settled_ms


class Clocks:
    """Clocks of append times of log directories, as they were before their logs were listed."""

    def __init__(self) -> None:
        self._found: dict[str, _LogDir] = {}

    def look(self, root: Root) -> None:
        """Read the clocks of the log directories that a path may be, be in, or contain."""
        above = root.path.rstrip("/")
        for directory in (above, *_parents(above), *_children(root)):
            if not (directory or root.is_local):  # above a bucket
                continue
            with suppress(StorageFailed):
                found = _look(root, directory)
                if found is not None:
                    self._found[directory] = found

    def settled_ms(
        self,
        partition: TopicPartition,
        replicas: Sequence[tuple[Root, Replica]],
        latest_ms: Callable[[], int],
    ) -> int:
        """Return the time before which a partition's directories have all that it was given.

        Args:
            latest_ms: the last append time of all, which stands for another broker's clock.
        """
        times = []
        for _, replica in replicas:
            found = self._found.get(_log_dir(replica))
            times += [_NEVER if found is None else found.settled_ms(partition, replica, latest_ms)]
        return min(times)

    def states(self, replicas: Sequence[tuple[Root, Replica]]) -> list[StampState]:
        """Return the clocks of a partition's directories, of those that have one."""
        found = [self._found.get(_log_dir(replica)) for _, replica in replicas]
        return [its.state for its in found if its is not None and its.state is not None]


def _look(root: Root, directory: str) -> _LogDir | None:
    """Read the clock of a directory; None if nothing tells what its logs have."""
    files, state, ends = root.files, None, None
    with suppress(CorruptFile):
        state = read_stamp_state(files, f"{directory}/{names.STAMP_CLOCK}")
    if files.exists(f"{directory}/{names.CLEAN_SHUTDOWN}"):
        with suppress(CorruptFile):
            ends = read_offsets(files, f"{directory}/{names.RECOVERY_POINTS}")
    home = "" if state is None else state.home
    is_home = home != "" and home == home_of(files, directory)
    return None if state is None and ends is None else _LogDir(state, is_home, ends)


def cut_log_of(
    partition: TopicPartition,
    parts: Sequence[SegmentPart],
    end: int,
    replicas: Sequence[tuple[Root, Replica]],
    states: Sequence[StampState],
) -> CutLog:
    """Return a partition's log, to be cut at an append time.

    Args:
        states: clocks of its directories.

    Raises:
        StorageFailed: the disk refused.
        CorruptFile: a file that tells of resets or compaction is damaged.
    """
    resets, floors, points = [], [], []
    for root, replica in replicas:
        at = f"{replica.directory}/"
        resets += read_append_time_resets(root.files, f"{at}{names.APPEND_TIME_RESETS}")
        floor = read_append_time(root.files, f"{at}{names.APPEND_TIME}")
        floors += [floor.last_ms] if floor is not None else []
        cleaned = read_offsets(root.files, f"{_log_dir(replica)}/{names.CLEANER_OFFSETS}")
        points += [cleaned[partition]] if partition in cleaned else []
        cleaning = read_cleaning(root.files, f"{at}{names.CLEANING_CHECKPOINT}")
        points += [min(cleaning, end)] if cleaning else []
    spans = [state.ahead[partition] for state in states if partition in state.ahead]
    held = [
        HeldPart(segment, part.start, part.end, part.segment.size)
        for part in parts
        for segment in (part.segment.open(part.root.files),)
    ]
    return CutLog(
        held,
        parts[0].start if parts else end,
        end,
        sorted(set(resets)),
        AheadSpan(min(span.since_ms for span in spans), max(span.floor_ms for span in spans))
        if spans
        else None,
        max(floors, default=None),
        max(points, default=None),
        any(partition in state.following for state in states),
    )


def opened_from(log: CutLog, root: Root, replica: Replica) -> tuple[int, Mapping[int, int]]:
    """Return the first offset of a log's files, and the transactions that are open there."""
    base = log.parts[0].segment.base_offset if log.parts else log.start
    return base, open_before(root.files, replica.directory, base) if base else {}


def latest_append_ms(log: CutLog) -> int:
    """Return the last append time of a log that is known; the smallest number if none is."""
    for segment, start, end, size in reversed(log.parts):
        with suppress(CorruptBatch):
            last = last_append_time(segment, end, size) if start < end else None
            if last is not None and last.known_ms is not None:
                return last.known_ms
    return _NEVER


def cluster_id_of(replicas: Iterator[tuple[Root, Replica]]) -> str | None:
    """Return the cluster id in the first log directory that has one."""
    for root, replica in replicas:
        path = f"{_log_dir(replica)}/{names.META_PROPERTIES}"
        meta = read_meta_properties(root.files, path, [])
        if meta is not None and meta.cluster_id is not None:
            return meta.cluster_id
    return None


def _log_dir(replica: Replica) -> str:
    return replica.directory.rpartition("/")[0]


def _parents(path: str) -> tuple[str, str]:
    above = path.rpartition("/")[0]
    return above, above.rpartition("/")[0]


def _children(root: Root) -> list[str]:
    entry = root.files.entry(root.path)
    if entry is None or not entry.is_directory:
        return []
    above = root.path.rstrip("/")
    return [
        f"{above}/{name}"
        for name in root.files.names_in(root.path)
        if names.partition_of(name) is None and "." not in name
    ]
