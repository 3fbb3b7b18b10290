"""OffsetForLeaderEpoch: the end offset of a leader epoch (KIP-101, KIP-279).

v1  the epoch found
v2  the client's current leader epoch is checked (KIP-320)
v3  replica id: any may ask
v4  flexible
"""

from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode, HorologError, code_for
from horolog.wire.api import ApiKey
from horolog.wire.requests import OffsetForLeaderEpochRequest, OffsetForLeaderPartition

if TYPE_CHECKING:
    from horolog.wire.responses import (
        EpochEndOffset,
        OffsetForLeaderEpochResponse,
        OffsetForLeaderTopicResult,
    )


@api(ApiKey.OFFSET_FOR_LEADER_EPOCH)
async def offset_for_leader_epoch(
    request: Request[OffsetForLeaderEpochRequest], broker: Broker
) -> "OffsetForLeaderEpochResponse":
    """The largest epoch not above the one asked for, and the offset after its last record."""
    topics: list[OffsetForLeaderTopicResult] = []
    for topic in request.body.topics:
        partitions: list[EpochEndOffset] = []
        for requested in topic.partitions:
            await request.checkpoint()
            partitions.append(_end(broker, topic.topic, requested))
        topics.append({"topic": topic.topic, "partitions": partitions})
    return {"topics": topics}


def _end(broker: Broker, topic: str, requested: OffsetForLeaderPartition) -> "EpochEndOffset":
    error_code, epoch, end_offset = ErrorCode.none, -1, -1
    try:
        log = broker.partition(topic, requested.partition).log
        log.check_epoch(requested.current_leader_epoch)
        end = log.end_of_epoch(requested.leader_epoch)
        if end is not None:
            epoch, end_offset = end
    except HorologError as error:
        error_code = code_for(error)
    return {
        "error_code": error_code,
        "partition": requested.partition,
        "leader_epoch": epoch,
        "end_offset": end_offset,
    }
