"""`horolog spark`: the jobs on Spark, each in a module of `horolog.cli.jobs`."""

import typer

from horolog.cli.lazy import Lazy, LazyGroup

JOBS = {
    "audit": Lazy("horolog.cli.jobs.audit", "Find wrong times, and bounds that refuse them."),
    "latency": Lazy("horolog.cli.jobs.latency", "Measure how long records take to the log."),
    "index": Lazy("horolog.cli.jobs.index", "Verify or rebuild indexes of many partitions."),
    "convert": Lazy("horolog.cli.jobs.convert", "Rewrite many partitions in another format."),
    "reprocess": Lazy("horolog.cli.jobs.reprocess", "Give the records since a time to a sink."),
    "mirror": Lazy("horolog.cli.jobs.mirror", "Mirror topics into another cluster or a directory."),
    "compare": Lazy("horolog.cli.jobs.compare", "Prove that two topics hold the same records."),
    "failover": Lazy("horolog.cli.jobs.failover", "Let groups continue in another cluster."),
    "bootstrap": Lazy("horolog.cli.jobs.bootstrap", "Load a table into a topic, with its times."),
    "archive": Lazy("horolog.cli.jobs.archive", "Archive topics as Parquet, by date and hour."),
    "restore": Lazy("horolog.cli.jobs.restore", "Restore the logs of an archive."),
    "script": Lazy("horolog.cli.jobs.script", "Print the path of the script for spark-submit."),
}


class JobGroup(LazyGroup):
    """The jobs; each is imported when it runs."""

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
