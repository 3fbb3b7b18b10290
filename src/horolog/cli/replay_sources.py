"""What `horolog replay` reads: partitions of a broker or of files, merged by time."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path

from horolog.cli.reading import PartitionSpan, TimeRange, plan, read_span
from horolog.cli.reading_files import open_partitions, plan_files, read_stretch
from horolog.cli.replaying import (
    Due,
    ReplayProgress,
    Stream,
    append_time,
    create_time,
    merged,
)
from horolog.client import Client, RecordClock
from horolog.errors import Misconfigured
from horolog.storage.names import TopicPartition


class ReplaySource(ABC):
    """Partitions of a broker or of files, between offsets, of a range of time."""

    def __init__(self, clock: RecordClock) -> None:
        self._time_of = append_time if clock is RecordClock.APPEND else create_time

    @abstractmethod
    def spans(self) -> Mapping[TopicPartition, tuple[int, int]]:
        """The first and the last offset, and those between them, of each partition."""

    @abstractmethod
    def stream(self, partition: TopicPartition, start: int, end: int) -> Stream:
        """The records of a partition between two offsets, batch by batch."""

    def dues(
        self,
        places: Mapping[TopicPartition, tuple[int, int]],
        reached: Mapping[TopicPartition, int],
    ) -> Iterator[Due]:
        """The records between offsets of several partitions, merged."""
        streams = {each: self.stream(each, *place) for each, place in places.items()}
        return merged(streams, self._time_of, reached)

    def rest(self, progress: ReplayProgress) -> Iterator[Due]:
        """What was not sent yet."""
        places = {
            partition: (max(start, progress.offsets.get(partition, start)), end)
            for partition, (start, end) in self.spans().items()
        }
        return self.dues(places, progress.reached)


class BrokerSource(ReplaySource):
    """Partitions of a broker: committed records only."""

    def __init__(
        self, client: Client, topics: list[str], times: TimeRange, clock: RecordClock
    ) -> None:
        super().__init__(clock)
        self._client = client
        self._times = times
        self._clock = clock
        self._spans: dict[TopicPartition, list[PartitionSpan]] = {}
        for topic in topics:
            for span in plan(client, topic, times=times, clock=clock).spans:
                self._spans.setdefault(TopicPartition(topic, span.partition), []).append(span)

    def spans(self) -> Mapping[TopicPartition, tuple[int, int]]:
        """The first and the last offset, and those between them, of each partition."""
        return {each: (spans[0].start, spans[-1].end) for each, spans in self._spans.items()}

    def stream(self, partition: TopicPartition, start: int, end: int) -> Stream:
        """The records of a partition between two offsets, batch by batch."""
        for span in self._spans.get(partition, ()):
            within = span._replace(start=max(start, span.start), end=min(end, span.end))
            if within.start < within.end:
                for _, records in read_span(
                    self._client,
                    partition.topic,
                    within,
                    self._times,
                    self._clock,
                    read_committed=True,
                ):
                    yield records


class FileSource(ReplaySource):
    """Partitions of a log directory, or one partition.

    Raises:
        Misconfigured: a topic is not there.
    """

    def __init__(self, path: Path, topics: list[str], times: TimeRange, clock: RecordClock) -> None:
        super().__init__(clock)
        self._times = times
        self._clock = clock
        self._stretches = {
            each.log.partition: each
            for each in plan_files(open_partitions(path), None, read_committed=True)
            if not topics or each.log.partition.topic in topics
        }
        missing = set(topics).difference(each.topic for each in self._stretches)
        if missing:
            raise Misconfigured(f"there is no topic {min(missing)} in {path}")

    def spans(self) -> Mapping[TopicPartition, tuple[int, int]]:
        """The first and the last offset, and those between them, of each partition."""
        return {each: (found.start, found.end) for each, found in self._stretches.items()}

    def stream(self, partition: TopicPartition, start: int, end: int) -> Stream:
        """The records of a partition between two offsets, batch by batch."""
        found = self._stretches.get(partition)
        if found is not None:
            within = found._replace(start=max(start, found.start), end=min(end, found.end))
            for _, records in read_stretch(within, self._times, self._clock):
                yield records
