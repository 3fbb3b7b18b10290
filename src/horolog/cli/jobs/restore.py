"""`horolog spark restore`: the logs of an archive, restored."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import typer

from horolog.cli.jobs.command import Call, job_command
from horolog.jobs.parameters.archive import Restore
from horolog.results import Aside, size

app = typer.Typer()


@job_command(app, Restore)
def restore(job: Restore, call: Call) -> None:
    """Run it, and show which partitions have their place."""
    with call.working("records", state=job.resumable) as (spark, work):
        from horolog.jobs.archives import restoring

        done = restoring.restore.run(spark, replace(job, on_progress=work))
    problems = (f"{partition}: {why}" for partition, why in done.refused.items())
    call.show(asdict(done), _lines(done), problems)


def _lines(done: Any) -> Iterator[str]:
    what = "Would restore" if done.is_dry_run else "Restored and compared"
    yield (
        f"{what} {done.records} records of {len(done.partitions)} partitions in {done.target}: "
        f"{done.segments} segments, {size(done.bytes)}"
    )
    for partition, (start, end) in done.partitions.items():
        what = f"offsets {start} to {end - 1}" if start < end else f"empty, at offset {end}"
        yield f"  {partition}  {what}"
    yield from map(Aside, done.notes)
