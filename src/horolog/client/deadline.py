"""Remaining time of a call, measured by the process's monotonic clock."""

import time
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Deadline:
    """Moment by which a call ends."""

    at_s: float  # on time.monotonic()'s scale

    @classmethod
    def after_ms(cls, timeout_ms: int) -> Self:
        """Return the moment `timeout_ms` from now."""
        return cls(time.monotonic() + timeout_ms / 1000)

    def left_s(self) -> float:
        """Return the seconds left, never below zero."""
        return max(0.0, self.at_s - time.monotonic())

    def left_ms(self) -> int:
        """Return the whole milliseconds left, never below zero."""
        return int(self.left_s() * 1000)

    def no_later_than_ms(self, timeout_ms: int) -> "Deadline":
        """Return the earlier of this deadline and the moment `timeout_ms` from now."""
        return Deadline(min(self.at_s, time.monotonic() + timeout_ms / 1000))
