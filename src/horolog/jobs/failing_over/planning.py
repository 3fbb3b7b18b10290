"""Plans where groups start on the survivor, from the recordings and the survivor alone."""

import json
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from horolog.client import EARLIEST, LATEST, Client, RecordClock, ResourceType
from horolog.client.topic_facts import known_id
from horolog.errors import Misconfigured
from horolog.jobs.failing_over.marks import marked
from horolog.jobs.failing_over.recorded import BY_USER, Recorded, TopicProgress
from horolog.jobs.parameters.failover import PlanStep
from horolog.jobs.questions.scan import Scan
from horolog.jobs.selection import Selection, client_of
from horolog.jobs.state import value_of
from horolog.sources.broker_log import BrokerLog
from horolog.sources.location import Location
from horolog.storage.names import TopicPartition

_TYPE = "message.timestamp.type"


@dataclass(frozen=True, slots=True)
class Start:
    """Start position of a group in a topic of the survivor."""

    group: str
    topic: str
    recorded_at_ms: int
    bound_ms: int
    """Longest time that a record takes to the source's log, margin included."""
    from_ms: Mapping[int, int | None]
    """Create time from which to read, by partition; None to read everything."""
    offsets: Mapping[int, int] = field(default_factory=dict)
    """Start offsets by partition of the survivor."""
    to_read: int = 0
    """Number of records from the start offsets to the log ends."""
    duplicates: int = 0
    """How many of these records, at most, the group had read when it was recorded."""
    bound_by: str | None = None
    """Evidence of the bound: `Bound.by`, or `BY_USER`."""
    notes: tuple[str, ...] = ()
    """Reasons why records could be missing; without any, none can be."""


@dataclass(frozen=True, slots=True)
class FailoverPlan:
    """Start positions of all groups."""

    id: str
    cluster_id: str | None
    target: str
    starts: tuple[Start, ...]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Ids of the survivor's topics: a topic that was created again has another id."""

    @property
    def is_proven(self) -> bool:
        """True if no record can be missing, provided that none exceeds its bound."""
        return not any(start.notes for start in self.starts)

    def offsets(self) -> dict[str, dict[tuple[str, int], int]]:
        """Return the offsets of each group, by topic and partition."""
        by_group: dict[str, dict[tuple[str, int], int]] = defaultdict(dict)
        for start in self.starts:
            for number, offset in start.offsets.items():
                by_group[start.group][start.topic, number] = offset
        return dict(by_group)

    def to_json(self) -> dict[str, Any]:
        """Convert to a document for `from_json`."""
        return {"version": 1, **asdict(self)}

    @classmethod
    def from_json(cls, document: Any) -> "FailoverPlan":
        """Read a document of `to_json`.

        Raises:
            CorruptFile: the document has another form.
        """
        return value_of(cls, document, "plan.json", (1,))


def start_times(
    recorded: Recorded, group: str, topic: str, partitions: Iterable[int], step: PlanStep
) -> Start:
    """Return the create time from which a group reads each partition of the survivor."""
    progress = recorded.groups[group][topic]
    recorded_bound = recorded.bound(topic)
    measured, by = recorded_bound.ms, recorded_bound.by
    if step.bound_ms is not None:
        measured, by = step.bound_ms, BY_USER
    bound = measured + step.margin_ms
    notes = []
    if step.bound_ms is None and not recorded.has_latency(topic):
        notes.append(
            "it was never measured how long records take: the bound is how far they were out of "
            "order"
        )
    elif measured < recorded_bound.ms:
        notes.append(f"records have taken up to {recorded_bound.ms} ms")
    if not step.ignore_odd_times and recorded.odd(topic):
        notes.append(
            f"{recorded.odd(topic):,} records had no time, or one in another unit: such records "
            "are only found where they had arrived when the group was recorded"
        )
    from_ms = {number: _from_ms(progress, number, bound, step) for number in sorted(partitions)}
    return Start(group, topic, progress.at_ms, bound, from_ms, bound_by=by, notes=tuple(notes))


def _from_ms(progress: TopicProgress, number: int, bound_ms: int, step: PlanStep) -> int | None:
    only = number if step.same_partitions and number in progress.partitions else None
    odd = progress.unread_odd if only is None else progress.partitions[only].unread_odd
    if odd and not step.ignore_odd_times:
        return None  # they are unread, and no time finds them
    return progress.read_before_ms(bound_ms, only)


def plan(
    spark: SparkSession, step: PlanStep, recorded: Recorded, groups: Collection[str]
) -> FailoverPlan:
    """Plan where each of the recorded groups starts; asks only the survivor.

    Raises:
        Misconfigured: the survivor is the cluster that was recorded.
        RequestRefused: the survivor refuses.
        NoAnswer: it does not answer.
    """
    needed = {
        (group, topic)
        for group, topics in recorded.groups.items()
        if group in groups
        for topic in topics
    }
    target = Location.parse(step.target, "target")
    with client_of(target, step.settings or {}) as client:
        cluster_id, topic_ids, present = _survivor(
            client, recorded, target, {topic for _, topic in needed}
        )
        if step.same_partitions:
            _check_partitions(recorded, needed, present)
        starts = [
            start_times(recorded, group, topic, present[topic], step)
            if topic in present
            else _without_topic(recorded, group, topic)
            for group, topic in sorted(needed)
        ]
        ends = _ends(client, present, LATEST)  # before the lookups: what comes later lies behind
        survivor = _Survivor(target, step.settings or {}, _ends(client, present, EARLIEST), ends)
        stamped = _stamped(client, present)
        placed = [
            _looked_up(client, start, survivor) if start.topic not in stamped else start
            for start in starts
        ]
    if stamped:
        placed = _scanned(spark, placed, stamped, survivor)
    counted = _counted(spark, placed, recorded, survivor)
    return FailoverPlan(uuid.uuid4().hex, cluster_id, str(target), tuple(counted), topic_ids)


def _survivor(
    client: Client, recorded: Recorded, target: Location, topics: Iterable[str]
) -> tuple[str | None, dict[str, str], dict[str, list[int]]]:
    metadata = client.metadata(sorted(topics))
    if metadata.cluster_id is not None and metadata.cluster_id == recorded.cluster_id:
        raise Misconfigured(
            f"{target} is the cluster that was recorded ({recorded.source}), not a survivor of it"
        )
    present = {
        name: sorted(its.partitions) for name, its in metadata.topics.items() if its.partitions
    }
    ids = {
        name: its
        for name, topic in metadata.topics.items()
        if name in present and (its := known_id(topic)) is not None
    }
    return metadata.cluster_id, ids, present


def _check_partitions(
    recorded: Recorded, needed: Iterable[tuple[str, str]], present: Mapping[str, Sequence[int]]
) -> None:
    """Refuse `same-partitions` where a topic has another number of partitions than at the source.

    Raises:
        Misconfigured: a topic has another number of partitions than it had at the source.
    """
    for group, topic in sorted(needed):
        before = len(recorded.groups[group][topic].partitions)
        if topic in present and len(present[topic]) != before:
            raise Misconfigured(
                f"{topic} has {len(present[topic])} partitions at the survivor and {before} at the "
                "source, so that records are not in the same ones: leave out same-partitions"
            )


def _without_topic(recorded: Recorded, group: str, topic: str) -> Start:
    at_ms = recorded.groups[group][topic].at_ms
    return Start(group, topic, at_ms, 0, {}, notes=("the survivor has no such topic",))


class _Survivor(NamedTuple):
    """Target of a plan, with the log bounds of its topics."""

    target: Location
    settings: Mapping[str, str]
    earliest: Mapping[tuple[str, int], int]
    ends: Mapping[tuple[str, int], int]

    def selection(self, topics: Collection[str], **more: str) -> Selection:
        """Return a selection of topics of the survivor."""
        settings = {**self.settings, **more}
        return Selection.of(self.target, topics=sorted(topics), settings=settings)


def _ends(
    client: Client, present: Mapping[str, Sequence[int]], which: int
) -> dict[tuple[str, int], int]:
    asked = {(name, number): which for name, numbers in present.items() for number in numbers}
    return {key: found.offset if found else 0 for key, found in client.list_offsets(asked).items()}


def _stamped(client: Client, topics: Iterable[str]) -> set[str]:
    """Return the LogAppendTime topics, whose time indexes have no create times."""
    resources = [(ResourceType.TOPIC, name) for name in topics]
    described = client.describe_configs(resources, names=[_TYPE]) if resources else {}
    return {
        resource[1]
        for resource, entries in described.items()
        if _TYPE in entries and entries[_TYPE].value == "LogAppendTime"
    }


def _looked_up(client: Client, start: Start, survivor: _Survivor) -> Start:
    """Add the offsets that the survivor's time indexes give for a start's times."""
    by_time: dict[int, list[TopicPartition]] = defaultdict(list)
    offsets: dict[int, int] = {}
    for number, from_ms in start.from_ms.items():
        if from_ms is None:
            offsets[number] = survivor.earliest[start.topic, number]
        else:
            by_time[from_ms].append(TopicPartition(start.topic, number))
    with BrokerLog(survivor.selection([start.topic]).read_options()) as log:
        for from_ms, partitions in by_time.items():
            if from_ms < 0 and client.offsets.has_append_times():
                records = client.find_records(
                    {(partition.topic, partition.partition): from_ms for partition in partitions},
                    RecordClock.CREATE,
                )
                first_offsets = {
                    TopicPartition(*key): record.offset for key, record in records.items() if record
                }
            else:
                first_offsets = log.none_before(from_ms, partitions)
            for partition in partitions:
                key = (partition.topic, partition.partition)
                offset = first_offsets.get(partition, survivor.ends[key])
                offsets[partition.partition] = min(
                    max(offset, survivor.earliest[key]), survivor.ends[key]
                )
    return replace(start, offsets=dict(sorted(offsets.items())))


def _scanned(
    spark: SparkSession, starts: Sequence[Start], topics: Collection[str], survivor: _Survivor
) -> list[Start]:
    """Add the offsets for the start times in LogAppendTime topics, by a scan of their records."""
    times = sorted(
        {
            from_ms
            for start in starts
            if start.topic in topics
            for from_ms in start.from_ms.values()
            if from_ms is not None
        }
    )
    frame = survivor.selection(topics).frame(spark, columns="topic,partition,offset,createTimeMs")
    firsts = [
        F.min(F.when(F.col("createTimeMs") >= from_ms, F.col("offset"))).alias(f"at_{place}")
        for place, from_ms in enumerate(times)
    ]
    rows = frame.groupBy("topic", "partition").agg(F.count("*"), *firsts).collect()
    first_offsets = {
        (row["topic"], row["partition"], from_ms): row[f"at_{place}"]
        for row in rows
        for place, from_ms in enumerate(times)
    }
    scanned = []
    for start in starts:
        if start.topic in topics:
            offsets = {}
            for number, from_ms in start.from_ms.items():
                key = (start.topic, number)
                if from_ms is None:
                    offsets[number] = survivor.earliest[key]
                else:
                    first, end = first_offsets.get((*key, from_ms)), survivor.ends[key]
                    offsets[number] = end if first is None else min(first, end)
            start = replace(start, offsets=offsets)
        scanned.append(start)
    return scanned


def _counted(
    spark: SparkSession, starts: Sequence[Start], recorded: Recorded, survivor: _Survivor
) -> list[Start]:
    """Add how many records each start reads, and how many of them at most for a second time."""
    marks: dict[tuple[str, int], list[int]] = defaultdict(list)
    for start in starts:
        for number, offset in start.offsets.items():
            if offset not in marks[start.topic, number]:
                marks[start.topic, number].append(offset)
    if not marks:
        return list(starts)
    for places in marks.values():
        places.sort()
    first: dict[str, dict[str, int]] = defaultdict(dict)
    for (topic, number), places in marks.items():
        first[topic][str(number)] = places[0]
    limits: dict[str, int] = {}
    for topics in recorded.groups.values():
        for topic, progress in topics.items():
            if topic in first and progress.largest_ms is not None:
                limits[topic] = max(progress.largest_ms, limits.get(topic, progress.largest_ms))
    selection = survivor.selection(first, startingOffsets=json.dumps(first), failOnDataLoss="false")
    sums = marked(spark, Scan.plan(spark, selection, with_producers=False), marks, limits)
    counted = []
    for start in starts:
        to_read = again = 0
        for number, offset in start.offsets.items():
            key = (start.topic, number)
            rest = sums[key].from_mark(marks[key].index(offset))
            to_read += rest.records
            again += rest.up_to
        unread = recorded.groups[start.group][start.topic].unread
        counted.append(replace(start, to_read=to_read, duplicates=max(0, again - unread)))
    return counted
