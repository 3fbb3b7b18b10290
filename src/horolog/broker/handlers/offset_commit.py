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

from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from horolog.broker.authorisation import Authorise
from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api, shortcut
from horolog.broker.handlers.committing import (
    commit_rows,
    existing_rows,
    expiry_ms,
    named_topics,
    offset_row,
)
from horolog.broker.handlers.group_errors import commit_error_code
from horolog.broker.handlers.repeated_commits import RepeatedCommit, keep
from horolog.errors import ErrorCode, HorologError, code_for
from horolog.groups.rows import OffsetRow
from horolog.groups.values import Committer
from horolog.metadata.topics import Topic, unknown_topic
from horolog.network.peer import Peer
from horolog.network.reply import Reply
from horolog.wire.api import ApiKey
from horolog.wire.offset_commit import (
    CommitRequest,
    CommittedTopic,
    committed,
    read_commit,
)
from horolog.wire.requests import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

if TYPE_CHECKING:
    from horolog.wire.responses import OffsetCommitResponse


_BY_ID: Final = 10


@api(ApiKey.OFFSET_COMMIT)
async def offset_commit(
    request: Request[OffsetCommitRequest], broker: Broker
) -> "OffsetCommitResponse":
    """Commit the valid offsets; each partition has its own error."""
    body = request.body
    now_ms = broker.clock.now_ms()
    expire_ms = expiry_ms(body.retention_time_ms, now_ms)

    def row(topic: Topic, requested: OffsetCommitRequestPartition) -> OffsetRow:
        said_ms = requested.commit_timestamp  # in v1; but not later than now: it would not expire
        commit_ms = min(said_ms, now_ms) if said_ms >= 0 else now_ms
        return offset_row(broker, body.group_id, topic, requested, commit_ms, expire_ms)

    topics = await named_topics(
        request,
        ((partial(_topic, request, broker, asked), asked.partitions) for asked in body.topics),
        row,
    )
    committer = Committer(
        body.member_id,
        body.group_instance_id,
        body.generation_id_or_member_epoch,
    )
    try:
        await broker.groups.commit(body.group_id, committer, partial(existing_rows, broker, topics))
    except HorologError as error:
        for topic in topics:
            topic.fail(commit_error_code(error, request.version))
    return {
        "topics": [
            {"name": asked.name, "topic_id": asked.topic_id, "partitions": of_topic.partitions}
            for asked, of_topic in zip(body.topics, topics, strict=True)
        ]
    }


@shortcut(ApiKey.OFFSET_COMMIT)
def commit_columns(
    broker: Broker, authorise: Authorise, peer: Peer, frame: bytes
) -> Reply | Coroutine[Any, Any, Reply] | None:
    """Commit offsets without decoding the request by its schema.

    None if one of them would be refused by itself, or the request is of another form.
    """
    repeated = peer.last_commit
    if isinstance(repeated, RepeatedCommit):
        reply = repeated.answer(broker, authorise, peer, frame)
        if reply is not None:
            return reply
    asked = read_commit(frame)
    if asked is None:
        return None
    topics = []
    for named in asked.topics:
        topic = _found(broker, asked.version, named)
        if topic is None:
            return None
        topics.append(topic)
    authorise(peer, ApiKey.OFFSET_COMMIT)
    codes = [ErrorCode.none] * len(topics)
    committer = Committer(asked.member_id, asked.instance_id, asked.generation)
    rows = partial(_rows, broker, asked, topics, codes)
    try:
        waiting = broker.groups.commit_now(asked.group_id, committer, rows)
    except HorologError as error:
        codes = _refused(asked, codes, error)
    else:
        if waiting is not None:
            return _commit_later(asked, codes, waiting)
        if not any(codes):
            keep(broker, peer, frame, asked, topics)
    return (committed(asked, codes),)


async def _commit_later(
    asked: CommitRequest, codes: list[ErrorCode], waiting: Awaitable[None]
) -> Reply:
    try:
        await waiting
    except HorologError as error:
        codes = _refused(asked, codes, error)
    return (committed(asked, codes),)


def _refused(asked: CommitRequest, codes: list[ErrorCode], error: HorologError) -> list[ErrorCode]:
    refused = commit_error_code(error, asked.version)
    return [code or refused for code in codes]


def _found(broker: Broker, version: int, named: CommittedTopic) -> Topic | None:
    """The topic, if all its offsets can be committed."""
    topics, most_bytes = broker.topics, broker.config.offset_metadata_max_bytes
    topic = topics.find_id(named.topic_id) if version >= _BY_ID else topics.find(named.name)
    if topic is None or not topic.has_partitions(named.partitions):
        return None
    if any(named.metadata) and max(map(len, map(str.encode, named.metadata))) > most_bytes:
        return None
    return topic


def _rows(
    broker: Broker, asked: CommitRequest, topics: list[Topic], codes: list[ErrorCode]
) -> list[OffsetRow]:
    """The offsets to commit, of topics that still exist; the others get their error codes."""
    existing: list[Topic | None] = []
    for number, topic in enumerate(topics):
        exists = broker.topics.find_id(topic.topic_id) is not None
        existing.append(topic if exists else None)
        if not exists:
            codes[number] = code_for(unknown_topic(topic.name))
    return commit_rows(asked, existing, broker.clock.now_ms())


def _topic(
    request: Request[OffsetCommitRequest], broker: Broker, asked: OffsetCommitRequestTopic
) -> Topic:
    if request.version >= _BY_ID:
        return broker.topics.with_id(asked.topic_id)
    return broker.topics.named(asked.name)
