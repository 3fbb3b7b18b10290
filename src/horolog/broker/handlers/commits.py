"""OffsetCommit, and what it shares with TxnOffsetCommit."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NotRequired, Protocol, TypedDict, TypeVar

from horolog.broker.authorisation import Authorise
from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import Request, api, shortcut
from horolog.broker.handlers.groups import commit_error_code
from horolog.config import LONG_MAX
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.groups.commit_records import CommitRecords
from horolog.groups.rows import OffsetRow, new_offset_row
from horolog.groups.values import Committer
from horolog.metadata.topics import Topic, unknown_topic
from horolog.network.peer import Peer
from horolog.network.reply import Reply
from horolog.wire.api import ApiKey
from horolog.wire.offset_commit import (
    CommitForm,
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

# --- Topics, partitions and offsets of OffsetCommit and TxnOffsetCommit -----------------


_TOGETHER: Final = 32
"""Partitions between two looks at the time."""

_OF_EXISTING: Final = (ErrorCode.none, ErrorCode.offset_metadata_too_large)


class CommittedPartition(TypedDict):
    """The answer for one partition."""

    partition_index: int
    error_code: NotRequired[int]


class NamedPartition(Protocol):
    """A partition in a request."""

    @property
    def partition_index(self) -> int:
        """Its number."""
        ...

    @property
    def committed_offset(self) -> int:
        """The offset to commit."""
        ...

    @property
    def committed_leader_epoch(self) -> int:
        """Leader epoch of the last record the consumer read; -1 if unknown."""
        ...

    @property
    def committed_metadata(self) -> str | None:
        """Text that the client keeps with the offset."""
        ...


NamedPartitionT = TypeVar("NamedPartitionT", bound=NamedPartition)


@dataclass(slots=True)
class NamedTopic:
    """One topic of a request, and its results."""

    topic: Topic | None
    rows: list[OffsetRow] = field(default_factory=list)
    partitions: list[CommittedPartition] = field(default_factory=list)

    @property
    def has_existing(self) -> bool:
        """Whether the request names a partition of it that exists."""
        return any(partition["error_code"] in _OF_EXISTING for partition in self.partitions)

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
    """The topics of a request in their order, and which of their partitions cannot be committed.

    Args:
        named: for each what finds it, or raises RequestRefused, and its partitions.
        row: the offset to commit; RequestRefused is the error of the partition.
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


def offset_row(
    broker: BrokerParts,
    group_id: str,
    topic: Topic,
    requested: NamedPartition,
    commit_ms: int,
    expire_ms: int | None = None,
) -> OffsetRow:
    """The offset of a partition as it is stored.

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
    """Its UTF-16 units, which Kafka compares with the most that metadata may have."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def existing_rows(broker: BrokerParts, topics: list[NamedTopic]) -> list[OffsetRow]:
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


def expiry_ms(retention_ms: int, commit_ms: int) -> int | None:
    """When an offset expires that is committed for a time, in milliseconds; None if never so."""
    return None if retention_ms < 0 else min(commit_ms + retention_ms, LONG_MAX)


def commit_rows(
    request: CommitRequest, topics: Iterable[Topic | None], commit_ms: int
) -> list[OffsetRow]:
    """The offsets of a request as they are stored.

    Args:
        topics: those that it names, in order; None for one whose offsets are left out.
        commit_ms: when they are committed, in milliseconds.
    """
    expire_ms = expiry_ms(request.retention_ms, commit_ms)
    rows: list[OffsetRow] = []
    for topic, named in zip(topics, request.topics, strict=True):
        if topic is None:
            continue
        _, _, _, partitions, offsets, epochs, metadata = named
        alike = repeat(commit_ms), repeat(expire_ms), repeat(topic.topic_id)
        of_topic = repeat(request.group_id), repeat(topic.name)
        columns = *of_topic, partitions, offsets, epochs, metadata, *alike
        rows += map(new_offset_row, zip(*columns, strict=False))
    return rows


# --- Commits of the same partitions by the same member, one after the other, over one connection
#
# A consumer commits the partitions that it was assigned again and again. From the third time on the
# request is not read: it differs from the one before in offsets alone (`wire.offset_commit`). Its
# records are those of the one before with other numbers (`groups.commit_records`), and so is its
# answer. What may have changed since is asked at each: whether the client may, the topics are the
# same, the member has its generation, and the log takes the records at once.


_MOST_FRAME_BYTES: Final = 4096
_KEPT_BYTES: Final = 2048  # of a commit, beside its request and its records


class RepeatedCommit:
    """A commit of one client, which it sends again with other offsets."""

    __slots__ = ("__weakref__", "_by", "_form", "_group_id", "_records", "_topics")

    def __init__(self, form: CommitForm, topics: list[Topic]) -> None:
        """Keep the form of requests without metadata and expiry time, and their topics."""
        request = form.request
        self._form = form
        self._topics = topics
        self._group_id = request.group_id
        self._by = Committer(request.member_id, request.instance_id, request.generation)
        rows = commit_rows(request, topics, 0)
        self._records = CommitRecords(rows, form.places, form.width)

    @property
    def held_bytes(self) -> int:
        """The approximate memory that it takes."""
        return _KEPT_BYTES + 4 * self._form.size + 2 * len(self._records)

    def answer(
        self, broker: BrokerParts, authorise: Authorise, peer: Peer, frame: bytes
    ) -> Reply | None:
        """Commit the offsets of a request, and answer it.

        None, without any effect, if it is another commit, or cannot be done at once.
        """
        form, records = self._form, self._records
        if not form.fits(frame):
            return None
        find = broker.topics.find
        for topic in self._topics:
            if find(topic.name) is not topic:
                return None
        authorise(peer, ApiKey.OFFSET_COMMIT)
        now_ms = broker.clock.now_ms()
        try:
            is_committed = broker.groups.commit_again(
                self._group_id,
                self._by,
                records.of(frame, now_ms),
                records.count,
                now_ms,
                form.partitions,
                partial(_repeated_rows, frame, self._topics, now_ms),
            )
        except HorologError as error:
            request = form.request_of(frame)
            code = commit_error_code(error, request.version)
            return (committed(request, [code] * len(self._topics)),)
        return (form.committed(frame),) if is_committed else None


def keep(
    broker: BrokerParts, peer: Peer, frame: bytes, request: CommitRequest, topics: list[Topic]
) -> None:
    """Keep a request whose offsets are all committed, once it is the second of its form."""
    before, peer.last_commit = peer.last_commit, None
    if len(frame) > _MOST_FRAME_BYTES or request.retention_ms >= 0:
        return
    if any(map(any, (topic.metadata for topic in request.topics))):
        return
    peer.last_commit = frame
    if not isinstance(before, bytes) or len(before) != len(frame):
        return
    form = CommitForm(request, frame)
    if form.fits(before):
        commit = RepeatedCommit(form, topics)
        if broker.kept_commits.keep(commit, commit.held_bytes):
            peer.last_commit = commit


def _repeated_rows(frame: bytes, topics: list[Topic], now_ms: int) -> list[OffsetRow]:
    request = read_commit(frame)
    assert request is not None, "it is of the form of one that was read"
    return commit_rows(request, topics, now_ms)


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
    broker: BrokerParts, authorise: Authorise, peer: Peer, frame: bytes
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


def _found(broker: BrokerParts, version: int, named: CommittedTopic) -> Topic | None:
    """The topic, if all its offsets can be committed."""
    topics, most_bytes = broker.topics, broker.config.offset_metadata_max_bytes
    topic = topics.find_id(named.topic_id) if version >= _BY_ID else topics.find(named.name)
    if topic is None or not topic.has_partitions(named.partitions):
        return None
    if any(named.metadata) and max(map(len, map(str.encode, named.metadata))) > most_bytes:
        return None
    return topic


def _rows(
    broker: BrokerParts, asked: CommitRequest, topics: list[Topic], codes: list[ErrorCode]
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
    request: Request[OffsetCommitRequest], broker: BrokerParts, asked: OffsetCommitRequestTopic
) -> Topic:
    if request.version >= _BY_ID:
        return broker.topics.with_id(asked.topic_id)
    return broker.topics.named(asked.name)
