"""Ask the coordinator whether it admits the transactional batches of a Produce request.

The coordinator is asked before anything is appended. Requests of one producer over one connection
wait for each other there, so that its batches reach the logs in the order of their sequences.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol
from weakref import WeakValueDictionary

from horolog.broker.coordinators.transaction_coordinator import (
    ADDS_PARTITIONS_SINCE,
    TransactionCoordinator,
)
from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, ErrorCode, RequestRefused
from horolog.network.peer import Peer
from horolog.record.batch import (
    ATTRIBUTES_LOW_BYTE,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    parse_header,
)
from horolog.storage.names import TopicPartition
from horolog.storage.producers.states import Admission
from horolog.transactions.values import ProducerIdentity


class Admitted(NamedTuple):
    """The coordinator's answers for the batches of one request."""

    producer_id: int
    """Producer id; -1 if the coordinator was not asked."""
    is_strict: bool
    codes: Mapping[TopicPartition, ErrorCode]
    """Codes of the partitions that get a batch of the transaction."""
    admissions: Mapping[TopicPartition, Admission] = {}
    """Admissions that were made before another broker was asked."""

    def refuse_unless_in(self, partition: TopicPartition) -> None:
        """Refuse the batch of a partition that is not in the transaction.

        Raises:
            RequestRefused: with the code of the coordinator, or to be sent again: the partition has
                come to be while the coordinator was asked about others.
        """
        code = self.codes.get(partition)
        if code is None:
            raise RequestRefused(
                ErrorCode.unknown_topic_or_partition,
                f"{partition} was not there when the transaction was looked at: send it again",
            )
        if code:
            raise RequestRefused(
                code, f"{partition} is in no ongoing transaction of producer {self.producer_id}"
            )


class ProducerTurns:
    """Order in which the transactional requests of each connection are admitted."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[tuple[Peer, str], asyncio.Lock] = WeakValueDictionary()

    def turn(self, peer: Peer, transactional_id: str) -> asyncio.Lock:
        """Return a lock to hold until the request has begun to append."""
        key = peer, transactional_id
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock


def transactional_header(records: Buffer | None) -> BatchHeader | None:
    """Return the header of a transactional batch; None for others, which validation judges."""
    # Most batches are of no transaction, which one byte says.
    if not records or len(records) <= ATTRIBUTES_LOW_BYTE:
        return None
    if not records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
        return None
    try:
        header = parse_header(records)
    except CorruptBatch:
        return None
    is_of_one = header.magic == MAGIC and header.is_transactional and header.producer_id >= 0
    return header if is_of_one else None


class OtherCoordinators(Protocol):
    """Coordinators that are other brokers."""

    async def admitted(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        produce_version: int,
    ) -> Admitted:
        """Return the codes of a Produce request's partitions."""
        ...


async def admit(
    transactions: TransactionCoordinator,
    transactional_id: str,
    headers: Mapping[TopicPartition, BatchHeader],
    produce_version: int,
    others: OtherCoordinators | None = None,
) -> Admitted:
    """Ask the coordinator about all transactional batches of a request, if there are any.

    Args:
        others: the coordinators of a cluster; None where this broker coordinates.
    """
    is_strict = produce_version >= ADDS_PARTITIONS_SINCE
    if not headers:
        return Admitted(-1, is_strict, {})
    producers = {(header.producer_id, header.producer_epoch) for header in headers.values()}
    (producer_id, epoch), *further = producers
    codes: Mapping[TopicPartition, ErrorCode]
    if further:  # Kafka refuses the request, too
        codes = dict.fromkeys(headers, ErrorCode.invalid_producer_id_mapping)
    elif others is not None:
        producer = ProducerIdentity(producer_id, epoch)
        return await others.admitted(transactional_id, producer, headers, produce_version)
    else:
        codes = await transactions.admit(
            transactional_id, producer_id, epoch, headers.keys(), produce_version
        )
    return Admitted(producer_id, is_strict, codes)
