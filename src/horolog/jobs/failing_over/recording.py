"""Records until when groups have read, and how late records are, while their cluster lives."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from horolog.client import EARLIEST, Client, CommittedOffset
from horolog.clock import SystemClock
from horolog.errors import Misconfigured
from horolog.jobs.failing_over.marks import (
    PARTS,
    MarkSummary,
    PartitionMarks,
    between,
    marked,
    rows_of,
)
from horolog.jobs.failing_over.recorded import Bound, Progress, Recorded, TopicProgress
from horolog.jobs.location import Location
from horolog.jobs.questions.live import LiveScan
from horolog.jobs.questions.scan import Scan, Summary, ddl_of
from horolog.jobs.selection import Selection, client_of
from horolog.spark import java_patterns

BY_APPEND_TIME: Final = "append time"
BY_READER: Final = "reader"

Commits = Mapping[tuple[str, int], CommittedOffset | None]


class Looked(NamedTuple):
    """What a recording found, before it read the records."""

    cluster_id: str | None
    at_ms: int
    commits: dict[str, Commits]
    """By group."""
    partitions: dict[str, list[int]]
    """By topic."""
    earliest: dict[tuple[str, int], int]

    def offset(self, group: str, partition: tuple[str, int]) -> int:
        """The next one that a group reads."""
        committed = self.commits[group].get(partition)
        start = self.earliest[partition]
        return start if committed is None else max(start, committed.offset)

    def reads(self, group: str, topic: str) -> bool:
        """Whether a group has committed anything of a topic."""
        return any(
            name == topic and its is not None for (name, _), its in self.commits[group].items()
        )


def look(
    source: Location,
    settings: Mapping[str, str],
    groups: Sequence[str],
    topics: Sequence[str],
    topics_pattern: str | None,
) -> Looked:
    """Ask for the time, the committed offsets and the partitions, in this order.

    Raises:
        Misconfigured: no group has committed anything of the topics.
        RequestRefused: the cluster refuses.
        NoAnswer: it does not answer.
    """
    with client_of(source, settings) as client:
        at_ms = client.cluster_time_ms()
        if at_ms is None:
            at_ms = SystemClock().now_ms()
        commits = {group: client.offset_fetch(group) for group in groups}
        wanted = _topics(commits, topics, topics_pattern)
        if not wanted:
            raise Misconfigured(
                f"there is nothing to record: {', '.join(groups)} have committed no offset"
                + (" of these topics" if topics or topics_pattern else "")
            )
        metadata = client.metadata(wanted)
        partitions = {
            name: sorted(metadata.topics[name].partitions)
            for name in wanted
            if name in metadata.topics and metadata.topics[name].partitions
        }
        missing = [name for name in topics if name not in partitions]
        if missing:
            raise Misconfigured(f"there is no topic {missing[0]} at {source}")
        return Looked(
            metadata.cluster_id, at_ms, dict(commits), partitions, _earliest(client, partitions)
        )


def _topics(
    commits: Mapping[str, Commits], topics: Sequence[str], pattern: str | None
) -> list[str]:
    read = sorted({name for its in commits.values() for (name, _), at in its.items() if at})
    if topics:
        return [name for name in topics if name in read]
    if pattern is None:
        return read
    matches = java_patterns.compiled(pattern).fullmatch
    return [name for name in read if matches(name)]


def _earliest(
    client: Client, partitions: Mapping[str, Sequence[int]]
) -> dict[tuple[str, int], int]:
    asked = {(name, number): EARLIEST for name, its in partitions.items() for number in its}
    return {key: found.offset if found else 0 for key, found in client.list_offsets(asked).items()}


def record_once(
    spark: SparkSession,
    source: Location,
    settings: Mapping[str, str],
    looked: Looked,
    live_ms: int,
) -> tuple[dict[str, Bound], dict[str, dict[str, TopicProgress]]]:
    """Read the times of the topics; bounds by topic, progress by group and topic."""
    keys = [(name, number) for name, its in looked.partitions.items() for number in its]
    marks = {key: sorted({looked.offset(group, key) for group in looked.commits}) for key in keys}
    selection = Selection.of(str(source), topics=list(looked.partitions), settings=settings)
    found = marked(spark, Scan.plan(spark, selection, with_producers=False), marks)
    bounds = {
        name: _bound(looked.at_ms, [found[name, number] for number in its])
        for name, its in looked.partitions.items()
    }
    blind = [name for name, each in bounds.items() if each.latency_ms is None]
    if blind and live_ms:
        bounds |= _measured_live(
            spark, source, settings, {name: bounds[name] for name in blind}, live_ms
        )
    progress = {
        group: {
            name: _progress(looked, group, name, marks, found)
            for name in looked.partitions
            if looked.reads(group, name)
        }
        for group in looked.commits
    }
    return bounds, progress


def _bound(at_ms: int, partitions: Sequence[PartitionMarks]) -> Bound:
    latencies = [each.latency_max_ms for each in partitions if each.latency_max_ms is not None]
    return Bound(
        at_ms=at_ms,
        records=sum(its.records for each in partitions for its in each.between),
        odd=sum(its.odd for each in partitions for its in each.between),
        lateness_ms=max((each.late_max_ms for each in partitions), default=0),
        latency_ms=max(0, *latencies) if latencies else None,
        latency_by=BY_APPEND_TIME if latencies else None,
    )


def _measured_live(
    spark: SparkSession,
    source: Location,
    settings: Mapping[str, str],
    bounds: Mapping[str, Bound],
    live_ms: int,
) -> dict[str, Bound]:
    """With the latency of what is appended meanwhile, where anything is."""
    selection = Selection.of(str(source), topics=list(bounds), settings=settings)
    summary: Summary = MarkSummary({})
    parts = LiveScan.plan(spark, selection, live_ms).frame(spark, summary, ddl_of(PARTS))
    found: dict[str, int] = {}
    for (topic, _), each in between(rows_of(parts), {}).items():
        if each.latency_max_ms is not None:
            found[topic] = max(found.get(topic, 0), each.latency_max_ms)
    return {
        topic: Bound(
            at_ms=each.at_ms,
            records=each.records,
            odd=each.odd,
            lateness_ms=each.lateness_ms,
            latency_ms=found.get(topic),
            latency_by=BY_READER if topic in found else None,
        )
        for topic, each in bounds.items()
    }


def _progress(
    looked: Looked,
    group: str,
    topic: str,
    marks: Mapping[tuple[str, int], Sequence[int]],
    found: Mapping[tuple[str, int], PartitionMarks],
) -> TopicProgress:
    partitions = {}
    largest: list[int] = []
    for number in looked.partitions[topic]:
        key = (topic, number)
        offset = looked.offset(group, key)
        unread = found[key].from_mark(marks[key].index(offset))
        partitions[number] = Progress(
            offset=offset,
            is_committed=looked.commits[group].get(key) is not None,
            unread=unread.records,
            unread_odd=unread.odd,
            unread_min_ms=unread.min_ms,
        )
        if found[key].max_ms is not None:
            largest.append(found[key].max_ms or 0)
    return TopicProgress(looked.at_ms, max(largest, default=None), partitions)


def check_same_cluster(recorded: Recorded, looked: Looked, source: Location) -> None:
    """Refuse to mix recordings of two clusters.

    Raises:
        Misconfigured: the earlier ones are of another cluster.
    """
    if recorded.cluster_id != looked.cluster_id:
        raise Misconfigured(
            f"the recordings in --state are of the cluster {recorded.cluster_id} "
            f"({recorded.source}), and {source} is of {looked.cluster_id}: give another --state"
        )
