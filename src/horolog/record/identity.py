"""Producer of a raw batch: its id, its epoch and its sequences, in the batch's header.

A copy of a log contains the identities of its producers. In another log they would collide with
that broker's producer states: batches would be dropped as repeats, or refused as out of order. Only
headers are rewritten; records stay as they are, compressed or not. The exception are the few
batches that a broker refuses from a producer, whose records are rewritten.
"""

from horolog.record.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    with_records,
)
from horolog.record.timestamps import TimestampType

__all__ = ["NO_PRODUCER", "is_left_out", "needs_writing", "renamed"]

NO_PRODUCER = (-1, -1)
"""The id and epoch of batches that no idempotent producer wrote."""


def renamed(
    header: BatchHeader,
    batch: memoryview,
    producer: tuple[int, int],
    base_sequence: int,
    *,
    is_transactional: bool = False,
) -> bytes:
    """Return a batch of v2 as another producer sends it, in a transaction or outside of any.

    The append time in the header is removed; the records stay as they are.
    """
    records = batch[HEADER_SIZE : header.size]
    changed = header._replace(
        base_offset=0,  # brokers take no other from a producer
        leader_epoch=-1,
        attributes=header.attributes & ~(TRANSACTIONAL_BIT | LOG_APPEND_TIME_BIT)
        | (TRANSACTIONAL_BIT if is_transactional else 0),
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=base_sequence,
    )
    return with_records(changed, records)


def is_left_out(header: BatchHeader) -> bool:
    """Return True if a batch contains no records that a consumer gets."""
    return header.is_control or header.records_count == 0


def needs_writing(header: BatchHeader, *, keeps_stamps: bool = True) -> bool:
    """Return True if brokers refuse the batch from a producer, so that its records are rewritten.

    Without `keeps_stamps` append times need not become create times, because a topic of
    LogAppendTime replaces them.
    """
    return (
        header.magic != MAGIC
        or header.last_offset_delta + 1 != header.records_count
        or (keeps_stamps and header.timestamp_type is TimestampType.LOG_APPEND_TIME)
        or header.has_delete_horizon
    )
