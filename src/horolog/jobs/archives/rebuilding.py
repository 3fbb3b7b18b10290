"""Record batches from rows and facts: the inverse of `reading`."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from horolog.buffers import Buffer
from horolog.errors import CorruptFile
from horolog.jobs.archives import facts as of_batches
from horolog.jobs.archives.digests import BatchDigest, RecordDigest
from horolog.jobs.archives.facts import NO_APPEND_TIME, Facts
from horolog.jobs.archives.parts import rows_of
from horolog.jobs.archives.rows import OrderedRows
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
    """Rebuilt batches in offset order; valid until the next ones are asked for."""

    parts: list[Buffer]
    """Header and records of each batch, in turn."""
    headers: HeaderTable
    append_ms: Int64Array
    """Append or seen time of each batch; `NO_APPEND_TIME` if that is unknown."""
    is_seen: npt.NDArray[np.bool_]
    """Marks the batches whose `append_ms` is when a follower saw them."""


class Rebuilder:
    """Rebuilds the batches of a partition; counts and checks the records.

    With a range of time it also computes digests: the manifest has those of whole ranges only.
    """

    def __init__(self, rows: OrderedRows, times: TimeRange) -> None:
        self.records = 0
        self.digest, self.batch_digest = RecordDigest(), BatchDigest()
        self._rows = rows
        self._encoder = RecordsEncoder()
        self._times, self._is_selective = times, not times.is_everything

    def batches(self, tables: Iterable[Facts]) -> Iterator[Rebuilt]:
        """Yield the batches of these facts, in their order.

        Raises:
            CorruptFile: rows are missing, or belong to no batch.
        """
        for facts in tables:
            start = 0
            while start < len(facts):
                end = start + self._reach(facts.taken(slice(start, start + CHUNK_RECORDS)))
                rebuilt = self._rebuilt(facts.taken(slice(start, end)))
                if rebuilt is not None:
                    yield rebuilt
                start = end

    def _reach(self, facts: Facts) -> int:
        """Return how many batches to rebuild at once: those whose rows are in memory already."""
        sums = np.cumsum(facts["records"])
        count = max(1, int(np.searchsorted(sums, CHUNK_RECORDS, side="right")))
        ends = facts["last_offset"][:count] + 1
        reach = self._rows.reach(int(ends[-1]))
        return max(1, int(np.searchsorted(ends, reach, side="right")))

    def _rebuilt(self, facts: Facts) -> Rebuilt | None:
        """Return the batches of facts; None if no record of them is in the range of time."""
        rows = rows_of(self._rows.before(int(facts["last_offset"][-1]) + 1))
        if self._is_selective:
            rows = with_times_in(rows, self._times)
        offsets: Int64Array = rows.column("offset").to_numpy()
        place = np.searchsorted(facts["base_offset"], offsets, side="right") - 1
        if len(place) and ((place < 0).any() or (offsets > facts["last_offset"][place]).any()):
            raise CorruptFile(f"The files hold records about offset {offsets[0]} of no batch")
        deltas = offsets - facts["base_offset"][place]
        kept = of_batches.KeptRecords(facts, may_lose=self._is_selective)
        kept.add(place, rows.column("create_ms").to_numpy())
        counts = kept.counts
        expected = np.where(facts.is_control, 0, facts["records"])
        if (counts != expected).any():
            if not self._is_selective or (counts > expected).any():
                wrong = int(np.flatnonzero(counts != expected)[0])
                raise CorruptFile(
                    f"The batch at offset {facts['base_offset'][wrong]} has {expected[wrong]} "
                    f"records, and the files hold {counts[wrong]} of them"
                )
            facts, is_kept = kept.facts()
            counts = counts[is_kept]
            if not len(facts):
                return None
        self.records += rows.num_rows
        count(rows.num_rows)
        if self._is_selective:
            self.digest.add(rows)
            self.batch_digest.add(facts)
        return self._encoded(facts, rows, deltas, counts)

    def _encoded(
        self, facts: Facts, rows: pa.RecordBatch, deltas: Int64Array, counts: Int64Array
    ) -> Rebuilt:
        data, ends = memoryview(b""), [0] * len(facts)
        if rows.num_rows:
            written = rows.select(["key", "value", "headers", "create_ms"]).rename_columns(
                ["key", "value", "headers", "timestamp_ms"]
            )
            try:
                data, ends = self._encoder.encode(written, deltas, counts, facts["base_timestamp"])
            except ValueError as error:
                first = facts["base_offset"][0]
                raise CorruptFile(f"The rows from offset {first} on: {error}") from None
        records: list[Buffer] = [
            data[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)
        ]
        codecs = facts["attributes"] & CODEC_BITS
        for place in np.flatnonzero(facts.is_control).tolist():
            records[place] = facts.payloads[place]
        for place in np.flatnonzero(facts["records"] == 0).tolist():
            records[place] = b""
            codecs[place] = Codec.NONE
        for place in np.flatnonzero(codecs != Codec.NONE).tolist():
            records[place] = compress(_CODECS[codecs[place]], records[place])
        seen_ms = _first_of_each(rows.column("seen_ms"), counts)
        is_seen = seen_ms != NO_APPEND_TIME
        append_ms = np.where(is_seen, seen_ms, _first_of_each(rows.column("append_ms"), counts))
        if facts.append_ms is not None:  # of markers and of empty batches, too
            append_ms = np.where(append_ms == NO_APPEND_TIME, facts.append_ms, append_ms)
        headers = of_batches.headers_of(facts)
        return Rebuilt(headers.packed(records), headers, append_ms, is_seen)


def _first_of_each(column: pa.Array, counts: Int64Array) -> Int64Array:
    """Return the value of the first row of each batch; `NO_APPEND_TIME` if there is none."""
    if column.null_count == len(column):
        return np.full(len(counts), NO_APPEND_TIME, np.int64)
    values = column.fill_null(NO_APPEND_TIME).to_numpy()
    firsts = np.cumsum(counts) - counts
    return np.where(counts > 0, values[np.minimum(firsts, len(values) - 1)], NO_APPEND_TIME)


def filler_at(offset: int, leader_epoch: int) -> Rebuilt:
    """Return an empty batch at an offset, which makes the log end behind that offset."""
    numbers = [offset, offset, NO_TIMESTAMP, NO_TIMESTAMP, 0, -1, -1, -1, leader_epoch, 0]
    no_payload: npt.NDArray[np.object_] = np.full(1, None)
    facts = Facts(np.array([numbers], np.int64), no_payload, np.zeros(1, np.bool_))
    headers = of_batches.headers_of(facts)
    unknown = np.array([NO_APPEND_TIME], np.int64)
    return Rebuilt(headers.packed([b""]), headers, unknown, np.zeros(1, np.bool_))
