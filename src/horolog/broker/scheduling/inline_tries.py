"""When a lookup is tried on the event loop: not again and again where the page cache lacks it.

A lookup that finds something missing in the page cache is begun anew in a thread. While the cache
is cold every try would be in vain: after each that fails, twice as many lookups go to a thread at
once, up to `_MOST`. A try that succeeds ends that.
"""

from typing import Final

_MOST: Final = 32


class InlineTries:
    """By topic; only topics whose last try failed are remembered. For the event loop."""

    __slots__ = ("_waits",)

    def __init__(self) -> None:
        self._waits: dict[str, tuple[int, int]] = {}  # lookups left to wait, and the next wait

    def is_due(self, topic: str) -> bool:
        """Whether to try a lookup in this topic; counts it as one of the lookups to wait for."""
        if not self._waits:
            return True
        left, wait = self._waits.get(topic, (0, 1))
        if left:
            self._waits[topic] = left - 1, wait
        return not left

    def failed(self, topic: str) -> None:
        """A try found something missing in the page cache."""
        _, wait = self._waits.get(topic, (0, 1))
        self._waits[topic] = wait, min(2 * wait, _MOST)

    def succeeded(self, topic: str) -> None:
        """A try found everything there."""
        if self._waits:
            self._waits.pop(topic, None)

    def forget(self, topic: str) -> None:
        """The topic is gone."""
        self._waits.pop(topic, None)
