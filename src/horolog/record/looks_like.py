"""The probable unit of a number that is no sensible time in milliseconds.

Between 1971 and 2100 the four usual units do not overlap: a number makes sense in one of them at
most.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_EARLIEST_MS = 31_536_000_000  # 1971-01-01
_LATEST_MS = 4_102_444_800_000  # 2100-01-01


class _Unit(NamedTuple):
    """A unit, and the numbers from `first` to before `end` that are sensible times in it."""

    name: str
    first: int
    end: int
    per_second: int


_UNITS: Final = tuple(
    _Unit(name, _EARLIEST_MS * per_second // 1_000, _LATEST_MS * per_second // 1_000, per_second)
    for name, per_second in (
        ("seconds", 1),
        ("microseconds", 1_000_000),
        ("nanoseconds", 1_000_000_000),
    )
)
OTHER_UNITS: Final = tuple(each.name for each in _UNITS)
"""The units other than milliseconds that a number can look like."""


def unit_of(timestamp: int) -> str:
    """Return the unit other than milliseconds that a number looks like; empty for none."""
    return next((unit.name for unit in _UNITS if unit.first <= timestamp < unit.end), "")


def looks_like(timestamp: int) -> str | None:
    """Return a sentence with the unit that a timestamp seems to be in; None if nothing fits.

    Args:
        timestamp: number that was sent as milliseconds since 1970.
    """
    for unit in _UNITS:
        if unit.first <= timestamp < unit.end:
            moment = datetime.fromtimestamp(timestamp // unit.per_second, UTC)
            return (
                f"The value looks like {unit.name} ({moment:%Y-%m-%d %H:%M:%S} UTC); timestamps "
                "are milliseconds since 1970"
            )
    return None


def units_of(timestamps: "npt.NDArray[np.int64]") -> "npt.NDArray[np.int8]":
    """Return the unit that each of many numbers looks like, by the rule of `looks_like`.

    Returns:
        The place in `OTHER_UNITS`, counted from 1; 0 for milliseconds and for unknown units.
    """
    import numpy as np  # noqa: PLC0415 - one number needs none

    places = np.zeros(len(timestamps), np.int8)
    if not len(timestamps) or (timestamps.min() >= _EARLIEST_MS and timestamps.max() < _LATEST_MS):
        return places
    for place, unit in enumerate(_UNITS, 1):
        places[(timestamps >= unit.first) & (timestamps < unit.end)] = place
    return places
