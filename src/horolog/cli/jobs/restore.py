"""`horolog spark restore`: the logs of an archive, restored."""

from dataclasses import asdict, replace
from typing import Any

import typer

from horolog.cli.jobs.command import Call, job_command
from horolog.cli.screen import say, size
from horolog.cli.terminal import echo
from horolog.jobs.parameters.archive import Restore

app = typer.Typer()


@job_command(app, Restore)
def restore(job: Restore, call: Call) -> None:
    """Run it, and show which partitions have their place."""
    with call.working("records", state=job.resumable) as (spark, work):
        from horolog.jobs.archives import restoring

        done = restoring.restore.run(spark, replace(job, on_progress=work))
    call.show(lambda: asdict(done), lambda: _show(done))
    for partition, why in done.refused.items():
        say(f"{partition}: {why}")
    if done.refused:
        raise typer.Exit(1)


def _show(done: Any) -> None:
    what = "Would restore" if done.is_dry_run else "Restored and compared"
    echo(
        f"{what} {done.records} records of {len(done.partitions)} partitions in {done.target}: "
        f"{done.segments} segments, {size(done.bytes)}"
    )
    for partition, (start, end) in done.partitions.items():
        what = f"offsets {start} to {end - 1}" if start < end else f"empty, at offset {end}"
        echo(f"  {partition}  {what}")
    for note in done.notes:
        say(note)
