"""Appends at random to a broker, of transactions too, and the list of their append times."""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raw_connection import produce_fields
from running_broker import NOW_MS, RunningBroker

from horolog.clock import ManualClock
from horolog.jobs.cutting import opened_cut_source
from horolog.jobs.selection import Selection
from horolog.record import LogRecord, build_batch
from horolog.sources import Cut, cut_all
from horolog.storage import TopicPartition
from horolog.wire import ApiKey

_RECORD = LogRecord(7, None, b"v")
PARTITIONS = [TopicPartition(topic, number) for topic in ("a", "b") for number in (0, 1)]


@dataclass
class Transaction:
    """Partitions of a transaction, by the offset of their first record and of their marker."""

    first: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass
class Producer:
    """A transactional producer that a test drives request by request."""

    broker: RunningBroker
    name: str
    sequences: dict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))
    open: Transaction | None = None

    id: Any = None

    def __post_init__(self) -> None:
        fields = {"transactional_id": self.name, "transaction_timeout_ms": 600_000}
        self.id = self.broker.ask(ApiKey.INIT_PRODUCER_ID, 4, **fields)

    def write(self, partition: TopicPartition, record: LogRecord = _RECORD) -> int:
        batch = build_batch(
            [record],
            producer_id=self.id.producer_id,
            producer_epoch=self.id.producer_epoch,
            base_sequence=self.sequences[partition],
            is_transactional=True,
        )
        self.sequences[partition] += 1
        fields = produce_fields(
            partition.topic,
            {partition.partition: batch},
            acks=-1,
            transactional_id=self.name,
        )
        (answer,) = self.broker.ask(ApiKey.PRODUCE, 12, **fields).responses
        (its,) = answer.partition_responses
        assert its.error_code == 0, its.error_code
        self.open = self.open or Transaction()
        self.open.first.setdefault(partition, its.base_offset)
        return int(its.base_offset)

    def end(self, *, commit: bool) -> Transaction:
        answer = self.broker.ask(
            ApiKey.END_TXN,
            4,
            transactional_id=self.name,
            committed=commit,
            producer_id=self.id.producer_id,
            producer_epoch=self.id.producer_epoch,
        )
        assert answer.error_code == 0
        self.broker.run(self.broker.broker.transactions.settle())
        assert self.open is not None
        ended, self.open = self.open, None
        for partition in ended.first:
            ended.ends[partition] = self.broker.log(*partition).log_end_offset - 1
        return ended


class Arrivals:
    """Appends in the order in which they were made, with the append times that they must have."""

    def __init__(
        self, broker: RunningBroker, clock: ManualClock, seed: int, *, aborts: bool = True
    ) -> None:
        self.aborts = aborts
        self.broker, self.clock, self.random = broker, clock, random.Random(seed)
        self.times: dict[TopicPartition, list[int]] = {key: [] for key in PARTITIONS}
        self.transactions: list[Transaction] = []
        self.producers = [Producer(broker, f"p{number}") for number in range(3)]
        self.now_ms = 0

    def live(self, steps: int) -> None:
        """Append at random, and move the clock."""
        for _ in range(steps):
            self.broker.run(self.broker.broker.partitions.keep_stamp_clock())
            self.now_ms = max(self.now_ms, self.clock.now_ms())
            producer, partition = self.random.choice(self.producers), self.random.choice(PARTITIONS)
            action = self.random.randrange(10)
            if action < 3:
                batch = build_batch([LogRecord(3, None, b"v")] * self.random.randrange(1, 4))
                self.broker.append(partition.topic, batch, partition.partition)
            elif action < 7:
                producer.write(partition)
            elif producer.open is not None:
                self.transactions.append(producer.end(commit=action != 9 or not self.aborts))
            self._note()
            if self.random.randrange(3):
                self.clock.step(self.random.choice(["1ms", "5ms", "-3s", "4s"]))

    def finish(self) -> None:
        """Take the transactions that are open, too."""
        self.transactions += [its.open for its in self.producers if its.open is not None]

    def _note(self) -> None:
        for key, times in self.times.items():
            times += [self.now_ms] * (self.broker.log(*key).log_end_offset - len(times))

    def check(self, cut: Cut) -> None:
        """Compare a cut with the list."""
        entries = cut.by_partition()
        for key, times in self.times.items():
            entry = entries[key]
            later = [offset for offset, ms in enumerate(times) if ms >= cut.at_ms]
            assert entry.offset == (later[0] if later else len(times))
            is_future = cut.at_ms > max(self.now_ms, self.clock.now_ms())
            assert (entry.why or "").partition(":")[0] == ("future" if is_future else "")
        for transaction in self.transactions:
            taken = {
                key: transaction.ends.get(key, 1 << 60) < entries[key].committed_offset
                for key in transaction.first
            }
            assert len(set(taken.values())) == 1, (transaction, taken)
            for key, first in transaction.first.items():
                assert taken[key] or first >= entries[key].committed_offset
        if not any(self._is_open(its, cut.at_ms) for its in self.transactions):
            assert all(its.committed_offset == its.offset for its in entries.values())

    def _is_open(self, transaction: Transaction, at_ms: int) -> bool:
        times = self.times
        begun = any(times[key][first] < at_ms for key, first in transaction.first.items())
        ends = [transaction.ends.get(key) for key in transaction.first]
        return begun and any(
            end is None or times[key][end] >= at_ms
            for key, end in zip(transaction.first, ends, strict=True)
        )

    def asked(self) -> list[int]:
        every = sorted({ms for times in self.times.values() for ms in times})
        some = self.random.sample(every, min(12, len(every)))
        return [*some, *(ms + 1 for ms in some[:4]), 0, -(1 << 63)]


def cut_at(source: Path | str, at_ms: int, topics: str = "[ab]") -> Cut:
    """The cut of these topics of a broker, a directory or an archive."""
    with opened_cut_source(Selection.of(source, None, topics).read_options()) as log:
        return cut_all(log, at_ms, NOW_MS)
