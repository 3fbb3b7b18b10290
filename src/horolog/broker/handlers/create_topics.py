"""CreateTopics: make topics, with partitions and settings.

v2  throttle time; validate_only and error messages are older
v4  -1 partitions or replicas: the broker's default (KIP-464)
v5  flexible; the answer tells partitions, replication factor and settings (KIP-525)
v6  throttling errors: never
v7  topic ids
"""

from collections import Counter
from typing import Any

from horolog.broker.broker import Broker
from horolog.broker.controller import NewTopic
from horolog.broker.dispatch import Request, api
from horolog.config import describe_topic
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.metadata.topics import Topic
from horolog.wire.api import ApiKey


@api(ApiKey.CREATE_TOPICS)
async def create_topics(request: Request, broker: Broker) -> dict[str, Any]:
    """Create each topic, or say why not."""
    body = request.body
    named = Counter(topic.name for topic in body.topics)
    answers = []
    for asked in {topic.name: topic for topic in body.topics}.values():
        try:
            if named[asked.name] > 1:
                raise RequestRefused(
                    ErrorCode.invalid_request, f"Duplicate topic name: {asked.name}"
                )
            topic = await broker.controller.create_topic(
                _new_topic(asked), validate_only=body.validate_only
            )
            answers.append(_created(broker, topic, validate_only=body.validate_only))
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


def _new_topic(asked: Any) -> NewTopic:
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


def _created(broker: Broker, topic: Topic, *, validate_only: bool) -> dict[str, Any]:
    entries = describe_topic(broker.settings, topic.overrides)
    return {
        "name": topic.name,
        "topic_id": None if validate_only else topic.topic_id,
        "error_code": ErrorCode.none,
        "error_message": None,
        "num_partitions": len(topic.partitions),
        "replication_factor": 1,
        "configs": [
            {
                "name": entry.name,
                "value": entry.value,
                "read_only": entry.read_only,
                "config_source": entry.source,
                "is_sensitive": entry.sensitive,
            }
            for entry in entries
        ],
    }
