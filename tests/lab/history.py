"""Appends at random to a broker, of transactions and keys, and the list of what arrived."""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from arrivals import PARTITIONS, Producer
from running_broker import NOW_MS, RunningBroker

from horolog.clock import ManualClock
from horolog.record import LogRecord, build_batch
from horolog.sources import Cut
from horolog.storage import TopicPartition

TOPICS = ("a", "b")
SETTINGS = {"segment_bytes": "2000", "min_cleanable_dirty_ratio": "0.01"}


@dataclass
class Arrival:
    """A record of the model, or a marker, which has no key."""

    offset: int
    ms: int
    key: bytes | None = None
    value: bytes | None = None
    created_ms: int = -1
    is_marker: bool = False
    is_aborted: bool = False


@dataclass
class History:
    """Appends at random, and a list of them."""

    broker: RunningBroker
    clock: ManualClock
    random: random.Random
    now_ms: int = 0
    arrivals: dict[TopicPartition, list[Arrival]] = field(default_factory=lambda: defaultdict(list))
    producers: list[Producer] = field(default_factory=list)
    opened: dict[str, list[Arrival]] = field(default_factory=lambda: defaultdict(list))
    """Records of open transactions, by producer."""

    def live(self, steps: int, topics: tuple[str, ...] = TOPICS) -> None:
        producers, opened = self.producers, self.opened
        if not producers:
            producers += [Producer(self.broker, f"p{number}") for number in range(2)]
        for _ in range(steps):
            self.broker.run(self.broker.broker.partitions.keep_stamp_clock())
            self.now_ms = max(self.now_ms, self.clock.now_ms())
            producer = self.random.choice(producers)
            partition = self.random.choice([its for its in PARTITIONS if its.topic in topics])
            action = self.random.randrange(10)
            if action < 4:
                records = [self._record() for _ in range(self.random.randrange(1, 4))]
                self.broker.append(partition.topic, build_batch(records), partition.partition)
                self._note(partition, records)
            elif action < 7:
                record = self._record()
                producer.write(partition, record)
                opened[producer.name] += self._note(partition, [record])
            elif producer.open is not None:
                is_committed = action != 9
                ended = producer.end(commit=is_committed)
                for arrival in opened.pop(producer.name):
                    arrival.is_aborted = not is_committed
                for key in ended.first:
                    self._note(key, [None])
            self.clock.step(self.random.choice(["0ms", "1ms", "5ms", "-3s", "4s"]))

    def _record(self) -> LogRecord:
        key = b"k%d" % self.random.randrange(8)
        value = None if self.random.randrange(6) == 0 else b"%d" % self.random.randrange(1000)
        return LogRecord(NOW_MS + self.random.randrange(20), key, value)

    def _note(self, partition: TopicPartition, records: list[Any]) -> list[Arrival]:
        its = self.arrivals[partition]
        new = [
            Arrival(len(its) + place, self.now_ms, is_marker=True)
            if record is None
            else Arrival(len(its) + place, self.now_ms, record.key, record.value, record.timestamp)
            for place, record in enumerate(records)
        ]
        its += new
        assert len(its) == self.broker.log(*partition).log_end_offset
        return new

    def moments(self, count: int) -> list[int]:
        every = sorted({its.ms for found in self.arrivals.values() for its in found})
        return self.random.sample(every, min(count, len(every)))

    def table(self, topic: str, cut: Cut) -> list[tuple[int, int, bytes | None]]:
        """Partition, offset and value of the last record of each key that was known."""
        ends, found = cut.by_partition(), []
        for partition in PARTITIONS:
            if partition.topic != topic:
                continue
            last: dict[bytes | None, Arrival] = {}
            for its in self.arrivals[partition][: ends[partition].committed_offset]:
                is_there = its.offset >= self.broker.log(*partition).log_start_offset
                if is_there and not its.is_marker and not its.is_aborted:
                    last[its.key] = its
            found += [
                (partition.partition, its.offset, its.value)
                for its in last.values()
                if its.value is not None
            ]
        return sorted(found)

    def known(
        self, topic: str, cut: Cut, *, committed: bool = False
    ) -> list[tuple[int, int, bytes | None]]:
        """Partition, offset and value of the records that were known."""
        ends = cut.by_partition()
        return [
            (key.partition, its.offset, its.value)
            for key in PARTITIONS
            if key.topic == topic
            for its in self.arrivals[key]
            if its.offset >= self.broker.log(*key).log_start_offset
            and not its.is_marker
            and (
                its.offset < ends[key].committed_offset and not its.is_aborted
                if committed
                else its.ms < cut.at_ms
            )
        ]
