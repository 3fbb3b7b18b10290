"""Reads the offsets that groups had committed with the Kafka that had this log directory.

Its coordinator keeps them in `__consumer_offsets`, one record for each group and partition, which
are read as those of our own groups are (groups/replay.py).
"""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from horolog.errors import HorologError, StorageFailed
from horolog.groups.replay import GroupReplay
from horolog.record.builder import LogRecord
from horolog.schemas.offsets import OffsetKey, read_committed, read_key
from horolog.storage import names
from horolog.storage.batches.reader import EVERYTHING, BatchReader
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.removal.leftovers import segments_in, stable_look

MOST_BYTES: Final = 16 << 20
"""Bytes that a start reads and waits for, in about a second."""
MOST_OFFSETS: Final = 100_000

_logger = logging.getLogger(__name__)

Committed = dict[str, dict[tuple[str, int], int]]


class KafkaOffsets(NamedTuple):
    """Committed offsets, and the partitions that were not read."""

    of_topics: Committed
    """Offsets of each topic by group and partition, in order."""
    unread: tuple[str, ...]
    """Directories of `__consumer_offsets` that were too large, or damaged."""


def read_consumer_offsets(
    files: Files, log_dir: Path, most_bytes: int = MOST_BYTES, most_offsets: int = MOST_OFFSETS
) -> KafkaOffsets:
    """Read the offsets that groups have committed, the smallest partitions first."""
    sizes, unread = {}, []
    for directory in log_dir.glob(f"{names.CONSUMER_OFFSETS}-*"):
        partition = names.partition_of(directory.name)
        if partition is not None and directory.is_dir() and not directory.is_symlink():
            try:
                logs = _logs_in(files, directory)
                sizes[directory] = sum(files.size(log) for log in logs), logs
            except StorageFailed as error:
                _logger.warning("Kafka's committed offsets are known only in part: %s", error)
                unread.append(directory.name)
    found: Committed = {}
    left, room = most_bytes, most_offsets
    for directory, (size, logs) in sorted(sizes.items(), key=lambda item: item[1][0]):
        left -= size
        if left < 0 or room <= 0:
            unread.append(directory.name)
            continue
        replay, is_whole = _replay(files, logs, room)
        if not is_whole:
            unread.append(directory.name)
        for record in replay.records():
            room -= _take(found, record)
    in_order = {topic: dict(sorted(its.items())) for topic, its in found.items()}
    return KafkaOffsets(in_order, tuple(sorted(unread)))


def _logs_in(files: Files, directory: Path) -> list[str]:
    """List the `.log` files of a partition in order, also while segments are being replaced."""

    def look() -> list[int]:
        found = {
            path.name for path in directory.iterdir() if path.is_file() and not path.is_symlink()
        }
        return segments_in(files, str(directory), found)

    bases = stable_look(look)
    return [f"{directory}/{names.segment_file(base, names.LOG)}" for base in bases]


def _replay(files: Files, logs: Iterable[str], most: int) -> tuple[GroupReplay, bool]:
    """Replay some logs; return also whether each was read to its end."""
    replay = GroupReplay()
    try:
        for path in logs:
            log = BatchReader.of_file(files, path, EVERYTHING)
            for position, header in log.headers():
                replay.take(log.batch(position, header))
                if len(replay) > most:
                    return replay, False
    except (HorologError, FileMissing) as error:
        _logger.warning("Kafka's committed offsets are known only in part: %s", error)
        return replay, False
    return replay, not replay.unreadable


def _take(found: Committed, record: LogRecord) -> bool:
    """Add an offset; return False if the record has none."""
    try:
        about = read_key(record.key or b"")
        if not isinstance(about, OffsetKey):
            return False
        offset = read_committed(record.value or b"").offset
    except HorologError as error:
        _logger.warning("A committed offset of Kafka's is not known: %s", error)
        return False
    found.setdefault(about.topic, {})[about.group, about.partition] = offset
    return True
