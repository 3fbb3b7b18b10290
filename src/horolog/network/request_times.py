"""Counts and times of answered requests, by API.

All requests are counted. A connection times one in `EVERY` of the requests that it answers at once,
because timing costs more than counting. Connections keep their counts until these are collected.
The quantiles are computed from the latest timed requests, as Kafka's are from a sample.
"""

from collections import deque
from collections.abc import Iterator
from time import perf_counter
from typing import Final, NamedTuple, Protocol

from horolog.buffers import Buffer
from horolog.wire.api import SUPPORTED, ApiKey

EVERY: Final = 64
HEAD_BYTES: Final = 4
"""First bytes of a request, with key and version of its API."""

_LATEST: Final = 1_024
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Quantiles of Kafka's request metrics."""


class Answered(NamedTuple):
    """Counts and times of the requests of one API."""

    api: ApiKey
    counts: dict[int, int]
    """Answered requests, by version."""
    quantiles: tuple[float, ...]
    """`QUANTILES` of the milliseconds from the start of a request to its packed response; empty if
    no request was timed."""


class _Counting(Protocol):
    """Connection that counts its requests itself."""

    def give_counts(self) -> None:
        """Add the requests counted so far to `RequestTimes.counts`."""


class RequestTimes:
    """Counts and times of all connections. For the event loop's thread only."""

    __slots__ = ("_latest", "connections", "counts")

    def __init__(self) -> None:
        self.counts = [[0] * 256 for _ in range(1 + max(SUPPORTED))]
        """Answered requests by the low bytes of key and version; the high ones are zeros."""
        self.connections = set[_Counting]()
        """Connections that count requests themselves."""
        self._latest = [deque[float](maxlen=_LATEST) for _ in self.counts]

    def note(self, request: Buffer, started_at: float) -> None:
        """Count and time a request; its start is a value of `perf_counter`.

        Requests that are answered at once are counted by the connection.
        """
        self.counts[request[1]][request[3]] += 1
        self._latest[request[1]].append(perf_counter() - started_at)

    def time(self, api: int, started_at: float) -> None:
        """Time a request that is already counted."""
        self._latest[api].append(perf_counter() - started_at)

    def __iter__(self) -> Iterator[Answered]:
        """Yield the APIs that were requested."""
        for connection in self.connections:
            connection.give_counts()
        for api, versions in SUPPORTED.items():
            counted = self.counts[api]
            served = range(versions.min, versions.max + 1)
            counts = {version: counted[version] for version in served if counted[version]}
            if counts:
                latest = sorted(self._latest[api])
                shares = QUANTILES if latest else ()
                quantiles = (1000 * latest[int(share * (len(latest) - 1))] for share in shares)
                yield Answered(api, counts, tuple(quantiles))
