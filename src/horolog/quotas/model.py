"""All quotas of a cluster: which of them applies to a client, and what it has used of it."""

import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol, TypeVar

from horolog.quotas.entities import CLIENT_ID, IP, USER, Entity, QuotaKey
from horolog.quotas.windows import QuotaWindow, TokenBucket, WindowedSum
from horolog.security.urls import address_of

__all__ = ["Limit", "Quotas"]

_MOST_WINDOWS: Final = 4_096
_MOST_BYTES: Final = (1 << 31) - 1  # that a fetch can ask for
_AT_ONCE: Final = 2  # so that more are dropped than made
_LONGEST_NAME: Final = 128
_KEYS: Final = frozenset(QuotaKey)
_BOUNDED: Final = (QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONNECTION_CREATION_RATE)
_ABSENT: Final = object()
_DEFAULT: Final = None

_Usage = tuple[QuotaKey, str, str]
"""A window's key: the names are empty where all users or clients share it."""


class Limit(NamedTuple):
    """A quota that applies to a client, and whose use counts for it."""

    a_second: float
    usage: _Usage


class _Use(Protocol):
    def is_over(self, now_ms: float, span: QuotaWindow) -> bool: ...


UseT = TypeVar("UseT", bound=_Use)


class _Uses(dict[_Usage, UseT]):
    """Use of quotas by the last clients, the most recent last."""

    def __init__(self, span: QuotaWindow) -> None:
        self._span = span

    def of(self, usage: _Usage, now_ms: float, make: Callable[[], UseT]) -> UseT:
        """Return what a client has used; it is the most recent one then."""
        use = self.pop(usage, None)
        if use is None:
            use = make()
            self._forget(now_ms)
        self[usage] = use
        return use

    def _forget(self, now_ms: float) -> None:
        """Drop what was used the longest ago, if it is over or there is too much."""
        for _ in range(_AT_ONCE):
            oldest = next(iter(self.items()), None)
            if oldest is None:
                return
            usage, use = oldest
            if len(self) < _MOST_WINDOWS and not use.is_over(now_ms, self._span):
                return
            del self[usage]


class Quotas:
    """Quotas by entity and key, and what clients have used within the last seconds.

    Windows are kept for the last clients only, so that many client ids take no memory.
    """

    def __init__(self, span: QuotaWindow, mutation_span: QuotaWindow) -> None:
        self._span = span
        self._mutation_span = mutation_span
        self._values: dict[Entity, dict[str, float]] = {}
        self._limits: dict[QuotaKey, dict[tuple[object, object], float]] = {}
        # By address, and by how it is written; None: all others.
        self._addresses: dict[str | None, dict[str | None, float]] = {}
        self._sums = _Uses[WindowedSum](span)
        self._buckets = _Uses[TokenBucket](mutation_span)
        self.is_set = False
        """Whether any quota of users or clients is set that is obeyed."""
        self.times_requests = False
        """Whether any of these is about the time that requests take."""

    def put(self, entity: Entity, key: str, value: float | None) -> None:
        """Set a quota; None removes it."""
        values = self._values.setdefault(entity, {})
        if value is not None:
            values[key] = value
        else:
            values.pop(key, None)
            if not values:
                del self._values[entity]
        names = dict(entity)
        if len(names) < len(entity):
            return  # no request has a type twice, but a log may
        obeyed = None if value is None or not 0 < value < math.inf else value
        if key == QuotaKey.CONNECTION_CREATION_RATE:
            if names.keys() == {IP}:
                self._put_address(names[IP], obeyed)
            return
        if key not in _KEYS or not names or names.keys() - {USER, CLIENT_ID}:
            return
        level = names.get(USER, _ABSENT), names.get(CLIENT_ID, _ABSENT)
        limits = self._limits.setdefault(QuotaKey(key), {})
        if obeyed is not None:
            limits[level] = obeyed
        else:
            limits.pop(level, None)
            if not limits:
                del self._limits[QuotaKey(key)]
        self.is_set = bool(self._limits)
        self.times_requests = QuotaKey.REQUEST_PERCENTAGE in self._limits
        if not self.is_set and not self._addresses:
            self._sums.clear()
            self._buckets.clear()

    def _put_address(self, address: str | None, value: float | None) -> None:
        key = address and _plain(address)
        spellings = self._addresses.setdefault(key, {})
        if value is not None:
            spellings[address] = value
        else:
            spellings.pop(address, None)
            if not spellings:
                del self._addresses[key]

    def connect(self, address: str, now_ms: float) -> int:
        """Record a connection of an address; return after how many milliseconds it is closed.

        Mostly 0: it is served. One that is closed does not count.
        """
        if not self._addresses:
            return 0
        address = _plain(address)
        spellings = self._addresses.get(address, self._addresses.get(None))
        if spellings is None:
            return 0
        limit = Limit(min(spellings.values()), (QuotaKey.CONNECTION_CREATION_RATE, "", address))
        wait_ms = self.use(limit, 1, now_ms)
        if wait_ms:
            self.give_back(limit, 1, now_ms)
        return wait_ms

    def get(self, entity: Entity, key: str) -> float | None:
        """Return the value of a quota; None if it is not set."""
        return self._values.get(entity, {}).get(key)

    @property
    def clients(self) -> int:
        """Number of clients whose use is known."""
        return len(self._sums) + len(self._buckets)

    def by_entity(self) -> dict[Entity, dict[str, float]]:
        """Return the values of all quotas by entity and key. Those of an entity may change."""
        return dict(self._values)

    def limit(self, key: QuotaKey, user: str, client_id: str) -> Limit | None:
        """Return the quota that applies to a client: the first of Kafka's eight levels."""
        limits = self._limits.get(key)
        if limits is None:
            return None
        for level in _levels(user, client_id):
            found = limits.get(level)
            if found is not None:
                its_user = "" if level[0] is _ABSENT else _short(user)
                its_client = "" if level[1] is _ABSENT else _short(client_id)
                return Limit(found, (key, its_user, its_client))
        return None

    def most_at_once(self, limit: Limit) -> int:
        """Return the most bytes that one request may take, as Kafka bounds a fetch."""
        return int(min(limit.a_second * self._span.whole_ms / 1000, _MOST_BYTES))

    def use(self, limit: Limit, amount: float, now_ms: float) -> int:
        """Record what a client has used; return for how many milliseconds it has to wait."""
        window = self._sums.of(limit.usage, now_ms, WindowedSum)
        window.add(amount, now_ms, self._span)
        wait_ms = window.wait_ms(limit.a_second, now_ms, self._span)
        if limit.usage[0] in _BOUNDED:
            return min(wait_ms, self._span.sample_ms)  # as Kafka bounds it
        return wait_ms

    def mutate(self, limit: Limit, count: int, now_ms: float, *, is_strict: bool) -> int:
        """Record partitions that are made or deleted; return for how long the client has to wait.

        A strict one that has to wait takes nothing.
        """
        a_second, usage = limit
        span = self._mutation_span
        bucket = self._buckets.of(usage, now_ms, lambda: TokenBucket(a_second, now_ms, span))
        if is_strict and (wait_ms := bucket.wait_ms(a_second, now_ms, span)):
            return wait_ms
        bucket.take(count, a_second, now_ms, span)
        return 0 if is_strict else bucket.wait_ms(a_second, now_ms, span)

    def give_back(self, limit: Limit, amount: float, now_ms: float) -> None:
        """Take back what `use` has recorded, because the client did not get it."""
        window = self._sums.get(limit.usage)
        if window is not None:
            window.add(-amount, now_ms, self._span)


def _plain(address: str) -> str:
    """Return the one text of an address; other text as it is."""
    return str(address_of(address) or address)


def _levels(user: str, client_id: str) -> Iterator[tuple[object, object]]:
    yield user, client_id
    yield user, _DEFAULT
    yield user, _ABSENT
    yield _DEFAULT, client_id
    yield _DEFAULT, _DEFAULT
    yield _DEFAULT, _ABSENT
    yield _ABSENT, client_id
    yield _ABSENT, _DEFAULT


def _short(name: str) -> str:
    """Return a name, or a digest of a long one, so that names take little memory."""
    if len(name) <= _LONGEST_NAME:
        return name
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
