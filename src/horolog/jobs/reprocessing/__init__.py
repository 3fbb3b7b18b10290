"""Job `reprocess`: gives the records of a range of time to a sink, late ones included (KIP-33).

    to another topic     `mirroring` moves whole batches: no record is lost or doubled by a kill
    to a table           a stream into Parquet; Spark's file sink commits each micro-batch once
    to a function        a stream into `foreachBatch`, which may see a micro-batch twice

The streams keep their checkpoint in the state directory. `backfillFromTimestamp` lets them begin
where the first record of the range is, and `fromTimestamp` leaves out all others, whatever their
offset; what is appended later is in the range if its time is.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from horolog.errors import Misconfigured
from horolog.jobs.mirroring import Control, mirror
from horolog.jobs.mirroring.report import Mirrored
from horolog.jobs.parameters.function import on_spark
from horolog.jobs.parameters.mirror import Mirror, Reprocess
from horolog.jobs.parameters.option import options_of, pinned
from horolog.jobs.reprocessing.sinks import (
    CHECKPOINT,
    OUTPUT_MODES,
    function_refusals,
    schema_refusals,
    table_refusals,
)
from horolog.jobs.selection import Selection
from horolog.jobs.state import JobState, look_at_state
from horolog.results import Aside, Outcome, Shown, Table
from horolog.sources.row_times import BACKFILL
from horolog.sources.uris import absolute
from horolog.spark.errors import without_spark
from horolog.times import format_time

COLUMNS: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampMs",
    "timestampType",
    "key",
    "value",
    "headers",
)
"""Columns of a table, and of the records that a function gets."""

OFFSETS_PER_BATCH: Final = 5_000_000
"""Size of a micro-batch without `maxOffsetsPerTrigger`: a killed one is read again."""

_RANGE = "range"
_ISOLATION: Final = "kafka.isolation.level"
_POLL_S: Final = 1

EachBatch = Callable[[DataFrame, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reprocessed(Outcome):
    """Result of a run, or of a dry run."""

    records: int
    """Number of written records; in a dry run, of records in the range."""
    topics: Mapping[str, int] = field(default_factory=dict)
    """Number of records by topic, in a dry run."""
    batches: int = 0
    """Micro-batches."""
    from_ms: int | None = None
    to_ms: int | None = None
    mirrored: Mirrored | None = None
    """Result of the mirror, if records went to topics."""
    is_dry_run: bool = False
    refused: tuple[str, ...] = ()
    """Reasons why a run would not begin, in a dry run."""

    @property
    def errors(self) -> tuple[str, ...]:
        """Errors that stopped partitions, or reasons why a run would not begin."""
        return self.refused + (() if self.mirrored is None else self.mirrored.errors)

    @property
    def is_ok(self) -> bool:
        """True if nothing stopped, or would."""
        return not self.errors

    def to_json(self) -> dict[str, Any]:
        """The members, by their names on the command line."""
        return {
            **{name: getattr(self, name) for name in _MEMBERS},
            "dry_run": self.is_dry_run,
            "mirrored": self.mirrored and self.mirrored.to_json(),
        }

    def lines(self) -> Iterator[Shown]:
        """Yield the number of records that were or would be written, and notes of the mirror."""
        if self.is_dry_run:
            if self.topics:
                yield Table.of(("topic", "records"), self.topics.items())
            yield (
                f"A run would write {self.records:,} records from {_time(self.from_ms)} to "
                f"{_time(self.to_ms)}; nothing was changed."
            )
        else:
            yield f"Reprocessed {self.records:,} records."
        if self.mirrored is not None:
            yield from (f"note: {note}" for note in self.mirrored.notes)
        yield from (Aside(f"error: {error}") for error in self.errors)


_MEMBERS: Final = ("records", "topics", "batches", "from_ms", "to_ms", "errors")


def _time(ms: int | None) -> str:
    return "the end" if ms is None else f"{ms} ms" if ms == -1 else format_time(ms)


@on_spark(Reprocess)
def reprocess(spark: SparkSession, job: Reprocess) -> Reprocessed:
    """Give exactly the records with a time in [from, to) to one sink, late ones included.

    None of aborted transactions, unless `kafka.isolation.level` is read_uncommitted: open ones are
    waited for. Those without a time are in no range.

    A run that was killed is run again with the same state directory. A topic and a table then have
    each record once; a function sees the micro-batch again that was under way, with the same
    number. Relative times stay what they were at the first run. `maxOffsetsPerTrigger` among the
    settings limits micro-batches. A table has `COLUMNS`. Where the target is the source, `rename`
    gives topics other names.

    Raises:
        Misconfigured: arguments that cannot be, or a state directory of another run.
        HorologError: the log cannot be read, or the sink refuses.
    """
    sinks = [sink for sink in (job.target, job.table, job.each_batch) if sink is not None]
    if len(sinks) != 1:
        raise Misconfigured("give one sink: a target, a table, or a function for each batch")
    if not job.dry_run:
        job.require_state()
    if job.target is not None:
        if job.transform is not None:
            raise Misconfigured("records go to topics as they are: transform is for other sinks")
        done = mirror.run(spark, options_of(Mirror, job))
        if not job.dry_run:
            return Reprocessed(records=done.records, mirrored=done)
        selection = Selection.asked(job, _committed(job.settings))
        return replace(_counted(spark, selection), mirrored=done)
    if job.rename is not None or job.target_settings or job.into_nonempty:
        raise Misconfigured("rename and settings of a target are for records that go to topics")
    if job.output_mode not in OUTPUT_MODES:
        raise Misconfigured(f"output_mode is {job.output_mode}: give {', '.join(OUTPUT_MODES)}")
    selection = Selection.asked(job, _committed(job.settings))
    refused: list[str] = []
    range_ms = None
    try:
        known = None if job.state is None else look_at_state(job.state, "reprocess", pinned(job))
        range_ms = None if known is None else known.read(_RANGE)
    except Misconfigured as error:
        refused.append(str(error))
    if range_ms is not None:
        selection = replace(selection, from_ms=range_ms[0], to_ms=range_ms[1])
    frame = _stream(spark, selection)
    frame = frame if job.transform is None else job.transform(frame)
    begun = range_ms is not None
    refused += _refusals(frame, job, is_begun=begun)
    if job.dry_run:
        return replace(_counted(spark, selection), refused=tuple(refused))
    if refused:
        raise Misconfigured(refused[0])
    with JobState(job.require_state(), "reprocess", pinned(job)) as kept:
        if kept.read(_RANGE) != range_ms:
            raise Misconfigured(f"{job.state}: another run has begun meanwhile; run it again")
        if not begun:
            kept.write(_RANGE, [selection.from_ms, selection.to_ms])
        writer = frame.writeStream.outputMode(job.output_mode)
        writer = writer.option("checkpointLocation", str(Path(kept.path).absolute() / CHECKPOINT))
        writer = (
            writer.trigger(availableNow=True) if job.once else writer.trigger(processingTime="1 s")
        )
        with without_spark():
            if job.table is not None:
                query = writer.format("parquet").start(absolute(os.fspath(job.table)))
            else:
                assert job.each_batch is not None
                query = writer.foreachBatch(job.each_batch).start()
            records, batches = _run(query, job.control or Control())
    return Reprocessed(
        records=records, batches=batches, from_ms=selection.from_ms, to_ms=selection.to_ms
    )


def _committed(settings: Mapping[str, str] | None) -> dict[str, str]:
    """Return the settings, with committed records only unless they set an isolation level."""
    given = dict(settings or {})
    if _ISOLATION not in {name.lower() for name in given}:
        given[_ISOLATION] = "read_committed"
    return given


def _refusals(frame: DataFrame, job: Reprocess, *, is_begun: bool) -> Iterator[str]:
    """Yield the reasons why the sink would refuse the stream."""
    if job.each_batch is not None:
        yield from function_refusals(job.each_batch)
    if job.table is not None:
        kept = None if job.state is None else Path(job.state)
        table = os.fspath(job.table)
        yield from table_refusals(table, job.output_mode, kept, is_begun=is_begun)
        yield from schema_refusals(frame.schema)


def _stream(spark: SparkSession, selection: Selection) -> DataFrame:
    named = {name.lower() for name in selection.settings}
    options = {"columns": ",".join(COLUMNS), BACKFILL: str(selection.from_ms)}
    if "maxoffsetspertrigger" not in named:
        options["maxOffsetsPerTrigger"] = str(OFFSETS_PER_BATCH)
    return selection.stream(spark, **options)


def _run(query: StreamingQuery, control: Control) -> tuple[int, int]:
    """Run a query until it ends or is stopped; return its records and micro-batches."""
    rows: dict[int, int] = {}
    try:
        while not query.awaitTermination(_POLL_S):
            _add_progress(query, rows)
            control.on_progress(Mirrored(sum(rows.values()), 0, ()))
            if control.should_stop():
                query.stop()
    finally:
        _add_progress(query, rows)
        if query.isActive:
            query.stop()
    return sum(rows.values()), sum(1 for row in rows.values() if row)


def _add_progress(query: StreamingQuery, rows: dict[int, int]) -> None:
    for progress in query.recentProgress:
        facts: Any = progress
        rows[int(facts["batchId"])] = int(facts["numInputRows"])


def _counted(spark: SparkSession, selection: Selection) -> Reprocessed:
    frame = selection.frame(spark, columns="topic")
    with without_spark():
        rows = frame.groupBy("topic").agg(F.count("*").alias("records")).orderBy("topic").collect()
    topics = {row["topic"]: int(row["records"]) for row in rows}
    return Reprocessed(
        records=sum(topics.values()),
        topics=topics,
        from_ms=selection.from_ms,
        to_ms=selection.to_ms,
        is_dry_run=True,
    )
