"""`horolog spark`: the jobs on Spark; `horolog.cli.jobs` makes their commands."""

import typer

from horolog.cli.lazy import Lazy, LazyGroup
from horolog.jobs.parameters.table import JOB_TABLE

JOBS = {
    name.partition(" ")[0]: Lazy(
        f"horolog.cli.jobs.{'command' if row.counts else name.partition(' ')[0]}", row.summary
    )
    for name, row in JOB_TABLE.items()
    if row.summary
}
JOBS["script"] = Lazy("horolog.cli.jobs.script", "Print the path of the script for spark-submit.")


class JobGroup(LazyGroup):
    """Group of the jobs' commands."""

    table = JOBS


app = typer.Typer(
    cls=JobGroup,
    add_completion=False,
    no_args_is_help=True,
    help="Run a job on Spark: on this machine, or on a cluster with --master or spark-submit.",
    epilog="Exit codes: 0 success, 1 failure or problems found, 2 usage error. The jobs are also "
    'functions of horolog.jobs, and run with: spark-submit "$(horolog spark script)" JOB ...',
)


@app.callback()
def jobs() -> None:
    """Options before the job."""
