"""Parts of the page about topics of a broker, or of files."""

from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from horolog.client import Client
from horolog.client.kafka_lag import group_lags
from horolog.client.topic_facts import ServedPartitions
from horolog.errors import Damaged, RequestRefused, StorageFailed
from horolog.offsets import commits_positions
from horolog.report.page import Horizon, PartitionPart, TopicPart
from horolog.report.picture import Picture
from horolog.report.retention import Explained, explained_by_broker, explained_by_files
from horolog.sources.arrivals import ArrivalLog
from horolog.sources.options import ReadOptions
from horolog.storage.names import INTERNAL_TOPICS, TopicPartition
from horolog.wire.questions import REFUSED

_MOST_SEGMENTS: Final = 1_000  # of a partition on the page
_OF_SEGMENT: Final = (
    *("base_offset", "end_offset", "size", "is_active", "largest_ms"),
    *("appended_ms", "seen_ms", "goes_ms", "goes_now", "reason"),
)
_STEP: Final = 500  # batches between two words on how far it is

PartSteps: TypeAlias = Generator[tuple[int, int], None, list[TopicPart]]
"""Reads topics; yields how many offsets are read, and of how many."""


def parts_of_files(path: Path, now_ms: int) -> PartSteps:
    """Read the topics of a log directory, a partition or a segment for the page."""
    explained = list(explained_by_files(path, None, now_ms, {}))
    log = ArrivalLog(ReadOptions.of_path(str(path)))
    return _parts(log, explained, {}, {})


def parts_of_topic(client: Client, served: ServedPartitions, now_ms: int) -> PartSteps:
    """Read a topic of a broker for the page."""
    topic, notes = served.topic, list(served.offline.values())
    if not served.leaders:
        return [TopicPart(topic, Picture(), [], None, None, notes)]
    try:
        explained = list(explained_by_broker(client, served._replace(offline={}), None, {}))
    except RequestRefused as error:  # Apache Kafka's brokers
        explained = []
        notes.append(str(error))
    readers = list(filter(commits_positions, client.groups.names()))
    lags = group_lags(client, readers, now_ms)
    groups = [lag._asdict() for lag in lags if lag.topic == topic]
    answer = client.ask(REFUSED, topic)
    refused = {} if answer is None else {topic: [refusal._asdict() for refusal in answer.refused]}
    log = ArrivalLog(ReadOptions.of_topic(client.config, topic), served.leaders)
    return (yield from _parts(log, explained, {topic: groups}, refused, notes))


def _parts(
    log: ArrivalLog,
    explained: Sequence[Explained],
    groups: Mapping[str, Sequence[dict[str, Any]]],
    refused: Mapping[str, Sequence[dict[str, Any]]],
    notes: Sequence[str] = (),
) -> PartSteps:
    by_name = {partition.name: partition for partition in explained}
    by_topic: dict[str, list[TopicPartition]] = defaultdict(list)
    for partition in log.partitions:
        if partition.topic not in INTERNAL_TOPICS:
            by_topic[partition.topic].append(partition)
    parts, done = [], 0
    for topic, partitions in by_topic.items():
        picture, said = Picture(), [*notes]
        for partition in partitions:
            try:
                yield from _read(log, partition, picture, done)
            except (Damaged, StorageFailed) as error:  # its neighbours are shown all the same
                said.append(f"{partition}: {error}")
            done += log.offsets_of(partition)
            yield done, log.offsets
        its = [_partition(str(partition), by_name.get(str(partition))) for partition in partitions]
        said += [
            f"{name}: {by_name[name].damage}"
            for name in map(str, partitions)
            if name in by_name and by_name[name].damage
        ]
        parts.append(TopicPart(topic, picture, its, groups.get(topic), refused.get(topic), said))
    return parts


def _read(
    log: ArrivalLog, partition: TopicPartition, picture: Picture, done: int
) -> Iterator[tuple[int, int]]:
    start: int | None = None
    for number, batch in enumerate(log.times(partition)):
        start = batch.base_offset if start is None else start
        times = batch.create_times
        offsets = range(batch.base_offset, batch.base_offset + len(times))
        picture.add(partition.partition, batch.append_ms, offsets, times)
        if number % _STEP == 0:
            yield done + batch.base_offset - start, log.offsets


def _partition(name: str, explained: Explained | None) -> PartitionPart:
    if explained is None:
        return PartitionPart(name, "nothing is known of its segments", None, ())
    settings = explained.settings
    note = ", ".join(f"{key}={value}" for key, value in settings.items())
    segments = [
        {name: getattr(segment, name) for name in _OF_SEGMENT}
        for segment in explained.segments[-_MOST_SEGMENTS:]
    ]
    left_out = len(explained.segments) - len(segments)
    if left_out:
        note += f"; the oldest {left_out} segments are left out"
    horizon, limit_ms = None, int(settings.get("retention.ms", -1))
    if limit_ms >= 0 and not explained.is_exempt:
        by = settings.get("horolog.retention.by")
        clock = "create" if by == "create-time" else "append"
        horizon = Horizon(explained.now_ms - limit_ms, clock)
    return PartitionPart(name, note, horizon, segments)
