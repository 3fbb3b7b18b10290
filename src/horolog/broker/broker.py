"""The broker without its sockets: the parts that request handlers use.

Each part of the state has one owner: partitions and their log directory, topics, settings, groups,
the metadata store behind its thread. A part depends on those it is built from and never on the
broker; `BrokerParts.open` creates them in that order. All calls happen on one event loop.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from horolog.broker.alone import AloneNode, NodeParts
from horolog.broker.append_warnings import LOOK_INTERVAL_MS, AppendWarnings
from horolog.broker.audit import LoginCounts
from horolog.broker.authorisation import Access
from horolog.broker.background_tasks import BackgroundTasks, PeriodicTask
from horolog.broker.catalogue import Catalogue
from horolog.broker.cleaner import Cleaner
from horolog.broker.controller import Controller
from horolog.broker.coordinators.admission import OtherCoordinators, ProducerTurns
from horolog.broker.coordinators.group_coordinator import GroupCoordinator
from horolog.broker.coordinators.group_lag import SAMPLE_INTERVAL_MS, GroupLags
from horolog.broker.coordinators.live_groups import ConsumerRules
from horolog.broker.coordinators.offsets_log import OffsetsLog
from horolog.broker.coordinators.open_transactions import OpenTransactions
from horolog.broker.coordinators.state_topics import StateTopic
from horolog.broker.coordinators.transaction_coordinator import (
    TransactionCoordinator,
)
from horolog.broker.coordinators.transaction_markers import LocalMarkers
from horolog.broker.faults import Faults
from horolog.broker.fetch_sessions import FetchSessions
from horolog.broker.kept_memory import KeptMemory
from horolog.broker.open_files import share_out
from horolog.broker.opening import OpenedLogs, open_storage
from horolog.broker.partition import Partition, log_failure
from horolog.broker.partitions import STAMP_CLOCK_MS, Partitions
from horolog.broker.placement.alone import advertised
from horolog.broker.producers import ProducerClients
from horolog.broker.recent_histories import RecentHistories
from horolog.broker.scheduling.delayed import Delayed, Waiting
from horolog.broker.scheduling.fair_pool import Checkers, FairPool
from horolog.broker.settings import LiveSettings
from horolog.broker.shadow.shadow import Shadow
from horolog.broker.throttling import Throttling
from horolog.broker.token_logins import TokenLogins
from horolog.broker.traffic import Conversions
from horolog.clock import Clock, SystemClock
from horolog.config import BrokerConfig, Endpoint, Settings
from horolog.errors import ErrorCode, RequestRefused
from horolog.groups.capacity import Capacity
from horolog.groups.consumers.values import ConsumerLimits, MigrationPolicy
from horolog.groups.values import GroupLimits
from horolog.metadata.topics import TopicRegistry
from horolog.network.reply import FileSlots
from horolog.quotas.model import Quotas
from horolog.quotas.windows import QuotaWindow
from horolog.record.compression import Codec
from horolog.rights.model import Rights
from horolog.schemas.metadata import (
    GROUP_VERSION,
    METADATA_VERSION,
    OLDEST_LEVEL,
    TRANSACTION_VERSION,
)
from horolog.storage.log_dir.log_dir import OpeningProgress
from horolog.storage.logs.appendable import Appended
from horolog.storage.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from horolog.wire.api import ApiKey

if TYPE_CHECKING:
    from horolog.broker.cluster.condition import ClusterCondition
    from horolog.broker.cluster.leading import Leaders
    from horolog.broker.cluster.node import ClusterNode
    from horolog.broker.cluster.relaying import Relay

_LOG = logging.getLogger(__name__)

WORKERS: Final = 4
READERS: Final = 4
SEARCHERS: Final = 2  # lookups may decompress as much as batches hold


class Resources:
    """Threads, and shares of the files that may be open. They exist before the broker."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.open_files = share_out()
        self.slices_to_send = FileSlots(self.open_files.answers)
        self.readers = ThreadPoolExecutor(READERS, thread_name_prefix="horolog-read")
        self.workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="horolog-write")
        self.token_logins = TokenLogins(clock.now_ms, self.readers)

    async def close(self) -> None:
        """End the threads. It may be called again."""
        await self.token_logins.close()
        self.workers.shutdown()
        self.readers.shutdown()


class BrokerParts:
    """One broker. Its parts are public for handlers and tests."""

    def __init__(self, opened: OpenedLogs, resources: Resources, node: NodeParts) -> None:
        """Build the parts on the event loop that will serve; take ownership of `opened`."""
        live = self._live = LiveSettings(opened.settings, opened.group_settings)
        config, clock = live.config, resources.clock
        readers, workers = resources.readers, resources.workers
        self.node = node
        self.cluster: ClusterNode | None = None
        """The node, where it is part of a cluster."""
        self.clock = clock
        self.log_dir_path = Path(config.log_dir)
        self.state_dir_path = opened.state_dir
        self._resources = resources
        self.open_files = resources.open_files
        self.slices_to_send = resources.slices_to_send
        self.readers = readers
        self._checkers = Checkers()
        self.searchers = FairPool(SEARCHERS, "horolog-search")
        self.recent_histories = RecentHistories()
        self.fetch_sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots, clock.monotonic_ms
        )
        self._delayed: dict[Waiting, None] = {}  # requests that wait
        self._ends_delayed = False  # true once the broker stops
        self.topics = TopicRegistry(config.broker_rack)
        for topic in opened.topics:
            self.topics.put(topic)
        self.partitions = Partitions(
            opened.log_dir, opened.topics, live, clock, workers, self._checkers
        )
        codec = Codec(config.offsets_topic_compression_codec)
        self.offsets_log = OffsetsLog(clock, workers, codec)
        self.groups = GroupCoordinator(
            _group_limits(config),
            self.offsets_log,
            clock,
            Capacity(config.horolog_groups_max_bytes),
            ConsumerRules(
                _consumer_limits(config),
                live.of_group,
                self.topics,
                lambda: self.follow_state.source is not None,
            ),
        )
        self.kept_commits = KeptMemory()
        self.group_lags = GroupLags(self.partitions, self.groups.offsets, clock)
        self.follow_state = node.follow_state
        self.placement = node.place(live, self.topics, self.partitions)
        self.led = self.placement.led
        self.entries = Rights(
            config.super_users,
            allow_without_entries=config.allow_everyone_if_no_acl_found,
        )
        for entry_id, entry in opened.stored.entries.items():
            self.entries.add(entry_id, entry)
        self.access = Access(self.entries if config.authorizer_class_name else None)
        self.credentials = dict(opened.stored.credentials)
        """Keys that check passwords, by user and number of the mechanism."""
        self.login_secret = opened.login_secret
        self.token_logins = resources.token_logins
        self.login_counts = LoginCounts()
        quotas = Quotas(
            QuotaWindow(config.quota_window_num, 1000 * config.quota_window_size_seconds),
            QuotaWindow(
                config.controller_quota_window_num,
                1000 * config.controller_quota_window_size_seconds,
            ),
        )
        for (entity, key), value in opened.stored.quotas.items():
            quotas.put(entity, key, value)
        self.quotas = Throttling(quotas)
        catalogue = self.catalogue = Catalogue(
            live, clock, self.topics, self.partitions, self.follow_state
        )
        self.offsets_topic, self.transactions_topic = (
            StateTopic(name, node.ensure_internal, catalogue, readers)
            for name in (CONSUMER_OFFSETS, TRANSACTION_STATE)
        )
        self.offsets_log.write_to(self.offsets_topic)
        self.producer_ids = node.producer_ids
        self.producer_clients = ProducerClients()
        self.producer_turns = ProducerTurns()
        self.replicas: Leaders | None = None
        """Notes the fetches of replicas; None where this broker is alone."""
        self.other_coordinators: OtherCoordinators | None = None
        """Coordinators of transactions where they are other brokers of a cluster."""
        self.markers = LocalMarkers(catalogue, self.groups)
        self.transactions = TransactionCoordinator(
            live,
            self.transactions_topic,
            self.markers,
            self.producer_ids.next,
            clock,
        )
        self.open_transactions = OpenTransactions(
            self.topics, self.transactions, lambda: self.other_coordinators is None
        )
        self.relay: Relay | None = None
        """Passes requests on to the controllers of a cluster; None where the broker is alone."""
        self.condition: ClusterCondition | None = None
        """Condition of the broker in its cluster; None where it is alone."""
        self.faults: Faults | None = None
        """The faults that tests set; None where the broker was started without them."""
        self.left_behind = opened.left_behind
        self.lost_metadata = node.lost
        self.traffic = self.partitions.traffic
        self.conversions = Conversions(self.traffic)
        self.append_warnings = AppendWarnings(catalogue)
        self.cleaner = Cleaner(catalogue)
        others = (
            PeriodicTask(self.partitions.keep_stamp_clock, STAMP_CLOCK_MS, STAMP_CLOCK_MS),
            PeriodicTask(self.append_warnings.warn_of_appends, LOOK_INTERVAL_MS, LOOK_INTERVAL_MS),
            PeriodicTask(self.group_lags.sample, SAMPLE_INTERVAL_MS, 0),
        )
        self.background_tasks = BackgroundTasks(
            catalogue,
            self.groups,
            self.transactions,
            others,
            self.cleaner,
            node.lose_directory,
            readers,
        )
        node.compose(self)

    # --- open and close ---------------------------------------------------------------

    @classmethod
    async def open(
        cls,
        settings: Settings,
        clock: Clock | None = None,
        progress: OpeningProgress | None = None,
    ) -> Self:
        """Open the log directory with its metadata; `progress` counts its logs meanwhile.

        Raises:
            Misconfigured: a directory or a setting is unusable.
            StorageFailed: a read or write failed.
        """
        resources = Resources(SystemClock() if clock is None else clock)
        loop = asyncio.get_running_loop()
        try:
            await resources.token_logins.start(settings.broker_config().logins.values())
            most_files, workers = resources.open_files.logs, resources.workers
            opened = await loop.run_in_executor(
                workers, open_storage, settings, resources.clock, most_files, progress
            )
            try:
                return await cls._loaded(opened, resources, AloneNode(opened))
            except BaseException:
                await loop.run_in_executor(workers, opened.close)
                raise
        except BaseException:
            await resources.close()
            raise

    @classmethod
    async def join(
        cls, node: "ClusterNode", resources: Resources, progress: OpeningProgress
    ) -> Self:
        """Open the logs of a node that has joined a cluster.

        Raises:
            Misconfigured: a setting is unusable.
            StorageFailed: a read or write failed.
        """
        await resources.token_logins.start(node.settings.broker_config().logins.values())
        opened = await node.open_logs(resources, progress)
        try:
            return await cls._loaded(opened, resources, node)
        except BaseException:
            await asyncio.to_thread(opened.log_dir.close, clean=False)
            raise

    @classmethod
    async def _loaded(cls, opened: OpenedLogs, resources: Resources, node: NodeParts) -> Self:
        broker = cls(opened, resources, node)
        await node.load()
        return broker

    def end_waits(self) -> None:
        """Complete all delayed fetches and waiting group requests, now and from now on."""
        self._ends_delayed = True
        for delayed in list(self._delayed):
            delayed.end()
        self.groups.release_waiters()
        self.token_logins.end_waits()

    async def close(self, *, clean: bool = True) -> None:
        """Complete queued writes and close the logs.

        Without `clean` the next start is as after a crash.
        """
        await self.token_logins.close()
        await self.transactions.close()
        await self.groups.close()
        await self.partitions.close(clean=clean, broker_epoch=self.node.broker_epoch)
        await self.node.close()
        self._checkers.shutdown()
        self.searchers.shutdown()
        await self._resources.close()

    # --- for request handlers ---------------------------------------------------------

    @property
    def controller(self) -> Controller:
        """Part that changes topics and settings of a node alone.

        Raises:
            RequestRefused: the controllers of a cluster do that.
        """
        return self._alone.controller

    @property
    def shadow(self) -> Shadow:
        """Part of a node alone that follows another cluster.

        Raises:
            RequestRefused: this broker is part of a cluster.
        """
        return self._alone.shadow

    @property
    def _alone(self) -> AloneNode:
        if not isinstance(self.node, AloneNode):
            raise RequestRefused(
                ErrorCode.not_controller,
                "This broker is part of a cluster, whose controllers make such changes",
            )
        return self.node

    @property
    def group_settings(self) -> Mapping[str, Mapping[str, str]]:
        """Settings of single groups; those without any are absent."""
        return self._live.groups

    @property
    def client_metrics(self) -> Mapping[str, Mapping[str, str]]:
        """Settings of subscriptions to clients' metrics; a node alone has none."""
        return self._live.client_metrics

    @property
    def settings(self) -> Settings:
        """Current settings as given."""
        return self._live.settings

    @property
    def config(self) -> BrokerConfig:
        """Current effective settings."""
        return self._live.config

    @property
    def cluster_id(self) -> str:
        """Cluster id in `meta.properties` of the log directory."""
        return self.partitions.cluster_id

    @property
    def transaction_version(self) -> int:
        """Finalised level of the feature `transaction.version`."""
        return self.node.levels.get(TRANSACTION_VERSION, 0)

    @property
    def group_version(self) -> int:
        """Finalised level of the feature `group.version`: 1 is that of consumer groups."""
        return self.node.levels.get(GROUP_VERSION, 0)

    @property
    def serves_consumer_protocol(self) -> bool:
        """True if members of consumer groups are served (KIP-848)."""
        protocols = self.config.group_coordinator_rebalance_protocols
        return bool(self.group_version) and "consumer" in protocols

    @property
    def metadata_version(self) -> int:
        """Finalised level of the feature `metadata.version`."""
        return self.node.levels.get(METADATA_VERSION, OLDEST_LEVEL)

    def endpoint(self, listener: Endpoint) -> Endpoint:
        """Return the advertised endpoint of a listener."""
        return advertised(self.config, listener)

    def note_appended(
        self, partition: Partition, appended: Appended, version: int, client_id: str, host: str
    ) -> None:
        """Follow up on an append: flush rolled segments, warn of timestamps, count conversions."""
        if appended.duplicate:
            _LOG.debug("%s: a retry of what is in the log was answered", partition.name)
        if appended.rolled:
            partition.flush_rolled().add_done_callback(log_failure)
        if appended.remarks is None:
            return
        self.append_warnings.note(partition, appended, client_id, host)
        count, topic = appended.last_offset - appended.base_offset + 1, partition.topic
        if appended.remarks.expired_ms > 0:
            self.traffic.expired_on_arrival.add(topic, count)
        if appended.remarks.is_converted:
            self.conversions.note(ApiKey.PRODUCE, version, client_id, host, topic, count)
        if appended.remarks.new_producer is not None:
            self.producer_clients.note(*appended.remarks.new_producer, client_id)

    @contextmanager
    def delay(self, delayed: Delayed) -> Iterator[Delayed]:
        """Register a delayed fetch, so that a stop of the broker completes it."""
        self.begin_wait(delayed)
        try:
            yield delayed
        finally:
            self.end_wait(delayed)
            delayed.close()

    def begin_wait(self, waiting: Waiting) -> None:
        """Register a request that waits, so that a stop of the broker completes it."""
        self._delayed[waiting] = None
        if self._ends_delayed:
            waiting.end()

    def end_wait(self, waiting: Waiting) -> None:
        """Note that a request waits no more."""
        self._delayed.pop(waiting, None)


def _consumer_limits(config: BrokerConfig) -> ConsumerLimits:
    policy = config.group_consumer_migration_policy.lower()
    return ConsumerLimits(
        assignors=config.group_consumer_assignors,
        max_size=config.group_consumer_max_size,
        max_bytes=config.horolog_group_max_bytes,
        max_classic_size=config.group_max_size,
        regex_refresh_ms=config.group_consumer_regex_refresh_interval_ms,
        policy=MigrationPolicy(
            upgrade=policy in ("upgrade", "bidirectional"),
            downgrade=policy in ("downgrade", "bidirectional"),
        ),
    )


def _group_limits(config: BrokerConfig) -> GroupLimits:
    return GroupLimits(
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        max_size=config.group_max_size,
        max_bytes=config.horolog_group_max_bytes,
    )
