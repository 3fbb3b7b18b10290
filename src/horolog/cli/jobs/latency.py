"""`horolog spark latency`: measure how long records take to the log."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import typer

from horolog.cli.jobs.command import Call, job_command
from horolog.cli.jobs.tables import plain, row_table
from horolog.cli.screen import say
from horolog.errors import printable
from horolog.jobs.parameters.questions import LatencyCommand
from horolog.results import Answer, Aside, Shown
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
        latencies = of_latency.latency.run(spark, planned).persist()
        try:
            totals = plain(latencies.where("is_total").orderBy("topic", "measure").collect())
            by_hour = latencies.where("not is_total and measured > 0").orderBy(
                "hour", "topic", "measure"
            )
            limit = _MOST_HOURS if job.pictures is None and not call.as_json else _FOR_PICTURES
            hours = plain(by_hour.limit(limit + 1).collect())
        finally:
            latencies.unpersist()
    drawn = [] if job.pictures is None else draw(hours[:limit], Path(job.pictures))
    blind = [row for row in totals if row["records"] and not row["measured"]]
    named = [str(path) for path in drawn]
    lines = chain(_lines(totals, hours, limit, named), map(_why, blind))
    result = {"topics": totals, "hours": hours[:limit], "pictures": named}
    call.show(Answer(result, lines, not blind))


def _lines(
    totals: list[dict[str, Any]], hours: list[dict[str, Any]], limit: int, drawn: list[str]
) -> Iterator[Shown]:
    if not any(row["records"] for row in totals):
        yield "no records"
        return
    more = f", the first {limit}" if len(hours) > limit else ""
    for number, measure in enumerate(sorted({row["measure"] for row in totals})):
        if number:
            yield ""
        yield f"{measure}, in milliseconds"
        yield ""
        measured = [row for row in totals if row["measure"] == measure]
        left_out = [
            name
            for name in ("untimed", "in_other_unit", "not_appended")
            if any(row[name] for row in measured)
        ]
        yield row_table(measured, ["topic", "records", *left_out, *_COLUMNS], _HEADINGS)
        by_hour = [row for row in hours[:limit] if row["measure"] == measure]
        if len(by_hour) > 1:
            yield ""
            yield f"By hour{more}"
            yield row_table(by_hour, ["hour", "topic", *_COLUMNS], _HEADINGS)
    yield from (f"drawn: {path}" for path in drawn)


def _why(row: dict[str, Any]) -> Aside:
    """Explain that nothing of a topic could be measured."""
    topic = printable(row["topic"])
    if row["not_appended"] == row["records"]:
        return Aside(
            f"{topic}: the log keeps one time of each record, the create time, so that the "
            "latency is unknown: Apache Kafka does not store when it appended a record of a "
            "CreateTime topic. --live 60s measures the clock now minus create time of what is "
            "appended meanwhile; with message.timestamp.type=LogAppendTime both times are kept"
        )
    return Aside(
        f"{topic}: no record has both times: {row['untimed']:,} have no create time, that of "
        f"{row['in_other_unit']:,} looks like one in another unit, and {row['not_appended']:,} "
        "have no append time"
    )
