"""The state of one transactional id, to and from its record."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from horolog.offsets import TopicPartition
from horolog.schemas.transactions import TransactionStatus, TransactionValue

LAST_EPOCH: Final = (1 << 15) - 1
"""Only markers have it: no producer is given it, and so no one can write after them."""

NONE: Final = -1
"""No producer id, epoch or time."""

STATUS_NAMES: Final = MappingProxyType(
    {
        TransactionStatus.EMPTY: "Empty",
        TransactionStatus.ONGOING: "Ongoing",
        TransactionStatus.PREPARE_COMMIT: "PrepareCommit",
        TransactionStatus.PREPARE_ABORT: "PrepareAbort",
        TransactionStatus.COMPLETE_COMMIT: "CompleteCommit",
        TransactionStatus.COMPLETE_ABORT: "CompleteAbort",
        TransactionStatus.DEAD: "Dead",
        TransactionStatus.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
    }
)
"""Names of the states in Kafka's tools."""


_OPEN: Final = (
    TransactionStatus.ONGOING,
    TransactionStatus.PREPARE_COMMIT,
    TransactionStatus.PREPARE_ABORT,
)


class ProducerIdentity(NamedTuple):
    """A producer id with its epoch."""

    id: int
    epoch: int


class CoordinatedTransaction(NamedTuple):
    """A transactional id: its producer, and its open or last transaction."""

    producer: ProducerIdentity
    timeout_ms: int
    status: TransactionStatus = TransactionStatus.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NONE
    """Wall-clock time of the first partition's addition."""
    updated_ms: int = NONE
    last_epoch: int = NONE
    """The epoch before the present one, where a retry by its producer is answered (KIP-360)."""
    previous_id: int = NONE
    """The producer id before the last change, for retries across a change of it."""
    next_id: int = NONE
    """The producer id that Complete takes, because epochs of the present one are used up."""
    client_version: int = 0
    """The `transaction.version` by which the client works: 2 from EndTxn 5 on (KIP-890)."""

    @property
    def is_preparing(self) -> bool:
        """True while the outcome is decided and markers are being written."""
        return self.status in (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)

    @property
    def is_open(self) -> bool:
        """True if partitions may have records that no marker ends."""
        return self.status in _OPEN

    @property
    def is_exhausted(self) -> bool:
        """True if the producer id has no further epoch to give out."""
        return self.producer.epoch >= LAST_EPOCH - 1

    @property
    def next_producer(self) -> ProducerIdentity:
        """Producer of the next transaction."""
        return self.producer if self.next_id == NONE else ProducerIdentity(self.next_id, 0)

    def topics(self) -> dict[str, tuple[int, ...]]:
        """Return the partitions by topic, sorted."""
        if len(self.partitions) == 1:
            ((topic, index),) = self.partitions
            return {topic: (index,)}
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(self.partitions):
            by_topic.setdefault(topic, []).append(index)
        return {topic: tuple(indexes) for topic, indexes in by_topic.items()}

    def value(self) -> TransactionValue:
        """Return the record of the state."""
        topics: Mapping[str, tuple[int, ...]] | None = self.topics()
        if self.status is TransactionStatus.EMPTY and not topics:
            topics = None  # as Kafka writes it
        return TransactionValue(
            self.producer.id,
            self.producer.epoch,
            self.timeout_ms,
            self.status,
            topics,
            self.updated_ms,
            self.started_ms,
            self.previous_id,
            self.next_id,
            self.client_version,
        )


def transaction_of(value: TransactionValue) -> CoordinatedTransaction:
    """Return the state in a record."""
    return CoordinatedTransaction(
        ProducerIdentity(value.producer_id, value.producer_epoch),
        value.timeout_ms,
        value.status,
        frozenset(
            (topic, index)
            for topic, indexes in (value.partitions or {}).items()
            for index in indexes
        ),
        value.started_ms,
        value.updated_ms,
        NONE,
        value.previous_producer_id,
        value.next_producer_id,
        value.client_version,
    )
