"""Membership of a broker in a cluster, before and beside its logs.

    observer -> registration -> the image has our registration in our epoch ... -> leave

The metadata log is followed in one thread, heartbeats are sent in another one. Either of them may
find that the node has to stop; `failed` has the reason then.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final
from uuid import uuid4

from horolog.broker.cluster.controllers import ControllerLink, Controllers, KnownController
from horolog.broker.cluster.directory import ClusterDirectory
from horolog.broker.cluster.lifecycle import BrokerState, KeepsAway, Life, broken
from horolog.broker.cluster.observer import MetadataObserver, ObservingNode
from horolog.broker.cluster.own_rights import OwnRights
from horolog.broker.cluster.registration import (
    CLAIMS,
    Registration,
    advertised,
    check_before_registering,
)
from horolog.broker.cluster.view import ClusterView
from horolog.broker.cluster.waking import Waking
from horolog.client.config import Address
from horolog.client.security import Security
from horolog.clock import Clock
from horolog.config import BrokerConfig, ClusterConfig, Endpoint
from horolog.errors import HorologError, StorageFailed
from horolog.metadata.observed import ObservedLog
from horolog.storage.directory.clean_shutdown import NO_BROKER_EPOCH
from horolog.storage.files import Files
from horolog.storage.log_dir.log_dir import OpeningProgress

_LOG = logging.getLogger(__name__)

LOGGED_EVERY_S: Final = 30.0
CATCH_UP_S: Final = 10.0
"""Longest wait for metadata before the registration, which is checked by them."""
REPORT_S: Final = 5.0
"""Longest wait for the controllers to hear that the node has failed."""
LONGEST_SHUTDOWN_S: Final = 300.0
"""Longest controlled shutdown, as Kafka's."""
LOOK_AGAIN_S: Final = 0.01


class Membership:
    """Connections to the controllers, the image, and the registration.

    For the event loop's thread only.
    """

    def __init__(self, config: BrokerConfig, clock: Clock, directory: ClusterDirectory) -> None:
        assert config.cluster is not None
        self.config: ClusterConfig = config.cluster
        self.node_id = config.node_id
        self.view = ClusterView()
        servers = [Address(*address) for address in self.config.controllers]
        self._security = Security.of(self.config.controller_security)
        rights = OwnRights(self._security)
        self.known = KnownController(servers, directory.cluster_id, rights)
        self.controllers = Controllers(
            self.known, self._security, client_id=f"broker-{self.node_id}"
        )
        self.life: Life | None = None
        """Registration and heartbeats; None before there is an image to check them by."""
        session_s = self.config.broker_session_timeout_ms / 1000
        self.waking = Waking(session_s, self._known_s)
        """Says whether the metadata are of after the last standstill of this process."""
        self.failed: asyncio.Future[HorologError] = asyncio.get_running_loop().create_future()
        """Done once the node has to stop, with the reason."""
        self.progress = OpeningProgress()
        """Counts the logs while they are opened."""
        self._broker_config = config
        self._clock = clock
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._observer: MetadataObserver | None = None
        self._observing: threading.Thread | None = None
        self._links: list[ControllerLink] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self, bound: Sequence[Endpoint], keeps_away: KeepsAway) -> None:
        """Observe the metadata and register; return once the image has this registration.

        Args:
            bound: listeners with their ports.
            keeps_away: says what keeps new partitions away from this broker.

        Raises:
            HorologError: it cannot join; the message says why.
        """
        self.run(self._log_status())
        self.run(self._watch_time())
        await self._observe()
        registration = Registration(
            self.node_id,
            self._directory.cluster_id,
            uuid4(),
            self._directory.directory_id,
            advertised(self._broker_config, bound),
            self._broker_config,
        )
        await self._wait_for_metadata()
        for doubt in check_before_registering(
            registration, self.view.image, {*self.config.voters, *self.known.controllers()}
        ):
            _LOG.warning("%s", doubt)
        claims = ", ".join(f"{name} {low}-{high}" for name, (low, high) in CLAIMS.items())
        _LOG.info("features of this broker, which limit `kafka-features upgrade`: %s", claims)
        life = self.life = Life(
            self._link("heartbeat"),
            registration,
            previous_epoch=self._directory.previous_epoch,
            offset=lambda: self.view.offset,
            image=lambda: self.view.image,
            on_change=self._wake_from_thread,
            keeps_away=keeps_away,
        )
        life.start()
        await self._until(lambda: self._is_applied)

    @property
    def _is_applied(self) -> bool:
        """Return True if the image has this broker's registration in its epoch."""
        here, epoch = self.view.broker(self.node_id), self.broker_epoch()
        return epoch >= 0 and here is not None and here.broker_epoch == epoch

    @property
    def _is_unfenced(self) -> bool:
        here = self.view.broker(self.node_id)
        return here is not None and not here.fenced

    def may_lead(self) -> bool:
        """Return True if the leaders in the image are those of now, and this broker is one of them.

        After another process has registered under this id, its leaders are not those of this one.
        """
        return self._is_applied and self.waking.look()

    def broker_epoch(self) -> int:
        """Return the epoch of the registration; -1 before it."""
        return NO_BROKER_EPOCH if self.life is None else self.life.broker_epoch

    @property
    def kraft_version(self) -> int:
        """Level of `kraft.version`, which is in no image."""
        return 0 if self._observer is None else self._observer.kraft_version

    def _known_s(self) -> float:
        return -1.0 if self._observer is None else self._observer.known_s

    async def _watch_time(self) -> None:
        """Look often enough whether the process stands still."""
        while True:
            self.waking.look()
            await asyncio.sleep(self.waking.look_s)

    async def _observe(self) -> None:
        """Start the thread that follows the controllers' metadata log."""
        path = str(self._directory.path)
        log = await asyncio.to_thread(ObservedLog.open, Files(), path, self._clock.now_ms)
        link = self._link("metadata")
        of_directory = self._directory
        node = ObservingNode(self.node_id, of_directory.cluster_id, of_directory.directory_id)
        observer = self._observer = MetadataObserver(link, log, node, self.view.publish)
        self.view.on_changes.append(lambda changes: self._changed.set())

        def run() -> None:
            try:
                observer.run()
            except HorologError as error:
                self._fail_from_thread(error)
            except Exception as error:  # noqa: BLE001 - nor must it live on without metadata
                self._fail_from_thread(broken("fetches of the metadata log", error))

        self._observing = threading.Thread(target=run, name="horolog-observer", daemon=True)
        self._observing.start()

    async def _wait_for_metadata(self) -> None:
        """Wait until the image is about that of the controllers, by which joining is checked."""
        observer = self._observer
        assert observer is not None
        for _ in range(int(CATCH_UP_S / 0.02)):
            if 0 < observer.high_watermark <= self.view.offset or self.failed.done():
                break
            await asyncio.sleep(0.02)
        self._check()

    def recover(self) -> None:
        """Report that the logs are being opened."""
        assert self.life is not None
        self.life.recover()

    async def unfence(self) -> None:
        """Ask to be unfenced, and wait until the controllers have done so.

        Raises:
            HorologError: the node has to stop.
        """
        life = self.life
        assert life is not None
        life.unfence()
        # An answer may be ahead of the image, by which clients are answered.
        await self._until(lambda: not life.is_fenced and self._is_unfenced)

    def status(self) -> str:
        """Return why the broker is not unfenced, in a sentence."""
        observer = self._observer
        if observer is None or (self.view.offset == 0 and observer.complaint is None):
            return "the controllers' metadata log is being read"
        if observer.complaint is not None:
            return f"the controllers' metadata log is not followed: {observer.complaint}"
        life = self.life
        if life is None:
            return "the broker is about to register"
        if life.broker_epoch < 0:
            return f"not registered: {life.complaint}"
        if not self._is_applied:
            why = f"the registration in epoch {life.broker_epoch} is not in the metadata"
            return why if life.complaint is None else f"{why}: {life.complaint}"
        if life.state is BrokerState.RECOVERY:
            return f"opened {self.progress.loaded} of {self.progress.logs} logs"
        if life.kept_fenced is not None:
            return life.kept_fenced
        if life.complaint is not None:
            return f"heartbeats are not answered: {life.complaint}"
        return "the controllers keep this broker fenced" if life.is_fenced else "unfenced"

    def _link(self, part: str) -> ControllerLink:
        """Return a connection to the active controller for a thread."""
        link = ControllerLink(self.known, self._security, client_id=f"broker-{self.node_id}-{part}")
        self._links.append(link)
        return link

    def run(self, running: Coroutine[Any, Any, None]) -> None:
        """Run a task until the node stops; one that ends by a bug stops the node."""
        task = self._loop.create_task(running)
        task.add_done_callback(self.on_ended)
        self._tasks.append(task)

    def on_ended(self, task: "asyncio.Task[None]") -> None:
        """Stop the node if a task that others wait for has ended by a bug."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.fail(broken(task.get_coro().__qualname__, error))  # type: ignore[union-attr]

    async def _log_status(self) -> None:
        """Log each half minute why the broker is not unfenced."""
        while True:
            await asyncio.sleep(LOGGED_EVERY_S)
            status = self.status()
            if status != "unfenced":
                _LOG.info("not ready: %s", status)

    def fail(self, error: HorologError) -> None:
        """Resolve `failed`: the node stops."""
        if not self.failed.done():
            _LOG.error("the broker stops: %s", error)
            self.failed.set_result(error)
        self._changed.set()

    def _fail_from_thread(self, error: HorologError) -> None:
        self._loop.call_soon_threadsafe(self.fail, error)

    def _wake_from_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._on_life)

    def _on_life(self) -> None:
        if self.life is not None and self.life.failure is not None:
            self.fail(self.life.failure)
        self._changed.set()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is true, looked at after each change.

        Raises:
            HorologError: the node has to stop.
        """
        while not is_so():
            self._check()
            self._changed.clear()
            await self._changed.wait()

    def _check(self) -> None:
        if self.failed.done():
            raise self.failed.result()

    # --- stop -------------------------------------------------------------------------

    async def leave(self) -> None:
        """Report a failed directory, or ask for a controlled shutdown, and wait for the answer."""
        life = self.life
        for task in self._tasks:
            task.cancel()
        if life is None or life.broker_epoch < 0 or life.failure is not None:
            return
        if self.failed.done() and isinstance(self.failed.result(), StorageFailed):
            life.fail_directory()
            await self._wait_for(lambda: life.is_reported, REPORT_S)
        elif self.config.controlled_shutdown_enable:
            began_s, session_s = self._loop.time(), self.config.broker_session_timeout_ms / 1000
            # Without metadata the node does not hear that another broker leads.
            longest_s = REPORT_S if self.failed.done() else LONGEST_SHUTDOWN_S
            life.shut_down()
            await self._wait_for(
                lambda: life.may_stop or life.is_gone or life.unanswered_s > session_s, longest_s
            )
            took_s = self._loop.time() - began_s
            if life.may_stop:
                _LOG.info("the controllers have moved the leaders elsewhere in %.1f s", took_s)
            else:
                _LOG.warning(
                    "stopping without the controllers' consent after %.1f s: %s",
                    took_s,
                    life.complaint or "they have not moved the leaders elsewhere",
                )

    async def _wait_for(self, is_so: Callable[[], bool], seconds: float) -> None:
        by_s = self._loop.time() + seconds
        while not is_so() and self._loop.time() < by_s:
            await asyncio.sleep(LOOK_AGAIN_S)

    @property
    def granted_epoch(self) -> int:
        """Broker epoch, if the controllers have granted the stop; otherwise -1."""
        life = self.life
        return life.broker_epoch if life is not None and life.may_stop else NO_BROKER_EPOCH

    async def stop(self) -> None:
        """End the threads."""
        for task in self._tasks:
            task.cancel()
        observer, observing = self._observer, self._observing
        if observer is not None and observing is not None:
            observer.stop()
            await asyncio.to_thread(observing.join)
        if self.life is not None:
            await asyncio.to_thread(self.life.stop)

    async def close(self) -> None:
        """Close the connections."""
        await self.controllers.close()
        for link in self._links:
            link.close()
