"""Logs for the tests of storage: batches by their times, directories, and what must be found."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from batches import batch

from horolog.config import BrokerConfig, TopicConfig
from horolog.record import (
    NO_TIMESTAMP,
    AppendTimeStretch,
    LogRecord,
    TimestampType,
    iter_headers,
    parse_header,
    read_records,
    restamp,
)
from horolog.storage import (
    Appended,
    AppendTimes,
    Files,
    Log,
    LogDir,
    LogWriter,
    Origin,
    SourceBatches,
    StampClock,
    TopicPartition,
    as_they_are,
    new_segment,
    prepare,
)
from horolog.storage.log_dir.log_dir import OpeningProgress

NOW = 1_700_000_000_000
"""What the clock says unless a test says otherwise, in milliseconds."""

DAY = 86_400_000
TOPIC_ID = UUID("6f0f3f4e-9d1e-4f6b-8f5d-3a1b5b7f9c21")
EVERY_BATCH = TopicConfig(index_interval_bytes=0)
APPEND_TIME = TopicConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
ANY_TIME = {"message_timestamp_after_max_ms": (1 << 63) - 1}


class Truth(NamedTuple):
    """One record as the generator made it."""

    offset: int
    timestamp: int


class UnsyncedFiles(Files):
    """Waits for no disk: tests cut no power."""

    def os_fsync(self, fd: int) -> None:
        pass


def placed(base_offset: int, count: int = 1, value: bytes = b"v" * 20) -> bytes:
    """A batch as it is on the disk."""
    sent = batch(*[NOW] * count, value=value)
    header = parse_header(sent)
    stamped = restamp(
        header,
        sent,
        base_offset=base_offset,
        leader_epoch=0,
        timestamp_type=TimestampType.CREATE_TIME,
        max_timestamp=header.max_timestamp,
    )
    return bytes(stamped) + sent[len(stamped) :]


def append(log: Log, *timestamps: int, now: int = NOW, **more: Any) -> Appended:
    """Send one batch to a log as a leader takes it."""
    sent = batch(*timestamps, **more)
    return log.append(prepare(sent, log.config, now, partition=str(log)), now)


class LoneClock(StampClock):
    """The clock of append times of a log that has no other beside it: it is always behind."""

    @property
    def last_ms(self) -> int:
        return -(1 << 63)

    @last_ms.setter
    def last_ms(self, _: int) -> None: ...

    def rise(self, now_ms: int) -> int:
        return now_ms

    capped = rise


def open_dir(
    path: Path,
    config: TopicConfig | None = None,
    *,
    now: int = NOW,
    ours: bool = True,
    follows: bool = False,
    topic_id: UUID | None = None,
    files: Files | None = None,
    assigned: Mapping[TopicPartition, UUID] | None = None,
    progress: OpeningProgress | None = None,
) -> LogDir:
    """A log directory in which every topic has the same settings.

    Each log has append times of its own; `test_stamp_clock` tests those of several. With
    `assigned` it is that of a broker of a cluster.
    """
    settings = config or TopicConfig()
    log_dir = LogDir.open(
        path,
        broker_config=BrokerConfig(),
        topic_config=lambda topic: settings,
        is_ours=lambda topic: ours,
        follows=lambda topic: follows,
        topic_id=lambda topic: topic_id,
        now_ms=now,
        files=files or UnsyncedFiles(),
        assigned=assigned,
        progress=progress,
    )
    log_dir.stamps = LoneClock()
    for log in log_dir.logs.values():
        log.stamps = log_dir.stamps
    return log_dir


@contextmanager
def new_log(
    path: Path, config: TopicConfig | None = None, *, now: int = NOW, files: Files | None = None
) -> Iterator[Log]:
    """A log of its own in a directory of its own, left as a kill would leave it."""
    settings = config or TopicConfig()
    log_dir = open_dir(path, settings, now=now, files=files)
    try:
        yield log_dir.create("events", 3, TOPIC_ID, settings, now)
    finally:
        log_dir.close(clean=False)


@contextmanager
def new_follower(
    path: Path, config: TopicConfig | None = None, *, now: int = NOW, files: Files | None = None
) -> Iterator[Log]:
    """As `new_log`, a log that follows."""
    with new_log(path, config, now=now, files=files) as log:
        log.begin_following(0)
        yield log


def pull(
    log: Log, *batches: bytes, now: int = NOW, append_times: Sequence[AppendTimeStretch] = ()
) -> Appended:
    """Have a log take batches of its source, all of them readable there."""
    sent = SourceBatches(b"".join(batches), append_times)
    followed = log.append(sent, now, Origin.FOLLOWER)
    log.move_high_watermark(followed.next_offset)
    return followed


@contextmanager
def reopened(
    path: Path,
    config: TopicConfig | None = None,
    *,
    now: int = NOW,
    ours: bool = True,
    follows: bool = False,
    files: Files | None = None,
) -> Iterator[tuple[LogDir, Log]]:
    """The same log opened again."""
    log_dir = open_dir(path, config, now=now, ours=ours, follows=follows, files=files)
    try:
        yield log_dir, log_dir.logs[TopicPartition("events", 3)]
    finally:
        log_dir.close(clean=False)


def followed(directory: Path, data: bytes, times: Sequence[AppendTimeStretch] = ()) -> None:
    """Leave in a partition's directory what a follower leaves that is killed.

    It has these batches, appended or seen at these times.
    """
    directory.mkdir(parents=True, exist_ok=True)
    files, config = UnsyncedFiles(), TopicConfig()
    floor = AppendTimes.read(files, str(directory))
    active = new_segment(files, str(directory), 0, config, NOW)
    LogWriter(files, str(directory), active, append_times=floor).append(
        as_they_are(data, 0, times), config
    )
    files.close()


def partition_dir(path: Path) -> Path:
    """Where the files of the log are."""
    return path / "events-3"


def copy_sparse(source: str, target: str) -> None:
    """Copy a file without its holes: an index that is appended to is ten megabytes of them."""
    size, position = os.stat(source).st_size, 0
    with open(source, "rb") as read, open(target, "wb") as written:
        written.truncate(size)
        while position < size:
            try:
                position = os.lseek(read.fileno(), position, os.SEEK_DATA)
            except OSError as error:  # only a hole is left, or holes are unknown here
                if error.errno == errno.ENXIO:
                    break
            data = os.pread(read.fileno(), 1 << 16, position)
            os.pwrite(written.fileno(), data, position)
            position += len(data)
    shutil.copystat(source, target)


def snapshot_of(path: Path, target: Path) -> Path:
    """The directory as a kill at this moment would leave it."""
    shutil.copytree(path, target, dirs_exist_ok=True, copy_function=copy_sparse)
    for marker in target.glob("*/*.appending.deleted"):  # names the log's inode
        log = marker.with_name(marker.name.replace(".appending.deleted", ".log"))
        content = marker.read_bytes()
        boot, _, _ = content[:100].rstrip(b"\0").partition(b" ")
        named = b"%s %d" % (boot, log.stat().st_ino) if boot else b""
        marker.write_bytes(named.ljust(100, b"\0") + content[100:])
    for clock in target.glob("**/append-time-clock"):  # names the inode of the lock
        lines = clock.read_text().splitlines(keepends=True)
        if lines[-1].startswith("home "):
            uptime, inode = lines[-1].split(" ")[1], clock.with_name(".lock").stat().st_ino
            lines[-1] = f"home {uptime} {inode}\n"
        clock.write_text("".join(lines))
    return target


def records_in(log: Log, offset: int | None = None) -> list[LogRecord]:
    """All records that can be read from an offset on, markers included."""
    found: list[LogRecord] = []
    offset = log.log_start_offset if offset is None else offset
    while offset < log.high_watermark:
        data = bytes(log.read(offset, 1 << 20).read())
        for position, header in iter_headers(data):
            read = read_records(data[position : position + header.size])
            found += [record for record in read if (record.offset or 0) >= offset]
            offset = header.next_offset
    return found


def times_in(log: Log) -> list[Truth]:
    """Offsets and times of all records that can be read."""
    return [Truth(record.offset or 0, record.timestamp) for record in records_in(log)]


def first_at_or_after(truth: Iterable[Truth], timestamp: int, log_start: int = 0) -> Truth | None:
    """What a lookup must find: -1 is no time."""
    return next(
        (
            record
            for record in truth
            if record.offset >= log_start
            and record.timestamp >= timestamp
            and record.timestamp != NO_TIMESTAMP
        ),
        None,
    )


def largest(truth: Sequence[Truth], log_start: int = 0) -> Truth | None:
    """What the lookup of the largest time must find; a log without any time shows its first."""
    visible = [record for record in truth if record.offset >= log_start]
    timed = [record for record in visible if record.timestamp != NO_TIMESTAMP]
    if not timed:
        return visible[0] if visible else None
    return max(timed, key=lambda record: (record.timestamp, -record.offset))


def moments(truth: Iterable[Truth]) -> list[int]:
    """Every time worth asking for: each record's, one before, one after."""
    times = {record.timestamp for record in truth}
    asked = {time + step for time in times for step in (-1, 0, 1)} | {0, -1, 1}
    return sorted(time for time in asked if -(1 << 63) <= time < 1 << 63)


def index_entries(path: Path, width: int) -> list[bytes]:
    """The entries of an index file, padding included."""
    data = path.read_bytes()
    return [data[at : at + width] for at in range(0, len(data), width)]
