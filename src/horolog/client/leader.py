"""Requests of a follower to the leader of many partitions, over a given link.

Each partition has its own result, which may be an error. Partitions that the response omits are
missing. Nothing is retried.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from horolog.client.deadline import Deadline
from horolog.client.link import Link
from horolog.client.metadata import by_topic, error_of, metadata_request
from horolog.client.offsets import EARLIEST, LATEST, list_offsets_at
from horolog.errors import ErrorCode
from horolog.offsets import TopicPartition
from horolog.wire.api import ApiKey

_FIRST_WITH_EPOCHS: Final = 4  # of ListOffsets
_FIRST_WITH_CLUSTER_ID: Final = 2  # of Metadata


class EpochEnd(NamedTuple):
    """Last epoch that a leader knows up to the requested one, and its end; -1 if unknown."""

    error: ErrorCode
    epoch: int
    end_offset: int


class LogBounds(NamedTuple):
    """Log start offset and high watermark of a leader."""

    error: ErrorCode
    start: int
    end: int


def cluster_of(link: Link, deadline: Deadline) -> str | None:
    """Return the id of the broker's cluster.

    Raises:
        NoAnswer, MalformedResponse, RequestRefused: as `epoch_ends`.
    """
    body = link.ask(ApiKey.METADATA, metadata_request([]), deadline, lowest=_FIRST_WITH_CLUSTER_ID)
    cluster_id: str | None = body.cluster_id
    return cluster_id


def epoch_ends(
    link: Link, asked: Mapping[TopicPartition, tuple[int, int]], deadline: Deadline
) -> dict[TopicPartition, EpochEnd]:
    """Return the end offsets of leader epochs (OffsetForLeaderEpoch, KIP-320).

    Args:
        asked: for each partition its current leader epoch, and the epoch to look up.

    Raises:
        NoAnswer: the broker closed the connection, or the deadline has passed.
        MalformedResponse: the answer cannot be read.
        RequestRefused: the broker does not know the request.
    """
    topics = [
        {
            "topic": topic,
            "partitions": [
                {
                    "partition": index,
                    "current_leader_epoch": asked[topic, index][0],
                    "leader_epoch": asked[topic, index][1],
                }
                for index in indexes
            ],
        }
        for topic, indexes in by_topic(asked).items()
    ]
    request = {"replica_id": -1, "topics": topics}
    body = link.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, request, deadline)
    ends: dict[TopicPartition, EpochEnd] = {}
    for topic in body.topics:
        for it in topic.partitions:
            if (partition := (topic.topic, it.partition)) in asked:
                answer = EpochEnd(error_of(it.error_code), it.leader_epoch, it.end_offset)
                ends.setdefault(partition, answer)
    return ends


def log_bounds(
    link: Link, asked: Mapping[TopicPartition, int], deadline: Deadline
) -> dict[TopicPartition, LogBounds]:
    """Return log start offsets and high watermarks (ListOffsets), by two requests.

    Args:
        asked: for each partition its current leader epoch.

    Raises:
        NoAnswer, MalformedResponse, RequestRefused: as `epoch_ends`.
    """
    starts, ends = (
        list_offsets_at(
            link, dict.fromkeys(asked, target), deadline, lowest=_FIRST_WITH_EPOCHS, epochs=asked
        )
        for target in (EARLIEST, LATEST)
    )
    return bounds_of(starts, ends)


def bounds_of(
    starts: Mapping[TopicPartition, Any], ends: Mapping[TopicPartition, Any]
) -> dict[TopicPartition, LogBounds]:
    """Return bounds from the responses about starts and about ends, where both have one."""
    return {
        partition: LogBounds(error_of(start.error_code or end.error_code), start.offset, end.offset)
        for partition, start in starts.items()
        if (end := ends.get(partition)) is not None
    }
