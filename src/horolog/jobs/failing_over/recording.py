"""Records the positions of groups and the latencies of records, while their cluster lives.

Each recording reads the records since the last one. For a group that has committed another offset
since, the records near that offset are read again (`needed`). The sums of its other unread records
are known, also of records that were deleted since.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import SparkSession

from horolog.client import Client
from horolog.jobs.failing_over.looking import Key, Looked, PartitionEnds
from horolog.jobs.failing_over.marks import (
    Between,
    MarkSummary,
    PartitionMarks,
    between,
    known,
    marked,
    rows_of,
)
from horolog.jobs.failing_over.needed import Needed, layers, needed, stretches_with
from horolog.jobs.failing_over.recorded import (
    BY_APPEND_TIME,
    BY_BROKER,
    BY_READER,
    Bound,
    GroupProgress,
    PartitionRead,
    ReadSums,
    Recorded,
    TopicProgress,
    TopicRead,
)
from horolog.jobs.parameters.failover import RecordStep
from horolog.jobs.questions.live import LiveScan
from horolog.jobs.questions.scan import Scan
from horolog.jobs.selection import Selection, client_of
from horolog.record.time_stats import latency_up_to
from horolog.sources.location import Location
from horolog.storage.names import TopicPartition
from horolog.wire.questions import TIMES, AskTimes

_ISOLATION: Final = "kafka.isolation.level"


@dataclass(frozen=True, slots=True)
class Recording:
    """Result of one recording."""

    bounds: Mapping[str, Bound]
    """Bounds by topic."""
    groups: Mapping[str, Mapping[str, TopicProgress]]
    """Positions by group and topic; empty for a group without commits in the topics."""
    records_read: Mapping[str, int]
    """Number of records that this recording read, by topic."""
    broker_counts: Mapping[str, bool]
    """By topic of which brokers were asked: True if they count latencies (Apache Kafka's do
    not)."""


def forget_changed(recorded: Recorded, looked: Looked) -> None:
    """Discard the sums of logs that were truncated, and of topics that were created again.

    A topic that was created again has another id. A truncated log ends before the offset up to
    which it was read, or has another leader epoch.
    """
    for topic, topic_id in looked.topic_ids.items():
        before = recorded.read.get(topic)
        if before is None or topic_id is None or before.topic_id != topic_id:
            recorded.forget(topic)
            continue
        for number in looked.numbers(topic):
            now, then = looked.partitions[topic, number], before.partitions.get(number)
            if then is None or now.end < then.end or now.leader_epoch != then.leader_epoch:
                recorded.forget(topic, number)


def record_once(
    spark: SparkSession, step: RecordStep, source: Location, looked: Looked, recorded: Recorded
) -> Recording:
    """Read the records that no earlier recording has read, and add their sums to `recorded`."""
    forget_changed(recorded, looked)
    to_read = needed(recorded, looked)
    marks = {key: partition.marks for key, partition in to_read.items()}
    scans = [
        Scan.plan(spark, selection, with_producers=False)
        for selection in _selections(source, step.settings or {}, layers(to_read))
    ]
    between_marks = marked(spark, Scan.joined(scans), marks) if scans else between([], marks)
    topics = sorted(looked.topic_ids)
    bounds, groups = add(recorded, looked, to_read, between_marks)
    with client_of(source, step.settings or {}) as client:
        counted, broker_counts = _counted_by_brokers(client, recorded, bounds)
    bounds |= counted
    blind = [name for name, bound in bounds.items() if bound.latency_ms is None]
    if blind and step.live_ms:
        selection = Selection.of(source, topics=blind, settings=step.settings)
        for name, latency_ms in _measured_live(spark, selection, step.live_ms).items():
            bounds[name] = replace(bounds[name], latency_ms=latency_ms, latency_by=BY_READER)
    for topic, bound in bounds.items():
        recorded.add_bound(topic, bound)
    read = {
        name: sum(
            between_marks[name, number].from_mark(0).records for number in looked.numbers(name)
        )
        for name in topics
    }
    return Recording(bounds, groups, read, broker_counts)


def _selections(
    source: Location, settings: Mapping[str, str], layers: Sequence[Mapping[Key, tuple[int, int]]]
) -> list[Selection]:
    """Return a selection of the records of each layer, uncommitted ones included.

    Uncommitted records are read whatever the settings say, since they may be committed later.
    """
    others = {name: value for name, value in settings.items() if name.lower() != _ISOLATION}
    everything = Selection(source=source, settings={**others, _ISOLATION: "read_uncommitted"})
    return [
        everything.within({TopicPartition(*key): offsets for key, offsets in layer.items()})
        for layer in layers
    ]


def add(
    recorded: Recorded,
    looked: Looked,
    to_read: Mapping[Key, Needed],
    between_marks: Mapping[Key, PartitionMarks],
) -> tuple[dict[str, Bound], dict[str, dict[str, TopicProgress]]]:
    """Add the new sums to the recordings; return the bounds and the positions of groups.

    The bounds are not added yet: records that are appended during the recording may count as well.
    """
    progress: dict[str, dict[str, TopicProgress]] = {group: {} for group in looked.commits}
    bounds = {}
    for topic, topic_id in looked.topic_ids.items():
        keys = [(topic, number) for number in looked.numbers(topic)]
        read = {
            key[1]: _added(to_read[key], looked.partitions[key], between_marks[key]) for key in keys
        }
        largest = max(known(partition.largest_ms for partition in read.values()), default=None)
        for group in looked.commits:
            if looked.reads(group, topic):
                places = {
                    key[1]: _place(looked, group, key, to_read[key], between_marks[key])
                    for key in keys
                }
                progress[group][topic] = TopicProgress(looked.at_ms, largest, places)
        recorded.read[topic] = TopicRead(topic_id, read)
        bounds[topic] = _bound(looked.at_ms, list(read.values()))
    for group, topics in progress.items():
        if topics:
            recorded.groups.setdefault(group, {}).update(topics)
    return bounds, progress


def _added(part: Needed, now: PartitionEnds, between_marks: PartitionMarks) -> PartitionRead:
    """Return the sums of a partition with its new records added."""
    before, fresh = part.before, between_marks.from_mark(part.place(part.before.end))
    late_ms = max(before.lateness_ms, fresh.late_max_ms)
    if before.largest_ms is not None and fresh.min_ms is not None:
        late_ms = max(late_ms, before.largest_ms - fresh.min_ms)
    return PartitionRead(
        end=now.end,
        leader_epoch=now.leader_epoch,
        records=before.records + fresh.records,
        odd=before.odd + fresh.odd,
        lateness_ms=late_ms,
        latency_ms=max(known([before.latency_ms, fresh.latency_max_ms]), default=None),
        largest_ms=max(known([before.largest_ms, fresh.max_ms]), default=None),
        stretches=stretches_with(part, now.end, between_marks),
    )


def _bound(at_ms: int, partitions: Sequence[PartitionRead]) -> Bound:
    latencies = list(known(partition.latency_ms for partition in partitions))
    return Bound(
        at_ms=at_ms,
        records=sum(partition.records for partition in partitions),
        odd=sum(partition.odd for partition in partitions),
        lateness_ms=max((partition.lateness_ms for partition in partitions), default=0),
        latency_ms=max(0, *latencies) if latencies else None,
        latency_by=BY_APPEND_TIME if latencies else None,
    )


def _place(
    looked: Looked, group: str, key: Key, to_read: Needed, between_marks: PartitionMarks
) -> GroupProgress:
    """Return the position of a group in a partition, with sums of its unread records."""
    since, until, then = to_read.lags[group]
    parts: list[Between | ReadSums] = [
        between_marks.from_mark(to_read.place(since), to_read.place(until)),
        *(stretch for stretch in to_read.before.stretches if stretch.start >= until),
        between_marks.from_mark(to_read.place(max(since, to_read.before.end))),
    ]
    smallest = [then.unread_min_ms if then else None, *(part.min_ms for part in parts)]
    return GroupProgress(
        offset=looked.offset(group, key),
        committed=looked.committed(group, key),
        end=looked.partitions[key].end,
        unread=sum(part.records for part in parts) + (then.unread if then else 0),
        unread_odd=sum(part.odd for part in parts) + (then.unread_odd if then else 0),
        unread_min_ms=min(known(smallest), default=None),
    )


def _counted_by_brokers(
    client: Client, recorded: Recorded, bounds: Mapping[str, Bound]
) -> tuple[dict[str, Bound], dict[str, bool]]:
    """Complete bounds by the latencies that the source's brokers have counted.

    Brokers also count deleted records. Latencies beyond the last class have no upper bound, so
    these records are odd.

    Returns:
        The bounds that are others then, and of which topics the brokers count latencies at all.
    """
    lacking = [
        (topic, number)
        for topic in bounds
        for number, sums in recorded.read[topic].partitions.items()
        if sums.latency_ms is None
    ]
    answers = client.ask.many(TIMES, {partition: AskTimes(partition[1]) for partition in lacking})
    completed, broker_counts = dict[str, Bound](), dict[str, bool]()
    for (topic, _), times in answers.items():
        broker_counts[topic] = broker_counts.get(topic, True) and times is not None
        if times is None:
            continue
        before = completed.get(topic, bounds[topic])
        counts = times.latencies, times.appended_latencies
        latency_ms = max(known(map(latency_up_to, counts)), default=None)
        odd = max(before.odd, *(count[-1] for count in counts))
        if latency_ms is not None and latency_ms > (before.latency_ms or -1):
            before = replace(before, latency_ms=latency_ms, latency_by=BY_BROKER)
        completed[topic] = replace(before, odd=odd)
    return completed, broker_counts


def _measured_live(spark: SparkSession, selection: Selection, live_ms: int) -> dict[str, int]:
    """Return the largest latency of newly appended records, by topic, in milliseconds."""
    parts = LiveScan.plan(spark, selection, live_ms).frame(spark, MarkSummary({}))
    by_topic: dict[str, int] = {}
    for (topic, _), sums in between(rows_of(parts), {}).items():
        latency_ms = sums.from_mark(-1).latency_max_ms
        if latency_ms is not None:
            by_topic[topic] = max(by_topic.get(topic, 0), latency_ms)
    return by_topic
