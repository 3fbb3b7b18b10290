"""DescribeLogDirs: the partitions in the log directory and their sizes (KIP-113).

v1  as v0
v2  flexible
v3  an error for the whole answer
v4  total and usable bytes of the volume (KIP-827)
v5  usable bytes may be unknown
"""

import asyncio
import shutil
from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode
from horolog.wire.api import ApiKey
from horolog.wire.requests import DescribeLogDirsRequest

if TYPE_CHECKING:
    from horolog.wire.responses import (
        DescribeLogDirsPartition,
        DescribeLogDirsResponse,
    )


@api(ApiKey.DESCRIBE_LOG_DIRS)
async def describe_log_dirs(
    request: Request[DescribeLogDirsRequest], broker: Broker
) -> "DescribeLogDirsResponse":
    """Describe the log directory with the requested partitions."""
    asked = request.body.topics
    requested: set[tuple[str, int]] | None = None
    if asked is not None:
        requested = set[tuple[str, int]]()
        for asked_topic in asked:
            await request.checkpoint()
            requested.update((asked_topic.topic, index) for index in asked_topic.partitions)
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    for (topic, index), partition in list(broker.partitions.items()):
        await request.checkpoint()
        if requested is None or (topic, index) in requested:
            by_topic.setdefault(topic, []).append(
                {
                    "partition_index": index,
                    "partition_size": partition.log.size,
                    "offset_lag": 0,
                    "is_future_key": False,
                }
            )
    loop = asyncio.get_running_loop()
    volume = await loop.run_in_executor(broker.readers, shutil.disk_usage, broker.log_dir_path)
    return {
        "error_code": ErrorCode.none,
        "results": [
            {
                "error_code": ErrorCode.none,
                "log_dir": str(broker.log_dir_path),
                "topics": [
                    {"name": name, "partitions": partitions}
                    for name, partitions in by_topic.items()
                ],
                "total_bytes": volume.total,
                "usable_bytes": volume.free,
            }
        ],
    }
