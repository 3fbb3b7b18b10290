"""A streaming query: how far it has come, and what each micro-batch reads.

    load()         a LogSource is made, as for a batch
    the query      in a process of the driver that lives as long as the query: `LogStreamReader`,
                   whose `latestOffset()` says where the next micro-batch ends, and whose
                   `partitions()` what its tasks read
    a task         `read()` of one partition, by another reader of the same options

What is kept between micro-batches, and over a restart, is in their offsets alone
(`stream_offsets`).
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from horolog.client import NoAnswer
from horolog.errors import HorologError, RequestRefused
from horolog.spark import planning
from horolog.spark.bounds import data_lost, later_starts, stream_starts
from horolog.spark.broker_log import BrokerLog
from horolog.spark.errors import in_one_sentence
from horolog.spark.limits import EARLIEST, Everywhere, OffsetByPartition
from horolog.spark.options import ReadOptions
from horolog.spark.reading import read_task
from horolog.spark.stream_offsets import Offsets, StreamOffset, limited
from horolog.spark.wanted import Wanted
from horolog.storage.names import TopicPartition

_logger = logging.getLogger(__name__)

IDLE_WAIT_MS = 200
"""How long a look at a log without news waits for some; Spark asks again at once."""

DISCOVERY_S = 1.0
"""How often a stream looks for new topics and partitions, at most."""


class _Look(NamedTuple):
    """What there is to read: from where, up to where, and starts that the checkpoint lacks."""

    positions: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]
    starts: dict[TopicPartition, int]

    @property
    def backlog(self) -> int:
        """Offsets that wait to be read."""
        return sum(self.ends[partition] - at for partition, at in self.positions.items())


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what has been appended since the last micro-batch."""

    def __init__(
        self,
        options: ReadOptions,
        names: Sequence[str],
        nullable: Sequence[bool],
        cores: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self.names = tuple(names)
        self.nullable = tuple(nullable)
        self.cores = cores
        self._clock = clock  # in seconds
        self._log: BrokerLog | None = None
        self._initial: StreamOffset | None = None
        self._partitions: list[TopicPartition] = []
        self._discovered_at: float | None = None
        self._targets: Offsets | None = None  # of a query that reads what is available now
        self._ends: dict[TopicPartition, int] = {}  # when last looked at
        self._idle_since: dict[str, Any] | None = None  # the offset that had nothing behind it
        self._last_batch_at: float | None = None
        self._said: set[str] = set()
        self._told_group: dict[str, Any] | None = None

    # What Spark asks of the driver.

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the stream starts; asked anew until the first micro-batch is done."""
        with in_one_sentence():
            if self._initial is None:
                partitions = sorted(self._opened().partitions())
                starts = stream_starts(self.options, self._opened(), partitions)
                self._initial = StreamOffset(starts)
            return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """`maxOffsetsPerTrigger`, or else `minOffsetsPerTrigger`; Spark takes one limit only."""
        most, least = self.options.max_offsets_per_trigger, self.options.min_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Where the next micro-batch ends; `start` itself where there is nothing to read."""
        with in_one_sentence():
            self._tell_group(start)
            if self._idle_since == start and self._targets is None:
                self._wait()
            at = StreamOffset.from_json(start)
            look = self._look(at)
            ends = self._admitted(look, limit)
            is_first = self._initial is not None and start == self._initial.to_json()
            if is_first:
                look.starts.update(look.positions)
            # A start that would be another after a restart is written down at once.
            is_pinned = not is_first or self._starts_anywhere_the_same()
            if ends == look.positions and is_pinned:
                self._idle_since = start
                return start
            self._idle_since, self._last_batch_at = None, self._clock()
            return StreamOffset(ends, look.starts).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix where the query ends: at the log ends of now."""
        with in_one_sentence():
            self._targets = self._opened().latest(self._discover())

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The log ends when they were last looked at."""
        return StreamOffset(self._ends).to_json() if self._ends else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What each task of a micro-batch reads."""
        if start == end:
            return []
        with in_one_sentence():
            ranges = StreamOffset.from_json(end).ranges_from(StreamOffset.from_json(start))
            tasks = planning.shared_out(self.options, ranges, self.cores)
        return [InputPartition(task) for task in tasks]

    def commit(self, end: dict[str, Any]) -> None:
        """All up to here is done."""
        with in_one_sentence():
            self._tell_group(end)

    def stop(self) -> None:
        """Hang up."""
        if self._log is not None:
            self._log.__exit__()
            self._log = None

    # What a task does.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        with in_one_sentence():
            yield from read_task(partition.value, Wanted(), self.options, self.names, self.nullable)

    # Details.

    def _opened(self) -> BrokerLog:
        if self._log is None:
            self._log = BrokerLog(self.options)
        return self._log

    def _discover(self) -> list[TopicPartition]:
        """The partitions that the stream subscribes to, as known since a moment ago."""
        now = self._clock()
        if self._discovered_at is None or now - self._discovered_at >= DISCOVERY_S:
            self._partitions = sorted(self._opened().partitions(may_miss=True))
            self._discovered_at = now
        return self._partitions

    def _look(self, start: StreamOffset) -> _Look:
        try:
            return self._look_at(self._discover(), start)
        except RequestRefused:  # of a partition that has gone, perhaps
            self._discovered_at = None
            return self._look_at(self._discover(), start)

    def _look_at(self, present: Sequence[TopicPartition], start: StreamOffset) -> _Look:
        log = self._opened()
        if self._targets is not None:
            present = [each for each in present if each in self._targets]
        for partition in sorted(start.offsets.keys() - set(present)):
            self._lost(f"{partition} does not exist any more, or is no longer subscribed to")
        ends = log.latest(present)
        self._ends = dict(ends)
        positions = {each: at for each in present if (at := start.offsets.get(each)) is not None}
        starts = later_starts(
            self.options, log, [each for each in present if each not in positions]
        )
        cut = [each for each, at in positions.items() if ends[each] < at]
        for partition, first in log.earliest(cut).items():
            self._lost(
                f"{partition} was read up to offset {positions[partition]}, and ends at "
                f"{ends[partition]} now"
            )
            starts[partition] = first
        positions |= starts
        if self._targets is not None:
            targets = self._targets
            ends = {each: min(end, targets[each]) for each, end in ends.items()}
        ends = {each: max(end, positions[each]) for each, end in ends.items()}
        return _Look(positions, ends, starts)

    def _admitted(self, look: _Look, limit: ReadLimit) -> dict[TopicPartition, int]:
        """Where a micro-batch ends that obeys the limit."""
        least = self.options.min_offsets_per_trigger
        if isinstance(limit, ReadAllAvailable) or least is None or self._targets is not None:
            least = 0
        if look.backlog < least and not self._has_waited():
            return look.positions
        if isinstance(limit, ReadMaxRows):
            return limited(look.positions, look.ends, limit.max_rows)
        return look.ends

    def _has_waited(self) -> bool:
        """Whether `maxTriggerDelay` is over since the last micro-batch, or there was none."""
        if self._last_batch_at is None:
            return True
        waited_ms = (self._clock() - self._last_batch_at) * 1000
        return waited_ms >= self.options.max_trigger_delay_ms

    def _wait(self) -> None:
        """Let a moment pass unless something comes, so that an idle query costs little."""
        try:
            self._opened().wait_for_records(self._ends, IDLE_WAIT_MS)
        except (RequestRefused, NoAnswer):  # the look that comes next says what is wrong
            self._discovered_at = None

    def _tell_group(self, done: dict[str, Any]) -> None:
        """Commit what is done to the user's group, for tools that show lag.

        Spark may end a query without a `commit()` of its last micro-batch, but not without
        asking for one more.
        """
        group = self.options.commits_to_group
        if group is None or done == self._told_group:
            return
        if self._initial is not None and done == self._initial.to_json():
            return
        self._told_group = done
        try:
            self._opened().commit(group, StreamOffset.from_json(done).offsets)
        except (RequestRefused, NoAnswer) as error:
            _logger.warning("The offsets of this query are not committed: %s", error)

    def _starts_anywhere_the_same(self) -> bool:
        """Whether the stream would start where it does, if it started later."""
        starting = self.options.stream_starting()
        if isinstance(starting, OffsetByPartition):
            return all(offset >= 0 or offset == EARLIEST for offset in starting.offsets.values())
        return starting is Everywhere.EARLIEST

    def _lost(self, message: str) -> None:
        """As `data_lost`, once."""
        if self.options.fail_on_data_loss or message not in self._said:
            self._said.add(message)
            data_lost(self.options, message)


class RefusedStream(DataSourceStreamReader):
    """A stream that cannot be read; says why when Spark first asks it something."""

    def __init__(self, error: HorologError) -> None:
        self.error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802 - Spark's name
        """Refused."""
        with in_one_sentence():
            raise self.error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> NoReturn:  # noqa: N802
        """Refused."""
        self.initialOffset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:
        """Refused."""
        self.initialOffset()

    def read(self, partition: InputPartition) -> NoReturn:
        """Refused."""
        self.initialOffset()
