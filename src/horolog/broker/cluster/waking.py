"""Notices that the whole process stood still: SIGSTOP, a frozen container, a blocked event loop.

A broker that sends no heartbeat for a session is fenced, and others lead what it led. Once it goes
on, it leads nothing until the metadata say so again: metadata that were asked for afterwards.
Controllers that are unreachable are no standstill; then a broker leads on, as those of Kafka do.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

_LOOK_S: Final = 0.5

_LOG = logging.getLogger(__name__)


class Waking:
    """Says whether the metadata are of after the last standstill. For the event loop's thread.

    Args:
        session_s: how long a broker may be silent.
        known_s: returns the time by whose request all metadata are here; by `now_s`.
        now_s: a clock that continues while the process stands still.
    """

    def __init__(
        self,
        session_s: float,
        known_s: Callable[[], float],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.look_s = min(_LOOK_S, session_s / 4)
        """Time between two looks at most, while the process runs."""
        self._session_s = session_s
        self._known_s = known_s
        self._now_s = now_s
        self.seen_s = now_s()
        """Time of the last look."""
        self._woke_s: float | None = None

    def look(self) -> bool:
        """Return True unless the process stood still, and has not heard of the cluster since."""
        now_s, seen_s = self._now_s(), self.seen_s
        self.seen_s = now_s
        if now_s - seen_s > self._session_s:
            self._woke_s = now_s
            _LOG.warning(
                "the process stood still for %.1f s, longer than a session: it leads nothing until "
                "it has the metadata of now",
                now_s - seen_s,
            )
        if self._woke_s is None:
            return True
        if self._known_s() < self._woke_s:
            return False
        self._woke_s = None
        _LOG.info("the metadata of now are here: what they say is led again")
        return True
