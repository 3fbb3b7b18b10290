"""AuditLog: who was denied or granted what, and whose login failed.

The logger of rights has Kafka's name and words. A line that comes more often than ten times a
second is counted and not written.
"""

import logging
import time
from collections import Counter
from typing import Final

__all__ = ["RIGHTS", "AuditLog", "LoginCounts"]

RIGHTS: Final = logging.getLogger("kafka.authorizer.logger")

_MOST_A_SECOND: Final = 10
_MOST_LINES: Final = 1_000
"""Different lines that are told apart within a second; others are written."""


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
    """Writes lines to a logger, each at most ten times a second."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._second = 0
        self._times: Counter[str] = Counter()

    def is_enabled_for(self, level: int) -> bool:
        """Return True if a line of this level would be written."""
        return self._logger.isEnabledFor(level)

    def write(self, level: int, line: str) -> None:
        """Write a line, or count it."""
        second = int(time.monotonic())
        if second != self._second:
            self._tell()
            self._second = second
        if line in self._times or len(self._times) < _MOST_LINES:
            self._times[line] += 1
        if self._times[line] <= _MOST_A_SECOND:
            self._logger.log(level, "%s", line)

    def _tell(self) -> None:
        """Say how often lines came that were not written."""
        for line, times in self._times.items():
            if times > _MOST_A_SECOND:
                self._logger.info("%d times more in a second: %s", times - _MOST_A_SECOND, line)
        self._times.clear()
