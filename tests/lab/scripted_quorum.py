"""The metadata log of a scripted quorum: batches, epochs, snapshots, and a high watermark to hold.

The leader's own image has every record, committed or not, as that of a controller has.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from horolog.metadata.image import Image
from horolog.metadata.snapshots import SnapshotId, snapshot_batches
from horolog.record.builder import LogRecord, build_batch
from horolog.schemas import control
from horolog.schemas.control import Voter, control_key
from horolog.schemas.metadata import METADATA_VERSION, FeatureLevel, Record, encode


class StoredBatch(NamedTuple):
    base: int
    end: int  # exclusive
    epoch: int
    data: bytes
    records: tuple[Record, ...]


class EndOfEpoch(NamedTuple):
    epoch: int
    end: int


class QuorumLog:
    """Offsets as a quorum's leader has them; appends count from the high watermark on."""

    def __init__(self, voters: Sequence[int], now_ms: int = 0) -> None:
        self.voters = tuple(voters)
        self.leader = self.voters[0]
        self.epoch = 0
        self.now_ms = now_ms
        self.image = Image()
        self.batches: list[StoredBatch] = []
        self.snapshots: dict[SnapshotId, bytes] = {}
        self.kept_control: dict[int, bytes] = {}
        """Control records that a snapshot has, by type."""
        self.start = 0
        self.high_watermark = 0
        self.is_held = False
        """Whether the high watermark stays, as if no majority had the new records."""
        self.max_records = 1000
        """Most records of a batch; more of one append go into further ones."""

    @property
    def end(self) -> int:
        """Offset of the next record."""
        return self.batches[-1].end if self.batches else self.start

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record."""
        if self.batches:
            return self.batches[-1].epoch
        return max((it.epoch for it in self.snapshots), default=0)

    def append(self, records: Sequence[Record]) -> int:
        """Append records to the log and the image; the offset of the first."""
        base = self.end
        for at in range(0, len(records), self.max_records):
            self._append_batch(tuple(records[at : at + self.max_records]))
        return base

    def _append_batch(self, records: tuple[Record, ...]) -> None:
        level, values = self.image.metadata_version, []
        for record in records:
            if isinstance(record, FeatureLevel) and record.name == METADATA_VERSION:
                level = record.level
            values.append(encode(record, level))
            self.image.apply(record)
        self.append_values(values, records)

    def append_values(self, values: Iterable[bytes], records: tuple[Record, ...] = ()) -> None:
        """Append a batch of encoded records, whatever they are; the image has `records`."""
        rows = [LogRecord(self.now_ms, None, value) for value in values]
        data = build_batch(rows, base_offset=self.end, leader_epoch=self.epoch)
        self._store(data, len(rows), records)

    def _store(self, data: bytes, count: int, records: tuple[Record, ...]) -> None:
        self.batches.append(StoredBatch(self.end, self.end + count, self.epoch, data, records))
        if not self.is_held:
            self.high_watermark = self.end

    def lead(self, node_id: int, *, lose_tail: bool = False) -> None:
        """Begin an epoch; with `lose_tail` the new leader has nothing above the high watermark."""
        if lose_tail:
            self.batches = [it for it in self.batches if it.end <= self.high_watermark]
            self.image = self.image_at(self.end)
        self.leader = node_id
        self.epoch += 1
        value = control.leader_change(node_id, [Voter(it) for it in self.voters])
        self._append_control(control.LEADER_CHANGE, value)

    def make_dynamic(self) -> None:
        """Raise `kraft.version` to 1; the voters' directories stay unknown."""
        self.kept_control[control.KRAFT_VERSION] = value = bytes((0, 0, 0, 1, 0))
        self._append_control(control.KRAFT_VERSION, value)

    def _append_control(self, kind: int, value: bytes) -> None:
        rows = [LogRecord(self.now_ms, control_key(kind), value)]
        data = build_batch(rows, base_offset=self.end, leader_epoch=self.epoch, is_control=True)
        self._store(data, 1, ())

    def hold(self) -> None:
        """Keep the high watermark where it is."""
        self.is_held = True

    def release(self) -> None:
        """Commit what there is, and what comes."""
        self.is_held = False
        self.high_watermark = self.end

    def image_at(self, offset: int) -> Image:
        """The image of all records below an offset, which no snapshot has replaced."""
        image = Image()
        assert not self.start, "records below a snapshot are gone"
        for batch in self.batches:
            for record in batch.records if batch.end <= offset else ():
                image.apply(record)
        return image

    def snapshot(self, *, deletes_log: bool = True) -> SnapshotId:
        """Write a snapshot of all there is, which must be committed."""
        assert self.high_watermark == self.end, "a snapshot has committed records only"
        data = b"".join(
            snapshot_batches(
                self.image.records(),
                epoch=self.last_epoch,
                last_timestamp=self.now_ms,
                kept_control=self.kept_control,
            )
        )
        snapshot_id = SnapshotId(self.end, self.last_epoch)
        self.snapshots[snapshot_id] = data
        if deletes_log:
            self.start = self.end
            self.batches.clear()
            for older in [it for it in self.snapshots if it != snapshot_id]:
                del self.snapshots[older]
        return snapshot_id

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Batches from the one with an offset on, committed or not; at least one if there is."""
        found: list[bytes] = []
        size = 0
        for batch in self.batches:
            if batch.end <= offset:
                continue
            if found and size + len(batch.data) > max_bytes:
                break
            found.append(batch.data)
            size += len(batch.data)
        return b"".join(found)

    def end_of(self, epoch: int) -> EndOfEpoch:
        """The largest epoch up to this one, and the offset after its last record."""
        earliest = min(self.snapshots, default=None)
        found = EndOfEpoch(0, 0) if earliest is None else EndOfEpoch(earliest.epoch, self.start)
        for batch in self.batches:
            if batch.epoch <= epoch:
                found = EndOfEpoch(batch.epoch, batch.end)
        return found

    def position_of(self, offset: int, epoch: int) -> SnapshotId | EndOfEpoch | None:
        """What a fetch from there gets instead of records: a snapshot, or where it parts."""
        newest, oldest = max(self.snapshots, default=None), min(self.snapshots, default=None)
        if newest is not None and offset == 0:
            return newest
        if self.start == 0 and offset == 0:
            return None
        if (
            newest is not None
            and oldest is not None
            and (
                offset < self.start
                or (offset == self.start and epoch != oldest.epoch)
                or epoch < oldest.epoch
            )
        ):
            return newest
        known = self.end_of(epoch)
        return known if known.epoch != epoch or known.end < offset else None
