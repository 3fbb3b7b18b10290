"""Recovers the log of one partition, after a clean or an unclean shutdown.

After a clean shutdown only the seal of the active segment is read. Otherwise the checksum of every
batch from the recovery point's segment on is verified, the log is truncated at the first damaged
one, and the indexes are rebuilt. A `Recovery` reports what was done.

No readable record is deleted. Truncated bytes are set aside (set_aside.py), unless they are zeros
or the start of a batch whose append was interrupted. In an adopted log even those are kept.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from horolog.config import TopicConfig
from horolog.errors import CorruptBatch, CorruptFile, CorruptIndex, StorageFailed
from horolog.record.batch import HEADER_SIZE, BatchHeader
from horolog.storage import leftovers, names
from horolog.storage.active_segment import ActiveSegment
from horolog.storage.append_time_lookup import with_ends
from horolog.storage.append_times import AppendTimes
from horolog.storage.batch_reader import EVERYTHING
from horolog.storage.checkpoint_ids import Checkpointed
from horolog.storage.checkpoints import (
    EpochStart,
    read_epochs,
    read_topic_id,
    write_topic_id,
)
from horolog.storage.epochs import LeaderEpochs
from horolog.storage.files import Files
from horolog.storage.index.builder import IndexBuilder
from horolog.storage.log import Log
from horolog.storage.names import TopicPartition
from horolog.storage.producer_replay import rebuild_aborted, replay
from horolog.storage.producers import Producers, remove_snapshot
from horolog.storage.rolling import active_segment, new_segment
from horolog.storage.segment import Segment
from horolog.storage.segment_end import SegmentEnd
from horolog.storage.set_aside import is_torn_tail, keep_segment, keep_stretch, set_aside_in

_SEE = "`horolog log verify` says what it holds and how to bring it back"
_MAX_EPOCH = (1 << 31) - 1


class LoadPlan(NamedTuple):
    """How a partition's directory is to be opened."""

    config: TopicConfig
    now_ms: int
    is_clean: bool
    checkpointed: Checkpointed = Checkpointed()
    topic_id: UUID | None = None
    """Of a topic that is known; written where the directory has none."""
    is_adopted: bool = False
    max_batch_uncompressed_bytes: int = 1 << 30


@dataclass(slots=True)
class Recovery:
    """What opening a partition found and did; `notes` are sentences for the log."""

    partition: TopicPartition
    checked_bytes: int = 0
    removed_bytes: int = 0
    """Cut off the log, or set aside."""
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    """What the operator must see to; sentences like the notes."""

    @property
    def has_findings(self) -> bool:
        """Whether anything was not as a clean stop leaves it."""
        return bool(self.notes or self.warnings)


def load_log(
    files: Files, directory: str, partition: TopicPartition, plan: LoadPlan
) -> tuple[Log, Recovery]:
    """Open the log in a partition's directory.

    Raises:
        StorageFailed: it cannot be read; it is untouched.
    """
    report = Recovery(partition)
    loader = _Loader(files, directory, plan, report)
    return loader.load(partition), report


class _Loader:
    """The steps of opening one directory; lives as long as that takes."""

    def __init__(self, files: Files, directory: str, plan: LoadPlan, report: Recovery) -> None:
        self.files = files
        self.directory = directory
        self.plan = plan
        self.report = report
        self.segments: list[Segment] = []
        self.epochs: list[EpochStart] = []
        self.recovery_point: int | None = None
        self.is_foreign = False  # not last closed by horolog
        self.ends_early = False  # before its recovery point
        self.with_markers: set[int] = set()  # base offsets, as far as segments were recovered
        self.append_times = AppendTimes.read(files, directory)

    def load(self, partition: TopicPartition) -> Log:
        plan = self.plan
        present, notes, warnings = leftovers.tidy(
            self.files, self.directory, keep=plan.is_adopted, now_ms=plan.now_ms
        )
        self.report.notes += notes
        self.report.warnings += warnings
        topic_id = self._topic_id(present)
        checkpointed = plan.checkpointed.for_topic(topic_id)
        self.recovery_point = checkpointed.recovery_point
        self._find_segments(present)
        self._drop_empty_segments()
        if self.segments:
            self._recover() if not plan.is_clean else self._open_active()
            self._compare_with_recovery_point()
        log_start_offset = self._log_start(partition, checkpointed)
        active = self._ensure_segment(log_start_offset, present)
        self._mend_missing_indexes(present)
        end_offset = self.segments[-1].end.next_offset
        if not plan.is_clean or self.is_foreign:
            self._find_last_append_time()
        self.append_times.truncate(end_offset)
        log_start_offset = max(log_start_offset, self.segments[0].base_offset)
        epochs = self._load_epochs()
        leader_epoch = self._leader_epoch(epochs.latest)
        # After a clean stop one may be at the end without records: the next stop notes it again.
        epochs.truncate_from_end(end_offset, write=not plan.is_clean)
        if epochs.latest + 1 < leader_epoch and not plan.is_adopted:
            # The file no longer has the epoch that this one follows: the next start would count
            # from an older one, and clients have seen this one.
            epochs.assign(leader_epoch, end_offset)
        epochs.truncate_from_start(log_start_offset)
        producers = Producers()
        snapshots = self._snapshots(present, end_offset)
        attempts = leftovers.base_offsets(present, names.ATTEMPTS)
        replay(
            self.files,
            self.directory,
            self.segments,
            producers,
            snapshots,
            attempts,
            plan.now_ms,
        )
        self._rebuild_aborted(snapshots)
        point = self.recovery_point or 0
        return Log(
            self.files,
            self.directory,
            partition,
            plan.config,
            self.segments,
            active,
            topic_id=topic_id,
            producers=producers,
            epochs=epochs,
            leader_epoch=leader_epoch,
            append_times=self.append_times,
            log_start_offset=log_start_offset,
            recovery_point=end_offset if plan.is_clean else min(point, end_offset),
            retention_exempt=plan.is_adopted,
            is_settled=plan.is_clean and not self.is_foreign and not self.report.has_findings,
            is_in_doubt=names.SYNC_FAILED in present,
            max_batch_uncompressed_bytes=plan.max_batch_uncompressed_bytes,
            set_aside=set_aside_in(os.listdir(self.directory)),
        )

    def _find_segments(self, present: set[str]) -> None:
        for base_offset in leftovers.base_offsets(present, names.LOG):
            if base_offset > names.MAX_BASE_OFFSET:
                raise StorageFailed(
                    f"{self.directory}/{names.segment_file(base_offset, names.LOG)} begins at an "
                    f"offset beyond {names.MAX_BASE_OFFSET}, the largest that a segment can have"
                )
            path = f"{self.directory}/{names.segment_file(base_offset, names.LOG)}"
            segment = Segment(
                self.files,
                self.directory,
                base_offset,
                self.plan.config,
                size=self.files.size(path),
                has_aborted=names.segment_file(base_offset, names.TXN_INDEX) in present,
            )
            self.segments.append(segment)

    def _drop_empty_segments(self) -> None:
        """Leave out segments without a batch where the one before reaches beyond their offset.

        A roll that the disk refuses half-way can leave one, and the log goes on in the segment
        before it: taken for a part of the log, it would hide those records.
        """
        kept: list[Segment] = []
        before: Segment | None = None  # the last that is not empty
        for segment in self.segments:
            if not self._is_empty(segment):
                before = segment
            elif before is not None and _end_by_headers(before) > segment.base_offset:
                self.report.notes.append(f"Left out {segment.log.path}: there is no batch in it")
                if not self.plan.is_adopted:
                    self._remove(segment)
                continue
            kept.append(segment)
        self.segments = kept

    def _remove(self, segment: Segment) -> None:
        segment.abandon()
        for suffix in names.SEGMENT_SUFFIXES:
            self.files.remove(f"{self.directory}/{names.segment_file(segment.base_offset, suffix)}")

    def _is_empty(self, segment: Segment) -> bool:
        if not segment.size or not self.plan.config.preallocate:
            return not segment.size
        return not any(self.files.read_at(segment.log.open(), HEADER_SIZE, 0))

    def _open_active(self) -> None:
        active = self.segments[-1]
        seal = active.indexes.seal_facts(active.size)
        if seal is not None:
            active.end = SegmentEnd(active.size, seal.next_offset)
            return
        self.is_foreign = True
        try:
            facts = active.indexes.scan(active.size)
        except CorruptBatch as error:
            self.report.notes.append(f"It was marked clean, but is damaged: {error}")
            self._recover_from(len(self.segments) - 1)
            return
        self._take_over(active, facts)

    def _recover(self) -> None:
        self._recover_from(self._first_unsure())

    def _first_unsure(self) -> int:
        """The segment that holds the recovery point, from which on nothing is sure.

        A backup comes without a recovery point; there only its end can be torn, and a damaged
        bit in its middle is no reason to cut off the rest.
        """
        last = len(self.segments) - 1
        point = self.recovery_point
        if point is None:
            return last if self.plan.is_adopted else 0
        bases = [segment.base_offset for segment in self.segments]
        return max(0, bisect_right(bases, point) - 1)

    def _recover_from(self, first: int) -> None:
        for index in range(first, len(self.segments)):
            segment = self.segments[index]
            before = segment.size
            later = self.segments[index + 1 : index + 2]
            limit = later[0].base_offset if later else None
            facts, damage = _walk_checked(segment, self.plan.config, limit)
            self.report.checked_bytes += before
            if damage is not None:
                # The last first: a kill in between leaves the damage to be found again.
                self._set_aside(self.segments[index + 1 :], "it follows the damage")
                del self.segments[index + 1 :]
                self._cut(segment, facts, damage)
            self._take_over(segment, facts)
            if facts.has_markers:
                self.with_markers.add(segment.base_offset)
            if damage is not None:
                break

    def _take_over(self, segment: Segment, facts: IndexBuilder) -> None:
        segment.adopt(facts)
        self.append_times.found(facts.last_append_time, facts.next_offset)
        self.epochs += facts.epochs

    def _cut(self, segment: Segment, facts: IndexBuilder, damage: CorruptBatch) -> None:
        lost = segment.size - facts.end
        self.report.removed_bytes += lost
        file = segment.log.open()
        cut = f"Cut {lost} bytes off {segment.log.path}: {damage}"
        if not is_torn_tail(self.files, file, facts.end, segment.size):
            kept = keep_stretch(self.files, file, facts.end, segment.size, self.plan.now_ms)
            self.report.warnings.append(f"{cut}. They are set aside in {kept}; {_SEE}")
        elif self.plan.is_adopted:
            kept = keep_stretch(self.files, file, facts.end, segment.size, self.plan.now_ms)
            self.report.notes.append(f"{cut}. They are set aside in {kept}")
        else:
            self.report.notes.append(cut)
        self.files.truncate(file, facts.end)
        segment.forget_aborted_from(facts.next_offset)

    def _set_aside(self, segments: Sequence[Segment], why: str) -> None:
        """Take whole segments out of the log."""
        for segment in reversed(segments):
            segment.abandon()
            if not segment.size:
                self._remove(segment)
                continue
            self.report.removed_bytes += segment.size
            kept = keep_segment(self.files, self.directory, segment.base_offset, self.plan.now_ms)
            self.report.warnings.append(
                f"Took {segment.log.path} of {segment.size} bytes out of the log: {why}. It is set "
                f"aside in {kept}; {_SEE}"
            )

    def _log_start(self, partition: TopicPartition, checkpointed: Checkpointed) -> int:
        """Where the log starts, so far as the checkpoints say.

        A start beyond the log's end is used only if we have written it for this topic: then
        the directory is older than the checkpoint, and what it holds was deleted. Any other is an
        error of its writer; obeying it would lose all records.
        """
        written_for = None if self.plan.is_adopted else checkpointed.written_for
        ours = 0 if written_for is None else written_for.log_start_offset
        line = checkpointed.log_start_offset or 0
        end = self.segments[-1].end.next_offset if self.segments else ours
        if ours < line and end < line:
            self.report.warnings.append(
                f"{names.LOG_START_OFFSETS} says that {partition} starts at offset {line}, and its "
                f"log ends at {end}: the line is ignored, and no record is removed. Correct it if "
                "records were deleted that are there again"
            )
            return ours
        return max(line, ours)

    def _find_last_append_time(self) -> None:
        """Let the floor be at least the last append time that is kept beside a segment."""
        for segment, end_offset, _ in reversed(list(with_ends(self.segments))):
            last_ms = segment.append_times.latest_ms
            if last_ms is not None:
                self.append_times.found(last_ms, end_offset)
                return

    def _ensure_segment(self, start: int, present: set[str]) -> ActiveSegment:
        """The segment to append to: the last of those that are there, or else a new one."""
        if self.segments and (end := self.segments[-1].end.next_offset) < start:
            self._set_aside(
                self.segments,
                f"the log started at offset {start} when it was last served, and this one ends at "
                f"{end}: it is an older state, whose records were deleted since",
            )
            self.segments = []
            for offset in leftovers.base_offsets(present, names.SNAPSHOT):
                remove_snapshot(self.files, self.directory, offset)
                present.discard(names.segment_file(offset, names.SNAPSHOT))
                present.discard(names.segment_file(offset, names.ATTEMPTS))
        config, now_ms = self.plan.config, self.plan.now_ms
        if self.segments:
            return active_segment(self.files, self.segments[-1], config, now_ms)
        active = new_segment(self.files, self.directory, start, config, now_ms)
        self.segments.append(active.segment)
        return active

    def _compare_with_recovery_point(self) -> None:
        """Say it if records are gone that the disk once had."""
        end, point = self.segments[-1].end.next_offset, self.recovery_point or 0
        if end < point and not self.plan.is_adopted:
            self.ends_early = True
            self.report.warnings.append(
                f"{self.directory} ends at offset {end}, and the disk once had it up to {point}: "
                f"offsets {end} to {point - 1} are given out again, in a new leader epoch"
            )

    def _mend_missing_indexes(self, present: set[str]) -> None:
        for segment in self.segments[:-1]:
            needed = [
                names.segment_file(segment.base_offset, suffix)
                for suffix in (names.OFFSET_INDEX, names.TIME_INDEX)
            ]
            missing = [name for name in needed if name not in present]
            if missing and segment.size:
                self.report.notes.append(f"Rebuilt from {segment.log.path}: {', '.join(missing)}")
                try:
                    segment.indexes.check(segment.size)
                except CorruptBatch as error:
                    self.report.notes.append(f"{segment.log.path} is damaged: {error}")

    def _rebuild_aborted(self, snapshots: list[int]) -> None:
        for index, segment in enumerate(self.segments):
            is_unsure = segment.base_offset in self.with_markers
            try:
                segment.aborted()
            except CorruptIndex as error:
                self.report.notes.append(f"Rebuilt from the log: {error}")
                is_unsure = True
            if is_unsure:
                rebuild_aborted(self.files, self.directory, self.segments, index, snapshots)

    def _snapshots(self, present: set[str], end_offset: int) -> list[int]:
        """Those of producers. Of the ones that clean stops leave only the last is of use."""
        found = leftovers.base_offsets(present, names.SNAPSHOT)
        usable = [offset for offset in found if offset <= end_offset]
        bases = {segment.base_offset for segment in self.segments}
        for offset in usable[:-1]:
            if offset not in bases and not self.plan.is_adopted:
                remove_snapshot(self.files, self.directory, offset)
                present.discard(names.segment_file(offset, names.ATTEMPTS))
                found.remove(offset)
        return found

    def _load_epochs(self) -> LeaderEpochs:
        path = f"{self.directory}/{names.LEADER_EPOCHS}"
        try:
            entries = read_epochs(self.files, path)
        except CorruptFile as error:
            self.report.notes.append(f"Leader epochs are taken from the log: {error}")
            entries = []
        if not self.epochs and (self.is_foreign or not entries):
            self._learn_from_last_batches()
        epochs = LeaderEpochs(self.files, path, entries)
        for epoch, start in self.epochs:
            if epoch > epochs.latest:
                epochs.assign(epoch, start)
        return epochs

    def _leader_epoch(self, latest: int) -> int:
        """Leader epoch to start in; bumped if a consumer may have read truncated records.

        A bump makes consumers validate their position (KIP-320). A clean shutdown keeps the epoch.
        An adopted log of Kafka keeps it even after a crash, because Kafka's controller owns the
        epoch (4.3 bumps it by two at every start): a Java client that has seen a larger epoch, in
        a lookup or with a committed offset, would consider the controller's metadata stale and
        find no leader.
        """
        if latest < 0:
            return 0
        is_whole = self.plan.is_clean and not self.report.removed_bytes and not self.ends_early
        return latest if is_whole or self.plan.is_adopted else min(latest + 1, _MAX_EPOCH)

    def _learn_from_last_batches(self) -> None:
        """Derive epochs and append times of a foreign log from its last batches."""
        for segment in reversed(self.segments):
            if segment.size:
                try:
                    facts = segment.indexes.scan(segment.size)
                except CorruptBatch:
                    return
                self.epochs = facts.epochs
                self.append_times.found(facts.last_append_time, facts.next_offset)
                return

    def _topic_id(self, present: set[str]) -> UUID | None:
        """The id in `partition.metadata`; of a topic of ours it is written where it is missing.

        A kill can come between the making of a directory and of this file in it.
        """
        path = f"{self.directory}/{names.PARTITION_METADATA}"
        try:
            found = read_topic_id(self.files, path)
        except CorruptFile as error:
            self.report.notes.append(str(error))
            found = None
        if found is None and self.plan.topic_id is not None and not self.plan.is_adopted:
            write_topic_id(self.files, path, self.plan.topic_id, sync=True)
            present.add(names.PARTITION_METADATA)
            self.report.notes.append(f"Wrote {path}, which named no topic id")
            return self.plan.topic_id
        return found


def _end_by_headers(segment: Segment) -> int:
    """The offset after the last batch of a segment, as far as its headers can be read."""
    seal = segment.indexes.seal_facts(segment.size)
    if seal is not None:
        return seal.next_offset
    end = segment.base_offset
    try:
        last = segment.indexes.position_before(names.MAX_OFFSET, segment.size)
        for _, header in segment.headers(last, segment.size):
            end = header.next_offset
    except CorruptBatch:
        pass  # recovery says it
    return end


def _walk_checked(
    segment: Segment, config: TopicConfig, limit: int | None
) -> tuple[IndexBuilder, CorruptBatch | None]:
    """Facts of all batches up to the first that is damaged, and what is wrong with that one.

    `limit` is the base offset of the next segment, None if there is none.
    """
    facts = IndexBuilder(segment.base_offset, config.index_interval_bytes)
    try:
        return facts.add_all(_checked(segment, facts, limit)), None
    except CorruptBatch as damage:
        facts.finish()
        return facts, damage


def _checked(
    segment: Segment, facts: IndexBuilder, limit: int | None
) -> Iterator[tuple[int, BatchHeader]]:
    log = segment.log.batches(segment.size, EVERYTHING)
    for position, header in log.headers():
        if header.base_offset < facts.next_offset:
            raise CorruptBatch(
                f"the batch at byte {position} begins at offset {header.base_offset}, before "
                f"{facts.next_offset}"
            )
        if limit is not None and header.last_offset >= limit:
            raise CorruptBatch(
                f"the batch at byte {position} ends with offset {header.last_offset}, and the next "
                f"segment begins at {limit}"
            )
        log.check(position, header)
        yield position, header
