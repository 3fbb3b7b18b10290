"""The job `bootstrap`: a table into a topic, with the times of its rows (KIP-33, use case 2).

    run        the steps of a load, each done once for a state directory
    table      what is loaded, as Spark reads it
    rows       which record each row becomes
    survey     what the topic would refuse or delete of them, before any is sent
    staging    the records as segment files, written once, by partition and in order
    report     what was done

The files are then mirrored (`mirroring`): to horolog and to Apache Kafka, without loss and without
doubling, whenever a run is killed.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from crc32c import crc32c
from pyspark.sql import DataFrame, SparkSession

from horolog.clock import SystemClock
from horolog.errors import Misconfigured, RequestRefused
from horolog.jobs.loading.report import Bootstrapped
from horolog.jobs.loading.rows import RowRules
from horolog.jobs.loading.run import Load
from horolog.jobs.loading.table import frame_of
from horolog.jobs.state import JobState
from horolog.metadata.topics import check_name
from horolog.record.compression import Codec
from horolog.sources.location import Location
from horolog.sources.object_stores import shown
from horolog.storage.names import INTERNAL_TOPICS

__all__ = ["Bootstrapped", "bootstrap"]


def bootstrap(
    spark: SparkSession,
    *,
    table: DataFrame | str | os.PathLike[str],
    target: str,
    topic: str,
    format: str | None = None,  # noqa: A002 - Spark's name
    options: Mapping[str, str] | None = None,
    time: str | None = None,
    unit: str | None = None,
    tz: str | None = None,
    key: str | Iterable[str] | None = None,
    value: str = "json",
    value_columns: str | Iterable[str] | None = None,
    headers: Mapping[str, str] | None = None,
    tombstone_when: str | None = None,
    partition_column: str | None = None,
    order_by: str | Iterable[str] | None = None,
    compression: str = "none",
    partitions: int | None = None,
    topic_settings: Mapping[str, str] | None = None,
    replace_create_times: bool = False,
    into_nonempty: bool = False,
    settings: Mapping[str, str] | None = None,
    state: str | os.PathLike[str] | None = None,
    stage: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    on_progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Bootstrapped:
    """Load a table into a topic: one record a row, with the time of the row.

    The table is read once and written down as segment files, by partition and in order; these are
    sent. So a run that was killed is run again with the same state directory, and neither loses
    nor doubles a record, at horolog and at Apache Kafka; a kill before all is written down begins
    with the table anew, when nothing was sent. A state directory is of one load: run again after
    it has ended, nothing happens.

    Args:
        spark: the session.
        table: a DataFrame, or a path that Spark reads.
        target: `host:port` of a broker.
        topic: the topic; created if it is not there and `partitions` is given.
        format: how a path is read: parquet (default), csv, json, orc, jdbc (without a path).
        options: of that format, by Spark's names; may hold secrets.
        time: column of the record times: timestamp, date, or integer. Without it the time of
            the load.
        unit: of integers: s, ms, us or ns since 1970. Floored to milliseconds.
        tz: zone of a column of times without one.
        key: columns of the key. One: its text, or its bytes if it is binary. Several: a JSON
            object. Without any, records have no key.
        value: json (an object of the columns), string (the text of one column) or binary.
        value_columns: which; for json all by default. A null in the column of string and binary
            is a tombstone.
        headers: column by the name of a header, as text; a null is no header.
        tombstone_when: a condition in SQL; rows that meet it become records without a value.
        partition_column: column of partition numbers. Without it partitions are those of Kafka's
            clients (murmur2 of the key); records without a key are spread by a hash of the value.
        order_by: columns that order the records of a partition; the time by default.
        compression: none, gzip, snappy, lz4 or zstd.
        partitions: of a topic that is created.
        topic_settings: of a topic that is created.
        replace_create_times: load into a topic of LogAppendTime, which replaces the times.
        into_nonempty: load into a topic that holds records, too.
        settings: of the clients, `kafka.*`.
        state: directory of what is done.
        stage: directory of the segment files, shared by all executors; in the state by default.
        dry_run: send nothing; count what the topic would refuse or delete.
        on_progress: called with what is done, how much, and of how much.

    Raises:
        Misconfigured: an argument that cannot be, or a state of another run.
        RequestRefused, NoAnswer: the broker refuses, or does not answer.
    """
    location = Location.parse(target, "target")
    try:
        check_name(topic)
    except RequestRefused as error:
        raise Misconfigured(str(error)) from None
    if topic in INTERNAL_TOPICS:
        raise Misconfigured(f"{topic} is a topic that Kafka keeps for itself")
    if compression.upper() not in Codec.__members__:
        raise Misconfigured(f"compression is {compression}: there are {', '.join(_codecs())}")
    if state is None and not dry_run:
        raise Misconfigured("give a state directory, or dry_run")
    rules = RowRules(
        time=time,
        unit=unit,
        zone=tz,
        key=_names(key),
        value=value,
        value_columns=_names(value_columns),
        headers=tuple((headers or {}).items()),
        tombstone_when=tombstone_when,
        partition_column=partition_column,
        order_by=_names(order_by),
    )
    load = Load(
        spark,
        location,
        settings or {},
        topic,
        topic_settings or {},
        partitions,
        rules,
        Codec[compression.upper()],
        replace_create_times,
        into_nonempty,
        on_progress,
    )
    if dry_run or state is None:
        frame = frame_of(spark, table, format, options)
        return load.look(frame, SystemClock().now_ms())[1]
    arguments = {
        "table": "DataFrame" if isinstance(table, DataFrame) else shown(os.fspath(table)),
        "format": format,
        "target": str(location),
        "topic": topic,
        "rules": {name: getattr(rules, name) for name in RowRules.__slots__},
        "compression": compression,
    }
    with JobState(state, "bootstrap", arguments) as kept:
        directory = Path(stage) if stage is not None else kept.path / "stage"
        if stage is not None:
            # Several loads may share the directory that executors share.
            directory /= f"{topic}-{crc32c(os.fsencode(kept.path.absolute())):08x}"
        # Executors need not run where the driver does.
        return load.run(kept, directory.absolute(), lambda: frame_of(spark, table, format, options))


def _names(given: str | Iterable[str] | None) -> tuple[str, ...]:
    names = given.split(",") if isinstance(given, str) else given or ()
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


def _codecs() -> list[str]:
    return [codec.name.lower() for codec in Codec]
