"""`horolog spark compare`: whether two topics hold the same records."""

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from horolog.cli.jobs.command import Call, job_command
from horolog.cli.terminal import echo
from horolog.jobs.parameters.mirror import Compare

if TYPE_CHECKING:
    from horolog.jobs.comparing import Compared

app = typer.Typer()


@job_command(app, Compare)
def compare(job: Compare, call: Call) -> None:
    """Run it, and show what is different."""
    with call.working("records") as (spark, work):
        from horolog.jobs import comparing

        found = comparing.compare.run(spark, replace(job, on_progress=work))
    call.show(found.to_json, lambda: _show(found))
    if not found.is_equal:
        raise typer.Exit(1)


def _show(found: "Compared") -> None:
    for difference in found.differences:
        echo(f"different: {difference}")
    for note in found.notes:
        echo(f"note: {note}.")
    verdict = "equal" if found.is_equal else "equal up to there"
    echo(
        f"{found.records} records of {found.partitions} partitions are {verdict}, "
        f"{found.same_bytes} of them byte for byte."
    )
