"""Chooses the topics of this broker that another cluster leads after its demotion."""

from collections.abc import Callable

from horolog.broker.coordinators.group_coordinator import GroupCoordinator
from horolog.broker.partitions import Partitions
from horolog.broker.source_topics import SourceTopics, TopicAtSource
from horolog.errors import ErrorCode, RequestRefused
from horolog.metadata.rows import FollowedRow, settings_text
from horolog.metadata.topics import Topic, TopicRegistry
from horolog.record.markers import TransactionEnd
from horolog.storage.names import CONSUMER_OFFSETS, TRANSACTION_STATE


def choose(
    topics: TopicRegistry, seen: SourceTopics, latest_epoch: Callable[[str, int], int]
) -> list[tuple[Topic, FollowedRow]]:
    """Return the topics that are led here and that the source has, each with its new row.

    Their settings are stored as the source's, so that settings which differ there are taken over.

    Args:
        latest_epoch: of the records of a partition here.

    Raises:
        RequestRefused: one cannot be followed; none is changed.
    """
    chosen = []
    for theirs in sorted(seen.topics.values()):
        topic = topics.find(theirs.name)
        if topic is None or topic.followed:
            continue
        if topic.is_internal and theirs.topic_id != topic.topic_id:
            continue  # the transactions of two clusters that were never one
        why = _fallen(theirs, latest_epoch)
        if theirs.name in seen.from_here:
            why = "the source follows it itself, from here: promote it there first"
        elif theirs.topic_id != topic.topic_id:
            why = f"it has the topic id {topic.topic_id} here, and {theirs.topic_id} there"
        elif len(theirs.partitions) < len(topic.partitions):
            why = f"it has {len(topic.partitions)} partitions here, {len(theirs.partitions)} there"
        if why is not None:
            raise RequestRefused(
                ErrorCode.policy_violation,
                f"{topic.name} cannot be followed: {why}. A pattern of topics leaves it out",
            )
        settings = settings_text(topic.overrides)
        chosen.append((topic, FollowedRow(topic.name, topic.topic_id, False, -1, settings)))
    names = {topic.name for topic, _ in chosen}
    others = (topic for topic in topics if not topic.followed and not topic.is_internal)
    if any(other.name not in names for other in others):  # their transactions stay here
        chosen = [(topic, row) for topic, row in chosen if not topic.is_internal]
    return chosen


async def drop_pending(
    topics: TopicRegistry, partitions: Partitions, groups: GroupCoordinator
) -> None:
    """Abort pending offsets that no coordinator of this broker will end.

    Raises:
        RequestRefused: a partition is not loaded.
        StorageFailed: a write failed.
    """
    await groups.tried()
    states, offsets = (
        {index: found for index in topic.partitions if (found := partitions.find(name, index))}
        if (topic := topics.find(name)) is not None
        else {}
        for name in (TRANSACTION_STATE, CONSUMER_OFFSETS)
    )
    epoch = max((partition.log.leader_epoch for partition in states.values()), default=0)
    for index, partition in offsets.items():
        opened = (await partition.producers_here()).opened
        for producer in opened.items():
            ended = TransactionEnd(*producer, max(epoch, 0), is_commit=False)
            await groups.end_transaction(index, ended)


def _fallen(theirs: TopicAtSource, latest_epoch: Callable[[str, int], int]) -> str | None:
    """Return the reason why leader epochs cannot tell the source's records from those here."""
    for partition in theirs.partitions:
        here = latest_epoch(theirs.name, partition.partition)
        if partition.leader_epoch is not None and partition.leader_epoch < here:
            return (
                f"partition {partition.partition} has records of leader epoch {here} here, and "
                f"the source leads it in epoch {partition.leader_epoch}. Delete it here, and it is "
                "followed anew"
            )
    return None
