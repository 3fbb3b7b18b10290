"""Snapshots of a metadata log, in Kafka's format (KIP-630).

    <end offset, 20 digits>-<epoch, 10 digits>.checkpoint

contains the state after all records before the offset; the last of them has the epoch. Its first
batch is a control batch that begins with a header, its last one a footer. A snapshot that is being
written has the suffix `.part`. A snapshot counts if it can be read to its footer.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch
from horolog.record.batch import parse_header
from horolog.record.builder import LogRecord, build_batch, read_records
from horolog.schemas import control
from horolog.schemas.control import control_key, header_timestamp, kind_of
from horolog.storage.files import Files
from horolog.storage.record_file import RecordFile

SUFFIX: Final = ".checkpoint"
PART: Final = ".part"
_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_BATCH_BYTES: Final = 1 << 20
_MOST_CONTROL_BYTES: Final = 16 << 20


class SnapshotId(NamedTuple):
    """Identifies a snapshot of all records before an offset by the epoch of the last one."""

    end_offset: int
    epoch: int

    @property
    def name(self) -> str:
        """Name of the file."""
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"


def snapshots_in(present: Iterable[str]) -> list[SnapshotId]:
    """Return the snapshots among file names, in order."""
    found = (_NAME.fullmatch(name) for name in present)
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in found if match)


class SnapshotReader:
    """Batches of a snapshot, as far as they can be read."""

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self.damage: str | None = None
        """Damage found by `read`; None if the snapshot is whole."""
        self.last_timestamp = 0
        """Timestamp of its last record, by its header."""
        self._file = RecordFile(files, path)

    def read(self) -> Iterator[Buffer]:
        """Yield the batches in order, control batches included.

        Raises:
            StorageFailed: it cannot be read at all.
        """
        began = ended = False
        first = True
        for batch in self._file.read():
            if parse_header(batch).is_control:
                try:
                    for record in read_records(batch, max_bytes=_MOST_CONTROL_BYTES):
                        kind = kind_of(record.key)
                        if kind == control.SNAPSHOT_HEADER and first:
                            self.last_timestamp = header_timestamp(record.value)
                            began = True
                        ended |= kind == control.SNAPSHOT_FOOTER
                except CorruptBatch as error:
                    self.damage = str(error)
            first = False
            yield batch
        if self._file.lost:
            lost = self._file.lost[0]
            self.damage = f"bytes {lost.start} to {lost.end}: {lost.reason}"
        elif not began or not ended:
            which = "footer" if began else "header"
            self.damage = f"it is no whole snapshot: it has no {which}"


def write_snapshot(files: Files, path: str, batches: Iterable[bytes]) -> None:
    """Write a snapshot to a temporary file and rename it.

    The caller syncs the directory.

    Raises:
        StorageFailed: the disk refused; there is none of this name.
    """
    part = path + PART
    files.remove(part)
    file = files.create(part)
    position = 0
    for batch in batches:
        files.write_at(file, [batch], position)
        position += len(batch)
    files.sync(file)
    files.rename(part, path)


def snapshot_batches(
    values: Iterable[bytes],
    *,
    epoch: int,
    last_timestamp: int,
    kept_control: dict[int, bytes],
) -> Iterator[bytes]:
    """Yield the batches of a snapshot.

    Args:
        values: the records of an image.
        epoch: of the last record that is in it.
        last_timestamp: as well, in milliseconds.
        kept_control: values of the control records that a snapshot keeps, by type.
    """
    offset = 0

    def batch(records: list[LogRecord], *, is_control: bool = False) -> bytes:
        nonlocal offset
        made = build_batch(records, base_offset=offset, leader_epoch=epoch, is_control=is_control)
        offset += len(records)
        return made

    def record(value: bytes, kind: int | None = None) -> LogRecord:
        return LogRecord(last_timestamp, None if kind is None else control_key(kind), value)

    header = control.snapshot_header(last_timestamp)
    kept = [record(value, kind) for kind, value in sorted(kept_control.items())]
    yield batch([record(header, control.SNAPSHOT_HEADER), *kept], is_control=True)
    some: list[LogRecord] = []
    size = 0
    for value in values:
        some.append(record(value))
        size += len(value)
        if size > _BATCH_BYTES:
            yield batch(some)
            some, size = [], 0
    if some:
        yield batch(some)
    yield batch([record(control.snapshot_footer(), control.SNAPSHOT_FOOTER)], is_control=True)


def retire_snapshots(
    files: Files, directory: str, snapshots: Sequence[SnapshotId], before_ms: int
) -> tuple[list[SnapshotId], int]:
    """Remove snapshots that only describe the state before a time.

    Args:
        before_ms: snapshots whose last record is older are removed, except the newest of them.

    Returns:
        The snapshots that are left, and the offset from which on the log is needed.

    Raises:
        StorageFailed: the disk refused.
    """
    paths = [f"{directory}/{snapshot.name}" for snapshot in snapshots]
    old = [path for path in paths if _timestamp_of(files, path) < before_ms]
    if not old:
        return list(snapshots), 0
    first = paths.index(old[-1])
    for path in paths[:first]:
        files.remove(path)
    return list(snapshots[first:]), snapshots[first].end_offset


def _timestamp_of(files: Files, path: str) -> int:
    reader = SnapshotReader(files, path)
    next(reader.read(), None)
    return reader.last_timestamp
