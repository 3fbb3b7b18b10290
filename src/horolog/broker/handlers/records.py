"""DeleteRecords and OffsetForLeaderEpoch."""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from horolog.broker.authorisation import TOPIC, refusal
from horolog.broker.broker import BrokerParts
from horolog.broker.controller import check_owned
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.replicated import Replicating, unreplicated
from horolog.broker.handlers.results import each
from horolog.broker.partition import Partition
from horolog.broker.scheduling.delayed import Mark
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

    In a cluster it waits until the logs of all live replicas start there, too. After the timeout it
    has the smallest log start, with REQUEST_TIMED_OUT.
    """
    asked: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in request.body.topics:
        of_topic = asked.setdefault(topic.name, {})
        async for requested in each(request, topic.partitions):
            of_topic[requested.partition_index] = requested
    topics = []
    waiting: dict[Partition, Replicating] = {}
    for name, of_topic in asked.items():
        reasons: set[str] = set()
        is_allowed = broker.access.allows(request.peer, ApiKey.DELETE_RECORDS, TOPIC, name)
        deleted = [
            await _delete(broker, name, requested, reasons, waiting, is_allowed=is_allowed)
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
    if waiting:
        await _wait_for_replicas(request, broker, waiting, dict(topics))
    return {"topics": [{"name": name, "partitions": deleted} for name, deleted in topics]}


async def _wait_for_replicas(
    request: Request[DeleteRecordsRequest],
    broker: BrokerParts,
    waiting: Mapping[Partition, Replicating],
    topics: "Mapping[str, Sequence[DeleteRecordsPartitionResult]]",
) -> None:
    """Wait for the log starts of replicas, and set the outcomes of their partitions."""
    mark = Mark.LOW_WATERMARK
    refusals = await unreplicated(broker, request.peer, waiting, request.body.timeout_ms, mark)
    request.has_waited()
    by_name = {(partition.topic, partition.index): partition for partition in waiting}
    for name, deleted in topics.items():
        async for outcome in each(request, deleted):
            partition = by_name.get((name, outcome["partition_index"]))
            if partition is not None and not outcome.get("error_code"):
                error = refusals.get(partition)
                outcome["error_code"] = ErrorCode.none if error is None else code_for(error)
                if outcome["error_code"] in (ErrorCode.none, ErrorCode.request_timed_out):
                    outcome["low_watermark"] = partition.mark(mark)
                else:
                    outcome["low_watermark"] = -1


async def _delete(
    broker: BrokerParts,
    topic: str,
    requested: DeleteRecordsPartition,
    reasons: set[str],
    waiting: dict[Partition, Replicating],
    *,
    is_allowed: bool,
) -> "DeleteRecordsPartitionResult":
    """Advance the log start offset of one partition.

    A policy's reason is added to `reasons`, a partition with other replicas to `waiting`.
    """
    start, code = -1, ErrorCode.none
    try:
        if not is_allowed:
            raise refusal(TOPIC)
        partition = broker.led(topic, requested.partition_index)
        check_owned(broker.topics.named(topic))
        leading = partition.leading
        start = await partition.change(lambda log: log.delete_records(requested.offset))
        if leading is not None:
            offset = start if requested.offset < 0 else requested.offset
            waiting[partition] = Replicating(offset, leading)
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
