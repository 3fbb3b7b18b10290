"""Reads and writes `__cluster_metadata-0`: its segments and its snapshots.

Reading changes nothing. The log is opened to be appended to when the first batch comes.
"""

import json
import logging
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID

from horolog.buffers import Buffer
from horolog.config import TopicConfig
from horolog.errors import CorruptFile, StorageFailed
from horolog.metadata.replay import Damage, MetadataReplay
from horolog.metadata.snapshots import (
    PART,
    SnapshotId,
    SnapshotReader,
    retire_snapshots,
    snapshots_in,
    write_snapshot,
)
from horolog.record.batch import BatchHeader, parse_header
from horolog.record.timestamps import AppendTimeStretch
from horolog.storage import Log, names
from horolog.storage.directory.checkpoint_ids import Checkpointed
from horolog.storage.directory.checkpoints import read_epochs, write_topic_id
from horolog.storage.directory.contents import clear_the_way, copy_aside
from horolog.storage.file_errors import NotRegular
from horolog.storage.files import Files
from horolog.storage.logs.incoming import Origin, SourceBatches
from horolog.storage.names import TopicPartition
from horolog.storage.record_file import RecordFile
from horolog.storage.recovery.loading import load_log
from horolog.storage.recovery.segments import LoadPlan
from horolog.storage.removal.leftovers import base_offsets

PARTITION: Final = TopicPartition(names.CLUSTER_METADATA, 0)
TOPIC_ID: Final = UUID(int=1)
QUORUM_STATE: Final = "quorum-state"
"""Kafka's file with the last leader epoch of its quorum, as JSON."""
HISTORY_MS: Final = 366 * 24 * 3_600_000
"""Time for which snapshots are kept, with the records before them."""

_FORMATTED: Final = SnapshotId(0, 0)
_MAX_QUORUM_BYTES = 1 << 20
_MAX_EPOCH = (1 << 31) - 2
# Segments go only once a snapshot that is kept replaces them, whatever their age.
_CONFIG = TopicConfig(retention_ms=-1, retention_bytes=-1)

_logger = logging.getLogger(__name__)


def open_metadata_log(
    files: Files,
    log_dir: str,
    now_ms: int,
    *,
    synced: int | None,
    committed: int = names.MAX_BASE_OFFSET,
    irregular: Sequence[str] = (),
) -> Log:
    """Open the log in a log directory, and recover it; a new one is made.

    Args:
        synced: offset below which all is on the disk; None if unknown.
        committed: offset below which a quorum has committed all; the records of a node alone are
            committed at once.
        irregular: names of segments that something else has; it is set aside.

    Raises:
        StorageFailed: the disk refused.
    """
    directory = f"{log_dir}/{PARTITION}"
    _make(files, log_dir)
    for moved in clear_the_way(files, directory, irregular):
        _logger.warning("%s is not a regular file, and was set aside under this name", moved)
    plan = LoadPlan(
        _CONFIG,
        now_ms,
        is_clean=False,
        checkpointed=Checkpointed(recovery_point=synced, high_watermark=committed),
        topic_id=TOPIC_ID,
        follows=True,
    )
    log, report = load_log(files, directory, PARTITION, plan)
    for note in (*report.notes, *report.warnings):
        _logger.warning("%s", note)
    return log


def _make(files: Files, log_dir: str) -> None:
    """Make the directory, unless it exists."""
    directory = f"{log_dir}/{PARTITION}"
    if not _exists(files, directory):
        files.make_directory(directory)
        write_topic_id(files, f"{directory}/{names.PARTITION_METADATA}", TOPIC_ID, sync=True)
        files.sync_path(log_dir)


def _exists(files: Files, directory: str) -> bool:
    """Return True if the directory exists.

    Raises:
        NotRegular: something else has its name.
    """
    if not files.exists(directory):
        return False
    if os.path.islink(directory) or not os.path.isdir(directory):
        raise NotRegular(f"{directory} is not a directory")
    return True


class KafkaForm:
    """Segments and snapshots of `__cluster_metadata-0`. For one thread at a time."""

    def __init__(self, files: Files, log_dir: str) -> None:
        self.directory = f"{log_dir}/{PARTITION}"
        self.size_behind_snapshot = 0
        """Bytes that a start reads besides a snapshot."""
        self.snapshot_size = 0
        """Size of the newest snapshot; 0 without one."""
        self._files = files
        self._log_dir = log_dir
        self._log: Log | None = None
        self._snapshots: list[SnapshotId] = []
        self._damaged: set[SnapshotId] = set()
        self._end = 0  # after `replay`: of what counts
        self._irregular: list[str] = []  # names of segments that something else has
        self._is_unsure = False  # recovery of the log may cut off what counts
        self._is_aligned = False  # the log ends where it should
        self._refused: int | None = None  # the offset of a batch that must be taken off the log

    def hide(self) -> None:
        """Let nobody but the owner read the files, also those that are made later.

        Raises:
            StorageFailed: the disk refused.
        """
        self._files.mode = 0o600
        if _exists(self._files, self.directory):
            for name in self._files.names_in(self.directory):
                self._files.hide(f"{self.directory}/{name}")

    # Reading.

    def replay(self) -> MetadataReplay:
        """Read the newest whole snapshot and the log behind it."""
        replay = MetadataReplay(self.directory)
        if not _exists(self._files, self.directory):
            return replay
        present = self._files.names_in(self.directory)
        self._snapshots = snapshots_in(present)
        replay, start = self._from_snapshot(present)
        self._end, self.size_behind_snapshot = start, 0
        for header, batch in self._behind(present, start, replay.note):
            self._end = header.next_offset
            self.size_behind_snapshot += header.size
            replay.take(batch, start)
        replay.next_offset = self._end
        replay.leader_epoch = max(replay.leader_epoch, self._known_epoch())
        return replay

    def begin_from(self, path: str) -> MetadataReplay:
        """Read a file in which an earlier development version kept the metadata.

        The log continues behind it: a snapshot of the file comes before the first append.
        """
        replay, file = MetadataReplay(path), RecordFile(self._files, path)
        for batch in file.read():
            replay.take(batch)
        self._note_lost(file, os.path.dirname(path), replay.note)
        replay.next_offset = self._end = file.next_offset
        return replay

    def kept(self, damage: list[Damage]) -> Iterator[Buffer]:
        """Yield all batches that exist, oldest first; a snapshot stands for batches that are gone.

        Args:
            damage: what cannot be read is added to it.

        Raises:
            StorageFailed: they cannot be read at all.
        """
        if not _exists(self._files, self.directory):
            return
        present, start = self._files.names_in(self.directory), 0
        log_start = min(base_offsets(present, names.LOG), default=0)
        for snapshot in snapshots_in(present) if log_start else ():
            reader = SnapshotReader(self._files, f"{self.directory}/{snapshot.name}")
            for _ in reader.read():
                pass
            if reader.damage is None and snapshot.end_offset >= log_start:
                start = snapshot.end_offset
                yield from reader.read()
                break
        for _, batch in self._behind(present, start, damage.append):
            yield batch

    def _behind(
        self, present: Sequence[str], start: int, note: Callable[[Damage], object]
    ) -> Iterator[tuple[BatchHeader, Buffer]]:
        """Yield the batches of the log that do not end before `start`; note what is damaged."""
        expected = start
        for path in self._segments_from(present, start):
            name = os.path.basename(path)
            file = RecordFile(self._files, path, names.base_offset_of(name, names.LOG) or 0)
            try:
                for batch in file.read():
                    header = parse_header(batch)
                    if header.last_offset < start:
                        continue
                    if header.base_offset > expected:
                        missing = f"offsets {expected} to {header.base_offset - 1} are missing"
                        note(Damage(self.directory, missing, expected))
                    expected = header.next_offset
                    yield header, batch
            except NotRegular as error:
                self._irregular.append(name)
                self._is_unsure = True
                note(Damage(path, str(error), is_of_segment=True))
            self._is_unsure |= bool(file.lost)
            self._note_lost(file, self._log_dir, note, start)

    def _note_lost(
        self, file: RecordFile, log_dir: str, note: Callable[[Damage], object], start: int = -1
    ) -> None:
        """Note the bytes of a file that are no whole batch and may have held records from `start`.

        After a clean stop no append was interrupted: a torn end is of a file that was cut.
        """
        if file.torn_bytes and self._files.exists(f"{log_dir}/{names.CLEAN_SHUTDOWN}"):
            torn = f"the last {file.torn_bytes} bytes are no whole batch"
            what = f"{torn}, though the last stop was clean"
            note(Damage(file.path, what, is_of_segment=True))
        for lost in file.lost:
            if lost.next_offset is None or lost.next_offset > start:
                what = f"bytes {lost.start} to {lost.end}: {lost.reason}"
                note(Damage(file.path, what, is_of_segment=True))

    def _segments_from(self, present: Sequence[str], offset: int) -> list[str]:
        """List the segments that can have records from an offset on."""
        bases = base_offsets(present, names.LOG)
        first = max(bisect_right(bases, offset) - 1, 0)
        return [f"{self.directory}/{names.segment_file(base, names.LOG)}" for base in bases[first:]]

    def _from_snapshot(self, present: Sequence[str]) -> tuple[MetadataReplay, int]:
        """Read the newest whole snapshot; return also the offset of the first record behind it."""
        log_start = min(base_offsets(present, names.LOG), default=None)
        damage: list[Damage] = []
        partial: tuple[MetadataReplay, int] | None = None
        for snapshot in reversed(self._snapshots):
            path = f"{self.directory}/{snapshot.name}"
            replay, reader = MetadataReplay(path), SnapshotReader(self._files, path)
            try:
                for batch in reader.read():
                    replay.take(batch)
            except StorageFailed as error:
                reader.damage = str(error)
            replay.leader_epoch = replay.last_epoch = snapshot.epoch
            replay.next_offset = snapshot.end_offset
            replay.last_timestamp = reader.last_timestamp
            replay.path = self.directory
            if reader.damage is None:
                reaches = log_start is not None and log_start <= snapshot.end_offset
                if not damage or reaches:  # else records between the two snapshots are lost
                    replay.damage = damage + replay.damage
                    self.snapshot_size = self._files.size(path)
                    return replay, snapshot.end_offset
            else:
                damage.append(Damage(path, reader.damage))
                self._damaged.add(snapshot)
                partial = partial or (replay, snapshot.end_offset)
        if partial is not None and log_start != 0:
            partial[0].damage = damage + partial[0].damage
            return partial
        replay = MetadataReplay(self.directory)
        replay.damage = damage
        return replay, 0

    def _known_epoch(self) -> int:
        """Return the largest leader epoch in the files beside the log.

        A damaged file loses nothing: each epoch that wrote a record is in that record's batch.
        """
        epochs = [-1]
        try:
            starts = read_epochs(self._files, f"{self.directory}/{names.LEADER_EPOCHS}")
            epochs += [start.epoch for start in starts]
        except CorruptFile as error:
            _logger.warning("The leader epoch of the metadata is that of its log: %s", error)
        path = f"{self.directory}/{QUORUM_STATE}"
        try:
            text = self._files.read_whole(path, _MAX_QUORUM_BYTES)
            epoch = json.loads(text)["leaderEpoch"] if text else -1
            if not isinstance(epoch, int) or not -1 <= epoch <= _MAX_EPOCH:
                raise ValueError(f"{epoch!r} is no leader epoch")
            epochs.append(epoch)
        except (ValueError, KeyError, TypeError, RecursionError, StorageFailed) as error:
            _logger.warning("%s does not say the leader epoch, its log does: %s", path, error)
        return max(epochs)

    # Writing.

    def needs_snapshot(self, now_ms: int) -> bool:
        """Return True if records would be lost unless a snapshot comes before the first append.

        Raises:
            StorageFailed: the disk refused.
        """
        if self._is_unsure:
            return True
        ends = self._opened(now_ms).log_end_offset
        snapshot = self._snapshots[-1].end_offset if self._snapshots else 0
        return self._end not in (ends, snapshot)

    def append(self, batches: Sequence[bytes], now_ms: int) -> None:
        """Append batches at the log end, and flush them.

        Raises:
            StorageFailed: the disk refused; the log is as it was.
        """
        log = self._aligned(now_ms)
        if self._refused is not None:
            log.truncate_to(self._refused, now_ms)
            self._refused = None
        if log.is_in_doubt:
            log.flush()  # writes again what a sync that failed may have lost
        end = log.log_end_offset
        append_ms = max(now_ms, log.floor.last or now_ms)
        data = b"".join(batches)
        try:
            appended_at = [AppendTimeStretch(end, append_ms)]
            log.append(SourceBatches(data, appended_at), now_ms, Origin.RESTORE)
            log.flush()
        except StorageFailed:
            if log.log_end_offset > end:
                self._refused = end
                with suppress(StorageFailed):
                    log.truncate_to(end, now_ms)
                    self._refused = None
            raise
        log.move_high_watermark(log.log_end_offset)
        self.size_behind_snapshot += len(data)

    def _opened(self, now_ms: int) -> Log:
        if self._log is not None:
            return self._log
        synced = self._snapshots[-1].end_offset if self._snapshots else None
        self._log = open_metadata_log(
            self._files, self._log_dir, now_ms, synced=synced, irregular=self._irregular
        )
        self._irregular.clear()
        return self._log

    def _aligned(self, now_ms: int) -> Log:
        """Open the log, and move its end behind all records that count."""
        log = self._opened(now_ms)
        if not self._is_aligned and log.log_end_offset != self._end:
            # A snapshot is ahead of the log, or damage was cut off with what follows it, which
            # counts and is in a snapshot.
            log.truncate_fully(self._end, now_ms)
        self._is_aligned = True
        return log

    @property
    def next_offset(self) -> int:
        """Offset of the next record."""
        if self._log is None or not self._is_aligned:
            return self._end
        return self._log.log_end_offset if self._refused is None else self._refused

    def snapshot(self, snapshot_id: SnapshotId, batches: Iterator[bytes], now_ms: int) -> None:
        """Write a snapshot, and remove snapshots and segments that are no longer needed.

        Raises:
            StorageFailed: the disk refused; what there was counts.
        """
        newest = max(self._snapshots, default=snapshot_id)
        if self._damaged and newest.end_offset == snapshot_id.end_offset:
            snapshot_id = max(snapshot_id, newest)  # it must be the one that counts
        _make(self._files, self._log_dir)
        self._keep_damaged()
        write_snapshot(self._files, f"{self.directory}/{snapshot_id.name}", batches)
        self._files.sync_path(self.directory)
        for name in self._files.names_in(self.directory):
            if name.endswith(PART) or any(
                name == damaged.name for damaged in self._damaged - {snapshot_id}
            ):
                self._files.remove(f"{self.directory}/{name}")
        snapshots = sorted({*self._snapshots, snapshot_id} - (self._damaged - {snapshot_id}))
        self._damaged.clear()
        self._is_unsure = False
        self.size_behind_snapshot = 0
        self.snapshot_size = self._files.size(f"{self.directory}/{snapshot_id.name}")
        self._snapshots, start = retire_snapshots(
            self._files, self.directory, snapshots, now_ms - HISTORY_MS
        )
        log = self._aligned(now_ms)
        log.start_at(start)
        log.apply_retention(now_ms, now_ms)
        log.removed_files.remove_due(names.MAX_OFFSET)

    @property
    def is_only_formatted(self) -> bool:
        """True if the directory has the snapshot of Kafka's formatting (4.4), and nothing behind.

        To be asked after `replay`.
        """
        if self._snapshots != [_FORMATTED] or self._damaged or self._irregular or self._end:
            return False
        return not base_offsets(self._files.names_in(self.directory), names.LOG)

    def replace_format(self, batches: Iterator[bytes]) -> None:
        """Replace the snapshot of Kafka's formatting.

        Raises:
            StorageFailed: the disk refused; what there was counts.
        """
        write_snapshot(self._files, f"{self.directory}/{_FORMATTED.name}", batches)
        self._files.sync_path(self.directory)

    def _keep_damaged(self) -> None:
        """Copy damaged snapshots aside, because a new one replaces them."""
        damaged = [snapshot.name for snapshot in self._damaged]
        clear_the_way(self._files, self.directory, damaged)
        for name in damaged:
            if self._files.exists(f"{self.directory}/{name}"):
                copy_aside(self._files, f"{self.directory}/{name}")

    def close(self) -> None:
        """Flush and close the log."""
        if self._log is not None:
            for path in self._log.finish():
                self._files.sync_path(path)
            self._log.finished()
            self._log = None
