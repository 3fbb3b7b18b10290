"""All consumer groups: performs what `groups` decides, and keeps it on disk.

Members and generations live in memory: after a restart members join again. Committed
offsets are answered only once they are written.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from horolog.broker.metadata_thread import MetadataThread
from horolog.clock import Clock
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.groups.group import Group
from horolog.groups.offsets import CommittedOffsets, TopicPartition
from horolog.groups.rows import GroupChange, GroupRow, OffsetRow
from horolog.groups.values import (
    Answer,
    GroupDescription,
    GroupLimits,
    GroupState,
    Join,
    Joined,
    Sync,
    Synced,
    Waiter,
)

_LOG = logging.getLogger(__name__)


class GroupCoordinator:
    """The groups of this broker. For the event loop's thread only."""

    def __init__(
        self,
        limits: GroupLimits,
        writer: MetadataThread,
        clock: Clock,
        rows: Iterable[GroupRow] = (),
        offsets: Iterable[OffsetRow] = (),
    ) -> None:
        self.offsets = CommittedOffsets(offsets)
        self._limits = limits
        self._writer = writer
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._groups: dict[str, Group] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._empty_since_ms: dict[str, int | None] = {}
        self._waiters: set[asyncio.Future[Any]] = set()
        for row in rows:
            group = self._create(row.group_id)
            group.protocol_type = row.protocol_type or None
            # A group that had members when the broker stopped has none now.
            since_ms = row.empty_since_ms
            self._empty_since_ms[row.group_id] = (
                clock.now_ms() if since_ms is None and row.protocol_type else since_ms
            )
        for group_id in self.offsets.group_ids():
            if group_id not in self._groups:
                self._create(group_id)

    # --- membership -------------------------------------------------------------------

    async def join(self, group_id: str, join: Join) -> Joined:
        """Belong to a group, once everybody has joined."""
        _check_id(group_id)
        group = self._groups.get(group_id)
        if group is None:
            if join.member_id:
                raise _no_member(join.member_id)
            group = self._create(group_id)
        try:
            waiter: asyncio.Future[Joined] = self._asked(group, partial(group.join, join))
        finally:
            self._drop_if_unused(group)
        return await waiter

    async def sync(self, group_id: str, sync: Sync) -> Synced:
        """Learn one's assignment, once the leader has brought it."""
        group = self._with_members(group_id, sync.member_id)
        waiter: asyncio.Future[Synced] = self._asked(group, partial(group.sync, sync))
        return await waiter

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """A sign of life."""
        group = self._with_members(group_id, member_id)
        group.heartbeat(member_id, instance_id, generation, self._now_ms())

    def leave(self, group_id: str, members: Sequence[tuple[str, str | None]]) -> list[ErrorCode]:
        """Let members go; an error for each."""
        errors = []
        for member_id, instance_id in members:
            try:
                group = self._with_members(group_id, member_id)
                self._perform(group, partial(group.leave, member_id, instance_id))
            except RequestRefused as error:
                errors.append(code_for(error))
            else:
                errors.append(ErrorCode.none)
        return errors

    # --- offsets ----------------------------------------------------------------------

    def check_commit(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Refuse a commit by one who does not hold this generation's assignment."""
        group = self._groups.get(group_id)
        if group is None:
            if generation >= 0:
                raise RequestRefused(
                    ErrorCode.illegal_generation, f"the group {group_id!r} has no members"
                )
            return
        group.check_commit(member_id, instance_id, generation, self._now_ms())

    async def commit(self, group_id: str, rows: Sequence[OffsetRow]) -> None:
        """Keep offsets; they can be fetched once this returns."""
        if not rows:
            return
        groups = []
        if group_id not in self._groups:
            self._create(group_id)
            groups.append(GroupRow(group_id, "", None))
        await self._writer.write_groups(GroupChange(groups=groups, offsets=rows))
        for row in rows:
            self.offsets.put(row)

    async def delete_offsets(self, group_id: str, keys: Sequence[TopicPartition]) -> None:
        """Forget offsets that the group no longer reads."""
        await self._writer.write_groups(
            GroupChange(dropped_offsets=[(group_id, *key) for key in keys])
        )
        self.offsets.drop(group_id, keys)

    def check_offsets_deletable(self, group_id: str) -> Callable[[str], bool]:
        """Refuse unless the group exists; what tells whether it still reads a topic."""
        group = self._existing(group_id)
        if group.state is not GroupState.EMPTY and group.protocol_type != "consumer":
            raise RequestRefused(ErrorCode.non_empty_group, f"the group {group_id!r} is not empty")
        return group.reads

    # --- administration ---------------------------------------------------------------

    def describe(self, group_id: str) -> GroupDescription | None:
        """A group as DescribeGroups shows it, if there is one."""
        group = self._groups.get(group_id)
        return None if group is None else group.describe()

    def descriptions(self) -> list[GroupDescription]:
        """All groups."""
        return [group.describe() for group in self._groups.values()]

    async def delete(self, group_id: str) -> None:
        """Delete a group and its offsets; only an empty one."""
        group = self._existing(group_id)
        if not group.is_idle:
            raise RequestRefused(ErrorCode.non_empty_group, f"the group {group_id!r} is not empty")
        self._forget(group_id)
        await self._writer.write_groups(GroupChange(dropped_groups=[group_id]))

    def drop_topic(self, topic: str) -> None:
        """A topic was deleted, on disk with its offsets already."""
        self.offsets.drop_topic(topic)

    async def expire(self, retention_ms: int) -> int:
        """Forget offsets that nobody has needed for `retention_ms`; how many."""
        now_ms = self._clock.now_ms()
        dropped: list[tuple[str, str, int]] = []
        dropped_groups = []
        for group_id, group in list(self._groups.items()):
            keys = self.offsets.expired(
                group_id, now_ms, retention_ms, self._empty_since_ms.get(group_id), group.reads
            )
            self.offsets.drop(group_id, keys)
            dropped += [(group_id, *key) for key in keys]
            if group.is_idle and not self.offsets.of_group(group_id):
                dropped_groups.append(group_id)
                self._forget(group_id)
        if dropped or dropped_groups:
            _LOG.info("dropped %d expired offsets and %d groups", len(dropped), len(dropped_groups))
            await self._writer.write_groups(
                GroupChange(dropped_offsets=dropped, dropped_groups=dropped_groups)
            )
        return len(dropped)

    def release_waiters(self) -> None:
        """Send all who wait to another coordinator: this one stops."""
        stopping = RequestRefused(ErrorCode.coordinator_not_available, "the broker stops")
        for waiter in list(self._waiters):
            if not waiter.done():
                waiter.set_exception(stopping)

    def close(self) -> None:
        """Let no timer fire any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # --- performing -------------------------------------------------------------------

    def _asked(
        self, group: Group, ask: Callable[[Waiter, int], list[Answer]]
    ) -> "asyncio.Future[Any]":
        """Where a group will put its answer. One who is refused waits for none: none is kept."""
        waiter = self._loop.create_future()
        self._perform(group, partial(ask, waiter))
        if not waiter.done():
            self._waiters.add(waiter)
            waiter.add_done_callback(self._waiters.discard)
        return waiter

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _create(self, group_id: str) -> Group:
        group = self._groups[group_id] = Group(group_id, self._limits)
        return group

    def _existing(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise RequestRefused(
                ErrorCode.group_id_not_found, f"The group id {group_id} does not exist."
            )
        return group

    def _with_members(self, group_id: str, member_id: str) -> Group:
        _check_id(group_id)
        group = self._groups.get(group_id)
        if group is None:
            raise _no_member(member_id)
        return group

    def _perform(self, group: Group, decide: Callable[[int], list[Answer]]) -> None:
        """Hand out the answers of a decision, remember what changed, and set the next timer."""
        was_empty = group.state is GroupState.EMPTY
        try:
            answers = decide(self._now_ms())
        finally:
            self._arm(group)
        for answer in answers:
            waiter = answer.waiter
            assert isinstance(waiter, asyncio.Future)
            if not waiter.done():
                waiter.set_result(answer.value)
        is_empty = group.state is GroupState.EMPTY
        if was_empty is not is_empty:
            self._note_membership(group, self._clock.now_ms() if is_empty else None)

    def _note_membership(self, group: Group, empty_since_ms: int | None) -> None:
        self._empty_since_ms[group.group_id] = empty_since_ms
        row = GroupRow(group.group_id, group.protocol_type or "", empty_since_ms)
        written = self._writer.write_groups(GroupChange(groups=[row]))
        written.add_done_callback(_log_failure)

    def _arm(self, group: Group) -> None:
        timer = self._timers.pop(group.group_id, None)
        if timer is not None:
            timer.cancel()
        deadline_ms = group.next_deadline_ms()
        if deadline_ms is not None and self._groups.get(group.group_id) is group:
            self._timers[group.group_id] = self._loop.call_at(
                (deadline_ms + 1) / 1000, self._perform, group, group.tick
            )

    def _drop_if_unused(self, group: Group) -> None:
        """A group that a refused Join brought into being leaves no trace."""
        unused = group.is_idle and not group.generation and group.protocol_type is None
        if unused and not self.offsets.of_group(group.group_id):
            self._forget(group.group_id)

    def _forget(self, group_id: str) -> None:
        group = self._groups.pop(group_id)
        group.kill()
        timer = self._timers.pop(group_id, None)
        if timer is not None:
            timer.cancel()
        self.offsets.drop_group(group_id)
        self._empty_since_ms.pop(group_id, None)


def _check_id(group_id: str) -> None:
    if not group_id:
        raise RequestRefused(ErrorCode.invalid_group_id, "a group id must not be empty")


def _no_member(member_id: str) -> RequestRefused:
    return RequestRefused(ErrorCode.unknown_member_id, f"{member_id!r} is not a member of a group")


def _log_failure(written: "asyncio.Future[None]") -> None:
    error = None if written.cancelled() else written.exception()
    if isinstance(error, HorologError):
        _LOG.error("a group's membership could not be remembered: %s", error)
    elif error is not None:
        raise error
