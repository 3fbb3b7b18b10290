from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from patience import eventually

from horolog.cli.jobs.command import running_tasks

pytestmark = pytest.mark.spark


def slow(batches: Any) -> Any:
    import time  # noqa: PLC0415 - in a worker

    time.sleep(1)
    yield from batches


def test_the_tasks_of_what_spark_runs_are_counted(spark: Any) -> None:
    seen = set()
    with ThreadPoolExecutor(1) as pool:
        ran = pool.submit(spark.range(0, 4, 1, 4).mapInArrow(slow, "id long").collect)
        while not ran.done():
            seen.add(running_tasks(spark))
    assert {total for _, total in seen} == {0, 4}
    assert all(0 <= done <= 4 for done, _ in seen)
    assert eventually(lambda: running_tasks(spark) == (0, 0)), "Spark's tracker hears of it late"
