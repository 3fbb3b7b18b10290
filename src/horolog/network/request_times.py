"""How many requests of each API were answered, and how long that took.

All are counted, and one in `EVERY` is timed: to time a small one would cost more than counting it.
The quantiles are those of the latest that were timed, as Kafka's are of a sample.
"""

from collections import deque
from collections.abc import Iterator
from time import perf_counter
from typing import Final, NamedTuple

from horolog.buffers import Buffer
from horolog.wire.api import SUPPORTED, ApiKey

EVERY: Final = 16
TIMED: Final = EVERY - 1
"""A request is timed if its count of a version has these bits but the lowest unset."""
HEAD_BYTES: Final = 4
"""Of a request: key and version of its API."""

_LATEST: Final = 1_024
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Those of Kafka's request metrics."""


class Answered(NamedTuple):
    """The requests of one API."""

    api: ApiKey
    counts: dict[int, int]
    """Answered requests, by version."""
    quantiles: tuple[float, ...]
    """The `QUANTILES` of their times in milliseconds, from the start of a request to its response
    in bytes."""


class RequestTimes:
    """For the event loop's thread only."""

    __slots__ = ("_latest", "counts")

    def __init__(self) -> None:
        self.counts = [[0] * 256 for _ in range(1 + max(SUPPORTED))]
        """Answered requests by the low bytes of key and version; the high ones are zeros."""
        self._latest = [deque[float](maxlen=_LATEST) for _ in self.counts]

    def note(self, request: Buffer, started_at: float) -> None:
        """A request is answered that started at a moment of `perf_counter`."""
        counts, version = self.counts[request[1]], request[3]
        counts[version] += 1
        if counts[version] & TIMED == 1:
            self.time(request, started_at)

    def time(self, request: Buffer, started_at: float) -> None:
        """Time a request that was counted."""
        self._latest[request[1]].append(perf_counter() - started_at)

    def __iter__(self) -> Iterator[Answered]:
        """The APIs that were asked."""
        for api in SUPPORTED:
            counts = {version: count for version, count in enumerate(self.counts[api]) if count}
            latest = sorted(self._latest[api])
            if counts:
                quantiles = (1000 * latest[int(each * (len(latest) - 1))] for each in QUANTILES)
                yield Answered(api, counts, tuple(quantiles))
