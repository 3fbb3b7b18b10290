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
        still_reads = broker.groups.check_offsets_deletable(body.group_id)
        gone = [
            (topic.name, partition.partition_index)
            for topic in body.topics
            if not still_reads(topic.name)
            for partition in topic.partitions
        ]
        await broker.groups.delete_offsets(body.group_id, gone)
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
                        "error_code": _error(broker, topic.name, still_reads(topic.name)),
                    }
                    for partition in topic.partitions
                ],
            }
            for topic in body.topics
        ],
    }


def _error(broker: Broker, topic: str, is_read: bool) -> ErrorCode:
    if is_read:
        return ErrorCode.group_subscribed_to_topic
    if topic not in broker.topics:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.none
