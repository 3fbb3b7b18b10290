"""AuditLog: who was denied or granted what, and whose login failed.

The logger of rights has Kafka's name and words. A line that comes more often than ten times a
second is counted and not written, and so are lines beyond the first thousand of a second.
"""

import asyncio
import logging
from collections import Counter
from typing import Final

__all__ = ["RIGHTS", "AuditLog", "LoginCounts"]

RIGHTS: Final = logging.getLogger("kafka.authorizer.logger")

_MOST_A_SECOND: Final = 10
_MOST_LINES: Final = 1_000
"""Lines that are written within a second."""


class LoginCounts:
    """How many logins there were since the broker was started, for metrics."""

    __slots__ = ("done", "ended", "failed")

    def __init__(self) -> None:
        self.done: Counter[tuple[str, str]] = Counter()
        """By listener and mechanism; renewed ones, too."""
        self.failed: Counter[tuple[str, str]] = Counter()
        """The same; without a mechanism where the client has not named one that is served."""
        self.ended: Counter[str] = Counter()
        """Connections closed because their login had ended, by listener."""


class AuditLog:
    """Writes lines to a logger, a limited number a second. For the event loop's thread only."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._second = 0
        self._written: Counter[str] = Counter()
        self._lines = 0  # the sum of these
        self._left_out: Counter[str | None] = Counter()  # None: lines that were never written

    def is_enabled_for(self, level: int) -> bool:
        """Return True if a line of this level would be written."""
        return self._logger.isEnabledFor(level)

    def write(self, level: int, line: str) -> None:
        """Write a line, or count it."""
        loop = asyncio.get_running_loop()
        self._begin_second(loop)
        times = self._written[line]
        if times < _MOST_A_SECOND and self._lines < _MOST_LINES:
            self._written[line] = times + 1
            self._lines += 1
            self._logger.log(level, "%s", line)
            return
        if not self._left_out:  # no line may come after it
            loop.call_later(1, self._begin_second, loop)
        self._left_out[line if times else None] += 1

    def _begin_second(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write how many lines of the second before were left out, if it is over."""
        second = int(loop.time())
        if second == self._second:
            return
        self._second = second
        for line, times in self._left_out.items():
            if line is None:
                self._logger.info("%d further lines in a second were left out", times)
            else:
                self._logger.info("%d times more in a second: %s", times, line)
        self._written.clear()
        self._left_out.clear()
        self._lines = 0
