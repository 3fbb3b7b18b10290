"""Read whole batches of a stretch of offsets as rows and as facts of batches; runs in a task.

A batch belongs to the stretch that holds its last offset, so that stretches side by side read
each batch once, wherever they were cut. Aborted transactions are left out with their markers,
and leave gaps in the offsets as a compaction does; markers of commits are kept. Only the facts of
what is left out are noted.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from horolog.jobs.archives import facts as of_batches
from horolog.jobs.archives.digests import BatchDigest, RecordDigest
from horolog.jobs.archives.facts import NO_APPEND_TIME, Facts
from horolog.jobs.archives.manifest import MOST_OFFSETS, ArchivedRange
from horolog.record.batch import (
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    BatchHeader,
    iter_headers,
    parse_header,
    verify_crc,
)
from horolog.record.columns import batch_schema, decode
from horolog.record.conversion import convert_all, open_batch
from horolog.record.header_table import HeaderTable, positions_of
from horolog.record.markers import read_marker
from horolog.record.old_format.sent import RUN_BYTES
from horolog.record.stretches import Int64Array
from horolog.record.timestamps import ALL_TIMES, NO_TIMESTAMP, NO_TIMESTAMP_TYPE, TimeRange
from horolog.record.transactions import BatchWalk
from horolog.sources.batches import Batches
from horolog.sources.rows import in_times

_DECODED: Final = ("key", "value", "headers", "offset", "timestamp_ms")
SCHEMA: Final = pa.schema(
    [
        *batch_schema(_DECODED),
        pa.field("timestamp_type", pa.int32()),
        pa.field("create_ms", pa.int64()),
        pa.field("append_ms", pa.int64()),
        pa.field("seen_ms", pa.int64()),
    ]
)
"""Of rows: `create_ms` is the time in the record's own bytes, `append_ms` null if unknown;
`seen_ms` is then when a follower saw the record, if one did."""
TABLE_BYTES: Final = 4 << 20


class _Chosen(NamedTuple):
    """Batches that are archived, in offset order."""

    facts: Facts
    positions: Int64Array
    sizes: Int64Array
    append_ms: Int64Array
    """Append or seen time of each batch; `NO_APPEND_TIME` if that is unknown."""
    is_seen: npt.NDArray[np.bool_]
    """Marks the batches whose `append_ms` is when a follower saw them."""

    def between(self, first: int, end: int | None) -> "_Chosen":
        """Return some of the batches, which follow one another."""
        rows = slice(first, end)
        columns: list[Any] = [column[rows] for column in self[1:]]
        return _Chosen(self.facts.taken(rows), *columns)


class RangeReader:
    """Reader of the offsets from `start` to before `end`, without the records before `floor`.

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
        times: TimeRange = ALL_TIMES,
    ) -> None:
        self.ranges: list[ArchivedRange] = []
        self.facts: list[pa.RecordBatch] = []
        """The facts of the batches, in tables of `facts.SCHEMA`; in order after `rows`."""
        self._start, self._end, self._floor = start, end, floor
        self._times, self._is_selective = times, not times.is_everything
        self._is_done = False
        self._least_offset = 0
        self._untyped: list[tuple[int, int]] = []
        """Bounds of offsets of v0 messages in the piece, whose records have no timestamp type."""
        self._last_append = NO_APPEND_TIME
        self._begun: int | None = None
        """Start of the current range, once it has a batch."""
        self._begin()

    def _begin(self) -> None:
        self._digest, self._batch_digest = RecordDigest(), BatchDigest()
        self._bytes = self._left_out = 0
        self._appends: tuple[int, int] | None = None

    def rows(self, pieces: Iterable[Batches]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the batches, in tables of `SCHEMA`.

        Raises:
            CorruptBatch: a batch is damaged.
            RequestRefused: one decompresses to far too much.
        """
        for piece in pieces:
            yield from self._piece(piece)
            if self._is_done:
                break
        self._finish(self._end)
        if any(range_.left_out for range_ in self.ranges):
            facts = pa.Table.from_batches(self.facts).sort_by("base_offset").combine_chunks()
            self.facts = facts.to_batches()

    # Batches.

    def _piece(self, piece: Batches) -> Iterator[pa.RecordBatch]:
        view, positions = self._in_v2(memoryview(piece.data), piece)
        batches = self._chosen(view, positions, piece)
        for cut, group in self._groups(batches):
            if cut is not None:
                self._finish(cut)
                self._begun = cut
            yield from self._group(view, group)

    def _chosen(self, view: memoryview, positions: Sequence[int], piece: Batches) -> _Chosen:
        """Return the batches that are archived, of those at some positions of a buffer."""
        headers = HeaderTable.read(view, positions)
        last_offsets = headers.last_offsets
        inside = last_offsets >= self._start
        beyond = np.flatnonzero(inside & (last_offsets >= self._end))
        count = int(beyond[0]) if len(beyond) else len(headers)
        is_dropped = np.zeros(count, np.bool_)
        if piece.aborted:
            walk = BatchWalk(view, piece.aborted)
            is_dropped[:] = [batch.is_aborted for batch in islice(walk, count)]
        is_kept, base_offsets = inside[:count].copy(), headers.numbers("base_offset")
        if self._begun is None and is_kept.any():
            first = int(base_offsets[int(np.argmax(is_kept))])
            self._begun = max(self._floor, min(self._start, first))
        if count < len(headers):
            self._stop_at(int(base_offsets[count]))
        headers = headers[:count]
        is_control = headers.numbers("attributes") & CONTROL_BIT != 0
        is_kept &= ~is_dropped
        if self._times.from_ms is not None:
            is_kept &= is_control | (headers.numbers("max_timestamp") >= self._times.from_ms)
        payloads: npt.NDArray[np.object_] = np.full(count, None)
        is_empty = headers.numbers("records_count") == 0
        for place in np.flatnonzero(is_kept & (is_control | is_empty)).tolist():
            position = positions[place]
            header = parse_header(view, position)
            verify_crc(view, position, header)
            if header.is_control:
                batch = view[position : position + header.size]
                payloads[place] = _payload_of(batch, header)
                is_kept[place] = payloads[place] is not None
        if not self._is_selective:
            self._leave_out(headers[inside[:count] & ~is_kept & ~is_empty], piece)
        headers = headers[is_kept]
        append_ms, is_seen = _append_times(headers, piece)
        known_ms = np.where(is_seen, NO_APPEND_TIME, append_ms)
        return _Chosen(
            of_batches.of_headers(headers, payloads[is_kept], is_control[is_kept], known_ms),
            np.array(positions[:count], np.int64)[is_kept],
            headers.sizes,
            append_ms,
            is_seen,
        )

    def _leave_out(self, headers: HeaderTable, piece: Batches) -> None:
        """Note the facts of aborted batches and of their markers."""
        if not len(headers):
            return
        append_ms, is_seen = _append_times(headers, piece)
        none: npt.NDArray[np.object_] = np.full(len(headers), None)
        known_ms = np.where(is_seen, NO_APPEND_TIME, append_ms)
        facts = of_batches.of_headers(headers, none, np.zeros(len(headers), np.bool_), known_ms)
        facts["records"][:] = of_batches.LEFT_OUT
        self.facts.append(of_batches.table_of(facts))
        self._left_out += len(headers)

    def _in_v2(self, view: memoryview, piece: Batches) -> tuple[memoryview, Sequence[int]]:
        """Return the batches in format v2, and their positions.

        Those of older formats are converted; of these the ones outside of the stretch are left out.
        """
        positions = positions_of(view)
        self._untyped = []
        if positions is None:
            return self._converted(view, piece)
        if positions:
            self._least_offset = parse_header(view, positions[-1]).next_offset
        return view, positions

    def _converted(self, view: memoryview, piece: Batches) -> tuple[memoryview, Sequence[int]]:
        first, end, is_old, least_offset = 0, 0, False, self._least_offset
        following = least_offset
        for position, header in iter_headers(view, 0, least_offset):
            is_old |= header.magic != MAGIC
            if header.magic == 0:
                self._add_untyped(self._least_offset, header.next_offset)
            end = position + header.size
            if header.last_offset < self._start:
                first, following = end, header.next_offset
            self._least_offset = header.next_offset
            if is_old and header.last_offset >= self._end:
                # Plain messages would become one batch with those before. What may begin before
                # the end stays, and `_chosen` stops where it does.
                if header.magic != MAGIC and not header.codec_number:
                    end = position
                    self._is_done = True
                break
        # Append times are of each plain message, and those of a batch are one.
        run_bytes = RUN_BYTES if piece.append_times is None else 0
        parts = convert_all(view[first:end], MAGIC, least_offset=following, run_bytes=run_bytes)
        converted = memoryview(b"".join(part.data for part in parts))
        return converted, positions_of(converted) or ()

    def _add_untyped(self, start: int, end: int) -> None:
        if self._untyped and self._untyped[-1][1] == start:
            start = self._untyped.pop()[0]
        self._untyped.append((start, end))

    def _stop_at(self, base_offset: int) -> None:
        """End the range before a batch that belongs to the next stretch."""
        self._is_done = True
        self._end = max(min(self._end, base_offset), self._floor)
        if self._begun is None:  # all of the stretch is within that batch
            self._begun = min(self._start, self._end)

    def _groups(self, batches: _Chosen) -> Iterator[tuple[int | None, _Chosen]]:
        """Yield the batches of each range, and the offset at which a new range begins."""
        base_offsets, last_offsets = (
            batches.facts[name] for name in ("base_offset", "last_offset")
        )
        append_ms = batches.append_ms
        began = self._start if self._begun is None else self._begun
        first, cut = 0, None
        for place in _may_be_cut(last_offsets, append_ms, self._last_append, began):
            base_offset, ms = int(base_offsets[place]), int(append_ms[place])
            is_far = last_offsets[place] - began > MOST_OFFSETS and base_offset > began
            if (ms != NO_APPEND_TIME and ms < self._last_append) or is_far:
                yield cut, batches.between(first, place)
                cut = began = max(base_offset, began)
                first = place
            if ms != NO_APPEND_TIME:
                self._last_append = ms
        known = append_ms[append_ms != NO_APPEND_TIME]
        if len(known):
            self._last_append = int(known[-1])
        yield cut, batches.between(first, None)

    # Rows.

    def _group(self, view: memoryview, group: _Chosen) -> Iterator[pa.RecordBatch]:
        if not len(group.facts):
            return
        self._bytes += int(group.sizes.sum())
        floor = self._floor if self._floor > group.facts["base_offset"][0] else None
        may_lose = self._is_selective or floor is not None
        kept = of_batches.KeptRecords(group.facts, may_lose=may_lose)
        for begin, end in _runs(group):
            for table in decode(
                view[begin:end],
                columns=_DECODED,
                start_offset=floor,
                max_bytes=TABLE_BYTES,
                as_created=True,
            ):
                rows, place = self._shaped(table, group)
                if rows.num_rows:
                    kept.add(place, rows.column("create_ms").to_numpy())
                    self._digest.add(rows)
                    yield rows
        facts, _ = kept.facts()
        self._batch_digest.add(facts)
        self.facts.append(of_batches.table_of(facts))

    def _shaped(
        self, table: pa.RecordBatch, group: _Chosen
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.intp]]:
        """Return rows of `SCHEMA`, and the number of each row's batch in the group."""
        facts = group.facts
        offsets: Int64Array = table.column("offset").to_numpy()
        created: Int64Array = table.column("timestamp_ms").to_numpy()
        place = np.searchsorted(facts["base_offset"], offsets, side="right") - 1
        is_stamped = facts.is_stamped[place]
        kinds = is_stamped.astype(np.int32)
        times = created
        if is_stamped.any():
            times = np.where(is_stamped, facts["max_timestamp"][place], created)
        if self._untyped:
            # Within a stretch as many of its bounds are passed as make an odd number.
            passed = np.searchsorted(np.ravel(self._untyped), offsets, side="right")
            kinds[(passed & 1 == 1) & ~is_stamped] = NO_TIMESTAMP_TYPE
        rows = pa.RecordBatch.from_arrays(
            [
                *(table.column(name) for name in ("key", "value", "headers", "offset")),
                pa.array(times),
                pa.array(kinds),
                pa.array(created),
                *self._append_columns(group.append_ms[place], group.is_seen[place]),
            ],
            schema=SCHEMA,
        )
        if self._is_selective:
            kept = in_times(times, self._times)
            if not kept.all():
                rows, place = rows.filter(pa.array(kept)), place[kept]
        return rows, place

    def _append_columns(
        self, appends: Int64Array, is_seen: npt.NDArray[np.bool_]
    ) -> tuple[pa.Array, pa.Array]:
        """Return the columns of append times, and of seen times where append times are unknown."""
        unknown = appends == NO_APPEND_TIME
        if not unknown.all():
            known = appends[~unknown]
            first = int(known[0]) if self._appends is None else self._appends[0]
            self._appends = first, int(known[-1])
        if not is_seen.any():
            mask = unknown if unknown.any() else None
            return pa.array(appends, mask=mask), pa.nulls(len(appends), pa.int64())
        return pa.array(appends, mask=unknown | is_seen), pa.array(appends, mask=~is_seen)

    def _finish(self, end: int) -> None:
        start = self._start if self._begun is None else self._begun
        first, last = (None, None) if self._appends is None else self._appends
        self.ranges.append(
            ArchivedRange(
                start=start,
                end=max(start, end),
                records=self._digest.records,
                batches=self._batch_digest.batches,
                bytes=self._bytes,
                digest=self._digest.text(),
                batch_digest=self._batch_digest.text(),
                first_append_ms=first,
                last_append_ms=last,
                left_out=self._left_out,
            )
        )
        self._begin()


def _payload_of(batch: memoryview, header: BatchHeader) -> bytes | None:
    """Return the uncompressed records of a control batch; None for the marker of an abort."""
    marker = read_marker(batch)
    if marker is not None and marker.is_abort:
        return None
    return b"".join(bytes(part) for part in open_batch(batch, header).pieces)


def _append_times(headers: HeaderTable, piece: Batches) -> tuple[Int64Array, npt.NDArray[np.bool_]]:
    """Return the append or seen time of each batch, and mark the batches with a seen time.

    A broker says those of records from the offset on that was asked for, which may be within the
    first batch; hence the last record of each is looked up.
    """
    append_ms = np.full(len(headers), NO_APPEND_TIME, np.int64)
    is_seen = np.zeros(len(headers), np.bool_)
    if not len(headers):
        return append_ms, is_seen
    last_offsets = headers.last_offsets
    if piece.append_times is not None:
        first = int(headers.columns["base_offset"][0])
        stretches = piece.append_times(first, int(last_offsets[-1]) + 1)
        starts = np.array([stretch.offset for stretch in stretches], np.int64)
        known = [NO_APPEND_TIME if stretch.ms is None else stretch.ms for stretch in stretches]
        place = np.searchsorted(starts, last_offsets, side="right")
        append_ms = np.array([NO_APPEND_TIME, *known], np.int64)[place]
        is_seen = np.array([False, *(stretch.is_seen for stretch in stretches)], np.bool_)[place]
    stamped = headers.numbers("attributes") & LOG_APPEND_TIME_BIT != 0
    stamps = headers.numbers("max_timestamp")
    is_stamp = (is_seen | (append_ms == NO_APPEND_TIME)) & stamped & (stamps != NO_TIMESTAMP)
    return np.where(is_stamp, stamps, append_ms), is_seen & ~is_stamp


def _may_be_cut(
    last_offsets: Int64Array, append_ms: Int64Array, last_append: int, began: int
) -> Iterable[int]:
    """Return the indexes of batches before which a range may have to end; usually none."""
    known = append_ms[append_ms != NO_APPEND_TIME]
    is_ordered = not len(known) or (known[0] >= last_append and (known[1:] >= known[:-1]).all())
    if is_ordered and (not len(last_offsets) or last_offsets.max() - began <= MOST_OFFSETS):
        return ()
    return range(len(last_offsets))


def _runs(group: _Chosen) -> Iterator[tuple[int, int]]:
    """Return the bounds of the batches that are next to each other in the buffer."""
    starts, ends = group.positions, group.positions + group.sizes
    breaks = np.flatnonzero(starts[1:] != ends[:-1])
    firsts, lasts = np.append(0, breaks + 1), np.append(breaks, len(starts) - 1)
    return zip(starts[firsts].tolist(), ends[lasts].tolist(), strict=True)
