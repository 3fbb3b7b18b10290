"""Sums over the last seconds, and the waits that follow from them, in Kafka's arithmetic.

Times are milliseconds of any clock that does not go back.
"""

from typing import Final, NamedTuple

__all__ = ["MOST_MS", "QuotaWindow", "TokenBucket", "WindowedSum"]

MOST_MS: Final = (1 << 31) - 1
"""Longest wait that a response can say."""


class QuotaWindow(NamedTuple):
    """How long a window is: the number of its samples, and the length of each."""

    samples: int
    sample_ms: int

    @property
    def all_ms(self) -> int:
        """Length of all samples."""
        return self.samples * self.sample_ms

    @property
    def whole_ms(self) -> int:
        """Length of the window without the sample that grows."""
        return (self.samples - 1) * self.sample_ms


class WindowedSum:
    """Use of a quota by one client within a window."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: list[list[float]] = []  # start, time of the last event, sum; oldest first

    def add(self, amount: float, now_ms: float, span: QuotaWindow) -> None:
        """Add an amount that is used now; a negative one is given back."""
        self._drop(now_ms, span)
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= span.sample_ms:
            samples.append([now_ms, now_ms, 0.0])
        samples[-1][1] = now_ms
        samples[-1][2] += amount

    def wait_ms(self, limit: float, now_ms: float, span: QuotaWindow) -> int:
        """Return how long a client waits until its rate is within a limit a second; mostly 0."""
        self._drop(now_ms, span)
        samples = self._samples
        elapsed = now_ms - samples[0][0] if samples else 0.0
        missing = span.samples - 1 - int(elapsed / span.sample_ms)
        window = max(elapsed + max(missing, 0) * span.sample_ms, span.sample_ms)
        rate = sum(sample[2] for sample in samples) / window * 1000
        if rate <= limit:
            return 0
        return _whole_ms((rate - limit) / limit * window)

    def is_over(self, now_ms: float, span: QuotaWindow) -> bool:
        """Return True if nothing is left of it."""
        self._drop(now_ms, span)
        return not self._samples

    def _drop(self, now_ms: float, span: QuotaWindow) -> None:
        oldest = span.all_ms
        samples = self._samples
        while samples and now_ms - samples[0][1] >= oldest:
            del samples[0]


class TokenBucket:
    """Tokens that a client takes, and that come back at the rate of its quota.

    There are at most those of a window, as at the beginning. There may be less than none.
    """

    __slots__ = ("_at_ms", "_limit", "_tokens")

    def __init__(self, limit: float, now_ms: float, span: QuotaWindow) -> None:
        self._limit = limit
        self._at_ms = now_ms
        self._tokens = limit * span.all_ms / 1000

    def take(self, count: int, limit: float, now_ms: float, span: QuotaWindow) -> None:
        """Take tokens, whether they are there or not."""
        self._refill(limit, now_ms, span)
        self._tokens -= count

    def wait_ms(self, limit: float, now_ms: float, span: QuotaWindow) -> int:
        """Return after how many milliseconds there is no token missing."""
        self._refill(limit, now_ms, span)
        return _whole_ms(max(-self._tokens, 0) / limit * 1000)

    def is_over(self, now_ms: float, span: QuotaWindow) -> bool:
        """Return True if it is full again."""
        self._refill(self._limit, now_ms, span)
        return self._tokens >= self._limit * span.all_ms / 1000

    def _refill(self, limit: float, now_ms: float, span: QuotaWindow) -> None:
        most = limit * span.all_ms / 1000
        self._tokens = min(most, self._tokens + limit * (now_ms - self._at_ms) / 1000)
        self._at_ms, self._limit = now_ms, limit


def _whole_ms(wait_ms: float) -> int:
    """Return a wait that a response can say; that of a tiny quota is infinite."""
    return round(min(wait_ms, MOST_MS))
