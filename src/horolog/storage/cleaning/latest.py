"""Replay of a log's latest value of each key, by which coordinators load their state.

First all keys are read, with the latest offset of each, then the log once more. A batch is skipped
if each of its records has a value and a later record of the same key. So only other batches need be
decoded: the check takes one or two microseconds a record, decoding more than ten.

Only a record of a plain batch supersedes, and is superseded. A record of a transaction counts from
its marker on, or not at all. Tombstones are never skipped, since they also say something of records
in transactions. A batch with records that a decoder may refuse (with headers, for example) is
given, and supersedes nothing.

Invariant: later batches supersede each skipped record. A log with damage, or with batches of v0 or
v1, is given as a whole (`lookup/replay.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, RequestRefused, StorageFailed
from horolog.record import cleaning
from horolog.record.batch import MAGIC
from horolog.record.cleaning import Keys
from horolog.record.kernels.cleaning_kernels import HAS_KEY, IS_BARE, IS_TOMBSTONE
from horolog.storage import names
from horolog.storage.batches.reader import EVERYTHING
from horolog.storage.cleaning.key_map import KeyMap
from horolog.storage.cleaning.parts import Part, SmallParts, parts_in
from horolog.storage.lookup.replay import replay_segments
from horolog.storage.segments.reader import SegmentReader

MOST_MAP_BYTES: Final = 64 << 20
"""Size of the table: 2.5 million keys. Records behind the first without room are all given."""
_LEAST_MAP_BYTES: Final = 1 << 20  # else the log's size: a slot for each 24 bytes
_FEW_RECORDS: Final = 16
"""Smaller batches that the kernel does not read (compressed ones) are decoded as quickly."""
_MOST_OPENED_BYTES: Final = 4 << 20  # of a batch: larger ones are given, and supersede nothing


def replay_latest(
    segments: Sequence[SegmentReader],
    first_offset: int,
    take: Callable[[Buffer], None],
    *,
    most_map_bytes: int = MOST_MAP_BYTES,
) -> Iterator[str]:
    """Call `take` with each batch that is not superseded, in log order.

    Load the kernels before; without them it is too slow.

    Args:
        segments: of one log, in their order.
        first_offset: batches that end before it are left out.
        take: is given each batch, control batches too, whose checksum is right; it is valid until
            the next one.
        most_map_bytes: of the map of keys.

    Yields:
        A sentence about each stretch that is skipped, as `replay_segments`.

    Raises:
        FileMissing: compaction or retention has removed a segment meanwhile.
        StorageFailed: the disk refused, or a segment has changed meanwhile.
    """
    sized = [(segment, segment.end.size) for segment in segments]
    size = sum(size for _, size in sized)
    key_map = KeyMap(min(most_map_bytes, max(_LEAST_MAP_BYTES, size)))
    try:
        _fill(key_map, sized)
    except CorruptBatch:
        yield from replay_segments(segments, first_offset, take)
        return
    for segment, size in sized:
        try:
            for part in parts_in(segment.log.batches(size, EVERYTHING), key_map.secret):
                for batch in _that_stay(part, key_map, first_offset):
                    take(batch)
        except CorruptBatch as error:
            raise StorageFailed(f"{segment.log.path} has changed: {error}") from error


def _fill(key_map: KeyMap, sized: Sequence[tuple[SegmentReader, int]]) -> None:
    """Store the keys of plain batches, as far as the table has room.

    Raises:
        CorruptBatch: there is damage, or a batch of v0 or v1; or offsets do not grow.
    """
    key_map.end_offset, next_offset, is_full = names.MAX_OFFSET, 0, False
    for segment, size in sized:
        if segment.base_offset < next_offset:
            raise CorruptBatch("a segment begins before the end of the one before")
        for part in parts_in(segment.log.batches(size, EVERYTHING), key_map.secret):
            if isinstance(part, Part) and part.header.magic != MAGIC:
                raise CorruptBatch(f"a batch of format v{part.header.magic}")
            next_offset = part.next_offset
            keys = None if is_full else _superseding(part, key_map)
            if keys is None:
                continue
            is_full = key_map.put(keys) < len(keys.offsets)


def _superseding(part: Part | SmallParts, key_map: KeyMap) -> Keys | None:
    """Return the keys whose earlier records do not count; None if there are none."""
    keys = _keys_of(part, key_map)
    if keys is None or isinstance(part, Part):
        return keys
    are_bare = _are_bare(part)
    if are_bare.all():
        return keys
    are_bare_records = np.repeat(are_bare, np.diff(part.small.firsts))
    return keys._replace(
        flags=np.where(are_bare_records, keys.flags, keys.flags & ~np.uint8(HAS_KEY))
    )


def _that_stay(part: Part | SmallParts, key_map: KeyMap, first_offset: int) -> Iterator[memoryview]:
    """Yield the batches of a part that are not superseded."""
    keys = _keys_of(part, key_map)
    if keys is None:
        assert isinstance(part, Part)
        if part.next_offset > first_offset:
            yield part.data
        return
    stays = key_map.judge(keys, keeps_tombstones=True, keeps_keyless=True).keep > 0
    stays |= keys.flags & IS_TOMBSTONE > 0
    if isinstance(part, Part):
        if part.next_offset > first_offset and stays.any():
            yield part.data
        return
    small = part.small
    staying = np.logical_or.reduceat(stays, small.firsts[:-1]) | ~_are_bare(part)
    staying &= small.next_offsets > first_offset
    starts = small.starts
    for number in np.flatnonzero(staying).tolist():
        yield part.view[starts[number] : starts[number + 1]]


def _keys_of(part: Part | SmallParts, key_map: KeyMap) -> Keys | None:
    """Return the keys of a plain batch; None for a batch that supersedes nothing."""
    if isinstance(part, SmallParts):
        return part.small.keys
    header = part.header
    if header.is_control or header.is_transactional or header.records_count < _FEW_RECORDS:
        return None
    try:
        opened = cleaning.open_records(part.data, header, max_bytes=_MOST_OPENED_BYTES)
        keys = cleaning.join_keys(cleaning.read_keys(opened, key_map.secret))
    except (CorruptBatch, RequestRefused):
        return None
    return keys if (keys.flags & IS_BARE).all() else None


def _are_bare(part: SmallParts) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Return a mask of the batches all of whose records are bare."""
    flags = part.small.keys.flags & IS_BARE
    return np.logical_and.reduceat(flags > 0, part.small.firsts[:-1])
