"""Which offsets groups had committed with a Kafka that had this log directory; read, never written.

Its coordinator keeps them in `__consumer_offsets`, one record for each group and partition
(schemas/offsets.py). A commit within a transaction counts once that has been committed (KIP-98).
"""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from horolog.errors import HorologError
from horolog.record.builder import Record, read_records
from horolog.record.markers import read_marker
from horolog.schemas.offsets import OffsetKey, read_committed, read_key
from horolog.storage import names
from horolog.storage.adoption.records import batches_in
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files

MOST_BYTES: Final = 16 << 20
"""Read at one start, which waits for it: about a second."""
MOST_OFFSETS: Final = 100_000
_MOST_BATCH_BYTES: Final = 16 << 20

_logger = logging.getLogger(__name__)

Committed = dict[str, dict[tuple[str, int], int]]


class KafkaOffsets(NamedTuple):
    """The committed offsets, and what was not read."""

    of_topics: Committed
    """Of each topic by group and partition, in their order."""
    unread: tuple[str, ...]
    """Directories of `__consumer_offsets` that were too large, or damaged."""


def read_consumer_offsets(
    files: Files, log_dir: Path, most_bytes: int = MOST_BYTES, most_offsets: int = MOST_OFFSETS
) -> KafkaOffsets:
    """Read the offsets that groups have committed; of large directories the small ones only."""
    sizes = {}
    for directory in log_dir.glob(f"{names.CONSUMER_OFFSETS}-*"):
        partition = names.partition_of(directory.name)
        if partition is not None and directory.is_dir() and not directory.is_symlink():
            logs = [log for log in sorted(directory.glob(f"*{names.LOG}")) if _is_regular(log)]
            sizes[directory] = sum(log.lstat().st_size for log in logs), logs
    found: Committed = {}
    unread = []
    left, room = most_bytes, most_offsets
    for directory, (size, logs) in sorted(sizes.items(), key=lambda each: each[1][0]):
        left -= size
        if left < 0 or room <= 0:
            unread.append(directory.name)
            continue
        values, is_whole = _latest(files, logs, room)
        if not is_whole:
            unread.append(directory.name)
        for key, value in values.items():
            room -= _take(found, key, value)
    in_order = {topic: dict(sorted(its.items())) for topic, its in found.items()}
    return KafkaOffsets(in_order, tuple(sorted(unread)))


def _is_regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _latest(files: Files, logs: Iterable[Path], most: int) -> tuple[dict[bytes, bytes], bool]:
    """The last value of each key, and whether every log could be read to its end."""
    latest: dict[bytes, bytes] = {}
    open_transactions: dict[int, list[Record]] = {}  # by producer id
    try:
        for path in logs:
            for header, batch in batches_in(files, str(path)):
                if header.is_control:
                    marker = read_marker(batch)
                    if marker is not None:
                        pending = open_transactions.pop(header.producer_id, [])
                        _apply(latest, [] if marker.is_abort else pending)
                    continue
                records = read_records(batch, max_bytes=_MOST_BATCH_BYTES)
                if header.is_transactional:
                    open_transactions.setdefault(header.producer_id, []).extend(records)
                else:
                    _apply(latest, records)
                if len(latest) + sum(map(len, open_transactions.values())) > most:
                    return latest, False
    except (HorologError, FileMissing) as error:
        _logger.warning("Kafka's committed offsets are known only in part: %s", error)
        return latest, False
    return latest, True


def _apply(latest: dict[bytes, bytes], records: Iterable[Record]) -> None:
    for record in records:
        if record.key is not None:
            if record.value is None:
                latest.pop(record.key, None)
            else:
                latest[record.key] = record.value


def _take(found: Committed, key: bytes, value: bytes) -> bool:
    """Add an offset; False if the record holds none."""
    try:
        about = read_key(key)
        if not isinstance(about, OffsetKey):
            return False
        offset = read_committed(value).offset
    except HorologError as error:
        _logger.warning("A committed offset of Kafka's is not known: %s", error)
        return False
    found.setdefault(about.topic, {})[about.group, about.partition] = offset
    return True
