"""The control batches that end transactions (KIP-98): one record, whose key says how.

key     i16  version   i16  0 abort, 1 commit
value   i16  version   i32  coordinator epoch
"""

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, RequestRefused
from horolog.record.batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    TRANSACTIONAL_BIT,
    BatchHeader,
    new_batch_header,
)
from horolog.record.builder import read_records
from horolog.record.record_bytes import record_bytes
from horolog.record.scan import scan_batch
from horolog.record.stamped import stamped_counts
from horolog.record.time_stats import Counts
from horolog.record.timestamps import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP, TimestampType

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_ABORT, _COMMIT = 0, 1
_MAX_BYTES: Final = 1 << 20
_ATTRIBUTES: Final = TRANSACTIONAL_BIT | CONTROL_BIT
_RECORD_BYTES: Final = 17
_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD + _RECORD_BYTES


class Marker(NamedTuple):
    """Outcome of a transaction, as a marker has it."""

    is_abort: bool
    coordinator_epoch: int | None
    """None where the record has no such value."""


class TransactionEnd(NamedTuple):
    """End of a producer's transaction, as its coordinator has decided it."""

    producer_id: int
    producer_epoch: int
    """Epoch of the marker. Producers with earlier epochs are fenced."""
    coordinator_epoch: int
    is_commit: bool
    """True if the transaction is committed, otherwise it is aborted."""
    is_strict: bool = False
    """The marker has an epoch of its own, as in the second flow of KIP-890."""


def read_marker(batch: Buffer) -> Marker | None:
    """Return the marker in a control batch; None without one, or of a later version.

    Raises:
        CorruptBatch: the records cannot be read, or are too many for a marker.
    """
    records = read_records(batch, max_bytes=_MAX_BYTES)
    while True:
        try:
            record = next(records, None)
        except RequestRefused as error:
            raise CorruptBatch(f"a control batch is no marker: {error}") from error
        if record is None:
            return None
        if record.key is None or len(record.key) < _KEY.size:
            continue
        _, kind = _KEY.unpack_from(record.key)
        if kind in (_ABORT, _COMMIT):
            epoch = None
            if record.value is not None and len(record.value) >= _VALUE.size:
                _, epoch = _VALUE.unpack_from(record.value)
            return Marker(kind == _ABORT, epoch)


class StampedMarker(NamedTuple):
    """A control batch as it is stored: header, record, and the counts that a scan would find."""

    header: BatchHeader
    parts: tuple[bytes, bytes]
    counts: Counts


def stamped_marker(
    ended: TransactionEnd,
    now_ms: int,
    *,
    base_offset: int,
    leader_epoch: int,
    append_ms: int,
    timestamp_type: TimestampType,
) -> StampedMarker:
    """Make the control batch that ends a producer's transaction in a partition, as Kafka 4.4.

    Args:
        now_ms: time of the record.
        append_ms: time of storing; on a LogAppendTime topic it is the largest timestamp.
    """
    producer_id, producer_epoch, coordinator_epoch, is_commit, _ = ended
    records = _records(coordinator_epoch, is_commit)
    stamps = timestamp_type is LOG_APPEND_TIME
    covered = (
        _ATTRIBUTES | LOG_APPEND_TIME_BIT if stamps else _ATTRIBUTES,
        *(0, now_ms, append_ms if stamps else now_ms),
        *(producer_id, producer_epoch, -1, 1),
    )
    header, head = new_batch_header(base_offset, _LENGTH, leader_epoch, covered, records)
    if append_ms == now_ms != NO_TIMESTAMP:
        counts = stamped_counts(1, now_ms)
    else:  # the record is older than its append time, or has no time
        plain = header._replace(attributes=_ATTRIBUTES)
        size = len(records)
        counts = scan_batch(head + records, plain, max_bytes=size, arrival_ms=append_ms).counts
    return StampedMarker(header, (head, records), counts)


@lru_cache(maxsize=64)
def _records(coordinator_epoch: int, is_commit: bool) -> bytes:
    """Return the record of a marker, which has the time of its batch."""
    key = _KEY.pack(0, _COMMIT if is_commit else _ABORT)
    return record_bytes(0, 0, key, _VALUE.pack(0, coordinator_epoch), ())


def build_marker(ended: TransactionEnd, now_ms: int) -> bytes:
    """Return the bytes of a control batch that is not stored yet."""
    marker = stamped_marker(
        ended,
        now_ms,
        base_offset=0,
        leader_epoch=-1,
        append_ms=now_ms,
        timestamp_type=CREATE_TIME,
    )
    return b"".join(marker.parts)
