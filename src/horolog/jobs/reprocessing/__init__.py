"""The job `reprocess`: exactly the records at or after a time, late ones included (KIP-33, case 2).

    to another topic     `mirroring` moves whole batches: no record is lost or doubled by a kill
    to a table           a stream into Parquet; Spark's file sink commits each micro-batch once
    to a function        a stream into `foreachBatch`, which may see a micro-batch twice

The streams keep their checkpoint in the state directory. `backfillFromTimestamp` lets them begin
where the first record of the range is, and `fromTimestamp` leaves out all others, whatever their
offset; what is appended later is in the range if its time is.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from horolog.errors import Misconfigured
from horolog.jobs.mirroring import Control, mirror
from horolog.jobs.mirroring.report import Mirrored
from horolog.jobs.reprocessing.sinks import (
    OUTPUT_MODES,
    function_refusals,
    schema_refusals,
    table_refusals,
)
from horolog.jobs.selection import Moment, Selection
from horolog.jobs.state import JobState, look_at_state
from horolog.sources.row_times import BACKFILL
from horolog.sources.uris import absolute
from horolog.spark.errors import without_spark

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
"""Of a table, and of what a function gets."""

OFFSETS_PER_BATCH: Final = 5_000_000
"""Of a micro-batch, where `maxOffsetsPerTrigger` does not say it: a killed one is read again."""

_RANGE, _CHECKPOINT = "range", "checkpoint"
_ISOLATION: Final = "kafka.isolation.level"
_POLL_S: Final = 1

EachBatch = Callable[[DataFrame, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reprocessed:
    """What a run did, or would do."""

    records: int
    """That it wrote; of a dry run, how many are in the range now."""
    topics: Mapping[str, int] = field(default_factory=dict)
    """Of a dry run, how many each topic has."""
    batches: int = 0
    """Micro-batches."""
    from_ms: int | None = None
    to_ms: int | None = None
    mirrored: Mirrored | None = None
    """What became of each partition, where records went to topics."""
    is_dry_run: bool = False
    refused: tuple[str, ...] = ()
    """Of a dry run, why a run would not begin."""

    @property
    def errors(self) -> tuple[str, ...]:
        """What stopped partitions, or would keep a run from beginning."""
        return self.refused + (() if self.mirrored is None else self.mirrored.errors)


def reprocess(
    spark: SparkSession,
    *,
    source: str | os.PathLike[str],
    from_: Moment,
    topics: str | Iterable[str] | None = None,
    topics_pattern: str | None = None,
    to: Moment | None = None,
    settings: Mapping[str, str] | None = None,
    target: str | os.PathLike[str] | None = None,
    rename: str | None = None,
    target_settings: Mapping[str, str] | None = None,
    into_nonempty: bool = False,
    table: str | os.PathLike[str] | None = None,
    each_batch: EachBatch | None = None,
    transform: Callable[[DataFrame], DataFrame] | None = None,
    output_mode: str = "append",
    state: str | os.PathLike[str] | None = None,
    once: bool = True,
    dry_run: bool = False,
    control: Control | None = None,
) -> Reprocessed:
    """Give exactly the records with a time in [from, to) to one sink, late ones included.

    None of aborted transactions, unless `kafka.isolation.level` is read_uncommitted: open ones are
    waited for.

    A run that was killed is run again with the same state directory. A topic and a table then have
    each record once; a function sees the micro-batch again that was under way, with the same
    number. Relative times stay what they were at the first run.

    Args:
        spark: the session.
        source: a broker (`host:port`), or a path of segment files.
        from_: only records with a time at or after this; those without a time are in no range.
        topics: their names.
        topics_pattern: or a regular expression of Java's.
        to: only records with a time before this.
        settings: of the source, and of the stream: `maxOffsetsPerTrigger`.
        target: a cluster or log directory, of which `mirror` fills topics of the same names.
        rename: `PATTERN=REPLACEMENT` for their names; needed where the target is the source.
        target_settings: of the target.
        into_nonempty: append to topics that hold records of which `state` knows nothing.
        table: or a directory for Parquet files, with `COLUMNS`; local or any URI of Spark's.
        each_batch: or a function of each micro-batch and its number, as Spark's `foreachBatch`.
        transform: of the streaming DataFrame, before table or function: aggregates, say.
        output_mode: of the stream that comes of it: append, update or complete.
        state: the directory where the job keeps what it has done.
        once: stop at the ends that the logs have at the start, or run until `control` ends it.
        dry_run: write nothing and keep no state; count, and say what a run would be refused for.
        control: how the caller follows and ends it.

    Raises:
        Misconfigured: arguments that cannot be, or a state directory of another run.
        HorologError: the log cannot be read, or the sink refuses.
    """
    sinks = [each for each in (target, table, each_batch) if each is not None]
    if len(sinks) != 1:
        raise Misconfigured("give one sink: a target, a table, or a function for each batch")
    if state is None and not dry_run:
        raise Misconfigured("give a state directory, or dry_run")
    if target is not None:
        if transform is not None:
            raise Misconfigured("records go to topics as they are: transform is for other sinks")
        done = mirror(
            spark,
            source=source,
            target=target,
            state=state,
            topics=topics,
            topics_pattern=topics_pattern,
            from_=from_,
            to=to,
            settings=settings,
            target_settings=target_settings,
            rename=rename,
            into_nonempty=into_nonempty,
            once=once,
            dry_run=dry_run,
            control=control,
        )
        if not dry_run:
            return Reprocessed(records=done.records, mirrored=done)
        selection = Selection.of(source, topics, topics_pattern, from_, to, _committed(settings))
        return replace(_counted(spark, selection), mirrored=done)
    if rename is not None or target_settings or into_nonempty:
        raise Misconfigured("rename and settings of a target are for records that go to topics")
    if output_mode not in OUTPUT_MODES:
        raise Misconfigured(f"output_mode is {output_mode}: give {', '.join(OUTPUT_MODES)}")
    selection = Selection.of(source, topics, topics_pattern, from_, to, _committed(settings))
    arguments = {
        "source": selection.source.normalised,
        "topics": list(selection.topics),
        "topics_pattern": topics_pattern,
        "from": str(from_),
        "to": None if to is None else str(to),
        "table": None if table is None else absolute(os.fspath(table)),
    }
    refused: list[str] = []
    range_ms = None
    try:
        known = None if state is None else look_at_state(state, "reprocess", arguments)
        range_ms = None if known is None else known.read(_RANGE)
    except Misconfigured as error:
        refused.append(str(error))
    selection = _at_first(selection, range_ms)
    frame = _stream(spark, selection)
    frame = frame if transform is None else transform(frame)
    begun = range_ms is not None
    refused += _refusals(frame, table, each_batch, output_mode, state, is_begun=begun)
    if dry_run:
        return replace(_counted(spark, selection), refused=tuple(refused))
    if refused:
        raise Misconfigured(refused[0])
    assert state is not None
    with JobState(state, "reprocess", arguments) as kept:
        if kept.read(_RANGE) != range_ms:
            raise Misconfigured(f"{state}: another run has begun meanwhile; run it again")
        if not begun:
            kept.write(_RANGE, [selection.from_ms, selection.to_ms])
        writer = frame.writeStream.outputMode(output_mode)
        writer = writer.option("checkpointLocation", str(Path(kept.path).absolute() / _CHECKPOINT))
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime="1 s")
        with without_spark():
            records, batches = _run(_sink(writer, table, each_batch), control or Control())
    return Reprocessed(
        records=records, batches=batches, from_ms=selection.from_ms, to_ms=selection.to_ms
    )


def _committed(settings: Mapping[str, str] | None) -> dict[str, str]:
    """The settings, with committed records only unless they say otherwise."""
    given = dict(settings or {})
    if _ISOLATION not in {name.lower() for name in given}:
        given[_ISOLATION] = "read_committed"
    return given


def _at_first(selection: Selection, range_ms: list[int | None] | None) -> Selection:
    """The selection with the range of time that the first run had."""
    if range_ms is None:
        return selection
    return replace(selection, from_ms=range_ms[0], to_ms=range_ms[1])


def _refusals(
    frame: DataFrame,
    table: str | os.PathLike[str] | None,
    each_batch: EachBatch | None,
    output_mode: str,
    state: str | os.PathLike[str] | None,
    *,
    is_begun: bool,
) -> Iterator[str]:
    """Why the sink would refuse the stream."""
    if each_batch is not None:
        yield from function_refusals(each_batch)
    if table is not None:
        kept = None if state is None else Path(state)
        yield from table_refusals(os.fspath(table), output_mode, kept, is_begun=is_begun)
        yield from schema_refusals(frame.schema)


def _stream(spark: SparkSession, selection: Selection) -> DataFrame:
    named = {name.lower() for name in selection.settings}
    options = {"columns": ",".join(COLUMNS), BACKFILL: str(selection.from_ms)}
    if "maxoffsetspertrigger" not in named:
        options["maxOffsetsPerTrigger"] = str(OFFSETS_PER_BATCH)
    return selection.stream(spark, **options)


def _sink(
    writer: DataStreamWriter, table: str | os.PathLike[str] | None, each_batch: EachBatch | None
) -> StreamingQuery:
    if each_batch is not None:
        return writer.foreachBatch(each_batch).start()
    assert table is not None
    return writer.format("parquet").start(absolute(os.fspath(table)))


def _run(query: StreamingQuery, control: Control) -> tuple[int, int]:
    """Wait for a query, or end it when the caller wants; records and micro-batches."""
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
    return sum(rows.values()), sum(1 for each in rows.values() if each)


def _add_progress(query: StreamingQuery, rows: dict[int, int]) -> None:
    for progress in query.recentProgress:
        found: Any = progress
        rows[int(found["batchId"])] = int(found["numInputRows"])


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
