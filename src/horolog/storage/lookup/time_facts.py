"""What a segment's block map says of all its records' times, without reading one of them.

    facts = time_facts(segment)   # None: the map does not prove it; read the records, or
    segment.complete_blocks()     # cover the log by its map first

A map is proved entry by entry (index/block_map.py). Facts are given only where proved entries cover
the whole log and the records of every batch could be read; they are then those that a scan of the
records would give. Latencies are counted of records whose append time is known.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from horolog.record.scan import LATENCY_BOUNDS, LATENCY_COUNT
from horolog.storage.index.blocks import (
    HAS_APPEND_TIMES,
    HAS_CREATE_TIMES,
    LACKS_APPEND_TIMES,
    OF_APPEND_TIME,
    UNREADABLE,
    Block,
)
from horolog.storage.segments.reader import SegmentReader

_SATURATED = (1 << 32) - 1  # a count that may be larger


class TimeFacts(NamedTuple):
    """Of the records of a segment, or of several in the order of their offsets.

    Times are in milliseconds; create times those that the bytes hold, under LogAppendTime, too.
    """

    records: int
    """Without control records."""
    untimed: int
    """Without a create time."""
    out_of_order: int
    """Earlier than the record before, by create time; records without one left out."""
    create_min_ms: int | None
    create_max_ms: int | None
    first_create_ms: int | None
    """Create time of the first record that has one."""
    last_create_ms: int | None
    append_min_ms: int | None
    """The first append time that is known; None if none is."""
    append_max_ms: int | None
    lacks_append_times: bool
    """The append time of some records is unknown: those are in no class of `latencies`."""
    is_stamped: bool
    """A batch is stamped with LogAppendTime."""
    latencies: tuple[int, ...]
    """Records in each class of latency from create to append; see `LATENCY_BOUNDS`."""

    @property
    def ahead(self) -> int:
        """Records that were stamped later than the clock when they were appended."""
        return self.latencies[0]

    def latency_below_ms(self, share: float) -> int | None:
        """A bound that at least this share of the known latencies is below, 0 if it was ahead.

        None if no latency is known, or the share reaches into the last class, which has no bound.
        """
        wanted, so_far = share * sum(self.latencies), 0
        for bound, count in zip(LATENCY_BOUNDS, self.latencies, strict=False):
            so_far += count
            if wanted and so_far >= wanted:
                return bound
        return None


NO_RECORDS = TimeFacts(
    0, 0, 0, None, None, None, None, None, None, False, False, (0,) * LATENCY_COUNT
)


def time_facts(segment: SegmentReader) -> TimeFacts | None:
    """The facts of a segment, from its block map alone; None if that does not prove them.

    Reads the map, and the header of one batch for the proof.

    Raises:
        StorageFailed: the disk refused.
    """
    if not segment.size:
        return NO_RECORDS
    blocks = segment.blocks.whole(segment.size)
    if not blocks or any(each.flags & UNREADABLE or _is_saturated(each) for each in blocks):
        return None
    return joined(_facts_of(block) for block in blocks)


def joined(facts: Iterable[TimeFacts]) -> TimeFacts:
    """The facts of what follows one another, in the order of offsets."""
    every = list(facts)
    timed = [
        (each.first_create_ms, each.last_create_ms)
        for each in every
        if each.first_create_ms is not None and each.last_create_ms is not None
    ]
    turns = sum(first < last for (_, last), (first, _) in pairwise(timed))
    return TimeFacts(
        sum(each.records for each in every),
        sum(each.untimed for each in every),
        sum(each.out_of_order for each in every) + turns,
        min((each.create_min_ms for each in every if each.create_min_ms is not None), default=None),
        max((each.create_max_ms for each in every if each.create_max_ms is not None), default=None),
        timed[0][0] if timed else None,
        timed[-1][1] if timed else None,
        min((each.append_min_ms for each in every if each.append_min_ms is not None), default=None),
        max((each.append_max_ms for each in every if each.append_max_ms is not None), default=None),
        any(each.lacks_append_times for each in every),
        any(each.is_stamped for each in every),
        tuple(map(sum, zip(*(each.latencies for each in every), strict=True)))
        or NO_RECORDS.latencies,
    )


def _facts_of(block: Block) -> TimeFacts:
    has_create = bool(block.flags & HAS_CREATE_TIMES)
    has_append = bool(block.flags & HAS_APPEND_TIMES)
    return TimeFacts(
        block.records,
        block.untimed,
        block.setbacks,
        block.create_min_ms if has_create else None,
        block.create_max_ms if has_create else None,
        block.first_create_ms if has_create else None,
        block.last_create_ms if has_create else None,
        block.append_min_ms if has_append else None,
        block.append_max_ms if has_append else None,
        bool(block.flags & LACKS_APPEND_TIMES),
        bool(block.flags & OF_APPEND_TIME),
        tuple(block.latencies),
    )


def _is_saturated(block: Block) -> bool:
    counts = (block.records, block.untimed, block.setbacks, *block.latencies)
    return _SATURATED in counts
