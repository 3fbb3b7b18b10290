"""Metrics of compaction: the work left, and the last run over each partition."""

from horolog.broker.broker import BrokerParts
from horolog.broker.metrics import families as of
from horolog.broker.metrics.exposition import Exposition
from horolog.broker.scheduling.turns import TimeSlice


async def add_cleaning(
    found: Exposition, broker: BrokerParts, turns: TimeSlice, *, by_partition: bool
) -> None:
    """Add the metrics of compaction."""
    cleaner, now_ms = broker.cleaner, broker.clock.now_ms()
    ratios: dict[str, float] = {}
    ages: dict[str, int] = {}
    overdue_ms = read = kept = longest_ms = 0
    fullest = 0.0
    for partition, state in list(cleaner.found.items()):
        await turns.pause()
        if partition.is_closed or not partition.is_compacted:
            continue
        topic = partition.topic
        ratios[topic] = max(ratios.get(topic, 0.0), state.ratio)
        overdue_ms = max(overdue_ms, state.overdue_ms)
        if by_partition:
            found.add(of.DIRTY_RATIO, round(state.ratio, 4), topic, partition.index)
    for partition, run in list(cleaner.runs.items()):
        await turns.pause()
        if run.ended_ms is None or not run.is_whole or partition.is_closed:
            continue
        topic, age_ms = partition.topic, max(0, now_ms - run.ended_ms)
        ages[topic] = max(ages.get(topic, 0), age_ms)
        read, kept = read + run.bytes_before, kept + run.bytes_after
        longest_ms = max(longest_ms, run.ended_ms - run.started_ms)
        fullest = max(fullest, run.map_share)
        if by_partition:
            found.add(of.SINCE_CLEANED, age_ms, topic, partition.index)
    if not by_partition:
        for topic, ratio in ratios.items():
            found.add(of.DIRTY_RATIO, round(ratio, 4), topic)
        for topic, age_ms in ages.items():
            found.add(of.SINCE_CLEANED, age_ms, topic)
    left_out = [partition for partition, _ in cleaner.uncleanable()]
    if cleaner.looked_ms is not None:
        found.add(of.SINCE_CLEANER_LOOKED, max(0, now_ms - cleaner.looked_ms))
    for family, number in (
        (of.MAX_DIRTY_PERCENT, round(100 * max(ratios.values(), default=0.0), 2)),
        (of.UNCLEANABLE, len(left_out)),
        (of.UNCLEANABLE_BYTES, sum(partition.log.size for partition in left_out)),
        (of.RECOPY_PERCENT, round(100 * kept / read, 2) if read else 0),
        (of.MAX_CLEAN_TIME, round(longest_ms / 1000, 3)),
        (of.MAX_BUFFER_UTILIZATION, round(100 * fullest, 2)),
        (of.MAX_COMPACTION_DELAY, round(overdue_ms / 1000, 3)),
    ):
        found.add(family, number)
