import pytest

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
