"""Connection to another broker, on the event loop.

    body = await broker.ask(ApiKey.FETCH, fields, timeout_ms=30_000, version=17)

It is opened by the first request, with TLS and SASL as the settings say, and again by the first one
after it was lost. After a failed attempt requests fail at once for a while, which doubles with each
attempt. Several requests may wait for their responses, which arrive in the order of the requests.
A response that cannot be one to the earliest request closes the connection.
"""

import asyncio
import math
import socket
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from horolog.buffers import Buffer
from horolog.client.config import Address
from horolog.client.connection import FIRST_BYTES, NoAnswer, reason_of, refusal_of
from horolog.client.deadline import Deadline
from horolog.client.introduction import (
    Abilities,
    Dialogue,
    FirstRequest,
    authentication,
    decode_first,
    most_response_bytes,
    negotiation,
)
from horolog.client.security import Security
from horolog.errors import HorologError
from horolog.wire.api import ApiKey
from horolog.wire.codec import decode_response, request_pieces
from horolog.wire.frame import LENGTH_BYTES, parse_response_header, request_prefix
from horolog.wire.malformed import MalformedResponse

if TYPE_CHECKING:
    from horolog.client.security.sasl import Sasl
    from horolog.client.security.tls import Tls

__all__ = ["FIRST_PAUSE_S", "LONGEST_PAUSE_S", "OutgoingConnection"]

T = TypeVar("T")

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
"""Pauses after attempts to connect that failed: `reconnect.backoff.max.ms` of Kafka's clients."""

_SCRATCH_BYTES: Final = 64 << 10
_OTHER_PROTOCOL: Final = "; does its listener require another security.protocol?"

Memory = Callable[[int], memoryview]
"""Returns writable memory of a size or more for a large response."""


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
        return (await self._open(self._loop.time() + timeout_ms / 1000)).abilities

    async def ask(
        self,
        api_key: ApiKey,
        fields: Mapping[str, Any] | bytes,
        *,
        timeout_ms: int,
        version: int | None = None,
        memory: Memory | None = None,
        on: Abilities | None = None,
    ) -> Any:
        """Send a request, and return the body of its response.

        Args:
            fields: of the body, or the body itself, encoded.
            timeout_ms: for connecting and the response; the connection is closed after it.
            version: of the request; None for the highest that both support.
            memory: for a response above 64 KiB; it is called again for more when it is full.
            on: result of `connected`; the request is not sent on a later connection.

        Raises:
            NoAnswer: no connection, or no response in time.
            AuthenticationFailed, Misconfigured: the broker or the settings allow no connection.
            MalformedResponse: the response cannot be read.
            RequestRefused: there is no common version.
        """
        by_s = self._loop.time() + timeout_ms / 1000
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
        make = partial(_Responses, self.address, self._client_id, self._max_response_bytes, tls)
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
        responses: "_Responses",
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


class _InFlight(NamedTuple):
    correlation_id: int
    api_key: ApiKey
    version: int
    response: "asyncio.Future[tuple[Buffer, int]]"
    memory: Memory
    by_s: float


class _Responses(asyncio.BufferedProtocol):
    """Open connection: frames of requests out, of responses in."""

    def __init__(
        self, address: Address, client_id: str, max_response_bytes: int, tls: "Tls | None"
    ) -> None:
        self._address = address
        self._client_id = client_id
        self._max_response_bytes = max_response_bytes
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0
        self._in_flight: deque[_InFlight] = deque()
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._held = 0  # bytes in the scratch buffer
        self._large: memoryview | None = None  # a response that does not fit in it
        self._length = 0  # of that response
        self._filled = 0
        self._is_retired = False
        self._why: HorologError | None = None  # it was lost
        self._timer: asyncio.TimerHandle | None = None  # for the earliest deadline, or before it

    @property
    def is_open(self) -> bool:
        """True if requests can be sent."""
        return self._why is None and not self._is_retired

    def retire(self) -> None:
        """Close once the requests in flight have their responses."""
        self._is_retired = True
        if not self._in_flight:
            self.abort()

    def abort(self) -> None:
        """Close now."""
        self._fail(NoAnswer(f"{self._address} (connection closed)", sent=True))

    async def ask(
        self,
        api_key: ApiKey,
        version: int,
        fields: Mapping[str, Any] | bytes,
        by_s: float,
        memory: Memory | None,
    ) -> Any:
        pieces = (
            [cast("Buffer", fields)]
            if isinstance(fields, bytes)
            else request_pieces(api_key, version, fields)
        )
        frame, position = await self.receive(api_key, version, pieces, by_s, memory)
        try:
            return decode_response(api_key, version, frame, position)
        except MalformedResponse as error:
            self._fail(error)
            raise

    async def receive(
        self,
        api_key: ApiKey,
        version: int,
        pieces: list[Buffer],
        by_s: float,
        memory: Memory | None = None,
    ) -> tuple[Buffer, int]:
        """Send a request; return the frame of its response, and the position of the body."""
        if self._why is not None or self._transport is None:
            raise self._why or NoAnswer(f"{self._address} (connection closed)")
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        size = sum(map(len, pieces))
        prefix = request_prefix(api_key, version, self._correlation_id, self._client_id, size)
        response: asyncio.Future[tuple[Buffer, int]] = self._loop.create_future()
        self._in_flight.append(
            _InFlight(self._correlation_id, api_key, version, response, memory or _own_memory, by_s)
        )
        self._transport.writelines((prefix, *pieces))
        if self._timer is None or by_s < self._timer.when():
            self._set_timer(by_s)
        return await response

    def _set_timer(self, by_s: float) -> None:
        """Look at that time whether a response is late: one timer for many requests."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(by_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        waiting = [asked for asked in self._in_flight if not asked.response.done()]
        if not waiting:
            return
        first = min(waiting, key=lambda asked: asked.by_s)
        if first.by_s > self._loop.time():
            self._set_timer(first.by_s)
            return
        title = first.api_key.title
        self._fail(
            NoAnswer(f"{self._address} did not answer {title} (no answer in time)", sent=True)
        )

    # --- called by the event loop -----------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        why = "the broker closed the connection"
        if isinstance(exc, OSError | ValueError):
            why = reason_of(exc)
        refusal = None if exc is None else refusal_of(self._tls, self._address, exc)
        self._fail(refusal or NoAnswer(f"{self._address} ({why})", sent=bool(self._in_flight)))

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return self._large[self._filled :]
        return self._scratch[self._held :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._why is not None:
            return
        try:
            if self._large is None:
                self._held += nbytes
                self._split()
            else:
                self._filled += nbytes
                self._go_on(self._large)
        except MalformedResponse as error:
            self._fail(error)

    # --- responses --------------------------------------------------------------------

    def _split(self) -> None:
        """Take the complete responses in the scratch buffer."""
        position, end = 0, self._held
        while end - position >= LENGTH_BYTES:
            body = position + LENGTH_BYTES
            length = self._checked(int.from_bytes(self._scratch[position:body], "big", signed=True))
            if length > len(self._scratch) - LENGTH_BYTES:
                self._begin_large(length, self._scratch[body:end])
                self._held = 0
                return
            if body + length > end:
                break
            position = body + length
            self._take(bytes(self._scratch[body:position]))
        self._held = end - position
        if position and self._held:
            self._scratch[: self._held] = bytes(self._scratch[position:end])

    def _checked(self, length: int) -> int:
        """Return the length of the response that comes next.

        Raises:
            MalformedResponse: no request waits for it, or it is of another length.
        """
        if not self._in_flight:
            raise MalformedResponse(f"{self._address} sent {length} bytes that were not asked for")
        most = most_response_bytes(self._in_flight[0].api_key, self._max_response_bytes)
        if not 4 <= length <= most:
            raise MalformedResponse(
                f"{self._address} announced an answer of {length} bytes; from 4 to {most} are "
                "read. Is it a Kafka broker's listener for this security.protocol?"
            )
        return length

    def _begin_large(self, length: int, arrived: memoryview) -> None:
        self._length, self._filled = length, len(arrived)
        memory = self._in_flight[0].memory
        self._large = memory(min(length, FIRST_BYTES))[:length]
        self._large[: len(arrived)] = arrived

    def _go_on(self, large: memoryview) -> None:
        """Take a large response if it is complete, or get more memory: it grows with the bytes."""
        if self._filled == self._length:
            self._large = None
            self._take(large.toreadonly())
        elif self._filled == len(large):
            memory = self._in_flight[0].memory
            self._large = memory(min(self._length, 2 * self._filled))[: self._length]
            self._large[: self._filled] = large

    def _take(self, frame: Buffer) -> None:
        asked = self._in_flight.popleft()
        try:
            correlation_id, position = parse_response_header(frame, asked.api_key, asked.version)
            if correlation_id != asked.correlation_id:
                raise MalformedResponse(
                    f"{self._address} answered request {correlation_id} "
                    f"where {asked.correlation_id} was asked"
                )
        except MalformedResponse:
            self._in_flight.appendleft(asked)  # it fails with the others
            raise
        if not asked.response.done():  # its caller may have been cancelled
            asked.response.set_result((frame, position))
        if self._is_retired and not self._in_flight:
            self.abort()

    def _fail(self, error: HorologError) -> None:
        """Close; all requests in flight raise the error."""
        if self._why is not None:
            return
        self._why = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
        for asked in self._in_flight:
            if not asked.response.done():
                asked.response.set_exception(error)
        self._in_flight.clear()


class _Opened(NamedTuple):
    responses: _Responses
    abilities: Abilities
    until_s: float
    """Event loop's time from which on a new connection authenticates again (KIP-368)."""

    def is_usable(self, now_s: float) -> bool:
        return self.responses.is_open and now_s < self.until_s


def _own_memory(size: int) -> memoryview:
    return memoryview(bytearray(size))
