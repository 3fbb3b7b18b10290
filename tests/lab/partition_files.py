"""Partition directories as Kafka lays them out, with the truth of what was put in."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from horolog.record import (
    Codec,
    LogRecord,
    TimestampType,
    build_batch,
    iter_headers,
    parse_header,
    read_records,
)
from horolog.storage import AbortedTxn, Files, IndexBuilder, write_aborted

BASE_OFFSET = 1_000


class Row(NamedTuple):
    """A record as a reader must see it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def odd_records(ms: int) -> list[LogRecord]:
    """Records without a key, a value, or anything; and headers of one name, and without a value."""
    return [
        LogRecord(ms, None, b"no key"),
        LogRecord(ms, b"tombstone", None),
        LogRecord(ms, b"", b"", (("h", b"1"), ("h", None), ("naïve", b""))),
    ]


@dataclass
class PartitionFiles:
    """Writes one partition, batch by batch; `roll` starts the next segment."""

    log_dir: Path
    topic: str = "orders"
    partition: int = 0
    base_offset: int = BASE_OFFSET
    interval_bytes: int = 0
    leader_epoch: int = 0
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.next_offset = self.base_offset
        self._open_from: dict[int, int] = {}
        self._start_segment()

    @property
    def directory(self) -> Path:
        return self.log_dir / f"{self.topic}-{self.partition}"

    @property
    def log(self) -> Path:
        """The `.log` file of the segment being written."""
        return self._stem.with_suffix(".log")

    @property
    def logs(self) -> list[Path]:
        return sorted(self.directory.glob("*.log"))

    def add(
        self,
        times_ms: Sequence[int],
        *,
        codec: Codec = Codec.NONE,
        append_ms: int | None = None,
        value_bytes: int = 20,
        producer_id: int = -1,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> int:
        """One batch with these times, or all at `append_ms`; its base offset."""
        rng = random.Random(self.next_offset)
        records = [
            LogRecord(ms, f"key-{index % 7}".encode(), rng.randbytes(value_bytes), headers)
            for index, ms in enumerate(times_ms)
        ]
        return self.add_records(records, codec=codec, append_ms=append_ms, producer_id=producer_id)

    def add_records(
        self,
        records: Sequence[LogRecord],
        *,
        codec: Codec = Codec.NONE,
        append_ms: int | None = None,
        producer_id: int = -1,
    ) -> int:
        base = self.next_offset
        append_time = append_ms is not None
        self.write(
            build_batch(
                records,
                base_offset=base,
                codec=codec,
                timestamp_type=TimestampType(append_time),
                max_timestamp=append_ms,
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                is_transactional=producer_id >= 0,
                leader_epoch=self.leader_epoch,
            )
        )
        if producer_id >= 0:
            self._open_from.setdefault(producer_id, base)
        self.rows += [
            Row(
                self.topic,
                self.partition,
                base + index,
                record.timestamp if append_ms is None else append_ms,
                int(append_time),
                record.key,
                record.value,
                record.headers,
            )
            for index, record in enumerate(records)
        ]
        return base

    def end_transaction(self, producer_id: int, *, commit: bool, at_ms: int = 5) -> None:
        """The control batch that a coordinator writes."""
        first = self._open_from.pop(producer_id, None)
        if first is not None and not commit:
            end = self.next_offset
            stable = min(self._open_from.values(), default=end + 1)
            self._aborted.append(AbortedTxn(producer_id, first, end, stable))
        marker = LogRecord(at_ms, b"\0\0\0" + bytes([commit]), bytes(6))
        self.write(
            build_batch(
                [marker],
                base_offset=self.next_offset,
                producer_id=producer_id,
                producer_epoch=0,
                is_transactional=True,
                is_control=True,
                leader_epoch=self.leader_epoch,
            )
        )

    def roll(self) -> None:
        """Finish the segment and start the next one."""
        self.write_indexes()
        self._start_segment()

    def write_indexes(self) -> None:
        """The index files of the segment being written, as a broker leaves them at a clean stop."""
        self._index.finish()
        self._stem.with_suffix(".index").write_bytes(self._index.offset_entries)
        self._stem.with_suffix(".timeindex").write_bytes(self._index.time_entries)
        write_aborted(Files(), str(self._stem.with_suffix(".txnindex")), self._aborted)

    def _start_segment(self) -> None:
        self._stem = self.directory / f"{self.next_offset:020d}"
        self._index = IndexBuilder(self.next_offset, self.interval_bytes)
        self._aborted: list[AbortedTxn] = []
        self.log.write_bytes(b"")

    def write(self, batch: bytes) -> None:
        """A batch as it is."""
        header = parse_header(batch)
        self._index.add(self.log.stat().st_size, header)
        with self.log.open("ab") as file:
            file.write(batch)
        self.next_offset = header.next_offset


def records_in_files(partition: Path) -> list[LogRecord]:
    """The records of all segments of a partition directory."""
    return [
        record
        for log in sorted(partition.glob("*.log"))
        for data in [log.read_bytes()]
        for position, header in iter_headers(data)
        for record in read_records(data[position : position + header.size])
    ]


def records_by_partition(log_dir: Path) -> dict[str, list[LogRecord]]:
    """The same of all partitions in a log directory."""
    return {path.name: records_in_files(path) for path in sorted(log_dir.glob("*-*"))}


def formats_in(directory: Path) -> set[int]:
    """The formats of the batches in all segments below a directory."""
    logs = directory.rglob("*.log")
    return {header.magic for log in logs for _, header in iter_headers(log.read_bytes())}


def files_of(directory: Path, *suffixes: str) -> dict[str, bytes]:
    """What files with these suffixes hold, by their path below a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.suffix in suffixes
    }


def snapshot(directory: Path) -> dict[str, tuple[bytes, int]]:
    """What all files below a directory hold, and when they were modified, in nanoseconds."""
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in directory.rglob("*")
        if path.is_file()
    }


def flip(path: Path, position: int, mask: int = 1) -> None:
    """Change bits of one byte of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ mask]))
