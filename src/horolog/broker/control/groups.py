"""Questions about groups: their lag, and records that retention deletes unread."""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Final

from horolog.broker.authorisation import GROUP, TOPIC
from horolog.broker.broker import BrokerParts
from horolog.broker.control.partitions import first_open, tried_config
from horolog.broker.control.rows import answers, as_many_as_fit
from horolog.broker.coordinators.group_lag import (
    Behind,
    Doomed,
    Paces,
    deletions,
    doomed,
    partition_lag,
    unknown_lag,
)
from horolog.broker.coordinators.open_transactions import FirstOpen
from horolog.broker.scheduling.turns import TimeSlice
from horolog.errors import HorologError
from horolog.network.peer import Peer
from horolog.wire.acl import AclOperation
from horolog.wire.questions import (
    GROUP_LAG,
    RETENTION_UNREAD,
    AskGroupLag,
    AskUnread,
    GroupLag,
    GroupPartitionLag,
    GroupUnread,
    UnreadDeleted,
)

_IN_A_SLICE: Final = 100
_LONGEST_NAME: Final = 1_000
"""Longest name of a group in an answer, so that any fits a page."""


@answers(GROUP_LAG)
async def measure_group(broker: BrokerParts, peer: Peer, group: str, ask: AskGroupLag) -> GroupLag:
    """Measure the lag of a group in the partitions with its committed offsets.

    Raises:
        RequestRefused: it is not loaded yet.
    """
    broker.groups.check_loaded(group)
    lags, now_ms, start = broker.group_lags, broker.clock.now_ms(), max(0, ask.start)
    turns, behind = TimeSlice(peer), list[Behind]()
    for position in lags.behind([group], committed=ask.committed):
        if broker.access.sees(peer, AclOperation.DESCRIBE, TOPIC, position.key.topic):
            behind.append(position)
        if len(behind) % _IN_A_SLICE == 0:
            await turns.checkpoint()
    behind.sort(key=lambda position: position.key)
    asked = list[tuple[Behind, Paces, FirstOpen | None]]()
    for position in behind[start:]:
        asked.append((position, lags.paces(position), _first_open(broker, peer, position)))
        if len(asked) % _IN_A_SLICE == 0:
            await turns.checkpoint()

    def measured(position: Behind, paces: Paces, opened: FirstOpen | None) -> GroupPartitionLag:
        try:
            found = partition_lag(position, paces, ask.clock, now_ms)
            if opened is not None:
                found = found._replace(held_up=opened.held_up())
        except HorologError:  # its neighbours are measured all the same
            found = unknown_lag(position, paces, ask.clock)
        return found._replace(group=group[:_LONGEST_NAME])

    def page() -> tuple[tuple[GroupPartitionLag, ...], int | None]:
        return as_many_as_fit((number, measured(*item)) for number, item in enumerate(asked, start))

    return GroupLag(*await broker.searchers.run(peer, page))


def _first_open(broker: BrokerParts, peer: Peer, behind: Behind) -> FirstOpen | None:
    partition = broker.partitions.find(behind.key.topic, behind.key.partition)
    return None if partition is None else first_open(broker, peer, partition)


@answers(RETENTION_UNREAD)
async def find_unread(broker: BrokerParts, peer: Peer, topic: str, ask: AskUnread) -> UnreadDeleted:
    """Count the records of a partition that groups lose, and when.

    Raises:
        RequestRefused: a setting is unknown or invalid, there is no such partition, or some groups
            are not loaded yet.
        StorageFailed: the disk refused.
        CorruptBatch: the log is damaged where it has to be read.
    """
    broker.groups.check_all_loaded()
    partition, lags = broker.led(topic, ask.partition), broker.group_lags
    config = tried_config(broker, topic, ask.settings) if ask.settings else None
    now_ms, start = broker.clock.now_ms(), max(0, ask.start)
    found = lags.behind_in(partition, TimeSlice(peer))
    sees = partial(broker.access.sees, peer, AclOperation.DESCRIBE, GROUP)
    asked = [
        (position, lags.paces(position))
        async for position in found
        if position.has_unread and sees(position.key.group)
    ]
    asked.sort(key=lambda position: position[0].key)

    def losses() -> Iterator[tuple[int, GroupUnread]]:
        if not asked:
            return
        view = partition.log.look()
        segments = deletions(
            view, min(position.first_unread for position, _ in asked), now_ms, config
        )
        for number, (position, paces) in islice(enumerate(asked), start, None):
            lost: Doomed = doomed(position.at(view), segments, paces.commits, now_ms, view)
            if lost.records:
                yield number, GroupUnread(position.key.group[:_LONGEST_NAME], *lost)

    return UnreadDeleted(*await broker.searchers.run(peer, lambda: as_many_as_fit(losses())))
