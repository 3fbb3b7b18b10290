"""Which topics of this broker another cluster leads from now on, when it is demoted."""

from collections.abc import Callable

from horolog.broker.following.source import SourceTopic, SourceTopics
from horolog.errors import ErrorCode, RequestRefused
from horolog.metadata.rows import FollowedRow, settings_text
from horolog.metadata.topics import Topic, TopicRegistry


def choose(
    topics: TopicRegistry, seen: SourceTopics, latest_epoch: Callable[[str, int], int]
) -> list[tuple[Topic, FollowedRow]]:
    """The topics that are led here and that the source has, each with what is stored of it.

    Their settings count as the source's, so that those that differ there are taken over.

    Args:
        topics: of this broker.
        seen: what the source has.
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
    others = (each for each in topics if not each.followed and not each.is_internal)
    if any(each.name not in names for each in others):  # their transactions stay here
        chosen = [(topic, row) for topic, row in chosen if not topic.is_internal]
    return chosen


def _fallen(theirs: SourceTopic, latest_epoch: Callable[[str, int], int]) -> str | None:
    """Why leader epochs could not say what the source has of the records here."""
    for partition in theirs.partitions:
        here = latest_epoch(theirs.name, partition.partition)
        if partition.leader_epoch is not None and partition.leader_epoch < here:
            return (
                f"partition {partition.partition} has records of leader epoch {here} here, and "
                f"the source leads it in epoch {partition.leader_epoch}. Delete it here, and it is "
                "followed anew"
            )
    return None
