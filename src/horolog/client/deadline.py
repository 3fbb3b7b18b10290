"""How long a call may still take, in the process's own time; record time never matters here."""

import time
from dataclasses import dataclass
from typing import Self

__all__ = ["Deadline"]


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment by which a call has ended, whatever happens."""

    at_s: float  # on time.monotonic()'s scale

    @classmethod
    def after_ms(cls, timeout_ms: int) -> Self:
        """The moment `timeout_ms` from now."""
        return cls(time.monotonic() + timeout_ms / 1000)

    def left_s(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self.at_s - time.monotonic())

    def left_ms(self) -> int:
        """Whole milliseconds left, never below zero."""
        return int(self.left_s() * 1000)

    def no_later_than_ms(self, timeout_ms: int) -> "Deadline":
        """This one, or that many milliseconds from now if that is earlier."""
        return Deadline(min(self.at_s, time.monotonic() + timeout_ms / 1000))
