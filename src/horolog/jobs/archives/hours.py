"""Partitions of an archive: `date=2026-11-17/hour=09`, by a record's time, in UTC.

Where a unit of work has records of very many hours, their small files are joined: those of a day
in `date=2026-11-17`, a month in `date=2026-11`, a year in `date=2026`, or any in `date=mixed`.

date=untimed    records without a timestamp (-1)
date=outside    times outside the archive's window; of those, years before 1 and after 9999 in
                any case, since no date has a name there
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt

from horolog.errors import Misconfigured
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.times import parse_time

HOUR_MS: Final = 3_600_000
FIRST_MS: Final = -62_135_596_800_000  # 0001-01-01T00:00:00Z
END_MS: Final = 253_402_300_800_000  # 10000-01-01T00:00:00Z
UNTIMED: Final = -(1 << 62)
OUTSIDE: Final = 1 << 62
_LENGTHS: Final = *map(len, ("2026-11-17T09", "2026-11-17", "2026-11", "2026")), 0
COARSEST: Final = len(_LENGTHS) - 1
"""Level of the name that all hours share."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAMES = {UNTIMED: "untimed", OUTSIDE: "outside"}
_NAME = re.compile(r"untimed|outside|mixed|[0-9]{4}(-[0-9]{2}(-[0-9]{2}(T[0-9]{2})?)?)?")


@dataclass(frozen=True, slots=True)
class Hours:
    """Window of times, which gives records their hours: since 1970, `UNTIMED` or `OUTSIDE`.

    `from_ms` is in the window, `to_ms` is not.
    """

    from_ms: int = FIRST_MS
    to_ms: int = END_MS

    @classmethod
    def parse(cls, window: str | None, now_ms: int) -> "Hours":
        """Parse `FROM..TO`, where either may be left out.

        Raises:
            Misconfigured: it is no such window, or an empty one.
        """
        if window is None or not window.strip():
            return cls()
        first, dots, last = window.partition("..")
        if not dots:
            raise Misconfigured(
                f"window is FROM..TO, as 2020-01-01T00:00Z..2030-01-01T00:00Z, and not {window}"
            )
        from_ms = (
            parse_time(first.strip(), now_ms=now_ms, rounds_up=True) if first.strip() else FIRST_MS
        )
        to_ms = parse_time(last.strip(), now_ms=now_ms, rounds_up=True) if last.strip() else END_MS
        if from_ms >= to_ms:
            raise Misconfigured(f"window {window} is empty: it ends before it starts")
        return cls(max(from_ms, FIRST_MS), min(to_ms, END_MS))

    def of(self, times_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the hour of each time."""
        hours = times_ms // HOUR_MS
        outside = (times_ms < self.from_ms) | (times_ms >= self.to_ms)
        if outside.any():
            hours[outside] = OUTSIDE
        untimed = times_ms == NO_TIMESTAMP
        if untimed.any():
            hours[untimed] = UNTIMED
        return hours


def name_of(hour: int, level: int = 0) -> str:
    """Return the name of an hour in manifests: `2026-11-17T09`, `untimed` or `outside`.

    Args:
        level: up to `COARSEST`, for the hour's day, month and year, and for `mixed`.
    """
    if hour in _NAMES:
        return _NAMES[hour]
    moment = _EPOCH + timedelta(hours=hour)
    name = f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}T{moment.hour:02d}"
    return name[: _LENGTHS[level]] or "mixed"


def is_name(text: str) -> bool:
    """True if a text is a name that `name_of` returns."""
    return _NAME.fullmatch(text) is not None


def directory_of(name: str) -> str:
    """Return the directory for a name that `name_of` returns."""
    date, has_hour, hour = name.partition("T")
    return f"date={date}/hour={hour}" if has_hour else f"date={name}"
