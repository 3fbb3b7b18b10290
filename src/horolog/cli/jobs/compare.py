"""`horolog spark compare`: whether two topics hold the same records."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from horolog.cli.jobs.command import Call, job_command
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
    call.show(found.to_json(), _lines(found), is_ok=found.is_equal)


def _lines(found: "Compared") -> Iterator[str]:
    yield from (f"different: {difference}" for difference in found.differences)
    yield from (f"note: {note}." for note in found.notes)
    verdict = "equal" if found.is_equal else "equal up to there"
    yield (
        f"{found.records} records of {found.partitions} partitions are {verdict}, "
        f"{found.same_bytes} of them byte for byte."
    )
