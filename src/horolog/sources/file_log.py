"""A log in files for planners: its start, end and offsets by time, and stretches to read.

Replicas of a partition are merged first (see `merge`); from then on a partition is a
row of parts, each of one segment file.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace

from horolog.client import AskCut, PartitionCut
from horolog.errors import CorruptBatch, Damaged, Misconfigured, StorageFailed
from horolog.metadata.open_transactions import decided_in
from horolog.record.search import find_at_or_after
from horolog.record.transactions import AbortedTransaction
from horolog.sources.bounds import Bounds, data_lost, first_time, taken_bounds
from horolog.sources.cuts import ends_as_of
from horolog.sources.file_cuts import (
    Clocks,
    cluster_id_of,
    cut_log_of,
    latest_append_ms,
    opened_from,
)
from horolog.sources.file_systems import Root
from horolog.sources.limits import subscribed
from horolog.sources.options import ReadOptions
from horolog.sources.plan import SegmentStretch
from horolog.sources.replicas import Replica, find_replicas
from horolog.sources.row_filter import RowFilter
from horolog.sources.segment_parts import (
    SegmentPart,
    has_holes,
    headers_of,
    in_full,
    may_reach,
    merged_parts,
    narrowed_in_time,
    stretch_of,
)
from horolog.sources.segments import ListedSegment
from horolog.storage.batches.reader import FEWEST_BYTES, BatchReader
from horolog.storage.directory.checkpoints import kafka_uuid
from horolog.storage.file_errors import FileMissing
from horolog.storage.lookup.cuts import CutLog, cut_log, doubts_of, unfinished
from horolog.storage.names import INTERNAL_TOPICS, TopicPartition
from horolog.storage.offline.transactions import (
    FileTransactions,
    OpenLogPart,
    find_transactions,
    open_before,
)

_MAX_BATCH_BYTES = 1 << 30


class FileLog:
    """The logs below the paths of a read, as they were when this was made.

    Close it after use.

    Topics that are named, and logs at all, must be there unless they `may_miss`. A log that
    `is_cut` also has the partitions that the disk does not give, which are inexact.

    Raises:
        Misconfigured: they are not, or directories are of two topics of one name.
    """

    def __init__(
        self, options: ReadOptions, *, may_miss: bool = False, is_cut: bool = False
    ) -> None:
        self._options = options
        self._is_cut = is_cut or options.as_of is not None
        self._may_miss = may_miss
        self._stack = ExitStack()
        self._parts: dict[TopicPartition, list[SegmentPart]] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._failed: dict[TopicPartition, str] | None = {} if is_cut else None
        self._replicas: dict[TopicPartition, list[tuple[Root, Replica]]] = {}
        self._transactions: dict[TopicPartition, FileTransactions] = {}
        self._clocks = Clocks()
        self._latest_ms: int | None = None
        self._of_topic: dict[str, Replica] = {}  # one that has a topic id
        self._compacted: dict[TopicPartition, bool] = {}
        self.topic_ids: dict[str, str] = {}
        """Topic ids by name from `partition.metadata`; empty in logs of Kafka before 2.8."""
        with ExitStack() as undo:
            undo.callback(self._stack.close)
            self._open()
            undo.pop_all()

    def __enter__(self) -> "FileLog":
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def _open(self) -> None:
        by_directory: dict[tuple[TopicPartition, str], tuple[Root, Replica]] = {}
        named = set()
        for path in self._options.paths:
            root = self._stack.enter_context(Root(path, self._options.store))
            if self._is_cut:
                for match in root.matches(may_miss=True):
                    self._clocks.look(match)
            for match, replica in self._found(root):
                if match.path.startswith(replica.directory):
                    named.add(replica.partition)
                # Paths may overlap, or be several segments of one directory.
                key = replica.partition, replica.directory
                _, known = by_directory.get(key, (root, replica))
                by_directory[key] = root, replica.joined(known)
        replicas: dict[TopicPartition, list[tuple[Root, Replica]]] = defaultdict(list)
        for (partition, _), root_and_replica in by_directory.items():
            replicas[partition].append(root_and_replica)
        failed = self._failed or {}
        chosen = self._selected(replicas.keys() | failed.keys(), named)
        self._failed = {partition: failed[partition] for partition in chosen if partition in failed}
        for partition in chosen:
            if partition in failed:
                continue
            found = replicas[partition]
            self._check_topic([replica for _, replica in found])
            self._parts[partition] = parts = list(merged_parts(found))
            self._ends[partition] = max(replica.end for _, replica in found)
            first = parts[0].segment if parts else None
            # Its snapshots say what is open where the log begins.
            found.sort(key=lambda its: first not in its[1].segments)
            self._replicas[partition] = found

    def _found(self, root: Root) -> list[tuple[Root, Replica]]:
        """Return the replicas below a path, each with the match that it was found below."""
        matches = root.matches(may_miss=self._may_miss)
        may_miss = self._may_miss or len(matches) > 1
        found = [
            (match, replica)
            for match in matches
            for replica in find_replicas(
                match,
                may_miss=may_miss,
                may_have_any_name=self._options.may_have_any_name,
                only_committed=not self._options.uncommitted,
                failed=self._failed,
            )
        ]
        if not found and not self._failed and not self._may_miss:
            raise Misconfigured(f"Nothing that matches {root.name} is or holds a Kafka log")
        return found

    def _check_topic(self, found: Sequence[Replica]) -> None:
        for replica in found:
            if replica.topic_id is None:
                continue
            topic, topic_id = replica.partition.topic, kafka_uuid(replica.topic_id)
            other = self._of_topic.setdefault(topic, replica)
            if other.topic_id != replica.topic_id:
                raise Misconfigured(
                    f"{other.directory} and {replica.directory} are of two topics named {topic}, "
                    f"with the ids {self.topic_ids[topic]} and {topic_id}: it was deleted and "
                    "created again. Read one of them alone"
                )
            self.topic_ids[topic] = topic_id

    def _selected(
        self, present: Collection[TopicPartition], named: Collection[TopicPartition]
    ) -> list[TopicPartition]:
        if self._options.subscription is not None:
            where = f"below {', '.join(path.name for path in self._options.paths)}"
            return subscribed(self._options.subscription, present, where, may_miss=self._may_miss)
        return sorted(
            partition
            for partition in present
            if partition.topic not in INTERNAL_TOPICS or partition in named
        )

    # As `bounds.BoundedLog`.

    def partitions(self) -> Collection[TopicPartition]:
        """Return the partitions that the read subscribes to."""
        return [*self._parts, *self._failed] if self._failed else self._parts.keys()

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition."""
        return {
            partition: parts[0].start if (parts := self._parts[partition]) else self._end(partition)
            for partition in partitions
        }

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each partition, or the start of its first undecided transaction."""
        if not self._options.read_committed:
            return {partition: self._end(partition) for partition in partitions}
        return {
            partition: self._transactions_of(partition).last_stable_offset
            for partition in partitions
        }

    def at_or_after(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """Return the earliest offset at or after each time; None where no record is that late.

        A committed read has none where an undecided transaction begins before it, as at a broker.
        """
        ends, found = self.latest(times_ms), {}
        for partition, timestamp_ms in times_ms.items():
            at = self._find_time(partition, timestamp_ms)
            found[partition] = at if at is not None and at < ends[partition] else None
        return found

    def time_at(self, partition: TopicPartition, offset: int) -> int | None:
        """Return the time of the first record of the batch that holds or follows an offset."""
        for part in self._parts.get(partition, []):
            if offset < part.end:
                position = part.segment.open(part.root.files).position_for(None, offset)
                for _, _, header in headers_of(part, position):
                    if header.next_offset > offset:
                        return first_time(header)
        return None

    def cut_ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return where a read as of a time ends, by partition; empty for any other read.

        Raises:
            Misconfigured: the partitions cannot be cut there exactly.
        """
        options = self._options
        return ends_as_of(self, options.as_of, partitions, committed=options.read_committed)

    def cluster_id(self) -> str | None:
        """Return the cluster id of the log directories; None if they have none."""
        return cluster_id_of(its for found in self._replicas.values() for its in found)

    def cut(
        self, asks: Mapping[TopicPartition, AskCut]
    ) -> Mapping[TopicPartition, PartitionCut | str]:
        """Cut partitions at append times; a sentence about one that cannot be cut."""
        failed = self._failed or {}
        return {key: failed.get(key) or self._cut(key, ask) for key, ask in asks.items()}

    def _cut(self, partition: TopicPartition, ask: AskCut) -> PartitionCut | str:
        try:
            log, replicas = self._cut_log(partition), self._replicas[partition]
            root, replica = replicas[0]
            settled_ms = self._clocks.settled_ms(partition, replicas, self._latest_append_ms)
            cut = cut_log(log, ask.at, settled_ms)
            found = unfinished(
                log,
                cut.offset,
                lambda offset: opened_from(log, root, replica),
                behind=ask.behind,
                since=ask.since,
            )
        except (Damaged, StorageFailed) as error:
            return str(error)
        return PartitionCut(cut.offset, cut.why, tuple(found), None, doubts_of(log))

    def _cut_log(self, partition: TopicPartition) -> CutLog:
        replicas, parts = self._replicas[partition], self._parts[partition]
        states = self._clocks.states(replicas)
        return cut_log_of(partition, parts, self._end(partition), replicas, states)

    def _latest_append_ms(self) -> int:
        """Return the last append time of all partitions, which stands for a clock."""
        if self._latest_ms is None:
            self._latest_ms = max(map(self._last_append_ms, self._parts), default=-(1 << 63))
        return self._latest_ms

    def _last_append_ms(self, partition: TopicPartition) -> int:
        """Return the last append time of a partition; the smallest number if it is unknown."""
        with suppress(Damaged, StorageFailed):
            return latest_append_ms(self._cut_log(partition))
        return -(1 << 63)

    # What to read.

    def stretches(
        self, bounds: Mapping[TopicPartition, Bounds], row_filter: RowFilter
    ) -> list[SegmentStretch]:
        """Return the stretches of files that may hold records of the filter within the bounds.

        Raises:
            DataLost: something within the bounds is gone, and data loss is to fail.
        """
        stretches: list[SegmentStretch] = []
        for partition, start, end in taken_bounds(bounds, row_filter):
            aborted = self._aborted(partition, start, end)
            parts = self._in_time(self._within(partition, start, end), row_filter)
            topic_id = self.topic_ids.get(partition.topic)
            stretches += [stretch_of(partition, part, aborted, topic_id) for part in parts]
        return stretches

    def _within(self, partition: TopicPartition, start: int, end: int) -> list[SegmentPart]:
        """Return the parts of an offset range; offsets that no part has are lost data."""
        position = start
        found = []
        for part in self._parts.get(partition, []):
            first, last = max(part.start, start), min(part.end, end)
            if first < last:
                self._check_gap(partition, position, first)
                found.append(part._replace(start=first, end=last))
                position = last
        self._check_gap(partition, position, end)
        return self._up_to_their_ends(partition, found)

    def _up_to_their_ends(
        self, partition: TopicPartition, parts: list[SegmentPart]
    ) -> list[SegmentPart]:
        """Return the parts; report a gap where one ends before the next begins."""
        followed = [part for part in parts if part.is_followed]
        if not followed:
            return parts
        ended = dict(zip(followed, parts[0].root.map(in_full, followed), strict=True))
        found = []
        for part in parts:
            segment, end = ended.get(part, (part.segment, None))
            if end is not None and end < part.end and not self.is_compacted(partition):
                self._check_gap(partition, max(end, part.start), part.end)
            found.append(part._replace(segment=segment))
        return found

    def is_compacted(self, partition: TopicPartition) -> bool:
        """Return True if compaction can have left offsets out of a partition."""
        if partition not in self._compacted:
            self._compacted[partition] = any(map(has_holes, self._parts[partition]))
        return self._compacted[partition]

    def _check_gap(self, partition: TopicPartition, start: int, end: int) -> None:
        if start < end:
            data_lost(
                self._options,
                f"Offsets {start} to {end - 1} of {partition} are in none of the files",
            )

    def _in_time(self, parts: list[SegmentPart], row_filter: RowFilter) -> list[SegmentPart]:
        """Return the parts that may hold a time of the filter."""
        if not row_filter.windows or not parts:
            return parts

        def narrowed(part: SegmentPart) -> SegmentPart | None:
            segment = part.segment.open(part.root.files, part.root.block_cache)
            try:
                return narrowed_in_time(part, segment, row_filter)
            except (FileMissing, CorruptBatch):
                return part  # the task that reads it reports it

        found = parts[0].root.map(narrowed, parts)
        return [part for part in found if part is not None]

    # Details.

    def _end(self, partition: TopicPartition) -> int:
        parts = self._parts[partition]
        return parts[-1].end if parts else self._ends[partition]

    def _aborted(
        self, partition: TopicPartition, start: int, end: int
    ) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions that reach into `[start, end)`, for a committed read.

        Raises:
            DataLost: damage hides them, and data loss is to fail.
        """
        if not self._options.read_committed:
            return ()
        found, options = self._transactions_of(partition), self._options
        if found.damage is not None and found.known_to < end:
            fails = options.fail_on_data_loss or options.fail_on_damage
            data_lost(
                replace(options, fail_on_data_loss=fails),
                f"Which transactions of {partition} are committed is unknown from offset "
                f"{found.known_to} on: {found.damage}",
            )
        return tuple(
            transaction
            for transaction in found.aborted
            if transaction.first_offset < end
            and (transaction.last_offset is None or start <= transaction.last_offset)
        )

    def _transactions_of(self, partition: TopicPartition) -> FileTransactions:
        if partition not in self._transactions:
            parts, replicas = self._parts[partition], self._replicas[partition]
            first = parts[0] if parts else None
            root, replica = replicas[0]
            base = replica.segments[0].base_offset
            self._transactions[partition] = find_transactions(
                self._walked(root, replica, parts),
                open_before(root.files, replica.directory, base) if base else {},
                [(each.files, its.directory.rpartition("/")[0]) for each, its in replicas],
                (first.start if first else self._end(partition), self._end(partition)),
                lambda files, log_dir: decided_in(files, log_dir, partition),
                lambda: self.is_compacted(partition),
            )
        return self._transactions[partition]

    def _walked(
        self, root: Root, replica: Replica, parts: Sequence[SegmentPart]
    ) -> Iterator[OpenLogPart]:
        """Yield all parts, after batches from before the log start that are still in files."""
        first = parts[0].segment.base_offset if parts else 0
        for segment, start, end in replica._replace(start=0).stretches():
            if start < first:
                with suppress(FileMissing):  # deleted meanwhile
                    batches = _batches_of(root, segment, min(end, first))
                    yield OpenLogPart(batches, start, min(end, first), replica.is_dense)
        for part in parts:
            # The batches before a log start are in its segment.
            start = first if part is parts[0] else part.start
            segment = part.segment
            if part.is_followed and part.root.is_local:  # it may have grown since it was listed
                segment = segment._replace(size=part.root.files.size(segment.path))
            batches = _batches_of(part.root, segment, part.segment_end)
            yield OpenLogPart(batches, start, part.end, part.is_followed)

    def _find_time(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        for part in self._parts[partition]:
            segment = part.segment.open(part.root.files)
            if not may_reach(segment, timestamp_ms):
                continue
            at = segment.position_for(timestamp_ms, part.start)
            for walk, position, header in headers_of(part, at):
                if header.max_timestamp < timestamp_ms:
                    continue
                found = find_at_or_after(
                    walk.batch(position, header),
                    header,
                    timestamp_ms,
                    part.start,
                    max_bytes=_MAX_BATCH_BYTES,
                )
                if found is not None and found[1] < part.end:
                    return found[1]
        return None


def _batches_of(root: Root, segment: ListedSegment, limit: int) -> BatchReader:
    """Return the batches of a segment whose offsets are before a limit."""
    reader = segment.open(root.files)
    reader.log.limit = limit
    return reader.batches(FEWEST_BYTES)
