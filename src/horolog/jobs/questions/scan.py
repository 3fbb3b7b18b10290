"""Tasks that read the times of a log and return sums.

Spark's own way, rows from the source through the JVM into a function in Python, costs more than
reading them. So each task here reads its stretches of the log itself, planned as for
`format("horolog")`, and Spark gets what it made of them.
"""

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from horolog.jobs.counting import CountReceiver, count, counted, counts_of
from horolog.jobs.questions.groups import Flags, GroupTable, Pending
from horolog.jobs.selection import Selection
from horolog.record.stretches import Int64Array
from horolog.record.timestamps import NO_TIMESTAMP, TimestampType
from horolog.sources import columns, planning
from horolog.sources.broker_reader import task_client
from horolog.sources.options import ReadOptions
from horolog.sources.plan import Task, offsets_in
from horolog.sources.reading import read_task
from horolog.sources.row_filter import RowFilter
from horolog.spark.errors import in_one_sentence
from horolog.spark.masters import parallelism
from horolog.spark.workers import SentToWorkers, prepare_for_tasks
from horolog.storage.names import TopicPartition

HOUR_MS: Final = 3_600_000
NO_HOUR: Final = -(1 << 63)
"""The hour of records that have none, or one that Spark could not show."""
NO_PRODUCER: Final = -1
KEYS: Final = ("by_append", "hour", "producer")
"""Groups of a partition's records: by append time or not, by the hour of that, by producer."""

_ALWAYS = (
    columns.TOPIC,
    columns.PARTITION,
    columns.OFFSET,
    columns.TIMESTAMP_MS,
    columns.TIMESTAMP_TYPE,
    columns.CREATE_TIME_MS,
)


@dataclass(frozen=True, slots=True)
class Times:
    """Times of some records of one partition in offset order, in milliseconds."""

    topic: str
    partition: int
    offsets: Int64Array
    created_ms: Int64Array
    """Create times of the producer; -1 for no time."""
    appended_ms: Int64Array
    """Append times; valid where `is_appended` is true."""
    is_appended: Flags
    """Marks the records whose append time is known."""
    is_stamped: Flags
    """Marks the records whose timestamp is the append time (LogAppendTime)."""
    producers: Int64Array | None
    """Producer ids, -1 for none; None if they were not asked for."""

    @classmethod
    def of(cls, table: pa.RecordBatch) -> "Times":
        """Return the times of a table of one partition."""
        names = table.schema.names
        stamps = _numbers(table, columns.TIMESTAMP_MS)
        kinds = table.column(columns.TIMESTAMP_TYPE).to_numpy(zero_copy_only=False)
        is_stamped = kinds == int(TimestampType.LOG_APPEND_TIME)
        appended, is_appended = stamps, is_stamped
        if columns.APPEND_TIME_MS in names:
            column = table.column(columns.APPEND_TIME_MS)
            appended = column.fill_null(0).to_numpy(zero_copy_only=False)
            is_appended = column.is_valid().to_numpy(zero_copy_only=False)
            appended = np.where(is_stamped, stamps, appended) if is_stamped.any() else appended
            is_appended = is_appended | is_stamped
        producers = None
        if columns.PRODUCER_ID in names:
            ids = table.column(columns.PRODUCER_ID).fill_null(NO_PRODUCER)
            producers = ids.to_numpy(zero_copy_only=False)
        return cls(
            table.column(columns.TOPIC)[0].as_py(),
            table.column(columns.PARTITION)[0].as_py(),
            _numbers(table, columns.OFFSET),
            _numbers(table, columns.CREATE_TIME_MS),
            appended,
            is_appended,
            is_stamped,
            producers,
        )

    @property
    def is_timed(self) -> Flags:
        """Mark the records with a create time."""
        timed: Flags = self.created_ms != NO_TIMESTAMP
        return timed

    def hours(self) -> Int64Array:
        """Return the start of the hour of each append time or, where unknown, create time."""
        known = self.created_ms
        if self.is_appended.any():
            known = np.where(self.is_appended, self.appended_ms, known)
        first, last = (int(known.min()), int(known.max())) if len(known) else (NO_TIMESTAMP, 0)
        is_plain = first > NO_TIMESTAMP and last <= columns.LAST_TIMESTAMP_MS
        if is_plain and first // HOUR_MS == last // HOUR_MS:
            return np.full(len(known), first - first % HOUR_MS)
        is_shown = (known >= columns.FIRST_TIMESTAMP_MS) & (known <= columns.LAST_TIMESTAMP_MS)
        is_shown &= self.is_appended | self.is_timed
        return np.where(is_shown, known - known % HOUR_MS, NO_HOUR)


_NOWHERE: Final = TopicPartition("", -1)


class Summary:
    """Function of a task that adds up times by key; returns rows of `schema`."""

    schema: pa.Schema

    def grouping(self, partition: TopicPartition) -> Callable[[Times], GroupTable]:
        """Return the function that groups the tables of one run of a partition, in order."""
        raise NotImplementedError

    def columns(self, groups: GroupTable) -> Mapping[str, Int64Array | Flags]:
        """Return the columns of added up groups."""
        return groups.columns

    def __call__(self, place: int, times: Iterator[Times]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task by its number, one run of a partition after the other."""
        pending, constants = Pending(), dict[str, object]()
        group, partition = self.grouping(_NOWHERE), _NOWHERE
        for table in times:
            if partition != (table.topic, table.partition):
                yield from self._rows(pending.take(), constants)
                partition = TopicPartition(table.topic, table.partition)
                group = self.grouping(partition)
                constants = {
                    "topic": table.topic,
                    "partition": table.partition,
                    "place": place,
                    "run": int(table.offsets[0]),
                }
            yield from self._rows(pending.add(group(table)), constants)
        yield from self._rows(pending.take(), constants)

    def _rows(
        self, groups: GroupTable | None, constants: Mapping[str, object]
    ) -> Iterator[pa.RecordBatch]:
        if groups is None:
            return
        arrays = self.columns(groups)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(arrays[field.name], field.type)
                if field.name in arrays
                else pa.repeat(pa.scalar(constants[field.name], field.type), groups.rows)
                for field in self.schema
            ],
            schema=self.schema,
        )


class TaskScan:
    """Times of a log that are read in tasks; each task has a number."""

    __slots__ = ()

    @property
    def places(self) -> int:
        """Number of tasks."""
        raise NotImplementedError

    def times(self, place: int) -> Iterator[Times]:
        """Yield the times that a task reads."""
        raise NotImplementedError

    def frame(self, spark: SparkSession, summary: Summary) -> DataFrame:
        """Return a DataFrame of what each task's times add up to; Spark computes it when needed."""
        numbers = spark.range(0, self.places, 1, max(self.places, 1))
        task = _ScanTask(self, summary, counts_of(spark))
        return numbers.mapInArrow(task, ddl_of(summary.schema))


@dataclass(frozen=True, slots=True)
class Scan(TaskScan):
    """Scan of the times of a selection, with the stretches that each task reads."""

    tasks: tuple[Task, ...]
    options: ReadOptions
    names: tuple[str, ...]

    @classmethod
    def plan(cls, spark: SparkSession, selection: Selection, *, with_producers: bool) -> "Scan":
        """Share out the stretches of a log, and look whether it knows append times.

        Raises:
            HorologError: it cannot be read.
        """
        names = list(_ALWAYS)
        if knows_append_times(selection):
            names.append(columns.APPEND_TIME_MS)
        if with_producers:
            names.append(columns.PRODUCER_ID)
        options = selection.read_options(columns=",".join(names))
        options.batch_starting()
        planning.check_paths(options)
        # Spark starts once the log is there.
        tasks = planning.tasks(
            options, RowFilter(), lambda: parallelism(lambda name: spark.conf.get(name, None))
        )
        return cls(tuple(tasks), options, tuple(names))

    @classmethod
    def joined(cls, scans: "Sequence[Scan]") -> "Scan":
        """Join scans of different offsets of one source."""
        first, *_ = scans
        return cls(tuple(task for scan in scans for task in scan.tasks), first.options, first.names)

    @property
    def offsets(self) -> int:
        """Number of offsets that the tasks read, as far as planned."""
        return sum(stretch.end - stretch.start for task in self.tasks for stretch in task)

    @property
    def places(self) -> int:
        """Number of tasks."""
        return len(self.tasks)

    def times(self, place: int, only: tuple[str, int] | None = None) -> Iterator[Times]:
        """Yield the times that a task reads, optionally of one partition only."""
        task = self.tasks[place]
        if only is not None:
            task = tuple(stretch for stretch in task if tuple(stretch.partition) == only)
        prepare_for_tasks(offsets=offsets_in(task))
        nullable = [True] * len(self.names)
        for table in read_task(task, RowFilter(), self.options, self.names, nullable):
            count(table.num_rows)
            yield Times.of(table)


class _ScanTask(SentToWorkers):
    """Summarise the times of some tasks. Spark calls it with their numbers."""

    def __init__(self, scan: TaskScan, summary: Summary, counts: CountReceiver | None) -> None:
        self.scan = pickle.dumps(scan)  # once, not for each reference to a stretch
        self.summary = summary
        self.counts = counts

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        scan: TaskScan = pickle.loads(self.scan)  # noqa: S301 - of the driver
        with in_one_sentence():
            for batch in batches:
                for place in batch.column(0).to_pylist():
                    with counted(self.counts, place):
                        yield from self.summary(place, scan.times(place))


def knows_append_times(selection: Selection) -> bool:
    """True if a log can have append times of its own: files, and brokers of horolog."""
    if not selection.source.is_broker:
        return True
    with task_client(selection.read_options()) as client:
        return client.offsets.has_append_times()


def keys_of(times: Times) -> dict[str, Int64Array]:
    """Return the columns `KEYS` of some records."""
    count = len(times.offsets)
    return {
        "by_append": times.is_appended.astype(np.int64),
        "hour": times.hours(),
        "producer": np.full(count, NO_PRODUCER) if times.producers is None else times.producers,
    }


def _numbers(table: pa.RecordBatch, name: str) -> Int64Array:
    numbers: Int64Array = table.column(name).to_numpy(zero_copy_only=False)
    return numbers


def ddl_of(schema: pa.Schema) -> str:
    """Return a schema in Spark's DDL."""
    return ", ".join(f"`{field.name}` {_DDL[field.type]}" for field in schema)


_DDL = {pa.string(): "string", pa.int32(): "int", pa.int64(): "bigint"}
