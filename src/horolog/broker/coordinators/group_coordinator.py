"""Runs the state machines of `groups`, and stores their changes.

The members of a generation are stored before they get their assignments, and committed offsets
before they are visible in memory. After a restart members go on in their generation.

The operations on one group are serialised by its `GroupQueue`. Heartbeats, OffsetFetch and
descriptions do not use the queue: each is a single step on the state in memory that no queued
operation depends on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Final

from horolog.broker.coordinators.consumer_groups import ConsumerGroups, MayDescribe
from horolog.broker.coordinators.group_transactions import GroupTransactions
from horolog.broker.coordinators.live_groups import ConsumerRules, GroupEntry, LiveGroups
from horolog.broker.coordinators.offsets_log import OffsetsLog
from horolog.broker.coordinators.shards import Shards
from horolog.broker.coordinators.state_topics import StateTopic
from horolog.broker.scheduling.group_queue import GroupDecision
from horolog.broker.scheduling.turns import TimeSlice
from horolog.buffers import Buffer
from horolog.clock import Clock
from horolog.config import LONG_MAX
from horolog.errors import ErrorCode, HorologError, RequestRefused, StorageFailed
from horolog.groups.capacity import Capacity
from horolog.groups.consumers.commits import check_commit
from horolog.groups.consumers.group import ConsumerGroup
from horolog.groups.consumers.values import Beat, Beaten
from horolog.groups.group import Group
from horolog.groups.offsets import CommittedOffsets
from horolog.groups.replay import GroupReplay, TopicId
from horolog.groups.rows import (
    GroupChange,
    OffsetRow,
    StoredGroups,
)
from horolog.groups.values import (
    Committer,
    GroupLimits,
    GroupSnapshot,
    GroupState,
    Join,
    Joined,
    Sync,
    Synced,
)
from horolog.offsets import TopicPartition
from horolog.record.markers import TransactionEnd

_LOG = logging.getLogger(__name__)

_ROOM_INTERVAL_S: Final = 10.0  # between two early expiries of idle groups


class GroupCoordinator:
    """Coordinator of this broker's groups. For the event loop's thread only."""

    def __init__(
        self,
        limits: GroupLimits,
        store: OffsetsLog,
        clock: Clock,
        capacity: Capacity,
        rules: ConsumerRules,
    ) -> None:
        self.expired = 0
        """Offsets that have expired since the start."""
        self._clock = clock
        self._store = store
        self._loop = asyncio.get_running_loop()
        self.offsets = CommittedOffsets(capacity=capacity)
        self._groups = LiveGroups(limits, store, clock, self.offsets, capacity, rules)
        self.consumers = ConsumerGroups(self._groups, clock)
        self.transactions = GroupTransactions(self._groups, store, self.offsets)
        self._making_room: asyncio.Task[None] | None = None
        self._next_room_at = self._loop.time()
        self._shards: Shards[GroupReplay] | None = None  # None: all is there
        self.is_elsewhere = False
        """Whether other brokers coordinate all groups: nothing is known of any here."""
        self._loader: asyncio.Task[None] | None = None

    # --- loading ------------------------------------------------------------------------

    def load(self, log: StateTopic, topic_id: TopicId, workers: Executor) -> None:
        """Begin to load groups and offsets from `__consumer_offsets`.

        Until its partition is loaded a group is answered with COORDINATOR_LOAD_IN_PROGRESS.

        Args:
            topic_id: returns the id of a topic, because offsets of an earlier topic of the same
                name do not count; any thread may call it.
            workers: threads that decode the records of a partition.
        """

        async def take_over(replay: GroupReplay) -> None:
            def decode() -> StoredGroups:
                return replay.stored(topic_id)

            stored = await self._loop.run_in_executor(workers, decode)
            # A topic may have been deleted meanwhile.
            await self.restore(stored, lambda row: row.topic_id in (None, topic_id(row.topic)))

        self.consumers.work_in(workers)
        self._shards = Shards(log, GroupReplay, take_over)
        if self._shards.is_loading:
            self._loader = self._loop.create_task(self._shards.run())
            self._loader.add_done_callback(_say_bug)

    async def restore(
        self, stored: StoredGroups, counts: Callable[[OffsetRow], bool] = lambda row: True
    ) -> None:
        """Restore stored groups and offsets, which nothing changes meanwhile.

        Args:
            counts: whether an offset still does.
        """
        turns = TimeSlice()
        owners: set[str] = set()
        for row in stored.offsets:
            if counts(row):
                self.offsets.put(row)
                owners.add(row.group_id)
            await turns.pause()
        for pending in stored.pending:
            if counts(pending.row):
                self.offsets.pending.put(pending)
                owners.add(pending.row.group_id)
            await turns.pause()
        for group in stored.groups:  # last: sessions begin with it
            self._groups.restore(group)
            await turns.pause()
        for group_id, records in stored.consumer.items():
            self._groups.restore_consumers(group_id, records)
            await turns.pause()
        for group_id in owners:
            entry = self._groups.entry(group_id)
            if entry.group is None:
                self._groups.create(entry)
            await turns.pause()
        for group_id, keys in stored.owed.items():
            self._groups.drop_records(group_id, keys)
            await turns.pause()

    def has(self, group_id: str) -> bool:
        """True if a group of this id exists."""
        return self._groups.find(group_id) is not None

    def _check(self, group_id: str) -> None:
        _check_id(group_id)
        self.check_loaded(group_id)

    async def tried(self) -> None:
        """Wait until each partition is loaded, or its first load has failed."""
        if self._shards is not None:
            await self._shards.tried()

    @property
    def is_loading(self) -> bool:
        """True if the groups of a partition are not loaded yet."""
        return self._shards is not None and self._shards.is_loading

    def is_loading_group(self, group_id: str) -> bool:
        """True if a group is not loaded yet."""
        return self._shards is not None and self._shards.has(group_id)

    def check_here(self) -> None:
        """Refuse to answer for groups where other brokers coordinate them (NOT_COORDINATOR)."""
        if self.is_elsewhere:
            raise RequestRefused(
                ErrorCode.not_coordinator, "This broker coordinates no groups in its cluster"
            )

    def check_loaded(self, group_id: str) -> None:
        """Refuse a group that is not loaded yet with COORDINATOR_LOAD_IN_PROGRESS."""
        self.check_here()
        if self._shards is not None:
            self._shards.check(group_id)

    def check_all_loaded(self) -> None:
        """Refuse to answer for all groups while some are not loaded, with the same error."""
        self.check_here()
        if self._shards is not None:
            self._shards.check_all()

    async def end_transaction(self, partition_index: int, ended: TransactionEnd) -> None:
        """Write the marker of a transaction; see `GroupTransactions.end`.

        Raises:
            RequestRefused: as there, or the partition is not loaded yet (14).
            StorageFailed: as there.
        """
        if self._shards is not None:
            self._shards.check_partition(partition_index)
        await self.transactions.end(partition_index, ended)

    # --- membership -------------------------------------------------------------------

    async def join(self, group_id: str, join: Join) -> Joined:
        """Join a group; completes when the rebalance does.

        Raises:
            RequestRefused: the group refuses the member, or a memory limit is reached.
        """
        self._check(group_id)
        if not self._store.is_ready:
            await self._store.ready()
        entry = self._groups.entry(group_id)
        while True:
            if entry.consumers is not None:
                joined = await self.consumers.join(entry, join)
                if joined is not None:
                    return joined
            waiter = await entry.queue.run(partial(self._join, entry, join))
            if waiter is not None:
                return await waiter

    def _join(
        self, entry: GroupEntry, join: Join
    ) -> "GroupDecision[asyncio.Future[Joined] | None]":
        if entry.consumers is not None:
            return GroupDecision(None)  # since it was looked at
        group = entry.classic
        if group is None:
            if join.member_id:
                raise _no_member(join.member_id)
            group = self._groups.create(entry)
        try:
            waiter = self._groups.asked(entry, group, partial(group.join, join))
            return self._groups.answered(entry, group, waiter)
        except RequestRefused as error:
            self._on_refused(entry, error)
            raise
        finally:
            self._groups.drop_if_unused(entry)

    async def sync(self, group_id: str, sync: Sync) -> Synced:
        """Return the member's assignment once the leader has sent it.

        Raises:
            RequestRefused: not a member of this generation, or the assignment is too large.
        """
        self._check(group_id)
        entry = self._groups.entry(group_id)
        if entry.consumers is not None:
            return await self.consumers.sync(entry, sync)
        waiter = await entry.queue.run(partial(self._sync, entry, sync))
        return await waiter

    def _sync(self, entry: GroupEntry, sync: Sync) -> "GroupDecision[asyncio.Future[Synced]]":
        group = entry.classic
        if group is None:
            raise _no_member(sync.member_id)
        try:
            waiter = self._groups.asked(entry, group, partial(group.sync, sync))
            return self._groups.answered(entry, group, waiter)
        except RequestRefused as error:
            self._on_refused(entry, error)
            raise

    def _on_refused(self, entry: GroupEntry, error: RequestRefused) -> None:
        """Log refusals whose reason the protocol cannot carry, and free memory if that was it."""
        if error.code in (ErrorCode.group_max_size_reached, ErrorCode.coordinator_not_available):
            self._groups.warn(f"refused a member of the group {entry.group_id!r}", error)
        is_full = error.code is ErrorCode.coordinator_not_available
        if is_full and self._making_room is None and self._loop.time() >= self._next_room_at:
            self._next_room_at = self._loop.time() + _ROOM_INTERVAL_S
            self._making_room = self._loop.create_task(self._make_room())

    async def _make_room(self) -> None:
        """Drop groups without members and offsets early, to free memory."""
        try:
            await self.expire(LONG_MAX)
        except HorologError as error:
            self._groups.warn("idle groups could not be dropped", error)
        finally:
            self._making_room = None

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Extend a member's session.

        Raises:
            RequestRefused: not a member of this generation, or the member must rejoin.
        """
        if self.is_loading_group(group_id):
            return  # as Kafka: the next one tells
        _check_id(group_id)
        entry = self._groups.get(group_id)
        if entry is None or entry.group is None:
            raise _no_member(member_id)
        if entry.classic is not None:
            now_ms = self._groups.now_ms()
            entry.classic.heartbeat(member_id, instance_id, generation, now_ms)
        else:
            self.consumers.beat_of_classic(entry, member_id, instance_id, generation)

    async def consumer_heartbeat(
        self, group_id: str, beat: Beat, may_describe: MayDescribe
    ) -> Beaten:
        """Take the heartbeat of a member of a consumer group; see `ConsumerGroups.heartbeat`.

        Raises:
            RequestRefused: as there, or the group is not loaded yet (14).
            StorageFailed: as there.
        """
        self._check(group_id)
        if not self._store.is_ready:
            await self._store.ready()
        return await self.consumers.heartbeat(group_id, beat, may_describe)

    async def leave(
        self, group_id: str, members: Sequence[tuple[str, str | None]]
    ) -> list[ErrorCode]:
        """Remove members together; return the error of each."""
        self._check(group_id)
        entry = self._groups.entry(group_id)
        if entry.consumers is not None:
            left = await self.consumers.leave(entry, members)
            if left is not None:
                return left
        waiter = await entry.queue.run(partial(self._leave, entry, members))
        return await waiter

    def _leave(
        self, entry: GroupEntry, members: Sequence[tuple[str, str | None]]
    ) -> "GroupDecision[asyncio.Future[list[ErrorCode]]]":
        group = entry.classic
        if group is None:
            unknown: asyncio.Future[list[ErrorCode]] = self._loop.create_future()
            unknown.set_result([ErrorCode.unknown_member_id] * len(members))
            return GroupDecision(unknown)
        return GroupDecision(self._groups.asked(entry, group, partial(group.leave, members)))

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
        self.check_loaded(group_id)
        if not self._store.is_ready:
            await self._store.ready()
        entry = self._groups.entry(group_id)
        await entry.queue.run(partial(self._commit, entry, by, offsets))

    def commit_again(
        self,
        group_id: str,
        by: Committer,
        records: Buffer,
        count: int,
        now_ms: int,
        partitions: bytes,
        rows: Callable[[], Sequence[OffsetRow]],
    ) -> bool:
        """Commit offsets as encoded records; return False without an effect if that may wait.

        Args:
            group_id: of a group that has committed before.
            now_ms: the clock, in milliseconds.
            partitions: bytes that are equal only for offsets of the same partitions.
            rows: returns the offsets for memory, called when they are first read.

        Raises:
            RequestRefused, StorageFailed: as `commit`.
        """
        if self._shards is not None and self._shards.has(group_id):
            return False
        entry = self._groups.get(group_id)
        if entry is None or entry.group is None:
            return False
        if entry.classic is not None and entry.stored is None:
            return False
        if not entry.queue.is_idle:
            return False
        self._check_commit(entry, by, rows)
        if not self._store.write_records(group_id, records, count, now_ms):
            return False
        self.offsets.put_unread(group_id, partitions, rows)
        return True

    def _commit(
        self, entry: GroupEntry, by: Committer, offsets: Callable[[], Sequence[OffsetRow]]
    ) -> GroupDecision[None]:
        if entry.group is not None:
            self._check_commit(entry, by, offsets)
        elif by.generation >= 0:
            raise RequestRefused(
                ErrorCode.group_id_not_found, f"the group {entry.group_id!r} does not exist"
            )
        rows = offsets()
        if not rows:
            return GroupDecision(None)
        new_row = entry.row() if entry.stored is None else None

        def apply() -> None:
            if entry.group is None:
                self._groups.create(entry)
            if new_row is not None:
                entry.note_stored(new_row)
            self.offsets.put_all(entry.group_id, rows)

        groups = () if new_row is None else (new_row,)
        return GroupDecision(None, GroupChange(groups=groups, offsets=rows), apply)

    def _check_commit(
        self, entry: GroupEntry, by: Committer, rows: Callable[[], Sequence[OffsetRow]]
    ) -> None:
        if entry.classic is not None:
            entry.classic.check_commit(by, self._groups.now_ms())
        elif entry.consumers is not None:
            check_commit(entry.consumers, by, rows)

    async def replace_offset(self, before: OffsetRow, after: OffsetRow) -> None:
        """Replace a committed offset if it is unchanged, whoever is a member of the group.

        Raises:
            StorageFailed: a write failed; it is as it was.
        """
        self.check_loaded(before.group_id)
        entry = self._groups.entry(before.group_id)
        await entry.queue.run(partial(self._replace, before, after))

    def _replace(self, before: OffsetRow, after: OffsetRow) -> GroupDecision[None]:
        if self.offsets.get(before.group_id, before.topic, before.partition) != before:
            return GroupDecision(None)
        return GroupDecision(None, GroupChange(offsets=[after]), partial(self.offsets.put, after))

    async def delete_offsets(
        self, group_id: str, keys: Collection[TopicPartition]
    ) -> frozenset[str]:
        """Delete offsets of unsubscribed topics; return the topics that are still subscribed.

        Raises:
            RequestRefused: the group does not exist, or is neither empty nor of consumers.
            StorageFailed: a write failed; no offset is deleted.
        """
        self.check_loaded(group_id)
        entry = self._groups.entry(group_id)
        decide = partial(self._delete_offsets, entry, keys)
        return await entry.queue.run(decide, exclusive=True)

    def _delete_offsets(
        self, entry: GroupEntry, keys: Collection[TopicPartition]
    ) -> GroupDecision[frozenset[str]]:
        group_id, group = entry.group_id, entry.group
        if group is None:
            raise _no_group(group_id)
        if group.state is not GroupState.EMPTY and group.protocol_type != "consumer":
            raise RequestRefused(ErrorCode.non_empty_group, f"the group {group_id!r} is not empty")
        is_subscribed = group.subscriptions()
        subscribed = frozenset(
            topic for topic in {topic for topic, _ in keys} if is_subscribed(topic)
        )
        gone = [key for key in keys if key[0] not in subscribed and self.offsets.has(group_id, key)]
        if not gone:
            return GroupDecision(subscribed)
        change = GroupChange(dropped_offsets=[(group_id, *key) for key in gone])
        return GroupDecision(subscribed, change, partial(self.offsets.drop, group_id, gone))

    # --- administration ---------------------------------------------------------------

    def describe(self, group_id: str) -> GroupSnapshot | None:
        """Return the group for DescribeGroups, or None.

        Raises:
            RequestRefused: it is not loaded yet (14).
        """
        self.check_loaded(group_id)
        group = self._groups.find(group_id)
        return group.describe() if isinstance(group, Group) else None

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """Return the consumer group of an id, if there is one; read-only.

        Raises:
            RequestRefused: it is not loaded yet (14).
        """
        self.check_loaded(group_id)
        group = self._groups.find(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    @property
    def rebalances(self) -> Mapping[str, int]:
        """Rebalances since the start, by type of the group."""
        return self._groups.rebalances

    def all(self) -> list[Group | ConsumerGroup]:
        """Return all groups; read-only."""
        return [entry.group for entry in self._groups if entry.group is not None]

    async def delete(self, group_id: str) -> None:
        """Delete an empty group and its offsets.

        Raises:
            RequestRefused: the group does not exist or has members.
            StorageFailed: a write failed; nothing is deleted.
        """
        self.check_loaded(group_id)
        entry = self._groups.get(group_id)
        if entry is None:
            raise _no_group(group_id)
        await entry.queue.run(partial(self._delete, entry), exclusive=True)

    def _delete(self, entry: GroupEntry) -> GroupDecision[None]:
        if entry.group is None:
            raise _no_group(entry.group_id)
        if entry.group.member_count:
            raise RequestRefused(
                ErrorCode.non_empty_group, f"the group {entry.group_id!r} is not empty"
            )
        return GroupDecision(None, self._drop(entry), partial(self._groups.forget, entry))

    def _drop(self, entry: GroupEntry) -> GroupChange:
        """Return the change that drops a group with its offsets."""
        group_id, consumers = entry.group_id, entry.consumers
        gone = [(group_id, *key) for key in self.offsets.keys(group_id)]
        if consumers is not None:
            return GroupChange(dropped_offsets=gone, records=consumers.dropped())
        return GroupChange(dropped_groups=[group_id], dropped_offsets=gone)

    async def forget_topic(self, topic: str, forget: Callable[[], Awaitable[object]]) -> None:
        """Drop the offsets of a deleted topic, which accepts no more commits.

        `forget` removes the topic from the store. It is called after all accepted commits are
        written. Where the offsets cannot be dropped on the disk, a start leaves them out: they are
        of a topic with another id.
        """
        await self._groups.settle()
        try:
            await forget()
        finally:
            turns = TimeSlice()
            dropping = []
            for group_id in self.offsets.group_ids():
                drop = partial(self._drop_topic, group_id, topic)
                dropping.append(self._groups.entry(group_id).queue.run(drop, exclusive=True))
                await turns.pause()
            for dropped in dropping:
                with suppress(StorageFailed):
                    await dropped

    def _drop_topic(self, group_id: str, topic: str) -> GroupDecision[None]:
        gone = [(group_id, *key) for key in self.offsets.keys(group_id) if key[0] == topic]
        self.offsets.drop_topic(group_id, topic)
        return GroupDecision(None, GroupChange(dropped_offsets=gone) if gone else None)

    async def expire(self, retention_ms: int) -> int:
        """Expire offsets after `retention_ms`, and groups without any (KIP-211).

        Returns:
            The number of expired offsets.

        Raises:
            StorageFailed: a write failed; offsets that remain in the store are kept.
        """
        now_ms = self._clock.now_ms()
        turns = TimeSlice()
        expiring = []
        for entry in self._groups:
            await turns.pause()
            if self.is_loading_group(entry.group_id):
                continue  # its offsets may not be there yet
            self._groups.note_membership(entry)  # if the store has refused it before
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
        self.expired += dropped
        if dropped or groups:
            _LOG.info("dropped %d expired offsets and %d groups", dropped, groups)
        if failure is not None:
            raise failure
        return dropped

    def _expire(
        self, entry: GroupEntry, now_ms: int, retention_ms: int
    ) -> GroupDecision[tuple[int, int]]:
        """Drop expired offsets, and the group if nothing remains; return their numbers.

        None expires while the group rebalances: its topics are not known (KAFKA-13636).
        """
        group_id, group = entry.group_id, entry.group
        if group is None:
            return GroupDecision((0, 0))
        settled = (GroupState.EMPTY, GroupState.STABLE)
        if entry.classic is not None and group.state not in settled:
            return GroupDecision((0, 0))
        gone = self.offsets.expired(
            group_id, now_ms, retention_ms, entry.empty_since_ms, group.subscriptions
        )
        is_last = len(gone) == len(self.offsets.keys(group_id))
        if group.is_idle and is_last:
            forget = partial(self._groups.forget, entry)
            return GroupDecision((len(gone), 1), self._drop(entry), forget)
        if not gone:
            return GroupDecision((0, 0))
        change = GroupChange(dropped_offsets=[(group_id, *key) for key in gone])
        return GroupDecision((len(gone), 0), change, partial(self.offsets.drop, group_id, gone))

    def release_waiters(self) -> None:
        """Complete all waiting requests with COORDINATOR_NOT_AVAILABLE, for a stop."""
        self._groups.release_waiters()

    async def close(self) -> None:
        """Stop loading, cancel all timers, and wait for writes in flight."""
        if self._loader is not None:
            self._loader.cancel()
            await asyncio.wait([self._loader])
        if self._making_room is not None:
            self._making_room.cancel()
        await self.consumers.close()
        await self._groups.close()


def _check_id(group_id: str) -> None:
    if not group_id:
        raise RequestRefused(ErrorCode.invalid_group_id, "a group id must not be empty")


def _say_bug(loader: "asyncio.Task[None]") -> None:
    if not loader.cancelled() and (error := loader.exception()) is not None:
        _LOG.error("a bug in the group coordinator", exc_info=error)


def _no_member(member_id: str) -> RequestRefused:
    return RequestRefused(ErrorCode.unknown_member_id, f"{member_id!r} is not a member of a group")


def _no_group(group_id: str) -> RequestRefused:
    return RequestRefused(ErrorCode.group_id_not_found, f"The group id {group_id} does not exist.")
