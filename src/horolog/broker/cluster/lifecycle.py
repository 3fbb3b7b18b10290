"""Life of a broker in a cluster: registration and heartbeats, on a thread of their own (KIP-631).

    STARTING -> caught up with its own registration -> RECOVERY -> unfenced: RUNNING
             -> PENDING_SHUTDOWN -> the controllers have moved its leaders: may stop

Heartbeats continue through hours of recovery, and never wait for the event loop: a broker without
them for a session (9 s) is fenced. A fenced broker keeps its epoch. Where the controllers do not
know the epoch any more, the broker registers anew.
"""

import logging
import threading
import time
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, Protocol
from uuid import UUID, uuid4

from horolog.broker.cluster.controllers import ControllerLink, ControllersUnavailable
from horolog.broker.cluster.registration import Registration, refusal_of
from horolog.client.metadata import error_of
from horolog.errors import ErrorCode, HorologError
from horolog.metadata.image import Image
from horolog.wire.api import ApiKey

__all__ = ["BrokerState", "Life"]

_LOG = logging.getLogger(__name__)

SOON_S: Final = 0.05
"""Time between two heartbeats while a change of state is awaited."""
_RETRY_S: Final = 0.5
"""Pause after a registration or a heartbeat that was refused."""


class NodeBroken(HorologError):
    """Raised if a broker of a cluster has to stop because of a bug."""


def broken(what: str, error: Exception) -> NodeBroken:
    """Return the error after which a node stops, and log the traceback."""
    _LOG.error("%s have ended", what, exc_info=error)
    return NodeBroken(f"{what} have ended: {type(error).__name__}: {error}")


class BrokerState(IntEnum):
    """State of the broker, by the numbers of Kafka's metric BrokerState."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class KeepsAway(Protocol):
    """Says what keeps new partitions away from this broker; any thread may read it."""

    cordoned: tuple[UUID, ...]
    """Directories that take no new partitions (KIP-1066)."""
    keeps_fenced: str | None
    """Reason why the broker must not be unfenced yet."""


class Life:
    """Registration and heartbeats of a broker. Any thread may read its properties.

    Args:
        link: to the active controller, for this thread alone.
        offset: returns the offset after the last metadata record that is applied.
        image: returns the image, for messages.
        on_change: called in the thread after a change of state.
        keeps_away: says what keeps new partitions away from this broker.
    """

    def __init__(
        self,
        link: ControllerLink,
        registration: Registration,
        *,
        previous_epoch: int,
        offset: Callable[[], int],
        image: Callable[[], Image],
        on_change: Callable[[], object],
        keeps_away: KeepsAway,
    ) -> None:
        self.registration = registration
        self._link = link
        cluster = registration.config.cluster
        assert cluster is not None
        self._interval_s = cluster.broker_heartbeat_interval_ms / 1000
        self._session_ms = cluster.broker_session_timeout_ms
        self._registering_s = cluster.initial_broker_registration_timeout_ms / 1000
        self._previous_epoch = previous_epoch
        self._offset = offset
        self._image = image
        self._on_change = on_change
        self._keeps_away = keeps_away
        self._state = BrokerState.STARTING
        self._epoch = -1
        self._is_fenced = True
        self._is_granted = False
        self._is_reported = False
        self._is_gone = False
        self._wants_fence = True
        self._wants_shutdown = False
        self._was_unfenced = False
        self._awaited_s: float | None = None
        self._failed_directories: tuple[UUID, ...] = ()
        self._answered_s = time.monotonic()
        self._complaint: str | None = "it is not registered yet"
        self._failure: HorologError | None = None
        self._news = threading.Condition()
        self._has_news = False
        self._ends = False
        self._thread = threading.Thread(target=self._run, name="horolog-heartbeat", daemon=True)

    # --- for other threads ------------------------------------------------------------

    @property
    def state(self) -> BrokerState:
        """State of this broker."""
        return self._state

    @property
    def broker_epoch(self) -> int:
        """Epoch of the registration; -1 before it."""
        return self._epoch

    @property
    def is_fenced(self) -> bool:
        """True unless the last heartbeat's answer says that the broker is not fenced."""
        return self._is_fenced

    @property
    def may_stop(self) -> bool:
        """True once the controllers have moved the leaders elsewhere."""
        return self._is_granted

    @property
    def is_gone(self) -> bool:
        """True if the controllers do not know a broker any more that wants to stop."""
        return self._is_gone

    @property
    def is_reported(self) -> bool:
        """True once the controllers know that the directory has failed."""
        return self._is_reported

    @property
    def complaint(self) -> str | None:
        """Reason why the last registration or heartbeat failed."""
        return self._complaint

    @property
    def failure(self) -> HorologError | None:
        """Error after which the broker cannot join; the node has to stop."""
        return self._failure

    @property
    def unanswered_s(self) -> float:
        """Seconds since the last answer of a controller."""
        return time.monotonic() - self._answered_s

    def start(self) -> None:
        """Register, and send heartbeats from then on."""
        self._thread.start()

    def recover(self) -> None:
        """Note that the registration is applied, and the logs are being opened."""
        self._set(BrokerState.RECOVERY)

    def unfence(self) -> None:
        """Ask to be unfenced: the logs are open, and have their roles."""
        self._wants_fence = False
        self._set(BrokerState.RUNNING)

    def shut_down(self) -> None:
        """Ask the controllers to move the leaders elsewhere."""
        self._wants_shutdown = True
        self._set(BrokerState.PENDING_SHUTDOWN)

    def fail_directory(self) -> None:
        """Report the log directory offline: the controllers elect other leaders."""
        self._failed_directories = (self.registration.directory_id,)
        self._wake()

    def stop(self) -> None:
        """End the heartbeats, and wait for the thread."""
        with self._news:
            self._ends = True
            self._news.notify()
        self._link.interrupt()
        if self._thread.is_alive():
            self._thread.join()

    def beat_now(self) -> None:
        """Send the next heartbeat at once: it says something else than the last one."""
        self._wake()

    def _set(self, state: BrokerState) -> None:
        if state > self._state:
            self._state = state
            self._wake()

    def _wake(self) -> None:
        with self._news:
            self._has_news = True
            self._news.notify()

    # --- the thread -------------------------------------------------------------------

    def _run(self) -> None:
        try:
            if self._register(time.monotonic() + self._registering_s):
                while not self._ends:
                    self._wait(self._beat())
        except HorologError as error:
            self._failure = error
        except Exception as error:  # noqa: BLE001 - the node must not live on without heartbeats
            self._failure = broken("heartbeats", error)
        if self._failure is not None:
            self._is_fenced = True
        self._on_change()

    def _wait(self, seconds: float) -> None:
        with self._news:
            if not self._has_news and not self._ends:
                self._news.wait(seconds)
            self._has_news = False

    def _register(self, by_s: float | None) -> bool:
        """Register until it succeeds; return False if the broker stops.

        Args:
            by_s: time after which it has failed; None for never.

        Raises:
            Misconfigured: the controllers refuse, and will.
            ControllersUnavailable: the time is over.
        """
        while not self._ends:
            request = self.registration.request(self._previous_epoch)
            try:
                timeout_ms = self._session_ms // 2
                body = self._link.ask(ApiKey.BROKER_REGISTRATION, request, timeout_ms=timeout_ms)
            except ControllersUnavailable as error:
                self._complain(str(error))
            else:
                self._answered_s = time.monotonic()
                if body.error_code == ErrorCode.none:
                    self._registered(body.broker_epoch)
                    return True
                refusal = refusal_of(body.error_code, self.registration, self._image())
                if refusal is not None:
                    raise refusal
                self._complain(self._text_of(body.error_code))
            if by_s is not None and time.monotonic() >= by_s:
                raise ControllersUnavailable(
                    f"broker {self.registration.node_id} could not register within "
                    f"{self._registering_s:g} s (initial.broker.registration.timeout.ms): "
                    f"{self._complaint}"
                )
            self._wait(_RETRY_S)
        return False

    def _registered(self, epoch: int) -> None:
        self._epoch = epoch
        self._complaint = None
        _LOG.info("registered as broker %d, in broker epoch %d", self.registration.node_id, epoch)
        self._on_change()

    def _text_of(self, code: int) -> str:
        if code == ErrorCode.duplicate_broker_registration:
            return (
                f"broker {self.registration.node_id} is registered by another process, or by one "
                "whose session has not ended yet"
            )
        return f"the controllers answer with {error_of(code).name.upper()}"

    def _complain(self, why: str) -> None:
        if self._complaint != why:
            _LOG.warning("not registered: %s", why)
        self._complaint = why

    def _beat(self) -> float:
        """Send a heartbeat; return the seconds until the next one."""
        cordoned = self._keeps_away.cordoned
        is_known = bool(cordoned) or self._state >= BrokerState.RECOVERY
        request = {
            "broker_id": self.registration.node_id,
            "broker_epoch": self._epoch,
            "current_metadata_offset": self._offset() - 1,
            "want_fence": self._wants_fence or self.kept_fenced is not None,
            "want_shut_down": self._wants_shutdown,
            "offline_log_dirs": self._failed_directories,
            "cordoned_log_dirs": cordoned if is_known else None,  # even a fenced one is given some
        }
        try:
            # A new leader of the quorum must hear within the session (KAFKA-14392).
            body = self._link.ask(
                ApiKey.BROKER_HEARTBEAT, request, timeout_ms=self._session_ms // 2
            )
        except ControllersUnavailable as error:
            self._complaint = str(error)
            return SOON_S
        self._answered_s = time.monotonic()
        if body.error_code == ErrorCode.none:
            self._complaint = None
            self._take(body, request)
            return self._pause_s()
        self._complaint = self._text_of(body.error_code)
        if body.error_code in (ErrorCode.stale_broker_epoch, ErrorCode.broker_id_not_registered):
            if self._wants_shutdown:  # it leads nothing any more
                self._is_gone = True
                return _RETRY_S
            self._register_anew()
            return 0
        return _RETRY_S

    def _pause_s(self) -> float:
        """Return the seconds until the next heartbeat: few while a change of state is awaited."""
        wants_fence = self._wants_fence or self.kept_fenced is not None
        if not self._wants_shutdown and self._is_fenced == wants_fence:
            self._awaited_s = None
            return self._interval_s
        now_s = time.monotonic()
        if self._awaited_s is None:
            self._awaited_s = now_s
        # A twentieth of the time waited so far: a broker that stays fenced is no burden.
        return min(max(SOON_S, (now_s - self._awaited_s) / 20), self._interval_s)

    @property
    def kept_fenced(self) -> str | None:
        """Reason why this broker does not ask to be unfenced although it could."""
        return None if self._was_unfenced else self._keeps_away.keeps_fenced

    def _take(self, body: Any, request: dict[str, Any]) -> None:
        was_fenced, self._is_fenced = self._is_fenced, bool(body.is_fenced)
        self._was_unfenced |= not self._is_fenced
        self._is_reported = bool(request["offline_log_dirs"])
        if body.should_shut_down and request["want_shut_down"]:
            self._is_granted = True
            self._on_change()
        if was_fenced == self._is_fenced:
            return
        if self._is_fenced and not self._wants_shutdown:
            _LOG.warning("fenced by the controllers, which elect other leaders meanwhile")
        elif not self._is_fenced:
            _LOG.info("unfenced: the controllers may elect this broker as leader")
        self._on_change()

    def _register_anew(self) -> None:
        """Register in a new epoch, because the controllers do not know this one any more.

        A broker of Kafka has to be started again for that. All logs are here, and have all that
        they had, so that the previous epoch is reported as that of a clean stop.
        """
        _LOG.warning("broker epoch %d is not known any more: registering anew", self._epoch)
        self._is_fenced = True
        self._previous_epoch = self._epoch
        self.registration = self.registration._replace(incarnation=uuid4())
        self._on_change()
        self._register(None)
