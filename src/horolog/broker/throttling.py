"""Throttling: records what clients use of their quotas, and lets those over one wait.

A response goes out at once and says how long its client is to wait. Until then the broker reads
nothing more of its connection. The time is the event loop's, not that of the broker's clock.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from horolog.errors import ErrorCode, RequestRefused
from horolog.network.peer import Peer
from horolog.network.reply import Reply, ReplyPart
from horolog.quotas.entities import QuotaKey
from horolog.quotas.model import Limit, Quotas
from horolog.wire.api import ApiKey, is_flexible
from horolog.wire.codec import decode_response
from horolog.wire.frame import RequestHeader, response_prefix
from horolog.wire.leaders import NodeEndpoint, nodes_field
from horolog.wire.packing import INT32
from horolog.wire.schema import load

_THROTTLE_TIME: Final = "throttle_time_ms"
_WITH_NODES: Final = 10  # the first version of Produce whose response may end with endpoints


class ThrottleTimes:
    """How often clients had to wait since the broker was started, and how long, for metrics."""

    __slots__ = ("counts", "wait_ms")

    def __init__(self) -> None:
        self.counts: Counter[QuotaKey] = Counter()
        self.wait_ms: Counter[QuotaKey] = Counter()

    def note(self, key: QuotaKey, wait_ms: int) -> int:
        """Count a wait, unless it is 0, and return it."""
        if wait_ms:
            self.counts[key] += 1
            self.wait_ms[key] += wait_ms
        return wait_ms


class Throttling:
    """Quotas of a broker. For the event loop's thread only."""

    __slots__ = ("_now_s", "quotas", "times")

    def __init__(self, quotas: Quotas, now_s: Callable[[], float] | None = None) -> None:
        self.quotas = quotas
        self.times = ThrottleTimes()
        self._now_s = asyncio.get_running_loop().time if now_s is None else now_s

    @property
    def is_set(self) -> bool:
        """Whether anything is limited."""
        return self.quotas.is_set

    def produced(self, peer: Peer, client_id: str, size: int) -> int:
        """Record a produce request; return for how many milliseconds its client waits."""
        limit = self._limit(QuotaKey.PRODUCER_BYTE_RATE, peer, client_id)
        if limit is None:
            return 0
        wait_ms = self.quotas.use(limit, size, 1000 * self._now_s())
        return self.times.note(QuotaKey.PRODUCER_BYTE_RATE, wait_ms)

    def fetched(self, peer: Peer, client_id: str, size: Callable[[], int]) -> int:
        """Record a fetch response; return for how many milliseconds its client waits.

        A client that waits is sent nothing: the bytes do not count then.
        """
        if self.quotas.times_requests:
            peer.end_step()
        time_ms = self._took(peer, client_id)
        limit = self._limit(QuotaKey.CONSUMER_BYTE_RATE, peer, client_id)
        if limit is None:
            return time_ms
        now_ms, used = 1000 * self._now_s(), size()
        wait_ms = self.quotas.use(limit, used, now_ms)
        wait_ms = max(self.times.note(QuotaKey.CONSUMER_BYTE_RATE, wait_ms), time_ms)
        if wait_ms:
            self.quotas.give_back(limit, used, now_ms)
        return wait_ms

    def _took(self, peer: Peer, client_id: str) -> int:
        """Record the time that requests of a client took; return for how long it waits."""
        if not self.quotas.times_requests:
            return 0
        used_s = peer.take_used_s()
        limit = self._limit(QuotaKey.REQUEST_PERCENTAGE, peer, client_id)
        if limit is None:
            return 0
        wait_ms = self.quotas.use(limit, 100 * used_s, 1000 * self._now_s())
        return self.times.note(QuotaKey.REQUEST_PERCENTAGE, wait_ms)

    def most_fetched(self, peer: Peer, client_id: str, asked: int) -> int:
        """Return the most bytes that a fetch may read."""
        limit = self._limit(QuotaKey.CONSUMER_BYTE_RATE, peer, client_id)
        return asked if limit is None else min(asked, self.quotas.most_at_once(limit))

    def record(self, header: RequestHeader, size: int, peer: Peer) -> int:
        """Record a produce request of `size` bytes; return for how long its client waits."""
        if header.api_key is not ApiKey.PRODUCE:
            return 0
        wait_ms = self.produced(peer, header.client_id or "", size)
        if wait_ms:
            peer.mute(wait_ms / 1000)
        return wait_ms

    def record_time(self, header: RequestHeader, peer: Peer, reply: Reply | None) -> int:
        """Record the time of a request that was answered; return for how long its client waits.

        A fetch was recorded before its response was made. Requests without a response and those of
        other brokers do not count.
        """
        if header.api_key is ApiKey.FETCH:
            return 0
        if header.api_key is ApiKey.WRITE_TXN_MARKERS or reply is None:
            peer.take_used_s()
            return 0
        wait_ms = self._took(peer, header.client_id or "")
        if wait_ms:
            peer.mute(wait_ms / 1000)
        return wait_ms

    def connected(self, host: str) -> float:
        """Record a connection; return for how many seconds it waits before it is closed."""
        wait_ms = self.quotas.connect(host, 1000 * self._now_s())
        return self.times.note(QuotaKey.CONNECTION_CREATION_RATE, wait_ms) / 1000

    def mutations(self, peer: Peer, client_id: str, *, is_strict: bool) -> "Mutations":
        """Return how a request is counted that makes and deletes partitions."""
        limit = None
        if self.is_set:
            limit = self._limit(QuotaKey.CONTROLLER_MUTATION_RATE, peer, client_id)
        return Mutations(self, limit, self._now_s, peer, is_strict=is_strict)

    def _limit(self, key: QuotaKey, peer: Peer, client_id: str) -> Limit | None:
        _, _, user = (peer.principal or "").partition(":")
        return self.quotas.limit(key, user, client_id)


class Mutations:
    """Counts the partitions that a request makes and deletes.

    Newer requests are strict: what is over the quota is refused. Clients of older ones wait
    afterwards.
    """

    def __init__(
        self,
        throttling: Throttling,
        limit: Limit | None,
        now_s: Callable[[], float],
        peer: Peer,
        *,
        is_strict: bool,
    ) -> None:
        self._quotas, self._times = throttling.quotas, throttling.times
        self._limit = limit
        self._now_s = now_s
        self._peer = peer
        self._is_strict = is_strict
        self._wait_ms = 0

    def take(self, count: int) -> None:
        """Count the partitions of a topic.

        Raises:
            RequestRefused: the client is over its quota (89), and nothing is to be made.
        """
        if self._limit is None:
            return
        now_ms = 1000 * self._now_s()
        self._wait_ms = self._quotas.mutate(self._limit, count, now_ms, is_strict=self._is_strict)
        if self._wait_ms and self._is_strict:
            raise RequestRefused(
                ErrorCode.throttling_quota_exceeded, "The throttling quota has been exceeded."
            )

    def end(self) -> int:
        """Let the client wait, if it has to; return for how many milliseconds."""
        if self._wait_ms:
            self._peer.mute(self._wait_ms / 1000)
        return self._times.note(QuotaKey.CONTROLLER_MUTATION_RATE, self._wait_ms)


def with_throttle_time(header: RequestHeader, reply: Reply, wait_ms: int) -> Reply:
    """Return a packed response with a time to wait; as it is in versions without one."""
    if not wait_ms:
        return reply
    key, version = header.api_key, header.api_version
    names = [field.name for field in load("response", key, version).plain]
    if _THROTTLE_TIME not in names:
        return reply
    parts: list[ReplyPart] = list(reply)
    head = len(response_prefix(key, version, 0, 0))
    if names[0] == _THROTTLE_TIME:
        number, place = (0, head) if len(parts[0]) > head else (1, 0)
    elif key is ApiKey.PRODUCE:
        number = len(parts) - 1
        place = len(parts[number]) - INT32.size - _tail_size(version, parts, head)
    else:
        return reply
    part = parts[number]
    assert isinstance(part, (bytes, bytearray, memoryview))
    changed = bytearray(part)
    INT32.pack_into(changed, place, wait_ms)
    parts[number] = bytes(changed)
    return tuple(parts)


def _tail_size(version: int, parts: Reply, head: int) -> int:
    """Return the size of what follows the time to wait in a Produce response."""
    if not is_flexible(ApiKey.PRODUCE, version):
        return 0
    if version < _WITH_NODES:
        return 1
    body = b"".join(bytes(part) for part in parts if isinstance(part, (bytes, bytearray)))[head:]
    nodes = decode_response(ApiKey.PRODUCE, version, body).node_endpoints
    return len(nodes_field([NodeEndpoint(it.node_id, it.host, it.port, it.rack) for it in nodes]))
