"""AddPartitionsToTxn: partitions of a transaction, before they are written to.

v2  error PRODUCER_FENCED; before it is INVALID_PRODUCER_EPOCH
v3  flexible
v4  several transactions, from brokers (KIP-890); partitions may be verified only
v5  as v4
"""

from collections.abc import Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from horolog.broker.authorisation import Authorise
from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api, shortcut
from horolog.broker.handlers.transaction_errors import transaction_code
from horolog.errors import ErrorCode, HorologError
from horolog.network.peer import Peer
from horolog.network.reply import Reply
from horolog.schemas.transactions import FIRST_FLOW, SECOND_FLOW
from horolog.storage.names import INTERNAL_TOPICS, TopicPartition
from horolog.transactions.values import Producer
from horolog.wire.api import ApiKey
from horolog.wire.requests import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from horolog.wire.transactions import SingleAdd, added_answers, read_add

if TYPE_CHECKING:
    from horolog.wire.responses import (
        AddPartitionsToTxnPartitionResult,
        AddPartitionsToTxnResponse,
        AddPartitionsToTxnTopicResult,
    )

_KNOWS_FENCED: Final = 2
_BATCHED: Final = 4


@api(ApiKey.ADD_PARTITIONS_TO_TXN)
async def add_partitions_to_txn(
    request: Request[AddPartitionsToTxnRequest], broker: Broker
) -> "AddPartitionsToTxnResponse":
    """Add all partitions of a transaction, or none."""
    body, version = request.body, request.version
    if version < _BATCHED:
        producer = Producer(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        results = await _add(
            request,
            broker,
            body.v3_and_below_transactional_id,
            producer,
            body.v3_and_below_topics,
            verify_only=False,
        )
        return {"results_by_topic_v3_and_below": results}
    return {
        "error_code": ErrorCode.none,
        "results_by_transaction": [
            {
                "transactional_id": each.transactional_id,
                "topic_results": await _add(
                    request,
                    broker,
                    each.transactional_id,
                    Producer(each.producer_id, each.producer_epoch),
                    each.topics,
                    verify_only=each.verify_only,
                ),
            }
            for each in body.transactions
        ],
    }


@shortcut(ApiKey.ADD_PARTITIONS_TO_TXN)
def add_single(
    broker: Broker, authorise: Authorise, peer: Peer, frame: bytes
) -> Coroutine[Any, Any, Reply] | None:
    """Add one partition, without decoding the request by its schema."""
    asked = read_add(frame)
    if asked is None:
        return None
    authorise(peer, ApiKey.ADD_PARTITIONS_TO_TXN)
    return _add_single(broker, asked)


async def _add_single(broker: Broker, asked: SingleAdd) -> Reply:
    version, correlation_id, transactional_id, producer_id, epoch, name, index = asked
    partition = TopicPartition(name, index)
    code = _refusal(broker, version, partition)
    if code is ErrorCode.none:
        producer = Producer(producer_id, epoch)
        try:
            await broker.transactions.add_partitions(transactional_id, producer, [partition])
        except HorologError as error:
            code = transaction_code(error, knows_fenced=version >= _KNOWS_FENCED)
    return (added_answers(version, name).pack(correlation_id, index, code),)


def _refusal(broker: Broker, version: int, partition: TopicPartition) -> ErrorCode:
    """What is wrong with a partition; clients write to none of a coordinator's."""
    if version < _BATCHED and partition.topic in INTERNAL_TOPICS:
        return ErrorCode.topic_authorization_failed
    if broker.partitions.find(*partition) is None:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.none


async def _add(
    request: Request[AddPartitionsToTxnRequest],
    broker: Broker,
    transactional_id: str,
    producer: Producer,
    topics: Iterable[AddPartitionsToTxnTopic],
    *,
    verify_only: bool,
) -> "list[AddPartitionsToTxnTopicResult]":
    version = request.version
    refusals: dict[TopicPartition, ErrorCode] = {}
    for topic in topics:
        for index in topic.partitions:
            await request.checkpoint()
            partition = TopicPartition(topic.name, index)
            refusals[partition] = _refusal(broker, version, partition)
    codes: Mapping[TopicPartition, ErrorCode] = refusals
    try:
        if any(refusals.values()):
            codes = {
                each: code or ErrorCode.operation_not_attempted for each, code in refusals.items()
            }
        elif verify_only:
            codes = broker.transactions.verify(transactional_id, producer, refusals)
        else:
            flow = SECOND_FLOW if version >= _BATCHED else FIRST_FLOW
            await broker.transactions.add_partitions(transactional_id, producer, refusals, flow)
    except HorologError as error:
        code = transaction_code(error, knows_fenced=version >= _KNOWS_FENCED)
        codes = dict.fromkeys(refusals, code)
    return [await _results(request, topic, codes) for topic in topics]


async def _results(
    request: Request[AddPartitionsToTxnRequest],
    topic: AddPartitionsToTxnTopic,
    codes: Mapping[TopicPartition, ErrorCode],
) -> "AddPartitionsToTxnTopicResult":
    results: list[AddPartitionsToTxnPartitionResult] = []
    for index in topic.partitions:
        await request.pause()
        code = codes[TopicPartition(topic.name, index)]
        results.append({"partition_index": index, "partition_error_code": code})
    return {"name": topic.name, "results_by_partition": results}
