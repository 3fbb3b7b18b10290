"""Looks at a stream's log: positions to read from, ends to read up to, and the stream's end."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from horolog.client import FoundOffset
from horolog.clock import SystemClock
from horolog.errors import HorologError, Misconfigured, RequestRefused
from horolog.sources.bounds import data_lost, later_starts, stream_starts
from horolog.sources.broker_log import BrokerLog
from horolog.sources.complete import complete_until
from horolog.sources.growing_files import GrowingFiles
from horolog.sources.options import ReadOptions
from horolog.sources.row_times import STOP
from horolog.sources.stream_offsets import Offsets, StreamOffset, by_topic
from horolog.storage.names import TopicPartition

_logger = logging.getLogger(__name__)

DISCOVERY_S = 1.0
"""Seconds between two looks for new partitions, or at the broker's clock."""

_MOST_LAGS = 100
"""Most partitions whose lag in time is measured: each costs a request."""


@dataclass(slots=True)
class Look:
    """Offsets to read from and up to, and facts for the checkpoint."""

    positions: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]
    starts: dict[TopicPartition, int]
    stops_at: Offsets = field(default_factory=dict)
    largest: Mapping[TopicPartition, FoundOffset] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    complete_ms: int | None = None
    """No row behind `ends` is earlier, if these are the log ends; None if that is unknown."""

    @property
    def backlog(self) -> int:
        """Number of offsets to read."""
        return sum(self.ends[partition] - at for partition, at in self.positions.items())


class StreamLooks:
    """Looks at the log of a stream repeatedly. Close it after use."""

    def __init__(
        self,
        options: ReadOptions,
        clock: Callable[[], float],
        *,
        counts_late: bool = False,
        asks_complete: bool = False,
    ) -> None:
        self._options = options
        self._asks_complete = asks_complete
        self._counts_late = counts_late
        self._clock = clock  # in seconds
        self._log: BrokerLog | GrowingFiles | None = None
        self._partitions: list[TopicPartition] = []
        self._discovered_at: float | None = None
        self._clock_asked_at: float | None = None
        self._said: set[str] = set()
        self._measured_for: Offsets = {}
        self._measured_at: float | None = None
        self._measured_ms = 0  # on the broker's clock
        self._unread_since_ms: dict[TopicPartition, int] = {}
        self.ends: dict[TopicPartition, int] = {}
        """Log ends at the last look."""

    @property
    def log(self) -> BrokerLog | GrowingFiles:
        """The log, opened on first use."""
        if self._log is None:
            of = self._options
            self._log = GrowingFiles(of, self._clock) if of.paths else BrokerLog(of)
        return self._log

    def close(self) -> None:
        """Close the connections."""
        if self._log is not None:
            self._log.__exit__()
            self._log = None

    def beginning(self) -> StreamOffset:
        """Return the offset of a query that has not read anything."""
        partitions = sorted(self.log.partitions())
        starts, seams = stream_starts(self._options, self.log, partitions)
        return StreamOffset(
            starts,
            seams=seams,
            moments_ms=self._options.relative_ms(),
            topic_ids=self._ids_of(partitions),
        )

    def partitions(self) -> Collection[TopicPartition]:
        """Return the subscribed partitions."""
        return self._discover()

    def all_ends(self) -> dict[TopicPartition, int]:
        """Return the log ends of all partitions."""
        return self.log.latest(self._discover())

    def look(self, start: StreamOffset, targets: Offsets | None) -> Look:
        """Return the offsets to read from `start` on, up to `targets` if given.

        Raises:
            DataLost: something that was to be read is gone, and data loss is to fail.
        """
        try:
            return self._look(start, targets)
        except RequestRefused:  # of a partition that has gone, perhaps
            self.forget()
            return self._look(start, targets)

    def check_topics(self, offset: StreamOffset) -> None:
        """Compare the ids of topics with those that an offset was written for.

        Raises:
            DataLost: a topic has another one, and data loss is to fail.
        """
        self._discover()
        for topic, topic_id in sorted(offset.topic_ids.items()):
            present = self.log.topic_ids.get(topic, topic_id)
            if present != topic_id:
                self._lost(
                    f"Topic {topic} has id {present}, and had {topic_id} when it was read: it was "
                    "deleted and created again, or these are other brokers"
                )

    def report(self, read: Offsets) -> dict[str, Any] | None:
        """Return the log ends, and the times of the first records behind the `read` offsets.

        They are measured once more was read, at most once a second. A broker that does not answer
        is logged and ends no query.
        """
        now = self._clock()
        is_due = self._measured_at is None or now - self._measured_at >= DISCOVERY_S
        if read != self._measured_for and is_due:
            self._measured_for, self._measured_at = read, now
            try:
                self._measure(read)
            except HorologError as error:
                _logger.warning("The lag of this query is not known: %s", error)
        if not self.ends:
            return None
        report = StreamOffset(self.ends).to_json()
        if self._unread_since_ms:
            report["nowMs"] = self._measured_ms
            report["unreadSinceMs"] = by_topic(self._unread_since_ms)
        return report

    def _measure(self, read: Offsets) -> None:
        self._unread_since_ms = {}
        self.ends |= self.log.latest(
            [partition for partition in self._partitions if partition in read]
        )
        behind = [
            partition for partition, at in sorted(read.items()) if self.ends.get(partition, at) > at
        ]
        if not behind:
            return
        now_ms = self.log.now_ms()
        self._measured_ms = SystemClock().now_ms() if now_ms is None else now_ms
        for partition in behind[:_MOST_LAGS]:
            since_ms = self.log.time_at(partition, read[partition])
            if since_ms is not None:
                self._unread_since_ms[partition] = since_ms

    def forget(self) -> None:
        """Let the next look ask for the partitions again."""
        self._discovered_at = None

    def _look(self, start: StreamOffset, targets: Offsets | None) -> Look:
        stops_at = start.ends
        stops_now = not stops_at and self._is_stop_over(start)
        if stops_now:
            self.forget()
        targets = stops_at or targets
        present: Sequence[TopicPartition] = self._discover()
        if targets is not None:
            present = [partition for partition in present if partition in targets]
        for partition in sorted(start.offsets.keys() - set(present)):
            self._lost(f"{partition} does not exist any more, or is no longer subscribed to")
        complete_ms = None
        if targets is None:
            complete_ms = self.complete_until(present)  # before the ends, too
        largest = self._largest(present)  # before the ends: so it lies before them
        ends = self.log.latest(present)
        if len(ends) < len(present):  # files went away since they were listed
            self.forget()
            return self._look(start, targets)
        self.ends = dict(ends)
        self.check_topics(start)  # of the files that have these ends
        positions = {
            partition: at
            for partition in present
            if (at := start.offsets.get(partition)) is not None
        }
        starts = later_starts(
            self._options.pinned(start.moments_ms),
            self.log,
            [partition for partition in present if partition not in positions],
        )
        cut = [partition for partition, at in positions.items() if ends[partition] < at]
        for partition, first in self.log.earliest(cut).items():
            self._lost(
                f"{partition} was read up to offset {positions[partition]}, and ends at "
                f"{ends[partition]} now"
            )
            starts[partition] = first
        positions |= starts
        if targets is not None:
            ends = {partition: min(end, targets[partition]) for partition, end in ends.items()}
        ends = {partition: max(end, positions[partition]) for partition, end in ends.items()}
        stops_at = dict(ends) if stops_now else stops_at
        ids = self._ids_of(positions)
        return Look(positions, ends, starts, stops_at, largest, ids, complete_ms)

    def _ids_of(self, partitions: Collection[TopicPartition]) -> dict[str, str]:
        topics = {partition.topic for partition in partitions}
        return {name: topic_id for name, topic_id in self.log.topic_ids.items() if name in topics}

    def _largest(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, FoundOffset]:
        """Return the record with the largest time of each partition, if late ones are counted."""
        if not self._counts_late:
            return {}
        found = self.log.largest(partitions)
        return {partition: record for partition, record in found.items() if record is not None}

    def complete_until(self, partitions: Collection[TopicPartition]) -> int | None:
        """Return the time before which no row comes any more; None if unknown or not asked for.

        Raises:
            Misconfigured: it never is known.
        """
        if not self._asks_complete or not partitions:
            return None
        if isinstance(self.log, GrowingFiles):
            raise Misconfigured(
                "includeCompleteUntil needs a broker: files do not say what is still to come"
            )
        committed = self._options.read_committed
        complete = complete_until(self.log, partitions, committed=committed)
        # One that was created before the answer may have earlier rows.
        is_all = set(self.log.partitions(may_miss=True)) <= set(partitions)
        return complete.ms if is_all else None

    def _discover(self) -> list[TopicPartition]:
        """Return the subscribed partitions, looked up at most once a second.

        Each time if complete times are asked for: what a partition has that is not known yet may be
        earlier.
        """
        now = self._clock()
        known_since = None if self._asks_complete else self._discovered_at
        if known_since is None or now - known_since >= DISCOVERY_S:
            self._partitions = sorted(self.log.partitions(may_miss=True))
            self._discovered_at = now
        return self._partitions

    def _is_stop_over(self, start: StreamOffset) -> bool:
        """Return True if the broker's clock has passed `stopAtTimestamp`."""
        stop = self._options.times.pinned(start.moments_ms).stop
        if stop is None:
            return False
        now = self._clock()
        if self._clock_asked_at is not None and now - self._clock_asked_at < DISCOVERY_S:
            return False
        self._clock_asked_at = now
        now_ms = self.log.now_ms()
        if now_ms is None:
            now_ms = SystemClock().now_ms()
            self._warn(
                f"There is no broker that returns its time (DescribeQuorum); {STOP} is compared "
                "with the clock of this driver"
            )
        return now_ms >= stop.timestamp_ms

    def _lost(self, message: str) -> None:
        """Report lost data like `data_lost`, once."""
        if self._options.fail_on_data_loss or message not in self._said:
            self._said.add(message)
            data_lost(self._options, message)

    def _warn(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            _logger.warning(message)


def largest_before(
    offsets: Offsets,
    largest: Mapping[TopicPartition, FoundOffset],
    known_ms: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the largest known time before each offset."""
    found = {partition: known_ms[partition] for partition in offsets if partition in known_ms}
    for partition, record in largest.items():
        if record.offset < offsets.get(partition, 0):
            found[partition] = record.timestamp
    return found
