"""OffsetCommit, and the code that it shares with TxnOffsetCommit."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Any, Final, NotRequired, TypeAlias, TypedDict, TypeVar

from horolog.broker.authorisation import GROUP, TOPIC, Access
from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import Request, api, shortcut
from horolog.broker.handlers.groups import SAYS_EPOCH, commit_error_code
from horolog.buffers import Buffer
from horolog.config import LONG_MAX
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.groups.commit_records import CommitRecords
from horolog.groups.rows import OffsetRow
from horolog.groups.values import Committer
from horolog.metadata.topics import Topic, unknown_topic
from horolog.network.peer import Peer
from horolog.network.reply import Reply
from horolog.wire.acl import AclOperation
from horolog.wire.api import ApiKey
from horolog.wire.offset_commit import CommitForm
from horolog.wire.requests import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

if TYPE_CHECKING:
    from horolog.wire.responses import OffsetCommitResponse

# --- Topics, partitions and offsets of OffsetCommit and TxnOffsetCommit -----------------


_TOGETHER: Final = 32
"""Partitions that are checked between two checkpoints."""

_OF_EXISTING: Final = (ErrorCode.none, ErrorCode.offset_metadata_too_large)


class CommittedPartition(TypedDict):
    """Response about one partition."""

    partition_index: int
    error_code: NotRequired[int]


NamedPartition: TypeAlias = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition
NamedPartitionT = TypeVar("NamedPartitionT", bound=NamedPartition)


@dataclass(slots=True)
class NamedTopic:
    """Topic of a request, the offsets to commit, and the responses about its partitions."""

    topic: Topic | None
    rows: list[OffsetRow] = field(default_factory=list)
    partitions: list[CommittedPartition] = field(default_factory=list)

    @property
    def has_existing(self) -> bool:
        """True if the request contains a partition of the topic that exists."""
        return any(partition["error_code"] in _OF_EXISTING for partition in self.partitions)

    def fail_all(self, error_code: ErrorCode) -> None:
        """Refuse every partition."""
        for partition in self.partitions:
            partition["error_code"] = error_code

    def fail(self, error_code: ErrorCode) -> None:
        """Refuse the partitions that exist."""
        for partition in self.partitions:
            if partition["error_code"] in _OF_EXISTING:
                partition["error_code"] = error_code


async def named_topics(
    request: Request[Any],
    named: Iterable[tuple[Callable[[], Topic], Sequence[NamedPartitionT]]],
    row: Callable[[Topic, NamedPartitionT], OffsetRow],
) -> list[NamedTopic]:
    """Look up the topics of a request, and check which offsets can be committed.

    Args:
        named: for each topic a function that looks it up or raises RequestRefused, and its
            partitions.
        row: returns the offset to commit, or raises RequestRefused for the partition.
    """
    topics = []
    number = 0
    for find, partitions in named:
        refused = ErrorCode.none
        try:
            of_topic = NamedTopic(find())
        except RequestRefused as error:
            of_topic = NamedTopic(None)
            refused = code_for(error)
        topics.append(of_topic)
        topic = of_topic.topic
        for requested in partitions:
            if not number % _TOGETHER:
                await request.checkpoint()
            number += 1
            error_code = refused
            if topic is not None:
                try:
                    if not topic.has_partition(requested.partition_index):
                        raise unknown_topic(topic.name)
                    of_topic.rows.append(row(topic, requested))
                except RequestRefused as error:
                    error_code = code_for(error)
            of_topic.partitions.append(
                {"partition_index": requested.partition_index, "error_code": error_code}
            )
    return topics


def asked_topic(
    broker: BrokerParts,
    peer: Peer,
    api_key: ApiKey,
    asked: OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic,
    *,
    by_id: bool,
) -> Topic:
    """Return the topic of a request, which has an id in newer versions.

    Raises:
        RequestRefused: UNKNOWN_TOPIC_ID or UNKNOWN_TOPIC_OR_PARTITION; the client may not read it
            (29).
    """
    topic = broker.topics.with_id(asked.topic_id) if by_id else None
    name = asked.name if topic is None else topic.name
    broker.access.check(peer, api_key, TOPIC, name)
    return broker.topics.named(name) if topic is None else topic


def offset_row(
    broker: BrokerParts,
    group_id: str,
    topic: Topic,
    requested: NamedPartition,
    commit_ms: int,
    expire_ms: int | None = None,
) -> OffsetRow:
    """Return the committed offset of a partition in the form that is stored.

    Raises:
        RequestRefused: OFFSET_METADATA_TOO_LARGE.
    """
    metadata = requested.committed_metadata or ""
    if metadata and _java_length(metadata) > broker.config.offset_metadata_max_bytes:
        raise RequestRefused(ErrorCode.offset_metadata_too_large, "offset.metadata.max.bytes")
    return OffsetRow(
        group_id,
        topic.name,
        requested.partition_index,
        requested.committed_offset,
        requested.committed_leader_epoch,
        metadata,
        commit_ms,
        expire_ms,
        topic.topic_id,
    )


def _java_length(text: str) -> int:
    """Return the number of UTF-16 units of a text; Kafka limits metadata by it."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def existing_rows(broker: BrokerParts, topics: list[NamedTopic]) -> list[OffsetRow]:
    """Return the offsets to commit, without those of topics that were deleted meanwhile."""
    rows: list[OffsetRow] = []
    for of_topic in topics:
        if of_topic.topic is None:
            continue
        if broker.topics.find_id(of_topic.topic.topic_id) is None:
            of_topic.fail(code_for(unknown_topic(of_topic.topic.name)))
        else:
            rows += of_topic.rows
    return rows


def expiry_ms(retention_ms: int, commit_ms: int) -> int | None:
    """Return when an offset expires, in milliseconds; None if it never does."""
    return None if retention_ms < 0 else min(commit_ms + retention_ms, LONG_MAX)


# --- Commits of the same partitions by the same member, one after the other, over one connection
#
# A consumer commits the partitions that it was assigned again and again. From the third time on the
# request is not decoded: offsets and leader epochs are copied from it to records that are made once
# (`wire.offset_commit`, `groups.commit_records`). What may have changed since is asked at each:
# whether the client may, the topics are the same, the member has its generation, and the log takes
# the records at once.


_MOST_FRAME_BYTES: Final = 4096
_KEPT_BYTES: Final = 2048  # of a commit, beside its request and its records
_FIRST_REPEATED: Final = 2  # the first version whose offsets have no times of their own


class RepeatedCommit:
    """Commit that a client sends again and again, with other offsets of the same partitions."""

    __slots__ = (
        "__weakref__",
        "_allowed_at",
        "_by",
        "_form",
        "_partitions",
        "_records",
        "_rows",
        "_topics",
    )

    def __init__(
        self, form: CommitForm, by: Committer, rows: list[OffsetRow], topics: list[Topic]
    ) -> None:
        self._form = form
        self._by = by
        self._rows = rows
        self._topics = topics
        self._partitions = repr([(row.topic, row.partition) for row in rows]).encode()
        self._records = CommitRecords(rows, form.places, form.width)
        self._allowed_at = -1  # the generation of rights, of the one client that sends it

    @property
    def held_bytes(self) -> int:
        """Approximate memory in bytes."""
        return _KEPT_BYTES + 4 * self._form.size + 2 * len(self._records)

    def is_of(self, frame: Buffer, topics: list[Topic]) -> bool:
        """Return True if a request for these topics is one more of these commits."""
        return all(map(is_, topics, self._topics)) and self._form.fits(frame)

    def answer(self, broker: BrokerParts, peer: Peer, frame: bytes) -> Reply | None:
        """Commit the offsets of a request, and answer it.

        None, without any effect, if it is another commit, is refused, or cannot be done at once.
        """
        if not self._form.fits(frame):
            return None
        rights = broker.access.rights
        if rights is not None and self._allowed_at != rights.generation:
            if not self._is_allowed(broker.access, peer):
                return None
            self._allowed_at = rights.generation
        find = broker.topics.find
        for topic in self._topics:
            if find(topic.name) is not topic:
                return None
        now_ms = broker.clock.now_ms()
        try:
            is_committed = broker.groups.commit_again(
                self._rows[0].group_id,
                self._by,
                self._records.of(frame, now_ms),
                self._records.count,
                now_ms,
                self._partitions,
                partial(self._rows_of, frame, now_ms),
            )
        except HorologError:
            return None
        return (self._form.committed(frame),) if is_committed else None

    def _is_allowed(self, access: Access, peer: Peer) -> bool:
        """Return True if the client may commit for the group, and read each topic."""
        read, group_id = AclOperation.READ, self._rows[0].group_id
        return access.sees(peer, read, GROUP, group_id) and all(
            access.sees(peer, read, TOPIC, topic.name) for topic in self._topics
        )

    def _rows_of(self, frame: bytes, now_ms: int) -> list[OffsetRow]:
        """Return the offsets of a request as they are stored."""
        return [
            row._replace(committed=offset, leader_epoch=epoch, commit_ms=now_ms)
            for row, (offset, epoch) in zip(self._rows, self._form.numbers_of(frame), strict=True)
        ]


def _keep(
    broker: BrokerParts,
    request: Request[OffsetCommitRequest],
    by: Committer,
    topics: list[NamedTopic],
) -> None:
    """Keep a commit that was done and names the same partitions as the one before."""
    peer, frame = request.peer, request.frame
    before, peer.last_commit = peer.last_commit, None
    rows = [row for of_topic in topics for row in of_topic.rows]
    if request.version < _FIRST_REPEATED or len(frame) > _MOST_FRAME_BYTES or not rows:
        return
    if any(row.metadata or row.expire_ms is not None for row in rows):
        return
    named = [of_topic.topic for of_topic in topics if of_topic.topic is not None]
    if isinstance(before, RepeatedCommit) and before.is_of(frame, named):
        peer.last_commit = before
        return
    partitions = [(row.topic, row.partition) for row in rows]
    peer.last_commit = partitions
    if before == partitions and isinstance(frame, bytes):
        form = CommitForm.of(request.version, request.body, frame)
        if form is not None:
            commit = RepeatedCommit(form, by, rows, named)
            if broker.kept_commits.keep(commit, commit.held_bytes):
                peer.last_commit = commit


# --- OffsetCommit: stores the offsets of a consumer group -------------------------------
#
# v0   no member: a commit without a generation. Kafka stored these in ZooKeeper, here they are the
#      group's, as those of later versions
# v1   member and generation; a time of its own for each offset, until v1
# v2   retention time of its own for these offsets, until v4
# v3   throttle time
# v6   leader epoch of the last record read
# v7   group instance id (KIP-345)
# v8   flexible
# v9   a group that is not there is GROUP_ID_NOT_FOUND (KIP-848)
# v10  topics by id


_BY_ID: Final = 10


@api(ApiKey.OFFSET_COMMIT)
async def offset_commit(
    request: Request[OffsetCommitRequest], broker: BrokerParts
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
        (
            (
                partial(
                    asked_topic,
                    broker,
                    request.peer,
                    ApiKey.OFFSET_COMMIT,
                    asked,
                    by_id=request.version >= _BY_ID,
                ),
                asked.partitions,
            )
            for asked in body.topics
        ),
        row,
    )
    committer = Committer(
        body.member_id,
        body.group_instance_id,
        body.generation_id_or_member_epoch,
        says_epoch=request.version >= SAYS_EPOCH,
    )
    try:
        if broker.access.allows(request.peer, ApiKey.OFFSET_COMMIT, GROUP, body.group_id):
            rows = partial(existing_rows, broker, topics)
            await broker.groups.commit(body.group_id, committer, rows)
        else:
            for topic in topics:
                topic.fail_all(ErrorCode.group_authorization_failed)
    except HorologError as error:
        for topic in topics:
            topic.fail(commit_error_code(error, request.version))
    else:
        if not any(partition["error_code"] for it in topics for partition in it.partitions):
            _keep(broker, request, committer, topics)
    return {
        "topics": [
            {"name": asked.name, "topic_id": asked.topic_id, "partitions": of_topic.partitions}
            for asked, of_topic in zip(body.topics, topics, strict=True)
        ]
    }


@shortcut(ApiKey.OFFSET_COMMIT)
def commit_again(broker: BrokerParts, peer: Peer, frame: bytes) -> Reply | None:
    """Commit the partitions of the commit before anew; None if that cannot be done at once."""
    repeated = peer.last_commit
    if isinstance(repeated, RepeatedCommit):
        return repeated.answer(broker, peer, frame)
    return None
