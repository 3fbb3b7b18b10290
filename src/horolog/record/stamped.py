"""Batches that a broker builds of its own state: records of one time, and what is known of them.

They are those of `builder.build_batch`, and what a scan (record/scan.py) finds of them follows from
their making. A coordinator writes one for each small change.
"""

from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from horolog.record.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    new_batch_header,
)
from horolog.record.builder import LogRecord
from horolog.record.record_bytes import write_varlong
from horolog.record.scan import RecordFacts, scan_batch
from horolog.record.time_stats import LATENCY_COUNT, Counts
from horolog.record.timestamps import NO_TIMESTAMP


def _varint(value: int) -> bytes:
    out = bytearray()
    write_varlong(out, value)
    return bytes(out)


_SHORT: Final = tuple(map(_varint, range(512)))
"""Varints of short lengths: of the records of a coordinator, nearly all."""
_COUNTS: Final = Struct(f"=9q{8 * (LATENCY_COUNT - 2)}x")
_NULL: Final = b"\1"


class StampedBatch(NamedTuple):
    """Uncompressed batch of format v2, with its header and the facts that a scan would find."""

    header: BatchHeader
    data: bytes
    facts: RecordFacts


def stamped_batch(records: Sequence[LogRecord], now_ms: int) -> StampedBatch:
    """Build a batch of records whose timestamps are the append time.

    Args:
        records: one or more, with keys and without headers.
        now_ms: their timestamp in milliseconds.
    """
    return stamped_body(stamped_records(records), len(records), now_ms)


def stamped_records(records: Sequence[LogRecord]) -> bytes:
    """Encode records as they are in the batch, behind its header."""
    parts: list[bytes] = []
    for delta, (_, key, value, _, _) in enumerate(records):
        assert key is not None
        has_value, data = (_NULL, b"") if value is None else (varint(len(value)), value)
        of_delta, of_key = varint(delta), varint(len(key))
        size = 3 + len(of_delta) + len(of_key) + len(key) + len(has_value) + len(data)
        parts += varint(size), b"\0\0", of_delta, of_key, key, has_value, data, b"\0"
    return b"".join(parts)


def stamped_body(body: bytes, count: int, now_ms: int) -> StampedBatch:
    """Build the batch of encoded records, with timestamps of `now_ms`."""
    length = HEADER_SIZE - LOG_OVERHEAD + len(body)
    covered = (0, count - 1, now_ms, now_ms, -1, -1, -1, count)
    header, head = new_batch_header(0, length, -1, covered, body)
    if now_ms == NO_TIMESTAMP:  # the clock says a millisecond before 1970: a record without a time
        data = head + body
        facts = scan_batch(data, header, max_bytes=len(body), arrival_ms=now_ms)
        return StampedBatch(header, data, facts)
    counts = stamped_counts(count, now_ms)
    facts = RecordFacts(count, now_ms, now_ms, False, True, True, count - 1, 0, counts)
    return StampedBatch(header, head + body, facts)


def stamped_counts(count: int, now_ms: int) -> Counts:
    """Return the counts of records whose timestamps are the append time, not -1."""
    return array("q", stamped_sums(count, now_ms))


def stamped_sums(count: int, now_ms: int) -> bytes:
    """Return the bytes of `stamped_counts`."""
    return _COUNTS.pack(count, count, now_ms, now_ms, now_ms, now_ms, 0, 0, count)


def varint(value: int) -> bytes:
    """Encode a length or an offset delta as a varint."""
    return _SHORT[value] if value < len(_SHORT) else _varint(value)
