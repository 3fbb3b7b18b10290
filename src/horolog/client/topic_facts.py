"""Facts about the partitions of a topic: leaders, offsets, largest timestamps."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from horolog.client import EARLIEST, LATEST, Client, NoAnswer, TopicMetadata
from horolog.errors import ErrorCode, RequestRefused
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.wire.questions import HEALTH


class ServedPartitions(NamedTuple):
    """Partitions of a topic, divided into those with a leader and those without."""

    topic: str
    leaders: dict[int, int]
    offline: dict[int, str]
    """Sentence about each partition without a leader."""

    @property
    def numbers(self) -> list[int]:
        """Numbers of all partitions, in order."""
        return sorted({*self.leaders, *self.offline})


class PartitionFacts(NamedTuple):
    """One partition that a broker leads: offsets from `earliest` up to but not including `end`.

    `latest_ms` is the largest timestamp and `latest_offset` the first record that has it; both
    are `None` if no record has a timestamp or the broker does not support the lookup.
    """

    partition: int
    leader: int
    earliest: int
    end: int
    latest_ms: int | None
    latest_offset: int | None


def partition_numbers(
    client: Client, topic: str, named: Sequence[int] | None = None
) -> dict[int, int | None]:
    """Return the requested partitions of a topic, with their leaders.

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


def served_partitions(
    client: Client, topic: str, named: Sequence[int] | None = None
) -> ServedPartitions:
    """Return the requested partitions of a topic, without waiting for missing leaders.

    Raises:
        RequestRefused: the topic or a partition does not exist.
    """
    numbers = partition_numbers(client, topic, named)
    leaders = {number: leader for number, leader in numbers.items() if leader is not None}
    missing = [number for number in numbers if number not in leaders]
    reasons = why_offline(client) if missing else {}
    offline = {number: offline_text(topic, number, reasons) for number in missing}
    return ServedPartitions(topic, leaders, offline)


def why_offline(client: Client) -> dict[str, str]:
    """Return the reasons why partitions are offline, by their names, if the broker reports them."""
    with suppress(RequestRefused, NoAnswer):
        health = client.ask(HEALTH)
        wrong = () if health is None else health.wrong
        return {problem.subject: problem.text for problem in wrong if problem.kind == "offline"}
    return {}


def offline_text(topic: str, partition: int, reasons: Mapping[str, str]) -> str:
    """Return a sentence about a partition without a leader."""
    name = f"{topic}-{partition}"
    return f"{name} is offline: {reasons.get(name, 'no broker leads it now')}"


def topic_ids(client: Client, names: Iterable[str]) -> dict[str, str | None]:
    """Return the ids of the topics that exist. A topic that was created again has a new id."""
    found = client.metadata(sorted(names)).topics
    return {name: known_id(each) for name, each in found.items() if each.error == ErrorCode.none}


def known_id(topic: TopicMetadata) -> str | None:
    """Return the id of a topic; None from brokers before Kafka 2.8."""
    return None if topic.topic_id is None or not topic.topic_id.int else str(topic.topic_id)


def partition_facts(client: Client, topic: str, leaders: Mapping[int, int]) -> list[PartitionFacts]:
    """Return the facts of each partition that has a leader, in the given order."""
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
    found = client.offsets.largest([(topic, number) for number in numbers])
    return {
        tp[1]: (each.timestamp, each.offset)
        for tp, each in found.items()
        if each is not None and each.timestamp != NO_TIMESTAMP
    }
