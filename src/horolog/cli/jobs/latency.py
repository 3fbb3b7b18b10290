"""`horolog spark latency`: how long records take to the log."""

from pathlib import Path
from typing import Annotated, Any

import typer

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
)
from horolog.cli.jobs.tables import plain, show_rows
from horolog.cli.options import Json
from horolog.cli.screen import say, show_json
from horolog.errors import printable
from horolog.times import parse_duration

app = typer.Typer(no_args_is_help=True)

_COLUMNS = ("measured", "negative", "min_ms", "p50_ms", "p90_ms", "p99_ms", "max_ms")
_MOST_HOURS = 48
_FOR_PICTURES = 200_000
_HEADINGS = {name: name.removesuffix("_ms") for name in _COLUMNS}


@app.command(no_args_is_help=True)
def latency(
    source: Source,
    topics: Topics = None,
    topics_pattern: TopicsPattern = None,
    from_: From = None,
    to: To = None,
    live: Annotated[
        str | None,
        typer.Option(
            "--live",
            metavar="DURATION",
            show_default=False,
            help="Read what is appended for so long, and measure this machine's clock minus create "
            "time: for topics whose log keeps one time only.",
        ),
    ] = None,
    pictures: Annotated[
        Path | None,
        typer.Option(
            "--pictures",
            metavar="DIR",
            show_default=False,
            help="Draw the percentiles of each topic's hours into this directory, as PNG.",
        ),
    ] = None,
    master: Master = None,
    settings: Settings = None,
    conf: SparkConf = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Measure append time minus create time: count, percentiles and extremes, in milliseconds.

    By topic and hour of append time; below zero where clocks differ (KIP-33, use case 5). The log
    has to know both times: horolog's does, and LogAppendTime topics do, Apache Kafka's too. Exits
    with 1 where a topic has records, and nothing could be measured.
    """
    live_ms = None if live is None else parse_duration(live)
    with (
        session("latency", master, conf) as spark,
        working_on(spark, "latency", "records") as work,
    ):
        from horolog.jobs.questions.latency import latency as run
        from horolog.jobs.questions.pictures import draw, require_matplotlib

        if pictures is not None:
            require_matplotlib()
        if live_ms is not None:
            say(f"measuring what is appended for {live}")
        found = run(
            spark,
            source=source,
            topics=topics,
            topics_pattern=topics_pattern,
            from_=from_,
            to=to,
            settings=settings_of(settings),
            live_ms=live_ms,
            on_planned=lambda offsets: work(0, offsets),
        ).persist()
        try:
            totals = plain(found.where("is_total").orderBy("topic").collect())
            by_hour = found.where("not is_total and measured > 0").orderBy("hour", "topic")
            limit = _MOST_HOURS if pictures is None and not as_json else _FOR_PICTURES
            hours = plain(by_hour.limit(limit + 1).collect())
        finally:
            found.unpersist()
    drawn = [] if pictures is None else draw(hours[:limit], pictures)
    blind = [row for row in totals if row["records"] and not row["measured"]]
    if as_json:
        named = [str(each) for each in drawn]
        show_json({"topics": totals, "hours": hours[:limit], "pictures": named})
    else:
        _show(totals, hours, limit)
        for each in drawn:
            typer.echo(f"drawn: {each}")
    for row in blind:
        say(_why(row))
    raise typer.Exit(1 if blind else 0)


def _show(totals: list[dict[str, Any]], hours: list[dict[str, Any]], limit: int) -> None:
    if not any(row["records"] for row in totals):
        typer.echo("no records")
        return
    typer.echo(f"{totals[0]['measure']}, in milliseconds\n")
    left_out = [
        name
        for name in ("untimed", "in_other_unit", "not_appended")
        if any(row[name] for row in totals)
    ]
    show_rows(totals, ["topic", "records", *left_out, *_COLUMNS], _HEADINGS)
    if len(hours) > 1:
        more = f", the first {limit}" if len(hours) > limit else ""
        typer.echo(f"\nBy hour{more}")
        show_rows(hours[:limit], ["hour", "topic", *_COLUMNS], _HEADINGS)


def _why(row: dict[str, Any]) -> str:
    """Why nothing of a topic could be measured."""
    topic = printable(row["topic"])
    if row["not_appended"] == row["records"]:
        return (
            f"{topic}: the log keeps one time of each record, the create time, so that the "
            "latency is unknown: Apache Kafka does not store when it appended a record of a "
            "CreateTime topic. --live 60s measures the clock now minus create time of what is "
            "appended meanwhile; with message.timestamp.type=LogAppendTime both times are kept"
        )
    return (
        f"{topic}: no record has both times: {row['untimed']:,} have no create time, that of "
        f"{row['in_other_unit']:,} looks like one in another unit, and {row['not_appended']:,} "
        "have no append time"
    )
