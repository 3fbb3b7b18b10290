import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.record import OTHER_UNITS, units_of
from horolog.record.looks_like import looks_like


@pytest.mark.parametrize(
    ("timestamp", "unit"),
    [
        (1_700_000_000, "seconds"),
        (1_700_000_000_000_000, "microseconds"),
        (1_700_000_000_000_000_000, "nanoseconds"),
    ],
)
def test_a_time_in_another_unit_is_named(timestamp: int, unit: str) -> None:
    assert looks_like(timestamp) == (
        f"The value looks like {unit} (2023-11-14 22:13:20 UTC); timestamps are milliseconds "
        "since 1970"
    )


@pytest.mark.parametrize(
    "timestamp",
    [
        1_700_000_000_000,
        1_000_000_000_000,  # only late
        0,
        -1,
        -5000,
        5,
        (1 << 63) - 1,
        -(1 << 63),
    ],
)
def test_what_makes_no_better_sense_gets_no_hint(timestamp: int) -> None:
    assert looks_like(timestamp) is None


EDGES = [
    limit * factor // 1000 + step
    for limit in (31_536_000_000, 4_102_444_800_000)
    for factor in (1, 1_000, 1_000_000, 1_000_000_000)
    for step in (-1, 0, 1)
]


@given(st.lists(st.one_of(st.sampled_from(EDGES), st.integers(-(1 << 63), (1 << 63) - 1))))
def test_many_numbers_are_judged_as_each_is_alone(timestamps: list[int]) -> None:
    found = units_of(np.array(timestamps, np.int64))
    assert len(found) == len(timestamps)
    for timestamp, place in zip(timestamps, found, strict=True):
        sentence = looks_like(timestamp)
        assert (sentence is None) == (place == 0)
        if sentence is not None:
            assert f"looks like {OTHER_UNITS[place - 1]} (" in sentence


def test_the_first_and_the_last_number_of_a_unit_are_of_it() -> None:
    edges = [31_535_999, 31_536_000, 4_102_444_799, 4_102_444_800]
    assert units_of(np.array(edges, np.int64)).tolist() == [0, 1, 1, 0]
