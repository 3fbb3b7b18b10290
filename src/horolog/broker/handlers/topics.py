"""Requests about topics: Metadata, CreateTopics, CreatePartitions, DeleteTopics."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from uuid import UUID

from horolog.broker.authorisation import CLUSTER, NO_BITS, TOPIC, refusal
from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.results import cluster_bits, each, outcome_of
from horolog.broker.new_topics import NewTopic
from horolog.broker.placement.placement import PlacedPartition
from horolog.broker.throttling import Mutations
from horolog.config import describe_topic
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.metadata.topics import NewPartitions, Topic, check_name, unknown_topic
from horolog.network.reply import Reply
from horolog.rights.entries import CLUSTER_NAME
from horolog.storage.names import INTERNAL_TOPICS
from horolog.wire.acl import AclOperation
from horolog.wire.api import ApiKey
from horolog.wire.requests import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    MetadataRequest,
    MetadataRequestTopic,
)

if TYPE_CHECKING:
    from horolog.wire.responses import (
        CreatableTopicConfigs,
        CreatableTopicResult,
        CreatePartitionsResponse,
        CreatePartitionsTopicResult,
        CreateTopicsResponse,
        DeletableTopicResult,
        DeleteTopicsResponse,
        MetadataResponse,
        MetadataResponsePartition,
        MetadataResponseTopic,
    )

# --- Metadata: brokers, topics, partitions and their leaders ----------------------------
#
# v0   an empty list of topics means all
# v1   null means all; controller, rack, internal topics; replicas that are not alive, too
# v2   cluster id
# v3   throttle time
# v4   the client may forbid that topics it asks for are created
# v5   offline replicas
# v6   a leader without this listener has an error of its own
# v7   leader epoch
# v8   authorized operations
# v9   flexible
# v10  topic ids
# v11  no authorized operations of the cluster (DescribeCluster has them)
# v12  topics may be asked for by id
# v13  an error for the whole answer

_ALL_REPLICAS: Final = 1
_OTHER_LISTENERS: Final = 6


@api(ApiKey.METADATA)
async def metadata(request: Request[MetadataRequest], broker: BrokerParts) -> "MetadataResponse":
    """Describe topics. A missing topic is created if the request and the broker allow it."""
    body, access, peer = request.body, broker.access, request.peer
    asked: Sequence[MetadataRequestTopic] | None = body.topics
    answers: list[MetadataResponseTopic] = []
    if asked is None or (request.version == 0 and not asked):
        answers = [
            await _described(request, broker, topic)
            for topic in broker.topics
            if access.sees(peer, AclOperation.DESCRIBE, TOPIC, topic.name)
        ]
    elif request.version < 12 and not all(
        topic.name is not None and topic.topic_id is None for topic in asked
    ):
        return await _refused(request, asked)
    else:
        creation = NewPartitions()
        # One answer for each topic however often it is asked for, as in Kafka.
        named = dict.fromkeys(
            (topic.name if topic.topic_id is None else None, topic.topic_id) for topic in asked
        )
        async for name, topic_id in each(request, named):
            answers.append(await _asked_for(request, broker, name, topic_id, creation))
    async for answer in each(request, answers):
        operations = NO_BITS
        if (
            body.include_topic_authorized_operations
            and answer["error_code"] != ErrorCode.topic_authorization_failed
        ):
            operations = access.bits(peer, TOPIC, answer["name"] or "")
        answer["topic_authorized_operations"] = operations
    of_cluster = NO_BITS
    if body.include_cluster_authorized_operations:
        of_cluster = cluster_bits(broker, peer, ApiKey.METADATA)
    return {
        "brokers": [
            {"node_id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}
            for node, _ in broker.placement.brokers(peer.listener)
        ],
        "cluster_id": broker.cluster_id,
        "controller_id": broker.placement.controller_id,
        "cluster_authorized_operations": of_cluster,
        "topics": answers,
    }


async def _refused(
    request: Request[MetadataRequest], asked: Sequence[MetadataRequestTopic]
) -> "MetadataResponse":
    """Refuse each topic of v10 and v11 with an id or without a name, as Kafka does."""
    topics: list[MetadataResponseTopic] = [
        {
            "error_code": ErrorCode.invalid_request,
            "name": topic.name or "",
            "topic_id": None,
            "is_internal": False,
            "partitions": [],
            "topic_authorized_operations": NO_BITS,
        }
        async for topic in each(request, asked)
    ]
    return {
        "brokers": [],
        "cluster_id": None,
        "controller_id": -1,
        "cluster_authorized_operations": NO_BITS,
        "topics": topics,
    }


async def _asked_for(
    request: Request[MetadataRequest],
    broker: BrokerParts,
    name: str | None,
    topic_id: UUID | None,
    creation: NewPartitions,
) -> "MetadataResponseTopic":
    try:
        if topic_id is not None:
            known = broker.topics.with_id(topic_id)
            broker.access.check(request.peer, ApiKey.METADATA, TOPIC, known.name)
            topic: Topic | None = known
        elif name is None:
            raise RequestRefused(ErrorCode.invalid_request, "a topic has neither a name nor an id")
        else:
            broker.access.check(request.peer, ApiKey.METADATA, TOPIC, name)
            topic = broker.topics.find(name)
        if topic is None:
            assert name is not None
            check_name(name)
            await _create(request, broker, name, creation)
            raise unknown_topic(name)  # as Kafka, where it is there for the next request
        return await _described(request, broker, topic)
    except HorologError as error:
        code = code_for(error)
        return {
            "error_code": code,
            "name": name,
            "topic_id": topic_id,
            "is_internal": code is not ErrorCode.topic_authorization_failed
            and name in INTERNAL_TOPICS,
            "partitions": [],
        }


async def _create(
    request: Request[MetadataRequest], broker: BrokerParts, name: str, creation: NewPartitions
) -> None:
    may_create = request.body.allow_auto_topic_creation
    if not (may_create and broker.config.auto_create_topics_enable) or name in INTERNAL_TOPICS:
        raise unknown_topic(name)
    access, peer, create = broker.access, request.peer, AclOperation.CREATE
    if not (
        access.sees(peer, create, CLUSTER, CLUSTER_NAME)
        or access.allows_operation(peer, ApiKey.METADATA, create, TOPIC, name)
    ):
        raise refusal(TOPIC)
    if broker.relay is not None:
        broker.relay.create_topic(name, request.client_id, peer)
        return
    creation.take(broker.config.num_partitions)
    mutations = broker.quotas.mutations(request.peer, request.client_id, is_strict=True)
    try:
        await broker.controller.ensure_topic(name, mutations.take)
    except RequestRefused as error:
        if error.code is not ErrorCode.throttling_quota_exceeded:  # no error of Metadata
            raise


async def _described(
    request: Request[MetadataRequest], broker: BrokerParts, topic: Topic
) -> "MetadataResponseTopic":
    partitions = []
    for index in topic.partitions:
        await request.checkpoint()
        placed = broker.placement.partition(topic, index, request.peer.listener)
        partitions.append(_partition(request.version, index, placed))
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": partitions,
    }


def _partition(version: int, index: int, placed: PlacedPartition) -> "MetadataResponsePartition":
    error, leader, epoch, replicas, isr, offline = placed[:6]
    if version < _OTHER_LISTENERS and error is ErrorCode.listener_not_found:
        error = ErrorCode.leader_not_available
    if version < _ALL_REPLICAS and offline:
        error = error or ErrorCode.replica_not_available
        replicas = tuple(replica for replica in replicas if replica not in offline)
        isr = tuple(replica for replica in isr if replica not in offline)
    return {
        "error_code": error,
        "partition_index": index,
        "leader_id": leader,
        "leader_epoch": epoch,
        "replica_nodes": replicas,
        "isr_nodes": isr,
        "offline_replicas": offline,
    }


# --- CreateTopics: creates topics, with partitions and settings -------------------------
#
# v1  validate_only, error messages
# v2  throttle time
# v4  -1 partitions or replicas: the broker's default (KIP-464)
# v5  flexible; the response has partitions, replication factor and settings (KIP-525)
# v6  throttling errors
# v7  topic ids


@api(ApiKey.CREATE_TOPICS)
async def create_topics(
    request: Request[CreateTopicsRequest], broker: BrokerParts
) -> "CreateTopicsResponse | Reply":
    """Create each topic, and return a result for each."""
    if broker.relay is not None:
        from horolog.broker.handlers.relayed_settings import (  # noqa: PLC0415 - only in a cluster
            create_in_cluster,
        )

        created = await create_in_cluster(request, broker, broker.relay)
        return cast("CreateTopicsResponse | Reply", created)
    body = request.body
    named = Counter(topic.name for topic in body.topics)
    described, access, peer = _Described(broker), broker.access, request.peer
    answers: list[CreatableTopicResult] = []
    too_many = _too_many(request, broker)
    mutations = _mutations(request, broker, strict_since=6)
    async for asked in each(request, {topic.name: topic for topic in body.topics}.values()):
        try:
            _refuse_duplicate(asked.name, named)
            if not access.allows(peer, ApiKey.CREATE_TOPICS, TOPIC, asked.name):
                raise RequestRefused(ErrorCode.topic_authorization_failed, "Authorization failed.")
            if too_many is not None:
                raise too_many
            topic = await broker.controller.create_topic(
                _new_topic(asked), mutations.take, validate_only=body.validate_only
            )
            created = _created(described, topic, validate_only=body.validate_only)
            if not access.sees(peer, AclOperation.DESCRIBE_CONFIGS, TOPIC, asked.name):
                created["topic_config_error_code"] = ErrorCode.topic_authorization_failed
                created["num_partitions"] = created["replication_factor"] = -1
                created["configs"] = None
            answers.append(created)
        except HorologError as error:
            answers.append(
                {
                    "name": asked.name,
                    "topic_id": None,
                    "error_code": code_for(error),
                    "error_message": str(error),
                    "num_partitions": -1,
                    "replication_factor": -1,
                    "configs": None,
                }
            )
    return {"throttle_time_ms": mutations.end(), "topics": answers}


def _mutations(request: Request[Any], broker: BrokerParts, strict_since: int) -> Mutations:
    is_strict = request.version >= strict_since
    return broker.quotas.mutations(request.peer, request.client_id, is_strict=is_strict)


def _too_many(request: Request[CreateTopicsRequest], broker: BrokerParts) -> RequestRefused | None:
    """Return the error of a request that creates too many partitions, as Kafka does."""
    left = NewPartitions()
    try:
        for asked in request.body.topics:
            if asked.assignments:
                left.take(len(asked.assignments))
            else:
                count = asked.num_partitions
                left.take(broker.config.num_partitions if count == -1 else count)
    except RequestRefused as error:
        return error
    return None


def _new_topic(asked: CreatableTopic) -> NewTopic:
    assigned = [assignment.partition_index for assignment in asked.assignments]
    repeated = [index for index, count in Counter(assigned).items() if count > 1]
    return NewTopic(
        name=asked.name,
        partitions=asked.num_partitions,
        replication_factor=asked.replication_factor,
        assignments={a.partition_index: tuple(a.broker_ids) for a in asked.assignments},
        repeated=repeated[0] if repeated else None,
        overrides={config.name: config.value for config in asked.configs},
    )


class _Described:
    """Descriptions of the settings of new topics. Topics with equal settings share one."""

    def __init__(self, broker: BrokerParts) -> None:
        self._settings = broker.settings
        self._seen: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]] = {}

    def of(self, topic: Topic) -> "list[CreatableTopicConfigs]":
        key = frozenset(topic.overrides.items())
        found = self._seen.get(key)
        if found is None:
            found = self._seen[key] = [
                {
                    "name": entry.name,
                    "value": entry.value,
                    "read_only": entry.read_only,
                    "config_source": entry.source,
                    "is_sensitive": entry.sensitive,
                }
                for entry in describe_topic(self._settings, topic.overrides)
            ]
        return found


def _created(described: _Described, topic: Topic, *, validate_only: bool) -> "CreatableTopicResult":
    return {
        "name": topic.name,
        "topic_id": None if validate_only else topic.topic_id,
        "error_code": ErrorCode.none,
        "error_message": None,
        "num_partitions": len(topic.partitions),
        "replication_factor": 1,
        "configs": described.of(topic),
    }


# --- CreatePartitions: adds partitions to topics; their number never decreases ----------
#
# v1  as v0
# v2  flexible
# v3  throttling errors


@api(ApiKey.CREATE_PARTITIONS)
async def create_partitions(
    request: Request[CreatePartitionsRequest], broker: BrokerParts
) -> "CreatePartitionsResponse":
    """Add partitions to each topic, and return a result for each."""
    body = request.body
    named = Counter(topic.name for topic in body.topics)
    left = NewPartitions()
    mutations = _mutations(request, broker, strict_since=3)

    async def create(asked: CreatePartitionsTopic) -> None:
        _refuse_duplicate(asked.name, named)
        broker.access.check(request.peer, ApiKey.CREATE_PARTITIONS, TOPIC, asked.name)
        assignments = None
        if asked.assignments is not None:
            assignments = [tuple(assignment.broker_ids) for assignment in asked.assignments]
        topic = broker.topics.named(asked.name)
        left.take(asked.count - len(topic.partitions))
        await broker.controller.create_partitions(
            topic, asked.count, assignments, mutations.take, validate_only=body.validate_only
        )

    results: list[CreatePartitionsTopicResult] = []
    async for asked in each(request, {topic.name: topic for topic in body.topics}.values()):
        error_code, message = await outcome_of(create(asked))
        results.append({"name": asked.name, "error_code": error_code, "error_message": message})
    return {"throttle_time_ms": mutations.end(), "results": results}


def _refuse_duplicate(name: str, named: Counter[str]) -> None:
    if named[name] > 1:
        raise RequestRefused(ErrorCode.invalid_request, f"Duplicate topic name: {name}")


# --- DeleteTopics: deletes topics with their records, settings and committed offsets ----
#
# v1  throttle time; v0 differs in that alone
# v3  TOPIC_DELETION_DISABLED; before, INVALID_REQUEST
# v4  flexible
# v5  error messages, throttling errors
# v6  topics by name or id


_Asked: TypeAlias = tuple[str | None, UUID | None]


@api(ApiKey.DELETE_TOPICS)
async def delete_topics(
    request: Request[DeleteTopicsRequest], broker: BrokerParts
) -> "DeleteTopicsResponse":
    """Delete each topic, and return a result for each. A topic that is repeated stays."""
    body, access, peer = request.body, broker.access, request.peer
    if request.version >= 6:
        asked = [(topic.name, topic.topic_id) for topic in body.topics]
    else:
        asked = [(name, None) for name in body.topic_names]
    named_by_both = await _named_by_both(request, broker, asked)
    mutations = _mutations(request, broker, strict_since=5)
    responses: list[DeletableTopicResult] = []
    async for (name, topic_id), count in each(request, Counter(asked).items()):
        if topic_id is not None and topic_id in named_by_both.values():
            continue  # said of its name
        error_code, message = ErrorCode.none, None
        try:
            _check_named(name, topic_id, count)
            if name in named_by_both:
                topic_id = named_by_both[name]
                raise RequestRefused(
                    ErrorCode.invalid_request,
                    "The provided topic name maps to an ID that was already supplied.",
                )
            if topic_id is None:
                topic = _named(request, broker, name or "")
                topic_id = topic.topic_id
            else:
                topic = broker.topics.with_id(topic_id)
                if access.sees(peer, AclOperation.DESCRIBE, TOPIC, topic.name):
                    name = topic.name
            access.check(peer, ApiKey.DELETE_TOPICS, TOPIC, topic.name)
            name = topic.name
            await broker.controller.delete_topic(topic, mutations.take)
        except HorologError as error:
            error_code, message = code_for(error), str(error)
            if error_code is ErrorCode.topic_deletion_disabled and request.version < 3:
                error_code = ErrorCode.invalid_request
        responses.append(
            {
                "name": name,
                "topic_id": topic_id,
                "error_code": error_code,
                "error_message": message,
            }
        )
    return {"throttle_time_ms": mutations.end(), "responses": responses}


def _named(request: Request[DeleteTopicsRequest], broker: BrokerParts, name: str) -> Topic:
    """Return the topic of this name, if the client may know of it.

    Raises:
        RequestRefused: it may not, or there is none.
    """
    access, peer, api_key = broker.access, request.peer, ApiKey.DELETE_TOPICS
    if not (
        access.sees(peer, AclOperation.DELETE, CLUSTER, CLUSTER_NAME)
        or access.allows_operation(peer, api_key, AclOperation.DESCRIBE, TOPIC, name)
    ):
        raise refusal(TOPIC)
    return broker.topics.named(name)


async def _named_by_both(
    request: Request[DeleteTopicsRequest], broker: BrokerParts, asked: Sequence[_Asked]
) -> dict[str | None, UUID]:
    """Return the topics that the request contains by name and by id."""
    ids = {topic_id for name, topic_id in asked if name is None and topic_id is not None}
    found: dict[str | None, UUID] = {}
    async for name, topic_id in each(request, asked if ids else ()):
        topic = None if name is None or topic_id is not None else broker.topics.find(name)
        if topic is not None and topic.topic_id in ids:
            found[name] = topic.topic_id
    return found


def _check_named(name: str | None, topic_id: UUID | None, count: int) -> None:
    """Refuse a topic without a name and an id, with both, or repeated."""
    if name is not None and topic_id is not None:
        what = "You may not specify both topic name and topic id."
    elif name is None and topic_id is None:
        what = "Neither topic name nor id were specified."
    elif count > 1:
        what = f"Duplicate topic {'name' if topic_id is None else 'id'}."
    else:
        return
    raise RequestRefused(ErrorCode.invalid_request, what)
