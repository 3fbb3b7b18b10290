"""TxnOffsetCommit: offsets of a consumer group that count if a transaction is committed (KIP-98).

v1  the same
v2  leader epoch of the last record read
v3  flexible; member, instance and generation (KIP-447)
v4  error TRANSACTION_ABORTABLE
v5  the group is added to the transaction, without AddOffsetsToTxn before it (KIP-890)

The transaction coordinator is asked before the group: it refuses offsets of a transaction that is
not open, or that the group's partition of `__consumer_offsets` is not in. It is asked again when
the offsets are written: the transaction may have ended meanwhile.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.committing import (
    NamedTopic,
    existing_rows,
    named_topics,
    offset_row,
)
from horolog.broker.handlers.group_errors import group_error_code
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.groups.rows import OffsetRow, TransactionalProducer
from horolog.groups.values import Committer
from horolog.metadata.topics import Topic
from horolog.storage.names import CONSUMER_OFFSETS, TopicPartition
from horolog.wire.api import ApiKey
from horolog.wire.requests import TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition

if TYPE_CHECKING:
    from horolog.wire.responses import TxnOffsetCommitResponse

_AS_PRODUCE: Final = {5: 12, 4: 11}
"""The version of Produce that treats transactions as a version does; of others an earlier one."""
_BEFORE_ABORTABLE: Final = 10
_LOADING_SINCE: Final = 2  # earlier clients fail on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)

_OF_A_PARTITION: Final = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
}
"""What a client would take for an error of the partition that is committed."""


class _Asked(NamedTuple):
    """What the transaction coordinator is asked."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition]
    produce_version: int


@api(ApiKey.TXN_OFFSET_COMMIT)
async def txn_offset_commit(
    request: Request[TxnOffsetCommitRequest], broker: Broker
) -> "TxnOffsetCommitResponse":
    """Store the valid offsets as pending; each partition has its own error."""
    body = request.body
    topics = await named_topics(
        request,
        ((partial(broker.topics.named, named.name), named.partitions) for named in body.topics),
        partial(_row, request, broker),
    )
    if any(topic.has_existing for topic in topics):
        await _commit(request, broker, topics)
    return {
        "topics": [
            {"name": named.name, "partitions": of_topic.partitions}
            for named, of_topic in zip(body.topics, topics, strict=True)
        ]
    }


async def _commit(
    request: Request[TxnOffsetCommitRequest], broker: Broker, topics: list[NamedTopic]
) -> None:
    body = request.body
    index = broker.groups.transactions.partition_of(body.group_id)
    asked = _Asked(
        body.transactional_id,
        body.producer_id,
        body.producer_epoch,
        (TopicPartition(CONSUMER_OFFSETS, index),),
        _AS_PRODUCE.get(request.version, _BEFORE_ABORTABLE),
    )
    try:
        if not body.group_id:
            raise RequestRefused(ErrorCode.invalid_group_id, "a group id must not be empty")
        broker.groups.check_loaded(body.group_id)
        await broker.groups.transactions.commit(
            body.group_id,
            Committer(body.member_id, body.group_instance_id, body.generation_id),
            TransactionalProducer(body.producer_id, body.producer_epoch),
            partial(existing_rows, broker, topics),
            partial(_admit, asked, broker),
            partial(_confirm, asked, broker),
        )
    except HorologError as error:
        for topic in topics:
            topic.fail(_error_code(error, request.version))


async def _admit(asked: _Asked, broker: Broker) -> None:
    """Have the group's partition in the transaction; raises the coordinator's refusal."""
    codes = await broker.transactions.admit(*asked)
    _check(asked, codes)


def _confirm(asked: _Asked, broker: Broker) -> None:
    """Ask whether it is there at this moment; raises the coordinator's refusal."""
    _check(asked, broker.transactions.admitted(*asked))


def _check(asked: _Asked, codes: Mapping[TopicPartition, ErrorCode]) -> None:
    (partition,) = asked.partitions
    if code := codes[partition]:
        raise RequestRefused(
            code, f"{partition} is in no ongoing transaction of {asked.transactional_id!r}"
        )


def _row(
    request: Request[TxnOffsetCommitRequest],
    broker: Broker,
    topic: Topic,
    requested: TxnOffsetCommitRequestPartition,
) -> OffsetRow:
    return offset_row(broker, request.body.group_id, topic, requested, broker.clock.now_ms())


def _error_code(error: HorologError, version: int) -> ErrorCode:
    """The code as Apache Kafka's coordinator translates it for a transactional commit."""
    error_code = group_error_code(error)
    if error_code in _OF_A_PARTITION:
        error_code = _OF_A_PARTITION[error_code]
    if error_code is ErrorCode.coordinator_load_in_progress and version < _LOADING_SINCE:
        return ErrorCode.coordinator_not_available
    return error_code
