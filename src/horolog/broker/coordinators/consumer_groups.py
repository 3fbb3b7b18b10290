"""Consumer groups of the broker (KIP-848): their heartbeats in the queue of each group.

A heartbeat is decided on the state in memory, its records are written, and then they count. What
takes long is done in a thread. A large group is assigned beside its heartbeats: the one with which
that begins waits for it, and is decided again; others are answered with what counts meanwhile. The
patterns of a group are resolved beside them, too.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

from horolog.broker.coordinators.live_groups import GroupEntry, LiveGroups
from horolog.broker.scheduling.group_queue import GroupDecision
from horolog.broker.scheduling.turns import TimeSlice
from horolog.clock import Clock
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.groups.consumers import classic_members
from horolog.groups.consumers.assignment import AssignmentJob, assigned, large_job
from horolog.groups.consumers.change import Now
from horolog.groups.consumers.conversion import conversion_of
from horolog.groups.consumers.group import ConsumerGroup, no_member
from horolog.groups.consumers.heartbeats import heartbeat, quiet
from horolog.groups.consumers.subscription_patterns import Resolution, patterns_due, resolved
from horolog.groups.consumers.topic_patterns import resolve
from horolog.groups.consumers.values import Beat, Beaten, GroupStep
from horolog.groups.group import Group
from horolog.groups.rows import GroupRecord
from horolog.groups.values import GroupState, Join, Joined, Sync, Synced

_LOG = logging.getLogger(__name__)

MayDescribe = Callable[[str], bool]
"""Tells whether a client may describe a topic."""


class ConsumerGroups:
    """Heartbeats of consumer groups. For the event loop's thread only."""

    def __init__(self, groups: LiveGroups, clock: Clock) -> None:
        self._groups = groups
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._workers: Executor | None = None
        self._assigning: dict[str, asyncio.Task[None]] = {}
        self._resolving: dict[str, asyncio.Task[None]] = {}

    def work_in(self, workers: Executor) -> None:
        """Do what takes long in threads of these."""
        self._workers = workers

    async def heartbeat(self, group_id: str, beat: Beat, may_describe: MayDescribe) -> Beaten:
        """Take a heartbeat, and return the answer once its records are in the log.

        Args:
            may_describe: asks about topics that patterns of the group match.

        Raises:
            RequestRefused: as `groups.consumers.heartbeats.heartbeat`, or there is no such
                consumer group (69).
            StorageFailed: a write failed; nothing has changed.
        """
        entry = self._groups.entry(group_id)
        quiet_answer = self._quiet(entry, beat)
        if quiet_answer is not None:
            return quiet_answer
        decide = partial(self._decide, entry)
        answer = await entry.queue.run(partial(decide, beat), exclusive=True)
        if beat.epoch >= 0 and (task := self._assignment_that_begins(entry)) is not None:
            await asyncio.shield(task)
            again = beat._replace(member_id=answer.member_id, epoch=answer.epoch)
            with suppress(RequestRefused):
                later = await entry.queue.run(partial(decide, again), exclusive=True)
                unchanged = later.assignment is None
                answer = later._replace(assignment=answer.assignment) if unchanged else later
        group = entry.consumers
        if group is not None and group.regexes:
            self._resolve_if_due(entry, group, may_describe)
        return answer

    def _quiet(self, entry: GroupEntry, beat: Beat) -> Beaten | None:
        """Return the answer to a heartbeat that changes nothing, and waits for nothing."""
        group = entry.consumers
        if group is None or group.regexes or not entry.queue.is_idle:
            return None
        step = quiet(group, beat, self._groups.rules.topics.version)
        if step is None:
            return None
        self._groups.stepped(entry, group, step).apply()
        answer: Beaten = step.answer
        return answer

    def _decide(self, entry: GroupEntry, beat: Beat) -> GroupDecision[Beaten]:
        group, before = self._group(entry, beat)
        step = heartbeat(group, beat, self._groups.rules.topics, self._now())
        step = step._replace(
            records=[*before.records, *step.records], timers=[*before.timers, *step.timers]
        )
        return self._groups.stepped(entry, group, step, counts=beat.epoch >= 0)

    def _group(self, entry: GroupEntry, beat: Beat) -> tuple[ConsumerGroup, GroupStep]:
        """Return the group of a heartbeat, and what makes it a consumer group."""
        group = entry.group
        if isinstance(group, ConsumerGroup):
            return group, GroupStep(None)
        joins = beat.epoch == 0
        if beat.epoch > 0 and self._groups.rules.has_followed():
            # Of a client that came here from the source. It joins; at 69 librdkafka ends for good.
            raise no_member(entry.group_id, beat.member_id)
        if group is None:
            if not joins:
                text = "Consumer group" if beat.epoch > 0 else "Group"
                raise _not_found(f"{text} {entry.group_id} not found.")
            return self._groups.consumer_group(entry.group_id), GroupStep(None)
        if joins and group.state is GroupState.EMPTY:
            return self._groups.consumer_group(entry.group_id), GroupStep(None)
        if joins:
            return self._converted(entry, group)
        raise _not_found(f"Group {entry.group_id} is not a consumer group.")

    def _converted(self, entry: GroupEntry, classic: Group) -> tuple[ConsumerGroup, GroupStep]:
        group = self._groups.consumer_group(entry.group_id)
        step = conversion_of(classic, group, self._groups.rules.topics)
        for key, value in step.records:
            group.replay(key, value, self._groups.now_ms())
        return group, step

    # --- members of the classic protocol ------------------------------------------------

    async def join(self, entry: GroupEntry, asked: Join) -> Joined | None:
        """Let a member of the classic protocol join; None if the group is a classic one now.

        Raises:
            RequestRefused: as `groups.consumers.classic_members.join`.
            StorageFailed: a write failed; nothing has changed.
        """
        decide = partial(self._join, entry, new_id=str(uuid4()))
        joined = await entry.queue.run(partial(decide, asked), exclusive=True)
        if joined is not None and (task := self._assignment_that_begins(entry)) is not None:
            await asyncio.shield(task)
            again = replace(asked, member_id=joined.member_id)
            with suppress(RequestRefused):
                joined = await entry.queue.run(partial(decide, again), exclusive=True)
        return joined

    def _join(self, entry: GroupEntry, asked: Join, new_id: str) -> GroupDecision[Joined | None]:
        group, rules = entry.consumers, self._groups.rules
        if group is None:
            return GroupDecision(None)
        if group.is_idle:
            return self._groups.emptied(entry, group)
        self._groups.limits.check(asked)
        if not any(rules.limits.policy):
            raise RequestRefused(
                ErrorCode.inconsistent_group_protocol,
                f"The group {entry.group_id} has members of the consumer protocol.",
            )
        step = classic_members.join(group, asked, new_id, rules.topics, self._now())
        return self._groups.stepped(entry, group, step, counts=True)

    async def sync(self, entry: GroupEntry, asked: Sync) -> Synced:
        """Tell a member of the classic protocol what it may have.

        Raises:
            RequestRefused: as `groups.consumers.classic_members.sync`.
        """
        return await entry.queue.run(partial(self._sync, entry, asked), exclusive=True)

    def _sync(self, entry: GroupEntry, asked: Sync) -> GroupDecision[Synced]:
        group = entry.consumers
        if group is None:  # it has become a classic group
            raise RequestRefused(ErrorCode.rebalance_in_progress, "the group is rebalancing")
        step = classic_members.sync(group, asked, self._groups.rules.topics)
        return self._groups.stepped(entry, group, step)

    def beat_of_classic(
        self, entry: GroupEntry, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Take the Heartbeat of a member of the classic protocol.

        Raises:
            RequestRefused: as `groups.consumers.classic_members.heartbeat`, or it has to join
                again (27).
        """
        group = entry.consumers
        assert group is not None, "the caller has found it"
        step = classic_members.heartbeat(group, member_id, instance_id, generation)
        self._groups.stepped(entry, group, step).apply()
        if step.answer:
            raise RequestRefused(step.answer, "a new rebalance has begun")

    async def leave(
        self, entry: GroupEntry, members: Sequence[tuple[str, str | None]]
    ) -> list[ErrorCode] | None:
        """Remove members; return the error of each, or None if the group is a classic one now.

        Raises:
            StorageFailed: a write failed; all are members still.
        """
        return await entry.queue.run(partial(self._leave, entry, members), exclusive=True)

    def _leave(
        self, entry: GroupEntry, members: Sequence[tuple[str, str | None]]
    ) -> GroupDecision[list[ErrorCode] | None]:
        group = entry.consumers
        if group is None:
            return GroupDecision(None)
        step = classic_members.leave(group, members, self._groups.rules.topics)
        return self._groups.stepped(entry, group, step)

    def _now(self) -> Now:
        return Now(self._groups.now_ms(), self._clock.now_ms())

    # --- in threads ---------------------------------------------------------------------

    def _assignment_that_begins(self, entry: GroupEntry) -> "asyncio.Task[None] | None":
        """Begin an assignment that takes long, if it is due and none is under way."""
        group, topics = entry.consumers, self._groups.rules.topics
        if group is None or entry.group_id in self._assigning:
            return None
        job = large_job(group, topics, self._groups.now_ms())
        if job is None:
            return None
        task = self._loop.create_task(self._assign(entry, group, job))
        self._assigning[entry.group_id] = task
        what = f"members of {entry.group_id!r} are not assigned anew yet"
        task.add_done_callback(partial(self._on_done, self._assigning, entry.group_id, what))
        return task

    async def _assign(self, entry: GroupEntry, group: ConsumerGroup, job: AssignmentJob) -> None:
        records = await self._loop.run_in_executor(self._workers, job.made)
        take = partial(self._take_assignment, entry, group, job, records)
        await entry.queue.run(take, exclusive=True)

    def _take_assignment(
        self,
        entry: GroupEntry,
        group: ConsumerGroup,
        job: AssignmentJob,
        records: Sequence[GroupRecord],
    ) -> GroupDecision[None]:
        if entry.group is not group:
            return GroupDecision(None)
        step = assigned(group, job, records, self._clock.now_ms())
        return self._groups.stepped(entry, group, step)

    def _resolve_if_due(
        self, entry: GroupEntry, group: ConsumerGroup, may_describe: MayDescribe
    ) -> None:
        if entry.group_id in self._resolving:
            return
        topics = self._groups.rules.topics
        patterns = patterns_due(group, topics, self._groups.now_ms())
        if not patterns:
            return
        looked_at = topics.version, self._now()
        work = self._resolve(entry, group, patterns, looked_at, may_describe)
        task = self._resolving[entry.group_id] = self._loop.create_task(work)
        what = f"topics of patterns of {entry.group_id!r} do not count yet"
        task.add_done_callback(partial(self._on_done, self._resolving, entry.group_id, what))

    async def _resolve(
        self,
        entry: GroupEntry,
        group: ConsumerGroup,
        patterns: Collection[str],
        looked_at: tuple[int, Now],
        may_describe: MayDescribe,
    ) -> None:
        version, now = looked_at
        find = partial(resolve, patterns, self._groups.rules.topics.names())
        matched = await self._loop.run_in_executor(self._workers, find)
        # Rights may change while a thread works: they are asked here.
        may: dict[str, bool] = {}
        turns = TimeSlice()
        for name in set().union(*matched.values()):
            may[name] = may_describe(name)
            await turns.pause()
        found = {regex: {name for name in of if may[name]} for regex, of in matched.items()}
        resolution = Resolution(found, version, 0, now)
        await entry.queue.run(partial(self._take, entry, group, resolution), exclusive=True)

    def _take(
        self, entry: GroupEntry, group: ConsumerGroup, found: Resolution
    ) -> GroupDecision[None]:
        if entry.group is not group:
            return GroupDecision(None)
        group.resolved_at_ms, group.resolved_version = found.now.loop_ms, found.names_version
        step = resolved(group, self._groups.rules.topics, found)
        return self._groups.stepped(entry, group, step, counts=True)

    def _on_done(
        self,
        tasks: dict[str, asyncio.Task[None]],
        group_id: str,
        what: str,
        task: "asyncio.Task[None]",
    ) -> None:
        del tasks[group_id]
        error = None if task.cancelled() else task.exception()
        if isinstance(error, HorologError):
            self._groups.warn(what, error)
        elif error is not None:
            _LOG.error("a bug in what threads do for groups", exc_info=error)

    async def close(self) -> None:
        """Stop what threads do for groups."""
        tasks: list[asyncio.Task[Any]] = [*self._assigning.values(), *self._resolving.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _not_found(message: str) -> RequestRefused:
    return RequestRefused(ErrorCode.group_id_not_found, message)
