"""An event loop whose time can be put ahead: sessions end and waits are over without waiting."""

import asyncio


class SteppedLoop(asyncio.SelectorEventLoop):
    """Give it as `new_loop` to a broker; `advance` may be called from any thread."""

    _ahead_s = 0.0

    def time(self) -> float:
        """Seconds of the loop's timers."""
        return super().time() + self._ahead_s

    def advance(self, seconds: float) -> None:
        """Let that much time pass; what was due by then is done before what is asked next."""
        asyncio.run_coroutine_threadsafe(self._advance(seconds), self).result()

    async def _advance(self, seconds: float) -> None:
        self._ahead_s += seconds
        await asyncio.sleep(0)
        await asyncio.sleep(0)
