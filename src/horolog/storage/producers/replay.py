"""Rebuilds the state of producers from the log: after a start, a truncation, or damage.

Their state is the newest usable snapshot and the batches after it; the aborted
transactions of a segment are those with abort markers.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final

from horolog.errors import CorruptBatch, CorruptFile
from horolog.record.batch import BatchHeader
from horolog.storage import names
from horolog.storage.files import Files
from horolog.storage.index.abort import AbortedTxn
from horolog.storage.producers.states import Producers, remove_snapshot
from horolog.storage.segments.reader import SegmentReader
from horolog.storage.segments.segment import Segment

_MOST_COMPARED: Final = 100  # open transactions of a snapshot

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
    """Rebuild the state of producers as of the end of the log, from a snapshot and later batches.

    Args:
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
    """Return the aborted transactions of one segment, from its markers; nothing is written."""
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
    """Yield the aborted transactions of each segment, from the markers of the whole log."""
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
        sorted(snapshot for snapshot in snapshots if snapshot <= end_offset),
        segments[0].base_offset,
    )
    for offset in reversed(usable):
        if _read(files, directory, segments, offset, producers, now_ms):
            return offset
    # Where the log has lost its first batches, a snapshot alone knows more than it.
    for offset in usable if first else ():
        if _read(files, directory, segments, offset, producers, now_ms, alone=True):
            return offset
    return first


def _contradiction(
    segments: Sequence[SegmentReader], producers: Producers, offset: int
) -> str | None:
    """Return how the log contradicts the producers of a snapshot; None if it does not.

    The last batch before the snapshot is compared, and those with which open transactions began.
    Batches that compaction removed, and damaged ones, contradict nothing.
    """
    opened = dict(producers.unended())
    with suppress(CorruptBatch):
        for producer_id, first in islice(opened.items(), _MOST_COMPARED):
            found = _batch_at(segments, first)
            writer = None if found is None else (found.producer_id, found.is_transactional)
            if writer not in (None, (producer_id, True)):
                return f"its producer {producer_id} has not written offset {first}"
        last = _batch_at(segments, offset - 1)
        if last is None or last.producer_id < 0:
            return None
        known = producers.last_offset_of(last.producer_id)
        # Without an open transaction a producer may be forgotten; markers have no sequence.
        is_right = last.base_sequence < 0 or known in (None, last.last_offset)
        if last.is_transactional:
            is_right &= (last.producer_id in opened) is not last.is_control
        if not is_right:
            return f"it lacks what producer {last.producer_id} wrote at offset {last.base_offset}"
    return None


def _batch_at(segments: Sequence[SegmentReader], offset: int) -> BatchHeader | None:
    """Return the header of the batch with an offset; None if no batch has it."""
    bases = [segment.base_offset for segment in segments]
    number = bisect_right(bases, offset) - 1
    if number < 0:
        return None
    segment = segments[number]
    position = segment.indexes.position_before(offset, segment.size)
    for _, header in segment.headers(position, segment.size):
        if header.next_offset > offset:
            return header if header.base_offset <= offset else None
    return None


def _read(
    files: Files,
    directory: str,
    segments: Sequence[SegmentReader],
    offset: int,
    producers: Producers,
    now_ms: int,
    *,
    alone: bool = False,
) -> bool:
    try:
        producers.read(files, directory, offset, now_ms, alone=alone)
        wrong = _contradiction(segments, producers, offset)
        if wrong is not None:
            producers.clear()
            name = names.segment_file(offset, names.SNAPSHOT)
            raise CorruptFile(f"{directory}/{name} is not of this log: {wrong}")
    except CorruptFile as error:
        _logger.warning("A producer snapshot is ignored: %s", error)
        return False
    return True


def opened_at(
    files: Files, directory: str, segments: Sequence[SegmentReader], offset: int
) -> tuple[int, Mapping[int, int]]:
    """Return an offset up to another, and the transactions that are open there.

    From the offset on, the batches show all that follows. The transactions are first offsets by
    producer id.

    Raises:
        StorageFailed: the disk refused.
    """
    producers = Producers()
    snapshots = _snapshots_in(files, directory)
    start = _start(files, directory, segments, producers, snapshots, offset, now_ms=0)
    return start, dict(producers.unended())


def read_producers(files: Files, directory: str, segments: Sequence[SegmentReader]) -> Producers:
    """Return the producers after the last of these batches, without writing anything.

    Raises:
        StorageFailed: the disk refused.
    """
    producers, end_offset = Producers(), segments[-1].end.next_offset
    snapshots = _snapshots_in(files, directory)
    start = _start(files, directory, segments, producers, snapshots, end_offset, now_ms=0)
    following = [segment.base_offset for segment in segments[1:]] + [end_offset]
    for segment, next_base in zip(segments, following, strict=True):
        if next_base > start:
            _replay_segment(segment, start, producers, now_ms=0)
    return producers


def _snapshots_in(files: Files, directory: str) -> list[int]:
    """Return the offsets of the producer snapshots in a directory."""
    found = (names.base_offset_of(name, names.SNAPSHOT) for name in files.names_in(directory))
    return [offset for offset in found if offset is not None]


def _replay_segment(
    segment: SegmentReader, start: int, producers: Producers, now_ms: int
) -> list[AbortedTxn]:
    """Note the batches of a segment up to any damage; return the aborted transactions."""
    aborted: list[AbortedTxn] = []
    try:
        replay_batches(segment, start, producers, now_ms, aborted)
    except CorruptBatch as error:
        _logger.warning("What producers wrote is known only up to here: %s", error)
    return aborted


def replay_batches(
    segment: SegmentReader,
    start: int,
    producers: Producers,
    now_ms: int,
    aborted: list[AbortedTxn],
) -> None:
    """Note a segment's batches from an offset on; the transactions aborted there are added.

    Raises:
        CorruptBatch: the log is damaged; what is before the damage was noted.
    """
    before = segment.indexes.position_before(start, segment.size)
    for position, header in segment.headers(before, segment.size):
        if header.base_offset >= start:
            read = partial(segment.read_batch, position, header)
            ended = producers.replay(header, read, now_ms)
            if ended is not None and ended.aborted is not None:
                aborted.append(ended.aborted)
