"""Sums over the last seconds, and the waits that follow from them, in Kafka's arithmetic.

Times are milliseconds of any clock that does not go back.
"""

from typing import Final, NamedTuple

__all__ = ["MOST_MS", "Span", "WindowedSum"]

MOST_MS: Final = (1 << 31) - 1
"""Longest wait that a response can say."""


class Span(NamedTuple):
    """How long a window is: the number of its samples, and the length of each."""

    samples: int
    sample_ms: int

    @property
    def whole_ms(self) -> int:
        """Length of the window without the sample that grows."""
        return (self.samples - 1) * self.sample_ms


class WindowedSum:
    """What a client has used within a window."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: list[list[float]] = []  # start, time of the last event, sum; oldest first

    def add(self, amount: float, now_ms: float, span: Span) -> None:
        """Add an amount that is used now; a negative one is given back."""
        self._drop(now_ms, span)
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= span.sample_ms:
            samples.append([now_ms, now_ms, 0.0])
        samples[-1][1] = now_ms
        samples[-1][2] += amount

    def wait_ms(self, limit: float, now_ms: float, span: Span) -> int:
        """Return how long a client waits until its rate is within a limit a second; mostly 0."""
        self._drop(now_ms, span)
        samples = self._samples
        elapsed = now_ms - samples[0][0] if samples else 0.0
        missing = span.samples - 1 - int(elapsed / span.sample_ms)
        window = max(elapsed + max(missing, 0) * span.sample_ms, span.sample_ms)
        rate = sum(sample[2] for sample in samples) / window * 1000
        if rate <= limit:
            return 0
        return min(round((rate - limit) / limit * window), MOST_MS)

    def is_over(self, now_ms: float, span: Span) -> bool:
        """Return True if nothing is left of it."""
        self._drop(now_ms, span)
        return not self._samples

    def _drop(self, now_ms: float, span: Span) -> None:
        oldest = span.samples * span.sample_ms
        samples = self._samples
        while samples and now_ms - samples[0][1] >= oldest:
            del samples[0]
