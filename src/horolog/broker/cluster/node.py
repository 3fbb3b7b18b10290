"""Node of a broker of a cluster: its parts, and the order of its start and stop.

    lock -> observer -> registration -> the image has our registration in our epoch
         -> logs opened with the image's topics -> roles -> heartbeat without WantFence -> unfenced

No role is taken, and no request answered, by an image older than the own registration: a replica
that came back empty would be taken for the leader that it was, and others would truncate.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from horolog.broker.cluster.assigning import DirectoryAssignments
from horolog.broker.cluster.condition import ClusterCondition
from horolog.broker.cluster.controllers import ControllerLink, Controllers, KnownController
from horolog.broker.cluster.directory import ClusterDirectory, lock_cluster_directory
from horolog.broker.cluster.following import ReplicaFetchers
from horolog.broker.cluster.internal_topics import InternalTopics
from horolog.broker.cluster.leading import Leaders
from horolog.broker.cluster.lifecycle import BrokerState, Life, broken
from horolog.broker.cluster.obeyed import ObeyedMetadata, ObeyingParts, TopicSettings
from horolog.broker.cluster.observer import MetadataObserver, ObservingNode
from horolog.broker.cluster.other_brokers import OtherBrokers
from horolog.broker.cluster.placement import ClusterPlacement
from horolog.broker.cluster.producer_ids import BlockProducerIds
from horolog.broker.cluster.registration import (
    CLAIMS,
    Registration,
    advertised,
    check_before_registering,
)
from horolog.broker.cluster.relaying import Relay
from horolog.broker.cluster.remote_admission import RemoteAdmission
from horolog.broker.cluster.roles import Roles
from horolog.broker.cluster.view import ClusterView
from horolog.broker.follow_state import FollowState
from horolog.broker.opening import OpenedLogs
from horolog.broker.partitions import Partitions
from horolog.broker.settings import LiveSettings
from horolog.client.config import Address
from horolog.client.fetch_session import FetchingReplica
from horolog.client.security import Security
from horolog.clock import Clock
from horolog.config import BrokerConfig, Endpoint, Settings
from horolog.errors import ErrorCode, HorologError, RequestRefused, StorageFailed
from horolog.metadata.observed import ObservedLog
from horolog.metadata.rows import Stored
from horolog.metadata.topics import Topic, TopicRegistry
from horolog.storage.directory.clean_shutdown import NO_BROKER_EPOCH
from horolog.storage.files import Files
from horolog.storage.log_dir.log_dir import LogDir, OpeningProgress
from horolog.storage.names import TRANSACTION_STATE, TopicPartition
from horolog.wire.api import Versions
from horolog.wire.features import REPLICATION

if TYPE_CHECKING:
    from horolog.broker.broker import BrokerParts, Resources

_LOG = logging.getLogger(__name__)

LOGGED_EVERY_S: Final = 30.0
LOOK_S: Final = 0.5
"""Time between two looks at the disk's failures."""
CATCH_UP_S: Final = 10.0
"""Longest wait for metadata before the registration, which is checked by them."""
REPORT_S: Final = 5.0
"""Longest wait for the report of a failed directory to arrive."""
LONGEST_SHUTDOWN_S: Final = 300.0
"""Longest controlled shutdown, as Kafka's."""
LOOK_AGAIN_S: Final = 0.01


class ClusterNode:
    """A broker of a cluster. For the event loop's thread only.

    Public parts are for the other modules of the cluster, handlers, and tests.
    """

    def __init__(self, settings: Settings, clock: Clock, directory: ClusterDirectory) -> None:
        """Use `begin`."""
        config = settings.broker_config()
        assert config.cluster is not None
        self.settings = settings
        self.config = config.cluster
        self.node_id = config.node_id
        self.cluster_id = directory.cluster_id
        self.directory_id = directory.directory_id
        self.between = _between(config.advertised_listeners, config.inter_broker_listener_name)
        """Advertised endpoint of the listener for brokers."""
        self.follow_state = FollowState(Stored([], []))
        self.view = ClusterView()
        servers = [Address(*address) for address in self.config.controllers]
        self.known = KnownController(servers, directory.cluster_id)
        self._to_controllers = Security.of(self.config.controller_security)
        self.controllers = Controllers(self.known, self._to_controllers, client_id=self._named())
        self.life: Life | None = None
        self.placement: ClusterPlacement
        self.leaders: Leaders
        self.followers: ReplicaFetchers
        self.roles: Roles
        self.relay = Relay(self.controllers, self.view)
        self.producer_ids = BlockProducerIds(self.controllers.ask, self.node_id, self._epoch)
        self.internal = InternalTopics(
            self.node_id, self.directory_id, config, self.controllers.ask, clock.monotonic_ms
        )
        self._to_brokers = Security.of(self.config.broker_security)
        self.others = OtherBrokers(self._to_brokers, client_id=self._named("txn"))
        self.lost: tuple[str, ...] = ()
        self.failed: asyncio.Future[HorologError] = asyncio.get_running_loop().create_future()
        """Done once the node has to stop, with the reason."""
        self._clock = clock
        self._directory = directory
        self._progress: OpeningProgress | None = None
        self._broker: BrokerParts | None = None
        self._admission: RemoteAdmission | None = None
        self._obeying: ObeyingParts | None = None
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._observer: MetadataObserver | None = None
        self._observing: threading.Thread | None = None
        self._links: list[ControllerLink] = []
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def begin(cls, settings: Settings, clock: Clock) -> "ClusterNode":
        """Check and lock the log directory.

        Raises:
            Misconfigured: it is not formatted, or is not this broker's.
            StorageFailed: the disk refused.
        """
        config = settings.broker_config()
        directory = await asyncio.to_thread(lock_cluster_directory, config)
        try:
            return cls(settings, clock, directory)
        except BaseException:
            directory.lock.close()
            raise

    def _link(self, part: str) -> ControllerLink:
        """Return a connection to the active controller for a thread."""
        link = ControllerLink(self.known, self._to_controllers, client_id=self._named(part))
        self._links.append(link)
        return link

    def _named(self, part: str = "") -> str:
        return f"broker-{self.node_id}-{part}" if part else f"broker-{self.node_id}"

    # --- start ------------------------------------------------------------------------

    async def join(self, bound: Sequence[Endpoint], progress: OpeningProgress | None) -> None:
        """Observe the metadata and register; return once the image has this registration.

        Args:
            bound: listeners with their ports.
            progress: counts the logs while they are opened.

        Raises:
            HorologError: it cannot join; the message says why.
        """
        self._progress = progress
        self._tasks.append(self._loop.create_task(self._log_status()))
        await self._observe()
        config = self.settings.broker_config()
        registration = Registration(
            self.node_id,
            self.cluster_id,
            uuid4(),
            self.directory_id,
            advertised(config, bound),
            config,
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
            internal=self.internal,
        )
        life.start()
        await self._until(lambda: self._is_applied)
        self.internal.look(self.view.image)
        self.view.on_changes.append(lambda changes: self.internal.look(self.view.image, changes))
        life.recover()

    @property
    def _is_applied(self) -> bool:
        """Return True if the image has this broker's registration in its epoch."""
        here, epoch = self.view.broker(self.node_id), self._epoch()
        return epoch >= 0 and here is not None and here.broker_epoch == epoch

    def _epoch(self) -> int:
        return NO_BROKER_EPOCH if self.life is None else self.life.broker_epoch

    async def _observe(self) -> None:
        """Start the thread that follows the controllers' metadata log."""
        path = str(self._directory.path)
        log = await asyncio.to_thread(ObservedLog.open, Files(), path, self._clock.now_ms)
        link = self._link("metadata")
        node = ObservingNode(self.node_id, self.cluster_id, self.directory_id)
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

    async def open_logs(self, resources: "Resources", progress: OpeningProgress) -> OpenedLogs:
        """Open the logs of this broker's replicas with the settings of the image.

        Raises:
            Misconfigured: a setting is unusable.
            StorageFailed: the disk refused.
        """
        image = self.view.image
        rules = TopicSettings(self.node_id, self.settings.static)
        rules.look(image)
        topics = tuple(rules.topic(image, its) for its in image.topics.values() if its.partitions)
        by_name = {topic.name: topic for topic in topics}
        assigned = {
            TopicPartition(its.name, index): its.topic_id
            for its in image.topics.values()
            for index, placed in its.partitions.items()
            if self.node_id in placed.replicas
        }
        settings = rules.settings
        opening = partial(
            LogDir.open,
            self._directory.path,
            broker_config=settings.broker_config(),
            topic_config=lambda name: settings.topic_config(by_name[name].overrides),
            now_ms=self._clock.now_ms(),
            assigned=assigned,
            files=Files(max_open=resources.open_files.logs),
            lock=self._directory.lock,
            progress=progress,
        )
        log_dir = await self._loop.run_in_executor(resources.workers, opening)
        for recovery in log_dir.recoveries:
            for warning in recovery.warnings:
                _LOG.warning("%s", warning)
        for partition, why in log_dir.unreadable.items():
            _LOG.error("%s is not served until the next start: %s", partition, why)
        return OpenedLogs(
            settings=settings,
            log_dir=log_dir,
            topics=topics,
            stored=Stored([], []),
            state_dir=Path(self._directory.path),
            group_settings={},
        )

    def place(
        self, live: LiveSettings, topics: TopicRegistry, partitions: Partitions
    ) -> ClusterPlacement:
        """Return the placement by the image."""
        self.placement = ClusterPlacement(self.node_id, self.view, partitions)
        return self.placement

    async def ensure_internal(self, name: str) -> Topic:
        """Refuse: this broker coordinates nothing in a cluster.

        Raises:
            RequestRefused: always.
        """
        raise RequestRefused(
            ErrorCode.not_coordinator, f"{name} is not written by this broker in a cluster"
        )

    def compose(self, broker: "BrokerParts") -> None:
        """Build the parts that need those of the broker."""
        self._broker = broker
        broker.cluster, broker.relay = self, self.relay
        self._admission = broker.other_coordinators = RemoteAdmission(
            self.others.ask,
            lambda key: self.placement.coordinator(TRANSACTION_STATE, key, self.between),
            broker.partitions,
            broker.catalogue.live,
        )
        live, partitions = broker.catalogue.live, broker.partitions
        self.leaders = broker.replicas = Leaders(
            self.node_id,
            self.view,
            self.controllers.ask,
            self._epoch,
            self._clock,
            lag_max_ms=self.config.replica_lag_time_max_ms,
        )
        self.followers = ReplicaFetchers(
            FetchingReplica(self.node_id, self._epoch),
            self._address_of,
            lambda: self.view.image.metadata_version,
            live,
            self._to_brokers,
            self._clock,
        )
        self._directories = DirectoryAssignments(
            self.node_id, self.directory_id, self.view, self.controllers.ask, self._epoch
        )
        self.roles = Roles(
            self.node_id,
            self.view,
            broker.topics,
            partitions,
            self.leaders,
            self.followers,
            self._directories,
        )
        assert self.life is not None
        broker.condition = ClusterCondition(
            self.node_id,
            self.view,
            partitions,
            self.leaders,
            self.life,
            internal=lambda: self.internal.complaints,
            why_no_controller=lambda: self.known.complaint,
        )

    def _address_of(self, node_id: int) -> Address | None:
        """Return the address of another broker's listener for brokers."""
        broker = self.view.broker(node_id)
        for endpoint in () if broker is None else broker.endpoints:
            if endpoint.name == self.between.name:
                return Address(endpoint.host, endpoint.port)
        return None

    async def load(self) -> None:
        """Let the broker go by the image from now on."""
        broker = self._broker
        assert broker is not None
        parts = self._obeying = ObeyingParts(
            topics=broker.topics,
            live=broker.catalogue.live,
            partitions=broker.partitions,
            rights=broker.access.rights,
            credentials=broker.credentials,
            quotas=broker.quotas.quotas,
        )
        rules = TopicSettings(self.node_id, self.settings.static)
        await self.view.obey(ObeyedMetadata(parts, self.view.image, rules))
        for topic in list(broker.topics):
            if topic.topic_id not in self.view.image.by_id:  # deleted while logs were opened
                broker.topics.remove(topic.name)

    def reload(
        self,
        load_tls: Callable[[BrokerConfig], Awaitable[Callable[[], None]]],
        on_altered: Callable[[], object],
    ) -> None:
        """Let the listeners go by altered settings, too."""
        assert self._obeying is not None
        self._obeying.load_tls, self._obeying.on_altered = load_tls, on_altered

    async def start(self) -> None:
        """Take the roles of all replicas, and wait until the controllers have unfenced the broker.

        Raises:
            HorologError: the node has to stop instead.
        """
        life = self.life
        assert life is not None
        self.leaders.start()
        await self.roles.start()
        for running in (self._watch_disk(), self._checkpoint(), self.internal.run()):
            self._tasks.append(self._loop.create_task(running))
        life.unfence()
        await self._until(lambda: not life.is_fenced)

    # --- while it runs ----------------------------------------------------------------

    @property
    def claims(self) -> Mapping[str, Versions]:
        """Features of Kafka that this broker can have finalised."""
        return {name: levels for name, levels in CLAIMS.items() if name != REPLICATION}

    @property
    def levels(self) -> Mapping[str, int]:
        """Levels that the controllers have finalised; 0 is absent."""
        return self.view.features

    @property
    def levels_epoch(self) -> int:
        """Offset of the last metadata record that is applied."""
        return self.view.offset - 1

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
            return f"the registration in epoch {life.broker_epoch} is not in the metadata yet"
        if life.state is BrokerState.RECOVERY:
            progress = self._progress or OpeningProgress()
            return f"opened {progress.loaded} of {progress.logs} logs"
        if self.internal.keeps_fenced is not None and life.is_fenced:
            return self.internal.keeps_fenced
        if life.complaint is not None:
            return f"heartbeats are not answered: {life.complaint}"
        return "the controllers keep this broker fenced" if life.is_fenced else "unfenced"

    def lose_directory(self, why: str) -> None:
        """Report the log directory offline, so that others lead, and stop the node."""
        self._fail(StorageFailed(why))

    async def _log_status(self) -> None:
        """Log each half minute why the broker is not unfenced."""
        while True:
            await asyncio.sleep(LOGGED_EVERY_S)
            status = self.status()
            if status != "unfenced":
                _LOG.info("not ready: %s", status)

    async def _watch_disk(self) -> None:
        """Stop the node once the disk refuses a write of a partition."""
        assert self._broker is not None
        partitions = self._broker.partitions
        while partitions.failure is None:
            await asyncio.sleep(LOOK_S)
        self.lose_directory(partitions.failure)

    async def _checkpoint(self) -> None:
        """Write the high watermarks of all replicas, by which the next start begins."""
        assert self._broker is not None
        interval_s = self.config.replica_high_watermark_checkpoint_interval_ms / 1000
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self._broker.partitions.checkpoint_replicas()
            except StorageFailed as error:
                _LOG.error("high watermarks are not checkpointed: %s", error)

    def _fail(self, error: HorologError) -> None:
        if not self.failed.done():
            _LOG.error("the broker stops: %s", error)
            self.failed.set_result(error)
        self._changed.set()

    def _fail_from_thread(self, error: HorologError) -> None:
        self._loop.call_soon_threadsafe(self._fail, error)

    def _wake_from_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._on_life)

    def _on_life(self) -> None:
        if self.life is not None and self.life.failure is not None:
            self._fail(self.life.failure)
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

    async def stop(self, *, is_clean: bool) -> None:
        """Let the controllers move the leaders elsewhere, then stop following metadata.

        Requests are still answered meanwhile. Unless it `is_clean`, nothing is asked of the
        controllers.
        """
        for task in self._tasks:
            task.cancel()
        life = self.life
        if life is not None and is_clean and life.broker_epoch >= 0 and life.failure is None:
            await self._leave(life)
        if self._broker is not None:
            await self.roles.close()
            await self._directories.close()
            await self.followers.close()
            await self.leaders.close()
        observer, observing = self._observer, self._observing
        if observer is not None and observing is not None:
            observer.stop()
            await asyncio.to_thread(observing.join)
        if life is not None:
            await asyncio.to_thread(life.stop)

    async def _leave(self, life: Life) -> None:
        """Report a failed directory, or ask for a controlled shutdown, and wait for the answer."""
        if self.failed.done() and isinstance(self.failed.result(), StorageFailed):
            life.fail_directory()
            await self._wait_for(lambda: life.is_reported, REPORT_S)
        elif self.config.controlled_shutdown_enable:
            began_s, session_s = self._loop.time(), self.config.broker_session_timeout_ms / 1000
            life.shut_down()
            await self._wait_for(
                lambda: life.may_stop or life.unanswered_s > session_s, LONGEST_SHUTDOWN_S
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
    def broker_epoch(self) -> int:
        """Epoch for the marker of a clean stop: only if the controllers have granted the stop."""
        life = self.life
        return life.broker_epoch if life is not None and life.may_stop else NO_BROKER_EPOCH

    async def close(self) -> None:
        """Close the connections, and let go of the directory."""
        self.relay.close()
        if self._admission is not None:
            await self._admission.close()
        await self.producer_ids.close()
        await self.others.close()
        await self.controllers.close()
        for link in self._links:
            link.close()
        self._directory.lock.close()


def _between(endpoints: Sequence[Endpoint], name: str) -> Endpoint:
    return next(endpoint for endpoint in endpoints if endpoint.name == name)
