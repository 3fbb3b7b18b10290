"""How far a job on Spark is."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from horolog.cli.jobs.lazy_session import LazySession
from horolog.cli.working import Work, working

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def working_on(
    spark: "SparkSession",
    what: str,
    unit: str,
    *,
    state: Path | None = None,
    stop: threading.Event | None = None,
) -> Iterator[Work]:
    """Show how far a job is, and how many tasks of what Spark runs are done, until it ends.

    Raises:
        typer.Exit: a signal has ended it.
    """
    from horolog.jobs.counting import listening

    goes_on = None if state is None else f"--state {state}"
    with (
        working(
            what, unit, goes_on=goes_on, count_tasks=lambda: running_tasks(spark), stop=stop
        ) as work,
        listening(work.count),
    ):
        yield work


def running_tasks(spark: "SparkSession") -> tuple[int, int]:
    """How many tasks of the running stages are done, and how many there are.

    Nothing is known over Spark Connect, nor before Spark has started.
    """
    session = spark.started if isinstance(spark, LazySession) else spark
    if session is None or type(session).__module__.startswith("pyspark.sql.connect."):
        return 0, 0
    tracker = session.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
    running = [each for each in stages if each is not None]
    return sum(each.numCompletedTasks for each in running), sum(each.numTasks for each in running)
