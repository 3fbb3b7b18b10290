"""Rebuilds the state of producers from the log: after a start, a truncation, or damage.

Their state is the newest usable snapshot and the batches after it; the aborted
transactions of a segment are those with abort markers.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from horolog.errors import CorruptBatch, CorruptFile
from horolog.storage import names
from horolog.storage.files import Files
from horolog.storage.index.abort import AbortedTxn
from horolog.storage.producers.states import Producers, remove_snapshot
from horolog.storage.segments.reader import SegmentReader
from horolog.storage.segments.segment import Segment

_logger = logging.getLogger(__name__)


def replay(
    files: Files,
    directory: str,
    segments: Sequence[Segment],
    producers: Producers,
    snapshots: Iterable[int],
    now_ms: int,
    high_watermark: int | None = None,
) -> Mapping[int, Sequence[AbortedTxn]]:
    """Make `producers` what they were when the last of these batches was appended.

    Args:
        files: the way to the disk.
        directory: of the partition.
        segments: of the log.
        producers: what they are now does not count.
        snapshots: the offsets of those that are there. Those beyond the log end are of
            batches that are gone, and go too.
        now_ms: when all of them count as heard of.
        high_watermark: from which on transactions that ended are known, too, if it is given.

    Returns:
        By base offset, the aborted transactions of each segment that was replayed as a whole.
    """
    end_offset = segments[-1].end.next_offset
    for offset in snapshots:
        if offset > end_offset:
            remove_snapshot(files, directory, offset)
    sure = end_offset if high_watermark is None else min(high_watermark, end_offset)
    start = _start(files, directory, segments, producers, snapshots, sure, now_ms)
    following = [segment.base_offset for segment in segments[1:]] + [end_offset]
    aborted = {}
    for segment, next_base in zip(segments, following, strict=True):
        if next_base > start:
            found = _replay_segment(segment, start, producers, now_ms)
            if segment.base_offset >= start:
                aborted[segment.base_offset] = found
    return aborted


def rebuild_aborted(
    files: Files,
    directory: str,
    segments: Sequence[Segment],
    index: int,
    snapshots: Iterable[int],
) -> None:
    """Rebuild the index of aborted transactions of one segment from its markers."""
    segments[index].write_aborted(find_aborted(files, directory, segments, index, snapshots))


def find_aborted(
    files: Files,
    directory: str,
    segments: Sequence[SegmentReader],
    index: int,
    snapshots: Iterable[int],
) -> list[AbortedTxn]:
    """The aborted transactions of one segment, from its markers; nothing is written."""
    producers = Producers()
    segment, base = segments[index], segments[index].base_offset
    start = _start(files, directory, segments, producers, snapshots, base, now_ms=0)
    for before in segments[:index]:
        if before.base_offset >= start:
            _replay_segment(before, start, producers, now_ms=0)
    return _replay_segment(segment, base, producers, now_ms=0)


def aborted_by_segment(
    files: Files, directory: str, segments: Sequence[Segment], snapshots: Iterable[int]
) -> Iterator[tuple[Segment, list[AbortedTxn]]]:
    """The aborted transactions of each segment, from the markers of the whole log."""
    producers, first = Producers(), segments[0].base_offset
    _start(files, directory, segments, producers, snapshots, first, now_ms=0)
    for segment in segments:
        yield segment, _replay_segment(segment, segment.base_offset, producers, now_ms=0)


def _start(
    files: Files,
    directory: str,
    segments: Sequence[SegmentReader],
    producers: Producers,
    snapshots: Iterable[int],
    end_offset: int,
    now_ms: int,
) -> int:
    """Read the newest snapshot that helps, and say from where on batches must be replayed."""
    producers.clear()
    usable, first = (
        sorted(each for each in snapshots if each <= end_offset),
        segments[0].base_offset,
    )
    for offset in reversed(usable):
        if _read(files, directory, offset, producers, now_ms):
            return offset
    # Where the log has lost its first batches, a snapshot alone knows more than it.
    for offset in usable if first else ():
        if _read(files, directory, offset, producers, now_ms, alone=True):
            return offset
    return first


def _read(
    files: Files,
    directory: str,
    offset: int,
    producers: Producers,
    now_ms: int,
    *,
    alone: bool = False,
) -> bool:
    try:
        producers.read(files, directory, offset, now_ms, alone=alone)
    except CorruptFile as error:
        _logger.warning("A producer snapshot is ignored: %s", error)
        return False
    return True


def read_producers(files: Files, directory: str, segments: Sequence[SegmentReader]) -> Producers:
    """The producers as the last of these batches left them; nothing is written.

    Raises:
        StorageFailed: the disk refused.
    """
    producers, end_offset = Producers(), segments[-1].end.next_offset
    found = (names.base_offset_of(each, names.SNAPSHOT) for each in files.names_in(directory))
    snapshots = [offset for offset in found if offset is not None]
    start = _start(files, directory, segments, producers, snapshots, end_offset, now_ms=0)
    following = [segment.base_offset for segment in segments[1:]] + [end_offset]
    for segment, next_base in zip(segments, following, strict=True):
        if next_base > start:
            _replay_segment(segment, start, producers, now_ms=0)
    return producers


def _replay_segment(
    segment: SegmentReader, start: int, producers: Producers, now_ms: int
) -> list[AbortedTxn]:
    """Take note of a segment's batches from an offset on; the transactions aborted there."""
    before = segment.indexes.position_before(start, segment.size)
    ended = []
    try:
        for position, header in segment.headers(before, segment.size):
            if header.base_offset >= start:
                read = partial(segment.read_batch, position, header)
                ended.append(producers.replay(header, read, now_ms))
    except CorruptBatch as error:
        _logger.warning("What producers wrote is known only up to here: %s", error)
    return [entry for each in ended if each is not None and (entry := each.aborted) is not None]
