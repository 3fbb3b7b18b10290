"""A source and a broker that follows it, and how the two are compared."""

from collections.abc import Iterable
from typing import Any

from patience import eventually
from running_broker import RunningBroker

from horolog.broker import PartitionStatus
from horolog.client import Client
from horolog.record import iter_headers
from horolog.storage import TopicPartition

Batches = list[tuple[int, bytes]]


def batches_of(client: Client, topic: str, partition: int = 0, start: int = 0) -> Batches:
    """Every batch from an offset on as a consumer is given it: its base offset and its bytes."""
    found: Batches = []
    offset = start
    while True:
        answer = client.fetch(topic, partition, offset, max_wait_ms=0)
        records = memoryview(answer.records)
        headers = [
            (position, header)
            for position, header in iter_headers(records)
            if header.next_offset > offset and position + header.size <= len(records)
        ]
        if not headers:
            return found
        for position, header in headers:
            batch = bytes(records[position : position + header.size])
            if header.records_count:  # else it stands for a gap
                found.append((header.base_offset, batch))
            offset = header.next_offset


def status_of(shadow: RunningBroker, topic: str, partition: int = 0) -> PartitionStatus | None:
    """What a broker says of one partition that it follows."""
    key = TopicPartition(topic, partition)
    found: PartitionStatus | None = shadow.call(
        lambda: shadow.broker.shadow.follower.status_of(key)
    )
    return found


def is_caught_up(shadow: RunningBroker, source: Any, partitions: Iterable[tuple[str, int]]) -> bool:
    """Whether all that the source has now is readable at a broker that follows it."""
    targets = dict.fromkeys(partitions, -1)
    ends = source.client.list_offsets(targets)

    def reaches() -> bool:
        for (topic, partition), end in ends.items():
            followed = shadow.broker.partitions.find(topic, partition)
            if followed is None or followed.log.high_watermark < end.offset:
                return False
        return True

    if not eventually(reaches):
        raise AssertionError([status_of(shadow, *each) for each in ends])
    return True
