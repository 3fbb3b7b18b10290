"""Topics, partitions and offsets of OffsetCommit and TxnOffsetCommit."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final, NotRequired, Protocol, TypedDict, TypeVar

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request
from horolog.config import LONG_MAX
from horolog.errors import ErrorCode, RequestRefused, code_for
from horolog.groups.rows import OffsetRow, new_offset_row
from horolog.metadata.topics import Topic, unknown_topic
from horolog.wire.offset_commit import CommitRequest

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
        request: whose topics they are.
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
    broker: Broker,
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


def existing_rows(broker: Broker, topics: list[NamedTopic]) -> list[OffsetRow]:
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
        request: that was read.
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
