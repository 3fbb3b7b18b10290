"""Requests about partitions of topics, page by page: DescribeTopicPartitions."""

from typing import TYPE_CHECKING

from horolog.broker.authorisation import TOPIC
from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.results import each
from horolog.errors import ErrorCode, RequestRefused
from horolog.metadata.topics import Topic, check_name
from horolog.storage.names import INTERNAL_TOPICS
from horolog.wire.acl import AclOperation
from horolog.wire.api import ApiKey
from horolog.wire.requests import DescribeTopicPartitionsRequest

if TYPE_CHECKING:
    from horolog.wire.responses import (
        DescribeTopicPartitionsResponse,
        DescribeTopicPartitionsResponsePartition,
        DescribeTopicPartitionsResponseTopic,
    )

# --- DescribeTopicPartitions: partitions with eligible leader replicas, in pages (KIP-966)
#
# v0  flexible from the start
#
# Topics are in the order of their names, of which the cursor is the first of a page. What a client
# may not describe stands behind the others.


@api(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
async def describe_topic_partitions(
    request: Request[DescribeTopicPartitionsRequest], broker: BrokerParts
) -> "DescribeTopicPartitionsResponse":
    """Describe the partitions of the named topics, or of all, from the cursor on."""
    body, cursor, access, peer = request.body, request.body.cursor, broker.access, request.peer
    first = "" if cursor is None else cursor.topic_name
    known = {topic.name for topic in body.topics} or broker.topics.names()
    names = sorted([name async for name in each(request, known) if name >= first])
    if cursor is not None and (cursor.partition_index < 0 or (body.topics and first not in names)):
        invalid = ErrorCode.invalid_request
        return {"topics": [_without_partitions(topic.name, invalid) for topic in body.topics]}
    limit = broker.config.max_request_partition_size_limit
    left = max(1, min(limit, body.response_partition_limit))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    denied: list[DescribeTopicPartitionsResponseTopic] = []
    response: DescribeTopicPartitionsResponse = {"topics": topics, "next_cursor": None}
    async for name in each(request, names):
        if body.topics and not access.allows(peer, ApiKey.DESCRIBE_TOPIC_PARTITIONS, TOPIC, name):
            denied.append(_without_partitions(name, ErrorCode.topic_authorization_failed))
            continue
        topic = broker.topics.find(name)
        if not body.topics and not access.sees(peer, AclOperation.DESCRIBE, TOPIC, name):
            continue
        if left == 0:
            response["next_cursor"] = {"topic_name": name, "partition_index": 0}
            break
        if topic is None:
            if body.topics:
                unknown = _without_partitions(name, _why_unknown(name))
                unknown["topic_authorized_operations"] = access.bits(peer, TOPIC, name)
                topics.append(unknown)
            continue
        begin = 0 if cursor is None or name != first else cursor.partition_index
        rest = [index for index in topic.partitions if index >= begin]
        taken = rest[:left]
        topics.append(
            {
                "error_code": ErrorCode.none,
                "name": name,
                "topic_id": topic.topic_id,
                "is_internal": topic.is_internal,
                "partitions": [
                    _described(request, broker, topic, index)
                    async for index in each(request, taken)
                ],
                "topic_authorized_operations": access.bits(peer, TOPIC, name),
            }
        )
        if len(rest) > left:
            response["next_cursor"] = {"topic_name": name, "partition_index": rest[left]}
            break
        left -= len(taken)
    topics += denied
    return response


def _described(
    request: Request[DescribeTopicPartitionsRequest], broker: BrokerParts, topic: Topic, index: int
) -> "DescribeTopicPartitionsResponsePartition":
    placed = broker.placement.partition(topic, index, request.peer.listener)
    return {
        "error_code": placed.error,
        "partition_index": index,
        "leader_id": placed.leader,
        "leader_epoch": placed.leader_epoch,
        "replica_nodes": placed.replicas,
        "isr_nodes": placed.isr,
        "eligible_leader_replicas": placed.elr,
        "last_known_elr": placed.last_known_elr,
        "offline_replicas": placed.offline,
    }


def _without_partitions(name: str, error: ErrorCode) -> "DescribeTopicPartitionsResponseTopic":
    is_hidden = error is ErrorCode.topic_authorization_failed
    return {
        "error_code": error,
        "name": name,
        "topic_id": None,
        "is_internal": not is_hidden and name in INTERNAL_TOPICS,
        "partitions": [],
    }


def _why_unknown(name: str) -> ErrorCode:
    try:
        check_name(name)
    except RequestRefused as error:
        return error.code
    return ErrorCode.unknown_topic_or_partition
