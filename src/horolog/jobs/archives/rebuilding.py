"""Record batches from rows and facts: the way back of `reading`."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from horolog.errors import CorruptFile
from horolog.jobs.archives import facts as of_batches
from horolog.jobs.archives.digests import NO_APPEND_TIME, BatchDigest, RecordDigest
from horolog.jobs.archives.parts import rows_of
from horolog.jobs.archives.reading import raise_largest
from horolog.jobs.archives.rows import OrderedRows, one_table
from horolog.record.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, pack_header
from horolog.record.column_writer import encode_records
from horolog.record.compression import Codec, compress
from horolog.record.timestamps import NO_TIMESTAMP

_CHUNK_RECORDS: Final = 16_384
_CODECS = tuple(Codec)


class Rebuilt(NamedTuple):
    """A batch, and when its first record was appended."""

    parts: tuple[bytes, bytes]
    """Its bytes: the header and the records."""
    header: BatchHeader
    append_ms: int | None


class Rebuilder:
    """Makes the batches of a partition again; counts and checks what it gives.

    The digests are of a part by time only: of all else the manifest has them.
    """

    def __init__(
        self, rows: OrderedRows, *, from_ms: int | None = None, to_ms: int | None = None
    ) -> None:
        self.records = 0
        self.digest, self.batch_digest = RecordDigest(), BatchDigest()
        self._rows = rows
        self._from_ms, self._to_ms = from_ms, to_ms
        self._is_selective = from_ms is not None or to_ms is not None

    def batches(
        self, facts: Iterable[tuple[of_batches.Numbers, list[bytes | None]]]
    ) -> Iterator[Rebuilt]:
        """The batches of these facts, in their order.

        Raises:
            CorruptFile: rows are missing, or are of no batch.
        """
        for numbers, payloads in facts:
            for start, end in _chunks(numbers):
                yield from self._some(numbers[start:end].copy(), payloads[start:end])

    def _some(self, numbers: of_batches.Numbers, payloads: list[bytes | None]) -> Iterator[Rebuilt]:
        end = int(numbers[-1, of_batches.LAST_OFFSET]) + 1
        tables = [rows_of(each) for each in self._rows.before(end)]
        rows = one_table(tables) if tables else None
        deltas, place = _NOTHING, _NOTHING
        if rows is not None:
            rows, deltas, place = self._placed(rows, numbers)
        counts = np.bincount(place, minlength=len(numbers))
        is_control = np.array([each is not None for each in payloads], np.bool_)
        expected = np.where(is_control, 0, numbers[:, of_batches.RECORDS])
        if (counts != expected).any():
            if not self._is_selective or (counts > expected).any():
                wrong = int(np.flatnonzero(counts != expected)[0])
                raise CorruptFile(
                    f"The batch at offset {numbers[wrong, 0]} has {expected[wrong]} records, and "
                    f"the files hold {counts[wrong]} of them"
                )
            numbers, payloads, counts, is_control = self._selected(
                numbers, payloads, counts, is_control, rows, place
            )
            if not len(numbers):
                return
        self.records += int(counts.sum())
        if self._is_selective:
            if rows is not None and rows.num_rows:
                self.digest.add(rows)
            self.batch_digest.add(numbers, [each for each in payloads if each is not None])
        yield from _made(numbers, payloads, rows, deltas, counts)

    def _placed(
        self, rows: pa.RecordBatch, numbers: of_batches.Numbers
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        if self._is_selective:
            times = rows.column("timestamp_ms").to_numpy()
            kept = times != NO_TIMESTAMP
            if self._from_ms is not None:
                kept &= times >= self._from_ms
            if self._to_ms is not None:
                kept &= times < self._to_ms
            rows = rows.filter(pa.array(kept))
        offsets: npt.NDArray[np.int64] = rows.column("offset").to_numpy()
        bases = numbers[:, of_batches.BASE_OFFSET]
        place = np.searchsorted(bases, offsets, side="right") - 1
        if len(place) and (
            place[0] < 0 or (offsets > numbers[place, of_batches.LAST_OFFSET]).any()
        ):
            raise CorruptFile(f"The files hold records about offset {offsets[0]} of no batch")
        return rows, offsets - bases[place], place

    def _selected(
        self,
        numbers: of_batches.Numbers,
        payloads: list[bytes | None],
        counts: npt.NDArray[np.int64],
        is_control: npt.NDArray[np.bool_],
        rows: pa.RecordBatch | None,
        place: npt.NDArray[np.int64],
    ) -> tuple[
        of_batches.Numbers, list[bytes | None], npt.NDArray[np.int64], npt.NDArray[np.bool_]
    ]:
        """The facts of what is left of the batches."""
        changed = (counts < numbers[:, of_batches.RECORDS]) & ~is_control
        largest = np.full(len(numbers), NO_TIMESTAMP, np.int64)
        if rows is not None and rows.num_rows:
            raise_largest(largest, place, rows.column("create_ms").to_numpy())
        stamped = numbers[:, of_batches.ATTRIBUTES] >> 3 & 1
        restamped = changed & (stamped == 0)
        kept = (counts > 0) | is_control | (numbers[:, of_batches.RECORDS] == 0)
        numbers[restamped, of_batches.MAX_TIMESTAMP] = largest[restamped]
        numbers[changed, of_batches.RECORDS] = counts[changed]
        places = np.flatnonzero(kept)
        return numbers[kept], [payloads[at] for at in places], counts[kept], is_control[kept]


_NOTHING = np.empty(0, np.int64)


def _chunks(numbers: of_batches.Numbers) -> Iterator[tuple[int, int]]:
    """Stretches of batches of a few records together."""
    sums = np.cumsum(numbers[:, of_batches.RECORDS])
    start = 0
    while start < len(numbers):
        before = int(sums[start - 1]) if start else 0
        end = int(np.searchsorted(sums, before + _CHUNK_RECORDS, side="right"))
        end = max(end, start + 1)
        yield start, end
        start = end


def _made(
    numbers: of_batches.Numbers,
    payloads: list[bytes | None],
    rows: pa.RecordBatch | None,
    deltas: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
) -> Iterator[Rebuilt]:
    groups = list(zip(counts.tolist(), numbers[:, of_batches.BASE_TIMESTAMP].tolist(), strict=True))
    appends: list[int | None] = []
    encoded: Iterator[memoryview] = iter(())
    if rows is not None and rows.num_rows:
        column = rows.column("append_ms").fill_null(NO_APPEND_TIME).to_numpy()
        firsts = np.cumsum(counts) - counts
        of_each = column[np.minimum(firsts, len(column) - 1)]
        appends = [
            None if not count or ms == NO_APPEND_TIME else ms
            for ms, count in zip(of_each.tolist(), counts.tolist(), strict=True)
        ]
        written = rows.select(["key", "value", "headers", "create_ms"]).rename_columns(
            ["key", "value", "headers", "timestamp_ms"]
        )
        encoded = encode_records(written, deltas, groups)
    for place, fields in enumerate(numbers.tolist()):
        records: bytes | memoryview = next(encoded, b"")
        payload = payloads[place]
        if payload is not None:
            records = payload
        codec = _CODECS[fields[of_batches.ATTRIBUTES] & 7]
        packed = compress(codec, records) if fields[of_batches.RECORDS] else b""
        header = header_of(fields, len(packed))
        append_ms = appends[place] if appends else None
        yield Rebuilt((pack_header(header, packed), packed), header, append_ms)


def header_of(fields: list[int], payload_bytes: int) -> BatchHeader:
    """The header that a row of facts describes."""
    base_offset, last_offset, base_timestamp, max_timestamp, attributes, *rest = fields
    producer_id, producer_epoch, base_sequence, leader_epoch, records = rest
    return BatchHeader(
        base_offset=base_offset,
        batch_length=HEADER_SIZE - LOG_OVERHEAD + payload_bytes,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=records,
    )


def filler_at(offset: int, leader_epoch: int) -> Rebuilt:
    """An empty batch that makes a log end behind an offset, so that it is not given out again."""
    fields = [offset, offset, NO_TIMESTAMP, NO_TIMESTAMP, 0, -1, -1, -1, leader_epoch, 0]
    header = header_of(fields, 0)
    return Rebuilt((pack_header(header, b""), b""), header, None)
