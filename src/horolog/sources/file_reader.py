"""Reading a stretch of a segment file as whole batches."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Final

from horolog.record.batch import BatchHeader
from horolog.record.identity import is_left_out
from horolog.record.timestamps import EVER_APPENDED, TimeRange, TimestampType
from horolog.sources.ahead import ahead
from horolog.sources.batches import Batches
from horolog.sources.file_systems import Root
from horolog.sources.plan import SegmentStretch
from horolog.sources.replaced import present_segments
from horolog.sources.row_filter import RowFilter
from horolog.storage.batches.reader import FEWEST_BYTES
from horolog.storage.companion.blocks import Span
from horolog.storage.lookup.by_append_time import appended_within, check_unproved
from horolog.storage.segments.reader import SegmentReader

_SMALL_BYTES: Final = 1 << 20
"""A segment that is read ahead as a whole, whatever is looked for."""


def batches_in_file(
    root: Root,
    stretch: SegmentStretch,
    row_filter: RowFilter,
    *,
    with_append_times: bool,
    with_markers: bool,
    runs_ahead: bool,
) -> Iterator[Batches]:
    """Yield the batches of a stretch that may hold records of a filter; they stay valid.

    `StretchReader.batches` has the arguments. Of an object store the next ones are read while some
    are worked on, if that `runs_ahead`.

    Raises:
        FileMissing: offsets of the stretch are gone; all others are given before that.
        CorruptBatch: a batch is damaged; those before it are given.
    """
    for piece, reader in present_segments(root, stretch):
        makes_map = piece.start == piece.maps_from
        windows, appended = row_filter.windows, row_filter.append_times
        if not appended.is_everything:
            within = appended_within(
                reader, appended.first_ms, appended.last_ms, piece.start, piece.end
            )
            if within is None:
                continue
            size = reader.size_up_to(within.end)  # so that nothing behind is read ahead
            segment = piece.segment._replace(size=size)
            piece = replace(piece, segment=segment, start=within.start, end=within.end)
            if within.is_exact:
                windows = tuple(window for window in windows if not window.of_append)
                appended = EVER_APPENDED
        # Without a limit in time, all that is within the offsets is worth reading.
        takes = None
        if windows:
            takes = partial(
                _may_hold,
                start=piece.start,
                from_ms=row_filter.from_ms,
                to_ms=row_filter.to_ms,
                appended=appended,
                has_append_times=reader.has_append_times,
                with_markers=with_markers,
            )
        if with_markers:
            windows = ()  # they may be anywhere
        buffers = chain.from_iterable(
            reader.log.batches(
                span.end, FEWEST_BYTES, least_offset=span.base_offset, limit=span.next_offset
            ).selected(span.position, piece.end, takes)
            for span in _stretches(reader, piece, windows, row_filter.from_ms, makes_map=makes_map)
        )
        times = None
        if with_append_times and reader.has_append_times:
            times = partial(reader.append_times.stretches, seen=True)
            check_unproved(reader, piece.end)
        goes_ahead = runs_ahead and not root.is_local
        with ahead(buffers) if goes_ahead else nullcontext(buffers) as coming:
            for buffer in coming:
                yield Batches(buffer, piece.start, piece.end, times, piece.aborted or None)


def _stretches(
    reader: SegmentReader,
    stretch: SegmentStretch,
    windows: Sequence[TimeRange],
    from_ms: int | None,
    *,
    makes_map: bool,
) -> Iterator[Span]:
    """Yield the byte spans to read, as far as indexes and the block map narrow them.

    All of a span's batches have its offsets: what is skipped cannot show that one is changed.
    """
    if not windows:
        start, size = reader.position_for(None, stretch.start), stretch.segment.size
        # So that nothing behind the stretch is read ahead.
        after = reader.blocks.look(size).end_before(stretch.end) if size > _SMALL_BYTES else None
        end, next_offset = (size, None) if after is None else after
        yield Span(start, max(start, min(end, size)), reader.base_offset, next_offset)
        return
    size = reader.size
    look = reader.blocks.look(size)
    if makes_map and look.is_worth_completing:
        reader.complete_blocks()
        look = reader.blocks.look(size)
    spans = [
        span
        for span in look.spans(windows, None)
        if span.base_offset < stretch.end and (span.next_offset or stretch.end) > stretch.start
    ]
    start = 0
    if spans and (not look.covered or spans[0].base_offset < stretch.start):
        start = reader.position_for(None if look.covered else from_ms, stretch.start)
    for span in spans:
        end = min(span.end, stretch.segment.size)
        if end > max(span.position, start):
            yield span._replace(position=max(span.position, start), end=end)


def _may_hold(
    header: BatchHeader,
    *,
    start: int,
    from_ms: int | None,
    to_ms: int | None,
    appended: TimeRange,
    has_append_times: bool,
    with_markers: bool,
) -> bool:
    """Return True if a batch can hold a record in these times, or is a marker to be read."""
    if header.next_offset <= start:
        return False
    if with_markers and is_left_out(header):
        return True
    if from_ms is not None and header.max_timestamp < from_ms:
        return False
    is_stamped = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    if to_ms is not None and is_stamped and header.max_timestamp >= to_ms:
        return False
    if appended.is_everything:
        return True
    return appended.holds(header.max_timestamp) if is_stamped else has_append_times
