"""DeleteRecords and OffsetForLeaderEpoch."""

import logging
from typing import TYPE_CHECKING

from horolog.broker.authorisation import TOPIC, refusal
from horolog.broker.broker import BrokerParts
from horolog.broker.controller import check_owned
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.results import each
from horolog.errors import ErrorCode, HorologError, StorageFailed, code_for
from horolog.storage.log_dir.log_dir import LogDir
from horolog.wire.api import ApiKey
from horolog.wire.requests import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)

if TYPE_CHECKING:
    from horolog.wire.responses import (
        DeleteRecordsPartitionResult,
        DeleteRecordsResponse,
        EpochEndOffset,
        OffsetForLeaderEpochResponse,
    )

# --- DeleteRecords: advances the log start offset of partitions (KIP-107) ---------------
#
# v1  as v0
# v2  flexible


_LOG = logging.getLogger(__name__)


@api(ApiKey.DELETE_RECORDS)
async def delete_records(
    request: Request[DeleteRecordsRequest], broker: BrokerParts
) -> "DeleteRecordsResponse":
    """Advance the log start offsets of partitions; -1 stands for the high watermark.

    A partition that is repeated counts once, with its last offset. The response has no messages, so
    the log contains the reason if a policy refuses. The response waits until the log start offsets
    are on disk. Kafka writes them now and then, and deleted records are back after a kill.
    """
    asked: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in request.body.topics:
        of_topic = asked.setdefault(topic.name, {})
        async for requested in each(request, topic.partitions):
            of_topic[requested.partition_index] = requested
    topics = []
    for name, of_topic in asked.items():
        reasons: set[str] = set()
        is_allowed = broker.access.allows(request.peer, ApiKey.DELETE_RECORDS, TOPIC, name)
        deleted = [
            await _delete(broker, name, requested, reasons, is_allowed=is_allowed)
            async for requested in each(request, of_topic.values())
        ]
        topics.append((name, deleted))
        for reason in sorted(reasons):
            _LOG.warning("DeleteRecords of %s: %s", name, reason)
    outcomes = [outcome for _, deleted in topics for outcome in deleted]
    if any(not outcome["error_code"] for outcome in outcomes):
        try:
            await broker.partitions.run(LogDir.checkpoint_starts)
        except StorageFailed as error:
            async for outcome in each(request, outcomes):
                # The records are gone for readers, but a kill would bring them back: the client
                # is to try again.
                if not outcome["error_code"]:
                    outcome["low_watermark"], outcome["error_code"] = -1, code_for(error)
    return {"topics": [{"name": name, "partitions": deleted} for name, deleted in topics]}


async def _delete(
    broker: BrokerParts,
    topic: str,
    requested: DeleteRecordsPartition,
    reasons: set[str],
    *,
    is_allowed: bool,
) -> "DeleteRecordsPartitionResult":
    """Advance the log start offset of one partition; a policy's reason is added to `reasons`."""
    start, code = -1, ErrorCode.none
    try:
        if not is_allowed:
            raise refusal(TOPIC)
        partition = broker.led(topic, requested.partition_index)
        check_owned(broker.topics.named(topic))
        start = await partition.change(lambda log: log.delete_records(requested.offset))
    except HorologError as error:
        code = code_for(error)
        if code == ErrorCode.policy_violation:
            reasons.add(str(error))
    return {
        "partition_index": requested.partition_index,
        "low_watermark": start,
        "error_code": code,
    }


# --- OffsetForLeaderEpoch: the end offset of a leader epoch (KIP-101, KIP-279) ----------
#
# v1  the epoch found
# v2  the client's current leader epoch is checked (KIP-320)
# v3  replica id: any may ask
# v4  flexible


@api(ApiKey.OFFSET_FOR_LEADER_EPOCH)
async def offset_for_leader_epoch(
    request: Request[OffsetForLeaderEpochRequest], broker: BrokerParts
) -> "OffsetForLeaderEpochResponse":
    """Return the largest epoch up to the requested one, and its end offset."""
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [
                    _end(broker, topic.topic, requested, is_allowed=is_allowed)
                    async for requested in each(request, topic.partitions)
                ],
            }
            for topic in request.body.topics
            for is_allowed in [
                broker.access.allows(
                    request.peer, ApiKey.OFFSET_FOR_LEADER_EPOCH, TOPIC, topic.topic
                )
            ]
        ]
    }


def _end(
    broker: BrokerParts, topic: str, requested: OffsetForLeaderPartition, *, is_allowed: bool
) -> "EpochEndOffset":
    error_code, epoch, end_offset = ErrorCode.none, -1, -1
    try:
        if not is_allowed:
            raise refusal(TOPIC)
        log = broker.led(topic, requested.partition, requested.current_leader_epoch).log
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
