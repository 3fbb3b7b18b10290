"""Results for the partitions that a request names, of topics that may not exist."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for

PartitionT = TypeVar("PartitionT")


async def check_each(
    request: Request[Any],
    broker: Broker,
    topic_name: str,
    asked: Sequence[PartitionT],
    index_of: Callable[[PartitionT], int],
    check: Callable[[PartitionT], None],
) -> list[tuple[int, ErrorCode, str | None]]:
    """Number, error code and message of each partition; `check` raises what it is refused with."""
    topic = broker.topics.find(topic_name)
    results: list[tuple[int, ErrorCode, str | None]] = []
    for partition in asked:
        await request.checkpoint()
        index, error_code, message = index_of(partition), ErrorCode.none, None
        try:
            if topic is None or not topic.has_partition(index):
                raise RequestRefused(
                    ErrorCode.unknown_topic_or_partition,
                    f"there is no partition {index} of topic {topic_name}",
                )
            check(partition)
        except HorologError as error:
            error_code, message = code_for(error), str(error)
        results.append((index, error_code, message))
    return results
