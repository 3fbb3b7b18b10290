"""OffsetFetch: the committed offsets of groups.

v0   one without a commit is UNKNOWN_TOPIC_OR_PARTITION; Kafka read these from ZooKeeper, here they
     are the group's, as those of later versions
v1   one without a commit is -1 without an error
v2   all topics on null, and an error for the group
v3   throttle time
v5   leader epoch of the last record read
v6   flexible
v7   require_stable: nothing to wait for without transactions
v8   several groups in one request (KIP-709)
v9   member id and epoch of the new group protocol: not checked, all groups are classic
v10  topics by id

A group that is asked for several times is answered once, and INVALID_REQUEST after that.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Apart, Request, api
from horolog.errors import ErrorCode
from horolog.groups.offsets import TopicPartition
from horolog.groups.rows import OffsetRow
from horolog.metadata.topics import TopicRegistry
from horolog.wire.api import ApiKey
from horolog.wire.requests import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

Committed: TypeAlias = Mapping[TopicPartition, OffsetRow]

_MANY: Final = 1_000  # groups, and partitions asked for or committed


@api(ApiKey.OFFSET_FETCH)
async def offset_fetch(
    request: Request[OffsetFetchRequest], broker: Broker
) -> dict[str, Any] | Apart:
    """Return the committed offsets."""
    body = request.body
    asked = [(body.group_id, body.topics)] if request.version < 8 else _groups(body.groups)
    offsets = broker.groups.offsets
    committed: dict[str, Committed] = {}
    size = len(asked)
    for group_id, topics in asked:
        await request.checkpoint()
        if group_id not in committed:
            committed[group_id] = offsets.of_group(group_id)
            size += len(committed[group_id])
        size += sum(1 + len(topic.partition_indexes) for topic in topics or ())
    make = partial(_answer, request.version, broker.topics, asked, committed)
    return Apart(make) if size > _MANY else make()


_AskedTopic: TypeAlias = OffsetFetchRequestTopic | OffsetFetchRequestTopics
Asked: TypeAlias = "Sequence[tuple[str, Sequence[_AskedTopic] | None]]"


def _groups(groups: Sequence[OffsetFetchRequestGroup]) -> Asked:
    return [(group.group_id, group.topics) for group in groups]


def _answer(
    version: int, topics: TopicRegistry, asked: Asked, committed: Mapping[str, Committed]
) -> dict[str, Any]:
    if version < 8:
        ((group_id, wanted),) = asked
        return {
            "error_code": ErrorCode.none,
            "topics": _topics(version, topics, committed[group_id], wanted),
        }
    answered = set()
    groups = []
    for group_id, wanted in asked:
        if group_id in answered:
            groups.append(
                {"group_id": group_id, "error_code": ErrorCode.invalid_request, "topics": []}
            )
            continue
        answered.add(group_id)
        groups.append(
            {
                "group_id": group_id,
                "error_code": ErrorCode.none,
                "topics": _topics(version, topics, committed[group_id], wanted),
            }
        )
    return {"groups": groups}


def _topics(
    version: int, topics: TopicRegistry, committed: Committed, asked: Sequence[_AskedTopic] | None
) -> list[dict[str, Any]]:
    if asked is None:
        return _all_topics(topics, committed)
    answers: list[dict[str, Any]] = []
    for topic in asked:
        name, topic_id = "", None
        if version < 10 or isinstance(topic, OffsetFetchRequestTopic):
            name = topic.name
        else:
            topic_id = topic.topic_id
            known = topics.find_id(topic_id)
            name = known.name if known is not None else ""
        error_code = ErrorCode.none if name or version < 10 else ErrorCode.unknown_topic_id
        missing = ErrorCode.unknown_topic_or_partition if version == 0 else error_code
        answers.append(
            {
                "name": name,
                "topic_id": topic_id,
                "partitions": [
                    _partition(index, row, missing if row is None else error_code)
                    for index in topic.partition_indexes
                    for row in (committed.get((name, index)),)
                ],
            }
        )
    return answers


def _all_topics(topics: TopicRegistry, committed: Committed) -> list[dict[str, Any]]:
    rows: dict[str, list[OffsetRow]] = {}
    for row in committed.values():
        rows.setdefault(row.topic, []).append(row)
    return [
        {
            "name": name,
            "topic_id": topic.topic_id,
            "partitions": [_partition(row.partition, row) for row in of_topic],
        }
        for name, of_topic in rows.items()
        if (topic := topics.find(name)) is not None
    ]


def _partition(
    index: int, row: OffsetRow | None, error_code: ErrorCode = ErrorCode.none
) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": -1 if row is None else row.committed,
        "committed_leader_epoch": -1 if row is None else row.leader_epoch,
        "metadata": "" if row is None else row.metadata,
        "error_code": error_code,
    }
