"""Commits offsets here that consumer groups have committed at the source.

Offsets are read from the copy of the source's `__consumer_offsets` (offsets.py). If there is none,
all groups of the source are asked periodically. An offset of a followed partition is committed here
if it has changed at the source or is missing here. Right after a start only offsets ahead of those
here are committed. A group with members here commits for itself, as in MirrorMaker 2. Offsets
beyond the copied records are kept; a promotion clamps them.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from uuid import UUID

from horolog.broker.catalogue import Catalogue
from horolog.broker.coordinators.group_coordinator import GroupCoordinator
from horolog.broker.scheduling.turns import TimeSlice
from horolog.client.client import Client
from horolog.client.groups import CommittedOffset
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.groups.rows import OffsetRow
from horolog.groups.values import Committer
from horolog.metadata.topics import Topic
from horolog.offsets import TopicPartition

_LOG = logging.getLogger(__name__)

GroupOffsets = Mapping[str, Mapping[TopicPartition, CommittedOffset]]
GroupChanges = Mapping[str, Mapping[TopicPartition, CommittedOffset | None]]
"""None if a group has removed its offset."""

NOBODY: Final = Committer("", None, -1)
"""Commits for a group without members."""

_HAS_MEMBERS: Final = frozenset(
    {ErrorCode.unknown_member_id, ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation}
)


def committed_at(client: Client) -> tuple[dict[str, dict[TopicPartition, CommittedOffset]], str]:
    """Return the committed offsets of a cluster's groups, and why some are unknown.

    Raises:
        RequestRefused: groups may not be listed.
        NoAnswer: no broker answers.
    """
    found, why = {}, ""
    for group_id in client.groups.names():
        try:
            offsets = client.offset_fetch(group_id)
        except RequestRefused as error:
            why = why or str(error)
            continue
        found[group_id] = {key: its for key, its in offsets.items() if its is not None}
    return found, why


class FollowedGroups:
    """Groups of the source. For the event loop's thread only."""

    def __init__(self, catalogue: Catalogue, groups: GroupCoordinator) -> None:
        _, self._clock, self._topics, _, self._follow_state = catalogue
        self._groups = groups
        self._seen: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._refused: dict[str, str] = {}

    def topic_ids(self) -> dict[str, UUID]:
        """Return the followed topics with their ids here, before the source is asked."""
        return {topic.name: topic.topic_id for topic in self._topics if topic.followed}

    def source_ids(self) -> dict[str, UUID | None]:
        """Return the ids that the followed topics have at the source; None where it has none."""
        rows = self._follow_state.rows
        return {name: rows[name].source_id for name in self.topic_ids() if name in rows}

    @property
    def expired(self) -> int:
        """Number of offsets that have expired here since the start."""
        return self._groups.expired

    async def apply(self, found: GroupOffsets, asked: Mapping[str, UUID]) -> None:
        """Commit offsets that have changed since the source was last asked.

        A failed group is retried the next time.

        Args:
            found: committed offsets of the groups at the source.
            asked: `topic_ids` before the source was asked. Offsets of a topic that was re-created
                since then are left out, because they may be of its earlier records.
        """
        for group_id in self._seen.keys() - found.keys():
            del self._seen[group_id]  # its offsets here expire like those of any group
        for group_id, offsets in found.items():
            seen = self._seen.get(group_id, {})
            for key in seen.keys() - offsets.keys():
                del seen[key]
        await self.take(found, asked)

    async def take(
        self, changes: GroupChanges, asked: Mapping[str, UUID], *, closing: bool = False
    ) -> set[str]:
        """Commit changes; return the groups whose offsets could not be committed.

        Args:
            changes: what groups have committed since they were last taken, or all of it.
            closing: they are the last ones, of topics that are being promoted.
        """
        await self._groups.tried()
        turns, failed = TimeSlice(), set[str]()
        find = partial(self._find, asked, closing=closing)
        for group_id, offsets in changes.items():
            await turns.pause()
            if not group_id:
                continue  # of a client that gave none, and can give none here
            why: str | None = None
            try:
                await self._take(group_id, offsets, find)
            except HorologError as error:
                failed.add(group_id)
                if code_for(error) not in _HAS_MEMBERS:
                    why = str(error)
            if why is None:
                self._refused.pop(group_id, None)
            elif self._refused.get(group_id) != why:
                self._refused[group_id] = why
                _LOG.warning("offsets of group %r are not followed: %s", group_id, why)
        return failed

    async def _take(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset | None],
        find: Callable[[TopicPartition], Topic | None],
    ) -> None:
        """Commit the offsets of one group, for topics that are followed."""
        # An offset counts once its topic is here: it may be committed before.
        of_topics = {
            key: its for key, its in offsets.items() if its is not None and find(key) is not None
        }
        changed = {key: its for key, its in of_topics.items() if self._is_new(group_id, key, its)}
        if changed:
            rows = partial(self._rows, group_id, changed, find)
            await self._groups.commit(group_id, NOBODY, rows)
        seen = self._seen.setdefault(group_id, {})
        seen |= of_topics
        for key in offsets.keys() - of_topics.keys():
            seen.pop(key, None)
        if not seen:
            del self._seen[group_id]

    def _is_new(self, group_id: str, key: TopicPartition, its: CommittedOffset) -> bool:
        """True if an offset has to be committed here; at first sight only if it is ahead."""
        here = self._groups.offsets.get(group_id, *key)
        before = self._seen.get(group_id, {}).get(key)
        if here is None or (before is None and here.committed < its.offset):
            return True
        return before is not None and before != its

    def _rows(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        find: Callable[[TopicPartition], Topic | None],
    ) -> list[OffsetRow]:
        """Return rows for the topics that are still followed at the commit's turn."""
        now_ms = self._clock.now_ms()
        return [
            OffsetRow(
                group_id,
                *key,
                its.offset,
                -1 if its.leader_epoch is None else its.leader_epoch,
                its.metadata,
                now_ms,
                topic_id=topic.topic_id,
            )
            for key, its in offsets.items()
            if (topic := find(key)) is not None
        ]

    def _find(
        self, asked: Mapping[str, UUID], key: TopicPartition, *, closing: bool
    ) -> Topic | None:
        """Return the topic of a partition, if it is followed and the one that was asked about."""
        topic = self._topics.find(key[0])
        if topic is None or topic.topic_id != asked.get(key[0]) or key[1] not in topic.partitions:
            return None
        takes = topic.followed if closing else self._follow_state.takes_commits(topic)
        return topic if takes else None
