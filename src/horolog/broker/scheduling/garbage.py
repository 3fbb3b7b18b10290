"""Full garbage collections at quiet moments, for a broker that has a process of its own.

A full collection stops every thread while it looks at all objects. Python starts one about every
hundred thousand new objects: often while requests of very many fields are decoded, when it takes
longest, a tenth of a second or more. Here Python collects young objects only, which takes
milliseconds, and full collections wait until no such request is in flight.
"""

import asyncio
import gc
from collections.abc import Callable
from typing import Final

YOUNG_OBJECTS: Final = 5_000
MIDDLE_COLLECTIONS: Final = 10
NEVER: Final = 2**31 - 1

LOOK_SECONDS: Final = 5.0
# As many collections of middle-aged objects as Python has between full ones.
DUE_AFTER: Final = 10
# Then garbage counts for more than the pause: a minute.
MOST_DELAYS: Final = 12


class FullCollections:
    """Collects all garbage when it is due and `is_busy` is false; on the event loop."""

    def __init__(self, is_busy: Callable[[], bool]) -> None:
        self._is_busy = is_busy
        self._delays = 0
        self._timer: asyncio.TimerHandle | None = None
        self._before: tuple[int, int, int] | None = None

    def start(self) -> None:
        """Take over from Python's own schedule."""
        self._before = gc.get_threshold()
        gc.set_threshold(YOUNG_OBJECTS, MIDDLE_COLLECTIONS, NEVER)
        self._look_later()

    def stop(self) -> None:
        """Restore Python's schedule."""
        if self._timer is not None:
            self._timer.cancel()
        if self._before is not None:
            gc.set_threshold(*self._before)

    def look(self) -> None:
        """Collect if it is due, unless the broker is busy and was not for too long."""
        if gc.get_count()[2] < DUE_AFTER:
            return
        if self._is_busy() and self._delays < MOST_DELAYS:
            self._delays += 1
            return
        self._delays = 0
        gc.collect()

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._on_time)

    def _on_time(self) -> None:
        self.look()
        self._look_later()
