"""A source that is lost over a transaction, and what a promoted shadow gives of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from running_broker import RunningBroker

from horolog.errors import StorageFailed
from horolog.record import AbortedTransactions, iter_headers
from horolog.storage import TopicPartition

Start = Callable[..., RunningBroker]
"""Starts a broker of a name of one letter, which follows a source if one is given."""


@contextmanager
def markers_held(source: RunningBroker, *topics: str) -> Iterator[None]:
    """Let no marker be written to some topics."""
    plain = hold_markers(source, *topics)
    try:
        yield
    finally:
        source.broker.markers.end = plain


def hold_markers(source: RunningBroker, *topics: str) -> Callable[..., Any]:
    """Let no marker be written to some topics from now on; return what wrote them."""
    plain: Callable[..., Any] = source.broker.markers.end

    def end(partition: TopicPartition, ended: Any) -> Any:
        if partition.topic in topics:
            raise StorageFailed("the disk is full")
        return plain(partition, ended)

    source.broker.markers.end = end
    return plain


def committed_in(broker: RunningBroker, topic: str) -> list[int]:
    """Return the base offsets of the batches that a consumer of committed records is given."""
    answer = broker.client.fetch(topic, 0, 0, max_wait_ms=0, read_committed=True)
    drop, records = AbortedTransactions(answer.aborted).drop, memoryview(answer.records)
    return [
        header.base_offset
        for position, header in iter_headers(records)
        if not drop(header, records[position : position + header.size]) and not header.is_control
    ]
