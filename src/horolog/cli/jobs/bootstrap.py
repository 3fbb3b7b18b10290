"""`horolog spark bootstrap`: a table into a topic, with the times of its rows."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from horolog.cli.jobs.following import working_on
from horolog.cli.jobs.options import (
    Config,
    DryRun,
    IntoNonempty,
    Master,
    Settings,
    SparkConf,
    State,
    session,
    settings_of,
    state_needed,
)
from horolog.cli.options import Json, pairs
from horolog.cli.screen import say, show_json

if TYPE_CHECKING:
    from horolog.jobs.loading import Bootstrapped

app = typer.Typer()


class Encoding(StrEnum):
    """How values are written."""

    JSON = "json"
    STRING = "string"
    BINARY = "binary"


class TimeUnit(StrEnum):
    """Units of integers that are times since 1970."""

    S = "s"
    MS = "ms"
    US = "us"
    NS = "ns"


@app.command(no_args_is_help=True)
def bootstrap(
    table: Annotated[
        str,
        typer.Option(
            "--table",
            metavar="PATH",
            show_default=False,
            help="The table: a path or URI that Spark reads; with --format jdbc any name.",
        ),
    ],
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="HOST:PORT",
            show_default=False,
            help="The broker, horolog or Apache Kafka.",
        ),
    ],
    topic: Annotated[
        str,
        typer.Option("--topic", metavar="TOPIC", show_default=False, help="The topic to load."),
    ],
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            show_default=False,
            help="parquet (default), csv (a header, types inferred), json, orc, jdbc.",
        ),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME=VALUE",
            show_default=False,
            help="An option of Spark's reader, as url=jdbc:... or dbtable=...; repeat for more.",
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="COLUMN",
            show_default=False,
            help="Record times: a timestamp, a date, or integers with --unit. Old times and times "
            "before 1970 too. Without it records have the time of the load.",
        ),
    ] = None,
    unit: Annotated[
        TimeUnit | None,
        typer.Option(
            "--unit", show_default=False, help="What integers of --time count, from 1970."
        ),
    ] = None,
    tz: Annotated[
        str | None,
        typer.Option(
            "--tz", metavar="ZONE", show_default=False, help="The zone of times without one."
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="COLUMN[,COLUMN]",
            show_default=False,
            help="One column: its text, or its bytes. Several: a JSON object of them.",
        ),
    ] = None,
    value: Annotated[
        Encoding,
        typer.Option("--value", help="A JSON object, or the text or bytes of one column."),
    ] = Encoding.JSON,
    value_columns: Annotated[
        str | None,
        typer.Option(
            "--value-columns",
            metavar="COLUMN[,COLUMN]",
            show_default=False,
            help="Columns of the value; of JSON all by default. A null of string or binary is a "
            "tombstone.",
        ),
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            metavar="NAME=COLUMN",
            show_default=False,
            help="A header, the text of a column; rows with null there have none. Repeatable.",
        ),
    ] = None,
    tombstone_when: Annotated[
        str | None,
        typer.Option(
            "--tombstone-when",
            metavar="SQL",
            show_default=False,
            help="Rows that meet this condition become tombstones: records without a value.",
        ),
    ] = None,
    partition_column: Annotated[
        str | None,
        typer.Option(
            "--partition-column",
            metavar="COLUMN",
            show_default=False,
            help="Partition numbers. By default those of Kafka's clients (murmur2 of the key); "
            "records without a key are spread by their values.",
        ),
    ] = None,
    order_by: Annotated[
        str | None,
        typer.Option(
            "--order-by",
            metavar="COLUMN[,COLUMN]",
            show_default=False,
            help="The order of records within a partition; by default that of their times.",
        ),
    ] = None,
    compression: Annotated[
        str, typer.Option("--compression", metavar="CODEC", help="none, gzip, snappy, lz4, zstd.")
    ] = "none",
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            min=1,
            metavar="N",
            show_default=False,
            help="Create the topic with so many partitions, if it is not there.",
        ),
    ] = None,
    topic_settings: Annotated[
        list[str] | None,
        typer.Option(
            "--topic-set",
            metavar="NAME=VALUE",
            show_default=False,
            help="A setting of the topic that is created, as retention.ms=-1; repeat for more.",
        ),
    ] = None,
    replace_create_times: Annotated[
        bool,
        typer.Option(
            "--replace-create-times",
            help="Load into a topic of LogAppendTime, which replaces the times of the records.",
        ),
    ] = False,
    into_nonempty: IntoNonempty = False,
    state: State = None,
    stage: Annotated[
        Path | None,
        typer.Option(
            "--stage",
            metavar="DIR",
            show_default=False,
            help="Where the records are written before they are sent; shared by all executors. By "
            "default in --state.",
        ),
    ] = None,
    dry_run: DryRun = False,
    settings: Settings = None,
    master: Master = None,
    conf: SparkConf = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Load a table into a topic: one record a row, with the time of the row.

    First all rows are counted, and nothing is sent if the topic would refuse some: times outside
    message.timestamp.before.max.ms and after.max.ms, rows without a time, records without a key
    for a compacted topic, a topic of LogAppendTime. If its retention would delete what is about to
    be loaded, a warning says how many records, and how old the oldest is.

    Then the table is read once, and written down as segment files in --stage (as large as the
    records), which are sent. Run it again with the same --state after a kill: no record is lost or
    doubled, at horolog and Apache Kafka. After it has ended, the same --state does nothing.

    horolog spark bootstrap --table clicks.parquet --target 127.0.0.1:9092 --topic clicks --time at
    --key user --partitions 4 --topic-set retention.ms=-1 --state ./load
    """
    kept = state_needed(state, dry_run=dry_run)
    with session("bootstrap", master, conf) as spark:
        from horolog.jobs.loading import bootstrap as run

        with working_on(spark, "bootstrap", "records", state=kept) as work:
            done = run(
                spark,
                table=table,
                target=target,
                topic=topic,
                format=form,
                options=pairs(options, "--option") or None,
                time=time,
                unit=None if unit is None else unit.value,
                tz=tz,
                key=key,
                value=value.value,
                value_columns=value_columns,
                headers=pairs(headers, "--header"),
                tombstone_when=tombstone_when,
                partition_column=partition_column,
                order_by=order_by,
                compression=compression,
                partitions=partitions,
                topic_settings=pairs(topic_settings, "--topic-set"),
                replace_create_times=replace_create_times,
                into_nonempty=into_nonempty,
                settings=settings_of(settings),
                state=kept,
                stage=stage,
                dry_run=dry_run,
                on_progress=lambda what, count, total: work(count, total, what),
            )
    if as_json:
        _show_json(done)
    else:
        _show(done)
    if not done.is_ok:
        raise typer.Exit(1)


def _show(done: "Bootstrapped") -> None:
    for warning in done.warnings:
        say(f"warning: {warning}")
    for problem in (*done.problems, *done.errors):
        typer.echo(f"refused: {problem}" if problem in done.problems else f"stopped: {problem}")
    where = f"{done.topic} ({done.partitions} partitions)"
    if done.was_loaded:
        typer.echo(f"All {done.records} records were loaded into {where} by an earlier run.")
    elif done.is_dry_run:
        tombstones = 0 if done.survey is None else done.survey.tombstones
        verb = "would not be" if done.problems else "would be"
        typer.echo(
            f"{done.records} records, {tombstones} of them tombstones, {verb} loaded into {where}; "
            "nothing was changed."
        )
    elif done.problems:
        typer.echo(f"Nothing was loaded into {where}.")
    else:
        typer.echo(f"{done.sent} records loaded into {where}; the table has {done.records}.")


def _show_json(done: "Bootstrapped") -> None:
    show_json({"ok": done.is_ok, **asdict(done)})
