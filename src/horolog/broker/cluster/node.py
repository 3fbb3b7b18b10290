"""Node of a broker of a cluster: its parts, and the order of its start and stop.

    lock -> observer -> registration -> the image has our registration in our epoch
         -> logs opened with the image's topics -> roles -> heartbeat without WantFence -> unfenced

No role is taken, and no request answered, by an image older than the own registration: a replica
that came back empty would be taken for the leader that it was, and others would truncate.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from horolog.broker.cluster.assigning import DirectoryAssignments
from horolog.broker.cluster.condition import ClusterCondition
from horolog.broker.cluster.directory import ClusterDirectory, lock_cluster_directory
from horolog.broker.cluster.following import ReplicaFetchers
from horolog.broker.cluster.internal_topics import InternalTopics
from horolog.broker.cluster.leading import Leaders
from horolog.broker.cluster.lifecycle import Life
from horolog.broker.cluster.membership import Membership
from horolog.broker.cluster.obeyed import ObeyedMetadata, ObeyingParts, TopicSettings
from horolog.broker.cluster.other_brokers import OtherBrokers
from horolog.broker.cluster.own_rights import OwnRights
from horolog.broker.cluster.placement import ClusterPlacement
from horolog.broker.cluster.producer_ids import BlockProducerIds
from horolog.broker.cluster.registration import CLAIMS
from horolog.broker.cluster.relaying import Relay
from horolog.broker.cluster.remote_admission import RemoteAdmission
from horolog.broker.cluster.roles import Roles
from horolog.broker.cluster.stale_settings import StaleSettings
from horolog.broker.follow_state import FollowState
from horolog.broker.opening import OpenedLogs
from horolog.broker.partitions import Partitions
from horolog.broker.settings import LiveSettings
from horolog.client.config import Address
from horolog.client.fetch_session import FetchingReplica
from horolog.client.security import Security
from horolog.clock import Clock
from horolog.config import BrokerConfig, Endpoint, Settings
from horolog.errors import ErrorCode, RequestRefused, StorageFailed, listed
from horolog.metadata.image_changes import Changes
from horolog.metadata.rows import Stored
from horolog.metadata.topics import Topic, TopicRegistry
from horolog.storage.files import Files
from horolog.storage.log_dir.log_dir import LogDir, OpeningProgress
from horolog.storage.names import TRANSACTION_STATE, TopicPartition
from horolog.wire.api import Versions
from horolog.wire.features import REPLICATION

if TYPE_CHECKING:
    from horolog.broker.broker import BrokerParts, Resources

_LOG = logging.getLogger(__name__)

_MOST_NAMED: Final = 5
_KRAFT_VERSION: Final = "kraft.version"


class ClusterNode:
    """A broker of a cluster. For the event loop's thread only.

    Public parts are for the other modules of the cluster, handlers, and tests.
    """

    def __init__(self, settings: Settings, clock: Clock, directory: ClusterDirectory) -> None:
        """Use `begin`."""
        config = settings.broker_config()
        assert config.cluster is not None
        self.settings = settings
        self.membership = membership = Membership(config, clock, directory)
        self.config = config.cluster
        self.node_id = config.node_id
        self.cluster_id = directory.cluster_id
        self.directory_id = directory.directory_id
        self.between = _between(config.advertised_listeners, config.inter_broker_listener_name)
        """Advertised endpoint of the listener for brokers."""
        self.follow_state = FollowState(Stored([], []))
        self.view = membership.view
        self.known, self.controllers = membership.known, membership.controllers
        self.failed = membership.failed
        """Done once the node has to stop, with the reason."""
        self.placement: ClusterPlacement
        self.leaders: Leaders
        self.followers: ReplicaFetchers
        self.roles: Roles
        self.relay = Relay(self.controllers, self.view)
        self.producer_ids = BlockProducerIds(
            self.controllers.ask, self.node_id, self.membership.broker_epoch
        )
        self.internal = InternalTopics(
            self.node_id, self.directory_id, config, self.controllers.ask, clock.monotonic_ms
        )
        self._to_brokers = Security.of(self.config.broker_security)
        self.others = OtherBrokers(self._to_brokers, client_id=f"broker-{self.node_id}-txn")
        self.lost: tuple[str, ...] = ()
        self._clock = clock
        self._directory = directory
        self._broker: BrokerParts | None = None
        self._admission: RemoteAdmission | None = None
        self._obeying: ObeyingParts | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def life(self) -> Life:
        """Registration and heartbeats, once the broker has registered."""
        assert self.membership.life is not None
        return self.membership.life

    def status(self) -> str:
        """Return why the broker is not unfenced, in a sentence."""
        return self.membership.status()

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

    # --- start ------------------------------------------------------------------------

    async def join(self, bound: Sequence[Endpoint]) -> None:
        """Join the cluster; return once the image has this broker's registration.

        Args:
            bound: listeners with their ports.

        Raises:
            HorologError: it cannot join; the message says why.
        """
        image = self.view.image

        def look(changes: Changes) -> None:
            """Say at once that new partitions are kept away: any may be placed meanwhile."""
            cordoned = self.internal.cordoned
            self.internal.look(image, changes)
            if self.internal.cordoned != cordoned and self.membership.life is not None:
                self.membership.life.beat_now()

        self.view.on_changes.append(look)
        await self.membership.join(bound, self.internal)
        self.membership.recover()

    async def open_logs(self, resources: "Resources", progress: OpeningProgress) -> OpenedLogs:
        """Open the logs of this broker's replicas with the settings of the image.

        Raises:
            Misconfigured: a setting is unusable.
            StorageFailed: the disk refused, or a replica cannot be opened.
        """
        image = self.view.image
        rules = TopicSettings(self.node_id, self.settings.static)
        rules.look(image)
        topics = tuple(await rules.topics(image))
        by_name = {topic.name: topic for topic in topics}
        assigned = {
            TopicPartition(topic.name, index): topic.topic_id
            for topic in topics
            if topic.topic_id in image.by_id  # else deleted meanwhile
            for index, placed in image.by_id[topic.topic_id].partitions.items()
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
        if log_dir.unreadable:
            # Unfenced, it would be elected for them, and the partitions had no leader.
            await self._loop.run_in_executor(resources.workers, log_dir.close)
            raise StorageFailed(_refusal(log_dir.unreadable))
        return OpenedLogs(
            settings=settings,
            log_dir=log_dir,
            topics=topics,
            stored=Stored([], []),
            state_dir=Path(self._directory.path),
            group_settings={},
            login_secret=self._login_secret,
        )

    def _login_secret(self) -> bytes:
        """Return what all horologs of the cluster know, over restarts, and clients do not.

        Compared with another broker, a salt must not say whether its user exists. Passwords of
        users would not do: with their hashes one could be guessed from a salt.
        """
        directories = [
            directory.bytes
            for broker in self.view.image.brokers.values()
            for directory in broker.log_dirs
        ]
        return min(directories, default=self.directory_id.bytes)

    def place(
        self, live: LiveSettings, topics: TopicRegistry, partitions: Partitions
    ) -> ClusterPlacement:
        """Return the placement by the image."""
        self.placement = ClusterPlacement(
            self.node_id, self.view, partitions, self.membership.may_lead
        )
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
        broker.groups.is_elsewhere = True
        self._admission = broker.other_coordinators = RemoteAdmission(
            self.others.ask,
            lambda key: self.placement.coordinator(TRANSACTION_STATE, key, self.between),
            broker.partitions,
            broker.catalogue.live,
            OwnRights(self._to_brokers),
        )
        live, partitions = broker.catalogue.live, broker.partitions
        epoch = self.membership.broker_epoch
        self.leaders = broker.replicas = Leaders(
            self.node_id,
            self.view,
            self.controllers.ask,
            epoch,
            self._clock,
            lag_max_ms=self.config.replica_lag_time_max_ms,
        )
        self.followers = ReplicaFetchers(
            FetchingReplica(self.node_id, epoch),
            self._address_of,
            lambda: self.view.image.metadata_version,
            live,
            self._to_brokers,
            self._clock,
            partitions.clocks,
        )
        self._directories = DirectoryAssignments(
            self.node_id,
            self.directory_id,
            self.view,
            self.controllers.ask,
            epoch,
        )
        self.roles = Roles(
            self.node_id,
            self.view,
            broker.topics,
            partitions,
            self.leaders,
            self.followers,
            self._directories,
            on_failure=self.lose_directory,
        )
        broker.condition = ClusterCondition(
            self.node_id,
            self.view,
            partitions,
            self.leaders,
            self.life,
            internal=lambda: self.internal.complaints,
            why_no_controller=lambda: self.known.complaint,
            refused=lambda: self.roles.complaints,
        )

    def _address_of(self, node_id: int) -> Address | None:
        """Return the address of another broker's listener for brokers."""
        broker = self.view.broker(node_id)
        for endpoint in () if broker is None else broker.endpoints:
            if endpoint.name == self.between.name:
                return Address(endpoint.host, endpoint.port)
        return None

    async def load(self) -> None:
        """Apply the image to the parts of the broker, from now on each change of it."""
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

    def reload(
        self,
        load_tls: Callable[[BrokerConfig], Awaitable[Callable[[], None]]],
        on_altered: Callable[[], object],
    ) -> None:
        """Apply altered settings to the listeners, too."""
        assert self._obeying is not None
        self._obeying.load_tls, self._obeying.on_altered = load_tls, on_altered

    async def start(self) -> None:
        """Take the roles of all replicas, and wait until the controllers have unfenced the broker.

        Raises:
            HorologError: the node has to stop instead.
        """
        assert self._broker is not None
        partitions = self._broker.partitions
        for partition in partitions.values():
            if partition.log.is_in_doubt:  # since an earlier process
                await partition.flush()
        partitions.on_failure(self._look_at_disk_soon)
        self.leaders.start(self.membership.on_ended)
        await self.roles.start()
        stale = StaleSettings(self.node_id, self.view.image, self.controllers.ask)
        self.view.on_changes.append(stale.look)
        for running in (
            self._checkpoint(),
            self.internal.run(),
            stale.run(),
        ):
            self.membership.run(running)
        await self.membership.unfence()

    # --- while it runs ----------------------------------------------------------------

    @property
    def claims(self) -> Mapping[str, Versions]:
        """Features of Kafka that this broker can have finalised."""
        return {name: levels for name, levels in CLAIMS.items() if name != REPLICATION}

    @property
    def levels(self) -> Mapping[str, int]:
        """Levels that the controllers have finalised; 0 is absent."""
        levels, kraft = self.view.features, self.membership.kraft_version
        return {**levels, _KRAFT_VERSION: kraft} if kraft else levels

    @property
    def levels_epoch(self) -> int:
        """Offset of the last metadata record that is applied."""
        return self.view.offset - 1

    def lose_directory(self, why: str) -> None:
        """Report the log directory offline, so that others lead, and stop the node."""
        self.membership.fail(StorageFailed(why))

    def _look_at_disk_soon(self) -> None:
        self._loop.call_soon_threadsafe(self._look_at_disk)

    def _look_at_disk(self) -> None:
        """Stop the node if the disk refuses a write of a partition."""
        assert self._broker is not None
        why = self._broker.partitions.failure
        if why is not None:
            self.lose_directory(why)

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

    # --- stop -------------------------------------------------------------------------

    async def stop(self, *, is_clean: bool) -> None:
        """Let the controllers move the leaders elsewhere, then stop following metadata.

        Requests are still answered meanwhile. Unless it `is_clean`, nothing is asked of the
        controllers.
        """
        if is_clean:
            await self.membership.leave()
        if self._broker is not None:
            await self.roles.close()
            await self._directories.close()
            await self.followers.close()
            await self.leaders.close()
        await self.membership.stop()

    @property
    def broker_epoch(self) -> int:
        """Epoch for the marker of a clean stop: only if the controllers have granted the stop."""
        return self.membership.granted_epoch

    async def close(self) -> None:
        """Close the connections, and unlock the directory."""
        self.relay.close()
        if self._admission is not None:
            await self._admission.close()
        await self.producer_ids.close()
        await self.others.close()
        await self.membership.close()
        self._directory.lock.close()


def _refusal(unreadable: Mapping[TopicPartition, str]) -> str:
    """Return why a broker with replicas that cannot be opened does not start."""
    for partition, why in unreadable.items():
        _LOG.error("%s cannot be opened: %s", partition, why)
    directories = listed([str(partition) for partition in unreadable], _MOST_NAMED)
    why = next(iter(unreadable.values()))
    return (
        f"replicas of this broker cannot be opened: {directories} ({why}). The broker stays out of "
        "the cluster, so that others lead. Repair the disk, or move these directories out of "
        "log.dirs: where another replica leads, it fills them again; else their records are lost"
    )


def _between(endpoints: Sequence[Endpoint], name: str) -> Endpoint:
    return next(endpoint for endpoint in endpoints if endpoint.name == name)
