"""OffsetCommit: stores the offsets of a consumer group.

v0   no member: a commit without a generation. Kafka stored these in ZooKeeper, here they are the
     group's, as those of later versions
v1   member and generation; a time of its own for each offset, until v1
v2   retention time of its own for these offsets, until v4
v3   throttle time
v6   leader epoch of the last record read
v7   group instance id (KIP-345)
v8   flexible
v9   a group that is not there is GROUP_ID_NOT_FOUND (KIP-848)
v10  topics by id
"""

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.group_errors import group_error_code
from horolog.config import LONG_MAX
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.groups.rows import OffsetRow
from horolog.groups.values import Committer
from horolog.metadata.topics import Topic, unknown_topic
from horolog.wire.api import ApiKey
from horolog.wire.requests import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

if TYPE_CHECKING:
    from horolog.wire.responses import (
        OffsetCommitResponse,
        OffsetCommitResponsePartition,
        OffsetCommitResponseTopic,
    )


@dataclass(slots=True)
class _OfTopic:
    """One topic of a request, and its results."""

    topic: Topic | None
    answer: "OffsetCommitResponseTopic"
    rows: list[OffsetRow] = field(default_factory=list)

    def fail(self, error_code: ErrorCode) -> None:
        """Refuse the partitions that were not refused before."""
        for partition in self.answer["partitions"]:
            if partition["error_code"] is ErrorCode.none:
                partition["error_code"] = error_code


@api(ApiKey.OFFSET_COMMIT)
async def offset_commit(
    request: Request[OffsetCommitRequest], broker: Broker
) -> "OffsetCommitResponse":
    """Commit the valid offsets; each partition has its own error."""
    body = request.body
    topics = await _topics(request, broker)
    committer = Committer(
        body.member_id,
        body.group_instance_id,
        body.generation_id_or_member_epoch,
    )
    try:
        await broker.groups.commit(body.group_id, committer, partial(_rows, broker, topics))
    except HorologError as error:
        for topic in topics:
            topic.fail(_error_code(error, request.version))
    return {"topics": [topic.answer for topic in topics]}


def _rows(broker: Broker, topics: list[_OfTopic]) -> list[OffsetRow]:
    """The offsets to commit, of topics that still exist."""
    rows: list[OffsetRow] = []
    for of_topic in topics:
        if of_topic.topic is None:
            continue
        if broker.topics.find_id(of_topic.topic.topic_id) is None:
            of_topic.fail(code_for(unknown_topic(of_topic.topic.name)))
        else:
            rows += of_topic.rows
    return rows


async def _topics(request: Request[OffsetCommitRequest], broker: Broker) -> list[_OfTopic]:
    topics = []
    partitions_of: dict[UUID, frozenset[int]] = {}  # a topic may be named often
    for asked in request.body.topics:
        partitions: list[OffsetCommitResponsePartition] = []
        answer: OffsetCommitResponseTopic = {
            "name": asked.name,
            "topic_id": asked.topic_id,
            "partitions": partitions,
        }
        try:
            of_topic = _OfTopic(_topic(request, broker, asked), answer)
            refused = ErrorCode.none
        except RequestRefused as error:
            of_topic = _OfTopic(None, answer)
            refused = code_for(error)
        topics.append(of_topic)
        known: frozenset[int] = frozenset()
        if of_topic.topic is not None:
            topic_id = of_topic.topic.topic_id
            if topic_id not in partitions_of:
                partitions_of[topic_id] = frozenset(of_topic.topic.partitions)
            known = partitions_of[topic_id]
        for wanted in asked.partitions:
            await request.checkpoint()
            error_code = refused
            if of_topic.topic is not None:
                try:
                    if wanted.partition_index not in known:
                        raise unknown_topic(of_topic.topic.name)
                    of_topic.rows.append(_row(request, broker, of_topic.topic, wanted))
                except RequestRefused as error:
                    error_code = code_for(error)
            partitions.append({"partition_index": wanted.partition_index, "error_code": error_code})
    return topics


def _topic(
    request: Request[OffsetCommitRequest], broker: Broker, asked: OffsetCommitRequestTopic
) -> Topic:
    if request.version >= 10:
        return broker.topics.with_id(asked.topic_id)
    return broker.topics.named(asked.name)


def _row(
    request: Request[OffsetCommitRequest],
    broker: Broker,
    topic: Topic,
    wanted: OffsetCommitRequestPartition,
) -> OffsetRow:
    metadata = wanted.committed_metadata or ""
    if len(metadata.encode()) > broker.config.offset_metadata_max_bytes:
        raise RequestRefused(ErrorCode.offset_metadata_too_large, "offset.metadata.max.bytes")
    now_ms = broker.clock.now_ms()
    retention_ms = request.body.retention_time_ms
    committed_ms = now_ms  # v1 may say when, but not later than now: it would not expire
    if wanted.commit_timestamp >= 0:
        committed_ms = min(wanted.commit_timestamp, now_ms)
    return OffsetRow(
        request.body.group_id,
        topic.name,
        wanted.partition_index,
        wanted.committed_offset,
        wanted.committed_leader_epoch,
        metadata,
        committed_ms,
        None if retention_ms < 0 else min(now_ms + retention_ms, LONG_MAX),
        topic.topic_id,
    )


def _error_code(error: HorologError, version: int) -> ErrorCode:
    error_code = group_error_code(error)
    if error_code is ErrorCode.group_id_not_found and version < 9:
        return ErrorCode.illegal_generation
    return error_code
