"""OffsetFetch: how far groups have read.

v1   offsets by topic and partition; one without a commit is -1 without an error
v2   all topics on null, and an error for the group
v3   throttle time
v5   leader epoch of the last record read
v6   flexible
v7   require_stable: nothing to wait for without transactions
v8   several groups in one request (KIP-709)
v9   member id and epoch of the new group protocol: not checked, all groups are classic
v10  topics by id
"""

from collections.abc import Sequence
from typing import Any

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode
from horolog.groups.rows import OffsetRow
from horolog.wire.api import ApiKey


@api(ApiKey.OFFSET_FETCH)
def offset_fetch(request: Request, broker: Broker) -> dict[str, Any]:
    """What the groups have committed."""
    body = request.body
    if request.version < 8:
        topics = _topics(request, broker, body.group_id, body.topics)
        return {"error_code": ErrorCode.none, "topics": topics}
    return {
        "groups": [
            {
                "group_id": group.group_id,
                "error_code": ErrorCode.none,
                "topics": _topics(request, broker, group.group_id, group.topics),
            }
            for group in body.groups
        ]
    }


def _topics(
    request: Request, broker: Broker, group_id: str, asked: Sequence[Any] | None
) -> list[dict[str, Any]]:
    if asked is None:
        return _all_topics(broker, group_id)
    answers: list[dict[str, Any]] = []
    for topic in asked:
        known = None
        if request.version >= 10:
            known = broker.topics.find_id(topic.topic_id)
            name = known.name if known is not None else ""
        else:
            name = topic.name
        unknown_id = request.version >= 10 and known is None
        answers.append(
            {
                "name": name,
                "topic_id": getattr(topic, "topic_id", None),
                "partitions": [
                    _unknown_id(index)
                    if unknown_id
                    else _partition(index, broker.groups.offsets.get(group_id, name, index))
                    for index in topic.partition_indexes
                ],
            }
        )
    return answers


def _all_topics(broker: Broker, group_id: str) -> list[dict[str, Any]]:
    rows: dict[str, list[OffsetRow]] = {}
    for row in broker.groups.offsets.of_group(group_id):
        rows.setdefault(row.topic, []).append(row)
    return [
        {
            "name": name,
            "topic_id": topic.topic_id,
            "partitions": [_partition(row.partition, row) for row in of_topic],
        }
        for name, of_topic in rows.items()
        if (topic := broker.topics.find(name)) is not None
    ]


def _partition(index: int, row: OffsetRow | None) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": -1 if row is None else row.committed,
        "committed_leader_epoch": -1 if row is None else row.leader_epoch,
        "metadata": "" if row is None else row.metadata,
        "error_code": ErrorCode.none,
    }


def _unknown_id(index: int) -> dict[str, Any]:
    return {**_partition(index, None), "error_code": ErrorCode.unknown_topic_id}
