"""Join of successive batches of v2 to one: the records stay, and get other deltas.

Keys, values, headers, timestamps and order are kept; in the bytes of a record only its length and
its two deltas change. Codec and timestamp type, which apply to all records of a batch, must be the
same in all joined batches.
"""

from array import array

import numpy as np

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch
from horolog.record.batch import HEADER_SIZE, TRANSACTIONAL_BIT, BatchHeader, with_records
from horolog.record.compression import Codec, UncompressedTooLarge, compress, decompress
from horolog.record.kernels.join_kernels import (
    FARTHEST_TIME_DELTA,
    JOIN_DELTA,
    JOIN_FILLED,
    JOIN_RECORDS,
    JOIN_SHIFT,
    JOIN_STATE_SIZE,
)
from horolog.record.kernels.layout import DONE
from horolog.record.kernels.loading import JOIN_KERNELS

__all__ = ["Joiner"]

_ALIKE_BITS = 0x0F  # codec and LogAppendTime
_WORTH_JOINING = 2  # at least this many of which have room


class Joiner:
    """Collector of the records of batches, in a buffer of fixed size."""

    def __init__(self, max_bytes: int) -> None:
        """Make a buffer of fixed size.

        Args:
            max_bytes: of the joined batch, header included, before its records are compressed.
        """
        JOIN_KERNELS.load()
        self._out = np.empty(max(max_bytes - HEADER_SIZE, 1), np.uint8)
        self._state = array("q", bytes(8 * JOIN_STATE_SIZE))
        self._first: BatchHeader | None = None
        self._max_timestamp = 0

    def add(self, header: BatchHeader, batch: Buffer) -> bool:
        """Add the records of a batch; False if they cannot be joined to the collected ones.

        A batch that is refused by an empty joiner is better left as it is: it takes more than half
        of the room, or is not as a broker would store it.

        Args:
            header: header of a batch of v2, without gaps in its offsets and delete horizon.
            batch: bytes of the batch; the caller has checked the checksum.
        """
        first = self._first or header
        shift = header.base_timestamp - first.base_timestamp
        if (
            _WORTH_JOINING * header.size > len(self._out) + HEADER_SIZE
            or header.records_count < 1
            or (header.attributes ^ first.attributes) & _ALIKE_BITS
            or abs(shift) > FARTHEST_TIME_DELTA
        ):
            return False
        records: Buffer = memoryview(batch)[HEADER_SIZE : header.size]
        try:
            if header.codec is not Codec.NONE:
                records = decompress(header.codec, records, max_bytes=len(self._out))
        except (CorruptBatch, UncompressedTooLarge):
            return False
        state = self._state
        state[JOIN_RECORDS], state[JOIN_SHIFT] = header.records_count, shift
        if self._join(records) != DONE:
            return False
        is_first = self._first is None
        self._max_timestamp = (
            header.max_timestamp if is_first else max(self._max_timestamp, header.max_timestamp)
        )
        self._first = first
        return True

    def finish(self, producer: tuple[int, int], base_sequence: int) -> bytes:
        """Return the records as one batch of a producer's transaction, and begin another."""
        first, state = self._first, self._state
        assert first is not None
        records: Buffer = self._out.data[: state[JOIN_FILLED]]
        if first.codec is not Codec.NONE:
            records = compress(first.codec, records)
        count = state[JOIN_DELTA]
        header = first._replace(
            base_offset=0,  # brokers take no other from a producer
            leader_epoch=-1,
            attributes=first.codec_number | TRANSACTIONAL_BIT,
            last_offset_delta=count - 1,
            max_timestamp=self._max_timestamp,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=base_sequence,
            records_count=count,
        )
        self.clear()
        return with_records(header, records)

    def clear(self) -> None:
        """Drop the collected records."""
        self._first = None
        self._state[JOIN_DELTA] = self._state[JOIN_FILLED] = 0

    def _join(self, records: Buffer) -> int:
        return int(JOIN_KERNELS.run.join(records, self._state, self._out))
