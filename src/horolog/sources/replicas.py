"""Finding partition directories and segments below the paths given to `load()`.

    <path>/.../<topic>-<partition>/<base offset, 20 digits>.log

A path may be a log directory, several of them, a partition directory, or one segment.
Several directories of one partition are its replicas (see `merge`). Directories that
Kafka is about to delete or has set aside have other names and are skipped.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import NamedTuple
from uuid import UUID

from horolog.errors import CorruptBatch, CorruptFile, Misconfigured, StorageFailed
from horolog.metadata.replicated import CommittedEnds
from horolog.sources.file_systems import Root
from horolog.sources.merge import EpochSpan
from horolog.sources.segments import ListedSegment
from horolog.storage import names
from horolog.storage.batches.reader import FEWEST_BYTES
from horolog.storage.directory.checkpoint_ids import LogStarts
from horolog.storage.directory.checkpoints import (
    EpochStart,
    read_epochs,
    read_offsets,
    topic_id_in,
)
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.listing import FileEntry
from horolog.storage.logs.epochs import disagreement
from horolog.storage.names import TopicPartition
from horolog.storage.offline.partition_reader import log_end
from horolog.storage.removal.leftovers import base_offsets, current_names, stable_look

_logger = logging.getLogger(__name__)


class Replica(NamedTuple):
    """One directory of a partition: its segments in order, the last without its torn tail.

    `end` is the offset after its last whole batch, `start` its log start offset. `is_dense`: each
    segment must end where the next begins, as no Kafka has compacted it and no segment was chosen.
    `topic_id` is that of its `partition.metadata`: directories of two topics of one name are no
    replicas.
    """

    directory: str
    partition: TopicPartition
    segments: tuple[ListedSegment, ...]
    start: int
    end: int
    is_dense: bool
    topic_id: UUID | None = None

    def joined(self, other: "Replica") -> "Replica":
        """Return the union with segments of the same directory that another path has found."""
        segments = {segment.base_offset: segment for segment in (*other.segments, *self.segments)}
        return self._replace(
            segments=tuple(segments[base] for base in sorted(segments)),
            start=min(self.start, other.start),
            end=max(self.end, other.end),
            is_dense=self.is_dense or other.is_dense,
        )

    def stretches(self) -> Iterator[tuple[ListedSegment, int, int]]:
        """Yield each segment with the offsets that it holds, `start` to before `end`."""
        ends = [*(later.base_offset for later in self.segments[1:]), self.end]
        for segment, end in zip(self.segments, ends, strict=True):
            start = max(segment.base_offset, self.start)
            if start < end:
                yield segment, start, end


def find_replicas(
    root: Root,
    *,
    may_miss: bool = False,
    may_have_any_name: bool = False,
    only_committed: bool = False,
    failed: dict[TopicPartition, str] | None = None,
) -> list[Replica]:
    """Return the replicas below a path, each up to its last batch that fits its CRC.

    The directory that the path leads to may have another name than topic-0 if it
    `may_have_any_name`: it is partition 0 of a topic of that name.

    Args:
        only_committed: partitions of a broker of a cluster end at their high watermarks.
        failed: gets a sentence about each partition that the disk does not give.

    Raises:
        StorageFailed: the disk refused, and there is no `failed`.
        Misconfigured: there is nothing at the path, or nothing of Kafka's, unless it `may_miss`.
    """

    def look() -> list[Replica]:
        root.files.close()  # what is open may have other names by now
        listed = _listed(root, may_miss=may_miss)
        return _replicas_in(
            root,
            listed,
            may_miss=may_miss,
            may_have_any_name=may_have_any_name,
            only_committed=only_committed,
            failed=failed,
        )

    return stable_look(look)


def _listed(root: Root, *, may_miss: bool) -> dict[str, list[ListedSegment]]:
    """List the segments below a root, by directory.

    Raises:
        FileMissing: a directory has changed while it was read.
    """
    entries = root.entries(may_miss=may_miss)
    listed: dict[str, dict[str, FileEntry]] = defaultdict(dict)
    for entry in entries:
        directory, _, name = entry.path.rpartition("/")
        listed[directory][name] = entry
    return {
        directory: segments
        for directory, present in listed.items()
        if (segments := _segments_of(root.files, directory, present))
    }


def _replicas_in(
    root: Root,
    by_directory: dict[str, list[ListedSegment]],
    *,
    may_miss: bool,
    may_have_any_name: bool,
    only_committed: bool,
    failed: dict[TopicPartition, str] | None,
) -> list[Replica]:
    """Return the replicas in directories that were listed.

    Raises:
        FileMissing: the last segment of one is gone, or another, since then.
    """
    log_dirs = {directory.rpartition("/")[0] for directory in by_directory}
    starts = {log_dir: LogStarts(root.files, log_dir) for log_dir in log_dirs}
    committed = {
        log_dir: CommittedEnds(root.files, log_dir, is_local=root.is_local) for log_dir in log_dirs
    }
    cleaned = _cleaned(root, log_dirs)
    notes: list[str] = []
    is_segment = root.path.endswith(names.LOG)

    def replica_in(directory: str) -> Replica | None:
        name = directory.rpartition("/")[2]
        partition = names.partition_of(name)
        if partition is None and may_have_any_name and root.path.startswith(directory):
            partition = TopicPartition(name, 0)
        if partition is None:
            return None
        try:
            return whole_replica(directory, partition)
        except FileMissing:
            raise
        except StorageFailed as error:
            if failed is None:
                raise
            failed[partition] = str(error)
            return None

    def whole_replica(directory: str, partition: TopicPartition) -> Replica:
        above, segments = directory.rpartition("/")[0], by_directory[directory]
        # What was the last one may be compacted by now: without it the log would be shorter.
        whole = segments[-1].open(root.files).whole_end()
        segments[-1] = segments[-1]._replace(size=whole.size)
        end = whole.next_offset
        topic_id = topic_id_in(root.files, directory, notes)
        ends_at = log_end(root.files, directory) if is_segment else end
        start = starts[above].of(partition, topic_id, segments[0].base_offset, ends_at)
        is_dense = not is_segment and (above, partition) not in cleaned
        if only_committed and not is_segment:
            last, end = end, committed[above].of(partition, topic_id, end)
            if end < last:
                segments = [segments[0], *(one for one in segments[1:] if one.base_offset < end)]
        return Replica(
            directory=directory,
            partition=partition,
            segments=tuple(segments),
            start=start,
            end=max(end, start),
            is_dense=is_dense,
            topic_id=topic_id,
        )

    found = root.map(replica_in, by_directory)
    replicas = [replica for replica in found if replica is not None]
    for note in chain(notes, *(log_starts.notes for log_starts in starts.values())):
        _warn_once(note)
    if not replicas and not failed and not may_miss:
        raise Misconfigured(_nothing_found(root, by_directory))
    return replicas


def _segments_of(
    files: Files, directory: str, present: Mapping[str, FileEntry]
) -> list[ListedSegment]:
    """Return the segments of a directory; `present` are its listed names.

    Raises:
        FileMissing: the directory has changed since then.
    """
    current = current_names(files, directory, present)
    later = {name: now for name, now in current.items() if name != now}
    if later:
        files.read_as(directory, later)
    found = []
    for base in base_offsets(current, names.LOG):
        name = names.segment_file(base, names.LOG)
        entry, stem = present[current[name]], name.removesuffix(names.LOG)
        found.append(
            ListedSegment(
                f"{directory}/{name}",
                base,
                entry.size,
                entry.inode,
                entry.size,
                is_being_replaced=any(name_now.startswith(stem) for name_now in later),
            )
        )
    return found


def _nothing_found(root: Root, directories: Iterable[str]) -> str:
    odd = sorted(directories)
    if odd:
        return (
            f"{odd[0]} holds segments, but its name is not <topic>-<partition>, so it is not "
            "known which partition they are of; rename it, e.g. to orders-0"
        )
    return (
        f"There is no Kafka log at {root.name}: a log directory, a partition directory "
        "(<topic>-<partition>) or a segment (<20 digits>.log) was expected"
    )


def _cleaned(root: Root, log_dirs: Iterable[str]) -> set[tuple[str, TopicPartition]]:
    """Return the log directory and partition of each log that a Kafka has compacted."""
    found: set[tuple[str, TopicPartition]] = set()
    for log_dir in log_dirs:
        try:
            offsets = read_offsets(root.files, f"{log_dir}/{names.CLEANER_OFFSETS}")
        except CorruptFile as error:
            _warn_once(f"{error}; reading as if there were none")
            continue
        found |= {(log_dir, partition) for partition in offsets}
    return found


@lru_cache(maxsize=1 << 10)
def _warn_once(note: str) -> None:
    """Log a warning once: a stream opens its files repeatedly."""
    _logger.warning("%s", note)


def epoch_spans(files: Files, replica: Replica) -> list[EpochSpan]:
    """Return the leader epoch of each offset range of a replica.

    From its checkpoint, or where there is none that its batches confirm from the batch headers.
    """
    try:
        epochs: Sequence[EpochStart] = read_epochs(
            files, f"{replica.directory}/{names.LEADER_EPOCHS}"
        )
    except CorruptFile as error:
        _logger.warning("%s; reading leader epochs from batch headers", error)
        epochs = ()
    if (
        not epochs
        or epochs[0].start_offset > replica.start
        or _are_contradicted(files, replica, epochs)
    ):
        epochs = _epochs_of_headers(files, replica)
    starts = [*epochs, EpochStart(-1, replica.end)]
    spans = [
        EpochSpan(
            max(first.start_offset, replica.start),
            min(later.start_offset, replica.end),
            first.epoch,
        )
        for first, later in pairwise(starts)
    ]
    # An epoch that begins at the end, or behind it, ends what others have of earlier epochs.
    return [
        span if span.start < span.end else span._replace(end=span.start)
        for span in spans
        if span.start < span.end or span.start >= replica.end
    ]


def _are_contradicted(files: Files, replica: Replica, epochs: Sequence[EpochStart]) -> bool:
    segments = [segment.open(files) for segment in replica.segments]
    try:
        wrong = disagreement(epochs, segments, replica.start)
    except FileMissing:
        return False  # reported when it is read
    if wrong is not None:
        _logger.warning(
            "%s: %s; reading leader epochs from batch headers", replica.directory, wrong
        )
    return wrong is not None


def _epochs_of_headers(files: Files, replica: Replica) -> list[EpochStart]:
    epochs = [EpochStart(-1, replica.start)]
    for segment in replica.segments:
        try:
            for _, header in segment.open(files).batches(FEWEST_BYTES).whole_headers():
                if header.leader_epoch > epochs[-1].epoch:
                    start = max(header.base_offset, replica.start)
                    epochs.append(EpochStart(header.leader_epoch, start))
        except CorruptBatch:
            continue  # reported when it is read
    return epochs
