"""The records of batches that `storage.offline.inspecting` has found."""

from collections.abc import Iterator
from contextlib import suppress

from horolog.errors import CorruptBatch, Damaged, StorageFailed
from horolog.record.timestamps import AppendTimeStretch, TimestampType
from horolog.sources.records import ReadRecord, read_batch
from horolog.storage.batches.reader import BatchReader
from horolog.storage.offline.inspecting import InspectedSegment, PlacedBatch


def read_placed(
    facts: InspectedSegment, log: BatchReader, batch: PlacedBatch, partition: int
) -> Iterator[ReadRecord]:
    """Read the records of a batch and verify its checksum; damage is noted in `facts`."""
    header = batch.header
    try:
        data = log.batch(batch.position, header)
        log.check(batch.position, header)
        if header.is_control:
            return
        appended = AppendTimeStretch(header.base_offset, None)
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            appended = AppendTimeStretch(header.base_offset, header.max_timestamp)
        elif facts.append_time_of is not None:
            with suppress(StorageFailed, Damaged):  # then it is unknown
                appended = facts.append_time_of(header.base_offset)
        yield from read_batch(data, header, partition, appended)
    except CorruptBatch as error:
        if facts.damage is None:
            facts.damage = (
                f"the batch at byte {batch.position}, offset {header.base_offset}: {error.reason}"
            )
