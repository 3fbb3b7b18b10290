"""The faults that a test has set for the requests of a broker (docs/testing.md).

A fault applies to the next requests of its APIs, `times` of them; the oldest one that applies to a
request is used. A request that also names other topics than the fault's fails as a whole.

For the event loop's thread only.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypedDict, Unpack

from horolog.clock import Duration, duration_ms
from horolog.errors import ErrorCode
from horolog.wire.api import SUPPORTED, ApiKey
from horolog.wire.error_responses import names_partitions, names_topics

MOST_FAULTS: Final = 1000
MOST_DELAY_MS: Final = 3_600_000

_SERVED: Final = tuple(SUPPORTED)


@dataclass(slots=True)
class RequestFault:
    """One fault: either an error that is answered, or what happens to the real answer."""

    apis: frozenset[ApiKey]
    topic: str | None = None
    partition: int | None = None
    times: int | None = 1
    """Requests it still applies to; None until it is cleared."""
    error: ErrorCode | None = None
    delay_s: float = 0.0
    after_bytes: int | None = None
    """Bytes of the answer that are sent before the connection closes; None for all."""


class Narrowed(TypedDict, total=False):
    """Requests to which a fault applies."""

    times: int | None
    topic: str | None
    partition: int | None


class Faults:
    """The faults of one broker. Arguments that are wrong raise ValueError with a sentence."""

    def __init__(self) -> None:
        self._faults: list[RequestFault] = []
        self._held: deque[Callable[[], None]] = deque()
        self._end_of_pause: asyncio.TimerHandle | None = None
        self.is_paused = False
        """True while no request is begun."""

    def __bool__(self) -> bool:
        return self.is_paused or bool(self._faults)

    # --- set and clear ----------------------------------------------------------------

    def fail(self, api: str | int, error: str | int, **narrowed: Unpack[Narrowed]) -> None:
        """Answer requests with an error, and do nothing else."""
        self._add(api, error=_error(error), **narrowed)

    def delay(self, api: str | int, by: Duration, **narrowed: Unpack[Narrowed]) -> None:
        """Do requests at once, and answer them later; the delay is real time."""
        delay_ms = duration_ms(by)
        if not 0 <= delay_ms <= MOST_DELAY_MS:
            raise ValueError(f"a delay of {by}: allowed are 0 to {MOST_DELAY_MS} ms")
        self._add(api, delay_s=delay_ms / 1000, **narrowed)

    def disconnect(
        self, api: str | int, *, after_bytes: int = 0, **narrowed: Unpack[Narrowed]
    ) -> None:
        """Do requests, and close the connection after so many bytes of the answer."""
        if not _is_whole(after_bytes) or after_bytes < 0:
            raise ValueError(f"after_bytes={after_bytes!r}: write a number of bytes, 0 or more")
        self._add(api, after_bytes=after_bytes, **narrowed)

    def lose_answer(self, api: str | int, **narrowed: Unpack[Narrowed]) -> None:
        """Do requests, and close the connection instead of answering."""
        self.disconnect(api, **narrowed)

    def not_leader(self, topic: str) -> None:
        """Answer the next Produce or Fetch of a topic with NOT_LEADER_OR_FOLLOWER (6)."""
        self._put(
            RequestFault(
                frozenset({ApiKey.PRODUCE, ApiKey.FETCH}),
                _name(topic),
                error=ErrorCode.not_leader_or_follower,
            )
        )

    def pause(self, seconds: float | None = None) -> None:
        """Begin no more requests until `resume`, or until so many seconds have passed."""
        self._forget_end_of_pause()
        self.is_paused = True
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._end_of_pause = loop.call_later(seconds, self.resume)

    def resume(self) -> None:
        """Begin the requests that have waited, in the order in which they came."""
        self._forget_end_of_pause()
        self.is_paused = False
        while self._held:
            self._held.popleft()()

    def clear(self) -> None:
        """Remove all faults, and resume."""
        self._faults.clear()
        self.resume()

    def drop_held(self) -> None:
        """End a pause without the requests that wait, because their connections were closed."""
        self._held.clear()
        self.resume()

    # --- used by the dispatch ---------------------------------------------------------

    def hold(self, begin: Callable[[], None]) -> None:
        """Call `begin` at the end of the pause."""
        self._held.append(begin)

    def of(self, api_key: ApiKey) -> list[RequestFault]:
        """Return the faults that may apply to requests of an API, the oldest first."""
        return [fault for fault in self._faults if api_key in fault.apis]

    def use_up(self, fault: RequestFault) -> None:
        """Count a request to which the fault applied."""
        if fault.times is not None:
            fault.times -= 1
            if fault.times == 0:
                self._faults.remove(fault)

    def _forget_end_of_pause(self) -> None:
        if self._end_of_pause is not None:
            self._end_of_pause.cancel()
            self._end_of_pause = None

    def _add(
        self,
        api: str | int,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
        **what: Any,
    ) -> None:
        api_key = _api(api)
        if times is not None and (not _is_whole(times) or times < 1):
            raise ValueError(f"times={times!r}: write 1 or more, or None until it is cleared")
        if topic is not None and not names_topics(api_key):
            raise ValueError(f"topic={topic!r}: {api_key.title} requests name no topic")
        if partition is not None:
            if not names_partitions(api_key):
                raise ValueError(f"partition={partition!r}: {api_key.title} names no partition")
            if not _is_whole(partition) or partition < 0:
                raise ValueError(f"partition={partition!r}: write a number, 0 or more")
        name = None if topic is None else _name(topic)
        self._put(RequestFault(frozenset({api_key}), name, partition, times, **what))

    def _put(self, fault: RequestFault) -> None:
        if len(self._faults) >= MOST_FAULTS:
            raise ValueError(f"{MOST_FAULTS} faults are set already: clear them first")
        self._faults.append(fault)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _name(topic: object) -> str:
    if not isinstance(topic, str) or not topic:
        raise ValueError(f"topic={topic!r}: write the name of a topic")
    return topic


def _api(api: object) -> ApiKey:
    for key in _SERVED:
        if (_is_whole(api) and key == api) or (
            isinstance(api, str) and api.lower() == key.title.lower()
        ):
            return key
    names = ", ".join(sorted(key.title for key in _SERVED))
    raise ValueError(f"{api!r} is not served: write one of {names}, or its number")


def _error(error: object) -> ErrorCode:
    for code in ErrorCode:
        if code is not ErrorCode.none and (
            (_is_whole(error) and code == error)
            or (isinstance(error, str) and error.upper() == code.name.upper())
        ):
            return code
    raise ValueError(
        f"{error!r} is no error: write Kafka's name, as NOT_LEADER_OR_FOLLOWER, or its number"
    )
