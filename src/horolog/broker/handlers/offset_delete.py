"""OffsetDelete: deletes offsets of topics that a group does not subscribe to (KIP-496).

v0  never flexible
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Apart, Request, api
from horolog.broker.handlers.group_errors import group_error_code
from horolog.broker.scheduling.codec_threads import Checkpoint, no_checkpoint
from horolog.errors import ErrorCode, HorologError
from horolog.metadata.topics import Topic
from horolog.wire.api import ApiKey
from horolog.wire.requests import OffsetDeleteRequest

if TYPE_CHECKING:
    from horolog.wire.responses import (
        OffsetDeleteResponse,
        OffsetDeleteResponsePartition,
        OffsetDeleteResponseTopic,
    )

_MANY: Final = 1_000  # partitions


@api(ApiKey.OFFSET_DELETE)
async def offset_delete(
    request: Request[OffsetDeleteRequest], broker: Broker
) -> "OffsetDeleteResponse | Apart":
    """Delete each offset, unless the group subscribes to its topic."""
    body = request.body
    keys = [
        (topic.name, partition.partition_index)
        for topic in body.topics
        for partition in topic.partitions
    ]
    try:
        subscribed = await broker.groups.delete_offsets(body.group_id, keys)
    except HorologError as error:
        return {"error_code": group_error_code(error), "topics": []}
    make = partial(_answer, broker, body, subscribed)
    if len(keys) > _MANY:
        return Apart(make)
    return make()


def _answer(
    broker: Broker,
    body: OffsetDeleteRequest,
    subscribed: frozenset[str],
    checkpoint: Checkpoint = no_checkpoint,
) -> "OffsetDeleteResponse":
    topics: list[OffsetDeleteResponseTopic] = []
    for topic in body.topics:
        known, is_subscribed = broker.topics.find(topic.name), topic.name in subscribed
        partitions: list[OffsetDeleteResponsePartition] = []
        for partition in topic.partitions:
            checkpoint()
            index = partition.partition_index
            error_code = _error(known, index, is_subscribed=is_subscribed)
            partitions.append({"partition_index": index, "error_code": error_code})
        topics.append({"name": topic.name, "partitions": partitions})
    return {"error_code": ErrorCode.none, "topics": topics}


def _error(topic: Topic | None, index: int, *, is_subscribed: bool) -> ErrorCode:
    if topic is None or not topic.has_partition(index):
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.group_subscribed_to_topic if is_subscribed else ErrorCode.none
