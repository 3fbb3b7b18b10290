"""Reader of a streaming query: its progress, and the stretches of each micro-batch.

    load()         a LogSource is made, as for a batch
    the query      in a process of the driver that lives as long as the query: `LogStreamReader`,
                   whose `latestOffset()` says where the next micro-batch ends, and whose
                   `partitions()` what its tasks read
    a task         `read()` of one partition, by another reader of the same options

What is kept between micro-batches, and over a restart, is in their offsets alone
(`stream_offsets`).
"""

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Final, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from horolog.client import FoundOffset, NoAnswer
from horolog.errors import HorologError, Misconfigured, RequestRefused
from horolog.sources import planning
from horolog.sources.broker_log import BrokerLog
from horolog.sources.columns import COMPLETE_UNTIL, LATE_BY_MS
from horolog.sources.growing_files import GrowingFiles
from horolog.sources.limits import EARLIEST, ByPartition, Everywhere
from horolog.sources.options import ReadOptions
from horolog.sources.plan import Stretch, offsets_in
from horolog.sources.reading import read_task
from horolog.sources.row_filter import RowFilter
from horolog.sources.stream_offsets import Offsets, StreamOffset, limited
from horolog.spark.errors import in_one_sentence
from horolog.spark.read.stream_looks import Look, StreamLooks, largest_before
from horolog.spark.workers import SentToWorkers, prepare_for_tasks
from horolog.storage.names import TopicPartition

_logger = logging.getLogger(__name__)

IDLE_WAIT_MS = 500
"""How long a look at a log without news waits for some; Spark asks again at once.

Each time it asks costs Spark more than it costs the source: asked five times a second, an idle
query takes more than a hundredth of a core.
"""


_NO_LIMIT: Final = ReadMaxRows((1 << 63) - 1)


class LogStreamReader(SentToWorkers, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of records appended since the last micro-batch."""

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
        self.clock = clock  # in seconds
        self._looks: StreamLooks | None = None
        self._initial: StreamOffset | None = None
        self._uncut: Misconfigured | None = None
        self._targets: Offsets | None = None  # of a query that reads what is available now
        self._complete_ms: int | None = None  # before that
        self._runs_to_its_stop = False
        self._parent = os.getppid()
        self._planned: Offsets = {}  # where the last micro-batch ends
        self._idle_since: dict[str, Any] | None = None  # the offset that had nothing behind it
        self._last_batch_at: float | None = None
        self._told_group: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"options": replace(self.options, as_of=None)}

    # What Spark asks of the driver.

    def initialOffset(self) -> dict[str, Any]:
        """Return where the stream starts; Spark asks until the first micro-batch is done."""
        with in_one_sentence():
            if self._initial is None:
                self._initial = self._beginning()
            return self._initial.to_json()

    def _beginning(self) -> StreamOffset:
        """Return where the stream starts.

        Spark asks for this after a restart, too, and then repeats a micro-batch that knows its
        starts. So a log that cannot be cut (any more) is reported only once it has to be.
        """
        if self.options.as_of is None:
            return self._opened().beginning()
        try:
            with closing(StreamLooks(self.options, self.clock)) as looks:
                return looks.beginning()
        except Misconfigured as error:
            self._uncut = error
            return StreamOffset({})

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of `maxOffsetsPerTrigger` or `minOffsetsPerTrigger`; Spark takes one.

        A query that commits to a group always has a limit, so that `Trigger.Once` can be told: it
        replaces any limit by `ReadAllAvailable`.
        """
        most, least = self.options.max_offsets_per_trigger, self.options.min_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        if least is not None:
            return ReadMinRows(least)
        return ReadAllAvailable() if self.options.commits_to_group is None else _NO_LIMIT

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next micro-batch ends; `start` if nothing is to be read.

        Spark ends a query with `availableNow` once nothing is to be read. A query with
        `stopAtTimestamp` therefore waits here for records, or for its stop.
        """
        with in_one_sentence():
            if self.options.commits_to_group is not None and isinstance(limit, ReadAllAvailable):
                raise Misconfigured(
                    "commitOffsetsToGroup cannot be with trigger(once=True): Spark does not tell a "
                    "source that the only micro-batch is done, and the group would stay a run "
                    "behind. Give trigger(availableNow=True), which reads the same"
                )
            if self._uncut is not None and start == StreamOffset({}).to_json():
                raise self._uncut
            self._tell_group(start)
            at = StreamOffset.from_json(start)
            is_stopping = self.options.times.stop is not None
            while True:
                if self._idle_since == start and self._targets is None:
                    self._wait()
                end = self._end_from(start, at, limit)
                if end is not None:
                    self._idle_since, self._last_batch_at = None, self.clock()
                    self._planned = end.offsets
                    return end.to_json()
                self._idle_since = start
                waits = self._runs_to_its_stop and is_stopping and not at.is_at_its_ends
                if not waits or os.getppid() != self._parent:  # without Spark, nothing stops this
                    return start

    def _end_from(
        self, start: dict[str, Any], at: StreamOffset, limit: ReadLimit
    ) -> StreamOffset | None:
        """Return where the next micro-batch ends; None without anything to read or record."""
        look = self._opened().look(at, self._targets)
        ends = self._admitted(look, limit)
        is_first = self._initial is not None and start == self._initial.to_json()
        restarted = frozenset(look.starts)
        if is_first:
            look.starts.update(look.positions)
        # A start that would be another after a restart is written down at once, and so is an end.
        is_pinned = not is_first or self._starts_anywhere_the_same()
        if ends == look.positions and is_pinned and look.stops_at == at.ends:
            return None
        seams = {
            partition: seam
            for partition, seam in at.seams.items()
            if look.positions.get(partition, seam) < seam and partition not in restarted
        }
        moments_ms = self.options.pinned(at.moments_ms).relative_ms()
        known_ms = {p: ms for p, ms in at.largest_ms.items() if p not in restarted}
        largest_ms = largest_before(ends, self._largest_to_come(look, at), known_ms)
        complete_ms = look.complete_ms  # which is not asked for where the end is known
        if self._targets is not None or at.ends:
            complete_ms = at.complete_ms if self._targets is None else self._complete_ms
        if complete_ms is not None and ends != look.ends:  # what is left may be earlier
            complete_ms = at.complete_ms
        return StreamOffset(
            ends,
            look.starts,
            seams,
            look.stops_at,
            moments_ms,
            largest_ms,
            look.topic_ids,
            complete_ms,
        )

    def _largest_to_come(self, look: Look, at: StreamOffset) -> dict[TopicPartition, FoundOffset]:
        """Return the records with the largest times, where they are rows still to be read.

        Other records were read by an earlier micro-batch, lie before the start, or are filtered.
        """
        times = self.options.times.pinned(at.moments_ms)
        if not self.options.appended.is_everything:  # which the brokers' answer does not heed
            return {}
        found = {}
        for partition, record in look.largest.items():
            is_backfill = record.offset < at.seams.get(partition, 0)
            times_ms = times.backfill_range if is_backfill else times.range
            if record.offset >= look.positions.get(partition, 0) and times_ms.holds(
                record.timestamp
            ):
                found[partition] = record
        return found

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the query's end: the present log ends, or the moment of `stopAtTimestamp`."""
        with in_one_sentence():
            if self.options.times.stop is None:
                looks = self._opened()
                self._complete_ms = looks.complete_until(looks.partitions())
                self._targets = looks.all_ends()
            else:
                self._runs_to_its_stop = True

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the log ends of the last look, with the lag behind them."""
        if self._looks is None:
            return None
        return self._looks.report(self._planned)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the stretches of each task of a micro-batch."""
        if start == end:
            return []
        with in_one_sentence():
            before, after = StreamOffset.from_json(start), StreamOffset.from_json(end)
            self._opened().check_topics(after)  # of a restart, which may repeat a micro-batch
            ranges = after.ranges_from(before, self.options.times)
            log = self._opened().log if self.options.paths else None
            stretches: Sequence[Stretch] = ranges
            if isinstance(log, GrowingFiles):
                stretches = log.segments(ranges)
                self._opened().check_topics(after)  # of these files
            tasks = planning.shared_out(self.options, stretches, self.cores)
        return [InputPartition(task) for task in tasks]

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the offset of a finished micro-batch to the user's group."""
        with in_one_sentence():
            self._tell_group(end)

    def stop(self) -> None:
        """Close the connections."""
        if self._looks is not None:
            self._looks.close()

    # What a task does.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        with in_one_sentence():
            prepare_for_tasks(offsets=offsets_in(partition.value))
            options = replace(self.options, as_of=None)
            yield from read_task(partition.value, RowFilter(), options, self.names, self.nullable)

    # Details.

    def _opened(self) -> StreamLooks:
        if self._looks is None:
            counts_late = LATE_BY_MS in self.names
            options = replace(self.options, as_of=None)  # it says where a stream starts
            self._looks = StreamLooks(
                options,
                self.clock,
                counts_late=counts_late,
                asks_complete=COMPLETE_UNTIL in self.names,
            )
        return self._looks

    def _admitted(self, look: Look, limit: ReadLimit) -> dict[TopicPartition, int]:
        """Return the end of a micro-batch that obeys the limit."""
        least = self.options.min_offsets_per_trigger
        is_last = self._targets is not None or bool(look.stops_at)
        if isinstance(limit, ReadAllAvailable) or least is None or is_last:
            least = 0
        if look.backlog < least and not self._has_waited():
            return look.positions
        if isinstance(limit, ReadMaxRows):
            return limited(look.positions, look.ends, limit.max_rows)
        return look.ends

    def _has_waited(self) -> bool:
        """Return True if `maxTriggerDelay` has elapsed since the last micro-batch, or none was."""
        if self._last_batch_at is None:
            return True
        waited_ms = (self.clock() - self._last_batch_at) * 1000
        return waited_ms >= self.options.max_trigger_delay_ms

    def _wait(self) -> None:
        """Wait for records for a moment, so that an idle query costs little."""
        looks = self._opened()
        try:
            looks.log.wait_for_records(looks.ends, IDLE_WAIT_MS)
        except (RequestRefused, NoAnswer):  # the look that comes next says what is wrong
            looks.forget()

    def _tell_group(self, done: dict[str, Any]) -> None:
        """Commit a finished offset to the user's group, for tools that show lag.

        Spark may end a query without a `commit()` of its last micro-batch, but not without
        asking for one more.
        """
        group = self.options.commits_to_group
        if group is None or done == self._told_group:
            return
        if self._initial is not None and done == self._initial.to_json():
            return
        self._told_group = done
        log = self._opened().log
        assert isinstance(log, BrokerLog), "the options refuse a group of a stream of files"
        try:
            log.commit(group, StreamOffset.from_json(done).offsets)
        except (RequestRefused, NoAnswer) as error:
            _logger.warning("The offsets of this query are not committed: %s", error)

    def _starts_anywhere_the_same(self) -> bool:
        """Return True if the stream would start at the same offsets later."""
        times = self.options.times
        if times.backfill is not None or times.relative_ms():
            return False
        starting = self.options.stream_starting()
        if isinstance(starting, ByPartition) and not starting.is_time:
            return all(offset >= 0 or offset == EARLIEST for offset in starting.places.values())
        return starting is Everywhere.EARLIEST


class RefusedStream(DataSourceStreamReader):
    """A stream that cannot be read; raises its error at Spark's first question."""

    def __init__(self, error: HorologError) -> None:
        self.error = error

    def initialOffset(self) -> NoReturn:
        """Raise the error."""
        with in_one_sentence():
            raise self.error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> NoReturn:
        """Raise the error."""
        self.initialOffset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:
        """Raise the error."""
        self.initialOffset()

    def read(self, partition: InputPartition) -> NoReturn:
        """Raise the error."""
        self.initialOffset()
