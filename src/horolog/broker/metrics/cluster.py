"""Metrics of a broker of a cluster: its replicas, its state, and its metadata."""

from collections import Counter

from horolog.broker.broker import BrokerParts
from horolog.broker.metrics import families as of
from horolog.broker.metrics.exposition import Exposition
from horolog.broker.scheduling.turns import TimeSlice


async def add_cluster(
    found: Exposition, broker: BrokerParts, turns: TimeSlice, *, by_partition: bool
) -> None:
    """Add what a broker of a cluster knows of it; nothing where the broker is alone."""
    condition = broker.condition
    if condition is None:
        return
    numbers, view, leaders = await condition.numbers(turns), condition.view, condition.leaders
    for family, number in (
        (of.UNDER_REPLICATED, numbers.under_replicated),
        (of.UNDER_MIN_ISR, numbers.under_min_isr),
        (of.AT_MIN_ISR, numbers.at_min_isr),
        (of.ISR_SHRINKS, leaders.isr_shrinks),
        (of.ISR_EXPANDS, leaders.isr_expands),
        (of.FAILED_ISR_UPDATES, leaders.failed_isr_updates),
        (of.LEADERS, numbers.led),
        (of.OFFLINE_PARTITIONS, numbers.without_leader),
        (of.ACTIVE_CONTROLLERS, 0),
        (of.BROKERS, condition.brokers),
        (of.BROKER_STATE, int(condition.life.state)),
        (of.FENCED, int(condition.life.is_fenced)),
        (of.APPLIED_OFFSET, view.offset - 1),
    ):
        found.add(family, number)
    if view.timestamp >= 0:
        found.add(of.APPLIED_LAG, max(0, broker.clock.now_ms() - view.timestamp))
    most: Counter[tuple[str, int]] = Counter()
    for topic, index, replica, offsets in condition.lags():
        await turns.pause()
        if by_partition:
            found.add(of.REPLICA_LAG, offsets, topic, replica, index)
        else:
            most[topic, replica] = max(most[topic, replica], offsets)
    for (topic, replica), offsets in most.items():
        await turns.pause()
        found.add(of.REPLICA_LAG, offsets, topic, replica)
