"""Answers DescribeConfigs of a topic with the offsets that may hold records of a time.

    horolog.time.ranges/PARTITION/CLOCK/FIRST/LAST/OFFSET   the ranges of offsets that may
    horolog.lookup.way/PARTITION/TIMESTAMP                  how an offset by timestamp is found

asked for by name are described with a JSON object; docs/wire.md says what is in it. The broker
advertises both as features. No setting is stored under these names.
"""

import re
from typing import Any, Final

from horolog.broker.answers import as_many_as_fit
from horolog.broker.broker import Broker
from horolog.errors import ErrorCode, RequestRefused
from horolog.network.peer import Peer
from horolog.storage.index.blocks import Window
from horolog.wire.features import LOOKUP_WAY, TIME_RANGES, RangeClock

MOST_RANGES: Final = 1_000
"""In one answer, if they fit."""

_NAME: Final = re.compile(
    rf"{re.escape(TIME_RANGES)}/([0-9]{{1,10}})/([a-z-]+)/(-?[0-9]{{1,19}})/(-?[0-9]{{1,19}})"
    r"/([0-9]{1,19})",
    re.ASCII,
)
_WAY_NAME: Final = re.compile(
    rf"{re.escape(LOOKUP_WAY)}/([0-9]{{1,10}})/(-?[0-9]{{1,19}})", re.ASCII
)
_INT64 = range(-(1 << 63), 1 << 63)


async def explain_lookup(broker: Broker, peer: Peer, topic: str, name: str) -> dict[str, Any]:
    """How an offset by timestamp is found.

    Raises:
        RequestRefused: the name is not of that form, or there is no such partition.
        StorageFailed: the disk refused.
    """
    match = _WAY_NAME.fullmatch(name)
    if match is None or int(match[2]) not in _INT64:
        raise _refusal(f"{name:.200} is not {LOOKUP_WAY}/PARTITION/TIMESTAMP")
    log, timestamp = broker.partition(topic, int(match[1])).log, int(match[2])
    way = await broker.searchers.run(peer, lambda: log.way_to(timestamp))
    return way._asdict()


async def find_time_ranges(broker: Broker, peer: Peer, topic: str, name: str) -> dict[str, Any]:
    """The ranges of offsets that may hold a time.

    Raises:
        RequestRefused: as `explain_lookup`.
        StorageFailed: the disk refused.
    """
    match = _NAME.fullmatch(name)
    clocks = [clock for clock in RangeClock if match is not None and clock == match[2]]
    if match is None or not clocks:
        raise _refusal(f"{name:.200} is not {TIME_RANGES}/PARTITION/CLOCK/FIRST/LAST/OFFSET")
    partition, first_ms, last_ms, offset = (int(match[group]) for group in (1, 3, 4, 5))
    if first_ms not in _INT64 or last_ms not in _INT64 or offset not in _INT64:
        raise _refusal(f"{name:.200} has a number beyond 64 bits")
    log = broker.partition(topic, partition).log
    window = Window(
        first_ms,
        last_ms,
        of_append=clocks[0] is RangeClock.APPEND,
        with_untimed=clocks[0] is RangeClock.RECORD_OR_NONE,
    )
    found = await broker.searchers.run(peer, lambda: log.time_ranges(window, offset, MOST_RANGES))
    ranges, following = as_many_as_fit((each.start, each) for each in found.ranges)
    return {"end": found.end if following is None else following, "ranges": ranges}


def _refusal(text: str) -> RequestRefused:
    return RequestRefused(ErrorCode.invalid_request, text)
