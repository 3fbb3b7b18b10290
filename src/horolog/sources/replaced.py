"""Segments that hold a planned stretch of offsets when a task reads it.

A plan names the segment that was listed. Until a task runs, compaction may have put others in its
place, under the same name or another one: then the stretch is found by its offsets in what is there
now. Retention, DeleteRecords and truncation alone take offsets away.
"""

from collections.abc import Iterator
from dataclasses import replace

from horolog.sources.file_systems import Root
from horolog.sources.plan import SegmentStretch
from horolog.sources.replicas import find_replicas
from horolog.sources.segment_parts import has_holes, in_full, merged_parts
from horolog.storage.directory.checkpoints import kafka_uuid, topic_id_in
from horolog.storage.file_errors import FileMissing
from horolog.storage.removal.leftovers import segments_in
from horolog.storage.segments.reader import SegmentReader

_LOOKS = 20
"""Attempts to open the segments of a directory that keeps changing."""


def present_segments(
    root: Root, stretch: SegmentStretch
) -> Iterator[tuple[SegmentStretch, SegmentReader]]:
    """Yield the segments that now hold a stretch, in order, each open.

    Raises:
        FileMissing: offsets of it are gone; the others are given before that.
    """
    try:
        planned = _opened(root, stretch)
    except FileMissing:
        yield from _found_by_offset(root, stretch)
    else:
        yield stretch, planned


def _found_by_offset(
    root: Root, stretch: SegmentStretch
) -> Iterator[tuple[SegmentStretch, SegmentReader]]:
    start, looks, lost = stretch.start, 0, False
    while start < stretch.end:
        looks += 1
        try:
            pieces, ends_early = _pieces(root, replace(stretch, start=start))
            lost |= ends_early
            for piece in pieces:
                reader = _opened(root, piece)
                looks, start = 0, piece.end
                yield piece, reader
        except FileMissing:
            if looks == _LOOKS:
                raise
            continue
        break
    if lost:
        raise FileMissing(f"{stretch.path} is gone")


def _pieces(root: Root, stretch: SegmentStretch) -> tuple[list[SegmentStretch], bool]:
    """Return a stretch's pieces in the present segments, and True if some of its offsets are gone.

    Raises:
        FileMissing: the directory has changed while it was read.
    """
    directory = stretch.path.rpartition("/")[0]
    replicas = find_replicas(root.at(directory), may_miss=True, may_have_any_name=True)
    found = [(root, replica) for replica in replicas if replica.directory == directory]
    parts = [*merged_parts(found)] if found else []
    position, is_gone, pieces = stretch.start, False, []
    for part in parts:
        first, last = max(part.start, stretch.start), min(part.end, stretch.end)
        if first >= last:
            continue
        segment, end = in_full(part) if part.is_followed else (part.segment, None)
        has_gap = end is not None and max(end, first) < last
        is_gone |= first > position or (has_gap and not any(map(has_holes, parts)))
        position = last
        pieces.append(
            replace(
                stretch,
                segment=segment,
                start=first,
                end=last,
                maps_from=None,
                limit=part.segment_end,
            )
        )
    return pieces, is_gone or position < stretch.end


def _opened(root: Root, stretch: SegmentStretch) -> SegmentReader:
    """Return the open segment of a stretch, in a task.

    Raises:
        FileMissing: the file is gone, or another one has its name.
    """
    directory = stretch.path.rpartition("/")[0]
    segment = stretch.segment
    if segment.is_being_replaced:
        segments_in(root.files, directory, root.files.names_in(directory))
    reader = segment.open(root.files, root.block_cache)
    reader.log.limit = stretch.limit
    # First: a file that is open stays that of its topic.
    reader.log.held = file = reader.log.open()
    if not segment.inode and root.files.length(file) != segment.listed_size:
        raise FileMissing(f"{stretch.path} is another file than when it was listed")
    present = topic_id_in(root.files, directory, [])
    if present and stretch.topic_id and kafka_uuid(present) != stretch.topic_id:
        raise FileMissing(f"{stretch.path} is gone: the topic was deleted and created again")
    return reader
