"""Builds the image of a metadata log from its batches.

Records of a transaction (KIP-868) count once it has ended. Unreadable records, and those about
unknown things, are left out and noted; later records count. A broker of a cluster leaves nothing
out: a strict replay raises `MetadataUnreadable` instead.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, Damaged, RequestRefused
from horolog.metadata.image import Image
from horolog.record.batch import parse_header
from horolog.record.builder import read_records, read_values
from horolog.schemas import control
from horolog.schemas.control import Voter, header_timestamp, kind_of, version_in, voters_in
from horolog.schemas.metadata import (
    METADATA_VERSION,
    NEWEST_LEVEL,
    AbortTransaction,
    BeginTransaction,
    EndTransaction,
    FeatureLevel,
    PartitionRecord,
    Record,
    TopicRecord,
    Unknown,
    decode,
)
from horolog.storage import names

MOST_BATCH_BYTES: Final = 256 << 20
"""Limit of the decompressed size of a batch."""
_MOST_DAMAGE: Final = 100


class MetadataUnreadable(Damaged):
    """Raised for committed metadata that cannot be applied. The node must stop.

    Every broker of a cluster has to apply the same records: one that leaves out a record disagrees
    with the controllers.
    """


class Damage(NamedTuple):
    """Damaged record, or bytes without a whole batch."""

    path: str
    """File, or directory of the log."""
    what: str
    offset: int | None = None
    is_of_segment: bool = False
    """Whether it is about bytes of a segment that are not a batch."""

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


class MetadataReplay:
    """Image, epochs and damage after the batches so far."""

    def __init__(self, path: str, *, is_strict: bool = False) -> None:
        """Begin with an empty image. Damage is reported under the path.

        Args:
            path: file or directory that is read.
            is_strict: whether damage is raised as `MetadataUnreadable`, for a broker of a cluster.
        """
        self.path = path
        self._is_strict = is_strict
        self.image = Image()
        self.damage: list[Damage] = []
        self.next_offset = 0
        """Offset after the last batch."""
        self.leader_epoch = -1
        """Largest in any batch."""
        self.last_epoch = 0
        """Leader epoch of the last batch."""
        self.last_timestamp = 0
        """Largest in any batch."""
        self.voters: tuple[Voter, ...] = ()
        """Voters of a dynamic quorum."""
        self.kraft_version = 0
        """Level of `kraft.version`: 1 of a dynamic quorum."""
        self.kept_control: dict[int, bytes] = {}
        """Values of the last control records of `kraft.version` and the voters, by type."""
        self.snapshot_ms: int | None = None
        """Timestamp of the last record in the snapshot, while a snapshot is being read."""
        self._pending: list[tuple[int, Record]] | None = None

    @property
    def is_in_transaction(self) -> bool:
        """True if a transaction has begun and has not ended."""
        return self._pending is not None

    def take(self, batch: Buffer, start: int = 0) -> None:
        """Apply the records of a whole batch from the offset `start` on."""
        apply = self.image.apply
        for offset, record in self.counted(batch, start):
            try:
                apply(record)
            except CorruptBatch as error:
                self._note(offset, error)

    def counted(self, batch: Buffer, start: int = 0) -> Iterator[tuple[int, Record]]:
        """Yield offset and record of all records that count from a whole batch on.

        Records of a transaction come with the batch that ends it.
        """
        header = parse_header(batch)
        self.next_offset = header.last_offset + 1
        self.leader_epoch = max(self.leader_epoch, header.leader_epoch)
        self.last_epoch = max(header.leader_epoch, 0)
        self.last_timestamp = max(self.last_timestamp, header.max_timestamp)
        try:
            if header.is_control:
                self._control(batch)
                return
            values = read_values(batch, max_bytes=MOST_BATCH_BYTES)
        except (CorruptBatch, RequestRefused) as error:
            self._note(header.base_offset, error)
            return
        for offset, value in enumerate(values, header.base_offset):
            if offset < start or (value is None and not self._is_strict):
                continue
            try:
                record = _checked(value) if self._is_strict else decode(value or b"")
                self._check_transaction(record)
            except CorruptBatch as error:
                self._note(offset, error)
                continue
            if self._pending is None and not isinstance(record, BeginTransaction):
                yield offset, record
            elif isinstance(record, EndTransaction):
                pending, self._pending = self._pending, None
                yield from pending or ()
            elif isinstance(record, BeginTransaction):
                self._pending = []
            elif isinstance(record, AbortTransaction):
                self._pending = None
            elif self._pending is not None:
                self._pending.append((offset, record))

    def _check_transaction(self, record: Record) -> None:
        """Raise CorruptBatch if a strict replay meets a begin within a transaction, or no begin."""
        if self._is_strict and isinstance(
            record,
            EndTransaction | AbortTransaction if self._pending is None else BeginTransaction,
        ):
            raise CorruptBatch(f"{type(record).__name__} is not expected here")

    def drop_transaction(self) -> None:
        """Forget the open transaction, which never ends."""
        self._pending = None

    def _control(self, batch: Buffer) -> None:
        for record in read_records(batch, max_bytes=MOST_BATCH_BYTES):
            kind = kind_of(record.key)
            if kind == control.SNAPSHOT_HEADER:
                self.snapshot_ms = header_timestamp(record.value)
            elif kind == control.SNAPSHOT_FOOTER:
                self.snapshot_ms = None
            if kind in (control.KRAFT_VERSION, control.VOTERS):
                if kind == control.VOTERS:
                    self.voters = voters_in(record.value)
                else:
                    self.kraft_version = version_in(record.value)
                self.kept_control[kind] = record.value or b""

    def _note(self, offset: int, error: Exception) -> None:
        what = f"the record at offset {offset} does not count: {error}"
        self.note(Damage(self.path, what, offset))

    def note(self, damage: Damage) -> None:
        """Note damage; only the first hundred are kept.

        Raises:
            MetadataUnreadable: the replay is strict.
        """
        if self._is_strict:
            raise MetadataUnreadable(
                f"{damage}. This horolog is too old for its cluster, or the metadata is damaged"
            )
        if len(self.damage) < _MOST_DAMAGE:
            self.damage.append(damage)


def _checked(value: bytes | None) -> Record:
    """Read a record that a broker of a cluster must not ignore.

    Raises:
        CorruptBatch: there is none, its type is unknown, or it begins an unknown metadata.version.
    """
    record = decode(value or b"")
    if isinstance(record, Unknown):
        raise CorruptBatch(f"metadata records of type {record.type} are unknown")
    if isinstance(record, FeatureLevel) and record.name == METADATA_VERSION:
        level = record.level
        if level > NEWEST_LEVEL:
            raise CorruptBatch(
                f"metadata.version {level} is unknown; the newest known is {NEWEST_LEVEL}"
            )
    if isinstance(record, TopicRecord) and names.partition_of(f"{record.name}-0") is None:
        raise CorruptBatch(f"{record.name!r:.300} is no name of a topic")
    if isinstance(record, PartitionRecord) and not 0 <= record.partition <= names.MAX_PARTITION:
        raise CorruptBatch(f"{record.partition} is no partition")
    return record
