"""The group coordinator: runs the state machines of `groups` and stores their changes.

Members and generations are only in memory: after a restart members rejoin. Committed offsets are
stored before they are visible in memory.

The operations on one group are serialised by its `GroupQueue`. Heartbeats, OffsetFetch and
descriptions do not use the queue: each is a single step on the state in memory that no queued
operation depends on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from horolog.broker.group_queue import Decided, GroupQueue
from horolog.broker.turns import Slice
from horolog.clock import Clock
from horolog.config import LONG_MAX
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.groups.capacity import Capacity
from horolog.groups.group import Group
from horolog.groups.offsets import CommittedOffsets, TopicPartition
from horolog.groups.rows import GroupChange, GroupRow, OffsetRow
from horolog.groups.values import (
    Completed,
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

T = TypeVar("T")

# The amount of work per turn of the event loop.
_ANSWERS_AT_ONCE: Final = 100
_LEAVES_AT_ONCE: Final = 500

_SILENCE_S: Final = 60.0  # between two log messages of one kind
_ROOM_INTERVAL_S: Final = 10.0  # between two early expiries of idle groups


class GroupStore(Protocol):
    """Stores changes of groups durably (a `MetadataThread`)."""

    def write_groups(
        self, changes: Sequence[GroupChange], /
    ) -> "asyncio.Future[list[Exception | None]]":
        """The error of each change or None, after all are written in order."""
        ...


class Committer(NamedTuple):
    """The sender of a commit: a member of a generation, or a standalone consumer with -1."""

    member_id: str
    instance_id: str | None
    generation: int


class _Entry:
    """A group id: its group, if any, and its operation queue.

    `stored` is the group's row in the store; the group in memory may be ahead of it.
    """

    __slots__ = (
        "empty_since_ms",
        "group",
        "group_id",
        "noting",
        "queue",
        "stored",
        "timer",
        "timer_at_ms",
    )

    def __init__(self, group_id: str, queue: GroupQueue) -> None:
        self.group_id = group_id
        self.queue = queue
        self.group: Group | None = None
        self.stored: GroupRow | None = None
        self.empty_since_ms: int | None = None
        self.noting = False
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at_ms = 0

    def row(self) -> GroupRow:
        """The row of the group that should be stored."""
        protocol_type = None if self.group is None else self.group.protocol_type
        return GroupRow(self.group_id, protocol_type or "", self.empty_since_ms)


class GroupCoordinator:
    """The groups of this broker. For the event loop's thread only."""

    def __init__(
        self,
        limits: GroupLimits,
        store: GroupStore,
        clock: Clock,
        rows: Iterable[GroupRow] = (),
        offsets: Iterable[OffsetRow] = (),
        *,
        capacity: Capacity | None = None,
    ) -> None:
        self.offsets = CommittedOffsets(offsets)
        self._limits = limits
        self._capacity = Capacity() if capacity is None else capacity
        self._store = store
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._entries: dict[str, _Entry] = {}
        self._waiters: set[asyncio.Future[Any]] = set()
        self._closed = False
        self._silent_until: dict[str, float] = {}
        self._making_room: asyncio.Task[None] | None = None
        self._next_room_at = self._loop.time()
        for row in rows:
            group = self._create(self._entry(row.group_id))
            group.protocol_type = row.protocol_type or None
            entry = self._entries[row.group_id]
            entry.stored = row
            # Groups have no members after a restart.
            since_ms = row.empty_since_ms
            entry.empty_since_ms = (
                clock.now_ms() if since_ms is None and row.protocol_type else since_ms
            )
        for group_id in self.offsets.group_ids():
            entry = self._entry(group_id)
            if entry.group is None:
                self._create(entry)

    # --- membership -------------------------------------------------------------------

    async def join(self, group_id: str, join: Join) -> Joined:
        """Join a group; completes when the rebalance does.

        Raises:
            RequestRefused: the group refuses the member, or a memory limit is reached.
        """
        entry = self._entry(_checked(group_id))
        waiter = await entry.queue.run(partial(self._join, entry, join))
        return await waiter

    def _join(self, entry: _Entry, join: Join) -> "Decided[asyncio.Future[Joined]]":
        group = entry.group
        if group is None:
            if join.member_id:
                raise _no_member(join.member_id)
            group = self._create(entry)
        try:
            return Decided(self._asked(entry, group, partial(group.join, join)))
        except RequestRefused as error:
            self._on_refused(entry, error)
            raise
        finally:
            self._drop_if_unused(entry)

    async def sync(self, group_id: str, sync: Sync) -> Synced:
        """Get the member's assignment, once the leader has sent it.

        Raises:
            RequestRefused: not a member of this generation, or the assignment is too large.
        """
        entry = self._entry(_checked(group_id))
        waiter = await entry.queue.run(partial(self._sync, entry, sync))
        return await waiter

    def _sync(self, entry: _Entry, sync: Sync) -> "Decided[asyncio.Future[Synced]]":
        group = entry.group
        if group is None:
            raise _no_member(sync.member_id)
        try:
            return Decided(self._asked(entry, group, partial(group.sync, sync)))
        except RequestRefused as error:
            self._on_refused(entry, error)
            raise

    def _on_refused(self, entry: _Entry, error: RequestRefused) -> None:
        """Log refusals whose reason the protocol cannot carry, and free memory if that was it."""
        if error.code in (ErrorCode.group_max_size_reached, ErrorCode.coordinator_not_available):
            self._warn(f"refused a member of the group {entry.group_id!r}", error)
        is_full = error.code is ErrorCode.coordinator_not_available
        if is_full and self._making_room is None and self._loop.time() >= self._next_room_at:
            self._next_room_at = self._loop.time() + _ROOM_INTERVAL_S
            self._making_room = self._loop.create_task(self._make_room())

    async def _make_room(self) -> None:
        """Drop groups without members and offsets early, to free memory."""
        try:
            await self.expire(LONG_MAX)
        except HorologError as error:
            self._warn("idle groups could not be dropped", error)
        finally:
            self._making_room = None

    def _warn(self, what: str, error: HorologError) -> None:
        """Log errors of one class and code at most once a minute."""
        kind = f"{type(error).__name__} {code_for(error)}"
        now = self._loop.time()
        if now >= self._silent_until.get(kind, now):
            self._silent_until[kind] = now + _SILENCE_S
            _LOG.warning("%s: %s", what, error)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Extend a member's session.

        Raises:
            RequestRefused: not a member of this generation, or the member must rejoin.
        """
        group = self._find(_checked(group_id))
        if group is None:
            raise _no_member(member_id)
        group.heartbeat(member_id, instance_id, generation, self._now_ms())

    async def leave(
        self, group_id: str, members: Sequence[tuple[str, str | None]]
    ) -> list[ErrorCode]:
        """Remove members; return an error or None for each."""
        _checked(group_id)
        errors: list[ErrorCode] = []
        turns = Slice()
        for first in range(0, len(members), _LEAVES_AT_ONCE):
            entry = self._entry(group_id)
            some = members[first : first + _LEAVES_AT_ONCE]
            left: list[ErrorCode] = await entry.queue.run(partial(self._leave, entry, some))
            errors += left
            await turns.pause()
        return errors

    def _leave(
        self, entry: _Entry, members: Sequence[tuple[str, str | None]]
    ) -> Decided[list[ErrorCode]]:
        group = entry.group
        errors = []
        for member_id, instance_id in members:
            try:
                if group is None:
                    raise _no_member(member_id)
                self._perform(entry, group, partial(group.leave, member_id, instance_id))
            except RequestRefused as error:
                errors.append(code_for(error))
            else:
                errors.append(ErrorCode.none)
        return Decided(errors)

    # --- offsets ----------------------------------------------------------------------

    async def commit(
        self, group_id: str, by: Committer, offsets: Callable[[], Sequence[OffsetRow]]
    ) -> None:
        """Commit offsets; they can be fetched once this returns.

        `offsets` is called at the commit's turn in the queue, so that its checks (does the topic
        exist?) hold until the offsets are stored.

        Raises:
            RequestRefused: the committer has no assignment in this generation.
            StorageFailed: a write failed; no offset is committed.
        """
        entry = self._entry(group_id)
        await entry.queue.run(partial(self._commit, entry, by, offsets))

    def _commit(
        self, entry: _Entry, by: Committer, offsets: Callable[[], Sequence[OffsetRow]]
    ) -> Decided[None]:
        if entry.group is not None:
            entry.group.check_commit(*by, self._now_ms())
        elif by.generation >= 0:
            raise RequestRefused(
                ErrorCode.group_id_not_found, f"the group {entry.group_id!r} does not exist"
            )
        rows = offsets()
        if not rows:
            return Decided(None)
        new_row = entry.row() if entry.stored is None else None

        def apply() -> None:
            if entry.group is None:
                self._create(entry)
            if new_row is not None:
                entry.stored = new_row
            for row in rows:
                self.offsets.put(row)

        groups = () if new_row is None else (new_row,)
        return Decided(None, GroupChange(groups=groups, offsets=rows), apply)

    async def delete_offsets(
        self, group_id: str, keys: Collection[TopicPartition]
    ) -> frozenset[str]:
        """Delete offsets of unsubscribed topics; return the topics that are still subscribed.

        Raises:
            RequestRefused: the group does not exist, or is neither empty nor of consumers.
            StorageFailed: a write failed; no offset is deleted.
        """
        entry = self._entry(group_id)
        decide = partial(self._delete_offsets, entry, keys)
        return await entry.queue.run(decide, exclusive=True)

    def _delete_offsets(
        self, entry: _Entry, keys: Collection[TopicPartition]
    ) -> Decided[frozenset[str]]:
        group_id, group = entry.group_id, entry.group
        if group is None:
            raise _no_group(group_id)
        if group.state is not GroupState.EMPTY and group.protocol_type != "consumer":
            raise RequestRefused(ErrorCode.non_empty_group, f"the group {group_id!r} is not empty")
        is_subscribed = group.subscriptions()
        subscribed = frozenset(
            topic for topic in {topic for topic, _ in keys} if is_subscribed(topic)
        )
        gone = [
            key for key in keys if key[0] not in subscribed and self.offsets.get(group_id, *key)
        ]
        if not gone:
            return Decided(subscribed)
        change = GroupChange(dropped_offsets=[(group_id, *key) for key in gone])
        return Decided(subscribed, change, partial(self.offsets.drop, group_id, gone))

    # --- administration ---------------------------------------------------------------

    def describe(self, group_id: str) -> GroupDescription | None:
        """The group for DescribeGroups, or None."""
        group = self._find(group_id)
        return None if group is None else group.describe()

    def all(self) -> list[Group]:
        """All groups; read-only."""
        return [entry.group for entry in self._entries.values() if entry.group is not None]

    async def delete(self, group_id: str) -> None:
        """Delete an empty group and its offsets.

        Raises:
            RequestRefused: the group does not exist or has members.
            StorageFailed: a write failed; nothing is deleted.
        """
        entry = self._entries.get(group_id)
        if entry is None:
            raise _no_group(group_id)
        await entry.queue.run(partial(self._delete, entry), exclusive=True)

    def _delete(self, entry: _Entry) -> Decided[None]:
        if entry.group is None:
            raise _no_group(entry.group_id)
        if not entry.group.is_idle:
            raise RequestRefused(
                ErrorCode.non_empty_group, f"the group {entry.group_id!r} is not empty"
            )
        change = GroupChange(dropped_groups=[entry.group_id])
        return Decided(None, change, partial(self._forget, entry))

    async def forget_topic(self, topic: str, forget: Callable[[], Awaitable[object]]) -> None:
        """Drop the offsets of a deleted topic, which accepts no more commits.

        `forget` removes them from the store. It is called after all accepted commits are written.
        They are removed from memory even if it fails: the next start, or a new topic of that name,
        completes the removal.
        """
        busy = [entry for entry in self._entries.values() if not entry.queue.is_idle]
        for settled in [entry.queue.run(_nothing_decided, exclusive=True) for entry in busy]:
            await settled
        try:
            await forget()
        finally:
            turns = Slice()
            dropping = []
            for group_id in self.offsets.group_ids():
                drop = partial(self._drop_topic, group_id, topic)
                dropping.append(self._entry(group_id).queue.run(drop, exclusive=True))
                await turns.pause()
            for dropped in dropping:
                await dropped

    def _drop_topic(self, group_id: str, topic: str) -> Decided[None]:
        self.offsets.drop_topic(group_id, topic)
        return Decided(None)

    async def expire(self, retention_ms: int) -> int:
        """Expire offsets after `retention_ms`, and groups without any (KIP-211).

        Returns:
            The number of expired offsets.

        Raises:
            StorageFailed: a write failed; offsets that remain in the store are kept.
        """
        now_ms = self._clock.now_ms()
        turns = Slice()
        expiring = []
        for entry in list(self._entries.values()):
            await turns.pause()
            self._note_membership(entry)  # if the store has refused it before
            expire = partial(self._expire, entry, now_ms, retention_ms)
            if not entry.queue.is_idle or expire().change is not None:
                expiring.append(entry.queue.run(expire, exclusive=True))
        dropped = groups = 0
        failure: BaseException | None = None
        for outcome in await asyncio.gather(*expiring, return_exceptions=True):
            if isinstance(outcome, BaseException):
                failure = outcome
            else:
                dropped += outcome[0]
                groups += outcome[1]
        if dropped or groups:
            _LOG.info("dropped %d expired offsets and %d groups", dropped, groups)
        if failure is not None:
            raise failure
        return dropped

    def _expire(self, entry: _Entry, now_ms: int, retention_ms: int) -> Decided[tuple[int, int]]:
        """Drop expired offsets, and the group if nothing remains; return their numbers."""
        group_id, group = entry.group_id, entry.group
        if group is None:
            return Decided((0, 0))
        gone = self.offsets.expired(
            group_id, now_ms, retention_ms, entry.empty_since_ms, group.subscriptions
        )
        if group.is_idle and len(gone) == self.offsets.count(group_id):
            forget = partial(self._forget, entry)
            return Decided((len(gone), 1), GroupChange(dropped_groups=[group_id]), forget)
        if not gone:
            return Decided((0, 0))
        change = GroupChange(dropped_offsets=[(group_id, *key) for key in gone])
        return Decided((len(gone), 0), change, partial(self.offsets.drop, group_id, gone))

    def release_waiters(self) -> None:
        """Complete all waiting requests with COORDINATOR_NOT_AVAILABLE, for a stop."""
        stopping = RequestRefused(ErrorCode.coordinator_not_available, "the broker stops")
        for waiter in list(self._waiters):
            if not waiter.done():
                waiter.set_exception(stopping)

    async def close(self) -> None:
        """Cancel all timers, and wait for writes in flight."""
        self._closed = True
        if self._making_room is not None:
            self._making_room.cancel()
        for entry in self._entries.values():
            self._cancel_timer(entry)
        busy = [entry for entry in self._entries.values() if not entry.queue.is_idle]
        for settled in [entry.queue.run(_nothing_decided, exclusive=True) for entry in busy]:
            await settled

    # --- performing -------------------------------------------------------------------

    def _asked(
        self, entry: _Entry, group: Group, ask: Callable[[Waiter, int], list[Completed]]
    ) -> "asyncio.Future[Any]":
        """A future that the group completes; a refused request leaves no waiter."""
        waiter = self._loop.create_future()
        self._perform(entry, group, partial(ask, waiter))
        if not waiter.done():
            self._waiters.add(waiter)
            waiter.add_done_callback(self._waiters.discard)
        return waiter

    def _perform(
        self, entry: _Entry, group: Group, decide: Callable[[int], list[Completed]]
    ) -> None:
        """Resolve the completed waiters, store changes, and set the next timer."""
        was_empty = group.state is GroupState.EMPTY
        try:
            answers = decide(self._now_ms())
        finally:
            self._arm(entry, group)
        self._hand_out(answers)
        is_empty = group.state is GroupState.EMPTY
        if was_empty is not is_empty:
            entry.empty_since_ms = self._clock.now_ms() if is_empty else None
            self._note_membership(entry)

    def _hand_out(self, answers: list[Completed]) -> None:
        """Resolve the waiters, a limited number per turn of the event loop."""
        for waiter, value in answers[:_ANSWERS_AT_ONCE]:
            assert isinstance(waiter, asyncio.Future)
            if not waiter.done():
                waiter.set_result(value)
        if len(answers) > _ANSWERS_AT_ONCE:
            self._loop.call_later(0, self._hand_out, answers[_ANSWERS_AT_ONCE:])

    def _note_membership(self, entry: _Entry) -> None:
        """Store the group's row if it has changed."""
        if entry.noting or self._closed or not self._is_to_be_noted(entry):
            return
        entry.noting = True
        noted = entry.queue.run(partial(self._note, entry))
        noted.add_done_callback(partial(self._on_noted, entry))

    def _is_to_be_noted(self, entry: _Entry) -> bool:
        if entry.group is None or entry.stored == entry.row():
            return False
        return entry.stored is not None or not entry.group.is_unused

    def _note(self, entry: _Entry) -> Decided[None]:
        if not self._is_to_be_noted(entry):
            return Decided(None)
        row = entry.row()
        return Decided(None, GroupChange(groups=[row]), partial(setattr, entry, "stored", row))

    def _on_noted(self, entry: _Entry, written: "asyncio.Future[None]") -> None:
        entry.noting = False
        error = None if written.cancelled() else written.exception()
        if error is None:
            self._note_membership(entry)  # it may have changed while it was written
        elif isinstance(error, HorologError):
            self._warn(f"the state of the group {entry.group_id!r} could not be stored yet", error)
        else:
            raise error

    def _arm(self, entry: _Entry, group: Group) -> None:
        """Set the timer for `tick`; too early does no harm."""
        deadline_ms = group.next_deadline_ms()
        if deadline_ms is None or entry.group is not group or self._closed:
            self._cancel_timer(entry)
        elif entry.timer is None or deadline_ms < entry.timer_at_ms:
            self._cancel_timer(entry)
            entry.timer_at_ms = deadline_ms
            entry.timer = self._loop.call_at((deadline_ms + 1) / 1000, self._on_timer, entry, group)

    def _on_timer(self, entry: _Entry, group: Group) -> None:
        entry.timer = None
        entry.queue.run(partial(self._tick, entry, group))

    def _tick(self, entry: _Entry, group: Group) -> Decided[None]:
        if entry.group is group:  # otherwise deleted while this was queued
            self._perform(entry, group, group.tick)
            self._drop_if_unused(entry)
        return Decided(None)

    def _cancel_timer(self, entry: _Entry) -> None:
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None

    # --- entries ----------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _find(self, group_id: str) -> Group | None:
        entry = self._entries.get(group_id)
        return None if entry is None else entry.group

    def _entry(self, group_id: str) -> _Entry:
        entry = self._entries.get(group_id)
        if entry is None:
            queue = GroupQueue(self._store.write_groups, lambda: self._on_idle(group_id, queue))
            entry = self._entries[group_id] = _Entry(group_id, queue)
        return entry

    def _on_idle(self, group_id: str, queue: GroupQueue) -> None:
        """The queue is idle: drop the entry unless it has a group."""
        entry = self._entries.get(group_id)
        if entry is not None and entry.queue is queue and entry.group is None:
            del self._entries[group_id]

    def _create(self, entry: _Entry) -> Group:
        group = entry.group = Group(entry.group_id, self._limits, self._capacity)
        return group

    def _drop_if_unused(self, entry: _Entry) -> None:
        """Drop a group that a refused join created, unless something of it is stored."""
        group = entry.group
        if group is None or entry.stored is not None or self.offsets.count(entry.group_id):
            return
        if group.is_unused:
            self._forget(entry)

    def _forget(self, entry: _Entry) -> None:
        group, entry.group = entry.group, None
        if group is not None:
            group.kill()
        self._cancel_timer(entry)
        self.offsets.drop_group(entry.group_id)
        entry.stored = None
        entry.empty_since_ms = None


def _nothing_decided() -> Decided[None]:
    return Decided(None)


def _checked(group_id: str) -> str:
    if not group_id:
        raise RequestRefused(ErrorCode.invalid_group_id, "a group id must not be empty")
    return group_id


def _no_member(member_id: str) -> RequestRefused:
    return RequestRefused(ErrorCode.unknown_member_id, f"{member_id!r} is not a member of a group")


def _no_group(group_id: str) -> RequestRefused:
    return RequestRefused(ErrorCode.group_id_not_found, f"The group id {group_id} does not exist.")
