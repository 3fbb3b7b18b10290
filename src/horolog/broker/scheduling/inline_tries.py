"""Decides when a lookup is tried on the event loop: rarely while the page cache is cold.

A lookup that finds something missing in the page cache is begun anew in a thread. While the cache
is cold every try would be in vain: after each that fails, twice as many lookups go to a thread at
once, up to `_MOST`. A try that succeeds ends that.
"""

from typing import Final

_MOST: Final = 32


class InlineTries:
    """Back-off of inline lookups by topic, after failed tries. For the event loop."""

    __slots__ = ("_waits",)

    def __init__(self) -> None:
        self._waits: dict[str, tuple[int, int]] = {}  # lookups left to wait, and the next wait

    def is_due(self, topic: str) -> bool:
        """True if a lookup in this topic is to be tried inline. Each call counts as one lookup."""
        if not self._waits:
            return True
        left, wait = self._waits.get(topic, (0, 1))
        if left:
            self._waits[topic] = left - 1, wait
        return not left

    def failed(self, topic: str) -> None:
        """Double the back-off: the page cache lacked data."""
        _, wait = self._waits.get(topic, (0, 1))
        self._waits[topic] = wait, min(2 * wait, _MOST)

    def succeeded(self, topic: str) -> None:
        """End the back-off: the page cache had all data."""
        if self._waits:
            self._waits.pop(topic, None)

    def forget(self, topic: str) -> None:
        """Drop the state of a deleted topic."""
        self._waits.pop(topic, None)
