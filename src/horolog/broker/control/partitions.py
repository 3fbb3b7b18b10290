"""Questions about a partition: times, compaction, retention, and lookups of offsets."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, TypeVar

from horolog.broker.authorisation import TRANSACTIONAL_ID
from horolog.broker.broker import BrokerParts
from horolog.broker.control.rows import answers, as_many_as_fit
from horolog.broker.coordinators.open_transactions import FirstOpen
from horolog.broker.partition import Partition
from horolog.config import TopicConfig
from horolog.errors import ErrorCode, RequestRefused
from horolog.network.peer import Peer
from horolog.offsets import HeldUp, OffsetRange, TimeBlock
from horolog.record.time_stats import TimeStats
from horolog.record.timestamps import TimeRange
from horolog.storage.logs.readable import ReadableLog
from horolog.storage.logs.view import LogView
from horolog.storage.lookup.unread import Unread
from horolog.storage.removal.retention_report import settings_of
from horolog.wire.acl import AclOperation
from horolog.wire.questions import (
    CLEANING,
    LOOKUP_WAY,
    RETENTION,
    TIME_BLOCKS,
    TIME_RANGES,
    TIMES,
    AskLookup,
    AskPartition,
    AskRetention,
    AskTimeBlocks,
    AskTimeRanges,
    AskTimes,
    CleaningSummary,
    LookupReport,
    PartitionCleaning,
    PartitionTimes,
    RangeClock,
    RetentionReport,
    TimeBlockPage,
    TimeRangePage,
    Withdrawn,
)


@answers(TIMES)
async def describe_times(
    broker: BrokerParts, peer: Peer, topic: str, ask: AskTimes
) -> PartitionTimes:
    """Say up to which time a partition is complete, and sum up the times of its records.

    Raises:
        RequestRefused: there is no such partition.
        StorageFailed: the disk refused.
    """
    partition = broker.led(topic, ask.partition)
    complete = await _complete(broker, peer, topic, partition)
    if not ask.sums:
        return PartitionTimes(*_NO_SUMS, *complete)
    log = partition.log
    appended = log.active.counts
    times, unknown, first, last = await broker.searchers.run(peer, lambda: _known(log))
    return PartitionTimes(
        times.records,
        times.create_min_ms,
        times.create_max_ms,
        times.append_min_ms,
        times.append_max_ms,
        times.out_of_order,
        times.ahead,
        times.untimed,
        times.latencies,
        appended.latencies,
        unknown,
        first,
        last,
        *complete,
    )


async def _complete(
    broker: BrokerParts, peer: Peer, topic: str, partition: Partition
) -> tuple[int | None, int | None, Withdrawn | None]:
    """Return the members of `PartitionTimes` about complete times.

    They are taken before the open transactions are looked at: what is appended to these meanwhile
    is not earlier.
    """
    until_ms, withdrawn = broker.partitions.complete.until(broker.topics.named(topic), partition)
    log = partition.log
    if until_ms is None or log.last_stable_offset >= log.log_end_offset:
        return until_ms, until_ms, withdrawn
    earliest = await broker.searchers.run(peer, lambda: _earliest_unstable(partition))
    if not earliest.is_known:
        return until_ms, None, Withdrawn.OPEN_TRANSACTION
    times_ms = (until_ms, earliest.oldest_create_ms)
    return until_ms, min(ms for ms in times_ms if ms is not None), None


def _earliest_unstable(partition: Partition) -> Unread:
    """Find the earliest timestamp that readers of committed records do not see yet.

    What was found is kept until the last stable offset moves: a transaction may be long.
    """
    view = partition.log.look()
    start, end = view.last_stable_offset, view.high_watermark
    known_start, known_end, known = partition.unstable
    if known_start != start or not known.is_known:
        known_end, known = start, Unread()
    if known_end < end:
        known = known.plus(view.unread(known_end, end, create_times=False))
        partition.unstable = start, end, known
    return known


def _known(log: ReadableLog) -> tuple[TimeStats, int, int | None, int | None]:
    view = log.look()
    return *view.time_stats(), *_seen_ends(view)


def _seen_ends(view: LogView) -> tuple[int | None, int | None]:
    """Return when a follower saw the first and the last record of unknown append times."""
    start, end = view.log_start_offset, view.high_watermark
    found = [
        view.append_times(offset, offset + 1, seen=True)[:1]
        for offset in (start, end - 1)
        if start < end
    ]
    first, last = (times[0].seen_ms if times else None for times in found or ((), ()))
    return first, last


_NO_SUMS: Final = (0, None, None, None, None, 0, 0, 0, (), (), 0, None, None)

MOST_RANGES: Final = 1_000
"""Limit of ranges in one answer."""


@answers(LOOKUP_WAY)
async def explain_lookup(
    broker: BrokerParts, peer: Peer, topic: str, ask: AskLookup
) -> LookupReport:
    """Describe the steps that find an offset by timestamp.

    Raises:
        RequestRefused: there is no such partition.
        StorageFailed: the disk refused.
    """
    log = broker.led(topic, ask.partition).log
    way = await broker.searchers.run(peer, lambda: log.way_to(ask.timestamp))
    return LookupReport(*way)


@answers(TIME_RANGES)
async def find_time_ranges(
    broker: BrokerParts, peer: Peer, topic: str, ask: AskTimeRanges
) -> TimeRangePage:
    """Return the ranges of offsets that may contain a time.

    Raises:
        RequestRefused: there is no such partition.
        StorageFailed: the disk refused.
    """
    log = broker.led(topic, ask.partition).log
    window = TimeRange(
        ask.first,
        ask.last,
        of_append=ask.clock is RangeClock.APPEND,
        with_untimed=ask.clock is RangeClock.RECORD_OR_NONE,
    )
    start = max(0, ask.start)
    found = await broker.searchers.run(peer, lambda: log.time_ranges(window, start, MOST_RANGES))
    return TimeRangePage(*_page_before(ask.end, found.ranges, found.end))


@answers(TIME_BLOCKS)
async def list_time_blocks(
    broker: BrokerParts, peer: Peer, topic: str, ask: AskTimeBlocks
) -> TimeBlockPage:
    """The blocks between two offsets, each with a time that no record of it is before.

    Raises:
        RequestRefused: there is no such partition.
        StorageFailed: the disk refused.
    """
    log = broker.led(topic, ask.partition).log
    of_append, start = ask.clock is RangeClock.APPEND, max(0, ask.start)
    found = await broker.searchers.run(
        peer, lambda: log.time_blocks(start, MOST_RANGES, of_append=of_append)
    )
    return TimeBlockPage(*_page_before(ask.end, found.blocks, found.end))


_Part = TypeVar("_Part", OffsetRange, TimeBlock)


def _page_before(
    limit: int, parts: Sequence[_Part], end: int
) -> tuple[tuple[_Part, ...], int | None]:
    """Return the parts before a limit, as many as fit, and where the next page begins.

    Args:
        limit: offset at which the last part is cut off.
        end: offset up to which a log gave the parts.
    """
    within = takewhile(lambda part: part.start < limit, parts)
    page, following = as_many_as_fit(
        (part.start, part._replace(end=min(part.end, limit))) for part in within
    )
    if following is None and len(parts) >= MOST_RANGES and end < limit:
        following = end
    return page, following


_LONGEST: Final = 500  # characters of an error


@answers(CLEANING)
async def describe_cleaning(
    broker: BrokerParts, peer: Peer, topic: str, ask: AskPartition
) -> PartitionCleaning:
    """Describe the progress of compaction, and the last run since the start of the broker.

    Raises:
        RequestRefused: there is no such partition.
        StorageFailed: the disk refused.
        CorruptBatch: the log is damaged where its times have to be read from it.
    """
    partition, cleaner = broker.led(topic, ask.partition), broker.cleaner
    now_ms = broker.clock.now_ms()
    state = await broker.searchers.run(peer, lambda: partition.log.cleanable(now_ms))
    why = next((why for left_out, why in cleaner.uncleanable() if left_out is partition), None)
    run, last = cleaner.runs.get(partition), None
    if run is not None:
        last = CleaningSummary(*(getattr(run, name) for name in CleaningSummary._fields))
    return PartitionCleaning(
        state is not None,
        None if state is None else state.first_dirty,
        None if state is None else state.end,
        0 if state is None else state.clean_bytes,
        0 if state is None else state.dirty_bytes,
        0 if state is None else state.overdue_ms,
        None if why is None else why[:_LONGEST],
        last,
    )


@answers(RETENTION)
async def explain_retention(
    broker: BrokerParts, peer: Peer, topic: str, ask: AskRetention
) -> RetentionReport:
    """Report the retention of some segments; nothing is stored or deleted.

    Raises:
        RequestRefused: a setting is unknown or invalid, or there is no such partition.
        StorageFailed: the disk refused.
        CorruptBatch: the log is damaged where it has to be read.
    """
    partition = broker.led(topic, ask.partition)
    view, opened = partition.log.look(), first_open(broker, peer, partition)
    config = tried_config(broker, topic, ask.settings) if ask.settings else None
    now_ms = broker.clock.now_ms() if ask.now is None else ask.now

    def page() -> tuple[tuple[dict[str, Any], ...], int | None, HeldUp | None]:
        first = None if opened is None else opened.held_up()
        found = view.retention_report(now_ms, config, first_offset=ask.start, names_markers=True)
        segments = ((segment.base_offset, segment.as_json()) for segment in found)
        return *as_many_as_fit(segments, first), first

    segments, following, first = await broker.searchers.run(peer, page)
    return RetentionReport(
        now_ms,
        settings_of(view.config if config is None else config),
        view.retention_exempt and config is None,
        segments,
        following,
        first,
    )


def first_open(broker: BrokerParts, peer: Peer, partition: Partition) -> FirstOpen | None:
    """Return the first open transaction, without a transactional id that the client may not see."""
    found = broker.open_transactions.first_of(partition)
    if found is None or found.transaction.transactional_id is None:
        return found
    id_ = found.transaction.transactional_id
    if broker.access.sees(peer, AclOperation.DESCRIBE, TRANSACTIONAL_ID, id_):
        return found
    return found._replace(transaction=found.transaction._replace(transactional_id=None))


def tried_config(broker: BrokerParts, topic: str, tried: Mapping[str, str]) -> TopicConfig:
    """Return the settings of a topic with some of them replaced.

    Raises:
        RequestRefused: a setting is unknown or invalid, or there is no such topic.
    """
    try:
        return broker.settings.topic_config({**broker.topics.named(topic).overrides, **tried})
    except ValueError as error:
        raise RequestRefused(ErrorCode.invalid_config, str(error)) from None
