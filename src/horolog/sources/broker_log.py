"""Log at a broker for planners: its start, end and offsets by time, and stretches to read."""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from horolog.client import (
    CUT,
    AskCut,
    Client,
    CommittedOffset,
    FoundOffset,
    NoAnswer,
    OffsetRange,
    PartitionCut,
    PartitionTimes,
    RecordClock,
)
from horolog.client.complete_times import ask_complete
from horolog.errors import Misconfigured, RequestRefused
from horolog.record.batch import iter_headers
from horolog.record.timestamps import TimeRange
from horolog.sources.bounds import Bounds, first_time, taken_bounds
from horolog.sources.cuts import ends_as_of
from horolog.sources.limits import EARLIEST, LATEST, Assigned, TopicSelection, subscribed
from horolog.sources.options import ReadOptions
from horolog.sources.plan import BrokerStretch
from horolog.sources.row_filter import RowFilter
from horolog.storage.directory.checkpoints import decode_uuid, kafka_uuid
from horolog.storage.names import TopicPartition

_logger = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


def _parts(stretch: BrokerStretch, spans: Sequence[OffsetRange] | None) -> Iterator[BrokerStretch]:
    """Return the parts of a range covered by spans. A span's size is an upper bound."""
    if spans is None:
        yield stretch
        return
    for span in spans:
        start, end = max(span.start, stretch.start), min(span.end, stretch.end)
        if start < end:
            size = span.size if stretch.size is None else min(span.size, stretch.size)
            yield replace(stretch, start=start, end=end, size=size)


class BrokerLog:
    """The topics that a read subscribes to, at their brokers. Close it after use."""

    def __init__(self, options: ReadOptions) -> None:
        assert options.brokers is not None
        self._options = options
        self._client = Client.of(options.brokers)
        self.topic_ids: dict[str, str] = {}
        """Topic ids by name, as of the last `partitions`; empty from Kafka before 2.8."""
        self.leaderless: frozenset[TopicPartition] = frozenset()
        """Partitions without a leader, as of the last `partitions`."""

    def __enter__(self) -> "BrokerLog":
        return self

    def __exit__(self, *exc: object) -> None:
        self._client.close()

    def interrupt(self) -> None:
        """Make a request that another thread waits for fail now, for good."""
        self._client.brokers.interrupt()

    # As `bounds.BoundedLog`.

    def partitions(self, *, may_miss: bool = False) -> Collection[TopicPartition]:
        """Return the partitions that the read subscribes to.

        Raises:
            Misconfigured: one that is named does not exist, unless it `may_miss`.
        """
        subscription = self._options.subscription
        assert subscription is not None
        topics: Sequence[str] | None = None
        match subscription:
            case TopicSelection(names):
                topics = names
            case Assigned(assigned):
                topics = tuple(dict.fromkeys(partition.topic for partition in assigned))
        answer = self._persist(lambda: self._client.metadata(topics))
        present = [
            TopicPartition(topic.name, partition)
            for topic in answer.topics.values()
            for partition in topic.partitions
        ]
        self.leaderless = frozenset(
            TopicPartition(topic.name, number)
            for topic in answer.topics.values()
            for number, partition in topic.partitions.items()
            if partition.leader is None
        )
        self.topic_ids = {
            topic.name: kafka_uuid(topic.topic_id)
            for topic in answer.topics.values()
            if topic.topic_id is not None and topic.topic_id.int
        }
        where = f"at {self._client.config.bootstrap_servers}"
        return subscribed(subscription, present, where, may_miss=may_miss)

    def times_of(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, PartitionTimes | None]:
        """Ask up to which times partitions are complete; None for those without a leader.

        Raises:
            Misconfigured: a leader is another product.
        """
        served = [its for its in partitions if its not in self.leaderless]
        found = self._persist(lambda: ask_complete(self._client, served))
        return {its: found.get(its) for its in partitions}

    def wait_for_records(self, positions: Mapping[TopicPartition, int], max_wait_ms: int) -> None:
        """Wait until a position has records, or for `max_wait_ms`."""
        self._client.records.wait_for_records(
            {
                (partition.topic, partition.partition): offset
                for partition, offset in positions.items()
            },
            max_wait_ms=max_wait_ms,
            read_committed=self._options.read_committed,
        )

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition."""
        return self._ends(partitions, EARLIEST)

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermark of each, or its last stable offset for committed reads."""
        return self._ends(partitions, LATEST)

    def at_or_after(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """Return the earliest offset at or after each time; None where no record is that late.

        Raises:
            Misconfigured: a time before 1970, which Apache Kafka cannot be asked for.
        """
        since_1970 = {partition: at for partition, at in times_ms.items() if at >= 0}
        found = {
            partition: None if answer is None else answer.offset
            for partition, answer in self._list(since_1970).items()
        }
        earlier = {partition: at for partition, at in times_ms.items() if at < 0}
        return found | self._before_1970(earlier)

    def _before_1970(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        if not times_ms:
            return {}
        if not self._persist(self._client.offsets.has_append_times):
            partition, timestamp_ms = next(iter(times_ms.items()))
            raise Misconfigured(
                f"Apache Kafka cannot be asked for the offset of {partition} at {timestamp_ms}: "
                "it gives times below zero another meaning. Filter on timestamp instead"
            )
        committed = self._options.read_committed
        asked = {(partition.topic, partition.partition): at for partition, at in times_ms.items()}
        answers = self._persist(
            lambda: self._client.find_records(
                asked, RecordClock.CREATE, read_committed=committed, may_lack_times=True
            )
        )
        return {
            partition: None if (answer := answers[partition]) is None else answer.offset
            for partition in times_ms
        }

    def time_at(self, partition: TopicPartition, offset: int) -> int | None:
        """Return the time of the first record of the batch that holds or follows an offset.

        None where there is none, or it has no timestamp.
        """
        fetched = self._client.fetch(*partition, offset, max_bytes=1, max_wait_ms=0)
        for _, header in iter_headers(fetched.records):
            if header.next_offset > offset:
                return first_time(header)
        return None

    def now_ms(self) -> int | None:
        """Return the time of the cluster's controller in milliseconds; None if unknown."""
        return self._persist(self._client.topics.cluster_time_ms)

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, int], *, by_id: bool = False
    ) -> None:
        """Commit offsets for a group that has no members.

        Args:
            by_id: True to refuse topics that were re-created since the last `partitions`, as far as
                the coordinator can.

        Raises:
            RequestRefused: it has some, or the coordinator refuses for another reason.
            NoAnswer: it does not answer.
        """
        committed = {
            (partition.topic, partition.partition): CommittedOffset(offset)
            for partition, offset in offsets.items()
        }
        ids = {name: decode_uuid(text) for name, text in self.topic_ids.items()} if by_id else {}
        self._client.offset_commit(group, committed, ids)

    def cut_ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return where a read as of a time ends, by partition; empty for any other read.

        Raises:
            Misconfigured: the partitions cannot be cut there exactly.
        """
        options = self._options
        return ends_as_of(self, options.as_of, partitions, committed=options.read_committed)

    def cluster_id(self) -> str | None:
        """Return the cluster id; None from Kafka before 0.10.1."""
        return self._persist(lambda: self._client.metadata([])).cluster_id

    def cut(
        self, asks: Mapping[TopicPartition, AskCut]
    ) -> Mapping[TopicPartition, PartitionCut | str]:
        """Cut partitions at append times; a sentence about one that cannot be cut.

        Raises:
            RequestRefused: the brokers keep no append times.
            NoAnswer: a broker does not answer.
        """
        told: dict[TopicPartition, PartitionCut | str] = {
            key: "it has no leader" for key in asks if key in self.leaderless
        }
        left: dict[tuple[str, int], AskCut] = {
            key: ask for key, ask in asks.items() if key not in told
        }
        try:
            answers = self._persist(lambda: self._client.ask.many(CUT, left))
        except RequestRefused as error:
            if len(left) == 1:
                return told | {TopicPartition(*key): str(error) for key in left}
            keys = [TopicPartition(*key) for key in left]
            for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
                told.update(self.cut({key: asks[key] for key in half}))
            return told
        for (topic, number), answer in answers.items():
            if answer is None:
                raise self._client.ask.lacking(CUT, topic)
            key = TopicPartition(topic, number)
            told[key] = answer if answer.error is None else answer.error
        return told

    # What to read.

    def stretches(
        self, bounds: Mapping[TopicPartition, Bounds], row_filter: RowFilter
    ) -> list[BrokerStretch]:
        """Return the stretches of offsets that may hold records of the filter within the bounds."""
        is_checked = self._options.as_of is not None or self._options.is_latest
        ids = self.topic_ids if is_checked else {}
        stretches = [
            BrokerStretch(partition, start, end, topic_id=ids.get(partition.topic))
            for partition, start, end in taken_bounds(bounds, row_filter)
        ]
        if row_filter.from_ms is not None:
            starts = self.none_before(
                row_filter.from_ms, [stretch.partition for stretch in stretches]
            )
            stretches = [
                replace(stretch, start=max(stretch.start, starts[stretch.partition]))
                for stretch in stretches
                if starts.get(stretch.partition, stretch.end) < stretch.end
            ]
        for window in row_filter.windows:
            stretches = self._in_time(stretches, window)
        return stretches

    def _in_time(
        self, stretches: Sequence[BrokerStretch], window: TimeRange
    ) -> list[BrokerStretch]:
        """Return the parts of stretches that may hold a time of a window.

        The brokers know them if they are horolog's; from Apache Kafka's a whole range is read.
        Each leader is asked once, about every partition from its first range to its last.
        """
        if not stretches:
            return []
        where: dict[tuple[str, int], tuple[int, int]] = {}
        for stretch in stretches:
            key = stretch.partition.topic, stretch.partition.partition
            first, last = where.get(key, (stretch.start, stretch.end))
            where[key] = min(first, stretch.start), max(last, stretch.end)
        found = self._persist(lambda: self._client.offsets.time_ranges(where, window))
        return [
            part
            for stretch in stretches
            for part in _parts(stretch, found[stretch.partition.topic, stretch.partition.partition])
        ]

    def none_before(
        self, from_ms: int, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return an offset of each partition before which no record reaches a time.

        Offset 0 where the brokers do not know: see `Client.none_before`.
        """
        committed = self._options.read_committed
        found = self._persist(
            lambda: self._client.offsets.none_before(from_ms, partitions, read_committed=committed)
        )
        return {partition: found[partition] for partition in partitions if partition in found}

    def largest(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, FoundOffset | None]:
        """Return the record with the largest time of each partition; None where it is unknown."""
        committed = self._options.read_committed
        found = self._persist(
            lambda: self._client.offsets.largest(partitions, read_committed=committed)
        )
        return {partition: found[partition] for partition in partitions}

    # Details.

    def _ends(
        self, partitions: Collection[TopicPartition], which: int
    ) -> dict[TopicPartition, int]:
        found = self._list(dict.fromkeys(partitions, which))
        ends = {partition: answer.offset for partition, answer in found.items() if answer}
        assert len(ends) == len(partitions), "every log has a start and an end"
        return ends

    def _list(
        self, targets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, FoundOffset | None]:
        if not targets:
            return {}
        committed = self._options.read_committed
        asked = {
            (partition.topic, partition.partition): target for partition, target in targets.items()
        }
        found = self._persist(
            lambda: self._client.offsets.list(asked, read_committed=committed, may_lack_times=True)
        )
        return {partition: found[partition] for partition in targets}

    def _persist(self, ask: Callable[[], _Answer]) -> _Answer:
        """Ask as often as `fetchOffset.numRetries` says, as long as a retry may help."""
        fetching = self._options.fetching
        attempts = max(1, fetching.lookup_retries)
        for attempt in range(1, attempts + 1):
            try:
                return ask()
            except (NoAnswer, RequestRefused) as error:
                final = isinstance(error, RequestRefused) and not error.code.retriable
                if final or attempt == attempts:
                    raise
                _logger.warning("%s; asking again (%d of %d)", error, attempt, attempts)
            time.sleep(fetching.lookup_retry_interval_ms / 1000)
        raise AssertionError("unreachable")
