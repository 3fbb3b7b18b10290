"""Lag of groups, also at brokers that do not answer horolog's questions, as Apache Kafka's."""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from horolog.client.asking import ANY_BROKER
from horolog.client.client import Client
from horolog.client.connection import NoAnswer
from horolog.client.offsets import EARLIEST, LATEST
from horolog.client.open_transactions import UnstableStretch, held_up
from horolog.errors import ErrorCode, RequestRefused
from horolog.offsets import HeldUp, TopicPartition
from horolog.record.batch import iter_headers
from horolog.record.timestamps import LOG_APPEND_TIME
from horolog.wire.questions import GROUP_LAG, AskGroupLag, GroupPartitionLag, LagClock


def group_lags(
    client: Client,
    groups: Sequence[str],
    now_ms: int,
    *,
    clock: LagClock = LagClock.APPEND,
    read_committed: bool = False,
) -> list[GroupPartitionLag]:
    """Return the lags of groups, in order.

    An Apache Kafka gives only part of them.

    Apache Kafka gives offsets, the lag by append time of topics with LogAppendTime, and the first
    open transaction of a partition if `open_transactions.held_up` finds it. Records, the oldest
    create time, the pace of a group and coming deletions are unknown there. Partitions without a
    leader are left out (`offline_positions` returns them).

    Args:
        now_ms: the present time, for ages that brokers do not report.
        clock: the clock of records by which a lag is measured.
        read_committed: the groups read committed records only.

    Raises:
        RequestRefused: of a group, which it names.
        NoAnswer: no broker answers.
    """
    found: list[GroupPartitionLag] = []
    of_offsets: list[GroupPartitionLag] = []
    asks = {(group, ANY_BROKER): AskGroupLag(clock, read_committed) for group in groups}
    measured = client.ask.many(GROUP_LAG, asks)
    for group in groups:
        answer = measured[group, ANY_BROKER]
        if answer is None:
            of_group = _of_offsets(client, group, now_ms, clock, read_committed)
            of_offsets += of_group
        else:
            of_group = [lag._replace(group=group) for lag in answer.lags]
        found += of_group
    if not of_offsets:
        return found
    opened = _held_up(
        client, sorted({(of_offset.topic, of_offset.partition) for of_offset in of_offsets}), now_ms
    )
    return [
        lag._replace(held_up=lag.held_up or opened.get((lag.topic, lag.partition))) for lag in found
    ]


class OfflinePosition(NamedTuple):
    """Committed offset of a group in a partition without a leader."""

    group: str
    topic: str
    partition: int
    committed: int


def offline_positions(client: Client, groups: Sequence[str]) -> list[OfflinePosition]:
    """Return the committed offsets in partitions without a leader, whose lag is unknown.

    Raises:
        RequestRefused: of a group, which it names.
        NoAnswer: no broker answers.
    """
    offline = sorted(
        (topic.name, number)
        for topic in client.metadata().topics.values()
        for number, partition in topic.partitions.items()
        if partition.leader is None
    )
    if not offline:
        return []
    return [
        OfflinePosition(group, *partition, committed.offset)
        for group in groups
        for partition, committed in client.offset_fetch(group, offline).items()
        if committed is not None
    ]


def _held_up(
    client: Client, partitions: Sequence[TopicPartition], now_ms: int
) -> dict[TopicPartition, HeldUp]:
    """Return the first open transaction of each partition that has one, if brokers report it."""
    with suppress(RequestRefused, NoAnswer):
        ends = client.list_offsets(dict.fromkeys(partitions, LATEST))
        stable = client.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
        waiting = {
            partition: UnstableStretch(first.offset, last.offset)
            for partition in partitions
            if (first := stable[partition])
            and (last := ends[partition])
            and first.offset < last.offset
        }
        return held_up(client, waiting, now_ms)
    return {}


def _of_offsets(
    client: Client, group: str, now_ms: int, clock: LagClock, read_committed: bool
) -> list[GroupPartitionLag]:
    committed = {
        partition: at.offset
        for partition, at in client.offset_fetch(group).items()
        if at is not None
    }
    present = client.metadata(sorted({topic for topic, _ in committed})).topics if committed else {}
    served = [
        partition
        for partition in sorted(committed)
        if partition[0] in present
        and partition[1] in present[partition[0]].partitions
        and present[partition[0]].partitions[partition[1]].leader is not None
    ]
    starts = client.list_offsets(dict.fromkeys(served, EARLIEST))
    ends = client.list_offsets(dict.fromkeys(served, LATEST), read_committed=read_committed)
    lags = []
    for partition in served:
        first, last = starts[partition], ends[partition]
        start = 0 if first is None else first.offset
        end = 0 if last is None else last.offset
        unread = max(committed[partition], start)
        is_behind = unread < end
        of_rest = None if is_behind else 0  # a broker without horolog's questions has no number
        lag_ms: int | None = 0
        if is_behind:
            appended = clock is LagClock.APPEND
            lag_ms = _age_ms(client, partition, unread, now_ms) if appended else None
        lags.append(
            GroupPartitionLag(
                group,
                *partition,
                committed[partition],
                start,
                end,
                offsets_behind=max(0, end - committed[partition]),
                records_behind=of_rest,
                lost_records=max(0, min(start, end) - committed[partition]),
                lag_ms=lag_ms,
                clock=clock,
                catch_up_ms=of_rest,
                is_pace_known=False,
                unread_deleted=of_rest,
                first_deleted_ms=None,
            )
        )
    return lags


def _age_ms(client: Client, partition: TopicPartition, offset: int, now_ms: int) -> int | None:
    """Return the age of a record by its append time; None if its timestamp is no append time."""
    try:
        fetched = client.fetch(*partition, offset, max_bytes=1, max_wait_ms=0)
    except RequestRefused as error:
        if error.code == ErrorCode.offset_out_of_range:  # deleted meanwhile
            return None
        raise
    for _, header in iter_headers(memoryview(fetched.records)):
        if header.next_offset > offset:
            is_stamped = header.timestamp_type is LOG_APPEND_TIME
            return max(0, now_ms - header.max_timestamp) if is_stamped else None
    return None
