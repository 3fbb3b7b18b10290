"""Groups in memory, each with its queue, its timer and the requests that wait for it.

An operation is decided in the group's queue (`GroupQueue`). Its change is stored, the timer is set
to the group's next deadline, and waiting requests are answered.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from horolog.broker.coordinators.offsets_log import OffsetsLog
from horolog.broker.scheduling.group_queue import GroupDecision, GroupQueue
from horolog.clock import Clock
from horolog.errors import ErrorCode, HorologError, RequestRefused, StorageFailed, code_for
from horolog.groups.capacity import Capacity
from horolog.groups.consumers.group import ConsumerGroup
from horolog.groups.consumers.heartbeats import expired
from horolog.groups.consumers.values import ConsumerLimits, GroupStep, GroupTimes, TopicLookup
from horolog.groups.group import Group
from horolog.groups.offsets import CommittedOffsets
from horolog.groups.rows import GroupChange, GroupRecord, GroupRow
from horolog.groups.values import Completed, GroupLimits, GroupState, Waiter
from horolog.schemas.offsets import GroupKey, Key

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

_ANSWERS_AT_ONCE: Final = 100  # resolved in one iteration of the event loop
_SILENCE_S: Final = 60.0  # between two log messages of one kind


class GroupEntry:
    """A group id: its group, if any, and its queue of operations.

    `stored` is the group's row in the store, but for the members; the group in memory may be ahead
    of it.
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
        self.group: Group | ConsumerGroup | None = None
        self.stored: GroupRow | None = None
        self.empty_since_ms: int | None = None
        self.noting = False
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at_ms = 0

    @property
    def classic(self) -> Group | None:
        """The group, if it is a classic one."""
        return self.group if isinstance(self.group, Group) else None

    @property
    def consumers(self) -> ConsumerGroup | None:
        """The group, if the broker assigns its partitions (KIP-848)."""
        return self.group if isinstance(self.group, ConsumerGroup) else None

    def row(self) -> GroupRow | None:
        """Return the row of a classic group without members; None of others."""
        if self.group is None:
            return GroupRow(self.group_id, "", self.empty_since_ms)
        return None if self.classic is None else self.classic.row(self.empty_since_ms)

    def note_stored(self, row: GroupRow) -> None:
        """Note that the row is stored."""
        self.stored = row._replace(members=())  # which may be large


class ConsumerRules(NamedTuple):
    """Limits and settings of consumer groups, and the topics there are (KIP-848)."""

    limits: ConsumerLimits
    times: Callable[[str], GroupTimes]
    """Returns the settings of a group as they are now."""
    topics: TopicLookup
    has_followed: Callable[[], bool] = bool
    """Returns whether members may come from another cluster, which this broker follows or did."""


class LiveGroups:
    """Groups of a broker, by id. For the event loop's thread only."""

    def __init__(
        self,
        limits: GroupLimits,
        store: OffsetsLog,
        clock: Clock,
        offsets: CommittedOffsets,
        capacity: Capacity,
        rules: ConsumerRules,
    ) -> None:
        self.rules = rules
        self.rebalances: Counter[str] = Counter()
        """Rebalances since the start, by type of the group."""
        self.limits = limits
        self._store = store
        self._clock = clock
        self._offsets = offsets
        self._capacity = capacity
        self._loop = asyncio.get_running_loop()
        self._entries: dict[str, GroupEntry] = {}
        self._waiters: set[asyncio.Future[Any]] = set()
        self._closed = False
        self._silent_until: dict[str, float] = {}

    def now_ms(self) -> int:
        """Return the event loop's time, by which sessions and rebalances are measured."""
        return int(self._loop.time() * 1000)

    def __iter__(self) -> Iterator[GroupEntry]:
        """Iterate over all entries, also while some are added or dropped."""
        return iter(list(self._entries.values()))

    def get(self, group_id: str) -> GroupEntry | None:
        """Return the entry of a group id, if it exists."""
        return self._entries.get(group_id)

    def find(self, group_id: str) -> Group | ConsumerGroup | None:
        """Return the group of an id, if it exists."""
        entry = self._entries.get(group_id)
        return None if entry is None else entry.group

    def entry(self, group_id: str) -> GroupEntry:
        """Return the entry of a group id, made if it does not exist."""
        entry = self._entries.get(group_id)
        if entry is None:
            queue = GroupQueue(self._store.write_groups, lambda: self._on_idle(group_id, queue))
            entry = self._entries[group_id] = GroupEntry(group_id, queue)
        return entry

    def _on_idle(self, group_id: str, queue: GroupQueue) -> None:
        """Drop the entry of an idle queue, unless it has a group."""
        entry = self._entries.get(group_id)
        if entry is not None and entry.queue is queue and entry.group is None:
            del self._entries[group_id]

    def create(self, entry: GroupEntry) -> Group:
        """Create the group of an entry."""
        group = entry.group = Group(entry.group_id, self.limits, self._capacity)
        return group

    def consumer_group(self, group_id: str) -> ConsumerGroup:
        """Return a new consumer group, which is in no entry yet."""
        times = partial(self.rules.times, group_id)
        return ConsumerGroup(group_id, self.rules.limits, self._capacity, times)

    def restore_consumers(self, group_id: str, records: Iterable[GroupRecord]) -> None:
        """Create a consumer group as it was stored; sessions of its members begin now."""
        entry = self.entry(group_id)
        group = entry.group = self.consumer_group(group_id)
        group.restore(records, self.now_ms(), self._clock.now_ms())
        group.resolved_version = self.rules.topics.version
        self._arm(entry, group)

    def restore(self, row: GroupRow) -> None:
        """Create a group as it was stored; sessions of its members begin now."""
        entry = self.entry(row.group_id)
        group = self.create(entry)
        entry.note_stored(row)
        try:
            group.restore(row, self.now_ms())
        except HorologError as error:
            _LOG.error("The members of the group %r have to join again: %s", row.group_id, error)
        if group.state is GroupState.EMPTY:
            entry.empty_since_ms = row.empty_since_ms
            if row.empty_since_ms is None and row.protocol_type:
                entry.empty_since_ms = self._clock.now_ms()
        self._arm(entry, group)

    def drop_if_unused(self, entry: GroupEntry) -> None:
        """Drop a group that a refused join created, unless something of it is stored."""
        group = entry.classic
        if group is None or entry.stored is not None or not self._offsets.is_empty(entry.group_id):
            return
        if group.is_unused:
            self.forget(entry)

    def forget(self, entry: GroupEntry) -> None:
        """Drop the group of an entry with its offsets, which the store has dropped."""
        group, entry.group = entry.group, None
        if group is not None:
            group.kill()
        self._cancel_timer(entry)
        self._offsets.drop_group(entry.group_id)
        entry.stored = None
        entry.empty_since_ms = None

    # --- operations ------------------------------------------------------------------

    def asked(
        self, entry: GroupEntry, group: Group, ask: Callable[[Waiter, int], list[Completed]]
    ) -> "asyncio.Future[Any]":
        """Return a future that the group completes; a refused request leaves no waiter."""
        waiter = self._loop.create_future()
        self.perform(entry, group, partial(ask, waiter))
        if not waiter.done():
            self._waiters.add(waiter)
            waiter.add_done_callback(self._waiters.discard)
        return waiter

    def answered(
        self, entry: GroupEntry, group: Group, waiter: "asyncio.Future[T]"
    ) -> "GroupDecision[asyncio.Future[T]]":
        """Return the answer to a member, with the row that is stored before it."""
        storing = group.take_storing()
        if storing is None:
            return GroupDecision(waiter)

        def apply() -> None:
            entry.note_stored(storing.row)
            self.perform(entry, group, partial(group.stored, storing))

        def refused(error: BaseException) -> None:
            if isinstance(error, HorologError):
                self.warn(f"the members of the group {entry.group_id!r} are not stored", error)
            else:
                _LOG.error("The members of %r are not stored", entry.group_id, exc_info=error)
            self.perform(entry, group, partial(group.not_stored, storing, _to_members(error)))

        return GroupDecision(waiter, GroupChange(groups=[storing.row]), apply, refused)

    def stepped(
        self, entry: GroupEntry, group: ConsumerGroup, step: GroupStep, *, counts: bool = False
    ) -> GroupDecision[Any]:
        """Return the decision that a step of a consumer group is.

        The group takes the entry if another is there, or none; and it leaves it to a classic group
        if the step says so.

        Args:
            counts: a new epoch of the group counts as a rebalance, as all of Kafka's but those of
                members that go.
        """
        records, was = step.records, entry.group
        if was is not group and entry.stored is not None:
            records = [(GroupKey(entry.group_id), None), *records]

        def apply() -> None:
            if was is not group:
                entry.group, entry.stored, entry.empty_since_ms = group, None, None
                if isinstance(was, Group):
                    self._hand_out(was.dissolve(ErrorCode.rebalance_in_progress))
            before = group.epoch
            group.apply(step, self.now_ms())
            if counts and group.epoch > before:
                self.rebalances[group.kind] += 1
            if step.becomes is None:
                self._arm(entry, group)
            else:
                self._become_classic(entry, step.becomes, rebalances=step.rebalances)

        change = None
        if records:
            groups = [] if step.becomes is None else [step.becomes]
            change = GroupChange(records=records, groups=groups)
        return GroupDecision(step.answer, change, apply)

    def emptied(self, entry: GroupEntry, group: ConsumerGroup) -> GroupDecision[None]:
        """Return the decision to make a classic group of a consumer group without members."""
        row = GroupRow(entry.group_id, "", None)

        def apply() -> None:
            group.kill()
            self._cancel_timer(entry)
            self.create(entry)
            entry.note_stored(row)

        return GroupDecision(None, GroupChange(records=group.dropped(), groups=[row]), apply)

    def _become_classic(self, entry: GroupEntry, row: GroupRow, *, rebalances: bool) -> None:
        """Let a classic group take the place of a consumer group, whose members are gone."""
        assert entry.group is not None
        entry.group.kill()
        self.restore(row)
        if rebalances and (classic := entry.classic) is not None:
            self.perform(entry, classic, classic.rebalance)

    def perform(
        self, entry: GroupEntry, group: Group, decide: Callable[[int], list[Completed]]
    ) -> None:
        """Decide an operation, resolve completed waiters, store changes, and set the next timer."""
        before = group.state
        try:
            answers = decide(self.now_ms())
        finally:
            self._arm(entry, group)
        if group.state is GroupState.STABLE and before is not GroupState.STABLE:
            self.rebalances[group.kind] += 1
        self._hand_out(answers)
        is_empty = group.state is GroupState.EMPTY
        if (before is GroupState.EMPTY) is not is_empty:
            entry.empty_since_ms = self._clock.now_ms() if is_empty else None
            self.note_membership(entry)

    def _hand_out(self, answers: list[Completed]) -> None:
        """Resolve the waiters, a limited number per turn of the event loop."""
        for waiter, value in answers[:_ANSWERS_AT_ONCE]:
            assert isinstance(waiter, asyncio.Future)
            if not waiter.done():
                waiter.set_result(value)
        if len(answers) > _ANSWERS_AT_ONCE:
            self._loop.call_later(0, self._hand_out, answers[_ANSWERS_AT_ONCE:])

    def note_membership(self, entry: GroupEntry) -> None:
        """Store the group's row if it has changed."""
        if entry.noting or self._closed or not self._is_to_be_noted(entry):
            return
        entry.noting = True
        # Exclusive: a row without members must not follow one that is decided before, with them.
        noted = entry.queue.run(partial(self._note, entry), exclusive=True)
        noted.add_done_callback(partial(self._on_noted, entry))

    def _is_to_be_noted(self, entry: GroupEntry) -> bool:
        group, stored = entry.classic, entry.stored
        if group is None:
            return False
        if stored is None:
            return not group.is_unused
        if group.state is GroupState.EMPTY:
            return stored != entry.row()
        return stored.empty_since_ms is not None

    def _note(self, entry: GroupEntry) -> GroupDecision[None]:
        if not self._is_to_be_noted(entry):
            return GroupDecision(None)
        row = entry.row()
        assert row is not None, "it is a classic group"
        return GroupDecision(None, GroupChange(groups=[row]), partial(entry.note_stored, row))

    def _on_noted(self, entry: GroupEntry, written: "asyncio.Future[None]") -> None:
        entry.noting = False
        error = None if written.cancelled() else written.exception()
        if error is None:
            self.note_membership(entry)  # it may have changed while it was written
        elif isinstance(error, HorologError):
            self.warn(f"the state of the group {entry.group_id!r} could not be stored yet", error)
        else:
            raise error

    def drop_records(self, group_id: str, keys: Sequence[Key]) -> None:
        """Write tombstones of keys that a group does not have in memory."""
        change = GroupChange(records=[(key, None) for key in keys])
        decision = GroupDecision(None, change, refused=partial(self._on_not_dropped, group_id))
        self.entry(group_id).queue.run(lambda: decision, exclusive=True)

    def _on_not_dropped(self, group_id: str, error: BaseException) -> None:
        if not isinstance(error, HorologError):
            raise error
        self.warn(f"records of the group {group_id!r} could not be dropped yet", error)

    def _arm(self, entry: GroupEntry, group: Group | ConsumerGroup) -> None:
        """Set the timer for `tick`; a timer that fires too early does no harm."""
        deadline_ms = group.next_deadline_ms()
        if deadline_ms is None or entry.group is not group or self._closed:
            self._cancel_timer(entry)
        elif entry.timer is None or deadline_ms < entry.timer_at_ms:
            self._cancel_timer(entry)
            entry.timer_at_ms = deadline_ms
            entry.timer = self._loop.call_at((deadline_ms + 1) / 1000, self._on_timer, entry)

    def _on_timer(self, entry: GroupEntry) -> None:
        entry.timer, group = None, entry.group  # which may have taken the place of another
        if group is None:
            return
        if isinstance(group, Group):
            entry.queue.run(partial(self._tick, entry, group))
        else:
            fenced = entry.queue.run(partial(self._fence, entry, group), exclusive=True)
            fenced.add_done_callback(partial(self._on_fenced, entry))

    def _tick(self, entry: GroupEntry, group: Group) -> GroupDecision[None]:
        if entry.group is group:  # otherwise deleted while this was queued
            self.perform(entry, group, group.tick)
            self.drop_if_unused(entry)
        return GroupDecision(None)

    def _fence(self, entry: GroupEntry, group: ConsumerGroup) -> GroupDecision[None]:
        """Remove the members of a consumer group whose time is over."""
        if entry.group is not group:
            return GroupDecision(None)
        step = expired(group, self.rules.topics, self.now_ms())
        self._arm(entry, group)
        return GroupDecision(None) if step is None else self.stepped(entry, group, step)

    def _on_fenced(self, entry: GroupEntry, written: "asyncio.Future[None]") -> None:
        error = None if written.cancelled() else written.exception()
        if isinstance(error, HorologError):
            self.warn(f"members of the group {entry.group_id!r} could not be removed yet", error)
        elif error is not None:
            raise error

    def _cancel_timer(self, entry: GroupEntry) -> None:
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None

    def warn(self, what: str, error: HorologError) -> None:
        """Log errors of one class and code at most once a minute."""
        kind = f"{type(error).__name__} {code_for(error)}"
        now = self._loop.time()
        if now >= self._silent_until.get(kind, now):
            self._silent_until[kind] = now + _SILENCE_S
            _LOG.warning("%s: %s", what, error)

    def release_waiters(self) -> None:
        """Complete all waiting requests with COORDINATOR_NOT_AVAILABLE, for a stop."""
        stopping = RequestRefused(ErrorCode.coordinator_not_available, "the broker stops")
        for waiter in list(self._waiters):
            if not waiter.done():
                waiter.set_exception(stopping)

    async def close(self) -> None:
        """Cancel all timers, and wait for writes in flight."""
        self._closed = True
        for entry in self._entries.values():
            self._cancel_timer(entry)
        await self.settle()

    async def settle(self) -> None:
        """Wait for all operations that are queued now, and their writes."""
        busy = [entry for entry in self._entries.values() if not entry.queue.is_idle]
        for settled in [entry.queue.run(_nothing_decided, exclusive=True) for entry in busy]:
            await settled


def _to_members(error: BaseException) -> ErrorCode:
    """Return the error for members whose row is not in the log, as Kafka does."""
    if isinstance(error, StorageFailed):
        return ErrorCode.not_coordinator
    if isinstance(error, HorologError) and code_for(error) is ErrorCode.coordinator_not_available:
        return ErrorCode.coordinator_not_available
    return ErrorCode.unknown_server_error


def _nothing_decided() -> GroupDecision[None]:
    return GroupDecision(None)
