"""Listeners and connections of a broker, and their orderly shutdown."""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Final

from horolog.config import BrokerConfig, Endpoint
from horolog.errors import Misconfigured, printable
from horolog.network.accepting import AcceptLimits, Acceptor
from horolog.network.budget import ByteBudget
from horolog.network.busy_polling import BusyPolling, worth_polling_s
from horolog.network.connection import ServerConnection, Shared
from horolog.network.connection_limits import ConnectionLimits
from horolog.network.dispatching import Dispatch
from horolog.network.framing import SCRATCH_BYTES
from horolog.network.joint_sends import JointSends
from horolog.network.mappings import Mappings
from horolog.network.peer import ANONYMOUS
from horolog.network.reply import FileSlots
from horolog.network.request_times import RequestTimes
from horolog.network.stalls import StallWatch
from horolog.network.tls.contexts import TlsContexts
from horolog.network.tls.handshakes import Handshake, Handshakes, HandshakeTimes, TlsSession
from horolog.network.tls.transport import TlsTransport
from horolog.network.turns import Turns

_LOG = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 5.0
DRAIN_SECONDS: Final = 5.0


class Server:
    """All listeners and connections of a broker, and their shared state."""

    def __init__(
        self,
        config_now: Callable[[], BrokerConfig],
        dispatch: Dispatch,
        readers: Executor,
        *,
        file_slots: FileSlots,
        most_connections: int,
        times: RequestTimes | None = None,
        audit: Callable[[int, str], object] = _LOG.log,
        wait_s: Callable[[str], float] | None = None,
    ) -> None:
        """Prepare to serve; `audit` gets a level and a line for each failed handshake."""
        self._audit = audit
        self._wait_s = wait_s  # of a connection of an address that is over a quota
        self._config_now = config_now  # settings change while connections are open
        self._loop = asyncio.get_running_loop()
        self.limits = ConnectionLimits(config_now, self._loop.time)
        self.connections: set[ServerConnection] = set()
        self._is_idle = asyncio.Event()  # set while there is no connection
        self._is_idle.set()
        self._stalls = StallWatch(lambda: self.budget, file_slots, lambda: tuple(self.connections))
        file_slots.on_refused = self._stalls.start_from_thread
        config = config_now()
        limit = config.horolog_max_buffered_bytes
        if config.queued_max_request_bytes > 0:
            limit = min(limit, config.queued_max_request_bytes)
        self.budget = ByteBudget(limit, self._stalls.start)
        self.shared = Shared(
            loop=self._loop,
            dispatch=dispatch,
            readers=readers,
            budget=self.budget,
            scratch=memoryview(bytearray(SCRATCH_BYTES)),
            mappings=Mappings(),
            turns=Turns(self._loop),
            polling=BusyPolling(self._loop, worth_polling_s(config.horolog_busy_poll_us)),
            sends=JointSends(self._loop),
            config_now=config_now,
            admit=self._admit,
            forget=self._forget,
            await_login=self._await_login,
            end_login=self._end_login,
            principal_of=self._principal_of,
            times=times,
        )
        self._per_host: Counter[str] = Counter()
        self._without_login: dict[ServerConnection | Handshake, None] = {}  # the oldest first
        self.handshake_times = HandshakeTimes()
        self._handshakes: Handshakes | None = None  # set while a listener speaks TLS
        self._contexts = TlsContexts({})
        self._reloading: asyncio.Task[None] | None = None
        self._most_connections = most_connections
        self._listeners: list[tuple[str, Acceptor]] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closing = False

    @property
    def most_connections(self) -> int:
        """Number of connections beyond which one is refused."""
        return min(self._config_now().max_connections, self._most_connections)

    def dispatch_to(self, dispatch: Dispatch) -> None:
        """Have all requests that arrive from now on answered by another dispatcher."""
        self.shared.dispatch = dispatch

    def listen(self) -> tuple[Endpoint, ...]:
        """Accept connections; return the endpoints with their bound ports.

        Raises:
            Misconfigured: an address cannot be bound, or a certificate cannot be used.
        """
        bound = []
        config = self._config_now()
        self._contexts = TlsContexts(config.tls)
        for endpoint in config.listeners:
            sockets = bind(endpoint, config)
            port = sockets[0].getsockname()[1]
            bound.append(endpoint._replace(port=port))
            for sock in sockets:
                backlog = config.socket_listen_backlog_size
                connect = partial(ServerConnection, self.shared, bound[-1])
                begin = partial(self._begin_handshake, bound[-1])
                hand_over = begin if endpoint.name in self._contexts else None
                limits = AcceptLimits(
                    wait_s=self._wait_s,
                    pause_s=partial(self.limits.pause_s, bound[-1]),
                    is_full=partial(self._is_full, bound[-1]),
                )
                acceptor = Acceptor(sock, backlog, connect, hand_over=hand_over, limits=limits)
                self._listeners.append((endpoint.name, acceptor))
        if self._contexts:
            self._reloading = self._loop.create_task(
                self._contexts.keep_loaded(lambda: self._config_now().tls)
            )
            self._handshakes = Handshakes(self._loop, self._on_handshake, self._on_no_handshake)
        self._sweep()
        return tuple(bound)

    async def close(self, end_waits: Callable[[], None]) -> None:
        """Stop accepting, answer the requests in flight, and close.

        `end_waits` is called once no request starts any more; it must complete delayed requests.
        """
        self._stop_accepting()
        for connection in list(self.connections):
            connection.drain()
        end_waits()
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._is_idle.wait()
        await self._hang_up()

    async def abort(self) -> None:
        """Stop accepting and close all connections without waiting for responses."""
        self._stop_accepting()
        await self._hang_up()

    def _stop_accepting(self) -> None:
        self._is_closing = True
        self._stalls.close()
        for _, acceptor in self._listeners:
            acceptor.close()
        if self._reloading is not None:
            self._reloading.cancel()
        if self._sweeper is not None:
            self._sweeper.cancel()

    async def _hang_up(self) -> None:
        for connection in list(self.connections):
            connection.close()
        if self._handshakes is not None:
            await self._handshakes.close()
        await asyncio.sleep(0)

    def _is_full(self, listener: Endpoint) -> bool:
        connecting = Counter[str]()
        for name, acceptor in self._listeners:
            connecting[name] += acceptor.connecting
        return self.limits.is_full(listener, connecting)

    def _disconnected(self, listener: Endpoint) -> None:
        """Count a connection or handshake that has ended; another client may get its place."""
        self.limits.open[listener.name] -= 1
        self.reconsider()

    def reconsider(self) -> None:
        """Accept clients that wait, if limits allow more now."""
        for _, acceptor in self._listeners:
            acceptor.reconsider()

    def _admit(self, connection: ServerConnection) -> bool:
        """Register a connection, unless a limit is reached."""
        host = connection.peer.host
        config = self._config_now()
        per_host = config.max_connections_per_ip_overrides.get(host, config.max_connections_per_ip)
        self.connections.add(connection)
        self._is_idle.clear()
        self._per_host[host] += 1
        self.limits.open[connection.peer.listener.name] += 1
        if self._is_closing:
            return False
        if self._per_host[host] > per_host:
            _LOG.warning(
                "refused a connection of %s: it has %d, max.connections.per.ip", host, per_host
            )
            return False
        excess = self.limits.to_close(self.connections)
        if excess is not None:
            _LOG.warning("closing a connection of %s for one between brokers", excess.peer.host)
            excess.close()
        if len(self.connections) > self._most_connections:
            _LOG.warning(
                "refused a connection of %s: the limit of open files (ulimit -n) allows %d",
                host,
                self._most_connections,
            )
            return False
        return True

    def _principal_of(self, listener: Endpoint, transport: asyncio.BaseTransport) -> str | None:
        """Return the principal of a client; None if its listener asks for a login."""
        if listener.name in self._config_now().logins:
            return None
        return str(transport.get_extra_info("principal", ANONYMOUS))

    async def load_tls(self, config: BrokerConfig) -> Callable[[], None]:
        """Load certificates by settings that are not in effect; return what takes them.

        Raises:
            Misconfigured: they cannot be used.
        """
        changed = await asyncio.to_thread(self._contexts.load, config.tls)
        return lambda: self._contexts.take(changed, self._config_now().tls)

    def _begin_handshake(self, listener: Endpoint, sock: socket.socket) -> None:
        """Let a thread do the handshake of a client that has connected."""
        assert self._handshakes is not None
        rules = self._config_now().tls[listener.name].rules
        context = self._contexts[listener.name].context
        handshake = self._handshakes.begin(sock, listener, context, rules)
        if handshake is not None:
            self.limits.open[listener.name] += 1
            self._await_login(handshake)

    def _on_handshake(self, handshake: Handshake, session: TlsSession, principal: str) -> None:
        """Serve a client whose handshake is done."""
        if handshake.is_cancelled or self._is_closing:
            session.sock.close()
            return
        del self._without_login[handshake]
        self.handshake_times.note_done(handshake, self._loop.time())
        self.limits.open[handshake.listener.name] -= 1  # it is counted again as a connection
        connection = ServerConnection(self.shared, handshake.listener)
        connection.since = handshake.since
        known = {"peername": handshake.address, "principal": principal}
        TlsTransport(self._loop, session, connection, known)

    def _on_no_handshake(self, handshake: Handshake, why: str) -> None:
        if not handshake.is_cancelled:
            del self._without_login[handshake]
            self.handshake_times.failed[handshake.listener.name] += 1
            self._disconnected(handshake.listener)
            line = f"Failed authentication with /{handshake.host} ({why})"
            self._audit(logging.INFO, printable(line))

    @property
    def without_login(self) -> int:
        """How many clients have connected and not finished their handshake or login."""
        return len(self._without_login)

    def _await_login(self, connection: ServerConnection | Handshake) -> None:
        """Note a connection without a login; close the oldest if there are too many."""
        self._without_login[connection] = None
        files = max(1, self._most_connections - len(self.connections))
        most = min(self._config_now().horolog_connections_without_login, files)
        if len(self._without_login) > most:
            self._give_up(next(iter(self._without_login)))

    def _give_up(self, connection: ServerConnection | Handshake) -> None:
        """Close a connection whose client has not logged in."""
        del self._without_login[connection]
        connection.close()
        if isinstance(connection, Handshake):
            self.handshake_times.failed[connection.listener.name] += 1
            self._disconnected(connection.listener)

    def _end_login(self, connection: ServerConnection) -> None:
        self._without_login.pop(connection, None)

    def _close_late_logins(self, now: float) -> float:
        """Close connections that take too long to log in; return when the next one does."""
        timeout = self._config_now().horolog_login_timeout_ms / 1000
        for connection in list(self._without_login):
            if now >= connection.since + timeout:
                host = (
                    connection.host if isinstance(connection, Handshake) else connection.peer.host
                )
                _LOG.info("closing the connection of %s: it has not logged in", host)
                self._give_up(connection)
        oldest = min((connection.since for connection in self._without_login), default=now)
        return oldest + timeout - now

    def _forget(self, connection: ServerConnection) -> None:
        """Unregister a closed connection."""
        self._without_login.pop(connection, None)
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        if not self.connections:
            self._is_idle.set()
        host = connection.peer.host
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]
        self._disconnected(connection.peer.listener)

    def _sweep(self) -> None:
        """Close connections of clients that are idle for too long or have left; release memory."""
        now = self._loop.time()
        idle_ms = self._config_now().connections_max_idle_ms
        for connection in list(self.connections):
            if idle_ms >= 0 and connection.is_idle(now - idle_ms / 1000):
                _LOG.info("closing an idle connection of %s", connection.peer.host)
                connection.close()
            elif connection.has_left:
                connection.close()
        self.shared.mappings.release_idle()
        delay = min(SWEEP_SECONDS, max(idle_ms / 2000, 0.05)) if idle_ms >= 0 else SWEEP_SECONDS
        if self._config_now().logins or self._contexts:
            delay = min(delay, max(self._close_late_logins(now), 0.05))
        self._sweeper = self._loop.call_later(delay, self._sweep)


def bind(endpoint: Endpoint, config: BrokerConfig) -> Sequence[socket.socket]:
    """Return bound sockets for every address of an endpoint, all on one port.

    Raises:
        Misconfigured: an address cannot be bound.
    """
    sockets: list[socket.socket] = []
    port = endpoint.port
    try:
        addresses = socket.getaddrinfo(
            endpoint.host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, address in addresses:
            try:
                sock = socket.socket(family, kind, protocol)
            except OSError:
                continue  # no IPv6 here
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # Accepted sockets inherit both; -1 leaves them to the kernel.
            if config.socket_receive_buffer_bytes > 0:
                sock.setsockopt(
                    socket.SOL_SOCKET, socket.SO_RCVBUF, config.socket_receive_buffer_bytes
                )
            if config.socket_send_buffer_bytes > 0:
                sock.setsockopt(
                    socket.SOL_SOCKET, socket.SO_SNDBUF, config.socket_send_buffer_bytes
                )
            sock.setblocking(False)
            sock.bind((address[0], port, *address[2:]))
            port = sock.getsockname()[1]
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise Misconfigured(f"cannot listen on {endpoint}: {error.strerror or error}") from error
    if not sockets:
        raise Misconfigured(f"cannot listen on {endpoint}: it has no address here")
    return sockets
