"""Which offsets may hold records of a time, and how an offset by timestamp is found."""

from itertools import takewhile
from typing import Final

from horolog.broker.broker import Broker
from horolog.broker.control.rows import as_many_as_fit
from horolog.network.peer import Peer
from horolog.offsets import OffsetRange
from horolog.record.timestamps import TimeRange
from horolog.wire.questions import (
    AskLookup,
    AskTimeRanges,
    LookupReport,
    RangeClock,
    TimeRangePage,
)

MOST_RANGES: Final = 1_000
"""In one answer, if they fit."""


async def explain_lookup(broker: Broker, peer: Peer, topic: str, ask: AskLookup) -> LookupReport:
    """How an offset by timestamp is found.

    Raises:
        RequestRefused: there is no such partition.
        StorageFailed: the disk refused.
    """
    log = broker.partition(topic, ask.partition).log
    way = await broker.searchers.run(peer, lambda: log.way_to(ask.timestamp))
    return LookupReport(*way)


async def find_time_ranges(
    broker: Broker, peer: Peer, topic: str, ask: AskTimeRanges
) -> TimeRangePage:
    """The ranges of offsets that may hold a time.

    Raises:
        RequestRefused: there is no such partition.
        StorageFailed: the disk refused.
    """
    log = broker.partition(topic, ask.partition).log
    window = TimeRange(
        ask.first,
        ask.last,
        of_append=ask.clock is RangeClock.APPEND,
        with_untimed=ask.clock is RangeClock.RECORD_OR_NONE,
    )
    start = max(0, ask.start)
    found = await broker.searchers.run(peer, lambda: log.time_ranges(window, start, MOST_RANGES))
    within = takewhile(lambda each: each.start < ask.end, found.ranges)
    ranges, following = as_many_as_fit(
        (each.start, OffsetRange(each.start, min(each.end, ask.end), each.size)) for each in within
    )
    if following is None and len(found.ranges) >= MOST_RANGES and found.end < ask.end:
        following = found.end
    return TimeRangePage(ranges, following)
