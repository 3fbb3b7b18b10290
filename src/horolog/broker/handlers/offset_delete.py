"""OffsetDelete: forget offsets of topics that a group no longer reads (KIP-496).

v0  never flexible
"""

from typing import Any

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode, HorologError, code_for
from horolog.wire.api import ApiKey


@api(ApiKey.OFFSET_DELETE)
async def offset_delete(request: Request, broker: Broker) -> dict[str, Any]:
    """Forget each offset, unless the group reads its topic."""
    body = request.body
    try:
        subscribed = await broker.groups.delete_offsets(
            body.group_id,
            [
                (topic.name, partition.partition_index)
                for topic in body.topics
                for partition in topic.partitions
            ],
        )
    except HorologError as error:
        return {"error_code": code_for(error), "topics": []}
    return {
        "error_code": ErrorCode.none,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": partition.partition_index,
                        "error_code": _error(broker, topic.name, topic.name in subscribed),
                    }
                    for partition in topic.partitions
                ],
            }
            for topic in body.topics
        ],
    }


def _error(broker: Broker, topic: str, is_subscribed: bool) -> ErrorCode:
    if is_subscribed:
        return ErrorCode.group_subscribed_to_topic
    if topic not in broker.topics:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.none
