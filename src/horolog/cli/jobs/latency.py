"""`horolog spark latency`: how long records take to the log."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from horolog.cli.jobs.command import Call, job_command
from horolog.cli.jobs.tables import plain, show_rows
from horolog.cli.screen import say
from horolog.cli.terminal import echo
from horolog.errors import printable
from horolog.jobs.parameters.questions import LatencyCommand
from horolog.times import duration_text

app = typer.Typer()

_COLUMNS = ("measured", "negative", "min_ms", "p50_ms", "p90_ms", "p99_ms", "max_ms")
_MOST_HOURS = 48
_FOR_PICTURES = 200_000
_HEADINGS = {name: name.removesuffix("_ms") for name in _COLUMNS}


@job_command(app, LatencyCommand)
def latency(job: LatencyCommand, call: Call) -> None:
    """Measure, and show the percentiles of topics and hours."""
    with call.working("records") as (spark, work):
        from horolog.jobs.questions import latency as of_latency
        from horolog.jobs.questions.pictures import draw, require_matplotlib

        if job.pictures is not None:
            require_matplotlib()
        if job.live_ms is not None:
            say(f"measuring what is appended for {duration_text(job.live_ms)}")
        planned = replace(job, on_progress=work)
        found = of_latency.latency.run(spark, planned).persist()
        try:
            totals = plain(found.where("is_total").orderBy("topic", "measure").collect())
            by_hour = found.where("not is_total and measured > 0").orderBy(
                "hour", "topic", "measure"
            )
            limit = _MOST_HOURS if job.pictures is None and not call.as_json else _FOR_PICTURES
            hours = plain(by_hour.limit(limit + 1).collect())
        finally:
            found.unpersist()
    drawn = [] if job.pictures is None else draw(hours[:limit], Path(job.pictures))
    blind = [row for row in totals if row["records"] and not row["measured"]]
    named = [str(each) for each in drawn]
    call.show(
        lambda: {"topics": totals, "hours": hours[:limit], "pictures": named},
        lambda: _show(totals, hours, limit, named),
    )
    for row in blind:
        say(_why(row))
    raise typer.Exit(1 if blind else 0)


def _show(
    totals: list[dict[str, Any]], hours: list[dict[str, Any]], limit: int, drawn: list[str]
) -> None:
    if not any(row["records"] for row in totals):
        echo("no records")
        return
    measures = sorted({row["measure"] for row in totals})
    for number, measure in enumerate(measures):
        if number:
            echo("")
        _show_measure(
            measure,
            [row for row in totals if row["measure"] == measure],
            [row for row in hours[:limit] if row["measure"] == measure],
            f", the first {limit}" if len(hours) > limit else "",
        )
    for each in drawn:
        echo(f"drawn: {each}")


def _show_measure(
    measure: str, totals: list[dict[str, Any]], hours: list[dict[str, Any]], more: str
) -> None:
    echo(f"{measure}, in milliseconds", "")
    left_out = [
        name
        for name in ("untimed", "in_other_unit", "not_appended")
        if any(row[name] for row in totals)
    ]
    show_rows(totals, ["topic", "records", *left_out, *_COLUMNS], _HEADINGS)
    if len(hours) > 1:
        echo("", f"By hour{more}")
        show_rows(hours, ["hour", "topic", *_COLUMNS], _HEADINGS)


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
