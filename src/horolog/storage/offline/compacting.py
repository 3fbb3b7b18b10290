"""Compacts the logs of a directory without a broker.

Of each key the latest record remains.

The pass of the broker's cleaner (`cleaning/passes.py`) runs over all finished segments. The
rewritten segments of a group are in `<partition>/cleaning/`, and are synced before they take the
group's place (logs/replacing.py). A kill leaves the old or the new ones, and the next run begins
again.

The settings of a topic are arguments. Offsets, append times, producers and the times of records
remain. Three parts are not compacted: from the first open transaction on, the last segment, and
from the high watermark on, if the log directory has it. A follower may have to truncate records
there, and the older records that they supersede would be gone.

The offset up to which a log was cleaned is written to the checkpoint of the broker's cleaner.
"""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from horolog.config import TopicConfig
from horolog.errors import CorruptBatch, CorruptIndex, Misconfigured, RequestRefused, StorageFailed
from horolog.record.kernels.loading import CLEANING_KERNELS
from horolog.storage import names
from horolog.storage.batches.reader import TornTail
from horolog.storage.cleaning.key_map import KeyMap
from horolog.storage.cleaning.passes import CleaningGroup, CleaningPass
from horolog.storage.cleaning.rules import Rules, last_of_producers
from horolog.storage.directory.checkpoints import (
    read_cleaning,
    read_offsets,
    topic_id_in,
    write_cleaning,
)
from horolog.storage.directory.lock import is_log_dir, lock_against_others
from horolog.storage.index.abort import AbortedTxn
from horolog.storage.log_dir.offset_checkpoints import OffsetCheckpoints
from horolog.storage.logs.replacing import replace_segments, write_cleaned
from horolog.storage.offline.converting import is_kafkas_own
from horolog.storage.offline.work import OfflineWork, refusal
from horolog.storage.producers.replay import replay_batches
from horolog.storage.producers.states import Producers
from horolog.storage.removal.leftovers import current_bases, tidy
from horolog.storage.scan.findings import Checked, Steps
from horolog.storage.segments.reader import SegmentReader

MEMORY_BYTES: Final = 128 << 20
"""Memory for keys: the default of `log.cleaner.dedupe.buffer.size`."""
DELETE_RETENTION_MS: Final = 86_400_000
"""Default of `delete.retention.ms`."""


@dataclass(slots=True)
class CompactedPartition:
    """Outcome of compacting one partition."""

    path: str
    end_offset: int = 0
    """Offset up to which each key has one record."""
    records_before: int = 0
    records_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    keyless: int = 0
    """Number of records without a key."""
    refused: str | None = None
    """Reason why the log was left unchanged, or was not compacted to its end."""


@dataclass(frozen=True, slots=True)
class Compaction(OfflineWork):
    """Compaction of one target."""

    REASON = "it would append to what is compacted"

    now_ms: int
    """The clock: delete horizons count from it."""
    delete_retention_ms: int = DELETE_RETENTION_MS
    segment_bytes: int = 1 << 30
    interval_bytes: int = 4096
    memory_bytes: int = MEMORY_BYTES
    removes_keyless: bool = False
    """True to remove records without a key, as Kafka's cleaner does."""

    def locked(self) -> AbstractContextManager[None]:
        """Lock the log directory against brokers; a target outside of one needs no lock.

        Raises:
            Misconfigured: a broker is at work there, or the target is one segment of a log.
        """
        if self.target.segment is not None:
            raise Misconfigured(
                f"{self.target.segment} is one segment: a key's latest record may be in another. "
                "Name the partition's directory"
            )
        return OfflineWork.locked(self)

    def steps(self) -> Steps[list[CompactedPartition]]:
        """Compact every partition.

        Yields progress, and returns the outcomes.

        A damaged partition is left unchanged.

        Raises:
            CorruptFile: high watermarks cannot be read.
        """
        done = []
        marks = read_offsets(self.files, str(self.target.log_dir / names.HIGH_WATERMARKS))
        checkpoints = self._checkpoints()
        for directory in self.target.partitions:
            if is_kafkas_own(directory.name):
                continue
            name = names.partition_of(directory.name)
            mark = marks.get(name) if name else None
            partition = _CompactedPartition(self, directory, mark, checkpoints)
            try:
                yield from partition.steps()
            except (CorruptBatch, CorruptIndex, RequestRefused, StorageFailed) as error:
                partition.done.refused = refusal(error)
            yield Checked(partitions=1)
            done.append(partition.done)
        return done

    def _checkpoints(self) -> OffsetCheckpoints | None:
        """Return the checkpoints of the log directory; None if there are none to write."""
        if self.dry_run or not is_log_dir(self.target.log_dir):
            return None
        checkpoints = OffsetCheckpoints(self.files, str(self.target.log_dir))
        checkpoints.read({names.CLEANER_OFFSETS})
        return checkpoints


class _CompactedPartition:
    """Partition whose log is compacted."""

    def __init__(
        self,
        compaction: Compaction,
        directory: Path,
        high_watermark: int | None,
        checkpoints: OffsetCheckpoints | None,
    ) -> None:
        self.done = CompactedPartition(str(directory))
        self._compaction = compaction
        self._high_watermark = high_watermark
        self._checkpoints = checkpoints
        self._end_offset = 0
        self._files = compaction.files
        self._directory = str(directory)
        self._work = f"{directory}/{names.CLEANING}"
        self._producers = Producers()
        self._aborted: list[AbortedTxn] = []
        self._config = TopicConfig(
            segment_bytes=compaction.segment_bytes, index_interval_bytes=compaction.interval_bytes
        )

    def steps(self) -> Steps[None]:
        """Compact the partition, in as many passes as its keys need."""
        with self._compaction.alone(self._directory):
            if not self._compaction.dry_run:
                tidy(self._files, self._directory, keep=True, now_ms=self._compaction.now_ms)
            segments = self._segments()
        if len(segments) < 2:
            return
        yield from self._walk(segments)
        limits = self._producers.first_open(), self._high_watermark, names.MAX_OFFSET
        stable_end = min(limit for limit in limits if limit is not None)
        bases = [segment.base_offset for segment in segments]
        end = max((base for base in bases if base <= stable_end), default=0)
        first_dirty = bases[0]
        try:
            while first_dirty < end:
                self._note_cleaned(first_dirty)  # first: without it gaps would be damage
                finished = [segment for segment in segments if segment.base_offset < end]
                reached = yield from self._pass(finished, first_dirty, end)
                if reached <= first_dirty:
                    raise StorageFailed("the keys of not even one record fit into the memory")
                first_dirty = self.done.end_offset = reached
                if self._compaction.dry_run:
                    break
                segments = self._segments()
        finally:
            if not self._compaction.dry_run and self._files.exists(self._work):
                self._files.remove_tree(self._work)
        if self.done.end_offset:
            self._note_cleaned(self.done.end_offset)
        if first_dirty < end:
            self.done.refused = "its keys do not fit into the memory at once: a run takes several"

    def _note_cleaned(self, offset: int) -> None:
        """Raise the cleaner point of the log directory's checkpoint to an offset."""
        partition = names.partition_of(os.path.basename(self._directory))
        if self._checkpoints is None or partition is None:
            return
        topic_id = topic_id_in(self._files, self._directory, [])
        said = self._checkpoints.of(partition).for_topic(topic_id).cleaner_point
        if said is None or not offset <= said <= self._end_offset:
            self._checkpoints.note_cleaned(partition, offset)

    def _segments(self) -> list[SegmentReader]:
        files, directory = self._files, self._directory
        return [
            SegmentReader.at(files, names.log_path(directory, base), base)
            for base in current_bases(files, directory)
        ]

    def _walk(self, segments: Sequence[SegmentReader]) -> Steps[None]:
        """Replay the log to find its producers and its aborted transactions.

        The index of aborted transactions may be missing from a copy.
        """
        for segment in segments:
            try:
                replay_batches(segment, segment.base_offset, self._producers, 0, self._aborted)
            except TornTail:
                if segment is not segments[-1]:
                    raise
            yield Checked()
        self._end_offset = segments[-1].walked_end().next_offset

    def _pass(self, segments: Sequence[SegmentReader], first_dirty: int, end: int) -> Steps[int]:
        """Run one pass. Returns the offset up to which the keys had room."""
        compaction, done = self._compaction, self.done
        CLEANING_KERNELS.load_for(sum(segment.size for segment in segments))
        rules = Rules(
            now_ms=compaction.now_ms,
            delete_retention_ms=compaction.delete_retention_ms,
            end_offset=end,
            producers=last_of_producers(self._producers),
            aborted=self._aborted,
            keeps_keyless=not compaction.removes_keyless,
        )
        cleaning = CleaningPass(segments, KeyMap(compaction.memory_bytes), rules)
        for size in cleaning.fill(first_dirty):
            yield Checked(bytes=size)
        done.keyless += cleaning.keyless
        if cleaning.end_offset > first_dirty:
            for group in cleaning.groups(self._config):
                yield from self._group(cleaning, group)
        return cleaning.end_offset

    def _group(self, cleaning: CleaningPass, group: CleaningGroup) -> Steps[None]:
        compaction, files, done = self._compaction, self._files, self.done
        with ExitStack() as locks:
            for segment in group.segments:
                path = segment.path_of(names.LOG)
                locks.enter_context(compaction.alone(path))
                if files.size(path) != segment.size:
                    raise StorageFailed(f"{path} has changed meanwhile: nothing more was done")
            if compaction.dry_run:
                pieces = cleaning.cleaned(group)
            else:
                pieces = write_cleaned(files, self._work, cleaning, group, self._config)
            before = after = size = 0
            for piece in pieces:
                before, after = before + piece.read_records, after + piece.kept_records
                size += piece.kept_bytes
                yield Checked(bytes=piece.read_bytes)
            if not compaction.dry_run:
                with lock_against_others(self._directory):
                    path = f"{self._directory}/{names.CLEANING_CHECKPOINT}"
                    if cleaning.end_offset > read_cleaning(files, path):
                        write_cleaning(files, path, cleaning.end_offset)
                    bases = [old.base_offset for old in group.segments]
                    replace_segments(files, self._directory, self._work, bases)
        done.bytes_before += group.size
        done.bytes_after += size
        done.records_before += before
        done.records_after += after
        yield Checked(segments=len(group.segments))
