"""Cuts: where all partitions of a log part at a time, so that they can be read as of that time.

A cut has two offsets for each partition. Before `offset` is what was appended before the time.
Before `committed_offset` are whole transactions: those whose markers were appended before the
time, in every partition that the cut has. An open transaction in one partition may therefore lower
the offset of another.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from horolog.client import AskCut, PartitionCut
from horolog.errors import Misconfigured
from horolog.offsets import Inexact
from horolog.sources.cut_files import AsOf, Cut, CutEntry
from horolog.sources.cut_settling import Advance, no_progress, passed_by_cleaner, reason, settled
from horolog.storage.names import TopicPartition
from horolog.times import format_moment

__all__ = [
    "CutSource",
    "cut_all",
    "cut_of",
    "ends_as_of",
    "entries_as_of",
    "entries_in",
    "inexact",
    "up_to_cut",
]


class CutSource(Protocol):
    """A log, at brokers or in files, that can be cut."""

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """Topic ids by name, of topics that have one."""
        ...

    def partitions(self) -> Collection[TopicPartition]:
        """Return the partitions that are chosen, as they are now."""
        ...

    def cluster_id(self) -> str | None:
        """Return the cluster id; None if it is unknown."""
        ...

    def cut(
        self, asks: Mapping[TopicPartition, AskCut]
    ) -> Mapping[TopicPartition, PartitionCut | str]:
        """Cut partitions at append times; a sentence about one that cannot be cut."""
        ...


def cut_all(log: CutSource, at_ms: int, made_ms: int, advance: Advance = no_progress) -> Cut:
    """Cut all chosen partitions of a log at a time, also those that are added meanwhile.

    Raises:
        Misconfigured: a topic that is named does not exist.
        RequestRefused, NoAnswer, StorageFailed: as `cut_of`.
    """
    listed = _listed(log)
    while True:
        cut = cut_of(log, at_ms, listed, made_ms, advance)
        before, listed = listed, _listed(log)
        if listed == before:
            return cut


def _listed(log: CutSource) -> dict[TopicPartition, str | None]:
    """Return the partitions of a log with the ids of their topics."""
    return {key: log.topic_ids.get(key.topic) for key in log.partitions()}


def cut_of(
    log: CutSource,
    at_ms: int,
    partitions: Iterable[TopicPartition],
    made_ms: int,
    advance: Advance = no_progress,
) -> Cut:
    """Cut partitions of a log at a time.

    Args:
        made_ms: the present time, in milliseconds.

    Raises:
        RequestRefused: the brokers keep no append times.
        NoAnswer: a broker does not answer.
        StorageFailed: the disk refused.
    """
    entries = [
        CutEntry(
            key.topic,
            log.topic_ids.get(key.topic),
            key.partition,
            *its[:2],
            its.why is None,
            its.why,
        )
        for key, its in settled(log.cut, at_ms, partitions, advance).items()
    ]
    return Cut(log.cluster_id(), at_ms, made_ms, tuple(entries))


def ends_as_of(
    log: CutSource, as_of: AsOf | None, partitions: Collection[TopicPartition], *, committed: bool
) -> dict[TopicPartition, int]:
    """Return where a read of partitions as of a time ends; empty for a read without one.

    Args:
        committed: whether records of committed transactions are read.

    Raises:
        Misconfigured: the cut is of another cluster or topic, or not exact; or records before it
            were compacted, or all deleted, since it was made.
        RequestRefused, NoAnswer, StorageFailed: as `cut_of`.
    """
    found: dict[TopicPartition, int] = {}
    if as_of is None:
        return found
    for key, entry in entries_as_of(log, as_of, partitions).items():
        if entry.why is not None:
            raise Misconfigured(inexact(as_of, key, entry.why))
        found[key] = entry.committed_offset if committed else entry.offset
    return found


def entries_as_of(
    log: CutSource, as_of: AsOf, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, CutEntry]:
    """Return where partitions part at a time, exactly or not.

    A cut that was made before is not exact any more where records in front of it were compacted
    since, or all deleted. A partition that it does not have must have been added since.

    Raises:
        Misconfigured: the cut is of another cluster or topic.
        RequestRefused, NoAnswer, StorageFailed: as `cut_of`.
    """
    if not isinstance(as_of, Cut):
        its = cut_of(log, as_of, partitions, 0).by_partition()
        return {key: its[key] for key in partitions}
    its, given = entries_in(as_of, log, partitions), as_of.by_partition()
    for key, answer in log.cut({key: AskCut(key.partition, as_of.at_ms) for key in its}).items():
        entry, why = its[key], None
        if isinstance(answer, str):
            why = answer
        elif any(
            passed_by_cleaner(answer, offset) for offset in (entry.offset, entry.committed_offset)
        ):
            why = reason(Inexact.COMPACTED)
        elif answer.why is Inexact.DELETED:
            why = reason(answer.why) if entry.offset else None
        elif key not in given and (answer.offset or answer.why):
            why = reason(answer.why) if answer.why else "the cut has not the partition"
        if why is not None:
            its[key] = replace(entry, exact=False, why=why)
    return its


def inexact(as_of: AsOf, partition: TopicPartition, why: str) -> str:
    """Return the sentence that refuses a cut that is not exact."""
    return f"{partition} cannot be read as of {format_moment(_time_of(as_of))}: {why}"


def _time_of(as_of: AsOf) -> int:
    return as_of.at_ms if isinstance(as_of, Cut) else as_of


def up_to_cut(
    cut_ends: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> Mapping[TopicPartition, int]:
    """Return where a read ends: at a cut that was made before, if there is one.

    Raises:
        Misconfigured: the log ends before the cut.
    """
    for key, end in cut_ends.items():
        if end > latest[key]:
            raise Misconfigured(
                f"the cut is at offset {end} of {key}, which ends at {latest[key]}: it is of "
                "another log, or records were lost since"
            )
    if not cut_ends:
        return latest
    return {key: max(end, earliest[key]) for key, end in cut_ends.items()}


def entries_in(
    cut: Cut, log: CutSource, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, CutEntry]:
    """Return the entries of partitions of a log; one that was added since is cut at offset 0.

    Raises:
        Misconfigured: the cut is of another cluster, has not the topic, or it was re-created since.
    """
    cluster_id = log.cluster_id()
    if None not in (cut.cluster_id, cluster_id) and cut.cluster_id != cluster_id:
        raise Misconfigured(f"the cut is of another cluster: {cut.cluster_id}, not {cluster_id}")
    its = cut.by_partition()
    counts: dict[str, int] = {}
    for topic, number in its:
        counts[topic] = max(number + 1, counts.get(topic, 0))
    found = {}
    for key in partitions:
        topic_id = log.topic_ids.get(key.topic)
        entry = its.get(key)
        if entry is None and key.partition >= counts.get(key.topic, key.partition + 1):
            entry = CutEntry(key.topic, topic_id, key.partition, 0, 0, True, None)
        if entry is None:
            raise Misconfigured(f"the cut has no {key}: make one that has it")
        if None not in (entry.topic_id, topic_id) and entry.topic_id != topic_id:
            raise Misconfigured(
                f"{key.topic} was re-created since the cut: it had id {entry.topic_id}, and has "
                f"{topic_id}"
            )
        found[key] = entry
    return found
