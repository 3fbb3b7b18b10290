"""`horolog spark audit`: which times of a log are wrong."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from horolog.cli.jobs.audit_windows import WRONG, show_windows, wrong_in
from horolog.cli.jobs.following import working_on
from horolog.cli.jobs.options import (
    Config,
    From,
    Master,
    Settings,
    Source,
    SparkConf,
    To,
    Topics,
    TopicsPattern,
    session,
    settings_of,
    stopped_after,
    stopped_by_signals,
)
from horolog.cli.jobs.tables import most, plain, show_rows
from horolog.cli.options import Json
from horolog.cli.screen import show_json
from horolog.errors import Misconfigured, printable
from horolog.times import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

app = typer.Typer(no_args_is_help=True)

_MOST = 20
_HEADINGS = {
    "in_seconds": "seconds",
    "in_microseconds": "microseconds",
    "in_nanoseconds": "nanoseconds",
    "before_1970": "before 1970",
    "out_of_order": "out of order",
    "untimed": "no time",
    "late_max_ms": "late by (ms)",
}
_PLACES = {
    "partitions": ("topic", "partition"),
    "producers": ("topic", "producer"),
    "hours": ("topic", "hour"),
}


@app.command(no_args_is_help=True)
def audit(
    source: Source,
    topics: Topics = None,
    topics_pattern: TopicsPattern = None,
    from_: From = None,
    to: To = None,
    before_max: Annotated[
        str | None,
        typer.Option(
            "--before-max",
            metavar="DURATION",
            show_default=False,
            help="Times more than this before the append time (unknown: before now) are past, as "
            "message.timestamp.before.max.ms would have it; by default none is.",
        ),
    ] = None,
    after_max: Annotated[
        str,
        typer.Option(
            "--after-max",
            metavar="DURATION",
            help="Times more than this after the append time (unknown: after now) are future, as "
            "message.timestamp.after.max.ms would have it.",
        ),
    ] = "1h",
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Audit what is appended from now on, window by window, until Ctrl-C or SIGTERM.",
        ),
    ] = False,
    every: Annotated[
        str,
        typer.Option("--every", metavar="DURATION", help="How long a window of --follow lasts."),
    ] = "10s",
    for_: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="DURATION",
            show_default=False,
            help="End --follow after so long, as Ctrl-C would.",
        ),
    ] = None,
    master: Master = None,
    settings: Settings = None,
    conf: SparkConf = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Find wrong times: in the future or past, in another unit, missing, out of order.

    Counts them by topic, partition, producer id and hour, and suggests bounds with what they would
    have refused (KIP-937). Producers have their client ids where a horolog broker has heard them
    since it started. Create times are compared with append times where the log knows them:
    horolog's logs and LogAppendTime topics. Otherwise they are compared with now, and the result
    says so. Exits with 1 if times are in the future, in the past, or in another unit.

    With --follow it prints a line for each topic in each window, or with --json a line of JSON for
    each window, and ends with the sums of all.
    """
    before_ms = None if before_max is None else parse_duration(before_max)
    after_ms = parse_duration(after_max)
    if follow:
        if from_ is not None or to is not None:
            raise Misconfigured(
                "--follow audits what is appended from now on: leave out --from, --to"
            )
        every_ms = parse_duration(every)
        for_ms = None if for_ is None else parse_duration(for_)
        with (
            session("audit", master, conf) as spark,
            stopped_by_signals() as stop,
            stopped_after(stop, for_ms),
        ):
            from horolog.jobs.questions.following import follow_audit

            windows = follow_audit(
                spark,
                source=source,
                topics=topics,
                topics_pattern=topics_pattern,
                settings=settings_of(settings),
                before_max_ms=before_ms,
                after_max_ms=after_ms,
                every_ms=every_ms,
                stop=stop,
            )
            wrong = show_windows(windows, as_json=as_json)
        raise typer.Exit(1 if wrong else 0)
    with session("audit", master, conf) as spark, working_on(spark, "audit", "records") as work:
        from horolog.jobs.questions.advice import as_json as shown
        from horolog.jobs.questions.advice import evidence
        from horolog.jobs.questions.audit import audit as run
        from horolog.jobs.questions.audit import totals
        from horolog.jobs.questions.producer_clients import producer_clients

        audited = run(
            spark,
            source=source,
            topics=topics,
            topics_pattern=topics_pattern,
            from_=from_,
            to=to,
            settings=settings_of(settings),
            before_max_ms=before_ms,
            after_max_ms=after_ms,
            on_planned=lambda offsets: work(0, offsets),
        ).persist()
        try:
            by_topic = totals(audited, "topic", "compared_with").orderBy("topic", "compared_with")
            found: dict[str, Any] = {"topics": plain(by_topic.collect())}
            for name, keys in _PLACES.items():
                found[name] = most(_wrong(totals(audited, *keys)), _MOST, *keys)
            bounds = evidence(audited)
        finally:
            audited.unpersist()
        listed = found["producers"]["rows"]
        ids = {row["producer"] for row in listed} - {None}
        clients = producer_clients(source, settings_of(settings), ids)
        for row in listed:
            row["client_id"] = clients.get(row["producer"])
    wrong = wrong_in(found["topics"])
    if as_json:
        show_json({**found, "evidence": [shown(each) for each in bounds]})
    else:
        _show(found, [str(each) for each in bounds if each.is_suggested])
    raise typer.Exit(1 if wrong else 0)


def _wrong(rows: "DataFrame") -> "DataFrame":
    """Those with times that are not as they should be, most first."""
    from pyspark.sql import functions as F

    names = (*WRONG, "untimed", "before_1970", "out_of_order")
    many = sum((F.col(name) for name in names[1:]), F.col(names[0]))
    return rows.withColumn("wrong", many).where("wrong > 0")


def _show(found: dict[str, Any], suggestions: list[str]) -> None:
    rows = found["topics"]
    if not rows:
        typer.echo("no records")
        return
    columns = ["records", *WRONG, "untimed", "before_1970", "out_of_order", "late_max_ms"]
    show_rows(rows, ["topic", "compared_with", *columns], _HEADINGS)
    if any(row["compared_with"] == "now" for row in rows):
        typer.echo(
            "\nThe log does not know when records of these topics were appended, so that their "
            "times are compared with now:\nat least so many were in the future, and at most so "
            "many in the past."
        )
    for name, keys in _PLACES.items():
        listed, count = found[name]["rows"], found[name]["count"]
        if listed and (name != "partitions" or len(listed) > 1):
            left_out = f", the {len(listed)} with most" if count > len(listed) else ""
            typer.echo(f"\nBy {keys[1]}{left_out}")
            shown = [
                each for each in ("client_id", *columns) if any(row.get(each) for row in listed)
            ]
            show_rows(listed, [*keys, *shown], _HEADINGS)
    typer.echo("\nSuggested" if suggestions else "\nNo bound is suggested.")
    for each in suggestions:
        typer.echo(f"  {printable(each)}")
