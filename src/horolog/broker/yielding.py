"""Long work on the event loop that lets others be served in between."""

import asyncio
from typing import Final

YIELD_AFTER_S: Final = 0.01


class Yielder:
    """For one long loop: `await it()` in each round."""

    def __init__(self) -> None:
        self._time = asyncio.get_running_loop().time
        self._since = self._time()

    async def __call__(self) -> None:
        """Let the event loop serve others, unless it has done so a moment ago."""
        if self._time() - self._since > YIELD_AFTER_S:
            await asyncio.sleep(0)
            self._since = self._time()
