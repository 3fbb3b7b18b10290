"""Whole batches of a stretch of offsets, as rows and as facts of batches; runs in a task.

A batch belongs to the stretch that holds its last offset, so that stretches side by side read
each batch once, wherever they were cut. Aborted transactions are left out with their markers,
and leave gaps in the offsets as a compaction does; markers of commits are kept.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from horolog.buffers import Buffer
from horolog.jobs.archives import facts as of_batches
from horolog.jobs.archives.digests import NO_APPEND_TIME, BatchDigest, RecordDigest
from horolog.jobs.archives.facts import BatchFacts
from horolog.jobs.archives.ranges import MOST_OFFSETS, Range
from horolog.record.batch import MAGIC, BatchHeader, iter_headers, verify_crc
from horolog.record.columns import batch_schema, decode
from horolog.record.conversion import convert_all, open_batch
from horolog.record.markers import read_marker
from horolog.record.old_format.sent import RUN_BYTES
from horolog.record.timestamps import LOG_APPEND_TIME, NO_TIMESTAMP, AppendTimeStretch

_DECODED: Final = ("key", "value", "headers", "offset", "timestamp_ms")
SCHEMA: Final = pa.schema(
    [
        *batch_schema(_DECODED),
        pa.field("timestamp_type", pa.int32()),
        pa.field("create_ms", pa.int64()),
        pa.field("append_ms", pa.int64()),
    ]
)
"""Of rows: `create_ms` is the time in the record's own bytes, `append_ms` null if unknown."""
TABLE_BYTES: Final = 4 << 20


class Piece(NamedTuple):
    """Some whole batches, in offset order after those of the piece before."""

    data: Buffer
    drops: Callable[[BatchHeader, memoryview], bool] | None
    """Whether a batch, the next in order, is of an aborted transaction; None where none is."""
    append_times: Callable[[int, int], Sequence[AppendTimeStretch]] | None
    """When records of these offsets were appended; None where nothing is known of it."""


class _Batch(NamedTuple):
    position: int
    header: BatchHeader
    payload: bytes | None
    """Of a control batch."""
    append_ms: int = NO_APPEND_TIME
    """When it was appended, as a whole."""


class RangeReader:
    """Reads `start` to before `end`; records before `floor` are left out.

    After `rows` is exhausted `ranges` says what was read: one range, or several where append
    times go back or offsets are far apart. They lie side by side; the first begins before
    `start` if a batch reaches over it, and the last ends before `end` likewise.
    """

    def __init__(
        self,
        start: int,
        end: int,
        *,
        floor: int = 0,
        from_ms: int | None = None,
        to_ms: int | None = None,
        max_bytes: int = TABLE_BYTES,
    ) -> None:
        self.ranges: list[Range] = []
        self.facts: list[pa.RecordBatch] = []
        """The facts of the batches, in tables of `facts.SCHEMA`."""
        self._start, self._end, self._floor = start, end, floor
        self._from_ms, self._to_ms = from_ms, to_ms
        self._is_selective = from_ms is not None or to_ms is not None
        self._max_bytes = max_bytes
        self._is_done = False
        self._least_offset = 0
        self._last_append = NO_APPEND_TIME
        self._begun: int | None = None
        """Where the range that is being read begins, once a batch was met."""
        self._begin()

    def _begin(self) -> None:
        self._digest, self._batch_digest = RecordDigest(), BatchDigest()
        self._bytes = 0
        self._appends: tuple[int, int] | None = None

    def rows(self, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
        """The rows of the batches, in tables of `SCHEMA`.

        Raises:
            CorruptBatch: a batch is damaged.
            RequestRefused: one decompresses to far too much.
        """
        for piece in pieces:
            yield from self._piece(piece)
            if self._is_done:
                break
        self._finish(self._end)

    # Batches.

    def _piece(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        view, headers = self._in_v2(memoryview(piece.data), piece)
        batches: list[_Batch] = []
        for position, header in headers:
            batch = view[position : position + header.size]
            is_dropped = piece.drops is not None and piece.drops(header, batch)
            last_offset = header.last_offset
            if last_offset < self._start:
                continue
            if last_offset >= self._end:
                self._stop_at(header.base_offset)
                break
            if self._begun is None:
                self._begun = max(self._floor, min(self._start, header.base_offset))
            if is_dropped or self._is_too_early(header):
                continue
            payload = None
            if header.is_control:
                verify_crc(view, position, header)
                marker = read_marker(batch)
                if marker is not None and marker.is_abort:
                    continue
                payload = b"".join(bytes(part) for part in open_batch(batch, header).pieces)
            elif header.records_count == 0:
                verify_crc(view, position, header)
            batches.append(_Batch(position, header, payload))
        for cut, group in self._groups(_appended(batches, piece)):
            if cut is not None:
                self._finish(cut)
                self._begun = cut
            yield from self._group(view, group)

    def _in_v2(
        self, view: memoryview, piece: Piece
    ) -> tuple[memoryview, Iterable[tuple[int, BatchHeader]]]:
        """The batches, and position and header of each.

        Those of older formats are converted; what is not wanted of these is left out.
        """
        headers: list[tuple[int, BatchHeader]] = []  # of batches that are in v2
        first, end, is_old, least_offset = 0, 0, False, self._least_offset
        following = least_offset
        for position, header in iter_headers(view, 0, least_offset):
            is_old |= header.magic != MAGIC
            if not is_old:
                headers.append((position, header))
            end = position + header.size
            if header.last_offset < self._start:
                first, following = end, header.next_offset
            self._least_offset = header.next_offset
            if is_old and header.last_offset >= self._end:
                # Plain messages would become one batch with those before.
                if not header.codec_number:
                    end = position
                    self._is_done = True
                break
        if not is_old:
            return view, headers
        # Append times are of each plain message, and those of a batch are one.
        run_bytes = RUN_BYTES if piece.append_times is None else 0
        parts = convert_all(view[first:end], MAGIC, least_offset=following, run_bytes=run_bytes)
        converted = memoryview(b"".join(part.data for part in parts))
        return converted, iter_headers(converted)

    def _stop_at(self, base_offset: int) -> None:
        """End before a batch that is the next stretch's."""
        self._is_done = True
        self._end = max(min(self._end, base_offset), self._floor)
        if self._begun is None:  # all of the stretch is within that batch
            self._begun = min(self._start, self._end)

    def _is_too_early(self, header: BatchHeader) -> bool:
        from_ms = self._from_ms
        return from_ms is not None and header.max_timestamp < from_ms and not header.is_control

    def _groups(self, batches: list[_Batch]) -> Iterator[tuple[int | None, list[_Batch]]]:
        """The batches, cut where a range has to end; the offset of the cut before each group."""
        group: list[_Batch] = []
        cut: int | None = None
        for batch in batches:
            header, ms = batch.header, batch.append_ms
            begun = self._start if self._begun is None else self._begun
            began = cut if cut is not None else begun
            is_far = header.last_offset - began > MOST_OFFSETS and header.base_offset > began
            if (ms != NO_APPEND_TIME and ms < self._last_append) or is_far:
                yield cut, group
                cut, group = max(header.base_offset, began), []
            if ms != NO_APPEND_TIME:
                self._last_append = ms
            group.append(batch)
        yield cut, group

    # Rows.

    def _group(self, view: memoryview, group: list[_Batch]) -> Iterator[pa.RecordBatch]:
        if not group:
            return
        found = BatchFacts()
        for batch in group:
            found.add(batch.header, batch.payload)
            self._bytes += batch.header.size
        numbers = found.numbers()
        appended = np.array([batch.append_ms for batch in group], np.int64)
        counted = np.zeros(len(numbers), np.int64)
        largest = np.full(len(numbers), NO_TIMESTAMP, np.int64)
        floor = self._floor if self._floor > numbers[0, of_batches.BASE_OFFSET] else None
        for begin, end in _runs(group):
            for table in decode(
                view[begin:end],
                columns=_DECODED,
                start_offset=floor,
                max_bytes=self._max_bytes,
                as_created=True,
            ):
                rows, place = self._shaped(table, numbers, appended)
                counted += np.bincount(place, minlength=len(numbers))
                if not rows.num_rows:
                    continue
                if self._is_selective or floor is not None:
                    raise_largest(largest, place, rows.column("create_ms").to_numpy())
                self._digest.add(rows)
                yield rows
        self._keep(found, numbers, counted, largest)

    def _shaped(
        self,
        table: pa.RecordBatch,
        numbers: of_batches.Numbers,
        appended: npt.NDArray[np.int64],
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        """Rows of `SCHEMA`, and the place of the batch of each among the facts."""
        offsets: npt.NDArray[np.int64] = table.column("offset").to_numpy()
        created: npt.NDArray[np.int64] = table.column("timestamp_ms").to_numpy()
        place = np.searchsorted(numbers[:, of_batches.BASE_OFFSET], offsets, side="right") - 1
        kinds = numbers[place, of_batches.ATTRIBUTES] >> 3 & 1
        times = created
        if kinds.any():
            times = np.where(kinds == 1, numbers[place, of_batches.MAX_TIMESTAMP], created)
        appends = appended[place]
        rows = pa.RecordBatch.from_arrays(
            [
                *(table.column(name) for name in ("key", "value", "headers", "offset")),
                pa.array(times),
                pa.array(kinds.astype(np.int32)),
                pa.array(created),
                self._append_column(appends),
            ],
            schema=SCHEMA,
        )
        if self._is_selective:
            kept = times != NO_TIMESTAMP
            if self._from_ms is not None:
                kept &= times >= self._from_ms
            if self._to_ms is not None:
                kept &= times < self._to_ms
            if not kept.all():
                rows, place = rows.filter(pa.array(kept)), place[kept]
        return rows, place

    def _append_column(self, appends: npt.NDArray[np.int64]) -> pa.Array:
        unknown = appends == NO_APPEND_TIME
        if not unknown.all():
            known = appends[~unknown]
            first = int(known[0]) if self._appends is None else self._appends[0]
            self._appends = first, int(known[-1])
        return pa.array(appends, mask=unknown if unknown.any() else None)

    def _keep(
        self,
        found: BatchFacts,
        numbers: of_batches.Numbers,
        counted: npt.NDArray[np.int64],
        largest: npt.NDArray[np.int64],
    ) -> None:
        """Write down the facts of a group, as they are of what was kept of each batch."""
        is_control = numbers[:, of_batches.ATTRIBUTES] & 0x20 != 0
        counts = numbers[:, of_batches.RECORDS]
        kept = (counted > 0) | (counts == 0) | is_control
        changed = (counted < counts) & ~is_control
        stamped = numbers[:, of_batches.ATTRIBUTES] >> 3 & 1
        restamped = changed & (stamped == 0)
        numbers[restamped, of_batches.MAX_TIMESTAMP] = largest[restamped]
        counts[changed] = counted[changed]
        numbers = numbers[kept]
        payloads = found.payloads(kept)
        self._batch_digest.add(numbers, [each for each in payloads if each is not None])
        self.facts.append(of_batches.table_of(numbers, payloads))

    def _finish(self, end: int) -> None:
        start = self._start if self._begun is None else self._begun
        first, last = (None, None) if self._appends is None else self._appends
        self.ranges.append(
            Range(
                start=start,
                end=max(start, end),
                records=self._digest.records,
                batches=self._batch_digest.batches,
                bytes=self._bytes,
                digest=self._digest.text(),
                batch_digest=self._batch_digest.text(),
                first_append_ms=first,
                last_append_ms=last,
            )
        )
        self._begin()


def _appended(batches: list[_Batch], piece: Piece) -> list[_Batch]:
    """The batches with their append times, as far as they are known.

    A broker says those of records from the offset on that was asked for, which may be within the
    first batch; hence the last record of each is looked up.
    """
    stretches: Sequence[AppendTimeStretch] = ()
    if piece.append_times is not None and batches:
        first, last = batches[0].header, batches[-1].header
        stretches = piece.append_times(first.base_offset, last.next_offset)
    starts = [each.offset for each in stretches]
    found = []
    for batch in batches:
        header = batch.header
        at = bisect_right(starts, header.last_offset) - 1
        ms = stretches[at].ms if at >= 0 else None
        if ms is None and header.timestamp_type is LOG_APPEND_TIME:
            ms = None if header.max_timestamp == NO_TIMESTAMP else header.max_timestamp
        found.append(batch if ms is None else _Batch(batch.position, header, batch.payload, ms))
    return found


def _runs(group: list[_Batch]) -> Iterator[tuple[int, int]]:
    """Where batches are next to each other."""
    begin = end = group[0].position
    for batch in group:
        if batch.position != end:
            yield begin, end
            begin = batch.position
        end = batch.position + batch.header.size
    yield begin, end


def raise_largest(
    largest: npt.NDArray[np.int64],
    place: npt.NDArray[np.int64],
    times: npt.NDArray[np.int64],
) -> None:
    """The largest time of each batch so far; -1 is none, and a batch may have none."""
    timed = times != NO_TIMESTAMP
    places, values = place[timed], times[timed]
    if not len(places):
        return
    starts = np.flatnonzero(np.concatenate(([True], places[1:] != places[:-1])))
    of_each = np.maximum.reduceat(values, starts)
    at = places[starts]
    unset = largest[at] == NO_TIMESTAMP
    largest[at] = np.where(unset, of_each, np.maximum(largest[at], of_each))
