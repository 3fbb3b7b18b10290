"""The progress of what Spark runs, on standard error."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from horolog.cli.screen import growing_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVERY_S = 0.2

Shown = Callable[[int, int, str], None]


@contextmanager
def tasks_shown(spark: "SparkSession", what: str) -> Iterator[None]:
    """A progress bar over the tasks of all that Spark runs meanwhile, if there is a terminal."""
    with growing_progress(what, "tasks") as shown, following(spark, shown):
        yield


@contextmanager
def following(spark: "SparkSession", shown: Shown) -> Iterator[None]:
    """Say again and again how many tasks of the running stages are done, and how many there are.

    Over Spark Connect, which does not tell, nothing is said.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        yield
        return
    tracker = spark.sparkContext.statusTracker()
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(_EVERY_S):
            stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
            running = [each for each in stages if each is not None]
            if running:
                done = sum(each.numCompletedTasks for each in running)
                shown(done, sum(each.numTasks for each in running), "")

    thread = threading.Thread(target=follow, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
