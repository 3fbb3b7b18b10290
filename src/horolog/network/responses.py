"""Open connection to another broker: frames of requests out, of responses in.

Responses arrive in the order of the requests. One that cannot be the response to the earliest
request closes the connection, and all that wait get the error.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from horolog.buffers import Buffer
from horolog.client.config import Address
from horolog.client.connection import FIRST_BYTES, NoAnswer, reason_of, refusal_of
from horolog.client.introduction import most_response_bytes
from horolog.errors import HorologError
from horolog.wire.api import ApiKey
from horolog.wire.codec import decode_response, request_pieces
from horolog.wire.frame import LENGTH_BYTES, parse_response_header, request_prefix
from horolog.wire.malformed import MalformedResponse

if TYPE_CHECKING:
    from horolog.client.security.tls import Tls

_SCRATCH_BYTES: Final = 64 << 10

Memory = Callable[[int], memoryview]
"""Returns writable memory of a size or more for a large response."""

Reader = Callable[[Buffer, int], object | None]
"""Decodes a response of the usual form from a position on; None for another form."""


class _InFlight(NamedTuple):
    correlation_id: int
    api_key: ApiKey
    version: int
    response: "asyncio.Future[tuple[Buffer, int]]"
    memory: Memory
    by_s: float


class Responses(asyncio.BufferedProtocol):
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
        read: Reader | None = None,
    ) -> Any:
        """Send a request; return the body of its response.

        Args:
            read: tried before the response is decoded by its schema.
        """
        pieces = (
            [cast("Buffer", fields)]
            if isinstance(fields, bytes)
            else request_pieces(api_key, version, fields)
        )
        frame, position = await self.receive(api_key, version, pieces, by_s, memory)
        if read is not None and (body := read(frame, position)) is not None:
            return body
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
        """Note the transport."""
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the requests in flight."""
        why = "the broker closed the connection"
        if isinstance(exc, OSError | ValueError):
            why = reason_of(exc)
        refusal = None if exc is None else refusal_of(self._tls, self._address, exc)
        self._fail(refusal or NoAnswer(f"{self._address} ({why})", sent=bool(self._in_flight)))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        if self._large is not None:
            return self._large[self._filled :]
        return self._scratch[self._held :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take the responses that are complete with these bytes."""
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


def _own_memory(size: int) -> memoryview:
    return memoryview(bytearray(size))
