"""The clock of append times that all logs of a broker share.

A partition's append times never go back (append_time_floor.py). This clock makes that hold over
partitions: no log gives a record an append time that is earlier than the last one that any log of
the broker gave. So an effect is never appended before its cause, whatever the machine's clock did.

A log whose floor is ahead of this clock keeps its floor and does not raise the clock: its append
times are of another broker, or of a clock that was reset since.
"""

from threading import get_ident
from typing import Final

__all__ = ["EVER", "StampClock"]

EVER: Final = -(1 << 63)
"""The clock of a broker that has not looked at any."""


class StampClock:
    """The last append time that a broker gave, or could have given, in milliseconds.

    Raised in one thread alone, that of the event loop, so that none loses a higher time: a write
    that goes to another thread raises it before. Other threads read it. Where it was lowered since,
    such a write gets the lower time, and does not undo that.
    """

    __slots__ = ("_thread", "last_ms")

    def __init__(self) -> None:
        self.last_ms = EVER
        self._thread: int | None = None

    def belong_to_this_thread(self) -> None:
        """Let no other thread raise the clock from now on."""
        self._thread = get_ident()

    def rise(self, now_ms: int) -> int:
        """Raise the clock to a time, unless it is ahead of that; return the clock.

        In a thread that it does not belong to, leave it as it is.
        """
        if now_ms > self.last_ms and self._thread in (None, get_ident()):
            self.last_ms = now_ms
        return self.last_ms

    def capped(self, now_ms: int) -> int:
        """Return a time that the clock was raised to, or the clock if it was lowered since."""
        return min(now_ms, self.last_ms)
