"""Finds the active controller of the quorum, and asks it.

    body = await controllers.ask(ApiKey.ALTER_PARTITION, fields, timeout_ms=30_000)   event loop
    body = link.ask(ApiKey.BROKER_HEARTBEAT, fields, timeout_ms=4_500)                a thread

Any controller answers DescribeCluster with the active one. For seconds after a crash it names the
dead one. So a named controller that did not answer is left out for a while, and the bootstrap
servers are asked in turn, with pauses. All connections share what is known.

A request is sent again after a lost connection, as Kafka's brokers do: the controllers refuse or
repeat what they have carried out already.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from horolog.broker.cluster.own_rights import OwnRights
from horolog.client.brokers import Brokers
from horolog.client.config import Address, ClientConfig
from horolog.client.connection import NoAnswer
from horolog.client.deadline import Deadline
from horolog.client.security import PLAINTEXT, AuthenticationFailed, NoToken, Security
from horolog.config import host_port
from horolog.errors import ErrorCode, HorologError, Misconfigured, RequestRefused
from horolog.network.outgoing import OutgoingConnection
from horolog.wire.api import ApiKey, Versions
from horolog.wire.malformed import MalformedResponse

__all__ = [
    "AskController",
    "ControllerLink",
    "Controllers",
    "ControllersUnavailable",
    "KnownController",
]

_LOG = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 0.5
DESCRIBE_MS: Final = 2_000
CONNECT_MS: Final = 2_000
LEFT_OUT_S: Final = 1.0
"""Time for which a controller that did not answer is not believed to be the active one."""
MAX_CONTROLLERS: Final = 64
"""Controllers that are remembered beside the bootstrap servers."""
_MAX_BYTES: Final = 64 << 20
_DENIED: Final = ErrorCode.cluster_authorization_failed

_FAILED: Final = (NoAnswer, AuthenticationFailed, NoToken, MalformedResponse, Misconfigured)
_DESCRIBE: Final[Mapping[str, Any]] = {
    "include_cluster_authorized_operations": False,
    "endpoint_type": 2,  # controllers (KIP-919)
    "include_fenced_brokers": False,
}


class AskController(Protocol):
    """Asks the active controller."""

    def __call__(
        self, api_key: ApiKey, body: Mapping[str, Any], /, *, timeout_ms: int
    ) -> Awaitable[Any]:
        """Return the body of the response.

        Raises:
            HorologError: there is none.
        """
        ...


class ControllersUnavailable(HorologError):
    """Raised if no active controller answers in time; the message has the last reason."""


class ActiveController(NamedTuple):
    """The controller that leads the quorum."""

    node_id: int
    address: Address


class KnownController:
    """The active controller as far as it is known, shared by all connections and threads.

    Args:
        bootstrap: addresses of controllers.
        cluster_id: id of the cluster; a controller of another one is not asked.
        rights: those of this broker at the controllers.
    """

    def __init__(
        self,
        bootstrap: Sequence[Address],
        cluster_id: str,
        rights: OwnRights | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self.rights = OwnRights(PLAINTEXT) if rights is None else rights
        self._bootstrap = tuple(bootstrap)
        self._others: dict[int, Address] = {}
        self._lock = threading.Lock()
        self._active: ActiveController | None = None
        self._turn = 0
        self._failed: dict[Address, float] = {}
        self._complaint: str | None = None

    @property
    def active(self) -> ActiveController | None:
        """The active controller, as far as known."""
        return self._active

    @property
    def complaint(self) -> str | None:
        """Reason why no controller answers; None while one does."""
        return self._complaint

    def controllers(self) -> frozenset[int]:
        """Return the ids of all controllers that were named."""
        with self._lock:
            return frozenset(self._others)

    def next_server(self) -> Address:
        """Return the next controller to ask for the active one."""
        with self._lock:
            servers = tuple(dict.fromkeys((*self._bootstrap, *self._others.values())))
            self._turn += 1
            return servers[self._turn % len(servers)]

    def redirect(self, node_id: int, address: Address | None = None) -> None:
        """Take over the leader that a controller names in an answer with a newer epoch.

        Args:
            node_id: -1 if the quorum has no leader.
            address: of that controller; None if the answer does not have it.
        """
        with self._lock:
            if node_id >= 0 and address is not None and len(self._others) < MAX_CONTROLLERS:
                self._others[node_id] = address
            address = address or self._others.get(node_id)
            if node_id >= 0 and address is not None and self._is_believed(address):
                self._take(ActiveController(node_id, address))
            elif self._active is not None and self._active.node_id != node_id:
                self._active = None

    def described(self, server: Address, body: Any) -> None:
        """Take over what a controller answered to DescribeCluster.

        Raises:
            NoAnswer: it knows no active controller, or belongs to another cluster.
        """
        error = int(body.error_code)
        if error != ErrorCode.none:
            raise NoAnswer(f"{server} answered DescribeCluster with error {error}")
        if body.cluster_id != self.cluster_id:
            raise NoAnswer(f"{server} is of cluster {body.cluster_id}, not of {self.cluster_id}")
        found = _endpoints(body.brokers)
        with self._lock:
            self._others = found
            address = found.get(body.controller_id)
            if address is None:
                raise NoAnswer(f"{server} knows no active controller")
            if not self._is_believed(address):
                raise NoAnswer(f"{server} names {address} as active, which does not answer")
            self._take(ActiveController(body.controller_id, address))

    def lost(self, address: Address, why: str) -> None:
        """Stop asking a controller as the active one: it did not answer, or is not."""
        with self._lock:
            self._failed[address] = time.monotonic()
            if self._active is not None and self._active.address != address:
                return  # another connection has found a newer one
            self._active = None
        self.not_found(why)

    def not_found(self, why: str) -> None:
        """Note that a controller did not say which one is active."""
        with self._lock:
            is_news, self._complaint = self._complaint is None, why
        if is_news:
            _LOG.warning("no active controller answers: %s", why)

    def answered(self, address: Address) -> None:
        """Note that the active controller has answered."""
        if self._complaint is None:
            return
        with self._lock:
            was_lost, self._complaint = self._complaint is not None, None
            self._failed.clear()
            active = self._active
        if was_lost and active is not None:
            _LOG.info("the active controller is node %d at %s", active.node_id, address)

    def _is_believed(self, address: Address) -> bool:
        failed_s = self._failed.get(address)
        return failed_s is None or time.monotonic() - failed_s > LEFT_OUT_S

    def _take(self, active: ActiveController) -> None:
        if self._active is None or self._active.address != active.address:
            _LOG.debug("active controller: node %d at %s", active.node_id, active.address)
        self._active = active


class _Attempt(NamedTuple):
    """A request to one controller."""

    address: Address
    api_key: ApiKey
    fields: Mapping[str, Any]
    deadline: Deadline


class _Pause(NamedTuple):
    seconds: float


_Search: TypeAlias = Generator[_Attempt | _Pause, Any, Any]


def _searching(
    known: KnownController, api_key: ApiKey, fields: Mapping[str, Any], deadline: Deadline
) -> _Search:
    """Ask the active controller until it answers or the deadline has passed.

    A generator without I/O: it yields attempts, is sent the bodies of their responses, and is
    thrown the errors.

    Raises:
        ControllersUnavailable: the deadline has passed.
    """
    pause_s = FIRST_PAUSE_S
    while True:
        active = known.active
        address = known.next_server() if active is None else active.address
        try:
            if active is None:
                by = deadline.no_later_than_ms(DESCRIBE_MS)
                body = yield _Attempt(address, ApiKey.DESCRIBE_CLUSTER, _DESCRIBE, by)
                known.described(address, body)
                continue
            body = yield _Attempt(address, api_key, fields, deadline)
            if not _is_refused(body):
                known.answered(address)
                denied = getattr(body, "error_code", None) == _DENIED
                known.rights.note(_LOG, api_key.title, is_denied=denied)
                return body
            why = f"{address} is not the active controller"
        except _FAILED as error:
            why = str(error)
        if active is None:
            known.not_found(why)
        else:
            known.lost(address, why)
        if deadline.left_s() <= pause_s:
            raise ControllersUnavailable(f"{api_key.title} was not answered: {why}")
        yield _Pause(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _endpoints(controllers: Iterable[Any]) -> dict[int, Address]:
    found: dict[int, Address] = {}
    for controller in controllers:
        if controller.host and controller.port > 0 and len(found) < MAX_CONTROLLERS:
            found[controller.broker_id] = Address(controller.host, controller.port)
    return found


def _is_refused(body: Any) -> bool:
    """Return True for NOT_CONTROLLER: at the top, or for all topics of a change."""
    code = getattr(body, "error_code", None)
    if code is None:
        codes = {row.error_code for row in getattr(body, "topics", None) or ()}
        return codes == {ErrorCode.not_controller}
    return bool(code == ErrorCode.not_controller)


class ControllerLink:
    """Blocking requests to the active controller, on a connection of their own.

    For one thread; `interrupt` may be called by another one.
    """

    def __init__(self, known: KnownController, security: Security, *, client_id: str) -> None:
        self.known = known
        self._interrupted = threading.Event()
        self._brokers = Brokers(
            ClientConfig(
                bootstrap_servers=_joined(known.next_server()),
                client_id=client_id,
                connect_timeout_ms=CONNECT_MS,
                max_response_bytes=_MAX_BYTES,
                security=security,
            )
        )

    def ask(self, api_key: ApiKey, fields: Mapping[str, Any], *, timeout_ms: int) -> Any:
        """Return the body of the active controller's response.

        Raises:
            ControllersUnavailable: none answered in time, or the link was interrupted.
            RequestRefused: no version is common, or a value cannot be sent.
        """
        search = _searching(self.known, api_key, fields, Deadline.after_ms(timeout_ms))
        try:
            step = next(search)
            while True:
                if self._interrupted.is_set():
                    raise ControllersUnavailable("the broker stops")
                if isinstance(step, _Pause):
                    self._interrupted.wait(step.seconds)
                    step = next(search)
                    continue
                try:
                    link = self._brokers.at(step.address, step.deadline)
                    body = link.ask(step.api_key, step.fields, step.deadline)
                except (*_FAILED, RequestRefused) as error:
                    if not self._interrupted.is_set():
                        step = search.throw(error)
                else:
                    step = search.send(body)
        except StopIteration as end:
            return end.value

    def redirect(self, leader_id: int, address: Address | None = None) -> None:
        """Ask another controller from now on: see `KnownController.redirect`."""
        self.known.redirect(leader_id, address)

    def interrupt(self) -> None:
        """Make the request that waits fail, and all later ones."""
        self._interrupted.set()
        self._brokers.interrupt()

    def close(self) -> None:
        """Close the connections."""
        self._brokers.close()


class Controllers:
    """Requests to the active controller on the event loop. Several may be in flight."""

    def __init__(self, known: KnownController, security: Security, *, client_id: str) -> None:
        self.known = known
        self._security = security
        self._client_id = client_id
        self._connections: dict[Address, OutgoingConnection] = {}
        self._is_closed = False

    async def ask(self, api_key: ApiKey, fields: Mapping[str, Any], *, timeout_ms: int) -> Any:
        """Return the body of the active controller's response.

        Raises:
            ControllersUnavailable: none answered in time, or the broker stops.
            RequestRefused: no version is common, or a value cannot be sent.
        """
        search = _searching(self.known, api_key, fields, Deadline.after_ms(timeout_ms))
        try:
            step = next(search)
            while True:
                if self._is_closed:
                    raise ControllersUnavailable("the broker stops")
                if isinstance(step, _Pause):
                    await asyncio.sleep(step.seconds)
                    step = next(search)
                    continue
                try:
                    body = await self._at(step.address).ask(
                        step.api_key, step.fields, timeout_ms=step.deadline.left_ms()
                    )
                except (*_FAILED, RequestRefused) as error:
                    step = search.throw(error)
                else:
                    step = search.send(body)
        except StopIteration as end:
            return end.value

    @property
    def versions(self) -> Mapping[int, Versions] | None:
        """Versions that the active controller announced; None before it was asked something."""
        active = self.known.active
        connection = None if active is None else self._connections.get(active.address)
        abilities = None if connection is None else connection.abilities
        return None if abilities is None else abilities.versions

    async def close(self) -> None:
        """Close the connections; requests that wait fail."""
        self._is_closed = True
        for connection in self._connections.values():
            await connection.close()

    def _at(self, address: Address) -> OutgoingConnection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = OutgoingConnection(
                address,
                self._security,
                client_id=self._client_id,
                max_response_bytes=_MAX_BYTES,
                connect_timeout_ms=CONNECT_MS,
            )
        return connection


def _joined(address: Address) -> str:
    return host_port(address.host, address.port)
