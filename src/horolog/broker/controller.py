"""Creates, alters and deletes topics and settings: first stored, then applied.

One change at a time. The next start completes a change that a kill interrupted
(see `metadata.reconcile`).
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from horolog.broker.catalogue import Catalogue
from horolog.broker.coordinators.group_coordinator import GroupCoordinator
from horolog.broker.new_topics import INTERNAL, NewTopic, with_history
from horolog.broker.scheduling.metadata_thread import MetadataThread
from horolog.broker.scheduling.turns import TimeSlice
from horolog.broker.scheduling.uncancelled import uncancelled
from horolog.config import (
    BrokerConfig,
    SettingChange,
    Settings,
    alter_broker,
    alter_group,
    alter_topic,
    check_topic,
)
from horolog.errors import ErrorCode, Misconfigured, RequestRefused, StorageFailed
from horolog.metadata.reconcile import stored_count
from horolog.metadata.rows import AS_FOUND, FollowedRow, TopicRow
from horolog.metadata.store import MetadataStore
from horolog.metadata.topics import (
    NewPartitions,
    Topic,
    check_assignment,
    check_partition_increase,
    partitions_of_new_topic,
)
from horolog.quotas.entities import Entity
from horolog.quotas.model import Quotas
from horolog.rights.entries import AclEntry
from horolog.rights.model import Rights
from horolog.security.scram import Credential
from horolog.storage.log_dir.log_dir import LogDir
from horolog.storage.names import CONSUMER_OFFSETS, FOLLOWED_INTERNAL

_LOG = logging.getLogger(__name__)


def _uncounted(count: int) -> None:
    """Count partitions for no quota."""


async def _load_nothing(_: BrokerConfig) -> Callable[[], None]:
    return lambda: None


class Controller:
    """Changes topics and settings. For the event loop's thread only."""

    def __init__(
        self,
        catalogue: Catalogue,
        groups: GroupCoordinator,
        metadata: MetadataThread,
        store: MetadataStore,
        entries: Rights,
        credentials: dict[tuple[str, int], Credential],
        quotas: Quotas,
    ) -> None:
        self._live, _, self._topics, self._partitions, self._follow_state = catalogue
        self._groups = groups
        self._metadata = metadata
        self._store = store
        self._entries = entries
        self._credentials = credentials
        self._quotas = quotas
        self._lock = asyncio.Lock()
        self.load_tls: Callable[[BrokerConfig], Awaitable[Callable[[], None]]] = _load_nothing
        """Loads certificates by new settings; returns what takes them. Set by the service."""
        self.on_altered: Callable[[], object] = bool
        """Called when settings of the broker have changed. Set by the service."""

    # --- topics -----------------------------------------------------------------------

    async def ensure_topic(self, name: str, take: Callable[[int], None] = _uncounted) -> Topic:
        """Return the topic of this name, created with default settings if it does not exist.

        `take` is called with the number of new partitions, and may refuse them.
        """
        async with self._lock:
            topic = self._topics.find(name)
            return await self._create(NewTopic(name=name), take) if topic is None else topic

    async def ensure_internal(self, name: str) -> Topic:
        """Return the internal topic of this name, which is created if it does not exist.

        A topic that was adopted, because its settings are lost, gets the settings of a new one.

        Raises:
            RequestRefused: the settings of the topic cannot be, or it is to come from the source.
            StorageFailed: a write failed; it is not made.
        """
        async with self._lock:
            topic = self._topics.find(name)
            if topic is not None and not topic.adopted:
                return topic
            if topic is None and self._follow_state.awaits(
                name, self._topics
            ):  # followed since the caller asked
                raise RequestRefused(
                    ErrorCode.coordinator_load_in_progress, f"{name} is the source's"
                )
            asked = INTERNAL[name](self._live.config)
            overrides = {key: value for key, value in asked.overrides.items() if value is not None}
            check_topic(self._live.settings, overrides)
            if topic is not None:
                return await self._put_settings(topic, overrides)
            indexes = tuple(range(asked.partitions))
            topic = Topic(name=name, topic_id=uuid.uuid4(), partitions=indexes, overrides=overrides)
            await self._add(topic)
            _LOG.info("created topic %s with %d partition(s)", name, len(indexes))
            return topic

    async def create_topic(
        self,
        new: NewTopic,
        take: Callable[[int], None] = _uncounted,
        *,
        validate_only: bool = False,
    ) -> Topic:
        """Create a topic; with `validate_only` only return it. `take` is as of `ensure_topic`."""
        async with self._lock:
            return await self._create(new, take, validate_only=validate_only)

    async def _create(
        self, new: NewTopic, take: Callable[[int], None], *, validate_only: bool = False
    ) -> Topic:
        self._topics.check_new_name(new.name)
        self._follow_state.refuse_new(new.name)
        factor = new.replication_factor
        if factor == -1 and not new.assignments:
            factor = self._live.config.default_replication_factor
        count = partitions_of_new_topic(
            count=new.partitions,
            replication_factor=factor,
            assignments=new.assignments,
            repeated=new.repeated,
            broker_id=self._live.config.node_id,
            default_count=self._live.config.num_partitions,
        )
        NewPartitions().take(count)
        check_topic(self._live.settings, new.overrides)
        take(count)
        overrides = {name: value for name, value in new.overrides.items() if value is not None}
        topic = Topic(
            name=new.name,
            topic_id=uuid.uuid4(),
            partitions=tuple(range(count)),
            overrides=overrides,
        )
        if not validate_only:
            await self._add(topic)
            _LOG.info("created topic %s with %d partition(s)", topic.name, count)
        return topic

    async def _add(self, topic: Topic, followed: FollowedRow | None = None) -> None:
        """Store a new topic, create its partitions, and serve it."""
        await self._metadata.run(self._store.put_topic, _row(topic), topic.overrides, followed)
        try:
            await self._partitions.open(topic, topic.partitions)
        except StorageFailed:
            await self._remove(topic)
            raise
        self._topics.put(topic)
        self._warn_of_deprecated(topic.name, topic.overrides)

    # --- rights -----------------------------------------------------------------------

    async def create_entries(self, entries: Iterable[AclEntry]) -> None:
        """Add access control entries; those that are there already are left out.

        Raises:
            RequestRefused: another product owns the directory.
            StorageFailed: a write failed; nothing has changed.
        """
        async with self._lock:
            added = {uuid.uuid4(): entry for entry in entries if entry not in self._entries}
            await self._change_entries(added, ())

    async def delete_entries(self, entry_ids: Iterable[uuid.UUID]) -> set[uuid.UUID]:
        """Remove access control entries; return the ids of those that were there.

        Raises:
            RequestRefused: another product owns the directory.
            StorageFailed: a write failed; nothing has changed.
        """
        async with self._lock:
            return await self._change_entries({}, entry_ids)

    async def change_entries(
        self, added: Mapping[uuid.UUID, AclEntry], removed: Iterable[uuid.UUID]
    ) -> None:
        """Add entries under given ids and remove others, all at once.

        Raises:
            RequestRefused: another product owns the directory.
            StorageFailed: a write failed; nothing has changed.
        """
        async with self._lock:
            await self._change_entries(added, removed)

    async def _change_entries(
        self, added: Mapping[uuid.UUID, AclEntry], removed: Iterable[uuid.UUID]
    ) -> set[uuid.UUID]:
        """Change entries; return the ids of those removed that were there."""
        present = {its_id for its_id in removed if self._entries.get(its_id) is not None}
        if added or present:
            await self._metadata.run(self._store.change_entries, added, present)
        for entry_id, entry in added.items():
            self._entries.add(entry_id, entry)
        for entry_id in present:
            self._entries.remove(entry_id)
        return present

    async def change_credentials(
        self,
        changed: Mapping[tuple[str, int], Credential],
        removed: Iterable[tuple[str, int]],
    ) -> set[tuple[str, int]]:
        """Set and remove keys that check passwords; return those removed that were there.

        Raises:
            RequestRefused: another product owns the directory, or its metadata has no users.
            StorageFailed: a write failed; nothing has changed.
        """
        async with self._lock:
            present = {key for key in removed if key in self._credentials}
            if changed or present:
                await self._metadata.run(self._store.change_credentials, changed, present)
            for key in present:
                del self._credentials[key]
            self._credentials |= changed
            return present

    async def change_quotas(
        self,
        changes: Mapping[tuple[Entity, str], float | None],
        copied: Collection[str] | None = None,
    ) -> None:
        """Set quotas; None removes one. Those that are so already are left out.

        `copied`, if given, replaces the digests of the quotas that are copies of the source's.

        Raises:
            RequestRefused: another product owns the directory.
            StorageFailed: a write failed; nothing has changed.
        """
        async with self._lock:
            quotas = self._quotas
            changed = {key: value for key, value in changes.items() if quotas.get(*key) != value}
            if not changed and copied is None:
                return
            await self._metadata.run(self._store.change_quotas, changed, copied)
            for (entity, key), value in changed.items():
                quotas.put(entity, key, value)

    async def delete_topic(self, topic: Topic, take: Callable[[int], None] = _uncounted) -> None:
        """Delete a topic; its files are removed after `file.delete.delay.ms`.

        `take` is called with the number of its partitions, and may refuse that.
        """
        async with self._lock:
            topic = self._current(topic)
            if not self._live.config.delete_topic_enable:
                raise RequestRefused(ErrorCode.topic_deletion_disabled, "delete.topic.enable=false")
            check_owned(topic)
            take(len(topic.partitions))
            await self._remove(topic)
            _LOG.info("deleted topic %s", topic.name)

    async def _remove(self, topic: Topic) -> None:
        row = _row(topic)._replace(deleting=True)
        await self._metadata.run(self._store.put_topic, row)
        if topic.name in self._topics:
            self._topics.remove(topic.name)
        await self._partitions.remove(topic)
        await self._groups.forget_topic(
            topic.name, partial(self._metadata.run, self._store.forget_topic, topic.name)
        )
        self._follow_state.forget(topic.name)

    async def create_partitions(
        self,
        topic: Topic,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        take: Callable[[int], None] = _uncounted,
        *,
        validate_only: bool,
    ) -> None:
        """Increase the number of partitions to `count`. `take` is as of `ensure_topic`."""
        async with self._lock:
            topic = self._current(topic)
            check_owned(topic)
            check_partition_increase(topic, count)
            present = len(topic.partitions)
            NewPartitions().take(count - present)
            if assignments is not None and len(assignments) != count - present:
                raise RequestRefused(
                    ErrorCode.invalid_replica_assignment,
                    f"Attempted to add {count - present} additional partition(s), but only "
                    f"{len(assignments)} assignment(s) were specified.",
                )
            for index, brokers in enumerate(assignments or (), start=present):
                check_assignment(index, brokers, self._live.config.node_id)
            take(count - present)
            if not validate_only:
                await self._grow(topic, count)

    async def _grow(self, topic: Topic, count: int) -> Topic:
        adopted = topic.adopted and topic.followed
        grown = replace(
            topic,
            partitions=tuple(range(count)),
            adopted=adopted,
            salvaged=topic.salvaged and adopted,
        )
        missing = sorted(set(grown.partitions).difference(topic.partitions))
        await self._metadata.run(self._store.put_topic, _row(grown))
        try:
            await self._partitions.open(grown, missing)
        except StorageFailed:
            await self._metadata.run(self._store.put_topic, _row(topic))
            raise
        self._topics.put(grown)
        return grown

    # --- topics that another cluster leads --------------------------------------------

    @uncancelled
    async def follow_topic(self, topic: Topic, row: FollowedRow) -> None:
        """Create a topic as the source has it.

        Raises:
            RequestRefused: its name exists here, or its settings or number of partitions cannot be.
            StorageFailed: a write failed; it is not created.
        """
        async with self._lock:
            self._topics.check_new_name(topic.name, internal=FOLLOWED_INTERNAL)
            NewPartitions().take(len(topic.partitions))
            check_topic(self._live.settings, topic.overrides)
            await self._add(topic, row)
            self._follow_state.put(row)

    @uncancelled
    async def grow_followed(self, topic: Topic, count: int) -> None:
        """Increase the number of partitions of a followed topic to that of the source's."""
        async with self._lock:
            topic = self._followed(topic)
            check_partition_increase(topic, count)
            NewPartitions().take(count - len(topic.partitions))
            await self._grow(topic, count)

    @uncancelled
    async def put_followed(
        self, topic: Topic, row: FollowedRow, changes: Mapping[str, str | None], *, compacted: bool
    ) -> None:
        """Store the source's settings of a followed topic, and change its settings here."""
        async with self._lock:
            topic = self._followed(topic)
            values = {**topic.overrides, **changes}
            overrides = {name: value for name, value in values.items() if value is not None}
            check_topic(self._live.settings, overrides)
            after = replace(topic, overrides=overrides, compacted=compacted)
            await self._metadata.run(self._store.put_topic, _row(after), overrides, row)
            self._topics.put(after)
            self._follow_state.put(row)
            self._partitions.obey_settings(after)

    @uncancelled
    async def delete_followed(self, topic: Topic) -> None:
        """Delete a followed topic because the source has deleted it.

        Raises:
            RequestRefused: `delete.topic.enable` is false, or it is not followed any more.
        """
        async with self._lock:
            topic = self._followed(topic)
            if not self._live.config.delete_topic_enable:
                raise RequestRefused(ErrorCode.topic_deletion_disabled, "delete.topic.enable=false")
            if self._follow_state.is_promoting(topic.name):
                raise RequestRefused(
                    ErrorCode.invalid_request, f"{topic.name} is being promoted: it is kept"
                )
            await self._remove(topic)

    @uncancelled
    async def drop_followed(self, topic: Topic) -> None:
        """Delete a followed topic that is not needed any more.

        Raises:
            StorageFailed: a write failed; the next start deletes the rest.
        """
        async with self._lock:
            await self._remove(self._followed(topic))

    async def promote(
        self,
        topic: Topic,
        row: FollowedRow,
        write: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Lead a followed topic from now on, in the epoch of the row or later ones.

        Open transactions that the row has not as committed are aborted.

        The choice is stored before a partition leads, and all of them lead before the topic takes
        records. A start completes what a kill interrupts. With `write`, which appends to it, the
        topic counts as followed until that is done, but is not read from the source any more:
        after a kill, or a failure, another call has to continue.

        Raises:
            RequestRefused: it is not followed.
            StorageFailed: a write failed. If the row was written, the topic is led after a restart
                or another call.
        """
        async with self._lock:
            topic = self._followed(topic)
            # The source gave the append times so far: a start after a kill has to know that.
            await self._partitions.keep_stamp_clock()
            after = replace(topic, followed=False)
            stored = after if write is None else topic
            await self._metadata.run(self._store.put_topic, _row(stored), None, row)
            self._follow_state.put(row)
            await self._partitions.lead(topic, row.epoch, row.committed)
            if write is not None:
                await write()
                await self._metadata.run(self._store.put_topic, _row(after), None, row)
            self._topics.put(after)

    async def demote(self, topic: Topic, row: FollowedRow) -> None:
        """Follow a topic that is led here.

        Raises:
            StorageFailed: a write failed; the topic is led here.
        """
        async with self._lock:
            topic = self._current(topic)
            with self._partitions.complete.changing():
                # A start after a kill does not ask logs that follow for the last append time.
                await self._partitions.stop_leading(topic)
                after = replace(topic, followed=True)
                await self._metadata.run(self._store.put_topic, _row(after), None, row)
                self._topics.put(after)
                self._follow_state.put(row)
                # What was appended can be read until the source was asked what it has of it.
                await self._partitions.change(
                    topic, lambda log: log.begin_following(log.log_end_offset)
                )
            await self._partitions.run(LogDir.try_to_save_stamps)

    def _followed(self, topic: Topic) -> Topic:
        topic = self._current(topic)
        if not topic.followed:
            raise RequestRefused(
                ErrorCode.invalid_request, f"{topic.name} is not followed: it is led here"
            )
        return topic

    def _current(self, topic: Topic) -> Topic:
        """Return the current state of a topic, which may have changed while the caller waited."""
        return self._topics.with_id(topic.topic_id)

    # --- settings ---------------------------------------------------------------------

    async def alter_topic_settings(
        self, topic: Topic, changes: Sequence[SettingChange], *, replaces: bool, validate_only: bool
    ) -> None:
        """Change single settings of a topic, or replace all of its own."""
        async with self._lock:
            topic = self._current(topic)
            before = {} if replaces else topic.overrides
            after = alter_topic(self._live.settings, before, changes)
            if not validate_only:
                await self._put_settings(topic, after)

    async def _put_settings(self, topic: Topic, overrides: Mapping[str, str]) -> Topic:
        """Store settings of a topic. An adopted topic with settings is treated like any other."""
        is_compacted = topic.compacted or self._follow_state.compacts(topic.name)
        compacted = is_compacted and "cleanup.policy" not in overrides
        after = replace(
            topic,
            overrides=overrides,
            adopted=False,
            compacted=compacted,
            unsettled=False,
            salvaged=False,
        )
        if topic.adopted:
            check_may_expire(topic, overrides)
            _LOG.info(
                "%s was adopted and has settings now: retention applies from now on", topic.name
            )
            await self._partitions.claim(topic)
            if not topic.followed:  # else a start would find them open, with nobody to end them
                await self._partitions.end_unended(topic)
        with self._partitions.complete.changing():
            await self._partitions.change_bounds([(topic, self._live.of_topic(after))])
            await self._metadata.run(self._store.put_topic, _row(after), overrides)
            self._topics.put(after)
            self._warn_of_deprecated(topic.name, overrides)
            self._partitions.obey_settings(after)
        return after

    def _warn_of_deprecated(self, topic: str, overrides: Mapping[str, str]) -> None:
        for sentence in self._live.settings.deprecated(overrides):
            _LOG.warning("topic %s: %s", topic, sentence)

    async def alter_group_settings(
        self, group: str, changes: Sequence[SettingChange], *, replaces: bool, validate_only: bool
    ) -> None:
        """Change single settings of a group, or replace all of its own; it need not exist."""
        async with self._lock:
            groups = self._live.groups
            before = groups.get(group, {})
            after = alter_group(self._live.settings, {} if replaces else before, changes)
            if validate_only:
                return
            changed = {**dict.fromkeys(before), **after}
            await self._metadata.run(self._store.change_group_settings, group, changed)
            if after:
                groups[group] = after
            else:
                groups.pop(group, None)

    async def alter_broker_settings(
        self,
        changes: Sequence[SettingChange],
        *,
        cluster_wide: bool,
        replaces: bool,
        validate_only: bool,
    ) -> None:
        """Change or replace the dynamic settings of this broker, or of all brokers."""
        async with self._lock:
            after = alter_broker(
                self._live.settings, changes, cluster_wide=cluster_wide, replaces=replaces
            )
            await self._check_topics(after)
            take_tls = await self._loaded_tls(after, changes)
            if not validate_only:
                await self._put_broker_settings(after, cluster_wide)
                take_tls()

    async def _loaded_tls(
        self, after: Settings, changes: Sequence[SettingChange]
    ) -> Callable[[], None]:
        """Load certificates if settings of listeners change, the same values included."""
        if not any(change.name.startswith("listener.name.") for change in changes):
            return lambda: None
        try:
            return await self.load_tls(after.broker_config())
        except Misconfigured as error:
            raise RequestRefused(ErrorCode.invalid_request, str(error)) from None

    async def _put_broker_settings(self, after: Settings, cluster_wide: bool) -> None:
        history = self._live.config.horolog_history_ms, after.broker_config().horolog_history_ms
        commits = self._topics.find(CONSUMER_OFFSETS)
        if commits is not None and not commits.adopted:
            lagging = with_history(commits.overrides, *history)
            if lagging != commits.overrides:  # first: a kill leaves what is wanted now
                await self._put_settings(commits, lagging)
        if cluster_wide:
            resource, old, new = "", self._live.settings.dynamic_default, after.dynamic_default
        else:
            resource = str(self._live.config.node_id)
            old, new = self._live.settings.dynamic_broker, after.dynamic_broker
        changes: dict[str, str | None] = {**dict.fromkeys(old), **new}
        with self._partitions.complete.changing():
            await self._partitions.change_bounds(
                ((topic, after.topic_config(topic.overrides)) for topic in self._topics), after
            )
            await self._metadata.run(self._store.change_settings, resource, changes)
            self._live.replace(after)
            self.on_altered()
            for sentence in after.deprecated():
                _LOG.warning("%s", sentence)
            turns = TimeSlice()
            for topic in list(self._topics):  # which none changes meanwhile, as this has the lock
                await turns.pause()
                self._partitions.obey_settings(topic)

    async def _check_topics(self, after: Settings) -> None:
        """Refuse settings that make the configuration of a topic invalid."""
        turns, checked = TimeSlice(), set[frozenset[tuple[str, str]]]()
        for topic in list(self._topics):
            await turns.pause()
            overrides = frozenset(topic.overrides.items())
            if overrides not in checked:
                checked.add(overrides)
                check_topic(after, topic.overrides, asked=False)


def check_owned(topic: Topic) -> None:
    """Refuse to delete records of a topic that is internal, adopted, or led by another cluster."""
    refuse_internal(topic)
    refuse_followed(topic)
    if topic.adopted:
        raise RequestRefused(
            ErrorCode.policy_violation,
            f"{topic.name} was adopted from directories written elsewhere; give it a setting "
            "first (retention.ms, say) if its records may be removed",
        )


def refuse_internal(topic: Topic) -> None:
    """Refuse to change an internal topic of a coordinator."""
    if topic.is_internal:
        raise RequestRefused(
            ErrorCode.invalid_topic_exception,
            f"{topic.name} is internal: only brokers write to it and change it",
        )


def refuse_followed(topic: Topic) -> None:
    """Refuse to change a topic that another cluster leads."""
    if topic.followed:
        raise RequestRefused(
            ErrorCode.policy_violation,
            f"{topic.name} is followed from another cluster: change it there, or end that with "
            f"`horolog promote {topic.name}`",
        )


def check_may_expire(topic: Topic, overrides: Mapping[str, str]) -> None:
    """Refuse settings that would delete records of an adopted topic unintentionally."""
    if topic.compacted and "cleanup.policy" not in overrides:
        raise RequestRefused(
            ErrorCode.policy_violation,
            f"{topic.name} was compacted by Apache Kafka, and its settings are not known: say "
            "cleanup.policy=compact, delete, or nothing (nothing goes) with the first setting",
        )


def _row(topic: Topic) -> TopicRow:
    count = stored_count(topic.partitions)
    return TopicRow(
        topic.name,
        topic.topic_id,
        count,
        adopted=topic.adopted,
        is_salvaged=topic.salvaged,
        followed=topic.followed,
        indexes=topic.partitions if count == AS_FOUND else (),
    )
