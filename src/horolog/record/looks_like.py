"""Which unit a number that is no sensible time in milliseconds was probably meant in.

Between 1971 and 2100 the four usual units do not overlap, so that a number makes
sense in one of them at most.
"""

from datetime import UTC, datetime
from typing import NamedTuple

_EARLIEST_MS = 31_536_000_000  # 1971-01-01
_LATEST_MS = 4_102_444_800_000  # 2100-01-01


class _Unit(NamedTuple):
    name: str
    multiply: int
    divide: int


_UNITS = (
    _Unit("seconds", 1000, 1),
    _Unit("microseconds", 1, 1_000),
    _Unit("nanoseconds", 1, 1_000_000),
)


def looks_like(timestamp: int) -> str | None:
    """A sentence that says which unit `timestamp` seems to be in; None if nothing better is known.

    Args:
        timestamp: what was sent as milliseconds since 1970.
    """
    if _EARLIEST_MS <= timestamp < _LATEST_MS:
        return None
    for unit in _UNITS:
        meant_ms = timestamp * unit.multiply // unit.divide
        if _EARLIEST_MS <= meant_ms < _LATEST_MS:
            moment = datetime.fromtimestamp(meant_ms / 1000, UTC)
            return (
                f"The value looks like {unit.name} ({moment:%Y-%m-%d %H:%M:%S} UTC); timestamps "
                "are milliseconds since 1970"
            )
    return None
