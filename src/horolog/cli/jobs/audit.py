"""`horolog spark audit`: find wrong times in a log."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from horolog.cli.jobs.audit_windows import WRONG, show_windows, wrong_in
from horolog.cli.jobs.command import Call, job_command
from horolog.cli.jobs.stopping import stopped_after, stopped_by_signals
from horolog.cli.jobs.tables import most, plain, row_table
from horolog.errors import Misconfigured, printable
from horolog.jobs.parameters.option import options_of
from horolog.jobs.parameters.questions import AuditCommand, FollowAudit
from horolog.results import Answer, Shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

app = typer.Typer()

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


@job_command(app, AuditCommand)
def audit(job: AuditCommand, call: Call) -> None:
    """Audit, and show the counts, or the windows as they come."""
    if not job.follow:
        _audit(job, call)
    elif _follow(job, call):
        raise typer.Exit(1)


def _follow(job: AuditCommand, call: Call) -> int:
    if job.from_ is not None or job.to is not None:
        raise Misconfigured("--follow audits what is appended from now on: leave out --from, --to")
    with (
        stopped_by_signals() as stop,
        stopped_after(stop, job.for_ms),
        call.session() as spark,
    ):
        from horolog.jobs.questions.following import follow_audit

        windows = follow_audit.run(spark, options_of(FollowAudit, job, stop=stop))
        return show_windows(windows, as_json=call.as_json)


def _audit(job: AuditCommand, call: Call) -> None:
    with call.working("records") as (spark, work):
        from horolog.jobs.questions import audit as of_audit
        from horolog.jobs.questions.advice import as_json as shown
        from horolog.jobs.questions.advice import evidence
        from horolog.jobs.questions.audit import producer_clients, totals

        audited = of_audit.audit.run(spark, replace(job, on_progress=work)).persist()
        try:
            by_topic = totals(audited, "topic", "compared_with").orderBy("topic", "compared_with")
            result: dict[str, Any] = {"topics": plain(by_topic.collect())}
            for name, keys in _PLACES.items():
                result[name] = most(_wrong(totals(audited, *keys)), _MOST, *keys)
            bounds = evidence(audited)
        finally:
            audited.unpersist()
        listed = result["producers"]["rows"]
        clients = producer_clients(job, {row["producer"] for row in listed} - {None})
        for row in listed:
            row["client_id"] = clients.get(row["producer"])
    lines = _lines(result, [str(bound) for bound in bounds if bound.is_suggested])
    wrong = wrong_in(result["topics"])
    call.show(Answer({**result, "evidence": [*map(shown, bounds)]}, lines, not wrong))


def _wrong(rows: "DataFrame") -> "DataFrame":
    """Select the rows with wrong times, and add a column with their number."""
    from pyspark.sql import functions as F

    names = (*WRONG, "untimed", "before_1970", "out_of_order")
    return rows.withColumn("wrong", F.expr(" + ".join(names))).where("wrong > 0")


def _lines(result: dict[str, Any], suggestions: list[str]) -> Iterator[Shown]:
    rows = result["topics"]
    if not rows:
        yield "no records"
        return
    columns = ["records", *WRONG, "untimed", "before_1970", "out_of_order", "late_max_ms"]
    yield row_table(rows, ["topic", "compared_with", *columns], _HEADINGS)
    if any(row["compared_with"] == "now" for row in rows):
        yield ""
        yield (
            "The log does not know when records of these topics were appended, so that their "
            "times are compared with now:"
        )
        yield "at least this many were in the future, and at most this many in the past."
    for name, keys in _PLACES.items():
        listed, count = result[name]["rows"], result[name]["count"]
        if listed and (name != "partitions" or len(listed) > 1):
            left_out = f", the {len(listed)} with most" if count > len(listed) else ""
            yield ""
            yield f"By {keys[1]}{left_out}"
            shown = [
                name for name in ("client_id", *columns) if any(row.get(name) for row in listed)
            ]
            yield row_table(listed, [*keys, *shown], _HEADINGS)
    yield ""
    yield "Suggested" if suggestions else "No bound is suggested."
    yield from (f"  {printable(suggestion)}" for suggestion in suggestions)
