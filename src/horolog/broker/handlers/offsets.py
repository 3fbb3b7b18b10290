"""Requests that read or delete the committed offsets of groups."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from horolog.broker.authorisation import GROUP, TOPIC
from horolog.broker.broker import BrokerParts
from horolog.broker.coordinators.group_coordinator import GroupCoordinator
from horolog.broker.dispatch import Apart, Request, api
from horolog.broker.handlers.groups import group_error_code
from horolog.broker.handlers.results import apart_if
from horolog.broker.scheduling.codec_threads import Checkpoint
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.groups.consumers.commits import check_fetch
from horolog.groups.rows import OffsetRow
from horolog.metadata.topics import Topic, TopicRegistry
from horolog.offsets import TopicPartition
from horolog.wire.acl import AclOperation
from horolog.wire.api import ApiKey
from horolog.wire.requests import (
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

if TYPE_CHECKING:
    from horolog.wire.responses import (
        OffsetDeleteResponse,
        OffsetDeleteResponsePartition,
        OffsetDeleteResponseTopic,
        OffsetFetchResponse,
        OffsetFetchResponseGroup,
        OffsetFetchResponsePartition,
    )

# --- OffsetFetch: the committed offsets of groups ---------------------------------------
#
# v0   one without a commit is UNKNOWN_TOPIC_OR_PARTITION; Kafka read these from ZooKeeper, here
#      they are the group's, as those of later versions
# v1   one without a commit is -1 without an error
# v2   all topics on null, and an error for the group
# v3   throttle time
# v5   leader epoch of the last record read
# v6   flexible
# v7   require_stable: offsets that a transaction has pending are UNSTABLE_OFFSET_COMMIT (KIP-447)
# v8   several groups in one request (KIP-709)
# v9   member id and epoch of the consumer protocol (KIP-848)
# v10  topics by id
#
# A group that is named several times is answered each time, as by Apache Kafka. But once
# `MOST_AGAIN` offsets were repeated for those that ask for all topics, they get INVALID_REQUEST:
# the answer to a small request would have no bounds. So do partitions that are named several
# times, once `MOST_AGAIN_BYTES` of their metadata were repeated.


class Repeats:
    """Limit on metadata that one response contains several times."""

    def __init__(self) -> None:
        self._given: set[int] = set()  # identities of rows, which `Committed` keeps alive
        self._left = MOST_AGAIN_BYTES

    def allow(self, row: OffsetRow) -> bool:
        """Count the metadata of a row; False if the response repeats too many bytes."""
        if not row.metadata:
            return True
        if id(row) not in self._given:
            self._given.add(id(row))
            return True
        self._left -= len(row.metadata)
        return self._left >= 0


class Committed(NamedTuple):
    """Committed offsets of a group, and its partitions with offsets pending in a transaction."""

    rows: Mapping[TopicPartition, OffsetRow]
    unstable: frozenset[TopicPartition]
    repeats: Repeats
    error: ErrorCode = ErrorCode.none
    """Error of a group that the client may not describe, or that is not loaded yet."""

    def partitions(
        self,
        topic: str,
        indexes: Sequence[int],
        checkpoint: Checkpoint,
        missing: ErrorCode = ErrorCode.none,
    ) -> "list[OffsetFetchResponsePartition]":
        """Return the responses about partitions of a topic."""
        found: list[OffsetFetchResponsePartition] = []
        for index in indexes:
            checkpoint()
            key = (topic, index)
            row = None if key in self.unstable else self.rows.get(key)
            error_code = missing if row is None else ErrorCode.none
            if row is not None and not self.repeats.allow(row):
                row, error_code = None, ErrorCode.invalid_request
            if key in self.unstable:
                error_code = ErrorCode.unstable_offset_commit
            found.append(
                {
                    "partition_index": index,
                    "committed_offset": -1 if row is None else row.committed,
                    "committed_leader_epoch": -1 if row is None else row.leader_epoch,
                    "metadata": "" if row is None else row.metadata,
                    "error_code": error_code,
                }
            )
        return found


_GROUP_ERROR_SINCE: Final = 2
MOST_AGAIN: Final = 100_000
"""Most offsets that a response repeats."""
MOST_AGAIN_BYTES: Final = 16 << 20
"""Most bytes of metadata that a response repeats."""
_MANY: Final = 1_000  # groups, and partitions asked for or committed


@api(ApiKey.OFFSET_FETCH)
async def offset_fetch(
    request: Request[OffsetFetchRequest], broker: BrokerParts
) -> "OffsetFetchResponse | Apart":
    """Return the committed offsets of one or several groups."""
    body = request.body
    of_one = request.version < 8
    asked = [body] if of_one else body.groups
    groups = broker.groups
    committed: dict[str, Committed] = {}
    repeats = Repeats()
    size = len(asked)
    for group in asked:
        await request.checkpoint()
        group_id = group.group_id
        if group_id not in committed:
            if not broker.access.allows(request.peer, ApiKey.OFFSET_FETCH, GROUP, group_id):
                error = ErrorCode.group_authorization_failed
                committed[group_id] = Committed({}, frozenset(), repeats, error)
            else:
                committed[group_id] = _committed(groups, group_id, body.require_stable, repeats)
        if group.topics is None:
            size += len(committed[group.group_id].rows)
        size += sum(1 + len(topic.partition_indexes) for topic in group.topics or ())
    topics = _VisibleTopics(broker.topics, await _hidden(request, broker, asked, committed))
    refused = [_refusal(groups, group, committed[group.group_id]) for group in body.groups]
    make = (
        partial(_of_one_group, request.version, topics, body, committed[body.group_id])
        if of_one
        else partial(_of_groups, request.version, topics, body.groups, committed, refused)
    )
    return apart_if(size > _MANY, make)


def _refusal(
    groups: GroupCoordinator, asked: OffsetFetchRequestGroup, committed: Committed
) -> ErrorCode:
    """Return the error of a group: members of consumer groups say their epoch (KIP-848)."""
    if committed.error or (asked.member_id is None and asked.member_epoch < 0):
        return committed.error
    group = groups.consumer_group(asked.group_id)
    if group is None:
        return ErrorCode.none
    try:
        check_fetch(group, asked.member_id, asked.member_epoch)
    except RequestRefused as error:
        return code_for(error)
    return ErrorCode.none


class _VisibleTopics(NamedTuple):
    """Topics of the broker, and those that the client may not describe."""

    all: TopicRegistry
    hidden: frozenset[str]


async def _hidden(
    request: Request[OffsetFetchRequest],
    broker: BrokerParts,
    asked: Sequence[OffsetFetchRequest | OffsetFetchRequestGroup],
    committed: Mapping[str, Committed],
) -> frozenset[str]:
    """Return the topics in the request or in its answer that the client may not describe."""
    access, peer = broker.access, request.peer
    if access.rights is None:
        return frozenset()
    hidden: set[str] = set()
    for group in asked:
        if group.topics is None:
            for name in {topic for topic, _ in committed[group.group_id].rows}:
                await request.checkpoint()
                if not access.sees(peer, AclOperation.DESCRIBE, TOPIC, name):
                    hidden.add(name)
        for topic in group.topics or ():
            await request.checkpoint()
            known = broker.topics.find_id(getattr(topic, "topic_id", None))
            name = topic.name if request.version < 10 else "" if known is None else known.name
            if name and not access.allows(peer, ApiKey.OFFSET_FETCH, TOPIC, name):
                hidden.add(name)
    return frozenset(hidden)


def _committed(
    groups: GroupCoordinator, group_id: str, require_stable: bool, repeats: Repeats
) -> Committed:
    if groups.is_loading_group(group_id):
        loading = ErrorCode.coordinator_load_in_progress
        return Committed({}, frozenset(), repeats, loading)
    offsets = groups.offsets
    unstable = offsets.pending.of_group(group_id) if require_stable else frozenset[TopicPartition]()
    return Committed(offsets.of_group(group_id), unstable, repeats)


def _of_one_group(
    version: int,
    topics: _VisibleTopics,
    body: OffsetFetchRequest,
    committed: Committed,
    checkpoint: Checkpoint,
) -> "OffsetFetchResponse":
    """Return the response about one group, in versions 0 to 7."""
    missing = ErrorCode.unknown_topic_or_partition if version == 0 else ErrorCode.none
    if committed.error:
        missing = committed.error
        if version >= _GROUP_ERROR_SINCE:
            return {"error_code": missing, "topics": []}
    found = _topics(version, topics, committed, body.topics, missing, checkpoint)
    return {
        "error_code": ErrorCode.none,
        "topics": [{"name": it["name"], "partitions": it["partitions"]} for it in found],
    }


def _of_groups(
    version: int,
    topics: _VisibleTopics,
    groups: Sequence[OffsetFetchRequestGroup],
    committed: Mapping[str, Committed],
    refused: Sequence[ErrorCode],
    checkpoint: Checkpoint,
) -> "OffsetFetchResponse":
    """Return the response about several groups, from version 8 on."""
    whole: set[str] = set()  # those all of whose topics are in the answer
    again = 0
    answers: list[OffsetFetchResponseGroup] = []
    for group, error_code in zip(groups, refused, strict=True):
        checkpoint()
        of_group = committed[group.group_id]
        if not error_code and group.topics is None:
            if group.group_id in whole:
                again += len(of_group.rows)
                error_code = ErrorCode.invalid_request if again > MOST_AGAIN else ErrorCode.none
            whole.add(group.group_id)
        answers.append(
            {
                "group_id": group.group_id,
                "error_code": error_code,
                "topics": (
                    []
                    if error_code
                    else _topics(
                        version, topics, of_group, group.topics, ErrorCode.none, checkpoint
                    )
                ),
            }
        )
    return {"groups": answers}


def _topics(
    version: int,
    topics: _VisibleTopics,
    committed: Committed,
    asked: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
    missing: ErrorCode,
    checkpoint: Checkpoint,
) -> "list[Any]":
    """Return the committed offsets of topics, all without `asked`; ids are left out before v10."""
    if asked is None:
        return [
            {
                "name": name,
                "topic_id": topic_id,
                "partitions": committed.partitions(name, indexes, checkpoint),
            }
            for name, topic_id, indexes in _existing(topics, committed)
        ]
    found = []
    for topic in asked:
        name, topic_id, error_code = topic.name, getattr(topic, "topic_id", None), missing
        if version >= 10:
            known = topics.all.find_id(topic_id)
            name = "" if known is None else known.name
            error_code = ErrorCode.unknown_topic_id if known is None else ErrorCode.none
        if name in topics.hidden:
            denied = ErrorCode.topic_authorization_failed
            of_topic = Committed({}, frozenset(), committed.repeats)
            partitions = of_topic.partitions(name, topic.partition_indexes, checkpoint, denied)
            name = topic.name
        else:
            partitions = committed.partitions(name, topic.partition_indexes, checkpoint, error_code)
        found.append({"name": name, "topic_id": topic_id, "partitions": partitions})
    return found


def _existing(topics: _VisibleTopics, committed: Committed) -> list[tuple[str, UUID, list[int]]]:
    """Return name, id and committed partitions of each topic that exists."""
    indexes: dict[str, list[int]] = {}
    for topic_name, index in committed.rows:
        indexes.setdefault(topic_name, []).append(index)
    return [
        (name, topic.topic_id, of_topic)
        for name, of_topic in indexes.items()
        if name not in topics.hidden and (topic := topics.all.find(name)) is not None
    ]


# --- OffsetDelete: deletes offsets of topics that a group does not subscribe to (KIP-496)
#
# v0  never flexible


_MANY_DELETED: Final = 1_000  # partitions


@api(ApiKey.OFFSET_DELETE)
async def offset_delete(
    request: Request[OffsetDeleteRequest], broker: BrokerParts
) -> "OffsetDeleteResponse | Apart":
    """Delete each offset, unless the group subscribes to its topic."""
    body = request.body
    access, peer, api_key = broker.access, request.peer, ApiKey.OFFSET_DELETE
    try:
        access.check(peer, api_key, GROUP, body.group_id)
        denied = {it.name for it in body.topics if not access.allows(peer, api_key, TOPIC, it.name)}
        keys = [
            (topic.name, partition.partition_index)
            for topic in body.topics
            for partition in (() if topic.name in denied else topic.partitions)
        ]
        subscribed = await broker.groups.delete_offsets(body.group_id, keys)
    except HorologError as error:
        return {"error_code": group_error_code(error), "topics": []}
    return apart_if(len(keys) > _MANY_DELETED, partial(_deleted, broker, body, subscribed, denied))


def _deleted(
    broker: BrokerParts,
    body: OffsetDeleteRequest,
    subscribed: frozenset[str],
    denied: set[str],
    checkpoint: Checkpoint,
) -> "OffsetDeleteResponse":
    topics: list[OffsetDeleteResponseTopic] = []
    for topic in body.topics:
        known, is_subscribed = broker.topics.find(topic.name), topic.name in subscribed
        partitions: list[OffsetDeleteResponsePartition] = []
        for partition in topic.partitions:
            checkpoint()
            index = partition.partition_index
            error_code = ErrorCode.topic_authorization_failed
            if topic.name not in denied:
                error_code = _error(known, index, is_subscribed=is_subscribed)
            partitions.append({"partition_index": index, "error_code": error_code})
        topics.append({"name": topic.name, "partitions": partitions})
    return {"error_code": ErrorCode.none, "topics": topics}


def _error(topic: Topic | None, index: int, *, is_subscribed: bool) -> ErrorCode:
    if topic is None or not topic.has_partition(index):
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.group_subscribed_to_topic if is_subscribed else ErrorCode.none
