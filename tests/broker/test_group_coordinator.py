"""What happens to one group, interleaved on purpose, equals one thing after the other.

The store is a fake whose writes complete when the test says so, and fail when it says so.
"""

import asyncio
import gc
import struct
import weakref
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from horolog.broker import ConsumerRules, GroupCoordinator
from horolog.clock import ManualClock
from horolog.errors import ErrorCode, RequestRefused, StorageFailed
from horolog.groups import (
    Capacity,
    Committer,
    ConsumerLimits,
    GroupChange,
    GroupLimits,
    GroupRow,
    GroupState,
    GroupTimes,
    Join,
    Joined,
    OffsetRow,
    Protocol,
    StoredGroups,
    Sync,
)
from horolog.metadata import TopicRegistry
from horolog.schemas.offsets import partition_for

SESSION_MS = 10_000
REBALANCE_MS = 20_000
RETENTION_MS = 1_000
SIMPLE = Committer("", None, -1)
SUBSCRIPTION = struct.pack(">hih", 1, 1, 1) + b"a"


class StillLoop(asyncio.SelectorEventLoop):
    """An event loop whose time the test turns."""

    now_s = 1_000.0

    def time(self) -> float:
        return self.now_s

    def settle(self) -> None:
        """Run until nothing is left to run."""
        for _ in range(30):
            self.run_until_complete(asyncio.sleep(0))


@dataclass
class SlowStore:
    """Holds what was written; a write waits for `complete`."""

    offsets: dict[tuple[str, str, int], OffsetRow] = field(default_factory=dict)
    groups: dict[str, GroupRow] = field(default_factory=dict)
    pending: list[tuple[Sequence[GroupChange], "asyncio.Future[Any]"]] = field(default_factory=list)
    forgetting: list[tuple[str, "asyncio.Future[None]"]] = field(default_factory=list)

    is_ready = True
    partition_of = staticmethod(partial(partition_for, partitions=50))

    async def ready(self) -> None:
        """Nothing to prepare."""

    def write_groups(self, changes: Sequence[GroupChange]) -> "asyncio.Future[Any]":
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.pending.append((changes, done))
        return done

    def forget_topic(self, topic: str) -> "asyncio.Future[None]":
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.forgetting.append((topic, done))
        return done

    def complete(self, number: int, failures: int = 0) -> None:
        """Complete one write; bits of `failures` say which of its changes fail."""
        changes, done = self.pending.pop(number % len(self.pending))
        outcomes: list[Exception | None] = []
        for change in changes:
            outcomes.append(StorageFailed("slow disk") if failures & 1 else None)
            if not failures & 1:
                self._apply(change)
            failures >>= 1
        done.set_result(outcomes)

    def complete_forgetting(self, fails: bool) -> None:
        topic, done = self.forgetting.pop(0)
        if fails:
            done.set_exception(StorageFailed("slow disk"))
        else:
            self.drop_topic(topic)
            done.set_result(None)

    def drop_topic(self, topic: str) -> None:
        for key in [key for key in self.offsets if key[1] == topic]:
            del self.offsets[key]

    def _apply(self, change: GroupChange) -> None:
        for group_id in change.dropped_groups:
            self.groups.pop(group_id, None)
            for key in [key for key in self.offsets if key[0] == group_id]:
                del self.offsets[key]
        for key in change.dropped_offsets:
            self.offsets.pop(key, None)
        for row in change.groups:
            self.groups[row.group_id] = row
        for offset in change.offsets:
            self.offsets[offset.group_id, offset.topic, offset.partition] = offset


@dataclass
class Done:
    """An operation in the order it was asked, and what became of it."""

    what: str
    args: tuple[Any, ...]
    at_ms: int
    task: "asyncio.Task[Any]"
    rows: list[OffsetRow] = field(default_factory=list)

    @property
    def outcome(self) -> Any:
        error = self.task.exception()
        if isinstance(error, RequestRefused):
            return error.code
        if error is not None:
            assert isinstance(error, StorageFailed), error
            return StorageFailed
        return self.task.result()


class World:
    """A coordinator over a slow store, one group `g`, topics `a` and `b`."""

    def __init__(self, loop: StillLoop, capacity: Capacity | None = None) -> None:
        self.loop = loop
        self.store = SlowStore()
        self.clock = ManualClock(1_000_000)
        self.topics = {"a": 1, "b": 2}  # name -> id
        self.next_id = 3
        self.undeleted: set[str] = set()  # topics that the store could not forget
        self.done: list[Done] = []
        self.committed = 0
        self.capacity = capacity
        self.restart()

    def restart(self, **limits: int) -> None:
        """A new coordinator with what is in the store."""

        async def make() -> GroupCoordinator:
            coordinator = GroupCoordinator(
                GroupLimits(initial_rebalance_delay_ms=0, **limits),
                self.store,
                self.clock,
                self.capacity or Capacity(),
                ConsumerRules(ConsumerLimits(), lambda _: GroupTimes(), TopicRegistry()),
            )
            stored = StoredGroups([*self.store.groups.values()], [*self.store.offsets.values()])
            await coordinator.restore(stored)
            return coordinator

        self.groups = self.loop.run_until_complete(make())

    def start(self, what: str, call: Coroutine[Any, Any, Any], *args: Any) -> Done:
        done = Done(what, args, self.clock.now_ms(), self.loop.create_task(call))
        self.done.append(done)
        self.loop.settle()
        return done

    def commit(self, topic: str, by: Committer = SIMPLE) -> Done:
        self.committed += 1
        topic_id = self.topics.get(topic)
        row = OffsetRow("g", topic, 0, self.committed, -1, "", self.clock.now_ms())
        kept: list[OffsetRow] = []

        def offsets() -> list[OffsetRow]:
            if topic_id is not None and self.topics.get(topic) == topic_id:
                kept.append(row)
            return kept

        done = self.start("commit", self.groups.commit("g", by, offsets), by)
        done.rows = kept
        return done

    def join(self, session_ms: int = SESSION_MS, member_id: str = "") -> Done:
        join = Join(
            member_id=member_id,
            protocol_type="consumer",
            protocols=(Protocol("range", SUBSCRIPTION),),
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=REBALANCE_MS,
        )
        return self.start("join", self.groups.join("g", join))

    def sync(self, joined: Joined) -> Done:
        sync = Sync(member_id=joined.member_id, generation=joined.generation)
        return self.start("sync", self.groups.sync("g", sync), joined.member_id, joined.generation)

    def leave(self, member_id: str) -> Done:
        return self.start("leave", self.groups.leave("g", [(member_id, None)]), member_id)

    def delete(self) -> Done:
        return self.start("delete", self.groups.delete("g"))

    def delete_offsets(self) -> Done:
        return self.start("delete_offsets", self.groups.delete_offsets("g", [("a", 0), ("b", 0)]))

    def expire(self) -> Done:
        return self.start("expire", self.groups.expire(RETENTION_MS))

    def delete_topic(self, topic: str) -> Done:
        del self.topics[topic]
        forget = partial(self.store.forget_topic, topic)
        return self.start("begin_topic_deletion", self.groups.forget_topic(topic, forget), topic)

    def complete(self, number: int = 0, failures: int = 0) -> None:
        if self.store.pending:
            self.store.complete(number, failures)
            self.loop.settle()

    def complete_forgetting(self, failures: int = 0) -> None:
        if self.store.forgetting:
            topic = self.store.forgetting[0][0]
            if failures & 1:
                self.undeleted.add(topic)
            self.store.complete_forgetting(bool(failures & 1))
            self.start("delete_topic", nothing(), topic)

    def drain(self) -> None:
        while self.store.pending or self.store.forgetting:
            self.complete()
            self.complete_forgetting()

    def check_memory_is_durable(self) -> None:
        """Of topics that are there."""
        durable = {k: v for k, v in self.store.offsets.items() if k[1] in self.topics}
        memory = {("g", *k): v for k, v in self.groups.offsets.of_group("g").items()}
        assert {k: v for k, v in memory.items() if k[1] in self.topics} == durable


@contextmanager
def new_world(capacity: Capacity | None = None) -> Iterator[World]:
    loop = StillLoop()
    try:
        yield World(loop, capacity)
    finally:
        loop.close()


class Sequential:
    """One thing after the other: what each operation answers, and what is left."""

    def __init__(self) -> None:
        self.exists = False
        self.offsets: dict[str, OffsetRow] = {}
        self.member: str | None = None
        self.generation = 0
        self.is_stable = False
        self.empty_since_ms: int | None = None

    def forget(self) -> None:
        self.__init__()

    def lose_member(self, now_ms: int) -> None:
        self.member = None
        self.generation += 1
        self.empty_since_ms = now_ms

    def check(self, done: Done) -> None:
        getattr(self, done.what)(done, done.outcome)

    def commit(self, done: Done, outcome: Any) -> None:
        (by,) = done.args
        expected: Any = None
        if not self.exists and by.generation >= 0:
            expected = ErrorCode.group_id_not_found
        elif by.generation >= 0 or self.member is not None:
            if by.member_id != self.member:
                expected = ErrorCode.unknown_member_id
            elif by.generation != self.generation:
                expected = ErrorCode.illegal_generation
            elif not self.is_stable:
                expected = ErrorCode.rebalance_in_progress
        if outcome is StorageFailed:
            assert expected is None
            assert done.rows
            return
        if expected is ErrorCode.unknown_member_id and self.member is None:
            # The commit that creates the group may still be in flight: then this one was first.
            assert outcome in (expected, ErrorCode.group_id_not_found)
            return
        assert outcome == expected
        if expected is None and done.rows:
            self.exists = True
            self.offsets |= {row.topic: row for row in done.rows}

    def join(self, done: Done, outcome: Any) -> None:
        if isinstance(outcome, ErrorCode):
            assert outcome in (ErrorCode.invalid_session_timeout, ErrorCode.unknown_member_id)
            return
        assert self.member is None
        assert (outcome.error, outcome.generation) == (ErrorCode.none, self.generation + 1)
        self.exists, self.is_stable, self.empty_since_ms = True, False, None
        self.member, self.generation = outcome.member_id, outcome.generation

    def sync(self, done: Done, outcome: Any) -> None:
        if done.args == (self.member, self.generation):
            assert outcome.error is ErrorCode.none
            self.is_stable = True
        else:
            assert outcome in (ErrorCode.unknown_member_id, ErrorCode.illegal_generation)

    def leave(self, done: Done, outcome: Any) -> None:
        if done.args == (self.member,):
            assert outcome == [ErrorCode.none]
            self.lose_member(done.at_ms)
        else:
            assert outcome == [ErrorCode.unknown_member_id]

    def delete(self, done: Done, outcome: Any) -> None:
        if not self.exists:
            assert outcome is ErrorCode.group_id_not_found
        elif self.member is not None:
            assert outcome is ErrorCode.non_empty_group
        elif outcome is not StorageFailed:
            assert outcome is None
            self.forget()

    def delete_offsets(self, done: Done, outcome: Any) -> None:
        if not self.exists:
            assert outcome is ErrorCode.group_id_not_found
        elif outcome is not StorageFailed:
            assert outcome == ({"a"} if self.member is not None else set())
            self.offsets = {t: row for t, row in self.offsets.items() if t in outcome}

    def expire(self, done: Done, outcome: Any) -> None:
        def is_over(row: OffsetRow) -> bool:
            since_ms = max(row.commit_ms, self.empty_since_ms or 0)
            if self.member is not None and not self.is_stable:
                return False  # its topics are not known
            is_subscribed = self.member is not None and row.topic == "a"
            return done.at_ms - since_ms >= RETENTION_MS and not is_subscribed

        if outcome is StorageFailed:
            return
        left = {topic: row for topic, row in self.offsets.items() if not is_over(row)}
        assert outcome == len(self.offsets) - len(left)
        self.offsets = left
        if self.member is None and not left:
            self.forget()

    def begin_topic_deletion(self, done: Done, outcome: Any) -> None:
        """Takes effect when the store has been asked."""

    def delete_topic(self, done: Done, outcome: Any) -> None:
        self.offsets.pop(done.args[0], None)

    def end_sessions(self, done: Done, outcome: Any) -> None:
        if self.member is not None:
            self.lose_member(done.at_ms)


async def nothing() -> None: ...


Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("commit a", "commit b", "commit as member", "join", "sync", "leave"),
                *("refused join", "delete", "delete offsets", "expire", "later", "delete topic"),
                *("create topic", "complete topic", "end sessions", "complete", "complete"),
            ]
        ),
        st.integers(0, 7),
    ),
    min_size=10,
    max_size=50,
)


def take(world: World, step: Step) -> None:
    what, number = step
    joins = [done for done in world.done if done.what == "join"]
    answered = [d.outcome for d in joins if d.task.done() and isinstance(d.outcome, Joined)]
    match what:
        case "commit a" | "commit b":
            world.commit(what[-1])
        case "commit as member" if answered:
            joined = answered[-1 - number % len(answered)]
            world.commit("ab"[number % 2], Committer(joined.member_id, None, joined.generation))
        case "join":
            # A second member would have to wait for the first to join again.
            group = world.groups.describe("g")
            is_empty = group is None or group.state is GroupState.EMPTY
            if is_empty and all(done.task.done() for done in joins):
                world.join()
        case "refused join":
            world.join(session_ms=1, member_id="nobody" if number & 1 else "")
        case "sync" if answered:
            world.sync(answered[-1])
            world.drain()  # commits of the generation are refused until it is stored
        case "leave" if answered:
            world.leave(answered[-1 - number % len(answered)].member_id)
        case "delete":
            world.delete()
        case "delete offsets":
            world.delete_offsets()
        case "expire":
            world.expire()
        case "later":
            world.drain()
            world.clock.advance(RETENTION_MS // 2)
        case "delete topic" if world.topics.get("ab"[number % 2]):
            world.delete_topic("ab"[number % 2])
        case "create topic" if not world.store.forgetting:
            deleting = [
                d.args[0]
                for d in world.done
                if d.what == "begin_topic_deletion" and not d.task.done()
            ]
            for topic in {"a", "b"} - world.topics.keys() - set(deleting):
                world.topics[topic] = world.next_id
                world.next_id += 1
                if topic in world.undeleted:
                    world.store.drop_topic(topic)
        case "end sessions":
            world.drain()
            world.loop.now_s += 2 * (SESSION_MS + REBALANCE_MS) / 1000
            world.start("end_sessions", nothing())
        case "complete":
            world.complete(number, failures=number if number & 1 else 0)
        case "complete topic":
            world.complete_forgetting(failures=number == 7)
    world.check_memory_is_durable()


@examples(10)
@given(STEPS)
def test_interleaved_operations_equal_a_sequence(steps: list[Step]) -> None:
    with new_world() as world:
        for step in steps:
            take(world, step)
        world.drain()
        world.check_memory_is_durable()
        expected = Sequential()
        for done in world.done:
            assert done.task.done(), f"{done.what} was never answered"
            expected.check(done)
        memory = world.groups.offsets.of_group("g")
        assert {key[0]: row for key, row in memory.items()} == expected.offsets
        group = world.groups.describe("g")
        assert (group is not None) is expected.exists
        if group is None:
            assert "g" not in world.store.groups
        else:
            assert (group.state is GroupState.EMPTY) is (expected.member is None)
        restarted = {k: v for k, v in world.store.offsets.items() if k[1] in world.topics}
        assert restarted == {("g", row.topic, 0): row for row in expected.offsets.values()}


def test_members_join_and_send_heartbeats_while_a_commit_waits_for_the_disk() -> None:
    with new_world() as world:
        world.commit("a")
        joined = world.join().outcome
        syncing = world.sync(joined)
        world.groups.heartbeat("g", joined.member_id, None, joined.generation)
        assert not syncing.task.done()
        world.drain()
        assert syncing.outcome.error is ErrorCode.none
        second = world.commit("a", Committer(joined.member_id, None, joined.generation))
        assert not second.task.done()
        world.drain()
        assert second.outcome is None
        world.check_memory_is_durable()


def test_members_get_their_assignments_once_they_are_stored() -> None:
    with new_world() as world:
        joined = world.join().outcome
        world.drain()
        syncing = world.sync(joined)
        early = world.commit("a", Committer(joined.member_id, None, joined.generation))
        assert early.outcome is ErrorCode.rebalance_in_progress
        assert not syncing.task.done()
        assert world.store.groups["g"].members == ()
        world.complete()
        assert syncing.outcome.error is ErrorCode.none
        row = world.store.groups["g"]
        assert (row.generation, row.protocol, row.leader) == (1, "range", joined.member_id)
        assert [member.subscription for member in row.members] == [SUBSCRIPTION]


def test_a_group_whose_assignments_the_disk_refuses_rebalances_and_goes_on() -> None:
    with new_world() as world:
        joined = world.join().outcome
        world.drain()
        syncing = world.sync(joined)
        world.complete(failures=1)
        assert syncing.outcome.error is ErrorCode.not_coordinator
        assert world.groups.all()[0].state is GroupState.PREPARING_REBALANCE
        again = world.join(member_id=joined.member_id).outcome
        assert (again.error, again.generation) == (ErrorCode.none, 2)
        syncing = world.sync(again)
        world.drain()
        assert syncing.outcome.error is ErrorCode.none
        assert world.store.groups["g"].generation == 2


def test_a_member_that_leaves_while_its_assignment_is_written_leaves_an_empty_group() -> None:
    with new_world() as world:
        joined = world.join().outcome
        world.drain()
        syncing = world.sync(joined)
        world.leave(joined.member_id)
        world.drain()
        assert syncing.outcome.error is ErrorCode.unknown_member_id
        row = world.store.groups["g"]
        assert (row.generation, row.members, row.empty_since_ms) == (2, (), 1_000_000)


def test_a_restarted_coordinator_has_the_members_of_the_store() -> None:
    with new_world() as world:
        joined = world.join().outcome
        world.sync(joined)
        world.drain()
        world.restart()
        (member,) = world.groups.describe("g").members
        assert member.member_id == joined.member_id
        world.groups.heartbeat("g", joined.member_id, None, 1)
        by_former = world.commit("a", Committer(joined.member_id, None, 0))
        assert by_former.outcome is ErrorCode.illegal_generation
        by_member = world.commit("a", Committer(joined.member_id, None, 1))
        world.drain()
        assert by_member.outcome is None
        world.loop.now_s += 2 * SESSION_MS / 1000
        world.loop.settle()
        world.drain()
        assert world.groups.all()[0].state is GroupState.EMPTY
        assert world.store.groups["g"].members == ()


def test_more_members_than_a_group_may_have_join_again_after_a_restart() -> None:
    with new_world() as world:
        joined = world.join().outcome
        world.sync(joined)
        world.drain()
        world.restart(max_bytes=1)
        (group,) = world.groups.all()
        assert (group.state, group.generation) == (GroupState.EMPTY, 1)


def test_a_session_that_ends_while_offsets_are_deleted_ends_after_that() -> None:
    with new_world() as world:
        world.commit("a")
        world.commit("b")
        world.drain()
        joined = world.join().outcome
        world.sync(joined)
        world.drain()
        deleting = world.delete_offsets()
        world.loop.now_s += 2 * SESSION_MS / 1000
        world.loop.settle()
        assert world.groups.all()[0].state is GroupState.STABLE
        world.drain()
        assert deleting.outcome == {"a"}
        assert world.groups.all()[0].state is GroupState.EMPTY
        world.check_memory_is_durable()


def test_a_group_whose_state_could_not_be_stored_is_stored_later() -> None:
    with new_world() as world:
        joined = world.join().outcome
        world.complete(failures=1)
        assert world.store.groups == {}
        world.leave(joined.member_id)
        world.complete(failures=1)
        world.start("expire", world.groups.expire(RETENTION_MS * 1000))
        assert not world.groups.all() or world.store.pending
        world.drain()
        assert set(world.store.groups) == {group.group_id for group in world.groups.all()}


def test_groups_without_members_and_offsets_make_room_for_new_members() -> None:
    with new_world(Capacity(10_000)) as world:
        joins = []
        for number in range(20):
            join = Join(
                member_id="",
                protocol_type="consumer",
                protocols=(Protocol("range", b""),),
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
            )
            done = world.start("join", world.groups.join(f"g{number}", join))
            if isinstance(done.outcome, Joined):
                leave = world.groups.leave(f"g{number}", [(done.outcome.member_id, None)])
                world.start("leave", leave)
            joins.append(done.outcome)
            world.drain()
            world.loop.now_s += 10
        refused = [outcome for outcome in joins if not isinstance(outcome, Joined)]
        assert set(refused) == {ErrorCode.coordinator_not_available}
        assert len(refused) <= 3
        assert set(world.store.groups) == {group.group_id for group in world.groups.all()}
        assert len(world.store.groups) < 10


def test_a_refused_request_is_freed_without_the_collector() -> None:
    """Twenty refused joins of 50 MB would otherwise take a gigabyte until it comes."""
    view = memoryview(bytes(100))
    freed = weakref.ref(view)

    async def ask(groups: GroupCoordinator, metadata: memoryview) -> ErrorCode | None:
        join = Join(
            member_id="",
            protocol_type="consumer",
            protocols=(Protocol("range", metadata),),
            session_timeout_ms=1,
            rebalance_timeout_ms=REBALANCE_MS,
        )
        try:
            await groups.join("g", join)
        except RequestRefused as error:
            return error.code
        return None

    with new_world() as world:
        gc.disable()
        try:
            code = world.loop.run_until_complete(ask(world.groups, view))
            assert code is ErrorCode.invalid_session_timeout
            del view
            assert freed() is None
        finally:
            gc.enable()
