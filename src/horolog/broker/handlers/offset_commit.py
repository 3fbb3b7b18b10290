"""OffsetCommit: a group notes how far it has read.

v2   retention time of its own for these offsets, until v4
v3   throttle time
v6   leader epoch of the last record read
v7   group instance id (KIP-345)
v8   flexible
v9   a group that is not there is GROUP_ID_NOT_FOUND (KIP-848)
v10  topics by id
"""

from typing import Any

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode, HorologError, RequestRefused, StorageFailed, code_for
from horolog.groups.rows import OffsetRow
from horolog.metadata.topics import Topic, unknown_topic
from horolog.wire.api import ApiKey


@api(ApiKey.OFFSET_COMMIT)
async def offset_commit(request: Request, broker: Broker) -> dict[str, Any]:
    """Keep what can be kept; each partition has its own error."""
    body = request.body
    rows: list[OffsetRow] = []
    topics = []
    refused = _refusal(request, broker)
    for asked in body.topics:
        partitions = []
        for wanted in asked.partitions:
            error_code = refused
            if refused is ErrorCode.none:
                try:
                    rows.append(_row(request, broker, asked, wanted))
                except RequestRefused as error:
                    error_code = code_for(error)
            partitions.append({"partition_index": wanted.partition_index, "error_code": error_code})
        topics.append(
            {
                "name": getattr(asked, "name", ""),
                "topic_id": getattr(asked, "topic_id", None),
                "partitions": partitions,
            }
        )
    try:
        await broker.groups.commit(body.group_id, rows)
    except StorageFailed:
        # As Kafka has it: clients look for the coordinator and try again; of 56 they give up.
        _fail_all(topics, ErrorCode.not_coordinator)
    except HorologError as error:
        _fail_all(topics, code_for(error))
    return {"topics": topics}


def _refusal(request: Request, broker: Broker) -> ErrorCode:
    """Why this member may not commit now, or none."""
    body = request.body
    generation = body.generation_id_or_member_epoch
    try:
        broker.groups.check_commit(
            body.group_id, body.member_id, getattr(body, "group_instance_id", None), generation
        )
    except RequestRefused as error:
        missing = broker.groups.describe(body.group_id) is None
        if missing and request.version >= 9:
            return ErrorCode.group_id_not_found
        return code_for(error)
    return ErrorCode.none


def _row(request: Request, broker: Broker, asked: Any, wanted: Any) -> OffsetRow:
    topic = _topic(request, broker, asked)
    if wanted.partition_index not in topic.partitions:
        raise unknown_topic(topic.name)
    metadata = wanted.committed_metadata or ""
    if len(metadata.encode()) > broker.config.offset_metadata_max_bytes:
        raise RequestRefused(ErrorCode.offset_metadata_too_large, "offset.metadata.max.bytes")
    now_ms = broker.clock.now_ms()
    retention_ms = getattr(request.body, "retention_time_ms", -1)
    return OffsetRow(
        request.body.group_id,
        topic.name,
        wanted.partition_index,
        wanted.committed_offset,
        getattr(wanted, "committed_leader_epoch", -1),
        metadata,
        now_ms,
        None if retention_ms < 0 else now_ms + retention_ms,
    )


def _topic(request: Request, broker: Broker, asked: Any) -> Topic:
    if request.version >= 10:
        return broker.topics.with_id(asked.topic_id)
    return broker.topics.named(asked.name)


def _fail_all(topics: list[dict[str, Any]], error_code: ErrorCode) -> None:
    for topic in topics:
        for partition in topic["partitions"]:
            if partition["error_code"] is ErrorCode.none:
                partition["error_code"] = error_code
