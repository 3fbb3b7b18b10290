"""Logs in files, as they are cut at an append time."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from horolog.errors import CorruptBatch, CorruptFile, StorageFailed
from horolog.sources.file_systems import Root
from horolog.sources.replicas import Replica
from horolog.sources.segment_parts import SegmentPart
from horolog.storage import names
from horolog.storage.directory.checkpoints import (
    StampState,
    read_append_time,
    read_append_time_resets,
    read_meta_properties,
    read_offsets,
    read_stamp_state,
)
from horolog.storage.lookup.by_append_time import HeldPart, last_append_time
from horolog.storage.lookup.cuts import CutLog
from horolog.storage.names import TopicPartition
from horolog.storage.offline.transactions import open_before

_NEVER = -(1 << 63)


class Clocks:
    """Clocks of append times of log directories, as they were before their logs were listed.

    What a log got before the time of its directory's clock was in the log then.
    """

    def __init__(self) -> None:
        self._found: dict[str, StampState] = {}

    def look(self, root: Root) -> None:
        """Read the clocks of the log directories that a path may be, be in, or contain."""
        above = root.path.rstrip("/")
        for directory in (above, *_parents(above), *_children(root)):
            with suppress(CorruptFile, StorageFailed):
                state = read_stamp_state(root.files, f"{directory}/{names.STAMP_CLOCK}")
                if state is not None:
                    self._found[directory] = state

    def of(self, replicas: Sequence[tuple[Root, Replica]]) -> StampState | None:
        """Return the earliest clock of the directories of a partition; None if one has none."""
        found = [self._found.get(_log_dir(replica)) for _, replica in replicas]
        known = [state for state in found if state is not None]
        return min(known, key=lambda state: state.settled_ms) if len(known) == len(found) else None


def cut_log_of(
    partition: TopicPartition,
    parts: Sequence[SegmentPart],
    end: int,
    replicas: Sequence[tuple[Root, Replica]],
    state: StampState | None,
) -> CutLog:
    """Return a partition's log, to be cut at an append time.

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
        None if state is None else state.ahead.get(partition),
        max(floors, default=None),
        max(points, default=None),
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
