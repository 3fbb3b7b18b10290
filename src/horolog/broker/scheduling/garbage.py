"""Full garbage collections at quiet moments, for a broker that has a process of its own.

A full collection stops every thread while it looks at all objects. Python starts one about every
hundred thousand new objects: often while requests of very many fields are decoded, when it takes
longest, a tenth of a second or more. Here Python collects young objects only, which takes
milliseconds, and full collections wait until no such request is in flight.

Objects that survive a full collection are frozen. The next collections look at newer objects only,
which takes as long with ten thousand topics as with ten. Cyclic garbage among frozen objects is
collected once Python's objects take several times the memory.
"""

import asyncio
import gc
import sys
from collections.abc import Callable
from typing import Final

YOUNG_OBJECTS: Final = 5_000
MIDDLE_COLLECTIONS: Final = 10
NEVER: Final = 2**31 - 1

LOOK_SECONDS: Final = 1.0
DUE_AFTER: Final = 1
"""Collections of middle-aged objects before a full one: about 50,000 new objects."""
MOST_DELAYS: Final = 60
"""Most delays of a full collection by a busy broker: a minute."""
GROWTH: Final = 4
"""Growth of Python's memory after which frozen objects are collected too ..."""
LEAST_BLOCKS: Final = 4 << 20
"""... and the least number of blocks for that: some hundred megabytes."""


class FullCollections:
    """Collects all garbage when a collection is due and `is_busy` is false. On the event loop."""

    def __init__(self, is_busy: Callable[[], bool]) -> None:
        self._is_busy = is_busy
        self._delays = 0
        self._timer: asyncio.TimerHandle | None = None
        self._before: tuple[int, int, int] | None = None
        self._blocks = 0
        """Blocks of memory at the last collection of all objects."""

    def start(self) -> None:
        """Replace Python's own schedule of full collections."""
        self._before = gc.get_threshold()
        self._blocks = sys.getallocatedblocks()
        gc.set_threshold(YOUNG_OBJECTS, MIDDLE_COLLECTIONS, NEVER)
        self._look_later()

    def stop(self) -> None:
        """Restore Python's schedule."""
        if self._timer is not None:
            self._timer.cancel()
        if self._before is not None:
            gc.set_threshold(*self._before)
            gc.unfreeze()

    def look(self) -> None:
        """Collect garbage if it is due. A busy broker delays that for a minute at most."""
        if gc.get_count()[2] < DUE_AFTER:
            return
        if self._is_busy() and self._delays < MOST_DELAYS:
            self._delays += 1
            return
        self._delays = 0
        looks_at_all = sys.getallocatedblocks() > max(GROWTH * self._blocks, LEAST_BLOCKS)
        if looks_at_all:
            gc.unfreeze()
        gc.collect()
        gc.freeze()
        if looks_at_all:
            self._blocks = sys.getallocatedblocks()

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._on_time)

    def _on_time(self) -> None:
        self.look()
        self._look_later()
