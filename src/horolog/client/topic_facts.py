"""A topic's partitions as a broker reports them: leaders, offsets, largest timestamps."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from horolog.client import EARLIEST, LATEST, Client, TopicMetadata
from horolog.errors import ErrorCode, RequestRefused
from horolog.record.timestamps import NO_TIMESTAMP


class PartitionFacts(NamedTuple):
    """One partition: offsets from `earliest` up to but not including `end`.

    `latest_ms` is the largest timestamp and `latest_offset` the first record that has it; both
    are `None` if no record has a timestamp or the broker does not support the lookup.
    """

    partition: int
    leader: int | None
    earliest: int
    end: int
    latest_ms: int | None
    latest_offset: int | None


def partition_numbers(
    client: Client, topic: str, named: Sequence[int] | None = None
) -> dict[int, int | None]:
    """The requested partitions of a topic, with their leaders.

    Raises:
        RequestRefused: the topic or a partition does not exist.
    """
    found = client.metadata([topic]).topics.get(topic)
    if found is None or found.error != ErrorCode.none:
        code = found.error if found else ErrorCode.unknown_topic_or_partition
        if code == ErrorCode.unknown_topic_or_partition:
            raise RequestRefused(
                code, f"there is no topic {topic}; horolog topics list shows the existing ones"
            )
        raise RequestRefused(code, f"topic {topic}: {code.name.upper()}")
    leaders = {number: found.partitions[number].leader for number in sorted(found.partitions)}
    for number in named or ():
        if number not in leaders:
            raise RequestRefused(
                ErrorCode.unknown_topic_or_partition,
                f"topic {topic} has no partition {number}: it has 0 to {len(leaders) - 1}",
            )
    return {number: leaders[number] for number in (sorted(set(named)) if named else leaders)}


def topic_ids(client: Client, names: Iterable[str]) -> dict[str, str | None]:
    """The ids of the topics that exist; a topic that was created again has another one."""
    found = client.metadata(sorted(names)).topics
    return {name: known_id(each) for name, each in found.items() if each.error == ErrorCode.none}


def known_id(topic: TopicMetadata) -> str | None:
    """The id of a topic; None from brokers before Kafka 2.8."""
    return None if topic.topic_id is None or not topic.topic_id.int else str(topic.topic_id)


def partition_facts(
    client: Client, topic: str, named: Sequence[int] | None = None
) -> list[PartitionFacts]:
    """The facts of each partition, in the given order."""
    leaders = partition_numbers(client, topic, named)
    earliest = client.list_offsets({(topic, number): EARLIEST for number in leaders})
    ends = client.list_offsets({(topic, number): LATEST for number in leaders})
    latest = _latest(client, topic, list(leaders))
    facts = []
    for number, leader in leaders.items():
        first, end, last = earliest[topic, number], ends[topic, number], latest.get(number)
        assert first is not None
        assert end is not None
        facts.append(
            PartitionFacts(number, leader, first.offset, end.offset, *(last or (None, None)))
        )
    return facts


def _latest(client: Client, topic: str, numbers: list[int]) -> dict[int, tuple[int, int]]:
    found = client.largest([(topic, number) for number in numbers])
    return {
        tp[1]: (each.timestamp, each.offset)
        for tp, each in found.items()
        if each is not None and each.timestamp != NO_TIMESTAMP
    }
