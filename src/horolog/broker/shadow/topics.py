"""Creates, grows, alters and deletes topics here as the source does.

`FollowedTopics.apply` compares a snapshot of the source with the topics here. Each topic is handled
alone. The reason why one cannot be followed is kept by its name, and logged once.

Settings are merged three-way. A change at the source since the last snapshot is applied here,
unless the setting was altered here. Settings that this broker refuses are kept in the topic's row.
A topic that the source compacts is compacted here by the settings here, as each replica does.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID, uuid4

from horolog.broker.catalogue import Catalogue
from horolog.broker.controller import Controller
from horolog.broker.follow_state import is_selected, leads_some
from horolog.broker.scheduling.turns import TimeSlice
from horolog.broker.source_topics import SourceTopics, TopicAtSource
from horolog.config import Settings, check_topic
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.metadata.rows import FollowedRow, settings_of_source, settings_text
from horolog.metadata.topics import Topic
from horolog.storage.names import (
    FOLLOWED_INTERNAL,
    FOLLOWED_OFFSETS,
    TRANSACTION_STATE,
    name_at_source,
)

_LOG = logging.getLogger(__name__)

_POLICY: Final = "cleanup.policy"


class FollowedTopics:
    """Topics of the source, and why some are not followed. For the event loop's thread only."""

    def __init__(self, catalogue: Catalogue, controller: Controller) -> None:
        self.refused: dict[str, str] = {}
        """Reasons by name why topics are not followed, or only in part."""
        # What a topic was at the source and here when there was nothing left to do.
        self._done: dict[str, tuple[UUID | None, int, Mapping[str, str] | None, Topic | None]] = {}
        self._left_out: set[str] = set()
        self._live, _, self._topics, self._partitions, self._follow_state = catalogue
        self._controller = controller

    def known(self) -> dict[str, UUID | None]:
        """Return the followed topics with their ids at the source."""
        rows = self._follow_state.rows
        return {name: row.source_id for name, row in rows.items() if not row.led}

    def refused_settings(self, name: str) -> dict[str, str]:
        """Return the source's settings that a topic cannot have here, each with the reason.

        Settings that were altered here are not among them.
        """
        row = self._follow_state.rows.get(name)
        if row is None or row.led:
            return {}
        return _split(self._live.settings, settings_of_source(row.settings))[1]

    async def apply(self, seen: SourceTopics) -> None:
        """Apply the changes of the source since it was last asked.

        Raises:
            RequestRefused: the source is this broker.
            StorageFailed: it cannot be stored which cluster is followed.
        """
        source = self._follow_state.source
        if source is None or source.ended:
            return
        if seen.cluster_id == self._partitions.cluster_id:
            raise RequestRefused(
                ErrorCode.inconsistent_cluster_id,
                f"{source.servers} has the cluster id of this broker, {seen.cluster_id}: it is "
                "this broker, or one of the two has a copy of the other's log directory",
            )
        if source.cluster_id != seen.cluster_id:
            self._check_known(source.servers, seen)
            await self._follow_state.put_source(source._replace(cluster_id=seen.cluster_id))
        self._follow_state.seen = seen
        refused = dict(seen.unreadable)
        waiting = [topic for topic in seen.topics.values() if self._takes(topic.name)]
        turns = TimeSlice()
        for name in self._done.keys() - seen.topics.keys():
            del self._done[name]
        for topic in waiting:
            await turns.pause()
            try:
                if topic.name in seen.from_here:
                    raise _refusal(
                        "the source follows it itself, from here: promote it on one side"
                    )
                await self._follow(topic)
            except HorologError as error:
                refused[topic.name] = str(error)
        for name in seen.deleted:
            try:
                await self._delete(name)
            except HorologError as error:
                refused[name] = f"the source has deleted it, and here it stays: {error}"
        if self._is_of_shadow:
            await self.drop_offsets()
        for name, why in refused.items():
            if self.refused.get(name) != why:
                _LOG.warning("%s is not followed as the source has it: %s", name, why)
        self.refused = refused

    def _takes(self, name: str) -> bool:
        """True if a topic of the source is followed here.

        Its transactions are not, where transactions of topics that are led here have a coordinator.
        """
        if name in FOLLOWED_INTERNAL and self._leads_transactions:
            if name not in self._left_out:
                self._left_out.add(name)
                what = name_at_source(name)
                _LOG.info("%s of the source is not followed: transactions are led here", what)
            return False
        return self._follow_state.wants(name)

    @property
    def _leads_transactions(self) -> bool:
        """True if this broker coordinates transactions, or leads topics that may have some."""
        here = self._topics.find(TRANSACTION_STATE)
        if here is not None:
            return not here.followed
        return leads_some(self._topics)

    @property
    def _is_of_shadow(self) -> bool:
        """True if the source follows a cluster itself, which has the groups of its transactions."""
        seen = self._follow_state.seen
        return seen is not None and len(seen.upstream) > 1

    async def drop_offsets(self) -> None:
        """Delete the copy of the source's `__consumer_offsets`, if it is not needed any more.

        The transactions that it has offsets of are led here, with these; or the source's are those
        of another cluster. Where the disk refuses, the next look or start does it.
        """
        offsets = self._topics.find(FOLLOWED_OFFSETS)
        if offsets is None or self._follow_state.is_promoting(FOLLOWED_OFFSETS):
            return
        others = any(topic.followed for topic in self._topics if topic is not offsets)
        is_over = not self._follow_state.is_following and not others
        if is_over or self._leads_transactions or self._is_of_shadow:
            try:
                await self._controller.drop_followed(offsets)
            except HorologError as error:
                _LOG.warning("%s is not deleted yet: %s", offsets.name, error)

    def _check_known(self, servers: str, seen: SourceTopics) -> None:
        """Refuse a cluster that was not followed before and has other topics of known names."""
        for name, id_ in self.known().items():
            theirs = seen.topics.get(name)
            if theirs is not None and _is_another(id_, theirs.topic_id):
                raise RequestRefused(
                    ErrorCode.inconsistent_cluster_id,
                    f"{name} was followed with the topic id {id_}, and {servers} has it with "
                    f"{theirs.topic_id}: that may be another cluster. Give the address of the one "
                    "that was followed, or promote the topic",
                )

    async def _follow(self, theirs: TopicAtSource) -> None:
        topic = self._topics.find(theirs.name)
        at_source = (theirs.topic_id, len(theirs.partitions), theirs.settings)
        if topic is not None and self._done.get(theirs.name) == (*at_source, topic):
            return
        row = self._follow_state.rows.get(theirs.name)
        if topic is not None and not topic.followed:
            raise _refusal(
                "a topic of that name is led here; `horolog follow --demote` makes this broker "
                "follow it"
            )
        if theirs.settings is None:
            raise _refusal("the source has not given its settings (DESCRIBE_CONFIGS)")
        if topic is not None and row is None:
            row = self._found_again(topic, theirs)
        if topic is not None and row is not None and _is_another(row.source_id, theirs.topic_id):
            _check_deletable(topic, row)
            await self._controller.delete_followed(topic)
            _LOG.warning(
                "%s was deleted and re-created at the source: it is re-created here", topic.name
            )
            topic = None
        if topic is None or row is None:
            await self._create(theirs, theirs.settings)
        else:
            await self._match(topic, row, theirs, theirs.settings)
        self._done[theirs.name] = (*at_source, self._topics.find(theirs.name))

    async def _match(
        self, topic: Topic, row: FollowedRow, theirs: TopicAtSource, settings: Mapping[str, str]
    ) -> None:
        """Give a topic the settings and partitions that it has at the source."""
        await self._settings(topic, row, theirs, settings)
        count = len(theirs.partitions)
        if count < len(topic.partitions):
            raise _refusal(f"it has {count} partitions there, and {len(topic.partitions)} here")
        if count > len(topic.partitions):
            await self._controller.grow_followed(topic, count)
            _LOG.info("%s has %d partitions now, as at the source", topic.name, count)

    async def _create(self, theirs: TopicAtSource, settings: Mapping[str, str]) -> None:
        overrides, _ = _split(self._live.settings, settings)
        topic = Topic(
            name=theirs.name,
            topic_id=theirs.topic_id or uuid4(),
            partitions=tuple(range(len(theirs.partitions))),
            overrides=overrides,
            compacted=_is_compacted(settings, overrides),
            followed=True,
        )
        await self._controller.follow_topic(topic, _row(theirs, settings))
        _LOG.info("%s is followed: %d partition(s)", topic.name, len(topic.partitions))
        self._name_refused(topic.name)

    def _found_again(self, topic: Topic, theirs: TopicAtSource) -> FollowedRow:
        """Return a new row for a topic that was found on disk, or whose row is lost."""
        if theirs.topic_id != topic.topic_id:
            raise _refusal(
                f"it was found here with the topic id {topic.topic_id}, and has "
                f"{theirs.topic_id or 'none'} at the source. `horolog promote` makes this broker "
                "lead it"
            )
        return FollowedRow(topic.name, theirs.topic_id, False, -1, "{}")

    async def _settings(
        self, topic: Topic, row: FollowedRow, theirs: TopicAtSource, settings: Mapping[str, str]
    ) -> None:
        after = _row(theirs, settings)
        if after == self._follow_state.rows.get(topic.name):
            return
        changes: dict[str, str | None] = {}
        if not topic.adopted:  # else it has the settings that nothing is known of
            before, _ = _split(self._live.settings, settings_of_source(row.settings))
            given, _ = _split(self._live.settings, settings)
            changes = {
                name: given.get(name)
                for name in sorted({*before, *given})
                if before.get(name) != given.get(name)
                and topic.overrides.get(name) == before.get(name)
            }
        overrides = {**topic.overrides, **changes}
        kept = {name for name, value in overrides.items() if value is not None}
        compacted = _is_compacted(settings, kept)
        await self._controller.put_followed(topic, after, changes, compacted=compacted)
        if changes:
            _LOG.info("%s has changed settings, as at the source: %s", topic.name, changes)
        self._name_refused(topic.name)

    def _name_refused(self, name: str) -> None:
        for setting, why in self.refused_settings(name).items():
            _LOG.warning("%s is followed without its setting %s: %s", name, setting, why)

    async def _delete(self, name: str) -> None:
        topic, row = self._topics.find(name), self._follow_state.rows.get(name)
        if (
            topic is None
            or row is None
            or row.led
            or not is_selected(self._follow_state.source, name)
        ):
            return
        _check_deletable(topic, row)
        await self._controller.delete_followed(topic)
        _LOG.warning("%s was deleted, as at the source", name)


def _check_deletable(topic: Topic, row: FollowedRow) -> None:
    """Refuse to delete a topic that may contain more records than the source ever had."""
    if topic.adopted or row.source_id not in (None, topic.topic_id):
        raise _refusal(
            f"what is here of it was found on disk, with the topic id {topic.topic_id}; "
            "`horolog promote` makes this broker lead it, and it can be deleted then"
        )


def _is_another(known: UUID | None, found: UUID | None) -> bool:
    return known is not None and found is not None and known != found


def _is_compacted(settings: Mapping[str, str], overrides: Iterable[str]) -> bool:
    """Return True if the source compacts a topic that has no policy of its own here."""
    return "compact" in settings.get(_POLICY, "").split(",") and _POLICY not in overrides


def _row(theirs: TopicAtSource, settings: Mapping[str, str]) -> FollowedRow:
    return FollowedRow(theirs.name, theirs.topic_id, False, -1, settings_text(settings))


def _split(settings: Settings, given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split a topic's settings into those that it can have here, and refused ones."""
    kept: dict[str, str] = {}
    refused: dict[str, str] = {}
    for name, value in sorted(given.items()):
        try:
            check_topic(settings, {**kept, name: value})
            kept[name] = value
        except RequestRefused as error:
            refused[name] = str(error)
    return kept, refused


def _refusal(why: str) -> RequestRefused:
    return RequestRefused(ErrorCode.policy_violation, why)
