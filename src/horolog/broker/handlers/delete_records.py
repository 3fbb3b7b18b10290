"""DeleteRecords: let partitions begin later (KIP-107).

v1  as v0
v2  flexible
"""

from typing import Any

from horolog.broker.broker import Broker
from horolog.broker.controller import check_owned
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode, HorologError, code_for
from horolog.wire.api import ApiKey


@api(ApiKey.DELETE_RECORDS)
async def delete_records(request: Request, broker: Broker) -> dict[str, Any]:
    """Each partition, or why not; -1 deletes all there is now."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [await _delete(broker, topic.name, p) for p in topic.partitions],
            }
            for topic in request.body.topics
        ]
    }


async def _delete(broker: Broker, topic: str, wanted: Any) -> dict[str, Any]:
    error_code, low_watermark = ErrorCode.none, -1
    try:
        partition = broker.partition(topic, wanted.partition_index)
        check_owned(broker.topics.named(topic))
        low_watermark = await partition.run(lambda: partition.log.delete_records(wanted.offset))
    except HorologError as error:
        error_code = code_for(error)
    return {
        "partition_index": wanted.partition_index,
        "low_watermark": low_watermark,
        "error_code": error_code,
    }
