"""What a broker has and can do, apart from its sockets: handlers and background tasks work on this.

State lives in parts, each with one keeper: logs in `storage`, topics and settings in
`metadata`, groups in `groups`, their file behind `Broker.metadata`. All but the threads'
work happens on the event loop that called `open`.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final, TypeVar

from horolog.broker.adopted_settings import compacting, obeyed_settings
from horolog.broker.background_tasks import BackgroundTasks
from horolog.broker.controller import Controller
from horolog.broker.group_coordinator import GroupCoordinator
from horolog.broker.metadata_thread import MetadataThread
from horolog.broker.open_files import share_out
from horolog.broker.partition import Partition, Written
from horolog.broker.producer_ids import ProducerIds
from horolog.broker.timestamp_warnings import TimestampWarnings
from horolog.broker.waiting import Wait
from horolog.clock import Clock, SystemClock
from horolog.config import BrokerConfig, Endpoint, Settings, TopicConfig
from horolog.errors import HorologError, StorageFailed
from horolog.groups.capacity import Capacity
from horolog.groups.values import GroupLimits
from horolog.metadata.reconcile import Found, Plan, reconcile
from horolog.metadata.store import BROKER_SCOPE, FILE_NAME, MetadataStore, Stored
from horolog.metadata.topics import Topic, Topics, unknown_topic
from horolog.network.file_records import FileSlots
from horolog.storage.adoption.cluster_metadata import read_topic_settings
from horolog.storage.files import Files
from horolog.storage.log import Log
from horolog.storage.log_dir import FoundPartitions, LogDir, ensure_directory
from horolog.storage.names import TopicPartition

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

WORKERS: Final = 4
READERS: Final = 4


class Broker:
    """One broker. Its parts are public for handlers, background tasks and tests."""

    groups: GroupCoordinator
    producer_ids: ProducerIds
    controller: Controller
    metadata: MetadataThread
    timestamp_warnings: TimestampWarnings

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.config: BrokerConfig = settings.broker_config()
        self.clock: Clock = SystemClock() if clock is None else clock
        self.log_dir_path = Path(self.config.log_dir)
        self.open_files = share_out()
        self.slices_to_send = FileSlots(self.open_files.answers)
        self.topics = Topics()
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.readers: Executor = ThreadPoolExecutor(READERS, thread_name_prefix="horolog-read")
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="horolog-write")
        self._store: MetadataStore | None = None
        self._log_dir: LogDir | None = None
        self._waits: dict[Wait, None] = {}
        self._ends_waits = False
        self._overrides: dict[str, dict[str, str]] = {}  # of every topic that was there at start
        self._compacted: set[str] = set()  # by a Kafka that had this directory
        self.background_tasks = BackgroundTasks(self)

    # --- open and close ---------------------------------------------------------------

    async def open(self) -> None:
        """Open the log directory, and bring it and what is remembered together.

        Raises:
            Misconfigured: a directory or a setting that cannot be used.
            StorageFailed: the disk refused.
        """
        loop = asyncio.get_running_loop()
        try:
            stored, plan = await loop.run_in_executor(self._workers, self._open)
            self._take_up(stored, plan)
        except BaseException:
            await self._close(clean=False)
            raise

    def end_waits(self) -> None:
        """Have all answered that wait for something to happen, or would from now on."""
        self._ends_waits = True
        for wait in list(self._waits):
            wait.end()
        self.groups.release_waiters()

    async def close(self, *, clean: bool = True) -> None:
        """Finish what is queued, and close the logs; not `clean`, as a kill would leave them."""
        await self.groups.close()
        for partition in self.partitions.values():
            await partition.close()
        await self._close(clean=clean)

    async def _close(self, *, clean: bool) -> None:
        loop = asyncio.get_running_loop()
        if self._log_dir is not None:
            log_dir, self._log_dir = self._log_dir, None
            for failure in await loop.run_in_executor(
                self._workers, lambda: log_dir.close(clean=clean)
            ):
                _LOG.error("not closed cleanly, the next start will recover it: %s", failure)
        if self._store is not None:
            store, self._store = self._store, None
            if hasattr(self, "metadata"):
                await self.metadata.close()
            else:
                store.close()
        self._workers.shutdown()
        self.readers.shutdown()

    def _open(self) -> tuple[Stored, Plan]:
        """All that waits for the disk at a start."""
        ensure_directory(self.log_dir_path)
        store = self._store = MetadataStore(self.log_dir_path / FILE_NAME)
        stored = store.load()
        self._apply_stored_settings(stored)
        self._overrides = _topic_overrides(stored)
        self._take_over_settings({row.name for row in stored.topics if not row.adopted})
        plan = Plan()
        owned: dict[str, uuid.UUID] = {}

        def choose(found: FoundPartitions) -> Mapping[TopicPartition, str]:
            nonlocal plan
            plan = self._reconciled(stored, found)
            owned.update((row.name, row.topic_id) for row in plan.rows if not row.adopted)
            return {TopicPartition(*key): why for key, why in plan.left_alone.items()}

        log_dir = self._log_dir = LogDir.open(
            self.log_dir_path,
            broker_config=self.config,
            topic_config=self._config_at_start,
            now_ms=self.clock.now_ms(),
            choose=choose,
            is_ours=owned.__contains__,
            topic_id=owned.get,
            files=Files(max_open=self.open_files.logs),
        )
        for recovery in log_dir.recoveries:
            for note in recovery.notes:
                _LOG.info("%s", note)
            for warning in recovery.warnings:
                _LOG.warning("%s", warning)
        for partition, why in log_dir.unreadable.items():
            _LOG.error("%s is not served: %s", partition, why)
        self._carry_out(plan, store, log_dir)
        return stored, plan

    def _reconciled(self, stored: Stored, found: FoundPartitions) -> Plan:
        by_topic: dict[str, tuple[dict[int, uuid.UUID | None], dict[int, str]]] = {}
        for (topic, index), topic_id in found.ids.items():
            by_topic.setdefault(topic, ({}, {}))[0][index] = topic_id
        for (topic, index), why in found.blocked.items():
            by_topic.setdefault(topic, ({}, {}))[1][index] = why
        return reconcile(
            stored.topics,
            {topic: Found(*both) for topic, both in by_topic.items()},
            new_id=uuid.uuid4,
            adopt_defaults=self.config.horolog_adopt_defaults,
            compacted=self._compacted,
            internal=found.internal,
        )

    def _take_over_settings(self, owned: Collection[str]) -> None:
        """Of topics that are only adopted: what their Kafka had set, as far as we obey it.

        It is asked anew at every start, for that Kafka may have been back in between.
        """
        for topic, given in read_topic_settings(Files(read_only=True), self.log_dir_path).items():
            if topic in owned:
                continue
            if "compact" in given.get("cleanup.policy", "").split(","):
                self._compacted.add(topic)
            self._overrides[topic] = obeyed_settings(self.settings, given)

    def _config_at_start(self, topic: str) -> TopicConfig:
        config = self.settings.topic_config(self._overrides.get(topic))
        return compacting(config) if topic in self._compacted else config

    def _apply_stored_settings(self, stored: Stored) -> None:
        """Dynamic settings of the last run, for all brokers and for this one."""
        layers: dict[str, dict[str, str]] = {}
        for row in stored.settings:
            if row.scope == BROKER_SCOPE:
                layers.setdefault(row.resource, {})[row.name] = row.value
        self.settings = replace(
            self.settings,
            dynamic_default=layers.get("", {}),
            dynamic_broker=layers.get(str(self.config.node_id), {}),
        )
        self.config = self.settings.broker_config()

    def _carry_out(self, plan: Plan, store: MetadataStore, log_dir: LogDir) -> None:
        now_ms = self.clock.now_ms()
        for warning in plan.warnings:
            _LOG.warning("%s", warning)
        if plan.adopted and not self.config.horolog_adopt_defaults:
            _LOG.warning(
                "adopted %d topic(s) that were not written here, and of which nothing expires "
                "until they are given settings: %s",
                len(plan.adopted),
                ", ".join(plan.adopted),
            )
        undeleted = set()
        for name, doomed in groupby(plan.delete, key=itemgetter(0)):
            try:
                log_dir.delete([TopicPartition(*key) for key in doomed], self.clock.monotonic_ms())
            except StorageFailed as error:
                _LOG.error("%s is deleted in part, the next start goes on: %s", name, error)
                undeleted.add(name)
        for name in plan.forget:
            if name not in undeleted:
                store.forget_topic(name)
        for row in plan.put:
            if row.name not in undeleted:
                store.put_topic(row)
        ids = {row.name: row.topic_id for row in plan.rows}
        for name, missing in groupby(plan.create, key=itemgetter(0)):
            indexes = [index for _, index in missing]
            config = self._config_at_start(name)
            try:
                log_dir.create_all(name, indexes, ids[name], config, now_ms)
            except StorageFailed as error:
                _LOG.error("partitions %s of %s are offline: %s", indexes, name, error)
        for row in plan.rows:
            for index in plan.partitions[row.name]:
                log = log_dir.logs.get(TopicPartition(row.name, index))
                if log is not None:
                    log.retention_exempt = row.adopted

    def _take_up(self, stored: Stored, plan: Plan) -> None:
        """Serve what was opened."""
        assert self._store is not None
        assert self._log_dir is not None
        for row in plan.rows:
            self.topics.put(
                Topic(
                    name=row.name,
                    topic_id=row.topic_id,
                    partitions=plan.partitions[row.name],
                    overrides=self._overrides.get(row.name, {}),
                    adopted=row.adopted,
                    compacted=row.name in self._compacted,
                )
            )
        for (topic, index), log in self._log_dir.logs.items():
            if index in plan.partitions.get(topic, ()):
                self._serve_partition(log)
        self.metadata = MetadataThread(self._store)
        self.controller = Controller(self, self._store)
        self.groups = GroupCoordinator(
            _group_limits(self.config),
            self.metadata,
            self.clock,
            stored.groups,
            [row for row in stored.offsets if row.topic in self.topics],
            capacity=Capacity(self.config.horolog_groups_max_bytes),
        )
        highest = max(
            (id_ for log in self._log_dir.logs.values() for id_, _ in log.producers), default=-1
        )
        self.producer_ids = ProducerIds(self.metadata, self._store, highest + 1)
        self.timestamp_warnings = TimestampWarnings(
            self.config.horolog_timestamp_warn_ahead_ms, self.clock, self.partitions
        )

    # --- what handlers ask for --------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        """The id in the log directory's meta.properties."""
        assert self._log_dir is not None
        return str(self._log_dir.meta.cluster_id)

    def endpoint(self, listener: Endpoint) -> Endpoint:
        """What clients of a listener are told to connect to."""
        named = [e for e in self.config.advertised_listeners if e.name == listener.name]
        for endpoint in named:
            if (":" in endpoint.host) == (":" in listener.host):
                named = [endpoint]
                break
        told = named[0]
        return told if told.port else told._replace(port=listener.port)

    def partition(self, topic: str, index: int) -> Partition:
        """A partition that is served, or its refusal."""
        partition = self.partitions.get((topic, index))
        if partition is None:
            known = self.topics.find(topic)
            if known is not None and index in known.partitions:
                raise StorageFailed(f"{topic}-{index} is offline: its log could not be read")
            raise unknown_topic(topic)
        return partition

    def at_once(self, look: Callable[[], T]) -> T:
        """Look something up in the logs on the event loop, as long as that waits for no disk.

        Raises:
            WouldWait: it did not go without.
        """
        assert self._log_dir is not None
        return self._log_dir.at_once(look)

    def note_written(self, partition: Partition, written: Written) -> None:
        """See to what an append leaves to be done."""
        if written.appended.duplicate:
            _LOG.debug("%s: a retry of what is in the log was answered", partition.name)
        if written.appended.rolled:
            partition.flush_rolled().add_done_callback(_log_failure)
        self.timestamp_warnings.note(partition, written)

    @contextmanager
    def waiting(self, wait: Wait) -> Iterator[Wait]:
        """A wait that a stop of the broker ends."""
        self._waits[wait] = None
        if self._ends_waits:
            wait.end()
        try:
            yield wait
        finally:
            del self._waits[wait]
            wait.close()

    # --- what the controller asks for -------------------------------------------------

    async def open_partitions(self, topic: Topic, indexes: Collection[int]) -> None:
        """Make and serve new partitions.

        Raises:
            StorageFailed: the disk refused; none has been made.
        """
        log_dir = self._log_dir
        assert log_dir is not None
        config, now_ms = self.settings.topic_config(topic.overrides), self.clock.now_ms()

        def create() -> None:
            log_dir.create_all(topic.name, indexes, topic.topic_id, config, now_ms)

        await asyncio.get_running_loop().run_in_executor(self._workers, create)
        for index in indexes:
            self._serve_partition(log_dir.logs[TopicPartition(topic.name, index)])

    async def claim_partitions(self, topic: Topic) -> None:
        """Have the directories of a topic's partitions carry its id.

        Raises:
            StorageFailed: the disk refused.
        """
        log_dir = self._log_dir
        assert log_dir is not None
        keys = [TopicPartition(topic.name, index) for index in topic.partitions]
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._workers, log_dir.claim, keys, topic.topic_id)

    async def remove_partitions(self, topic: Topic) -> None:
        """Serve a topic's partitions no more, and take their directories away."""
        log_dir = self._log_dir
        assert log_dir is not None
        for index in topic.partitions:
            partition = self.partitions.pop((topic.name, index), None)
            if partition is not None:
                await partition.close()

        def delete() -> None:
            log_dir.delete(
                [TopicPartition(topic.name, index) for index in topic.partitions],
                self.clock.monotonic_ms(),
            )

        await asyncio.get_running_loop().run_in_executor(self._workers, delete)

    def apply_topic_settings(self, topic: Topic) -> None:
        """Let a topic's partitions obey its settings from the next request on."""
        config = self.settings.topic_config(topic.overrides)
        if topic.compacted:
            config = compacting(config)
        for index in topic.partitions:
            partition = self.partitions.get((topic.name, index))
            if partition is not None:
                partition.obey(config, retention_exempt=topic.adopted)

    def apply_settings(self, settings: Settings) -> None:
        """Let everything obey these settings from the next request on."""
        self.settings = settings
        self.config = settings.broker_config()
        self.timestamp_warnings.warn_ahead_ms = self.config.horolog_timestamp_warn_ahead_ms
        for topic in self.topics:
            self.apply_topic_settings(topic)

    # --- what background tasks ask for ------------------------------------------------

    async def checkpoint(self) -> None:
        """Write down how far the logs are safe."""
        if self._log_dir is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._workers, self._log_dir.checkpoint)

    async def checkpoint_starts(self) -> None:
        """Write down where the logs start.

        Raises:
            StorageFailed: the disk refused.
        """
        if self._log_dir is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._workers, self._log_dir.checkpoint_starts)

    async def remove_deleted_topics(self) -> None:
        """Remove the directories of topics deleted `file.delete.delay.ms` ago."""
        if self._log_dir is not None:
            loop = asyncio.get_running_loop()
            monotonic_ms = self.clock.monotonic_ms()
            await loop.run_in_executor(self._workers, self._log_dir.remove_deleted, monotonic_ms)

    async def check_log_dir(self) -> None:
        """Refuse everything from now on if the log directory is gone."""
        if self._log_dir is None or self._store is None or self._store.refusal is not None:
            return
        loop = asyncio.get_running_loop()
        why = await loop.run_in_executor(self._workers, self._log_dir.check)
        if why is not None and self._store is not None:
            self._store.refusal = why
            _LOG.error("%s", why)

    def _serve_partition(self, log: Log) -> None:
        limit = self.config.horolog_max_batch_uncompressed_bytes
        key = (log.topic, log.partition)
        if key not in self.partitions:
            self.partitions[key] = Partition(log, self._workers, limit)


def _topic_overrides(stored: Stored) -> dict[str, dict[str, str]]:
    overrides: dict[str, dict[str, str]] = {}
    for row in stored.settings:
        if row.scope != BROKER_SCOPE:
            overrides.setdefault(row.resource, {})[row.name] = row.value
    return overrides


def _group_limits(config: BrokerConfig) -> GroupLimits:
    return GroupLimits(
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        max_size=config.group_max_size,
        max_bytes=config.horolog_group_max_bytes,
    )


def _log_failure(flushed: "asyncio.Future[None]") -> None:
    error = None if flushed.cancelled() else flushed.exception()
    if isinstance(error, HorologError):
        _LOG.error("a segment could not be flushed: %s", error)
    elif error is not None:
        raise error
