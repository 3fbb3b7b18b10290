"""Recovers the log of one partition, after a clean or an unclean shutdown.

After a clean shutdown only the seals of segments are read. Otherwise the checksum of every
batch from the recovery point's segment on is verified, the log is truncated at the first damaged
one, and the indexes are rebuilt (recovery/segments.py). A `Recovery` reports what was done.

No readable record is deleted. Truncated bytes are set aside (removal/set_aside.py), unless they are
zeros or the start of a batch whose append was interrupted. In an adopted log even those are kept.
"""

import os
from collections.abc import Sequence
from uuid import UUID

from horolog.errors import CorruptFile
from horolog.storage import names
from horolog.storage.directory.checkpoint_ids import Checkpointed
from horolog.storage.directory.checkpoints import (
    MAX_EPOCH,
    read_cleaning,
    read_epochs,
    read_topic_id,
    write_topic_id,
)
from horolog.storage.files import Files
from horolog.storage.logs.append_time_floor import AppendTimes
from horolog.storage.logs.epochs import LeaderEpochs, disagreement, epochs_of
from horolog.storage.logs.log import Log
from horolog.storage.logs.readable import LogParts
from horolog.storage.logs.writer import active_segment, new_segment
from horolog.storage.lookup.by_append_time import latest_append_time, with_ends
from horolog.storage.names import TopicPartition
from horolog.storage.producers.replay import replay
from horolog.storage.producers.states import Producers, remove_snapshot
from horolog.storage.recovery.segments import LoadPlan, Recovery, SegmentRecovery
from horolog.storage.removal import leftovers
from horolog.storage.removal.set_aside import set_aside_in
from horolog.storage.segments.active import ActiveSegment
from horolog.storage.segments.segment import Segment


def load_log(
    files: Files, directory: str, partition: TopicPartition, plan: LoadPlan
) -> tuple[Log, Recovery]:
    """Open the log in a partition's directory.

    Raises:
        StorageFailed: it cannot be read; it is untouched.
        CorruptBatch: it is damaged where it has to be whole; its records are untouched.
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
        self.append_times = AppendTimes(files, directory)

    def load(self, partition: TopicPartition) -> Log:
        plan = self.plan
        present, notes, warnings = leftovers.tidy(
            self.files, self.directory, keep=plan.is_adopted, now_ms=plan.now_ms
        )
        self.report.notes += notes
        self.report.warnings += warnings
        self.append_times = AppendTimes.read(self.files, self.directory)
        topic_id = self._topic_id(present)
        checkpointed = plan.checkpointed.for_topic(topic_id)
        point = checkpointed.recovery_point
        recovery = SegmentRecovery(
            self.files, self.directory, plan, self.report, self.append_times, point
        )
        recovery.open(present)
        ends_early = self._ends_early(recovery.segments, point or 0)
        log_start_offset = self._log_start(partition, recovery.segments, checkpointed)
        active = self._ensure_segment(recovery, log_start_offset, present)
        recovery.note_unproved(present)
        recovery.mend_missing_indexes(present)
        segments = recovery.segments
        end_offset = segments[-1].end.next_offset
        if plan.follows:  # only records of the log have append times
            self.append_times.last = latest_append_time(segments)
        else:  # the floor in its file may be of an earlier moment
            for segment, next_offset, _ in reversed(list(with_ends(segments))):
                last_ms = segment.append_times.latest_ms
                if last_ms is not None:
                    self.append_times.found(last_ms, next_offset)
                    break
        self.append_times.truncate(end_offset, with_records=plan.follows)
        log_start_offset = max(log_start_offset, segments[0].base_offset)
        epochs = self._load_epochs(recovery, log_start_offset)
        leader_epoch = self._leader_epoch(epochs.latest, ends_early=ends_early)
        # After a clean stop one may be at the end without records: the next stop notes it again.
        epochs.truncate_from_end(end_offset, write=not plan.is_clean)
        known = max(epochs.latest, plan.known_epoch)
        if known + 1 < leader_epoch and not (plan.is_adopted or plan.follows):
            # Neither the file nor the metadata have the epoch that this one follows: the next start
            # would count from an older one, and clients have seen this one.
            epochs.assign(leader_epoch, end_offset)
        epochs.truncate_from_start(log_start_offset)
        high_watermark = None
        if plan.follows:
            high_watermark = min(
                max(checkpointed.high_watermark or 0, log_start_offset), end_offset
            )
        producers = Producers()
        producers.keeps_ended = plan.follows
        snapshots = self._snapshots(present, segments, end_offset)
        replayed = replay(
            self.files,
            self.directory,
            segments,
            producers,
            snapshots,
            plan.now_ms,
            high_watermark,
        )
        recovery.rebuild_aborted(snapshots, replayed)
        # They are opened again once they are needed: thousands of partitions may not be.
        self.files.forget(*(segment.path_of(names.OFFSET_INDEX) for segment in segments))
        return Log(
            LogParts(
                files=self.files,
                directory=self.directory,
                partition=partition,
                config=plan.config,
                segments=segments,
                active=active,
                topic_id=topic_id,
                producers=producers,
                epochs=epochs,
                leader_epoch=leader_epoch,
                is_following=plan.follows,
                high_watermark=high_watermark,
                append_times=self.append_times,
                log_start_offset=log_start_offset,
                cleaner_point=self._cleaner_point(checkpointed.cleaner_point, end_offset),
                cleaning_to=self._cleaning_to(end_offset),
                recovery_point=end_offset if plan.is_clean else min(point or 0, end_offset),
                retention_exempt=plan.is_adopted,
                is_settled=plan.is_clean
                and not recovery.is_foreign
                and not self.report.has_findings,
                is_in_doubt=names.SYNC_FAILED in present,
                max_batch_uncompressed_bytes=plan.max_batch_uncompressed_bytes,
                set_aside=set_aside_in(os.listdir(self.directory)),
            )
        )

    def _log_start(
        self, partition: TopicPartition, segments: Sequence[Segment], checkpointed: Checkpointed
    ) -> int:
        """Return the log start offset, as far as the checkpoints know it."""
        if self.plan.is_adopted:
            checkpointed = checkpointed._replace(written_for=None)
        start = checkpointed.log_start(segments[-1].end.next_offset if segments else None)
        if start.ignored is not None:
            end = segments[-1].end.next_offset if segments else start.offset
            self.report.warnings.append(
                f"{names.LOG_START_OFFSETS} says that {partition} starts at offset "
                f"{start.ignored}, and its log ends at {end}: the line is ignored, and no record "
                "is removed. Correct it if records were deleted that are there again"
            )
        return start.offset

    def _cleaner_point(self, point: int | None, end_offset: int) -> int | None:
        """Return the cleaner point; None if it is beyond the log end."""
        if point is not None and point > end_offset and not self.plan.is_adopted:
            self.report.notes.append(
                f"{names.CLEANER_OFFSETS} says that {self.directory} was cleaned up to offset "
                f"{point}, and it ends at {end_offset}: it is cleaned from its start"
            )
            return None
        return point

    def _cleaning_to(self, end_offset: int) -> int:
        """Return the offset in front of which compaction may have removed records."""
        try:
            path = f"{self.directory}/{names.CLEANING_CHECKPOINT}"
            return min(read_cleaning(self.files, path), end_offset)
        except CorruptFile as error:
            self.report.notes.append(f"{error}: cuts are refused up to offset {end_offset}")
            return end_offset

    def _ensure_segment(
        self, recovery: SegmentRecovery, start: int, present: set[str]
    ) -> ActiveSegment:
        """Return the last segment for appends, or create one if there is none."""
        segments = recovery.segments
        if segments and (end := segments[-1].end.next_offset) < start:
            recovery.set_aside_all(
                f"the log started at offset {start} when it was last served, and this one ends at "
                f"{end}: it is an older state, whose records were deleted since"
            )
            for offset in leftovers.base_offsets(present, names.SNAPSHOT):
                remove_snapshot(self.files, self.directory, offset)
                present.discard(names.segment_file(offset, names.SNAPSHOT))
        config, now_ms = self.plan.config, self.plan.now_ms
        if recovery.segments:
            return active_segment(self.files, recovery.segments[-1], config, now_ms)
        active = new_segment(self.files, self.directory, start, config, now_ms)
        recovery.segments.append(active.segment)
        return active

    def _ends_early(self, segments: Sequence[Segment], point: int) -> bool:
        """Return True, with a warning, if records are missing that were once on disk."""
        if not segments or self.plan.is_adopted or self.plan.follows:
            return False
        if (end := segments[-1].end.next_offset) >= point:
            return False
        self.report.warnings.append(
            f"{self.directory} ends at offset {end}, and the disk once had it up to {point}: "
            f"offsets {end} to {point - 1} are given out again, in a new leader epoch"
        )
        return True

    def _snapshots(
        self, present: set[str], segments: Sequence[Segment], end_offset: int
    ) -> list[int]:
        """List the offsets of producer snapshots.

        Of those from clean stops only the last is kept.
        """
        found = leftovers.base_offsets(present, names.SNAPSHOT)
        usable = [offset for offset in found if offset <= end_offset]
        bases = {segment.base_offset for segment in segments}
        for offset in usable[:-1]:
            if offset not in bases and not self.plan.is_adopted:
                remove_snapshot(self.files, self.directory, offset)
                found.remove(offset)
        return found

    def _load_epochs(self, recovery: SegmentRecovery, log_start_offset: int) -> LeaderEpochs:
        """Load the leader epochs; the file counts only if the batches agree."""
        path = f"{self.directory}/{names.LEADER_EPOCHS}"
        is_readable, segments = True, recovery.segments
        try:
            entries = read_epochs(self.files, path)
        except CorruptFile as error:
            self.report.notes.append(f"Leader epochs are taken from the log: {error}")
            is_readable, entries = False, []
        if recovery.is_foreign and not recovery.epochs:
            recovery.learn_from_last_batches()
        epochs = LeaderEpochs(self.files, path, entries)
        epochs.learn(recovery.epochs)
        wrong = disagreement(epochs.entries, segments, log_start_offset)
        if wrong is None:
            return epochs
        found, falls_at = epochs_of(segments)
        if falls_at is not None and is_readable and entries:
            self.report.warnings.append(
                f"{path} and the log disagree: {wrong}. The leader epochs of batches go back at "
                f"offset {falls_at}, so that the file counts; {names.SEE_VERIFY}"
            )
            return epochs
        if is_readable:
            self.report.notes.append(f"Leader epochs are taken from the log, not {path}: {wrong}")
        epochs.replace(found, segments[-1].end.next_offset)
        return epochs

    def _leader_epoch(self, latest: int, *, ends_early: bool) -> int:
        """Leader epoch to start in; bumped if a consumer may have read truncated records.

        A bump makes consumers validate their position (KIP-320). A clean shutdown keeps the epoch.
        An adopted log of Kafka keeps it even after a crash, because Kafka's controller owns the
        epoch (4.4 bumps it by two at every start): a Java client that has seen a larger epoch, in
        a lookup or with a committed offset, would consider the controller's metadata stale and
        find no leader. The epochs of a log that follows are those of its source.

        The epoch that the metadata have counts as one of the log's: Kafka raises it at each start
        and not with the next batch, and drops what a log has of an epoch beyond it.

        An epoch has one leader (KIP-101): a broker that succeeds another leads in a new one.
        """
        plan = self.plan
        if plan.follows:
            return max(latest, 0)
        has_batches = latest >= 0
        latest = max(latest, plan.known_epoch)
        if latest < 0:
            return 0
        is_whole = plan.is_clean and not self.report.removed_bytes and not ends_early
        keeps = plan.is_adopted or is_whole or not has_batches
        return latest if keeps and not plan.succeeds_another else min(latest + 1, MAX_EPOCH)

    def _topic_id(self, present: set[str]) -> UUID | None:
        """Return the id in `partition.metadata`.

        A missing id of one of our topics is written.

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
