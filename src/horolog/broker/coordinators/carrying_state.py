"""Writes state that was kept beside the internal topics into them, once, at a start.

Groups with a later state in the topics keep it. The next start retries what the disk refuses.
Transactions are the exception: a start without their states fails, because their markers are owed.
"""

import logging
from collections.abc import Iterable, Mapping

from horolog.broker.coordinators.group_coordinator import GroupCoordinator
from horolog.broker.coordinators.offsets_log import OffsetsLog, written
from horolog.broker.coordinators.state_topics import StateTopic
from horolog.broker.partitions import Partitions
from horolog.groups.rows import (
    GroupChange,
    StoredGroups,
    TransactionProducer,
)
from horolog.storage.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from horolog.transactions.replay import record_of
from horolog.transactions.values import CoordinatedTransaction

_LOG = logging.getLogger(__name__)


async def carry_transactions(
    states: Mapping[str, CoordinatedTransaction],
    topic: StateTopic,
    partitions: Partitions,
    now_ms: int,
) -> None:
    """Write the states of transactional ids to `__transaction_state`, before it is loaded.

    Raises:
        HorologError: the topic cannot be made, or the disk refused.
    """
    if states:
        await topic.ready()
    for transactional_id, state in states.items():
        appending = topic.append_record(
            transactional_id, record_of(transactional_id, state, now_ms)
        )
        if appending is not None:
            await appending
    await _flush(partitions, TRANSACTION_STATE)


async def carry_groups(
    stored: StoredGroups,
    states: Iterable[CoordinatedTransaction],
    groups: GroupCoordinator,
    log: OffsetsLog,
    partitions: Partitions,
) -> None:
    """Write groups and offsets to `__consumer_offsets`, and restore them in memory.

    Raises:
        HorologError: the topic cannot be made, or the disk refused.
    """
    there = groups.offsets.get
    rows = [
        row
        for row in stored.offsets
        if (of := there(*row[:3])) is None or of.commit_ms < row.commit_ms
    ]
    new = [row for row in stored.groups if not groups.has(row.group_id)]
    producers = {state.producer.id: TransactionProducer(*state.producer) for state in states}
    pending = [
        row for row in stored.pending if row.producer_id in producers and not row.is_superseded
    ]
    changes = [GroupChange(offsets=[row]) for row in rows]
    changes += [GroupChange(groups=[row]) for row in new]
    consumer = {name: its for name, its in stored.consumer.items() if not groups.has(name)}
    changes += [GroupChange(records=[record]) for its in consumer.values() for record in its]
    changes += [
        GroupChange(offsets=[row.row], producer=producers[row.producer_id]) for row in pending
    ]
    if changes:
        await log.ready()
    for error in await written(log, changes):
        if error is not None:
            raise error
    await groups.restore(StoredGroups(new, rows, pending, consumer))
    await _flush(partitions, CONSUMER_OFFSETS)
    _LOG.info("%d changes of groups are in %s", len(changes), CONSUMER_OFFSETS)


async def _flush(partitions: Partitions, topic: str) -> None:
    for partition in partitions.values():
        if partition.topic == topic:
            await partition.flush()
