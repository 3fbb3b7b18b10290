"""Metadata: brokers, topics, partitions and their leaders.

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

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers import authorized
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.metadata.topics import NewPartitions, Topic, unknown_topic
from horolog.storage.names import INTERNAL_TOPICS
from horolog.wire.api import ApiKey
from horolog.wire.requests import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from horolog.wire.responses import (
        MetadataResponse,
        MetadataResponsePartition,
        MetadataResponseTopic,
    )


@api(ApiKey.METADATA)
async def metadata(request: Request[MetadataRequest], broker: Broker) -> "MetadataResponse":
    """Describe topics; missing ones are created if the request and the broker allow it."""
    body = request.body
    operations = authorized.NOT_ASKED
    if body.include_topic_authorized_operations:
        operations = authorized.ON_TOPIC
    asked: Sequence[MetadataRequestTopic] | None = body.topics
    answers: list[MetadataResponseTopic] = []
    if asked is None or (request.version == 0 and not asked):
        answers = [await _described(request, broker, topic) for topic in broker.topics]
    elif not _is_well_named(request.version, asked):
        return await _refused(request, asked)
    else:
        creation = NewPartitions()
        # One answer for each topic however often it is asked for, as in Kafka.
        for name, topic_id in dict.fromkeys(_names(asked)):
            await request.checkpoint()
            answers.append(await _asked_for(request, broker, name, topic_id, creation))
    for answer in answers:
        answer["topic_authorized_operations"] = operations
    here = broker.endpoint(request.peer.listener)
    of_cluster = body.include_cluster_authorized_operations
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


def _names(asked: Sequence[MetadataRequestTopic]) -> Iterator[tuple[str | None, UUID | None]]:
    for topic in asked:
        topic_id = topic.topic_id
        yield (topic.name if topic_id is None else None), topic_id


def _is_well_named(version: int, asked: Sequence[MetadataRequestTopic]) -> bool:
    """Whether the request may name its topics like this: by id since v12, else by name."""
    if version >= 12:
        return True
    return all(topic.name is not None and topic.topic_id is None for topic in asked)


async def _refused(
    request: Request[MetadataRequest], asked: Sequence[MetadataRequestTopic]
) -> "MetadataResponse":
    """Kafka's answer to v10 and v11 with an id or without a name: nothing but the error."""
    topics: list[MetadataResponseTopic] = []
    for topic in asked:
        await request.checkpoint()
        topics.append(
            {
                "error_code": ErrorCode.invalid_request,
                "name": topic.name or "",
                "topic_id": None,
                "is_internal": False,
                "partitions": [],
                "topic_authorized_operations": authorized.NOT_ASKED,
            }
        )
    return {
        "brokers": [],
        "cluster_id": None,
        "controller_id": -1,
        "cluster_authorized_operations": authorized.NOT_ASKED,
        "topics": topics,
    }


async def _asked_for(
    request: Request[MetadataRequest],
    broker: Broker,
    name: str | None,
    topic_id: UUID | None,
    creation: NewPartitions,
) -> "MetadataResponseTopic":
    try:
        if topic_id is not None:
            topic: Topic | None = broker.topics.with_id(topic_id)
        elif name is None:
            raise RequestRefused(ErrorCode.invalid_request, "a topic has neither a name nor an id")
        else:
            topic = broker.topics.find(name)
        if topic is None:
            assert name is not None
            await _create(request, broker, name, creation)
            raise unknown_topic(name)  # as Kafka, where it is there for the next request
        return await _described(request, broker, topic)
    except HorologError as error:
        return {
            "error_code": code_for(error),
            "name": name,
            "topic_id": topic_id,
            "is_internal": name in INTERNAL_TOPICS,
            "partitions": [],
        }


async def _create(
    request: Request[MetadataRequest], broker: Broker, name: str, creation: NewPartitions
) -> None:
    may_create = request.body.allow_auto_topic_creation
    if not (may_create and broker.config.auto_create_topics_enable) or name in INTERNAL_TOPICS:
        raise unknown_topic(name)
    creation.take(broker.config.num_partitions)
    await broker.controller.ensure_topic(name)


async def _described(
    request: Request[MetadataRequest], broker: Broker, topic: Topic
) -> "MetadataResponseTopic":
    partitions = []
    for index in topic.partitions:
        await request.checkpoint()
        partitions.append(_partition(broker, topic.name, index))
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": partitions,
    }


def _partition(broker: Broker, topic: str, index: int) -> "MetadataResponsePartition":
    """A partition: led by this broker, or without a leader if offline, as in Kafka 4."""
    here = broker.config.node_id
    partition = broker.partitions.get((topic, index))
    is_served = partition is not None
    return {
        "error_code": ErrorCode.none if is_served else ErrorCode.leader_not_available,
        "partition_index": index,
        "leader_id": here if is_served else -1,
        "leader_epoch": -1 if partition is None else partition.log.leader_epoch,
        "replica_nodes": [here],
        "isr_nodes": [here] if is_served else [],
        "offline_replicas": [] if is_served else [here],
    }
