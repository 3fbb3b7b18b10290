"""Copy of a quorum's metadata log, which a broker of a cluster keeps on disk.

    log = ObservedLog.open(files, log_dir, now_ms)
    log.append(data, leader_epoch)          # as fetched: the active controller's bytes
    for batch in log.read(start, end): …    # whole batches below the quorum's high watermark
    log.truncate(epoch, end_offset)         # where the active controller's log parts from this one
    log.snapshot(replay)                    # own snapshot; or one that is fetched, as `incoming`

The files are those of a node alone (`forms`), so that Apache Kafka continues with them, and
`horolog topics history` reads them. Nothing says on disk how far the log is committed: a start
reads it once a controller has named the high watermark. What is damaged is dropped, and fetched
again. For one thread.
"""

import json
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, StorageFailed
from horolog.metadata.forms import PARTITION, QUORUM_STATE, open_metadata_log
from horolog.metadata.replay import MetadataReplay
from horolog.metadata.snapshots import (
    PART,
    SnapshotId,
    SnapshotReader,
    retire_snapshots,
    snapshot_batches,
    snapshots_in,
    write_snapshot,
)
from horolog.record.batch import LOG_OVERHEAD, BatchHeader, parse_header
from horolog.storage import Log, names
from horolog.storage.files import Files
from horolog.storage.logs.incoming import Origin, SourceBatches
from horolog.storage.record_file import RecordFile
from horolog.storage.removal.leftovers import base_offsets

SNAPSHOT_BYTES: Final = 4 << 20
"""Bytes after the last snapshot that lead to the next one, if they are at least its size."""
KEPT_MS: Final = 7 * 24 * 3_600_000
"""Time for which snapshots are kept, with the records before them; Kafka's default."""
KEPT_BYTES: Final = 100 << 20
"""Size of the directory above which they go earlier; Kafka's default."""
_MOST_HELD_BYTES: Final = 16 << 20
_NO_DIRECTORY: Final = "AAAAAAAAAAAAAAAAAAAAAA"

_logger = logging.getLogger(__name__)


class ObservedLog:
    """The log, its newest snapshot, and the batches that may not be committed yet."""

    def __init__(
        self,
        files: Files,
        log_dir: str,
        log: Log,
        snapshots: list[SnapshotId],
        now_ms: Callable[[], int],
    ) -> None:
        """Use a log that `open` has opened."""
        self.directory = f"{log_dir}/{PARTITION}"
        self._files = files
        self._log = log
        self._snapshots = snapshots
        self._now_ms = now_ms
        self._size_behind_snapshot = 0
        self._held: deque[tuple[BatchHeader, bytes]] = deque()  # the last batches of the log
        self._held_bytes = 0
        self._quorum: tuple[int, int] | None = None

    @classmethod
    def open(cls, files: Files, log_dir: str, now_ms: Callable[[], int]) -> "ObservedLog":
        """Open the copy in a log directory, which is locked; a new one is empty.

        Raises:
            StorageFailed: the disk refused.
        """
        directory, now = f"{log_dir}/{PARTITION}", now_ms()
        present = files.names_in(directory) if files.exists(directory) else []
        for name in present:
            if name.endswith(PART):
                files.remove(f"{directory}/{name}")
        snapshots = snapshots_in(present)
        while snapshots and (why := _damage(files, directory, snapshots[-1])) is not None:
            name = snapshots.pop().name
            _logger.warning("%s/%s is dropped, and fetched again: %s", directory, name, why)
            files.remove(f"{directory}/{name}")
        start = snapshots[-1].end_offset if snapshots else 0
        log = open_metadata_log(
            files, log_dir, now, synced=start if snapshots else None, committed=start
        )
        log.is_of_cluster = True  # what is cut is fetched again, or was never committed
        self = cls(files, log_dir, log, snapshots, now_ms)
        if not log.log_start_offset <= start <= log.log_end_offset:
            if start < log.log_start_offset:  # the snapshot before the log is lost
                start = 0
                self._drop_snapshots()
            log.truncate_fully(start, now)
        self._size_behind_snapshot = sum(
            header.size for header, _ in self._on_disk(start, log.log_end_offset)
        )
        return self

    # Where it ends.

    @property
    def snapshot_id(self) -> SnapshotId | None:
        """The newest snapshot; None without one. What is in it is committed."""
        return self._snapshots[-1] if self._snapshots else None

    @property
    def end_offset(self) -> int:
        """Offset of the next record to fetch."""
        return self._log.log_end_offset

    @property
    def last_epoch(self) -> int:
        """Leader epoch of the last record; 0 of an empty log, as the controllers expect."""
        snapshot = self.snapshot_id
        behind = snapshot is None or self.end_offset > snapshot.end_offset
        if snapshot is None or (behind and self._log.epochs.latest >= 0):
            return max(self._log.epochs.latest, 0)
        return snapshot.epoch

    # Batches.

    def append(self, data: Buffer, leader_epoch: int) -> int:
        """Append whole batches as they were fetched; return their number.

        A batch at the end that is not whole is left out.

        Args:
            data: batches from the log end on.
            leader_epoch: epoch of the controller that sent them.

        Raises:
            CorruptBatch: a batch is damaged, or does not follow the one before it. Those before
                are appended.
            StorageFailed: the disk refused.
        """
        expected, epoch, position = self.end_offset, self.last_epoch, 0
        found: list[tuple[BatchHeader, int]] = []
        damage: CorruptBatch | None = None
        try:
            while position + LOG_OVERHEAD <= len(data):
                size = LOG_OVERHEAD + int.from_bytes(data[position + 8 : position + 12], "big")
                if position + size > len(data):
                    break
                header = parse_header(data, position)
                if header.base_offset != expected or header.magic != 2:
                    raise CorruptBatch(f"batch at {header.base_offset}, expected at {expected}")
                if not epoch <= header.leader_epoch <= leader_epoch:
                    raise CorruptBatch(
                        f"batch of epoch {header.leader_epoch} after {epoch}, from the leader of "
                        f"{leader_epoch}"
                    )
                found.append((header, position))
                position += header.size
                expected, epoch = header.next_offset, header.leader_epoch
        except CorruptBatch as error:
            damage = error
        if found:
            whole = data[:position]
            before = self.end_offset
            try:
                self._log.append(SourceBatches(whole), self._now_ms(), Origin.RESTORE)
            finally:
                end = self.end_offset
                appended = [it for it in found if before < it[0].next_offset <= end]
                self._hold((h, bytes(whole[at : at + h.size])) for h, at in appended)
        if damage is not None:
            raise damage
        return len(found)

    def _hold(self, batches: Iterator[tuple[BatchHeader, bytes]]) -> None:
        """Keep batches in memory until they are committed; too many are read from disk instead."""
        for header, batch in batches:
            self._held.append((header, batch))
            self._held_bytes += header.size
            self._size_behind_snapshot += header.size
        if self._held_bytes > _MOST_HELD_BYTES:
            self._forget_held()

    def _forget_held(self) -> None:
        self._held.clear()
        self._held_bytes = 0

    def read(self, start: int, end: int) -> Iterator[Buffer]:
        """Yield the whole batches from an offset on that end at or before another.

        All before `end` is committed.

        Raises:
            StorageFailed: the disk refused.
        """
        self._log.move_high_watermark(end)
        held = self._held
        while held and held[0][0].next_offset <= start:
            self._held_bytes -= held.popleft()[0].size
        if held and held[0][0].base_offset <= start:
            while held and held[0][0].next_offset <= end:
                header, batch = held.popleft()
                self._held_bytes -= header.size
                yield batch
        else:
            yield from (stored for _, stored in self._on_disk(start, end))

    def _on_disk(self, start: int, end: int) -> Iterator[tuple[BatchHeader, Buffer]]:
        bases = base_offsets(self._files.names_in(self.directory), names.LOG)
        following = [*bases[1:], end + 1]
        for base, after in zip(bases, following, strict=True):
            if after <= start or base >= end:
                continue
            path = f"{self.directory}/{names.segment_file(base, names.LOG)}"
            for batch in RecordFile(self._files, path, base).read():
                header = parse_header(batch)
                if header.next_offset > end:
                    return
                if header.next_offset > start:
                    yield header, batch

    def truncate(self, epoch: int, end_offset: int, *, committed: int) -> None:
        """Remove the records that the active controller does not have.

        Args:
            epoch: largest epoch of the controller's log that is not above the one it was asked for.
            end_offset: end of that epoch there.
            committed: offset below which all records are known to be committed.

        Raises:
            CorruptBatch: the controller lacks committed records. Nothing is removed.
            StorageFailed: the disk refused.
        """
        ours = self._log.epochs.end_offset_for(epoch, self.end_offset)
        at = end_offset
        if ours is not None:
            at = min(end_offset, ours.start_offset) if ours.epoch == epoch else ours.start_offset
        at = min(at, self.end_offset)
        snapshot = self.snapshot_id
        least = max(committed, 0 if snapshot is None else snapshot.end_offset)
        if at < least:
            raise CorruptBatch(
                f"the controller has epoch {epoch} up to offset {end_offset} alone, and records up "
                f"to offset {least} were committed before"
            )
        if at < self.end_offset:
            self._forget_held()
            self._log.truncate_to(at, self._now_ms())

    # Snapshots.

    def read_snapshot(self, snapshot_id: SnapshotId) -> Iterator[Buffer]:
        """Yield the batches of a snapshot.

        Raises:
            StorageFailed: it cannot be read.
        """
        return SnapshotReader(self._files, f"{self.directory}/{snapshot_id.name}").read()

    def incoming(self, snapshot_id: SnapshotId) -> "IncomingSnapshot":
        """Begin to write a snapshot that is fetched in parts.

        Raises:
            StorageFailed: the disk refused.
        """
        return IncomingSnapshot(self._files, f"{self.directory}/{snapshot_id.name}")

    def begin_at(self, snapshot_id: SnapshotId) -> None:
        """Continue behind a snapshot that has come, which replaces the log.

        Raises:
            StorageFailed: the disk refused.
        """
        self._forget_held()
        self._files.sync_path(self.directory)
        if self.end_offset != snapshot_id.end_offset or self.last_epoch != snapshot_id.epoch:
            self._log.truncate_fully(snapshot_id.end_offset, self._now_ms())
        self._took(snapshot_id)

    @property
    def needs_snapshot(self) -> bool:
        """True if so much is behind the newest snapshot that a start takes long."""
        snapshot = self.snapshot_id
        size = 0
        if snapshot is not None:
            size = self._files.size(f"{self.directory}/{snapshot.name}")
        return self._size_behind_snapshot > max(SNAPSHOT_BYTES, size)

    def snapshot(self, replay: MetadataReplay) -> None:
        """Write a snapshot of what is applied, all of which is committed.

        Raises:
            StorageFailed: the disk refused; nothing is lost.
        """
        snapshot_id = SnapshotId(replay.next_offset, replay.last_epoch)
        batches = snapshot_batches(
            replay.image.records(),
            epoch=replay.last_epoch,
            last_timestamp=replay.last_timestamp,
            kept_control=replay.kept_control,
        )
        write_snapshot(self._files, f"{self.directory}/{snapshot_id.name}", batches)
        self._files.sync_path(self.directory)
        self._log.flush()
        self._log.roll(self._now_ms())  # so that a start reads only what is behind it
        self._took(snapshot_id)

    def _took(self, snapshot_id: SnapshotId) -> None:
        """Continue with a new snapshot, and remove old ones with the records before them."""
        now = self._now_ms()
        snapshots = sorted({*self._snapshots, snapshot_id})
        self._size_behind_snapshot = sum(header.size for header, _ in self._held)
        self._snapshots, start = retire_snapshots(
            self._files, self.directory, snapshots, now - KEPT_MS
        )
        while len(self._snapshots) > 1 and self._size() > KEPT_BYTES:
            self._files.remove(f"{self.directory}/{self._snapshots.pop(0).name}")
            start = self._remove_before(self._snapshots[0].end_offset)
        self._remove_before(start)

    def _remove_before(self, start: int) -> int:
        log, now = self._log, self._now_ms()
        log.move_high_watermark(max(start, 0))
        log.start_at(start)
        log.apply_retention(now, now)
        log.removed_files.remove_due(names.MAX_OFFSET)
        return start

    def _size(self) -> int:
        return sum(entry.size for entry in self._files.below(self.directory))

    def _drop_snapshots(self) -> None:
        for snapshot_id in self._snapshots:
            self._files.remove(f"{self.directory}/{snapshot_id.name}")
        self._snapshots.clear()

    # The quorum.

    def note_leader(self, leader_id: int, leader_epoch: int) -> None:
        """Write the quorum's leader epoch in Kafka's form, unless it is there.

        A failure is logged: an epoch that is lost is learned again.
        """
        if self._quorum == (leader_id, leader_epoch):
            return
        state = {
            "leaderId": leader_id,
            "leaderEpoch": leader_epoch,
            "votedId": -1,
            "votedDirectoryId": _NO_DIRECTORY,
            "data_version": 1,
        }
        try:
            self._files.replace(f"{self.directory}/{QUORUM_STATE}", json.dumps(state).encode())
        except StorageFailed as error:
            _logger.warning("The quorum's leader is not written down: %s", error)
            return
        self._quorum = leader_id, leader_epoch

    def close(self) -> None:
        """Flush and close the log.

        Raises:
            StorageFailed: the disk refused; the next start fetches what is missing.
        """
        for path in self._log.finish():
            self._files.sync_path(path)
        self._log.finished()


class IncomingSnapshot:
    """A snapshot that is being fetched."""

    def __init__(self, files: Files, path: str) -> None:
        """Begin an empty file beside the path."""
        self._files = files
        self._path = path
        self.size = 0
        """Bytes that have come."""
        files.remove(path + PART)
        self._file = files.create(path + PART)

    def add(self, data: Buffer) -> None:
        """Append the next bytes.

        Raises:
            StorageFailed: the disk refused.
        """
        self._files.write_at(self._file, [data], self.size)
        self.size += len(data)

    def read(self) -> Iterator[Buffer]:
        """Yield the batches, once all bytes have come.

        Raises:
            CorruptBatch: they are no whole snapshot.
            StorageFailed: the disk refused.
        """
        reader = SnapshotReader(self._files, self._path + PART)
        yield from reader.read()
        if reader.damage is not None:
            raise CorruptBatch(f"a fetched snapshot is damaged: {reader.damage}")

    def finish(self) -> None:
        """Give the file its name; `ObservedLog.begin_at` follows.

        Raises:
            StorageFailed: the disk refused.
        """
        self._files.sync(self._file)
        self._files.rename(self._path + PART, self._path)

    def drop(self) -> None:
        """Remove what has come."""
        self._files.remove(self._path + PART)


def _damage(files: Files, directory: str, snapshot_id: SnapshotId) -> str | None:
    """Return why a snapshot cannot be used; None if it is whole."""
    reader = SnapshotReader(files, f"{directory}/{snapshot_id.name}")
    for _ in reader.read():
        pass
    return reader.damage
