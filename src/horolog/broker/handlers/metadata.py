"""Metadata: the brokers, the topics, who leads which partition.

v0   an empty list of topics means all
v1   null means all; controller, rack, internal topics
v2   cluster id
v3   throttle time
v4   the client may forbid that topics it asks for are created
v5   offline replicas
v7   leader epoch
v8   authorized operations
v9   flexible
v10  topic ids
v11  no authorized operations of the cluster (DescribeCluster has them)
v12  topics may be asked for by id
v13  an error for the whole answer
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers import authorized
from horolog.errors import ErrorCode, HorologError, code_for
from horolog.metadata.topics import Topic, unknown_topic
from horolog.storage.names import INTERNAL_TOPICS
from horolog.wire.api import ApiKey

# Topics that are looked up before others get their turn.
AT_ONCE: Final = 1000


@api(ApiKey.METADATA)
async def metadata(request: Request, broker: Broker) -> dict[str, Any]:
    """This broker leads everything; what does not exist is created if both sides allow it."""
    body = request.body
    operations = authorized.NOT_ASKED
    if getattr(body, "include_topic_authorized_operations", False):
        operations = authorized.ON_TOPIC
    asked: Sequence[Any] | None = body.topics
    if asked is None or (request.version == 0 and not asked):
        answers = [_described(broker, topic) for topic in broker.topics]
    else:
        may_create = getattr(body, "allow_auto_topic_creation", True)
        answers = []
        for number, topic in enumerate(asked):
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)  # let others have their turn
            answers.append(await _asked_for(broker, topic, may_create))
    for answer in answers:
        answer["topic_authorized_operations"] = operations
    here = broker.endpoint(request.peer.listener)
    of_cluster = getattr(body, "include_cluster_authorized_operations", False)
    return {
        "brokers": [
            {
                "node_id": broker.config.node_id,
                "host": here.host,
                "port": here.port,
                "rack": broker.config.broker_rack,
            }
        ],
        "cluster_id": broker.cluster_id,
        "controller_id": broker.config.node_id,
        "cluster_authorized_operations": (
            authorized.ON_CLUSTER if of_cluster else authorized.NOT_ASKED
        ),
        "topics": answers,
    }


async def _asked_for(broker: Broker, asked: Any, may_create: bool) -> dict[str, Any]:
    topic_id: UUID | None = getattr(asked, "topic_id", None)
    try:
        if topic_id is not None:
            return _described(broker, broker.topics.with_id(topic_id))
        topic = broker.topics.find(asked.name)
        if topic is None:
            topic = await _create(broker, asked.name, may_create)
        return _described(broker, topic)
    except HorologError as error:
        return {
            "error_code": code_for(error),
            "name": asked.name if topic_id is None else None,
            "topic_id": topic_id,
            "is_internal": asked.name in INTERNAL_TOPICS,
            "partitions": [],
        }


async def _create(broker: Broker, name: str, may_create: bool) -> Topic:
    if not (may_create and broker.config.auto_create_topics_enable) or name in INTERNAL_TOPICS:
        raise unknown_topic(name)
    return await broker.controller.ensure_topic(name)


def _described(broker: Broker, topic: Topic) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": [_partition(broker, topic.name, index) for index in topic.partitions],
    }


def _partition(broker: Broker, topic: str, index: int) -> dict[str, Any]:
    """Led by this broker, unless it is offline: then without a leader, as Kafka 4 has it."""
    here = broker.config.node_id
    partition = broker.partitions.get((topic, index))
    is_served = partition is not None
    return {
        "error_code": ErrorCode.none if is_served else ErrorCode.leader_not_available,
        "partition_index": index,
        "leader_id": here if is_served else -1,
        "leader_epoch": -1 if partition is None else partition.leader_epoch,
        "replica_nodes": [here],
        "isr_nodes": [here] if is_served else [],
        "offline_replicas": [] if is_served else [here],
    }
