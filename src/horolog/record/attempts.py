"""Which attempt of a task wrote a batch, in the header fields of idempotent producers.

An exactly-once sink (docs/exactly-once.md) writes the rows of one task of one batch of one query.
All attempts of that task send the same batches, so each carries what identifies its rows:

    producer id      1 << 62 | slot of the query << 34 | batch >> 15 << 18 | task
    producer epoch   batch & 0x7FFF
    base sequence    position of the first record among the task's rows for this partition

A slot has 28 bits, a batch 31 and a task 18. To Apache Kafka's tools these are batches of an
idempotent producer per task, whose epoch rises with every batch. Its brokers count producer ids
from 0 and never give out one of these.
"""

import sys
from array import array
from collections.abc import Mapping
from typing import Final, NamedTuple, Self

import crc32c

from horolog.buffers import Buffer
from horolog.record.batch import HEADER_SIZE, BatchHeader
from horolog.record.compression import fleeting_chunks

FIRST_PRODUCER_ID: Final = 1 << 62
"""Producer ids from here on are those of attempts."""

_TASK_BITS: Final = 18
_GENERATION_BITS: Final = 16
_EPOCH_BITS: Final = 15
_SLOT_BITS: Final = 28
_SLOT_SHIFT: Final = _TASK_BITS + _GENERATION_BITS

MOST_TASKS: Final = 1 << _TASK_BITS
MOST_BATCHES: Final = 1 << (_GENERATION_BITS + _EPOCH_BITS)
SLOTS: Final = 1 << _SLOT_BITS
MOST_ROWS: Final = 1 << 31
"""Rows of one task in one partition; sequences of attempts do not wrap."""


class AttemptId(NamedTuple):
    """The task whose rows a batch holds."""

    slot: int
    """The number of the query; see `slot_of`."""
    batch: int
    task: int

    @classmethod
    def of(cls, producer_id: int, producer_epoch: int) -> Self:
        """Read the identity from a producer id of `FIRST_PRODUCER_ID` or higher and its epoch."""
        generation = producer_id >> _TASK_BITS & (1 << _GENERATION_BITS) - 1
        return cls(
            producer_id >> _SLOT_SHIFT & SLOTS - 1,
            generation << _EPOCH_BITS | producer_epoch & (1 << _EPOCH_BITS) - 1,
            producer_id & MOST_TASKS - 1,
        )

    @property
    def producer(self) -> tuple[int, int]:
        """The producer id and epoch of the task's batches."""
        id_ = FIRST_PRODUCER_ID | self.slot << _SLOT_SHIFT | self.task
        id_ |= self.batch >> _EPOCH_BITS << _TASK_BITS
        return id_, self.batch & (1 << _EPOCH_BITS) - 1


def is_attempt(header: BatchHeader) -> bool:
    """Whether a batch was written by an attempt of an exactly-once sink."""
    return header.producer_id >= FIRST_PRODUCER_ID


def slot_of(query: str, life: int, probe: int = 0) -> int:
    """The number of a query: derived from its name, so that a lost registry gives it again.

    Args:
        query: its name.
        life: how often a query of this name was forgotten before.
        probe: the next number if another query has that of the probe before.
    """
    from hashlib import blake2b  # noqa: PLC0415 - only a broker with exactly-once sinks needs it

    digest = blake2b(f"{life}:{probe}:{query}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % SLOTS


def rows_digest(header: BatchHeader, records: Buffer, *, max_bytes: int) -> int:
    """64 bits over the rows of a batch: equal for equal rows, whatever the codec.

    The upper half is the uncompressed size, the lower the CRC-32C of base timestamp and records.
    What a leader changes in a header is not part of it.

    Raises:
        RequestRefused: the records decompress to more than `max_bytes`.
        CorruptBatch: they do not decompress.
    """
    crc = crc32c.crc32c(header.base_timestamp.to_bytes(8, "big", signed=True))
    size = 0
    for piece in fleeting_chunks(header.codec, memoryview(records), max_bytes=max_bytes):
        crc = crc32c.crc32c(piece, crc)
        size += len(piece)
    return (size & 0xFFFF_FFFF) << 32 | crc


def records_of(batch: Buffer) -> memoryview:
    """The records section of a whole batch."""
    return memoryview(batch)[HEADER_SIZE:]


def batch_digest(rows: Mapping[tuple[str, int], Mapping[int, int]]) -> int:
    """32 bits over how many rows each task of a batch has in each partition.

    Partitions and tasks without rows do not count.
    """
    crc = 0
    for (topic, partition), tasks in sorted(rows.items()):
        counted = [item for item in sorted(tasks.items()) if item[1]]
        if counted:
            flat = array("q", [number for item in counted for number in item])
            crc = crc32c.crc32c(f"{topic}-{partition}:{len(counted)}:".encode(), crc)
            crc = crc32c.crc32c(_big_endian(flat), crc)
    return crc


def _big_endian(numbers: "array[int]") -> bytes:
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()
