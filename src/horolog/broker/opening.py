"""Opens a log directory and its metadata, and reconciles the two.

Everything here may wait for the disk: it runs in a thread, before the broker exists. If a step
fails, everything opened before is closed again.
"""

import logging
import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

from horolog.broker.follow_state import source_of, undecided
from horolog.broker.left_behind import LeftByKafka
from horolog.broker.producers import FIRST_PRODUCER_ID
from horolog.broker.settings import (
    StoredSettings,
    compacting,
    obeyed_settings,
    read_stored_settings,
)
from horolog.clock import Clock
from horolog.config import BrokerConfig, Settings, TopicConfig
from horolog.errors import Misconfigured, StorageFailed
from horolog.metadata.adopted import read_cluster_metadata
from horolog.metadata.adopted_offsets import KafkaOffsets, read_consumer_offsets
from horolog.metadata.beside import StateBeside
from horolog.metadata.home import PROPERTIES
from horolog.metadata.open_transactions import committed_in, may_end_in
from horolog.metadata.opening import open_store
from horolog.metadata.reconcile import StartPlan, reconcile, topics_on_disk
from horolog.metadata.rows import FollowedRow, SourceRow, Stored
from horolog.metadata.state import Identity
from horolog.metadata.store import MetadataStore
from horolog.metadata.taking_over import SUPPORTED
from horolog.metadata.topics import Topic
from horolog.network.tls.contexts import TlsContexts
from horolog.schemas.metadata import BrokerEndpoint, RegisterBroker
from horolog.storage import names
from horolog.storage.directory.checkpoints import MAX_EPOCH, decode_uuid
from horolog.storage.directory.contents import earlier_files
from horolog.storage.directory.identity import is_cluster_id
from horolog.storage.directory.lock import DirectoryLock, lock_log_dir
from horolog.storage.files import Files
from horolog.storage.log_dir.log_dir import FoundPartitions, LogDir, OpeningProgress
from horolog.storage.logs.log import Log
from horolog.storage.names import TopicPartition

_NOT_SERVED: Final = names.INTERNAL_TOPICS - names.SERVED_INTERNAL
_UNASSIGNED: Final = uuid.UUID(int=1)
"""Kafka's id of an unknown directory."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedLogs:
    """Opened logs of a broker with what it knows of topics, users and rights."""

    settings: Settings
    """Given settings, with the dynamic ones."""
    log_dir: LogDir
    topics: tuple[Topic, ...]
    stored: Stored
    state_dir: Path
    """Directory of the coordinators' topics."""
    group_settings: dict[str, dict[str, str]]
    """Settings of single groups."""
    login_secret: Callable[[], bytes]
    """Returns the secret for salts of users that are not there; empty if no listener asks for a
    login."""
    left_behind: LeftByKafka = field(default_factory=LeftByKafka)
    """State of an Apache Kafka that had this directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedStorage(OpenedLogs):
    """Opened storage of a node alone."""

    store: MetadataStore
    beside: StateBeside
    """State that was kept elsewhere and has to be taken over."""
    made_here: Mapping[str, list[str]]
    """Names of topics and broker settings that such a Kafka does not know."""

    def close(self) -> None:
        """Close everything without a clean shutdown."""
        self.log_dir.close(clean=False)
        self.store.close()


def open_storage(
    settings: Settings,
    clock: Clock,
    max_open_files: int,
    progress: OpeningProgress | None = None,
) -> OpenedStorage:
    """Open the log directory with its metadata, and reconcile the two.

    Raises:
        Misconfigured: a directory or a setting is unusable.
        StorageFailed: a read or write failed.
    """
    config = settings.broker_config()
    path = Path(config.log_dir)
    with ExitStack() as undo:
        lock = lock_log_dir(path)
        undo.callback(lock.close)
        if earlier := earlier_files(path):
            more = f" and {len(earlier) - 2} more" if len(earlier) > 2 else ""
            raise Misconfigured(
                f"{path} has settings, committed offsets or append times in the form of an earlier "
                f"development version, which is not read: {' and '.join(earlier[:2])}{more}. To "
                "serve the records without them, move these files out of the directory"
            )
        store = open_store(
            Files(),
            path,
            config.node_id,
            clock.now_ms,
            first_producer_id=FIRST_PRODUCER_ID,
            take_over=config.horolog_take_over,
            open_to_all="*" in config.horolog_open_listeners,
            obeys_entries=bool(config.authorizer_class_name),
            asks_logins=all(endpoint.name in config.logins for endpoint in config.listeners),
            has_users=any(login.has_scram for login in config.logins.values()),
            state_dir=Path(config.horolog_state_dir) if config.horolog_state_dir else None,
        )
        undo.callback(store.close)
        stored = store.load()
        found = read_stored_settings(stored.settings)
        settings = replace(
            settings,
            dynamic_default=found.brokers.get("", {}),
            dynamic_broker=found.brokers.get(str(config.node_id), {}),
        )
        config = settings.broker_config()
        TlsContexts(config.tls)  # before logs are opened, which may take long
        if config.metrics_tls is not None and config.horolog_metrics_port is not None:
            TlsContexts({"METRICS": config.metrics_tls})
        beside = StateBeside(Files(), path, store.state_dir)
        opening = _Opening(path, settings, config, store, stored, found, clock, beside, progress)
        opened = opening.open(Files(max_open=max_open_files), lock)
        undo.pop_all()
        return opened


@dataclass(slots=True)
class _Opening:
    """Steps of opening."""

    path: Path
    settings: Settings
    config: BrokerConfig
    store: MetadataStore
    stored: Stored
    stored_settings: StoredSettings
    clock: Clock
    beside: StateBeside
    progress: OpeningProgress | None
    plan: StartPlan = field(default_factory=StartPlan)
    owned: dict[str, uuid.UUID] = field(default_factory=dict)
    led: dict[str, uuid.UUID] = field(default_factory=dict)
    """Ids of the topics whose leader epochs are in the metadata."""
    overrides: dict[str, dict[str, str]] = field(default_factory=dict)
    followed: set[str] = field(default_factory=set)
    compacted: set[str] = field(default_factory=set)
    """Topics that an Apache Kafka or the source compacts."""
    left_behind: LeftByKafka = field(default_factory=LeftByKafka)

    def open(self, files: Files, lock: DirectoryLock) -> OpenedStorage:
        self.overrides |= self.stored_settings.topics
        followed = self._follow_source()
        self._take_over_settings({row.name for row in self.stored.topics if not row.adopted})
        known = names.INTERNAL_TOPICS.union(row.name for row in self.stored.topics)
        log_dir = LogDir.open(
            self.path,
            broker_config=self.config,
            topic_config=self._topic_config,
            now_ms=self.clock.now_ms(),
            choose=self._choose,
            is_ours=self.owned.__contains__,
            topic_id=self.owned.get,
            follows=self.followed.__contains__,
            known_epoch=self._known_epoch,
            is_known=known.__contains__,
            succeeds_another=self.store.succeeds_another,
            files=files,
            lock=lock,
            state_dir=self.store.state_dir,
            properties=PROPERTIES if self.store.is_own else {},
            remembered=self.store.remembered,
            progress=self.progress,
        )
        try:
            self._log_unclean_stop(log_dir)
            _log_recoveries(log_dir)
            self._settle_transactions(log_dir)
            self._register(log_dir)
            if followed is not None:
                self.store.put_source(followed)
            self._carry_out(log_dir)
            topics = tuple(self._topics())
            # SCRAM may be enabled later, while the broker runs.
            secret = self.store.login_secret() if self.config.logins else b""
        except BaseException:
            log_dir.close(clean=False)
            raise
        return OpenedStorage(
            settings=self.settings,
            store=self.store,
            stored=self.stored,
            state_dir=self.store.state_dir,
            beside=self.beside,
            log_dir=log_dir,
            topics=topics,
            left_behind=self.left_behind,
            made_here=self._made_here(),
            group_settings=self.stored_settings.groups,
            login_secret=lambda: secret,
        )

    def _log_unclean_stop(self, log_dir: LogDir) -> None:
        """Log that a broker did not close the directory cleanly; a new one or a copy had none."""
        if not log_dir.was_clean and self.store.remembered.was_served:
            checked = sum(recovery.checked_bytes > 0 for recovery in log_dir.recoveries)
            cut = sum(recovery.removed_bytes > 0 for recovery in log_dir.recoveries)
            _LOG.warning(
                "the last stop was not clean: %s has no %s. Of %d logs %d were checked behind what "
                "was known to be flushed, and %d were cut where they were not whole",
                self.path.absolute(),
                names.CLEAN_SHUTDOWN,
                len(log_dir.logs),
                checked,
                cut,
            )

    def _settle_transactions(self, log_dir: LogDir) -> None:
        """Decide how the open transactions of adopted logs end.

        The coordinator of this broker may still end some, also where its metadata was lost: those
        are open. Of the others a Kafka's `__transaction_state` says which are committed.
        """
        unended = {key: log for key, log in log_dir.logs.items() if log.unended}
        if unended:
            files = Files(read_only=True)
            may_end = self._may_end(files, unended)
            committed = committed_in(files, self.path)
            for key, log in unended.items():
                log.settle_unended(goes_on=may_end.get(key, ()), committed=committed.get(key, ()))

    def _may_end(
        self, files: Files, unended: Mapping[TopicPartition, Log]
    ) -> Mapping[TopicPartition, Collection[int]]:
        """Group the producers by partition whose transactions this broker may still end.

        Where that cannot be read, all may be: a commit must not follow once one counts as aborted.
        """
        try:
            found = may_end_in(files, self.store.state_dir, self.beside.transactions().values())
        except StorageFailed as error:
            _LOG.error("Open transactions of adopted topics stay open until a restart: %s", error)
            return {
                key: [transaction.producer_id for transaction in log.unended]
                for key, log in unended.items()
            }
        return found

    def _register(self, log_dir: LogDir) -> None:
        """Register this broker in the metadata as the owner of the partitions."""
        config, directory_id = self.config, _UNASSIGNED
        takes_over, topics = self.store.takes_over, len(self.store.image.topics)
        level = self.store.image.metadata_version
        if log_dir.meta.directory_id is not None:
            with suppress(ValueError):  # no record can name it
                directory_id = decode_uuid(log_dir.meta.directory_id)
        cluster_id, node_id, text, *_ = log_dir.meta
        identity = None
        if is_cluster_id(cluster_id) and node_id is not None:
            directory = text if is_cluster_id(text) else None
            identity = Identity(cluster_id, node_id, directory, log_dir.meta.version)
        self.store.register(
            RegisterBroker(
                config.node_id,
                False,
                uuid.uuid4(),
                0,
                tuple(BrokerEndpoint(e.name, e.host, e.port) for e in config.advertised_listeners),
                SUPPORTED,
                log_dirs=(directory_id,),
            ),
            identity,
        )
        if takes_over:
            _LOG.warning(
                "%s is taken over from the Kafka that was node %s of cluster %s there, with its %d "
                "topics and metadata.version %d: from now on it is horolog's, and this broker is "
                "that node (docs/moving-in-and-out.md)",
                self.path.absolute(),
                node_id,
                cluster_id,
                topics,
                level,
            )
        elif self.store.succeeds_another:
            _LOG.warning(
                "another broker has served %s since the last stop, as node %s of cluster %s: its "
                "partitions are led in new epochs",
                self.path.absolute(),
                node_id,
                cluster_id,
            )

    def _follow_source(self) -> SourceRow | None:
        """Choose the cluster to follow by the settings; return it if it has to be stored."""
        stored = self.stored.source
        source = source_of(self.config, stored)
        self.stored = self.stored._replace(source=source)
        for row in self.stored.followed:
            if row.is_compacted and "cleanup.policy" not in self.overrides.get(row.topic, {}):
                self.compacted.add(row.topic)
        is_changed = source is not None and stored is not None and source != stored
        return source if is_changed else None

    def _made_here(self) -> dict[str, list[str]]:
        named = (name for given in self.stored_settings.brokers.values() for name in given)
        return {
            "settings of topics": sorted(
                self.stored_settings.topics.keys() - names.SERVED_INTERNAL
            ),
            "settings of groups": sorted(self.stored_settings.groups),
            "settings of brokers": sorted(set(named)),
        }

    def _topics(self) -> list[Topic]:
        return [
            Topic(
                name=row.name,
                topic_id=row.topic_id,
                partitions=self.plan.partitions[row.name],
                overrides=self.overrides.get(row.name, {}),
                adopted=row.adopted,
                compacted=self._is_compacted(row.name),
                unsettled=not self.stored_settings.may_expire(row.name),
                followed=row.followed,
                salvaged=row.adopted and row.is_salvaged,
            )
            for row in self.plan.rows
        ]

    def _take_over_settings(self, owned: Collection[str]) -> None:
        """Apply the settings that their Kafka gave to adopted topics, as far as supported.

        They are read at every start, because that Kafka may have run in between.
        """
        files, is_own = Files(read_only=True), self.store.is_own
        metadata = read_cluster_metadata(files, self.path, is_own=is_own)
        ignored = {}
        for topic, given in metadata.topics.items():
            if topic in owned:
                continue
            if "compact" in given.get("cleanup.policy", "").split(","):
                self.compacted.add(topic)
            obeyed = self.overrides[topic] = obeyed_settings(self.settings, given)
            ignored[topic] = {name: given[name] for name in given if name not in obeyed}
        offsets = KafkaOffsets({}, ()) if is_own else read_consumer_offsets(files, self.path)
        self.left_behind = LeftByKafka(metadata, offsets, ignored)

    def _topic_config(self, topic: str) -> TopicConfig:
        config = self.settings.topic_config(self.overrides.get(topic))
        return compacting(config) if self._is_compacted(topic) else config

    def _is_compacted(self, topic: str) -> bool:
        """True if a topic is known to be compacted although no setting says so."""
        return topic in self.compacted and "cleanup.policy" not in self.overrides.get(topic, {})

    def _known_epoch(self, partition: TopicPartition) -> int:
        """Return the leader epoch in the metadata, if the metadata decides it; -1 otherwise.

        For followed topics the source decides it, and for adopted topics beside a Kafka that Kafka
        does.
        """
        topic_id = self.led.get(partition.topic)
        return -1 if topic_id is None else self.store.leader_epoch(topic_id, partition.partition)

    def _epoch_after_loss(self, partition: TopicPartition) -> int:
        """Return the leader epoch of a partition whose directory does not exist."""
        return min(self._known_epoch(partition) + 1, MAX_EPOCH)

    def _choose(self, found: FoundPartitions) -> Mapping[TopicPartition, str]:
        """Reconcile the directories; return those to leave alone, with the reason."""
        self.plan, is_own = self._reconciled(found), self.store.is_own
        is_kafkas = bool(found.internal) and not is_own
        self.left_behind = replace(self.left_behind, is_kafkas=is_kafkas)
        self.followed.update(row.name for row in self.plan.rows if row.followed)
        self.owned.update((row.name, row.topic_id) for row in self.plan.rows if not row.adopted)
        self.led.update(
            (row.name, row.topic_id)
            for row in self.plan.rows
            if not row.followed and (is_own or not row.adopted)
        )
        return {TopicPartition(*key): why for key, why in self.plan.left_alone.items()}

    def _reconciled(self, found: FoundPartitions) -> StartPlan:
        plan = reconcile(
            self.stored.topics,
            topics_on_disk(found.ids, found.blocked),
            new_id=uuid.uuid4,
            adopt_defaults=self.config.horolog_adopt_defaults,
            compacted=self.compacted | names.SERVED_INTERNAL,
            internal=found.internal,
            is_salvaged=self.stored.is_salvaged,
            followed={row.topic for row in self.stored.followed if not row.led},
            reserved=_NOT_SERVED,
        )
        adopted = (row.name for row in plan.rows if row.adopted)
        held = undecided(self.stored.source, self.stored.followed, adopted)
        plan.rows = [row._replace(followed=row.followed or row.name in held) for row in plan.rows]
        return plan

    def _carry_out(self, log_dir: LogDir) -> None:
        plan, now_ms = self.plan, self.clock.now_ms()
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
                _LOG.error("%s is deleted in part, the next start continues: %s", name, error)
                undeleted.add(name)
        for name in plan.forget:
            if name not in undeleted:
                self.store.forget_topic(name)
        for row in plan.put:
            if row.name not in undeleted:
                self.store.put_topic(row)
        ids = {row.name: row.topic_id for row in plan.rows}
        for name, missing in groupby(plan.create, key=itemgetter(0)):
            indexes = [index for _, index in missing]
            try:
                log_dir.create_all(
                    name,
                    indexes,
                    ids[name],
                    self._topic_config(name),
                    now_ms,
                    leader_epoch=self._epoch_after_loss,
                )
            except StorageFailed as error:
                _LOG.error("partitions %s of %s are offline: %s", indexes, name, error)
        self._place(log_dir)
        for row in plan.rows:
            for index in plan.partitions[row.name]:
                log = log_dir.logs.get(TopicPartition(row.name, index))
                if log is not None:
                    may_expire = self.stored_settings.may_expire(row.name)
                    log.retention_exempt = row.adopted or not may_expire
        if self.stored.is_salvaged:
            self.store.end_salvage()
        self._claim(log_dir)
        try:
            self.store.raise_epochs({key: log.leader_epoch for key, log in log_dir.logs.items()})
        except StorageFailed as error:  # the next start says it
            _LOG.error("leader epochs are not noted in the metadata: %s", error)

    def _claim(self, log_dir: LogDir) -> None:
        """Write the ids of topics into directories that have none, of a Kafka before 2.8.

        A Kafka that reads the metadata sets directories without an id aside as strays. In a
        directory that another product owns nothing is changed.
        """
        if not self.store.is_own:
            return
        for row in self.plan.rows:
            keys = [TopicPartition(row.name, index) for index in self.plan.partitions[row.name]]
            logs = log_dir.logs
            try:
                lacking = [key for key in keys if key in logs and logs[key].topic_id is None]
                log_dir.claim(lacking, row.topic_id)
            except StorageFailed as error:  # the next start does it
                _LOG.error("%s: its topic id is not in all of its directories: %s", row.name, error)

    def _place(self, log_dir: LogDir) -> None:
        """Let logs follow or lead that were opened before their role was known.

        New ones and adopted ones follow. Promoted topics are led in the epochs that they were
        promised, or later ones: a kill may have come before a partition led in one.
        """
        promised = {row.topic: row for row in self.stored.followed if row.led and row.epoch >= 0}
        for key, log in log_dir.logs.items():
            row = promised.get(key.topic)
            if key.topic in self.followed:
                if not log.is_following:
                    log.begin_following(log.log_end_offset)
            elif row is not None:
                self._lead(log, row)

    def _lead(self, log: Log, row: FollowedRow) -> None:
        """Complete the promotion of a partition."""
        committed, now_ms = row.committed.get(log.partition, ()), self.clock.now_ms()
        if row.epoch > log.leader_epoch:
            log.lead(row.epoch, now_ms, committed=committed)
            _LOG.info("%s is led in epoch %d, as it was promoted to", log, row.epoch)
        elif log.producers.unended():
            log.end_inherited(row.epoch, now_ms, committed=committed)


def _log_recoveries(log_dir: LogDir) -> None:
    for recovery in log_dir.recoveries:
        for note in recovery.notes:
            _LOG.info("%s", note)
        for warning in recovery.warnings:
            _LOG.warning("%s", warning)
    for partition, why in log_dir.unreadable.items():
        _LOG.error("%s is not served until the next start: %s", partition, why)
