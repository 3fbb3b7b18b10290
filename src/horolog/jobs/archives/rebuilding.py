"""Record batches from rows and facts: the way back of `reading`."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from horolog.buffers import Buffer
from horolog.errors import CorruptFile
from horolog.jobs.archives import facts as of_batches
from horolog.jobs.archives.digests import NO_APPEND_TIME, BatchDigest, RecordDigest
from horolog.jobs.archives.parts import rows_of
from horolog.jobs.archives.reading import raise_largest
from horolog.jobs.archives.rows import OrderedRows, one_table
from horolog.jobs.counting import count
from horolog.record.batch import CODEC_BITS
from horolog.record.column_writer import RecordsEncoder
from horolog.record.compression import Codec, compress
from horolog.record.header_table import HeaderTable
from horolog.record.stretches import Int64Array
from horolog.record.timestamps import NO_TIMESTAMP, TimeRange
from horolog.sources.rows import with_times_in

CHUNK_RECORDS: Final = 16_384
_CODECS = tuple(Codec)


class Rebuilt(NamedTuple):
    """Batches that follow each other; valid until the next are asked for."""

    parts: list[Buffer]
    """Their bytes: of each the header and the records."""
    headers: HeaderTable
    append_ms: npt.NDArray[np.int64]
    """When the first record of each was appended or seen; `NO_APPEND_TIME` if that is unknown."""
    is_seen: npt.NDArray[np.bool_]
    """Whether that is when a follower saw it."""


class Rebuilder:
    """Makes the batches of a partition again; counts and checks what it gives.

    The digests are of a part by time only: of all else the manifest has them.
    """

    def __init__(self, rows: OrderedRows, times: TimeRange) -> None:
        self.records = 0
        self.digest, self.batch_digest = RecordDigest(), BatchDigest()
        self._rows = rows
        self._encoder = RecordsEncoder()
        self._times, self._is_selective = times, not times.is_everything

    def batches(self, facts: Iterable[tuple[Int64Array, list[bytes | None]]]) -> Iterator[Rebuilt]:
        """The batches of these facts, in their order.

        Raises:
            CorruptFile: rows are missing, or are of no batch.
        """
        for numbers, payloads in facts:
            start = 0
            while start < len(numbers):
                end = start + self._reach(numbers[start : start + CHUNK_RECORDS])
                rebuilt = self._some(numbers[start:end].copy(), payloads[start:end])
                if rebuilt is not None:
                    yield rebuilt
                start = end

    def _reach(self, numbers: Int64Array) -> int:
        """How many of the batches to make at once: those whose rows are in memory already."""
        sums = np.cumsum(numbers[:, of_batches.RECORDS])
        count = max(1, int(np.searchsorted(sums, CHUNK_RECORDS, side="right")))
        ends = numbers[:count, of_batches.LAST_OFFSET] + 1
        reach = self._rows.reach(int(ends[-1]))
        return max(1, int(np.searchsorted(ends, reach, side="right")))

    def _some(self, numbers: Int64Array, payloads: list[bytes | None]) -> Rebuilt | None:
        end = int(numbers[-1, of_batches.LAST_OFFSET]) + 1
        tables = [rows_of(each) for each in self._rows.before(end)]
        rows = one_table(tables) if tables else None
        deltas, place = _NOTHING, _NOTHING
        if rows is not None:
            rows, deltas, place = self._placed(rows, numbers)
        counts = np.bincount(place, minlength=len(numbers))
        is_control = np.array([payload is not None for payload in payloads], np.bool_)
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
                return None
        self.records += int(counts.sum())
        count(int(counts.sum()))
        if self._is_selective:
            if rows is not None and rows.num_rows:
                self.digest.add(rows)
            self.batch_digest.add(numbers, [payload for payload in payloads if payload is not None])
        return self._made(numbers, payloads, rows, deltas, counts)

    def _placed(
        self, rows: pa.RecordBatch, numbers: Int64Array
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        if self._is_selective:
            rows = with_times_in(rows, self._times)
        offsets: npt.NDArray[np.int64] = rows.column("offset").to_numpy()
        bases = numbers[:, of_batches.BASE_OFFSET]
        place = np.searchsorted(bases, offsets, side="right") - 1
        if len(place) and (
            (place < 0).any() or (offsets > numbers[place, of_batches.LAST_OFFSET]).any()
        ):
            raise CorruptFile(f"The files hold records about offset {offsets[0]} of no batch")
        return rows, offsets - bases[place], place

    def _selected(
        self,
        numbers: Int64Array,
        payloads: list[bytes | None],
        counts: npt.NDArray[np.int64],
        is_control: npt.NDArray[np.bool_],
        rows: pa.RecordBatch | None,
        place: npt.NDArray[np.int64],
    ) -> tuple[Int64Array, list[bytes | None], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
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

    def _made(
        self,
        numbers: Int64Array,
        payloads: list[bytes | None],
        rows: pa.RecordBatch | None,
        deltas: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int64],
    ) -> Rebuilt:
        data, ends = memoryview(b""), [0] * len(numbers)
        append_ms = np.full(len(numbers), NO_APPEND_TIME, np.int64)
        is_seen = np.zeros(len(numbers), np.bool_)
        if rows is not None and rows.num_rows:
            append_ms = _first_of_each(rows.column("append_ms"), counts)
            seen_ms = _first_of_each(rows.column("seen_ms"), counts)
            is_seen = seen_ms != NO_APPEND_TIME
            append_ms = np.where(is_seen, seen_ms, append_ms)
            written = rows.select(["key", "value", "headers", "create_ms"]).rename_columns(
                ["key", "value", "headers", "timestamp_ms"]
            )
            bases = numbers[:, of_batches.BASE_TIMESTAMP]
            try:
                data, ends = self._encoder.encode(written, deltas, counts, bases)
            except ValueError as error:
                first = numbers[0, of_batches.BASE_OFFSET]
                raise CorruptFile(f"The rows from offset {first} on: {error}") from None
        records: list[Buffer] = [
            data[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)
        ]
        codecs = numbers[:, of_batches.ATTRIBUTES] & CODEC_BITS
        for place, payload in enumerate(payloads):
            if payload is not None:
                records[place] = payload
        for place in np.flatnonzero(numbers[:, of_batches.RECORDS] == 0).tolist():
            records[place] = b""
            codecs[place] = Codec.NONE
        for place in np.flatnonzero(codecs != Codec.NONE).tolist():
            records[place] = compress(_CODECS[codecs[place]], records[place])
        headers = of_batches.headers_of(numbers)
        return Rebuilt(headers.packed(records), headers, append_ms, is_seen)


_NOTHING = np.empty(0, np.int64)


def _first_of_each(column: pa.Array, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The value of the first row of each batch; `NO_APPEND_TIME` where there is none."""
    if column.null_count == len(column):
        return np.full(len(counts), NO_APPEND_TIME, np.int64)
    values = column.fill_null(NO_APPEND_TIME).to_numpy()
    firsts = np.cumsum(counts) - counts
    return np.where(counts > 0, values[np.minimum(firsts, len(values) - 1)], NO_APPEND_TIME)


def filler_at(offset: int, leader_epoch: int) -> Rebuilt:
    """An empty batch that makes a log end behind an offset, so that it is not given out again."""
    fields = [offset, offset, NO_TIMESTAMP, NO_TIMESTAMP, 0, -1, -1, -1, leader_epoch, 0]
    headers = of_batches.headers_of(np.array([fields], np.int64))
    unknown = np.array([NO_APPEND_TIME], np.int64)
    return Rebuilt(headers.packed([b""]), headers, unknown, np.zeros(1, np.bool_))
