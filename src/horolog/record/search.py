"""Search for the first record of a batch at or after a time and an offset.

The batch is walked in pieces, no further than to that record.
"""

from collections.abc import Iterable

from horolog.buffers import Buffer
from horolog.record.batch import LOG_APPEND_TIME_BIT, BatchHeader
from horolog.record.kernels.layout import (
    AT_OR_AFTER,
    DELTA,
    EQUAL,
    FOUND,
    SEARCH,
    TARGET,
    TIMESTAMP,
)
from horolog.record.walk import INT64_MAX, INT64_MIN, Walk, new_state, opened_batch, records_of


class RecordSearch(Walk):
    """Search for the first record at or after a time and an offset, in one batch of v2.

    The caller feeds the records, decompressed and cut anywhere, as far as needed. A record without
    a timestamp (-1) is never found.
    """

    __slots__ = ()

    def __init__(
        self,
        header: BatchHeader,
        timestamp_ms: int,
        min_offset: int,
        search: int = AT_OR_AFTER,
    ) -> None:
        if not INT64_MIN <= timestamp_ms <= INT64_MAX:
            raise ValueError(f"{timestamp_ms} is no 64-bit timestamp")
        state = new_state(header, min_offset)
        state[SEARCH] = search
        state[TARGET] = timestamp_ms
        super().__init__(header, state)

    def feed(self, piece: Buffer) -> tuple[int, int] | None:
        """Search a piece; return timestamp and offset of the record if it is found.

        Raises:
            CorruptBatch: the records before it break the format.
        """
        if self.step(piece) != FOUND:
            return None
        state = self.state
        return state[TIMESTAMP], self.header.base_offset + state[DELTA]


def find_at_or_after(
    batch: Buffer,
    header: BatchHeader,
    timestamp_ms: int,
    min_offset: int,
    *,
    max_bytes: int = INT64_MAX,
) -> tuple[int, int] | None:
    """Return timestamp and offset of the first record at or after both; None without one.

    A record without a timestamp (-1) is never found. Errors before the record are raised as by
    `scan_batch`.

    Args:
        batch: the whole batch.
        max_bytes: limit of the decompressed records.
    """
    return _find(batch, header, AT_OR_AFTER, timestamp_ms, min_offset, max_bytes)


def find_equal(
    batch: Buffer,
    header: BatchHeader,
    timestamp_ms: int,
    min_offset: int = 0,
    *,
    max_bytes: int = INT64_MAX,
) -> tuple[int, int] | None:
    """Return timestamp and offset of the first record with exactly this timestamp."""
    return _find(batch, header, EQUAL, timestamp_ms, min_offset, max_bytes)


def first_offset(
    batch: Buffer, header: BatchHeader, min_offset: int, *, max_bytes: int = INT64_MAX
) -> int | None:
    """Return the offset of the first record at or after an offset, with a time or without.

    None if there is no such record. Errors are raised as by `find_at_or_after`.
    """
    opened, records = opened_batch(batch, header, max_bytes)
    # Each record has the time 0 then: one without a time is not found.
    opened = opened._replace(attributes=opened.attributes | LOG_APPEND_TIME_BIT, max_timestamp=0)
    place = _found(batch, opened, records, AT_OR_AFTER, 0, min_offset, max_bytes)
    return None if place is None else place[1]


def _find(
    batch: Buffer,
    header: BatchHeader,
    search: int,
    timestamp_ms: int,
    min_offset: int,
    max_bytes: int,
) -> tuple[int, int] | None:
    opened, records = opened_batch(batch, header, max_bytes)
    return _found(batch, opened, records, search, timestamp_ms, min_offset, max_bytes)


def _found(
    batch: Buffer,
    header: BatchHeader,
    records: Iterable[Buffer] | None,
    search: int,
    timestamp_ms: int,
    min_offset: int,
    max_bytes: int,
) -> tuple[int, int] | None:
    looking = RecordSearch(header, timestamp_ms, min_offset, search)
    if records is None:
        records = records_of(batch, header, max_bytes, is_search=True)
    for piece in records:
        place = looking.feed(piece)
        if place is not None:
            return place
    looking.finish()
    return None
