"""Offsets of transactions in the coordinator: no commit is left behind its marker."""

import asyncio
import gc
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from horolog.broker import ConsumerRules, GroupCoordinator
from horolog.clock import ManualClock
from horolog.errors import ErrorCode, HorologError, RequestRefused, StorageFailed, code_for
from horolog.groups import (
    Capacity,
    Committer,
    ConsumerLimits,
    GroupChange,
    GroupLimits,
    GroupTimes,
    Join,
    OffsetRow,
    Protocol,
    Sync,
    TransactionProducer,
)
from horolog.metadata import TopicRegistry
from horolog.record import TransactionEnd
from horolog.schemas.offsets import partition_for

SIMPLE = Committer("", None, -1)
PRODUCER = TransactionProducer(7, 0)
COMMIT = TransactionEnd(*PRODUCER, 0, is_commit=True)


class Store:
    """Writes complete when the test says so."""

    partition_of = staticmethod(partial(partition_for, partitions=50))

    def __init__(self) -> None:
        self.changes: list[GroupChange] = []
        self.waiting: list[tuple[int, asyncio.Future[Any]]] = []
        self.is_slow = False
        self.is_ready = True

    async def ready(self) -> None:
        """Nothing to prepare."""

    def write_groups(self, changes: Sequence[GroupChange]) -> "asyncio.Future[Any]":
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.changes += changes
        self.waiting.append((len(changes), done))
        if not self.is_slow:
            self.complete()
        return done

    def complete(self, error: Exception | None = None) -> None:
        for count, done in self.waiting:
            done.set_result([error] * count)
        self.waiting.clear()


class Lab:
    """A coordinator."""

    def __init__(self) -> None:
        self.store = Store()
        self.clock = ManualClock(1_000_000)
        limits = GroupLimits(initial_rebalance_delay_ms=0)
        rules = ConsumerRules(ConsumerLimits(), lambda _: GroupTimes(), TopicRegistry())
        self.groups = GroupCoordinator(limits, self.store, self.clock, Capacity(), rules)
        self.is_open = True
        self.partition = self.groups.transactions.partition_of("g")

    async def commit(
        self,
        offset: int,
        by: Committer = SIMPLE,
        admit: Callable[[], Any] = lambda: asyncio.sleep(0),
    ) -> ErrorCode:
        row = OffsetRow("g", "t", 0, offset, -1, "", 0)
        commit = self.groups.transactions.commit
        try:
            await commit("g", by, PRODUCER, lambda: [row], admit, self.confirm)
        except HorologError as error:
            return code_for(error)
        return ErrorCode.none

    def confirm(self) -> None:
        if not self.is_open:
            raise RequestRefused(ErrorCode.invalid_producer_epoch, "fenced")

    async def end(self, ended: TransactionEnd = COMMIT) -> None:
        """As the coordinator does, which leaves the transaction before."""
        self.is_open = False
        await self.groups.transactions.end(self.partition, ended)

    @property
    def committed(self) -> int | None:
        row = self.groups.offsets.get("g", "t", 0)
        return None if row is None else row.committed

    @property
    def is_pending(self) -> bool:
        return self.groups.offsets.pending.has("g", ("t", 0))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def run(test: Callable[[Lab], Any]) -> None:
    async def call() -> None:
        await test(Lab())

    asyncio.run(call())


def test_offsets_count_with_the_marker() -> None:
    async def test(lab: Lab) -> None:
        assert await lab.commit(5) is ErrorCode.none
        assert (lab.committed, lab.is_pending) == (None, True)
        await lab.end()
        assert (lab.committed, lab.is_pending) == (5, False)

    run(test)


def test_a_commit_that_was_admitted_before_the_marker_is_refused_behind_it() -> None:
    async def test(lab: Lab) -> None:
        admitted = asyncio.Event()
        commit = asyncio.create_task(lab.commit(5, admit=admitted.wait))
        await settle()
        await lab.end()
        admitted.set()
        assert await commit is ErrorCode.invalid_producer_epoch
        assert not lab.is_pending

    run(test)


def test_a_commit_that_waited_for_the_marker_of_the_former_transaction_is_of_the_next() -> None:
    """It was refused with INVALID_TXN_STATE, on which Kafka Streams gives up."""

    async def test(lab: Lab) -> None:
        await lab.commit(5)
        lab.store.is_slow = True
        end = asyncio.create_task(lab.end())
        commit = asyncio.create_task(lab.commit(6, admit=lambda: asyncio.shield(end)))
        await settle()
        lab.is_open = True  # by the next request of the producer
        for _ in range(2):
            lab.store.complete()
            await settle()
        assert await commit is ErrorCode.none
        assert (lab.committed, lab.is_pending) == (5, True)
        lab.store.is_slow = False
        await lab.end()
        assert lab.committed == 6

    run(test)


def test_a_marker_waits_for_commits_in_flight_even_of_callers_that_are_gone() -> None:
    async def test(lab: Lab) -> None:
        lab.store.is_slow = True
        commits = [asyncio.create_task(lab.commit(offset)) for offset in (5, 6)]
        await settle()
        end = asyncio.create_task(lab.end())
        await settle()
        commits[0].cancel()
        commits[1].cancel()
        for _ in range(4):
            await settle()
            lab.store.complete()
        await end
        assert [change.ended is None for change in lab.store.changes] == [True, True, False]
        assert (lab.committed, lab.is_pending) == (6, False)

    run(test)


def test_a_commit_while_the_marker_is_written_is_refused() -> None:
    async def test(lab: Lab) -> None:
        await lab.commit(5)
        lab.store.is_slow = True
        end = asyncio.create_task(lab.end())
        await settle()
        assert await lab.commit(6) is ErrorCode.invalid_producer_epoch
        lab.store.complete()
        await end
        assert lab.committed == 5
        lab.store.is_slow = False
        lab.is_open = True
        assert await lab.commit(7) is ErrorCode.none

    run(test)


def test_a_marker_that_could_not_be_written_is_tried_again() -> None:
    async def test(lab: Lab) -> None:
        await lab.commit(5)
        lab.store.is_slow = True
        end = asyncio.create_task(lab.end())
        await settle()
        lab.store.complete(StorageFailed("full"))
        with pytest.raises(StorageFailed):
            await end
        assert (lab.committed, lab.is_pending) == (None, True)
        lab.store.is_slow = False
        await lab.end()
        assert lab.committed == 5

    run(test)


def test_a_marker_that_could_not_be_written_of_a_caller_that_is_gone_is_no_lost_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(lab: Lab) -> None:
        lab.store.is_slow = True
        ended = asyncio.ensure_future(lab.end())
        await settle()
        ended.cancel()
        await settle()
        lab.store.complete(StorageFailed("the disk is full"))
        await settle()

    run(test)
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_a_refusal_of_the_transaction_coordinator_leaves_nothing() -> None:
    async def refuse() -> None:
        raise RequestRefused(ErrorCode.invalid_producer_epoch, "fenced")

    async def test(lab: Lab) -> None:
        assert await lab.commit(5, admit=refuse) is ErrorCode.invalid_producer_epoch
        assert (lab.store.changes, lab.groups.all()) == ([], [])

    run(test)


def test_a_group_with_pending_offsets_does_not_expire_and_can_be_deleted() -> None:
    async def test(lab: Lab) -> None:
        await lab.commit(5)
        lab.clock.advance(10_000)
        await lab.groups.expire(1)
        assert lab.groups.describe("g") is not None
        await lab.groups.delete("g")
        assert lab.store.changes[-1].dropped_offsets == [("g", "t", 0)]
        await lab.end()
        assert (lab.committed, lab.groups.describe("g")) == (None, None)

    run(test)


def test_offsets_of_an_aborted_transaction_leave_a_group_that_expires() -> None:
    async def test(lab: Lab) -> None:
        await lab.commit(5)
        await lab.end(COMMIT._replace(is_commit=False))
        assert lab.committed is None
        await lab.groups.expire(1)
        assert lab.groups.describe("g") is None

    run(test)


def test_a_topic_that_is_deleted_takes_its_pending_offsets() -> None:
    async def test(lab: Lab) -> None:
        await lab.commit(5)
        await lab.groups.forget_topic("t", lambda: asyncio.sleep(0))
        await lab.end()
        assert (lab.committed, lab.is_pending) == (None, False)

    run(test)


def test_members_of_another_generation_are_refused() -> None:
    async def test(lab: Lab) -> None:
        assert await lab.commit(1, Committer("m", None, 3)) is ErrorCode.group_id_not_found
        join = Join(
            member_id="",
            protocol_type="consumer",
            protocols=(Protocol("range", b""),),
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
        )
        joined = await lab.groups.join("g", join)
        member = Committer(joined.member_id, None, joined.generation)
        assert await lab.commit(2, member) is ErrorCode.none  # before the partitions are assigned
        await lab.groups.sync("g", Sync(member_id=joined.member_id, generation=joined.generation))
        assert await lab.commit(3, member) is ErrorCode.none
        stale = member._replace(generation=joined.generation - 1)
        assert await lab.commit(4, stale) is ErrorCode.illegal_generation
        stranger = member._replace(member_id="another")
        assert await lab.commit(5, stranger) is ErrorCode.unknown_member_id
        assert await lab.commit(6, SIMPLE) is ErrorCode.none  # a producer from before KIP-447
        await lab.end()
        assert lab.committed == 6

    run(test)
