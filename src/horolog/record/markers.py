"""The control batches that end transactions (KIP-98): one record, whose key says how.

key     i16  version   i16  0 abort, 1 commit
value   i16  version   i32  coordinator epoch
"""

from struct import Struct
from typing import Final, NamedTuple

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, RequestRefused
from horolog.record.builder import Record, build_batch, read_records

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_ABORT, _COMMIT = 0, 1
_MAX_BYTES: Final = 1 << 20


class Marker(NamedTuple):
    """How a transaction ended."""

    is_abort: bool
    coordinator_epoch: int | None
    """None where the record has no such value."""


class TransactionEnd(NamedTuple):
    """The end of a producer's transaction, as a coordinator has decided it."""

    producer_id: int
    producer_epoch: int
    """Of the marker; producers with earlier ones are fenced."""
    coordinator_epoch: int
    is_commit: bool
    """Else it is aborted."""
    is_strict: bool = False
    """The marker has an epoch of its own, as in the second flow of KIP-890."""


def read_marker(batch: Buffer) -> Marker | None:
    """The marker in a control batch; None if it holds none, or one of a later version.

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


def build_marker(ended: TransactionEnd, now_ms: int) -> bytes:
    """The control batch that ends a producer's transaction in a partition, as in Kafka 4.3."""
    kind = _COMMIT if ended.is_commit else _ABORT
    record = Record(now_ms, _KEY.pack(0, kind), _VALUE.pack(0, ended.coordinator_epoch))
    return build_batch(
        [record],
        producer_id=ended.producer_id,
        producer_epoch=ended.producer_epoch,
        is_transactional=True,
        is_control=True,
    )
