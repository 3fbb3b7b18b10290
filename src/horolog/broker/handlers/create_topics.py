"""CreateTopics: creates topics, with partitions and settings.

v1  validate_only, error messages
v2  throttle time
v4  -1 partitions or replicas: the broker's default (KIP-464)
v5  flexible; the response has partitions, replication factor and settings (KIP-525)
v6  throttling errors: never
v7  topic ids
"""

from collections import Counter
from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.controller import NewTopic
from horolog.broker.dispatch import Request, api
from horolog.config import describe_topic
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.metadata.topics import NewPartitions, Topic
from horolog.wire.api import ApiKey
from horolog.wire.requests import CreatableTopic, CreateTopicsRequest

if TYPE_CHECKING:
    from horolog.wire.responses import (
        CreatableTopicConfigs,
        CreatableTopicResult,
        CreateTopicsResponse,
    )


@api(ApiKey.CREATE_TOPICS)
async def create_topics(
    request: Request[CreateTopicsRequest], broker: Broker
) -> "CreateTopicsResponse":
    """Create each topic; one result or error each."""
    body = request.body
    named = Counter(topic.name for topic in body.topics)
    described = _Described(broker)
    answers: list[CreatableTopicResult] = []
    refusal = _refusal(request, broker)
    for asked in {topic.name: topic for topic in body.topics}.values():
        await request.checkpoint()
        try:
            if refusal is not None:
                raise refusal
            if named[asked.name] > 1:
                raise RequestRefused(
                    ErrorCode.invalid_request, f"Duplicate topic name: {asked.name}"
                )
            topic = await broker.controller.create_topic(
                _new_topic(asked), validate_only=body.validate_only
            )
            answers.append(_created(described, topic, validate_only=body.validate_only))
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
    return {"topics": answers}


def _refusal(request: Request[CreateTopicsRequest], broker: Broker) -> RequestRefused | None:
    """Why the request as a whole creates too much, as in Kafka."""
    left = NewPartitions()
    try:
        for asked in request.body.topics:
            if asked.assignments:
                left.take(len(asked.assignments))
            else:
                count = asked.num_partitions
                left.take(broker.config.num_partitions if count == -1 else count)
    except RequestRefused as refusal:
        return refusal
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
    """The settings of new topics, described once for all that have the same."""

    def __init__(self, broker: Broker) -> None:
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
