"""Blocks of a log at a broker that has no block map, found by reading its batches."""

from collections.abc import Iterable, Iterator
from typing import Final

from horolog.errors import CorruptBatch, ErrorCode, RequestRefused
from horolog.offsets import TimeBlock
from horolog.record.scan import scan_batch
from horolog.record.timestamps import ALL_TIMES, CREATE_TIME, RecordClock
from horolog.record.transactions import WalkedBatch
from horolog.sources.batches import Batches
from horolog.storage.names import TopicPartition

__all__ = ["read_blocks", "stamped"]

_MOST_BYTES: Final = 1 << 30
"""Limit of a batch, decompressed; the times of a larger one are unknown."""


def read_blocks(batches: Iterable[Batches], clock: RecordClock) -> Iterator[TimeBlock]:
    """Yield a block for each batch, with the earliest time of its records by a clock."""
    for several in batches:
        offset = several.start
        for batch, appended in several.walk_appended():
            header, ms = batch.header, appended.known_ms
            earliest: tuple[int | None, bool] = ms, ms is None
            if not batch.is_visible:
                earliest = None, False
            elif clock is RecordClock.CREATE and header.timestamp_type is CREATE_TIME:
                earliest = _earliest(batch)
            end = min(header.next_offset, several.end)
            yield TimeBlock(offset, end, header.size, *earliest)
            offset = end


def _earliest(batch: WalkedBatch) -> tuple[int | None, bool]:
    """Return the earliest create time, None without any, and True if a record may have none."""
    try:
        facts = scan_batch(batch.data, batch.header, max_bytes=_MOST_BYTES)
    except (CorruptBatch, RequestRefused):  # reading it says what is wrong with it
        return ALL_TIMES.first_ms, True
    return facts.min_timestamp, facts.counts[1] < facts.count


def stamped(batches: Batches, partition: TopicPartition) -> Batches:
    """Return batches of a broker that keeps no append times, which are all stamped with theirs.

    Raises:
        RequestRefused: a batch has create times.
    """
    for batch in batches.walk():
        if batch.is_visible and batch.header.timestamp_type is CREATE_TIME:
            raise RequestRefused(
                ErrorCode.unsupported_version,
                f"{partition} has create times at offset {batch.header.base_offset}, and Apache "
                "Kafka keeps append times only of records that it stamps with them "
                "(message.timestamp.type=LogAppendTime): read it by create time",
            )
    return batches
