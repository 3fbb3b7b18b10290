"""The transaction coordinator over a log in memory: order, failures, restarts, time."""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest

from horolog.broker import LiveSettings, TransactionCoordinator
from horolog.buffers import Buffer
from horolog.clock import ManualClock
from horolog.config import Settings
from horolog.errors import ErrorCode, RequestRefused, StorageFailed
from horolog.record import LogRecord, TransactionEnd, stamped_batch
from horolog.schemas.offsets import partition_for
from horolog.schemas.transactions import TransactionStatus
from horolog.storage import TopicPartition
from horolog.transactions.replay import TransactionReplay
from horolog.transactions.values import LAST_EPOCH, ProducerIdentity

MOST_WAIT = "add.partitions.to.txn.retry.backoff.max.ms"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass
class LogInMemory:
    """`__transaction_state`, which outlives the coordinator."""

    name = "__transaction_state"

    count: int = 3
    exists: bool = False
    is_followed: bool = False
    batches: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    fails: int = 0
    loads_after: asyncio.Event | None = None
    is_prompt: bool = False
    """Whether a write is done when it is asked for, as on a disk that does not block."""
    hold: asyncio.Future[None] | None = None
    """With which the next writes are done."""

    async def ready(self) -> None:
        self.exists = True

    def epoch(self, index: int) -> int:
        return 0

    def partition_of(self, key: str) -> int:
        return partition_for(key, self.count)

    def append_record(self, key: str, record: LogRecord) -> asyncio.Future[None] | None:
        batches, batch = self.batches[self.partition_of(key)], stamped_batch([record], record[0])
        if self.is_prompt and not self.fails:
            batches.append(batch.data)
            return None
        if self.hold is not None:
            batches.append(batch.data)
            return self.hold
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.fails:
            self.fails -= 1
            done.set_exception(StorageFailed("full"))
        else:
            batches.append(batch.data)
            done.set_result(None)
        return done

    async def load(self, index: int, take: Callable[[Buffer], None]) -> None:
        if self.loads_after is not None:
            await self.loads_after.wait()
        for batch in self.batches[index]:
            take(batch)


@dataclass
class MarkersInMemory:
    """The logs of partitions: who has ended what there, and how."""

    topics: dict[str, UUID] = field(default_factory=lambda: {"t": uuid4(), "u": uuid4()})
    written: list[tuple[TopicPartition, ProducerIdentity, bool, bool]] = field(default_factory=list)
    fails: int = 0
    hold: asyncio.Event | None = None
    is_prompt: bool = False

    def topic_id(self, topic: str) -> UUID | None:
        return self.topics.get(topic)

    def known_id(self, topic: str) -> UUID | None:
        return self.topic_id(topic)

    def coordinator_epoch(self, index: int) -> int:
        return 0

    def end(
        self, partition: TopicPartition, ended: TransactionEnd
    ) -> Coroutine[Any, Any, None] | None:
        if not self.is_prompt:
            return self._end_later(partition, ended)
        self._end(partition, ended)
        return None

    async def _end_later(self, partition: TopicPartition, ended: TransactionEnd) -> None:
        if self.hold is not None:
            await self.hold.wait()
        self._end(partition, ended)

    def _end(self, partition: TopicPartition, ended: TransactionEnd) -> None:
        if self.fails:
            self.fails -= 1
            raise StorageFailed("full")
        producer = ProducerIdentity(ended.producer_id, ended.producer_epoch)
        self.written.append((partition, producer, ended.is_commit, ended.is_strict))


class Lab:
    """A coordinator that can be started again."""

    def __init__(self) -> None:
        self.log, self.markers, self.clock = LogInMemory(), MarkersInMemory(), ManualClock()
        # A slow machine refuses nothing.
        self.live = LiveSettings(Settings({MOST_WAIT: "60000"}))
        self.last_id = 0
        self.start()

    def start(self) -> None:
        self.coordinator = TransactionCoordinator(
            self.live, self.log, self.markers, self.next_id, self.clock
        )
        self.coordinator.start()

    async def restart(self) -> None:
        await self.coordinator.close()
        self.start()

    async def next_id(self) -> int:
        self.last_id += 1
        return self.last_id

    async def begin(self, version: int = 2, name: str = "a") -> ProducerIdentity:
        producer = await self.coordinator.initialise(name, 60_000)
        await self.coordinator.add_partitions(name, producer, [T0], version)
        return producer

    def status(self, name: str = "a") -> TransactionStatus:
        return self.coordinator.describe(name).status

    def stored(self, name: str = "a") -> TransactionStatus | None:
        replay = TransactionReplay()
        for batch in self.log.batches[self.log.partition_of(name)]:
            replay.take(batch)
        state = replay.states.get(name)
        return None if state is None else state.status


Test = Callable[[Lab], Coroutine[Any, Any, None]]


def in_loop(test: Test) -> Callable[[], None]:
    """Run a test in an event loop of its own."""

    def run() -> None:
        async def work() -> None:
            lab = Lab()
            await asyncio.wait_for(test(lab), 60)
            await lab.coordinator.close()

        asyncio.run(work())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def refused(coroutine: Coroutine[Any, Any, Any]) -> ErrorCode:
    with pytest.raises(RequestRefused) as error:
        await coroutine
    return error.value.code


@in_loop
async def test_commit_writes_prepare_markers_and_complete(lab: Lab) -> None:
    producer = await lab.begin()
    lab.markers.hold = asyncio.Event()
    after = await lab.coordinator.end("a", producer, 2, commit=True)
    assert after == ProducerIdentity(producer.id, 1)
    assert lab.stored() is TransactionStatus.PREPARE_COMMIT
    lab.markers.hold.set()
    await lab.coordinator.settle()
    assert lab.markers.written == [(T0, after, True, True)]
    assert lab.stored() is TransactionStatus.COMPLETE_COMMIT


@in_loop
async def test_first_flow_ends_in_the_epoch_of_its_records(lab: Lab) -> None:
    producer = await lab.begin(version=1)
    assert await lab.coordinator.end("a", producer, 1, commit=False) == producer
    await lab.coordinator.settle()
    assert lab.markers.written == [(T0, producer, False, False)]


def at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a call that does not wait for anything."""
    with pytest.raises(StopIteration) as done:
        coroutine.send(None)
    return done.value.value


@in_loop
async def test_next_request_of_the_id_finds_the_former_transaction_completed(lab: Lab) -> None:
    producer = await lab.begin()
    lab.log.is_prompt = lab.markers.is_prompt = True
    for calls in (
        lambda after: lab.coordinator.add_partitions("a", after, [T0], 2),
        lambda after: lab.coordinator.admit("a", *after, [T0], 12),
    ):
        producer = at_once(lab.coordinator.end("a", producer, 2, commit=True))
        assert (lab.stored(), lab.markers.written) == (TransactionStatus.PREPARE_COMMIT, [])
        at_once(calls(producer))
        assert lab.stored() is TransactionStatus.ONGOING
        assert lab.markers.written.pop() == (T0, producer, True, True)
    at_once(lab.coordinator.end("a", producer, 2, commit=True))
    assert at_once(lab.coordinator.initialise("a", 60_000)) == ProducerIdentity(producer.id, 4)
    assert len(lab.markers.written) == 1


@in_loop
async def test_ends_that_have_arrived_come_before_a_transaction_begins(lab: Lab) -> None:
    one, other = await lab.begin(name="a"), await lab.coordinator.initialise("b", 60_000)
    lab.log.is_prompt = lab.markers.is_prompt = True
    for is_first in (True, False):
        beginning = asyncio.ensure_future(lab.coordinator.add_partitions("b", other, [T0], 2))
        await asyncio.sleep(0)
        before = TransactionStatus.EMPTY if is_first else TransactionStatus.PREPARE_COMMIT
        assert lab.status("b") is before
        one = at_once(lab.coordinator.end("a", one, 2, commit=True))
        await beginning
        assert lab.status("b") is TransactionStatus.ONGOING
        at_once(lab.coordinator.add_partitions("b", other, [T1], 2))  # which begins nothing
        await lab.coordinator.add_partitions("a", one, [T0], 2)
        other = at_once(lab.coordinator.end("b", other, 2, commit=True))


@in_loop
async def test_markers_come_after_requests_that_have_arrived_but_are_not_starved(lab: Lab) -> None:
    producer = await lab.begin()
    lab.log.is_prompt = lab.markers.is_prompt = True
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    statuses: list[TransactionStatus] = []

    def busy() -> None:  # a request, at whose end there is another
        statuses.append(lab.status())
        if len(statuses) < 10:
            loop.call_soon(busy)
        else:
            readable.set()

    mine, yours = socket.socketpair()
    with mine, yours:
        yours.send(b"a request")
        loop.add_reader(mine, lambda: (loop.remove_reader(mine), busy()))
        at_once(lab.coordinator.end("a", producer, 2, commit=True))
        await readable.wait()
    assert statuses[0] is TransactionStatus.PREPARE_COMMIT
    assert statuses[3] is TransactionStatus.COMPLETE_COMMIT


@in_loop
async def test_requests_come_between_two_completions(lab: Lab) -> None:
    names = [str(number) for number in range(40)]
    begun = [await lab.begin(name=name) for name in names]
    lab.log.is_prompt = lab.markers.is_prompt = True
    for name, producer in zip(names, begun, strict=True):
        at_once(lab.coordinator.end(name, producer, 2, commit=True))
    completed = [0]
    while completed[-1] < len(names):
        await asyncio.sleep(0)
        completed.append(
            sum(lab.status(name) is TransactionStatus.COMPLETE_COMMIT for name in names)
        )
    steps = [after - before for before, after in pairwise(completed) if after > before]
    assert max(steps) <= 3  # of 40: a share, less where the machine has stopped for a while
    assert steps[-14:] == [1] * 14  # or 15: one may be complete before the last is asked for


@in_loop
async def test_requests_come_between_two_that_begin(lab: Lab) -> None:
    """Which do not hold each other up: one that is cancelled before its turn loses only its own."""
    one, names = await lab.begin(name="a"), ["b", "c", "d", "e"]
    idle = {name: await lab.coordinator.initialise(name, 60_000) for name in names}
    lab.log.is_prompt = lab.markers.is_prompt = True
    beginning = {
        name: asyncio.ensure_future(lab.coordinator.add_partitions(name, producer, [T0], 2))
        for name, producer in idle.items()
    }
    await asyncio.sleep(0)
    beginning["c"].cancel()
    begun = [0]
    while begun[-1] < 3:
        await asyncio.sleep(0)
        begun.append(sum(lab.status(name) is TransactionStatus.ONGOING for name in names))
        if begun[-1] == 1 and lab.status("a") is TransactionStatus.ONGOING:
            at_once(lab.coordinator.end("a", one, 2, commit=True))
    assert {after - before for before, after in pairwise(begun)} == {0, 1}
    assert lab.status("c") is TransactionStatus.EMPTY
    await lab.coordinator.settle()
    assert lab.status("a") is TransactionStatus.COMPLETE_COMMIT


@in_loop
async def test_what_waits_for_its_turn_begins_before_all_is_forgotten(lab: Lab) -> None:
    await lab.begin(name="a")
    other = await lab.coordinator.initialise("b", 60_000)
    beginning = asyncio.ensure_future(lab.coordinator.add_partitions("b", other, [T0], 2))
    await asyncio.sleep(0)
    await lab.coordinator.begin_anew()
    await beginning
    assert lab.stored("b") is TransactionStatus.ONGOING


@pytest.mark.parametrize("prompt", [True, False])
def test_request_that_waited_while_the_end_was_written_is_not_refused(prompt: bool) -> None:
    """It was sent before EndTxn was answered, and finds Prepare where it had found Ongoing."""

    @in_loop
    async def run(lab: Lab) -> None:
        producer = await lab.begin(version=0)
        lab.markers.is_prompt = prompt
        lab.log.hold = asyncio.get_running_loop().create_future()
        ended = asyncio.ensure_future(lab.coordinator.end("a", producer, 0, commit=True))
        added = asyncio.ensure_future(lab.coordinator.add_partitions("a", producer, [T1], 0))
        await asyncio.sleep(0)
        hold, lab.log.hold = lab.log.hold, None
        hold.set_result(None)
        await asyncio.gather(ended, added)
        assert lab.stored() is TransactionStatus.ONGOING
        assert lab.markers.written == [(T0, producer, True, False)]

    run()


@in_loop
async def test_what_cannot_be_completed_at_once_does_not_hold_up_others(lab: Lab) -> None:
    one, other = await lab.begin(name="a"), await lab.begin(name="b")
    lab.markers.hold = asyncio.Event()
    await lab.coordinator.end("a", one, 2, commit=True)
    await asyncio.sleep(0.01)
    lab.markers.is_prompt = lab.log.is_prompt = True
    after = await lab.coordinator.end("b", other, 2, commit=True)
    await lab.coordinator.add_partitions("b", after, [T0], 2)
    assert lab.status("a") is TransactionStatus.PREPARE_COMMIT
    lab.markers.hold.set()
    await lab.coordinator.settle()
    assert lab.status("a") is TransactionStatus.COMPLETE_COMMIT


@in_loop
async def test_kill_between_prepare_and_complete_is_completed_by_the_next_start(lab: Lab) -> None:
    """KAFKA-19999: it is no livelock, and the markers are of the same epoch."""
    producer = await lab.begin()
    lab.markers.hold = asyncio.Event()
    after = await lab.coordinator.end("a", producer, 2, commit=True)
    await lab.restart()
    await asyncio.sleep(0)
    assert await refused(lab.coordinator.initialise("a", 60_000)) in (
        ErrorCode.concurrent_transactions,
        ErrorCode.coordinator_load_in_progress,
    )
    lab.markers.hold.set()
    await lab.coordinator.settle()
    assert lab.markers.written == [(T0, after, True, True)]
    assert lab.status() is TransactionStatus.COMPLETE_COMMIT
    assert (await lab.coordinator.end("a", producer, 2, commit=True)) == after  # its retry
    assert await lab.coordinator.initialise("a", 60_000) == ProducerIdentity(producer.id, 2)


@in_loop
async def test_stop_in_the_turn_in_which_markers_begin_cancels_them(lab: Lab) -> None:
    producer = await lab.begin()
    lab.markers.hold = asyncio.Event()
    at_once(lab.coordinator.end("a", producer, 2, commit=True))
    code = await refused(lab.coordinator.initialise("a", 60_000))  # begins them
    assert code is ErrorCode.concurrent_transactions
    await lab.coordinator.begin_anew()
    lab.markers.hold.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert lab.markers.written == []
    lab.coordinator.start()
    await lab.coordinator.settle()
    assert len(lab.markers.written) == 1


@in_loop
async def test_beginning_anew_waits_for_a_write_and_refuses_those_behind_it(lab: Lab) -> None:
    producer = await lab.begin()
    lab.log.hold = asyncio.get_running_loop().create_future()
    other = TopicPartition("u", 0)
    first, second = (
        asyncio.ensure_future(lab.coordinator.add_partitions("a", producer, [each], 2))
        for each in (T1, other)
    )
    await asyncio.sleep(0)
    anew = asyncio.ensure_future(lab.coordinator.begin_anew())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not anew.done()
    code = await refused(lab.coordinator.initialise("a", 60_000))
    assert code is ErrorCode.coordinator_load_in_progress
    hold, lab.log.hold = lab.log.hold, None
    hold.set_result(None)
    await asyncio.gather(first, anew)
    code = await refused(asyncio.wait_for(second, 60))
    assert code is ErrorCode.coordinator_load_in_progress
    lab.coordinator.start()
    await lab.coordinator.settle()
    assert lab.coordinator.describe("a").partitions == {T0, T1}
    await lab.coordinator.add_partitions("a", producer, [other], 2)


@in_loop
async def test_failed_write_changes_nothing(lab: Lab) -> None:
    producer = await lab.begin()
    lab.log.fails = 1
    code = await refused(lab.coordinator.end("a", producer, 2, commit=True))
    assert code is ErrorCode.coordinator_not_available
    assert lab.status() is TransactionStatus.ONGOING
    lab.log.fails = 1
    code = await refused(lab.coordinator.initialise("b", 60_000))
    assert code is ErrorCode.coordinator_not_available
    assert await refused(lab.coordinator.end("b", producer, 2, commit=True)) is (
        ErrorCode.invalid_producer_id_mapping
    )


@in_loop
async def test_fence_whose_write_failed_bumps_the_epoch_once(lab: Lab) -> None:
    """KAFKA-9666, KAFKA-19367."""
    producer = await lab.begin()
    lab.log.fails = 1
    code = await refused(lab.coordinator.initialise("a", 60_000))
    assert code is ErrorCode.coordinator_not_available
    code = await refused(lab.coordinator.initialise("a", 60_000))
    assert code is ErrorCode.concurrent_transactions
    await lab.coordinator.settle()
    assert lab.markers.written == [(T0, ProducerIdentity(producer.id, 1), False, True)]
    assert await lab.coordinator.initialise("a", 60_000) == ProducerIdentity(producer.id, 2)
    assert await refused(lab.coordinator.end("a", producer, 2, commit=True)) is (
        ErrorCode.producer_fenced
    )


@in_loop
async def test_markers_and_complete_are_tried_until_the_disk_takes_them(lab: Lab) -> None:
    producer = await lab.begin()
    lab.markers.fails = 1
    await lab.coordinator.end("a", producer, 2, commit=True)
    lab.log.fails = 1
    await lab.coordinator.settle()
    assert len(lab.markers.written) == 1
    assert lab.stored() is TransactionStatus.COMPLETE_COMMIT


@in_loop
async def test_topic_that_was_deleted_or_made_again_is_left_out(lab: Lab) -> None:
    producer = await lab.begin()
    await lab.coordinator.add_partitions("a", producer, [TopicPartition("u", 0)], 2)
    del lab.markers.topics["t"]
    lab.markers.topics["u"] = uuid4()
    codes = await lab.coordinator.admit("a", *producer, [TopicPartition("u", 0)], 11)
    assert codes == {TopicPartition("u", 0): ErrorCode.transaction_abortable}
    after = await lab.coordinator.end("a", producer, 2, commit=True)
    await lab.coordinator.settle()
    assert lab.markers.written == []
    assert lab.status() is TransactionStatus.COMPLETE_COMMIT
    u0 = TopicPartition("u", 0)
    assert await lab.coordinator.admit("a", *after, [u0], 12) == {u0: ErrorCode.none}
    await lab.coordinator.end("a", after, 2, commit=True)
    await lab.coordinator.settle()
    assert [each[0] for each in lab.markers.written] == [u0]


@pytest.mark.parametrize(
    ("version", "code"), [(10, ErrorCode.invalid_txn_state), (11, ErrorCode.transaction_abortable)]
)
def test_write_outside_the_transaction_is_refused(version: int, code: ErrorCode) -> None:
    @in_loop
    async def test(lab: Lab) -> None:
        producer = await lab.begin(version=1)
        codes = await lab.coordinator.admit("a", *producer, [T0, T1], version)
        assert codes == {T0: ErrorCode.none, T1: code}
        stale = await lab.coordinator.admit("a", producer.id, 5, [T0], version)
        assert stale == {T0: ErrorCode.invalid_producer_epoch}
        other = await lab.coordinator.admit("b", *producer, [T0], version)
        assert other == {T0: ErrorCode.invalid_producer_id_mapping}
        lab.live.replace(Settings({"transaction.partition.verification.enable": "false"}))
        assert await lab.coordinator.admit("a", *producer, [T1], version) == {T1: ErrorCode.none}

    test()


@in_loop
async def test_write_of_version_12_adds_its_partition(lab: Lab) -> None:
    producer = await lab.coordinator.initialise("a", 60_000)
    assert await lab.coordinator.admit("a", *producer, [T1], 12) == {T1: ErrorCode.none}
    assert lab.coordinator.describe("a").partitions == {T1}
    assert lab.coordinator.describe("a").client_version == 2


@in_loop
async def test_write_waits_for_the_former_transaction_in_the_broker(lab: Lab) -> None:
    """KAFKA-18654: without an answer of 51, for which the client would wait 100 ms."""
    producer = await lab.begin()
    lab.markers.hold = asyncio.Event()
    after = await lab.coordinator.end("a", producer, 2, commit=True)
    admitting = asyncio.ensure_future(lab.coordinator.admit("a", *after, [T1], 12))
    await asyncio.sleep(0.01)
    assert not admitting.done()
    lab.markers.hold.set()
    assert await admitting == {T1: ErrorCode.none}


@pytest.mark.parametrize(
    ("version", "code"),
    [(11, ErrorCode.not_enough_replicas), (12, ErrorCode.concurrent_transactions)],
)
def test_write_that_has_waited_too_long_is_retried_by_its_client(
    version: int, code: ErrorCode
) -> None:
    """KAFKA-18662."""

    @in_loop
    async def test(lab: Lab) -> None:
        producer = await lab.begin()
        lab.live.replace(Settings({MOST_WAIT: "1"}))
        lab.markers.hold = asyncio.Event()
        after = await lab.coordinator.end("a", producer, 2, commit=True)
        assert await lab.coordinator.admit("a", *after, [T1], version) == {T1: code}
        lab.markers.hold.set()

    test()


@in_loop
async def test_ids_of_a_log_that_is_being_loaded_are_retried(lab: Lab) -> None:
    producer = await lab.begin()
    lab.log.loads_after = asyncio.Event()
    await lab.restart()
    code = ErrorCode.coordinator_load_in_progress
    assert await refused(lab.coordinator.initialise("a", 60_000)) is code
    assert await refused(lab.coordinator.end("a", producer, 2, commit=True)) is code
    assert await lab.coordinator.admit("a", *producer, [T0], 12) == {
        T0: ErrorCode.not_enough_replicas
    }
    lab.log.loads_after.set()
    await lab.coordinator.settle()
    assert lab.status() is TransactionStatus.ONGOING


@in_loop
async def test_open_transaction_times_out_by_time_that_passes_and_not_by_a_step(lab: Lab) -> None:
    producer = await lab.begin()
    lab.clock.step("365d")
    assert await lab.coordinator.abort_timed_out() == 0
    lab.clock.advance("60s")
    assert await lab.coordinator.abort_timed_out() == 0
    lab.clock.advance("1ms")
    assert await lab.coordinator.abort_timed_out() == 1
    await lab.coordinator.settle()
    assert lab.markers.written == [(T0, ProducerIdentity(producer.id, 1), False, True)]
    assert await refused(lab.coordinator.end("a", producer, 2, commit=True)) in (
        ErrorCode.producer_fenced,
        ErrorCode.invalid_txn_state,
    )


@in_loop
async def test_timeout_goes_on_over_a_restart(lab: Lab) -> None:
    await lab.begin()
    lab.clock.advance("59s")
    await lab.restart()
    await lab.coordinator.settle()
    assert await lab.coordinator.abort_timed_out() == 0
    lab.clock.advance("1001ms")
    assert await lab.coordinator.abort_timed_out() == 1


@in_loop
async def test_idle_id_expires_and_an_open_one_does_not(lab: Lab) -> None:
    lab.live.replace(Settings({"transactional.id.expiration.ms": "1000"}))
    await lab.coordinator.initialise("idle", 60_000)
    await lab.begin(name="open")
    lab.clock.step("10d")
    assert await lab.coordinator.remove_expired() == 0
    lab.clock.advance("1s")
    assert await lab.coordinator.remove_expired() == 1
    assert (lab.stored("idle"), lab.stored("open")) == (None, TransactionStatus.ONGOING)
    with pytest.raises(RequestRefused):
        lab.coordinator.describe("idle")


@in_loop
async def test_bad_requests_are_refused_as_in_kafka(lab: Lab) -> None:
    coordinator = lab.coordinator
    assert await refused(coordinator.initialise("", 1)) is ErrorCode.invalid_request
    for timeout_ms in (0, -1, 900_001):
        code = await refused(coordinator.initialise("a", timeout_ms))
        assert code is ErrorCode.invalid_transaction_timeout
    nobody = ProducerIdentity(1, 0)
    unmapped = ErrorCode.invalid_producer_id_mapping
    assert await refused(coordinator.add_partitions("x", nobody, [T0])) is unmapped
    assert await refused(coordinator.end("x", nobody, 1, commit=True)) is unmapped
    assert await refused(coordinator.initialise("\ud800", 1)) is ErrorCode.invalid_request


@in_loop
async def test_exhausted_epochs_go_on_with_another_producer_id(lab: Lab) -> None:
    """KAFKA-18660, over a kill between Prepare and Complete."""
    producer = await lab.begin()
    entry = lab.coordinator.describe("a")
    await lab.restart()
    await lab.coordinator.settle()
    worn = entry._replace(producer=ProducerIdentity(producer.id, LAST_EPOCH - 1))
    state = lab.coordinator._states.get("a")
    assert state is not None
    await lab.coordinator._states.write(state, worn)
    lab.markers.hold = asyncio.Event()
    after = await lab.coordinator.end("a", worn.producer, 2, commit=True)
    assert after == ProducerIdentity(producer.id + 1, 0)
    await lab.restart()
    lab.markers.hold.set()
    await lab.coordinator.settle()
    assert lab.markers.written == [(T0, ProducerIdentity(producer.id, LAST_EPOCH), True, True)]
    assert lab.coordinator.describe("a").producer == after
    assert await lab.coordinator.end("a", worn.producer, 2, commit=True) == after
    assert await lab.coordinator.admit("a", *after, [T0], 12) == {T0: ErrorCode.none}


@in_loop
async def test_requests_of_many_producers_at_once_each_have_one_outcome(lab: Lab) -> None:
    producers = await asyncio.gather(*(lab.begin(name=f"p{index}") for index in range(50)))
    await asyncio.gather(
        *(
            lab.coordinator.end(f"p{index}", producer, 2, commit=index % 2 == 0)
            for index, producer in enumerate(producers)
        )
    )
    await lab.coordinator.settle()
    assert len(lab.markers.written) == 50
    assert {state.status for _, state, _ in lab.coordinator.all()} == {
        TransactionStatus.COMPLETE_COMMIT,
        TransactionStatus.COMPLETE_ABORT,
    }
