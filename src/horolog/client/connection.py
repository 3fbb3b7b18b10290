"""Socket to one broker. Responses arrive in the order of their requests."""

import math
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Final, Self

from horolog.buffers import Buffer
from horolog.client.config import Address
from horolog.client.deadline import Deadline
from horolog.client.introduction import most_response_bytes
from horolog.client.security import AuthenticationFailed
from horolog.errors import HorologError
from horolog.wire.api import ApiKey
from horolog.wire.frame import LENGTH_BYTES, parse_response_header, request_prefix
from horolog.wire.malformed import MalformedResponse
from horolog.wire.writer import APART_BYTES

if TYPE_CHECKING:
    from horolog.client.security.tls import Tls

FIRST_BYTES: Final = 1 << 20
"""First memory for a large response; it doubles whenever it is full."""
_WAKES_BYTES: Final = 512 << 10
"""Bytes of a large response for which the thread that receives it is woken."""
_TIMEVAL: Final = Struct("@ll")  # as SO_RCVTIMEO has a time limit
_OTHER_PROTOCOL: Final = "; does its listener require another security.protocol?"
_TLS_ALERT = b"\x15\x03"  # what a TLS listener answers to anything else


class NoAnswer(HorologError):
    """Raised if a broker cannot be reached, closes the connection or does not respond in time.

    `sent` is True if the broker may have carried out the request.
    """

    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent


class Connection:
    """Connected socket. It is closed after an error."""

    def __init__(
        self,
        sock: socket.socket,
        address: Address,
        client_id: str,
        max_response_bytes: int,
        tls: "Tls | None" = None,
    ) -> None:
        self.address = address
        self._socket: socket.socket | None = sock
        self._client_id = client_id
        self._max_response_bytes = max_response_bytes
        self._tls = tls
        self._correlation_id = 0
        self._expires_at_s = math.inf
        self._in_flight: deque[tuple[int, ApiKey, int]] = deque()
        self._has_answered = False  # more than ApiVersions, which needs no authentication

    @classmethod
    def open(
        cls,
        address: Address,
        deadline: Deadline,
        *,
        client_id: str,
        max_response_bytes: int,
        tls: "Tls | None" = None,
    ) -> Self:
        """Connect, with TLS if it is given.

        Raises:
            NoAnswer: with the address and why.
            AuthenticationFailed: one side does not accept the other's certificate.
        """
        try:
            sock = socket.create_connection(address, timeout=max(deadline.left_s(), 0.001))
        except (OSError, UnicodeError) as error:
            raise NoAnswer(f"{address} ({reason_of(error)})") from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if tls is not None:
            try:
                sock.settimeout(max(deadline.left_s(), 0.001))
                sock = tls.wrap(sock, address.host)
            except (OSError, ValueError) as error:
                sock.close()
                why = reason_of(error)
                if tls.ended(error):
                    why = f"the broker closed the connection{_OTHER_PROTOCOL}"
                raise refusal_of(tls, address, error) or NoAnswer(
                    f"{address} (no TLS handshake: {why})"
                ) from error
        return cls(sock, address, client_id, max_response_bytes, tls)

    def is_usable(self) -> bool:
        """Return True if the broker has not closed the idle connection."""
        if self._socket is None:
            return False
        if self._in_flight:
            return True  # its next bytes are an answer
        try:
            self._socket.settimeout(0)
            self._socket.recv(1)
        except OSError as error:
            is_quiet = isinstance(error, BlockingIOError | InterruptedError) or (
                self._tls is not None and self._tls.would_block(error)
            )
            if is_quiet and time.monotonic() < self._expires_at_s:
                return True
        self.close()  # an end of file, bytes that no request asked for, or it has expired
        return False

    def expire_after(self, lifetime_s: float) -> None:
        """Stop using the connection after this time, before the broker closes it.

        A new connection authenticates again, which KIP-368 allows instead of doing so on this one.
        """
        self._expires_at_s = time.monotonic() + lifetime_s

    def receive(
        self, deadline: Deadline, memory: Callable[[int], memoryview] | None = None
    ) -> tuple[memoryview, int]:
        """Return the response to the earliest unanswered request, and the position of its body.

        Args:
            memory: returns writable memory of a size or more. It is called again for more
                memory when the first is full; the bytes are then copied.

        Raises:
            NoAnswer: the broker closed the connection, or the deadline has passed.
            MalformedResponse: the answer is not one to this request.
        """
        expected_id, api_key, version = self._in_flight.popleft()
        if self._socket is None:
            raise NoAnswer(f"{self.address} did not answer {api_key.title} (closed)", sent=True)
        try:
            max_bytes = most_response_bytes(api_key, self._max_response_bytes)
            frame = self._receive_frame(max_bytes, deadline, memory or _own_memory)
            correlation_id, position = parse_response_header(frame, api_key, version)
            if correlation_id != expected_id:
                raise MalformedResponse(
                    f"{self.address} answered request {correlation_id} "
                    f"where {expected_id} was asked"
                )
        except OSError as error:
            self.close()
            is_unheard = isinstance(error, ConnectionError) and not self._has_answered
            hint = _OTHER_PROTOCOL if is_unheard else ""
            raise refusal_of(self._tls, self.address, error) or NoAnswer(
                f"{self.address} did not answer {api_key.title} ({reason_of(error)}{hint})",
                sent=True,
            ) from error
        except BaseException:  # also an interrupt: what comes next is no answer to a later request
            self.close()
            raise
        self._has_answered |= api_key is not ApiKey.API_VERSIONS
        return frame, position

    def send(
        self,
        api_key: ApiKey,
        version: int,
        body: Sequence[Buffer],
        deadline: Deadline,
        *,
        is_answered: bool = True,
        is_pipelined: bool = False,
    ) -> None:
        """Send a request, given in pieces. `receive` returns its response if it `is_answered`.

        A request that `is_pipelined` may be sent while earlier ones wait for their responses.

        Raises:
            NoAnswer: the broker closed the connection, the deadline has passed, or an earlier
                request waits for its response.
        """
        if self._in_flight and not is_pipelined:
            raise NoAnswer(f"{self.address} (it has other requests to answer first)")
        if self._socket is None:
            raise NoAnswer(f"{self.address} (connection closed)")
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        size = sum(map(len, body))
        prefix = request_prefix(api_key, version, self._correlation_id, self._client_id, size)
        try:
            for piece in _joined((prefix, *body)):
                self._socket.settimeout(max(deadline.left_s(), 0.001))
                self._socket.sendall(piece)
        except OSError as error:
            refusal = refusal_of(self._tls, self.address, error) or self._unread_refusal()
            self.close()
            raise refusal or NoAnswer(
                f"{self.address} did not take {api_key.title} ({reason_of(error)})", sent=True
            ) from error
        except BaseException:  # a request sent in part would take the next one for its rest
            self.close()
            raise
        if is_answered:
            self._in_flight.append((self._correlation_id, api_key, version))

    def _unread_refusal(self) -> AuthenticationFailed | None:
        """Return the reason if the broker has closed the connection with a TLS alert.

        In TLS 1.3 it looks at this client's certificate once the handshake is over here. It may
        have closed the connection before a request is sent; its alert can still be read.
        """
        if self._tls is None or self._socket is None:
            return None
        try:
            self._socket.settimeout(0)
            self._socket.recv(1)
        except OSError as alert:
            return refusal_of(self._tls, self.address, alert)
        return None

    def _receive_frame(
        self, max_bytes: int, deadline: Deadline, memory: Callable[[int], memoryview]
    ) -> memoryview:
        prefix = self._receive(LENGTH_BYTES, deadline, _own_memory)
        if prefix[:2] == _TLS_ALERT:
            raise MalformedResponse(
                f"{self.address} answered in TLS: set security.protocol to SSL or SASL_SSL"
            )
        length = int.from_bytes(prefix, "big", signed=True)
        if not 4 <= length <= max_bytes:
            raise MalformedResponse(
                f"{self.address} announced an answer of {length} bytes; from 4 to "
                f"{max_bytes} are read. Is it a Kafka broker's plaintext port?"
            )
        return self._receive(length, deadline, memory)

    def _receive(
        self, length: int, deadline: Deadline, memory: Callable[[int], memoryview]
    ) -> memoryview:
        """Receive exactly `length` bytes.

        Memory grows with the bytes received, not with the claim.
        """
        assert self._socket is not None
        view, got = memory(min(length, FIRST_BYTES))[:length], 0
        while got < length:
            if got == len(view):
                larger = memory(min(length, 2 * got))[:length]
                larger[:got] = view
                view = larger
            left_s = deadline.left_s()
            if left_s <= 0:
                raise TimeoutError("timed out")
            if len(view) - got >= 2 * _WAKES_BYTES and self._tls is None:
                count = _receive_large(self._socket, view[got:], left_s)
            else:
                self._socket.settimeout(left_s)
                count = self._socket.recv_into(view[got:])
            if count == 0:
                raise ConnectionResetError("the broker closed the connection")
            got += count
        return view.toreadonly()

    def interrupt(self) -> None:
        """Make a request that another thread waits for fail now. Any thread may call it."""
        sock = self._socket
        if sock is not None:
            with suppress(OSError):  # it is closed, or was never connected
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket; idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _receive_large(sock: socket.socket, room: memoryview, left_s: float) -> int:
    """Receive most of a large part of a response in one call.

    The thread is not woken for each packet, and does not wait for the interpreter as often.

    Raises:
        TimeoutError: it did not come in time.
        OSError: the connection is broken.
    """
    sock.settimeout(None)
    limit = _TIMEVAL.pack(*divmod(max(1, int(left_s * 1e6)), 1_000_000))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _WAKES_BYTES)
    try:
        return sock.recv_into(room[:-_WAKES_BYTES], 0, socket.MSG_WAITALL)
    except BlockingIOError:
        raise TimeoutError("timed out") from None
    finally:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


class ReusedMemory:
    """Memory for one response after the other; a response above `most_bytes` gets its own."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._memory = bytearray()

    def __call__(self, size: int) -> memoryview:
        """Return writable memory of a size or more."""
        if size > self._most_bytes:
            return _own_memory(size)
        if size > len(self._memory):
            self._memory = bytearray(size)
        return memoryview(self._memory)


def _own_memory(size: int) -> memoryview:
    return memoryview(bytearray(size))


def _joined(pieces: Iterable[Buffer]) -> Iterator[Buffer]:
    """Yield pieces in order, with small neighbours joined."""
    small: list[Buffer] = []  # a copy is cheaper than a system call
    for piece in pieces:
        if len(piece) < APART_BYTES:
            small.append(piece)
            continue
        if small:
            yield b"".join(small)
            small = []
        yield piece
    if small:
        yield b"".join(small)


def refusal_of(
    tls: "Tls | None", address: Address, error: Exception
) -> AuthenticationFailed | None:
    """Return an AuthenticationFailed if another attempt would fail the same way."""
    refusal = None if tls is None else tls.refusal(error, address.host)
    return None if refusal is None else AuthenticationFailed(f"{address}: {refusal}")


def reason_of(error: OSError | ValueError) -> str:
    """Return why a connection failed, in a few words."""
    if isinstance(error, socket.gaierror):
        return "no such host name"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, UnicodeError):
        return "not a host name"
    return (getattr(error, "strerror", None) or str(error)).lower()
