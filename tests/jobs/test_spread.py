import os
from typing import Any

import pytest

from horolog.errors import StorageFailed
from horolog.jobs.spread import spread

pytestmark = pytest.mark.spark


def square(unit: int) -> dict[str, int]:
    if unit == 3:
        raise StorageFailed("three is on a broken disk")
    if unit == 4:
        raise FileNotFoundError(2, "No such file", "four.log")
    return {"square": unit * unit, "pid": os.getpid()}


def test_units_are_done_in_waves_and_a_failure_leaves_its_neighbours_alone(
    spark: Any,
) -> None:
    waves = list(spread(spark, range(7), square, wave=4))
    assert [len(wave) for wave in waves] == [4, 3]
    outcomes = [each for wave in waves for each in wave]
    assert [each.unit for each in outcomes] == list(range(7))
    results = {each.unit: each.result["square"] for each in outcomes if each.result}
    assert results == {0: 0, 1: 1, 2: 4, 5: 25, 6: 36}
    assert outcomes[3].error == "three is on a broken disk"
    assert "four.log" in str(outcomes[4].error)
    assert all(each.result["pid"] != os.getpid() for each in outcomes if each.result)


def test_nothing_to_do_needs_no_task(spark: Any) -> None:
    assert list(spread(spark, [], square)) == []
