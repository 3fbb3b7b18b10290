"""Job `archived`: an archive and the log behind it as one DataFrame.

Each query takes the newest manifest when it is planned: what that has comes from the archive, and
the log is read from where the archive of each partition ends, so that no record is missing and none
comes twice, whatever retention has removed of the log and whatever is archived meanwhile.
"""

from collections.abc import Collection, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import Filter, InputPartition
from pyspark.sql.types import StructType

from horolog.errors import Misconfigured
from horolog.jobs.archives.manifest import (
    ArchivedFile,
    ArchivedTopic,
    Manifest,
    overlapping,
    require_manifest,
)
from horolog.jobs.archives.parts import STORED, rows_of
from horolog.jobs.archives.planning import COMMITTED
from horolog.jobs.archives.rows import ArchivedProducers, read_rows
from horolog.jobs.archives.store import ArchiveStore
from horolog.jobs.parameters.archive import ArchiveView
from horolog.jobs.parameters.function import on_spark
from horolog.jobs.selection import Selection
from horolog.jobs.spread import cores_of, in_shares
from horolog.record.batch_producers import PRODUCER_TYPES
from horolog.record.timestamps import TimeRange
from horolog.sources import columns, planning
from horolog.sources.bounds import Bounds, data_lost
from horolog.sources.broker_log import BrokerLog
from horolog.sources.clocks import appended_in
from horolog.sources.file_log import FileLog
from horolog.sources.limits import Pattern, TopicSelection
from horolog.sources.options import ReadOptions
from horolog.sources.plan import Stretch
from horolog.sources.row_filter import RowFilter
from horolog.sources.rows import TIMES, RowShaper, decoded_columns, with_times_in
from horolog.spark import register
from horolog.spark.errors import in_one_sentence
from horolog.spark.read.batch import FilteringLogReader, LogReader
from horolog.spark.source.log_source import LogSource
from horolog.spark.source.scans_apart import apart
from horolog.storage.directory.checkpoints import decode_uuid
from horolog.storage.names import TopicPartition

FORMAT: Final = "horolog-archived"
_ARCHIVE, _ONLY = "horolog.archive", "horolog.archive.only"
_TASK_BYTES: Final = 64 << 20


@on_spark(ArchiveView)
def archived(spark: SparkSession, job: ArchiveView) -> DataFrame:
    """Return the records of an archive, and of the log behind it, with the columns of a read.

    Committed records only, as the archive has them. As of a read, settings add the columns of
    producers (`includeProducer`) and of both clocks (`includeAppendTime`). Filters on times,
    offsets, topics and partitions leave out files of the archive and narrow the read of the log.
    Where an archive has only a range of time of a topic, the log gives only that, too.

    Raises:
        Misconfigured: an argument cannot be, or there is no such archive or topic.
        CorruptFile: the manifest is damaged.
    """
    topics, source = job.topics, job.source
    given = dict(job.settings or {})
    _refuse_limits(given)
    store = ArchiveStore.of(job.archive, given)
    manifest = require_manifest(store)
    if topics is None and job.topics_pattern is None:
        topics = tuple(manifest.topics)
        if source is not None and not topics:
            raise Misconfigured(f"The archive {store.name} is empty: give the topics to read")
    chosen = Selection.of(
        source=store.uri if source is None else source,
        topics=topics,
        topics_pattern=job.topics_pattern,
        from_=job.from_,
        to=job.to,
        settings=given,
    )
    more = {_ARCHIVE: store.uri, _ONLY: str(source is None).lower()}
    ours: Any = type(ArchivedSource.__name__, (ArchivedSource,), {"cores": cores_of(spark)})
    register(spark)
    spark.dataSource.register(ours)
    options = chosen.options(includeTimestampMs="true", includeHeaders="true") | given
    frame: DataFrame = apart(
        spark.read.format(FORMAT).options(**options, **more, **COMMITTED).load()
    )
    return frame


class ArchivedSource(LogSource):
    """Spark data source of an archive with the log behind it."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        plain = {name: value for name, value in options.items() if name.lower() not in _OURS}
        super().__init__(plain)
        _refuse_limits(options)
        by_name = {name.lower(): value for name, value in options.items()}
        self.uri = by_name[_ARCHIVE]
        self.is_only = by_name[_ONLY] == "true"

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def reader(self, schema: StructType) -> LogReader:
        """Return the reader of a query with these columns."""
        plain = super().reader(schema)
        kind = _FilteringReader if isinstance(plain, FilteringLogReader) else _ArchiveReader
        reader = kind(plain.options, plain.names, plain.nullable, plain.cores)
        reader.uri, reader.is_only = self.uri, self.is_only
        if isinstance(plain, FilteringLogReader) and isinstance(reader, _FilteringReader):
            reader.shared_load = plain.shared_load
        return reader


_OURS = (_ARCHIVE, _ONLY)
# Where a read begins and ends: what each may say here, since it is so.
_LIMITS: Final = {
    "startingOffsets": "earliest",
    "endingOffsets": "latest",
    "startingTimestamp": None,
    "endingTimestamp": None,
    "startingOffsetsByTimestamp": None,
    "endingOffsetsByTimestamp": None,
    "backfillFromTimestamp": None,
    "stopAtTimestamp": None,
    "asOf": None,
    "latestAsOf": None,
}


def _refuse_limits(options: Mapping[str, str]) -> None:
    """Refuse options that limit where the read of a log begins or ends.

    Raises:
        Misconfigured: one is given.
    """
    given = {name.lower(): value.strip().lower() for name, value in options.items()}
    for name, harmless in _LIMITS.items():
        if given.get(name.lower(), harmless) != harmless:
            raise Misconfigured(
                f"{name} is for reads of a log, and an archive and its log are read as a whole: "
                "leave it out, and filter on offset, timestamp or appendTime"
            )


@dataclass(frozen=True, slots=True)
class _FileTask:
    """Files of the archive that one task reads, with the partition and times of each."""

    files: tuple[tuple[TopicPartition, ArchivedFile, TimeRange], ...]
    batches: Mapping[TopicPartition, tuple[ArchivedFile, ...]]
    """Files of batch headers with the producers; empty if no producer is asked for."""


class _ArchiveReader(LogReader):
    """Reader of an archive and the log behind it."""

    uri: str
    is_only: bool

    def partitions(self) -> list[InputPartition]:
        """Return the input of each task."""
        with in_one_sentence():
            store = ArchiveStore(self.uri, self.options.store)
            manifest = require_manifest(store)
            with_producers = any(name in self.names for name in columns.OF_PRODUCER)
            tasks: list[Any] = [
                *_file_tasks(self.options, self.row_filter, manifest, with_producers=with_producers)
            ]
            if not self.is_only:
                tasks += _log_tasks(self.options, self.row_filter, manifest, self.cores)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        if isinstance(partition.value, _FileTask):
            with in_one_sentence():
                yield from self._read_files(partition.value)
            return
        yield from super().read(partition)

    def _read_files(self, task: _FileTask) -> Iterator[pa.RecordBatch]:
        store = ArchiveStore(self.uri, self.options.store)
        shaper = RowShaper(self.names, self.nullable)
        decoded = decoded_columns(self.names)
        offsets = self.row_filter.offsets
        for partition, file, times in task.files:
            shaper.begin(partition)
            end = min(offsets.last, (1 << 63) - 2) + 1
            needed = set(decoded)
            of_producers = needed & PRODUCER_TYPES.keys()
            if not times.is_everything or "create_ms" in decoded:
                needed.add(TIMES)
            appended = self.options.appended
            if not appended.is_everything:
                needed.add("append_ms")
            if of_producers:
                needed.add("offset")
            stored = [STORED[name] for name in needed - of_producers]
            producers = ArchivedProducers(store, task.batches.get(partition, ()), file)
            for rows in read_rows(store, file, offsets.first, end, columns=stored):
                table = rows_of(rows, tuple(needed - of_producers))
                if not times.is_everything:
                    table = with_times_in(table, times)
                if not appended.is_everything:
                    table = appended_in(table, appended)
                for name in sorted(of_producers) if table.num_rows else ():
                    column = producers.column(name, table.column("offset").to_numpy())
                    table = table.append_column(name, column)
                if table.num_rows:
                    yield shaper.shape(table)


class _FilteringReader(FilteringLogReader, _ArchiveReader):
    """Reader that skips what the query's filters exclude; Spark applies them again."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Accept the filters that narrow the read."""
        left = super().pushFilters(filters)
        return left if self.shared_load is not None else filters


# Planning.


def _times(options: ReadOptions, topic: ArchivedTopic | None) -> TimeRange:
    """Return the range of time that is asked for of a topic."""
    times = options.times.range
    return times if topic is None else times & topic.times


def _chooses(options: ReadOptions, topic: str) -> bool:
    match options.subscription:
        case TopicSelection(names):
            return topic in names
        case Pattern() as pattern:
            return pattern.matcher()(topic)
        case _:
            return True


def _file_tasks(
    options: ReadOptions, row_filter: RowFilter, manifest: Manifest, *, with_producers: bool
) -> Iterator[_FileTask]:
    """Yield tasks of a few megabytes of the files that may contain what a filter accepts."""
    chosen = _chosen_files(options, row_filter, manifest)
    for files in in_shares(chosen, lambda part: part[1].size, _TASK_BYTES):
        batches: dict[TopicPartition, tuple[ArchivedFile, ...]] = {}
        for partition, its in groupby(files, itemgetter(0)) if with_producers else ():
            state = manifest.partition(partition)
            assert state is not None
            spans = [(file.first_offset, file.last_offset) for _, file, _ in its]
            first, last = min(span[0] for span in spans), max(span[1] for span in spans)
            batches[partition] = overlapping(state.batches, first, last + 1)
        yield _FileTask(files, batches)


def _chosen_files(
    options: ReadOptions, row_filter: RowFilter, manifest: Manifest
) -> Iterator[tuple[TopicPartition, ArchivedFile, TimeRange]]:
    """Yield the files that a filter does not exclude, with partition and range of time."""
    offsets = row_filter.offsets
    for partition, state in manifest.partitions().items():
        if not _chooses(options, partition.topic) or not row_filter.takes(*partition):
            continue
        limit = _times(options, manifest.topics[partition.topic])
        asked = limit & row_filter.times
        for file in overlapping(state.records, offsets.first, offsets.last + 1):
            assert file.first_ms is not None
            assert file.last_ms is not None
            if file.last_ms >= asked.first_ms and file.first_ms <= asked.last_ms:
                yield partition, file, limit


def _log_tasks(
    options: ReadOptions, row_filter: RowFilter, manifest: Manifest, cores: int | None
) -> Iterator[Any]:
    """Yield the tasks that read the log behind the archive."""
    is_file = bool(options.paths)
    with FileLog(options, may_miss=True) if is_file else BrokerLog(options) as log:
        if isinstance(log, BrokerLog):
            partitions = log.partitions(may_miss=True)
        else:
            partitions = log.partitions()
        _refuse_recreated(log.topic_ids, manifest)
        _refuse_unknown(options, manifest, partitions)
        earliest, latest = log.earliest(partitions), log.latest(partitions)
        stretches: list[Stretch] = []
        for partition in sorted(partitions):
            known = manifest.partition(partition)
            start, end = earliest[partition], latest[partition]
            if known is not None:
                if max(start, end) < known.end:
                    raise Misconfigured(
                        f"{partition} ends at offset {end} and its archive at {known.end}: the "
                        "archive is of another log"
                    )
                if known.end < start:
                    data_lost(
                        options,
                        f"Offsets {known.end} to {start - 1} of {partition} are neither in the "
                        "archive nor in the log",
                    )
                start = max(start, known.end)
            if start >= end:
                continue
            times = _times(options, manifest.topics.get(partition.topic))
            bounds = {partition: Bounds(start, end)}
            behind = log.stretches(bounds, row_filter.within(times))
            stretches += [replace(stretch, times=times) for stretch in behind]
    yield from planning.shared_out(options, stretches, cores)


def _refuse_recreated(topic_ids: Mapping[str, str], manifest: Manifest) -> None:
    for name, topic_id in topic_ids.items():
        known = manifest.topics.get(name)
        if known and known.topic_id and known.topic_id != str(decode_uuid(topic_id)):
            raise Misconfigured(
                f"The topic {name} was deleted and created again since it was archived"
            )


def _refuse_unknown(
    options: ReadOptions, manifest: Manifest, partitions: Collection[TopicPartition]
) -> None:
    """Refuse a named topic that is neither in the archive nor in the log."""
    if isinstance(options.subscription, TopicSelection):
        there = {partition.topic for partition in partitions} | set(manifest.topics)
        for name in options.subscription.names:
            if name not in there:
                raise Misconfigured(f"The topic {name} is neither in the archive nor in the log")
