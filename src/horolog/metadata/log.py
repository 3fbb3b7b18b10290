"""The metadata log, which is the only source of topics, settings and reserved producer ids.

    log = MetadataLog.open(files, log_dir, node_id=1)
    log.image                       # what all records have come to
    log.append(records, now_ms)     # one batch, on the disk, then in the image
    log.snapshot(now_ms)
    log.close()

The log is `__cluster_metadata-0`, as the only voter of a KRaft quorum writes it (KIP-595): an
Apache Kafka continues with it, and the other way round.

Each process that appends leads in an epoch of its own, which a LeaderChange record begins. Damaged
records are left out and reported in `damage`. A snapshot of the others comes before the first
append.
"""

import logging
from collections.abc import Sequence
from typing import Final

from horolog.errors import StorageFailed
from horolog.metadata.forms import KafkaForm
from horolog.metadata.image import Image
from horolog.metadata.replay import MetadataReplay
from horolog.metadata.snapshots import SnapshotId, snapshot_batches
from horolog.record.builder import LogRecord, build_batch
from horolog.schemas import control
from horolog.schemas.control import Voter, control_key
from horolog.schemas.metadata import (
    METADATA_VERSION,
    AbortTransaction,
    FeatureLevel,
    Record,
    encode,
)
from horolog.storage.files import Files

SNAPSHOT_BYTES: Final = 1 << 20
"""Bytes after the last snapshot that lead to the next one, if they are at least its size. Kafka
waits for 20 MB (`metadata.log.max.record.bytes.between.snapshots`); a start here would read
that for seconds."""

_MAX_EPOCH: Final = (1 << 31) - 1

_logger = logging.getLogger(__name__)


class MetadataLog:
    """Metadata log of a directory.

    For one thread at a time; others may read the image between appends.
    """

    def __init__(
        self,
        form: KafkaForm,
        node_id: int,
        replay: MetadataReplay,
        snapshot_bytes: int = SNAPSHOT_BYTES,
    ) -> None:
        """Continue a log that `open` has read."""
        self._form = form
        self._node_id = node_id
        self._replay = replay
        self._leads_in: int | None = None
        self._snapshot_bytes = snapshot_bytes
        self.damage = tuple(map(str, replay.damage))
        """Sentences about unreadable parts of the log; empty if it is whole."""

    @classmethod
    def open(
        cls,
        files: Files,
        log_dir: str,
        *,
        node_id: int,
        earlier: str | None = None,
        snapshot_bytes: int = SNAPSHOT_BYTES,
    ) -> "MetadataLog":
        """Read a directory's metadata log; nothing is written before the first append.

        Args:
            log_dir: the log directory, which is locked.
            node_id: id of this broker, the only voter.
            earlier: path of a file in which an earlier development version kept the metadata. It
                is read if there is no log yet.
            snapshot_bytes: bytes after the last snapshot that lead to the next one, if they are at
                least its size.

        Raises:
            StorageFailed: the log cannot be read at all.
        """
        form = KafkaForm(files, log_dir)
        replay = form.replay()
        if earlier is not None and not replay.next_offset and not replay.damage:
            replay = form.begin_from(earlier)
        return cls(form, node_id, replay, snapshot_bytes)

    @property
    def image(self) -> Image:
        """State after all records."""
        return self._replay.image

    @property
    def voters(self) -> tuple[Voter, ...]:
        """Voters of a dynamic quorum; empty for a static one."""
        return self._replay.voters

    @property
    def leader_epoch(self) -> int:
        """Epoch that this process leads in, or will begin with its first append."""
        if self._leads_in is not None:
            return self._leads_in
        return min(max(self._replay.leader_epoch, 0) + 1, _MAX_EPOCH)

    @property
    def next_offset(self) -> int:
        """Offset of the next appended record.

        A broker's epoch is the offset of its registration.
        """
        before = self._opening(0) if self._leads_in is None else []
        return self._replay.next_offset + len(before)

    def append(self, records: Sequence[Record], now_ms: int) -> int:
        """Append records as one batch: all of them count, or none does.

        A new log begins with the FeatureLevel of `metadata.version`.

        Returns:
            The offset of the first.

        Raises:
            ValueError: a number does not fit its field. Nothing has changed.
            CorruptBatch: a record is about something that is not there. Nothing has changed.
            StorageFailed: the disk refused. Nothing has changed.
        """
        assert records
        self.image.check(records)
        values = self._encoded(records)
        if self._leads_in is None and (self.damage or self._form.needs_snapshot(now_ms)):
            self.snapshot(now_ms)
        epoch, offset = self.leader_epoch, self._replay.next_offset
        batches = self._opening(now_ms) if self._leads_in is None else []
        offset += len(batches)
        batches.append(
            build_batch(
                [LogRecord(now_ms, None, value) for value in values],
                base_offset=offset,
                leader_epoch=epoch,
            )
        )
        self._form.append(batches, now_ms)
        replay = self._replay
        if self._leads_in is None:
            self._leads_in = replay.leader_epoch = epoch
            replay.drop_transaction()
        replay.next_offset = offset + len(values)
        replay.last_epoch = epoch
        replay.last_timestamp = max(replay.last_timestamp, now_ms)
        for record in records:
            self.image.apply(record)
        if self._form.size_behind_snapshot > max(self._snapshot_bytes, self._form.snapshot_size):
            try:
                self.snapshot(now_ms)
            except StorageFailed as error:  # the log has it all
                _logger.warning("No snapshot of the metadata was made: %s", error)
        return offset

    def _encoded(self, records: Sequence[Record]) -> list[bytes]:
        level = self.image.metadata_version
        values = []
        for record in records:
            if isinstance(record, FeatureLevel) and record.name == METADATA_VERSION:
                level = record.level
            values.append(encode(record, level))
        return values

    def _opening(self, now_ms: int) -> list[bytes]:
        """Build the batches that begin an epoch, each of one record."""
        epoch, offset = self.leader_epoch, self._replay.next_offset
        voters = self._replay.voters or (Voter(self._node_id),)
        value = control.leader_change(self._node_id, voters)
        begins = LogRecord(now_ms, control_key(control.LEADER_CHANGE), value)
        batches = [build_batch([begins], base_offset=offset, leader_epoch=epoch, is_control=True)]
        if self._replay.is_in_transaction:
            # Of a controller that was killed: what follows would be taken for a part of it.
            aborts = encode(AbortTransaction("The controller ended within it"))
            batches.append(
                build_batch(
                    [LogRecord(now_ms, None, aborts)], base_offset=offset + 1, leader_epoch=epoch
                )
            )
        return batches

    def snapshot(self, now_ms: int) -> None:
        """Write a snapshot, and remove snapshots older than a year with the records before them.

        Raises:
            StorageFailed: the disk refused; the log and earlier snapshots count.
        """
        replay = self._replay
        if not replay.next_offset:
            return
        batches = snapshot_batches(
            replay.image.records(),
            epoch=max(replay.last_epoch, 0),
            last_timestamp=replay.last_timestamp,
            kept_control=replay.kept_control,
        )
        snapshot_id = SnapshotId(replay.next_offset, max(replay.last_epoch, 0))
        try:
            self._form.snapshot(snapshot_id, batches, now_ms)
        finally:
            replay.next_offset = self._form.next_offset

    def add_to_format(self, records: Sequence[Record]) -> bool:
        """Add records to those of Kafka's formatting; False if a broker has served the directory.

        Raises:
            StorageFailed: the disk refused. Nothing has changed.
        """
        if self.damage or not self._form.is_only_formatted:
            return False
        self.image.check(records)
        self._form.hide()
        for record in records:
            self.image.apply(record)
        batches = snapshot_batches(
            self.image.records(),
            epoch=0,
            last_timestamp=self._replay.last_timestamp,
            kept_control=self._replay.kept_control,
        )
        self._form.replace_format(batches)
        return True

    def hide(self) -> None:
        """Let nobody but their owner read the files: they have keys that check passwords.

        Raises:
            StorageFailed: the disk refused.
        """
        self._form.hide()

    def close(self) -> None:
        """Flush and close the files.

        Raises:
            StorageFailed: the disk refused; the next start recovers the log.
        """
        self._form.close()
