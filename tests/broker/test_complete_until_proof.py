"""No record below a value that was given out is accepted after it, whatever happens to a broker.

Random producers, bounds, clocks, transactions, settings and kills, against a list of what was
accepted; and a real `kill -9` under load.
"""

import random
import threading
import time
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from old_messages import build_messages
from raw_connection import RawConnection, produce_fields
from running_broker import NOW_MS, BrokerProcess, MakeBroker, RunningBroker
from transactional import end as end_transaction
from transactional import init, write

from horolog.client import Client, ResourceType
from horolog.clock import HOUR_MS, MINUTE_MS, SECOND_MS, ManualClock, SystemClock
from horolog.errors import HorologError
from horolog.record import Codec, LogRecord, build_batch
from horolog.sources import scan
from horolog.wire import TIMES, ApiKey, AskTimes, PartitionTimes, Withdrawn

BOUND_MS = MINUTE_MS
AFTER_MS = HOUR_MS
PARTITIONS = 3


class Given(NamedTuple):
    """A value that a broker gave out for a partition."""

    partition: int
    ms: int
    committed_ms: int
    stable: int
    """The last stable offset after that."""
    end: int
    """The log end after that."""
    epoch: int
    """How often values were withdrawn before."""


class Life:
    """A broker, what is asked of it, and what must hold."""

    def __init__(self, broker: RunningBroker, clock: ManualClock, seed: int) -> None:
        self.broker, self.clock, self.chosen = broker, clock, random.Random(seed)
        self.bound_ms = BOUND_MS
        self.given: list[Given] = []
        self.most = dict.fromkeys(range(PARTITIONS), -(1 << 63))
        self.epoch = 0
        self.opened: object | None = None
        self.sequences: dict[int, int] = {}
        self.refused = self.accepted = self.withdrawn = 0

    def times(self, partition: int) -> PartitionTimes:
        return self.broker.client.ask.needed(TIMES, "t", AskTimes(partition, sums=False))

    @property
    def stamp_ms(self) -> int:
        """The clock that the bound counts from, for a request that comes now."""
        return max(self.clock.now_ms(), self.broker.broker.partitions.stamp_ms)

    def look(self) -> None:
        """Ask for all values; one that is not withdrawn never goes back."""
        for partition in range(PARTITIONS):
            found = self.times(partition)
            if found.complete_until_ms is None:
                self.withdrawn += 1
                assert found.complete_withdrawn in (Withdrawn.BOUND_RAISED, Withdrawn.RESET)
                continue
            assert found.committed_complete_until_ms is not None
            assert found.complete_until_ms >= self.most[partition]
            assert found.complete_until_ms <= self.stamp_ms - self.bound_ms
            self.most[partition] = found.complete_until_ms
            log = self.broker.log("t", partition)
            self.given.append(
                Given(
                    partition,
                    found.complete_until_ms,
                    found.committed_complete_until_ms,
                    log.last_stable_offset,
                    log.log_end_offset,
                    self.epoch,
                )
            )

    def a_time(self) -> int:
        """Around the bound, mostly."""
        edge_ms = self.chosen.choice([self.stamp_ms, self.clock.now_ms()]) - self.bound_ms
        return edge_ms + self.chosen.choice([-HOUR_MS, -2, -1, 0, 1, 5, self.bound_ms, SECOND_MS])

    def batch(self, ms: int) -> tuple[bytes, int]:
        rows = [LogRecord(ms, b"k", b"v")]
        match self.chosen.randrange(4):
            case 0:
                return build_messages(rows, 1, codec=Codec.GZIP), 2
            case 1:
                large = rows[0]._replace(value=bytes(300_000))
                return build_batch([large], codec=Codec.GZIP), 9
            case _:
                return build_batch(rows), 9

    def judge(self, code: int, ms: int, stamp_ms: int, now_ms: int, partition: int) -> None:
        """Compare the answer about a record with what the bounds at its arrival allow."""
        is_allowed = stamp_ms - self.bound_ms <= ms <= now_ms + AFTER_MS
        assert code == (0 if is_allowed else 32), (ms, stamp_ms, now_ms)
        if code:
            self.refused += 1
            return
        self.accepted += 1
        for one in self.given:
            if one.partition == partition and one.epoch == self.epoch:
                assert ms >= one.ms, one

    def produce(self) -> None:
        partition, ms = self.chosen.randrange(PARTITIONS), self.a_time()
        stamp_ms, now_ms = self.stamp_ms, self.clock.now_ms()
        batch, version = self.batch(ms)
        code = int(self.broker.produce("t", batch, partition, version=version).error_code)
        self.judge(code, ms, stamp_ms, now_ms, partition)

    def produce_while_time_goes_on(self) -> None:
        """A batch is being checked in a thread, or waits, while values are given out."""
        partition = self.chosen.randrange(PARTITIONS)
        with RawConnection(self.broker.address) as slow:
            stamp_ms, now_ms = self.stamp_ms, self.clock.now_ms()
            ms = stamp_ms - self.bound_ms + self.chosen.randrange(3)
            batch = build_batch([LogRecord(ms, b"k", bytes(2_000_000))], codec=Codec.GZIP)
            slow.send(ApiKey.PRODUCE, 9, **produce_fields("t", {partition: batch}))
            self.broker.ask(ApiKey.API_VERSIONS, 3)
            self.clock.step(self.chosen.randrange(1, 10 * SECOND_MS))
            self.tick()
            self.look()
            _, answer = slow.receive()
        (found,) = answer.responses[0].partition_responses
        if found.error_code == 0:
            self.accepted += 1
            assert stamp_ms - self.bound_ms <= ms <= now_ms + AFTER_MS
            for one in self.given:
                if (one.partition, one.epoch) == (partition, self.epoch):
                    assert ms >= one.ms or found.base_offset < one.end, one
        else:  # it came when the clock had gone on
            assert found.error_code == 32
            assert ms < self.stamp_ms - self.bound_ms

    def transact(self) -> None:
        partition, ms = self.chosen.randrange(PARTITIONS), self.a_time()
        if self.opened is None:
            self.opened, self.sequences = init(self.broker), {}
        stamp_ms, now_ms = self.stamp_ms, self.clock.now_ms()
        sequence = self.sequences.get(partition, 0)
        code = write(
            self.broker,
            self.opened,
            partition=partition,
            sequence=sequence,
            version=12,
            time_ms=ms,
        )
        if code in (0, 32):
            self.judge(code, ms, stamp_ms, now_ms, partition)
        if code:
            self.finish(commit=False)
        else:
            self.sequences[partition] = sequence + 1
        if self.chosen.random() < 0.4:
            self.finish(commit=self.chosen.random() < 0.7)

    def finish(self, *, commit: bool) -> None:
        if self.opened is not None:
            end_transaction(self.broker, self.opened, commit=commit)
            self.opened = None

    def tick(self) -> None:
        self.broker.run(self.broker.broker.partitions.keep_stamp_clock())

    def change_bound(self) -> None:
        after_ms = self.chosen.choice([BOUND_MS, BOUND_MS // 2, 2 * BOUND_MS])
        if after_ms > self.bound_ms:
            self.epoch += 1
        resource = (ResourceType.TOPIC, "t")
        setting = {"message.timestamp.before.max.ms": str(after_ms)}
        self.broker.client.alter_configs({resource: setting})
        self.bound_ms = after_ms

    def reset(self) -> None:
        if self.broker.broker.partitions.stamp_ms > self.clock.now_ms():
            self.epoch += 1
        self.broker.client.topics.reset_append_times("t")

    def restart(self, *, crash: bool) -> None:
        self.broker.restart(crash=crash)
        self.opened = None
        self.tick()  # what was open is aborted as its epoch is bumped

    def forget_a_clock(self) -> None:
        """Kill the broker where only a refused record has seen the clock, which is set back."""
        self.clock.step("3s")
        batch = build_batch([LogRecord(5, None, b"too early")])
        assert self.broker.produce("t", batch).error_code == 32
        self.look()
        self.clock.step("-1m")
        self.restart(crash=True)
        self.look()

    def step(self) -> None:
        match self.chosen.randrange(20):
            case 0 if self.chosen.random() < 0.5:
                self.restart(crash=self.chosen.random() < 0.7)
            case 0:
                self.forget_a_clock()
            case 1:
                self.change_bound()
            case 2 if self.chosen.random() < 0.3:
                self.reset()
            case 2 | 3 | 4 | 5:
                by_ms = self.chosen.choice([1, 50, 3 * SECOND_MS, -5 * SECOND_MS, 90_000, -100_000])
                self.clock.step(by_ms)
            case 6 | 7 | 8:
                self.tick()
            case 9 | 10:
                self.transact()
            case 11:
                self.produce_while_time_goes_on()
            case 12 | 13 | 14:
                self.look()
            case _:
                self.produce()

    def check_readers(self) -> None:
        """What readers of committed records see behind a value is not earlier."""
        table = scan(
            self.broker.address, "t", columns=["offset", "timestamp_ms"], read_committed=True
        ).read_all()
        names = ("partition", "offset", "timestamp_ms")
        columns = [table.column(name).to_pylist() for name in names]
        seen = list(zip(*columns, strict=True))
        for one in self.given:
            if one.epoch == self.epoch:
                for partition, offset, ms in seen:
                    if partition == one.partition and offset >= one.stable:
                        assert ms >= one.committed_ms, one


@pytest.mark.parametrize("seed", range(6))
def test_nothing_comes_below_a_value_and_all_above_it(make_broker: MakeBroker, seed: int) -> None:
    clock = ManualClock(NOW_MS)
    broker = make_broker(clock=clock)
    broker.create_topic(
        "t",
        PARTITIONS,
        message_timestamp_before_max_ms=str(BOUND_MS),
        message_timestamp_after_max_ms=str(AFTER_MS),
    )
    life = Life(broker, clock, seed)
    for _ in range(150):
        life.step()
    life.finish(commit=True)
    life.tick()
    life.look()
    life.check_readers()
    assert life.accepted > 10
    assert life.refused
    assert life.given


@pytest.mark.slow
def test_nothing_comes_below_a_value_over_a_real_kill(tmp_path: Path) -> None:
    """Producers write at the edge of the bound while a broker is killed and started again."""
    bound_ms, chosen, clock = 200, random.Random(5), SystemClock()
    sent: dict[int, tuple[float, int]] = {}  # when, and the create time
    given: list[tuple[float, int]] = []
    numbers, is_over = count(), threading.Event()

    def producing(address: str) -> None:
        while not is_over.is_set():
            try:
                with Client(address, timeout_ms=500) as client:
                    while not is_over.is_set():
                        number = next(numbers)
                        ms = clock.now_ms() - bound_ms + chosen.randrange(-20, 60)
                        sent[number] = time.monotonic(), ms
                        value = b"%d" % number + bytes(chosen.choice([0, 200_000]))
                        rows = [LogRecord(ms, None, value)]
                        codec = chosen.choice([Codec.NONE, Codec.GZIP])
                        try:
                            client.produce("t", 0, build_batch(rows, codec=codec))
                        except HorologError as error:
                            if "invalid timestamp" in str(error):
                                assert ms < clock.now_ms() - bound_ms
                            else:
                                raise
            except (HorologError, OSError):
                time.sleep(0.05)

    with BrokerProcess(tmp_path / "log") as broker:
        bound = {"message.timestamp.before.max.ms": str(bound_ms)}
        broker.client.topics.create({"t": 1}, configs=bound)
        producers = [threading.Thread(target=producing, args=(broker.address,)) for _ in range(3)]
        for producer in producers:
            producer.start()
        try:
            for _ in range(6):
                until = time.monotonic() + chosen.uniform(1.0, 2.5)
                while time.monotonic() < until:
                    ms = broker.client.ask.needed(TIMES, "t", AskTimes(0, sums=False))
                    if ms.complete_until_ms is not None:
                        given.append((time.monotonic(), ms.complete_until_ms))
                broker.kill()
                broker.start_again()
        finally:
            is_over.set()
            for producer in producers:
                producer.join()
        found = scan(broker.address, "t", columns=["timestamp_ms", "value"]).read_all()
    assert len(given) > 20
    assert [ms for _, ms in given] == sorted(ms for _, ms in given)
    times = found.column("timestamp_ms").to_pylist()
    values = [int(value.rstrip(b"\0")) for value in found.column("value").to_pylist()]
    assert len(values) > 100
    for number, ms in zip(values, times, strict=True):
        at, sent_ms = sent[number]
        assert ms == sent_ms
        before = max((value for when, value in given if when < at), default=-1)
        assert ms >= before
