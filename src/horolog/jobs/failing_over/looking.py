"""Asks a cluster for its time, committed offsets and log ends, before records are read."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from horolog.client import EARLIEST, LATEST, CommittedOffset, FoundOffset
from horolog.client.topic_facts import known_id
from horolog.clock import SystemClock
from horolog.errors import Misconfigured
from horolog.jobs.parameters import option
from horolog.jobs.parameters.failover import RecordStep
from horolog.jobs.selection import chosen_groups, client_of
from horolog.patterns import given_pattern
from horolog.sources.location import Location

Key = tuple[str, int]
"""A topic and the number of a partition."""
Commits = Mapping[Key, CommittedOffset | None]


class PartitionEnds(NamedTuple):
    """Log bounds and leader epoch of a partition."""

    earliest: int
    end: int
    leader_epoch: int | None


class Looked(NamedTuple):
    """Answers of a cluster before a recording reads records."""

    cluster_id: str | None
    at_ms: int
    commits: dict[str, Commits]
    """Committed offsets by group."""
    topic_ids: dict[str, str | None]
    """Topic ids by name; None from brokers before Kafka 2.8."""
    partitions: dict[Key, PartitionEnds]

    def numbers(self, topic: str) -> list[int]:
        """Return the partition numbers of a topic."""
        return [number for name, number in self.partitions if name == topic]

    def committed(self, group: str, partition: Key) -> int | None:
        """Return the committed offset of a group."""
        commit = self.commits[group].get(partition)
        return None if commit is None else commit.offset

    def offset(self, group: str, partition: Key) -> int:
        """Return the next offset that a group reads."""
        start = self.partitions[partition].earliest
        committed = self.committed(group, partition)
        return start if committed is None else max(start, committed)

    def reads(self, group: str, topic: str) -> bool:
        """True if a group has committed an offset of a topic."""
        return any(
            name == topic and commit is not None
            for (name, _), commit in self.commits[group].items()
        )


def look(step: RecordStep, source: Location) -> Looked:
    """Ask for the time, the committed offsets and the partitions, in this order.

    Groups that match a pattern and have committed nothing are left out.

    Raises:
        Misconfigured: no group matches, or none has committed an offset of the topics.
        RequestRefused: the cluster refuses.
        NoAnswer: it does not answer.
    """
    groups, groups_pattern = step.given_groups(), step.groups_pattern
    topics, topics_pattern = option.names(step.topics), step.topics_pattern
    with client_of(source, step.settings or {}) as client:
        at_ms = client.topics.cluster_time_ms()
        if at_ms is None:
            at_ms = SystemClock().now_ms()
        chosen = chosen_groups(client, groups, groups_pattern)
        commits: dict[str, Commits] = {group: client.offset_fetch(group) for group in chosen}
        names = _topics(commits, topics, topics_pattern)
        if groups_pattern is not None:
            commits = {
                group: its
                for group, its in commits.items()
                if any(at is not None and name in names for (name, _), at in its.items())
            }
        if not names:
            who = ", ".join(groups) or f"the groups that match {groups_pattern}"
            raise Misconfigured(
                f"there is nothing to record: {who} have committed no offset"
                + (" of these topics" if topics or topics_pattern else "")
            )
        metadata = client.metadata(names)
        present = {name: its for name, its in metadata.topics.items() if its.partitions}
        missing = [name for name in topics if name not in present]
        if missing:
            raise Misconfigured(f"there is no topic {missing[0]} at {source}")
        epochs = {
            (name, number): present[name].partitions[number].leader_epoch
            for name in sorted(present)
            for number in sorted(present[name].partitions)
        }
        earliest, ends = (
            client.list_offsets(dict.fromkeys(epochs, at)) for at in (EARLIEST, LATEST)
        )
        return Looked(
            metadata.cluster_id,
            at_ms,
            commits,
            {name: known_id(its) for name, its in present.items()},
            {
                key: PartitionEnds(_offset(earliest[key]), _offset(ends[key]), epoch)
                for key, epoch in epochs.items()
            },
        )


def _offset(found: FoundOffset | None) -> int:
    return 0 if found is None else found.offset


def _topics(
    commits: Mapping[str, Commits], topics: Sequence[str], pattern: str | None
) -> list[str]:
    read = sorted(
        {
            name
            for group_commits in commits.values()
            for (name, _), at in group_commits.items()
            if at
        }
    )
    if topics:
        return [name for name in topics if name in read]
    if pattern is None:
        return read
    matches = given_pattern(pattern, "topics-pattern").matches
    return [name for name in read if matches(name)]
