"""`horolog spark bootstrap`: a table into a topic, with the times of its rows."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import typer

from horolog.cli.jobs.command import Call, job_command
from horolog.jobs.parameters.bootstrap import Bootstrap
from horolog.results import Aside

if TYPE_CHECKING:
    from horolog.jobs.loading import Bootstrapped

app = typer.Typer()


@job_command(app, Bootstrap)
def bootstrap(job: Bootstrap, call: Call) -> None:
    """Load the table, and show how many records were."""
    with call.working("records", state=job.resumable) as (spark, work):
        from horolog.jobs import loading

        following = replace(job, on_progress=lambda what, count, total: work(count, total, what))
        done = loading.bootstrap.run(spark, following)
    call.show({"ok": done.is_ok, **asdict(done)}, _lines(done), is_ok=done.is_ok)


def _lines(done: "Bootstrapped") -> Iterator[str]:
    yield from (Aside(f"warning: {warning}") for warning in done.warnings)
    for problem in (*done.problems, *done.errors):
        yield f"refused: {problem}" if problem in done.problems else f"stopped: {problem}"
    where = f"{done.topic} ({done.partitions} partitions)"
    if done.was_loaded:
        yield f"All {done.records} records were loaded into {where} by an earlier run."
    elif done.is_dry_run:
        tombstones = "" if done.survey is None else f", {done.survey.tombstones} of them tombstones"
        verb = "would not be" if done.problems else "would be"
        yield (
            f"{done.records} records{tombstones}, {verb} loaded into {where}; nothing was changed."
        )
    elif done.problems:
        yield f"Nothing was loaded into {where}."
    else:
        yield f"{done.sent} records loaded into {where}; the table has {done.records}."
