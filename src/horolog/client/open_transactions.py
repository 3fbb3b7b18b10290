"""Transactions that hold up consumers of committed records, found without horolog's questions.

The method is that of `kafka-transactions.sh find-hanging` (KIP-664), with few requests:

    leaders       DescribeProducers      which transactions are open in a partition, and from where
    coordinators  ListTransactions       the transactional ids of their producers
    coordinators  DescribeTransactions   whether their transactions have the partition

A coordinator adds a partition to a transaction before records are appended, and removes it after
the marker. So a transaction *hangs* if it is open before and after the coordinator's response, and
not in the response. But a response omits transactional ids that the principal may not describe.
Therefore only transactions older than the maximum timeout are reported as hanging, as by that tool.

Brokers that do not answer (Apache Kafka before 3.0), or not to this principal, are left out.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from horolog.client.client import Client
from horolog.client.connection import NoAnswer
from horolog.client.deadline import Deadline
from horolog.client.link import Link
from horolog.client.metadata import by_topic
from horolog.clock import MINUTE_MS, SECOND_MS
from horolog.errors import ErrorCode, RequestRefused
from horolog.offsets import HeldUp, TopicPartition
from horolog.wire.api import ApiKey
from horolog.wire.malformed import MalformedResponse

MOST_PARTITIONS: Final = 1_000
"""Most partitions that are looked up."""
_AT_ONCE: Final = 100  # partitions of one request: a partition may have thousands of producers
_MOST_BROKERS: Final = 100
_LONGEST_MS: Final = 10 * SECOND_MS
_LONGEST_ID: Final = 1_000  # as in the answers of horolog's brokers
_MAX_TRANSACTION_MS: Final = 15 * MINUTE_MS  # default of transaction.max.timeout.ms

_NOT_ANSWERED: Final = (RequestRefused, NoAnswer, MalformedResponse)


class UnstableStretch(NamedTuple):
    """Offsets of a partition that consumers of committed records cannot read yet."""

    stable: int
    """The last stable offset."""
    end: int
    """The high watermark."""


class _OpenAtBroker(NamedTuple):
    """First open transaction of a partition."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_ms: int
    """The largest timestamp of the producer's last batch; -1: none."""
    opened: int
    """Number of open transactions in the partition."""


class _Owner(NamedTuple):
    """Transactional id whose transaction contains a partition."""

    transactional_id: str
    start_ms: int
    """Start of the transaction at its coordinator; -1 if unknown."""


def held_up(
    client: Client, waiting: Mapping[TopicPartition, UnstableStretch], now_ms: int
) -> dict[TopicPartition, HeldUp]:
    """Return the first open transaction of partitions, if brokers report it within ten seconds.

    Args:
        waiting: partitions whose last stable offset is before the high watermark.
        now_ms: the clock, in milliseconds, for the age of transactions.
    """
    deadline = Deadline.after_ms(min(client.config.timeout_ms, _LONGEST_MS))
    opened = _open_in(client, islice(waiting, MOST_PARTITIONS), deadline)
    owners, are_all = _coordinated(
        client, {transaction.producer_id for transaction in opened.values()}, deadline
    )
    unowned = [
        partition
        for partition, first in opened.items()
        if are_all
        and (first.producer_id, partition) not in owners
        and 0 <= first.last_ms < now_ms - _MAX_TRANSACTION_MS
    ]
    still = _open_in(client, unowned, deadline)
    found = {}
    for partition, first in opened.items():
        owner = owners.get((first.producer_id, partition))
        is_same = partition in still and still[partition][:3] == first[:3]
        stretch = waiting[partition]
        offset = max(first.first_offset, stretch.stable)
        found[partition] = HeldUp(
            first.producer_id,
            first.producer_epoch,
            None if owner is None else owner.transactional_id[:_LONGEST_ID],
            False if owner is not None else True if is_same else None,
            offset,
            None if owner is None or owner.start_ms < 0 else owner.start_ms,
            max(0, stretch.end - offset),
            None,
            first.opened,
        )
    return found


def _open_in(
    client: Client, partitions: Iterable[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, _OpenAtBroker]:
    """Return the first open transaction of each partition whose leader reports one."""
    by_leader: dict[Link, list[TopicPartition]] = defaultdict(list)
    for partition in partitions:
        with suppress(*_NOT_ANSWERED):
            by_leader[client.brokers.leader(*partition, deadline)].append(partition)
    opened: dict[TopicPartition, _OpenAtBroker] = {}
    for link, its in by_leader.items():
        with suppress(*_NOT_ANSWERED):
            for first in range(0, len(its), _AT_ONCE):
                opened.update(_describe_producers(link, its[first : first + _AT_ONCE], deadline))
    return opened


def _describe_producers(
    link: Link, partitions: Collection[TopicPartition], deadline: Deadline
) -> Iterator[tuple[TopicPartition, _OpenAtBroker]]:
    topics = [
        {"name": name, "partition_indexes": numbers}
        for name, numbers in by_topic(partitions).items()
    ]
    body = link.ask(ApiKey.DESCRIBE_PRODUCERS, {"topics": topics}, deadline)
    for topic in body.topics:
        for it in topic.partitions:
            opened = [
                active_producer
                for active_producer in it.active_producers
                if active_producer.current_txn_start_offset >= 0
            ]
            partition = topic.name, it.partition_index
            if it.error_code == ErrorCode.none and opened and partition in partitions:
                first = min(opened, key=lambda each: int(each.current_txn_start_offset))
                yield (
                    partition,
                    _OpenAtBroker(
                        first.producer_id,
                        first.producer_epoch,
                        first.current_txn_start_offset,
                        first.last_timestamp,
                        len(opened),
                    ),
                )


def _coordinated(
    client: Client, producers: Collection[int], deadline: Deadline
) -> tuple[dict[tuple[int, TopicPartition], _Owner], bool]:
    """Return owners by producer id and partition, and whether every coordinator answered."""
    owners: dict[tuple[int, TopicPartition], _Owner] = {}
    if not producers:
        return owners, True
    try:
        nodes = sorted(client.brokers.metadata([], deadline).brokers)
    except _NOT_ANSWERED:
        return owners, False
    are_all = len(nodes) <= _MOST_BROKERS
    for node in nodes[:_MOST_BROKERS]:
        try:
            link = client.brokers.node(node, deadline)
            are_all &= _describe(link, producers, owners, deadline)
        except _NOT_ANSWERED:
            are_all = False
    return owners, are_all


def _describe(
    link: Link,
    producers: Collection[int],
    owners: dict[tuple[int, TopicPartition], _Owner],
    deadline: Deadline,
) -> bool:
    """Add the transactions that one coordinator reports; True if it reported all."""
    request = {"state_filters": (), "producer_id_filters": sorted(producers)}
    listed = link.ask(ApiKey.LIST_TRANSACTIONS, request, deadline)
    ids = [transaction_state.transactional_id for transaction_state in listed.transaction_states]
    if listed.error_code != ErrorCode.none:
        return False
    if not ids:
        return True
    request = {"transactional_ids": ids}
    described = link.ask(ApiKey.DESCRIBE_TRANSACTIONS, request, deadline)
    is_all = len(described.transaction_states) >= len(ids)
    for transaction_state in described.transaction_states:
        is_all &= transaction_state.error_code in (
            ErrorCode.none,
            ErrorCode.transactional_id_not_found,
        )
        owner = _Owner(
            transaction_state.transactional_id, transaction_state.transaction_start_time_ms
        )
        for topic in (
            transaction_state.topics if transaction_state.error_code == ErrorCode.none else ()
        ):
            for index in topic.partitions:
                owners[transaction_state.producer_id, (topic.topic, index)] = owner
    return is_all
