"""Connection to another broker, on the event loop.

    body = await broker.ask(ApiKey.FETCH, fields, timeout_ms=30_000, version=17)

It is opened by the first request, with TLS and SASL as the settings say, and again by the first one
after it was lost. After a failed attempt requests fail at once for a while, which doubles with each
attempt. Several requests may wait for their responses, which arrive in the order of the requests.
A response that cannot be one to the earliest request closes the connection.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from horolog.client.config import Address
from horolog.client.connection import NoAnswer, reason_of, refusal_of
from horolog.client.deadline import Deadline
from horolog.client.introduction import (
    Abilities,
    Dialogue,
    FirstRequest,
    authentication,
    decode_first,
    negotiation,
)
from horolog.client.security import Security
from horolog.errors import HorologError
from horolog.network.responses import Memory, Reader, Responses
from horolog.wire.api import ApiKey
from horolog.wire.codec import request_pieces

if TYPE_CHECKING:
    from horolog.client.security.sasl import Sasl
    from horolog.client.security.tls import Tls

__all__ = ["FIRST_PAUSE_S", "LONGEST_PAUSE_S", "OutgoingConnection"]

T = TypeVar("T")

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
"""Pauses after attempts to connect that failed: `reconnect.backoff.max.ms` of Kafka's clients."""

_OTHER_PROTOCOL: Final = "; does its listener require another security.protocol?"


class OutgoingConnection:
    """Requests to one other broker; for the event loop's thread only.

    Args:
        address: of the listener for brokers.
        security: settings of Kafka's clients; stores are read again for each attempt to connect.
        max_response_bytes: a larger response is refused before it is received.
        oauth_token: returns a bearer token for OAUTHBEARER; called in a thread.
    """

    def __init__(
        self,
        address: Address,
        security: Security,
        *,
        client_id: str,
        max_response_bytes: int = 512 << 20,
        connect_timeout_ms: int = 10_000,
        oauth_token: Callable[[], str] | None = None,
    ) -> None:
        self.address = address
        self._security = security
        self._client_id = client_id
        self._max_response_bytes = max_response_bytes
        self._connect_timeout_ms = connect_timeout_ms
        self._oauth_token = oauth_token
        self._sasl: Sasl | None = None
        self._loop = asyncio.get_running_loop()
        self._opened: _Opened | None = None
        self._opening: asyncio.Task[HorologError | None] | None = None
        self._failures = 0
        self._not_before_s = -math.inf
        self._why: HorologError | None = None
        self._is_closed = False

    @property
    def abilities(self) -> Abilities | None:
        """Versions and features that the broker announced last; None before it was connected."""
        return None if self._opened is None else self._opened.abilities

    async def connected(self, *, timeout_ms: int) -> Abilities:
        """Return what the broker supports, and connect to it if necessary.

        Raises:
            NoAnswer, AuthenticationFailed, MalformedResponse, Misconfigured: it cannot be, and why.
        """
        now_s, opened = self._loop.time(), self._opened
        if opened is None or not opened.is_usable(now_s):
            opened = await self._open(now_s + timeout_ms / 1000)
        return opened.abilities

    async def ask(
        self,
        api_key: ApiKey,
        fields: Mapping[str, Any] | bytes,
        *,
        timeout_ms: int,
        version: int | None = None,
        memory: Memory | None = None,
        on: Abilities | None = None,
        read: Reader | None = None,
    ) -> Any:
        """Send a request, and return the body of its response.

        Args:
            fields: of the body, or the body itself, encoded.
            timeout_ms: for connecting and the response; the connection is closed after it.
            version: of the request; None for the highest that both support.
            memory: for a response above 64 KiB; it is called again for more when it is full.
            on: result of `connected`; the request is not sent on a later connection.
            read: tried before the response is decoded by its schema, if `on` is given.

        Raises:
            NoAnswer: no connection, or no response in time.
            AuthenticationFailed, Misconfigured: the broker or the settings allow no connection.
            MalformedResponse: the response cannot be read.
            RequestRefused: there is no common version.
        """
        by_s, opened = self._loop.time() + timeout_ms / 1000, self._opened
        if on is not None and version is not None and opened is not None and opened.abilities is on:
            # A connection that is there needs no timeout of its own.
            return await opened.responses.ask(api_key, version, fields, by_s, memory, read)
        if asyncio.current_task() is None:  # begun without one, and a timeout needs it
            asking = self._ask(api_key, fields, by_s, version, memory, on)
            return await self._loop.create_task(asking)
        return await self._ask(api_key, fields, by_s, version, memory, on)

    async def _ask(
        self,
        api_key: ApiKey,
        fields: Mapping[str, Any] | bytes,
        by_s: float,
        version: int | None,
        memory: Memory | None,
        on: Abilities | None,
    ) -> Any:
        opened = await self._open(by_s)
        if on is not None and opened.abilities is not on:
            raise NoAnswer(f"{self.address} (the connection was lost)")
        if version is None:
            version = opened.abilities.version(api_key)
        return await opened.responses.ask(api_key, version, fields, by_s, memory)

    async def close(self) -> None:
        """Close it; requests that wait for their responses, and later ones, raise NoAnswer."""
        self._is_closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._opened is not None:
            self._opened.responses.abort()

    # --- connecting -------------------------------------------------------------------

    async def _open(self, by_s: float) -> "_Opened":
        while True:
            opened = self._opened
            if opened is not None and opened.is_usable(self._loop.time()):
                return opened
            if self._is_closed:
                raise NoAnswer(f"{self.address} (connection closed)")
            if self._opening is None:
                if self._loop.time() < self._not_before_s and self._why is not None:
                    raise self._why
                self._opening = self._loop.create_task(
                    self._attempt(), name=f"connect to {self.address}"
                )
            try:
                async with asyncio.timeout_at(by_s):
                    error = await asyncio.shield(self._opening)
            except TimeoutError:
                raise NoAnswer(f"{self.address} (no connection in time)") from None
            if error is not None:
                raise error

    async def _attempt(self) -> HorologError | None:
        """Connect once; return why that failed, which all requests that wait raise."""
        try:
            if self._opened is not None:
                self._opened.responses.retire()
                self._opened = None
            self._opened = await self._connect()
        except asyncio.CancelledError:  # by `close`
            return NoAnswer(f"{self.address} (connection closed)")
        except HorologError as failure:
            # The request that waits for the connection was not sent.
            error = NoAnswer(str(failure)) if isinstance(failure, NoAnswer) else failure
            pause_s = min(FIRST_PAUSE_S * 2 ** min(self._failures, 16), LONGEST_PAUSE_S)
            self._failures += 1
            self._not_before_s = self._loop.time() + pause_s
            self._why = error
            return error
        finally:
            self._opening = None
        self._failures, self._why = 0, None
        return None

    async def _connect(self) -> "_Opened":
        by_s = self._loop.time() + self._connect_timeout_ms / 1000
        tls = await self._read_security()
        make = partial(Responses, self.address, self._client_id, self._max_response_bytes, tls)
        try:
            async with asyncio.timeout_at(by_s):
                _, responses = await self._loop.create_connection(
                    make,
                    *self.address,
                    ssl=None if tls is None else tls.context,
                    server_hostname=None if tls is None else self.address.host,
                )
        except (OSError, ValueError) as error:  # TimeoutError and SSLError are OSErrors
            why = reason_of(error)
            if tls is not None and tls.ended(error):
                why = f"the broker closed the connection{_OTHER_PROTOCOL}"
            raise refusal_of(tls, self.address, error) or NoAnswer(
                f"{self.address} ({why})"
            ) from error
        try:
            abilities = await self._carry_on(negotiation(self.address), responses, by_s)
            lifetime_s: float | None = None
            if self._sasl is not None:
                deadline = Deadline.after_ms(int(1000 * max(0.0, by_s - self._loop.time())))
                dialogue = authentication(abilities, self._sasl, deadline)
                lifetime_s = await self._carry_on(dialogue, responses, by_s, in_thread=True)
        except BaseException:
            responses.abort()
            raise
        until_s = math.inf if lifetime_s is None else self._loop.time() + lifetime_s
        return _Opened(responses, abilities, until_s)

    async def _read_security(self) -> "Tls | None":
        """Read stores of certificates, and credentials once."""
        security = self._security
        if security.uses_sasl and self._sasl is None:
            from horolog.client.security.sasl import Sasl  # noqa: PLC0415 - not without SASL

            self._sasl = await asyncio.to_thread(Sasl, security, self._oauth_token)
        if not security.uses_tls:
            return None
        from horolog.client.security.tls import Tls  # noqa: PLC0415 - not without TLS

        return await asyncio.to_thread(Tls, security)

    async def _carry_on(
        self,
        dialogue: Dialogue[T],
        responses: Responses,
        by_s: float,
        *,
        in_thread: bool = False,
    ) -> T:
        """Send the requests of a dialogue; return its result."""
        body: Any = None
        while True:
            step = partial(_advance, dialogue, body)
            request = await asyncio.to_thread(step) if in_thread else step()
            if not isinstance(request, FirstRequest):
                result: T = request.result
                return result
            pieces = request_pieces(request.api_key, request.version, request.fields)
            answer = await responses.receive(request.api_key, request.version, pieces, by_s)
            body = decode_first(request, *answer)


class _End(NamedTuple):
    """Result of a dialogue: StopIteration passes neither a thread's end nor a coroutine's."""

    result: Any


def _advance(dialogue: Dialogue[Any], body: Any) -> FirstRequest | _End:
    try:
        return dialogue.send(body)
    except StopIteration as end:
        return _End(end.value)


class _Opened(NamedTuple):
    responses: Responses
    abilities: Abilities
    until_s: float
    """Event loop's time from which on a new connection authenticates again (KIP-368)."""

    def is_usable(self, now_s: float) -> bool:
        return self.responses.is_open and now_s < self.until_s
