"""The clock of append times that all logs of a broker share.

A partition's append times never go back (append_time_floor.py). This clock makes that hold over
partitions: no log gives a record an append time that is earlier than the last one that any log of
the broker gave. So an effect is never appended before its cause, whatever the machine's clock did.

A log whose floor is ahead of this clock keeps its floor and does not raise the clock: its append
times are of another broker, or of a clock that was reset since.
"""

from typing import Final

__all__ = ["StampClock"]

_EVER: Final = -(1 << 63)


class StampClock:
    """The last append time that a broker gave, or could have given, in milliseconds.

    Raised on the event loop alone, so that no thread loses a higher time: a write that goes to a
    thread raises it before. Threads read it.
    """

    __slots__ = ("last_ms",)

    def __init__(self) -> None:
        self.last_ms = _EVER

    def rise(self, now_ms: int) -> int:
        """Raise the clock to a time, unless it is ahead of that; return the clock."""
        if now_ms > self.last_ms:
            self.last_ms = now_ms
        return self.last_ms
