"""Runs of batches outside transactions, whose headers a kernel reads at once for `gather`.

Nearly every batch of most logs is in such a run. Headers that are read one by one take longer in
Python than the records of small batches do in `gather`.
"""

from array import array
from collections.abc import Sequence
from typing import NamedTuple, Self

import crc32c
import numpy as np

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch
from horolog.record.batch import HEADER_SIZE, iter_headers, parse_header
from horolog.record.codecs.stream import Codec
from horolog.record.kernels.column_kernels import (
    FACT_CRC,
    FACT_PRODUCER_ID,
    FACTS_SIZE,
    PLAN_AS_CREATED,
    PLAN_CODEC,
    PLAN_COUNT,
    PLAN_FIRST_OFFSET,
    PLAN_LAST_OFFSET,
    PLAN_LEAST_OFFSET,
    PLAN_LEFT,
    PLAN_POSITION,
    PLAN_STATE_SIZE,
    STRETCH_BASE_OFFSET,
    STRETCH_END,
    STRETCH_SIZE,
    STRETCH_START,
)
from horolog.record.kernels.loading import COLUMN_KERNELS
from horolog.record.row_range import EVERYTHING, INT64_MAX, INT64_MIN, RowRange
from horolog.record.stretches import Int64Array

__all__ = ["BatchRun", "BatchRunReader", "may_be_read_in_runs", "next_offset_of"]

_MOST = 512  # batches planned at once
_SUMMED_BEFORE = 40  # the bytes of a header that its checksum covers


class BatchRun(NamedTuple):
    """Successive batches of one codec, with the positions of their records."""

    codec: Codec
    stretches: Int64Array
    """The stretch of each batch, for `gather`: rows of `STRETCH_SIZE`."""
    facts: Int64Array
    """Checksum and producer of each batch: rows of `FACTS_SIZE`."""
    starts: Sequence[int]
    """Position of the first record of each batch, after its header; `ends` has their ends."""
    ends: Sequence[int]
    crcs: Sequence[int]
    """The checksums that their headers name."""

    @property
    def producers(self) -> Int64Array:
        """Base offset, producer id, producer epoch and base sequence of each batch."""
        offsets = self.stretches[:, [STRETCH_BASE_OFFSET]]
        return np.hstack((offsets, self.facts[:, FACT_PRODUCER_ID:]))

    def is_damaged(self, buffer: memoryview, index: int) -> bool:
        """Return True if the checksum of a batch is wrong."""
        covered = buffer[self.starts[index] - _SUMMED_BEFORE : self.ends[index]]
        return crc32c.crc32c(covered) != self.crcs[index]

    def undamaged(self, buffer: memoryview) -> Self:
        """Return the batches before the first with a wrong checksum."""
        crc_of = crc32c.crc32c
        for index, (start, end, crc) in enumerate(
            zip(self.starts, self.ends, self.crcs, strict=True)
        ):
            if crc_of(buffer[start - _SUMMED_BEFORE : end]) != crc:
                return self.first(index)
        return self

    def first(self, count: int) -> Self:
        """Return a run of the first `count` batches."""
        if count == len(self.starts):
            return self
        return self._replace(
            stretches=self.stretches[:count],
            facts=self.facts[:count],
            starts=self.starts[:count],
            ends=self.ends[:count],
            crcs=self.crcs[:count],
        )

    def placed(self, ends: Sequence[int], start: int) -> Int64Array:
        """Return the stretches of records that were moved one behind the other, from `start` on.

        Args:
            ends: where the records of each end.
        """
        stretches = self.stretches.copy()
        stretches[:, STRETCH_END] = ends
        stretches[:, STRETCH_START] = (start, *ends[:-1])
        return stretches


class BatchRunReader:
    """Reader of the headers of runs in a buffer."""

    def __init__(self, buffer: memoryview, rows: RowRange, *, as_created: bool = False) -> None:
        self._buffer = buffer
        self._state = array("q", bytes(8 * PLAN_STATE_SIZE))
        self._state[PLAN_FIRST_OFFSET] = rows.first_offset
        self._state[PLAN_LAST_OFFSET] = rows.last_offset
        self._state[PLAN_AS_CREATED] = as_created
        self._plan = np.empty(_MOST * STRETCH_SIZE, np.int64)
        self._facts = np.empty(_MOST * FACTS_SIZE, np.int64)

    def read(self, position: int, size: int, least_offset: int = INT64_MIN) -> BatchRun:
        """Read batches from a position on, until their records have `size` bytes or more.

        Offsets ascend, from `least_offset` on. The result is valid until the next call.
        """
        self._state[PLAN_POSITION] = position
        self._state[PLAN_LEFT] = size
        # After a damaged header, the next offset can be beyond 64 bits.
        self._state[PLAN_LEAST_OFFSET] = min(max(INT64_MIN, least_offset), INT64_MAX)
        COLUMN_KERNELS.run.plan_batches(self._buffer, self._state, self._plan, self._facts)
        count = self._state[PLAN_COUNT]
        stretches = self._plan.reshape(_MOST, -1)[:count]
        facts = self._facts.reshape(_MOST, -1)[:count]
        return BatchRun(
            Codec(self._state[PLAN_CODEC]),
            stretches,
            facts,
            stretches[:, STRETCH_START].tolist(),
            stretches[:, STRETCH_END].tolist(),
            facts[:, FACT_CRC].tolist(),
        )


def next_offset_of(buffer: Buffer, offset: int, log_end: int) -> int:
    """Return the offset after the last whole batch of a buffer, at least `offset`.

    A base offset has no checksum. With one beyond the log end a reader would skip all earlier
    records.

    Args:
        offset: the offset that was fetched.
        log_end: the high watermark, which no batch may exceed.

    Raises:
        CorruptBatch: the bytes are no batch, or a batch extends beyond the log end.
    """
    view = memoryview(buffer)
    reader, position = BatchRunReader(view, EVERYTHING), 0
    while (run := reader.read(position, len(view))).starts:
        offset = max(offset, parse_header(view, run.starts[-1] - HEADER_SIZE).next_offset)
        position = run.ends[-1]
    for _, header in iter_headers(view, position):
        offset = max(offset, header.next_offset)
    if view and offset > log_end:
        raise CorruptBatch(f"A batch extends to offset {offset - 1}, and its log ends at {log_end}")
    return offset


def may_be_read_in_runs(rows: RowRange) -> bool:
    """Return True if a range is limited by offsets alone, so that whole batches are within it."""
    has_all_times = rows.first_ms == INT64_MIN and rows.last_ms == INT64_MAX
    return has_all_times and not rows.is_empty  # whose ends may be beyond 64 bits
