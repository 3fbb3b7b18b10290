from typing import Any

import pytest

from horolog.cli.jobs.following import following

pytestmark = pytest.mark.spark


def slow(batches: Any) -> Any:
    import time  # noqa: PLC0415 - in a worker

    time.sleep(1)
    yield from batches


def test_the_tasks_of_what_spark_runs_are_followed(spark: Any) -> None:
    said: list[tuple[int, int]] = []
    with following(spark, lambda done, total, _: said.append((done, total))):
        spark.range(0, 4, 1, 4).mapInArrow(slow, "id long").collect()
    assert said
    assert {total for _, total in said} == {4}
    assert all(0 <= done <= 4 for done, _ in said)
    ended = len(said)
    spark.range(0, 4, 1, 4).mapInArrow(slow, "id long").collect()
    assert len(said) == ended
