"""A broker that is killed over and over under load, and what must be true after each kill.

The load are real idempotent producers that never stop. Beside them topics come and
go, settings change, offsets are committed and records deleted. Everything that was
acknowledged is remembered here and held against the broker and its files when it
has come up again. A life is measured in records acknowledged and in errands done, so that it is
as much to do on a slow machine as on a quick one, and every wait is for what must come.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
from broker_nursery import Nursery, pause_s
from killed_broker import KilledBroker
from raw_connection import RawConnection, fetch_fields

from horolog.record import iter_headers, read_records
from horolog.storage import Finding, IndexBuilder, Severity, Verification
from horolog.wire import ApiKey

Where = tuple[str, int]

SEGMENT_BYTES = 30_000
INTERVAL_BYTES = 700
KEPT, TRIMMED, EXPIRED = "kept", "trimmed", "expired"
LOADED = {KEPT: 3, TRIMMED: 2, EXPIRED: 1}
RETENTION_BYTES = 90_000
CODECS = ("none", "lz4", "zstd", "snappy", "gzip")
AHEAD = 150
BACK = 50
FULL_EVERY = 50
# What a broker lives for: this many records acknowledged and errands done, or fewer.
RECORDS_A_LIFE = 600
ERRANDS_A_LIFE = 4
# One that is to die at a step of its own, and has not by then, never comes to that step.
OUTLIVED_RECORDS = 4000
PATIENCE_S = 900


class Producer(threading.Thread):
    """Sends numbered records to partitions drawn at random, for ever; keeps what is acknowledged.

    Values say who sent them and as which one to their partition.
    """

    def __init__(self, number: int, address: str, seed: int, goes: threading.Event) -> None:
        super().__init__(name=f"producer-{number}", daemon=True)
        self.number = number
        self.acknowledged_count = 0
        self.sent: Counter[Where] = Counter()
        self.failures: list[str] = []
        self._fresh: list[tuple[Where, int, int]] = []
        self._lock = threading.Lock()
        self._rng = random.Random(seed)
        self._goes = goes
        self._over = threading.Event()
        self._client = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "compression.type": CODECS[number % len(CODECS)],
                "linger.ms": 2,
                "batch.num.messages": 25,
                "message.timeout.ms": 0,  # never
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )

    @property
    def unacknowledged(self) -> int:
        return len(self._client)

    def run(self) -> None:
        while not self._over.is_set():
            for _ in range(5):
                if self._goes.is_set() and len(self._client) < AHEAD:
                    self._send()
            self._client.poll(0.1 if self._goes.wait(0.2) else 0)
        self._client.flush(PATIENCE_S)

    def _send(self) -> None:
        topic = self._rng.choice(list(LOADED))
        where = topic, self._rng.randrange(LOADED[topic])
        value = b"%d %d %s" % (self.number, self.sent[where], b"x" * self._rng.randrange(200))
        self.sent[where] += 1
        self._client.produce(topic, value, partition=where[1], on_delivery=self._on_delivery)

    def _on_delivery(self, error: object, message: Any) -> None:
        if error is not None:
            self.failures.append(f"producer {self.number}: {error}")
            return
        self.acknowledged_count += 1
        number = int(message.value().split()[1])
        with self._lock:
            self._fresh.append(((message.topic(), message.partition()), number, message.offset()))

    def acknowledged(self) -> list[tuple[Where, int, int]]:
        """Partition, number and offset of what was acknowledged since this was last asked."""
        with self._lock:
            fresh, self._fresh = self._fresh, []
        return fresh

    def stop(self) -> None:
        self._over.set()

    def finish(self) -> None:
        self.stop()
        self.join(PATIENCE_S)
        assert not self.is_alive(), "a producer never got its answers"


@dataclass
class Seen:
    """A partition as it was read: by offset, who sent the record and as which one."""

    records: dict[int, tuple[int, int]] = field(default_factory=dict)
    next_offset: int = 0
    due: list[tuple[int, int, int]] = field(default_factory=list)
    """Acknowledged and not yet met: producer, number, offset."""
    last_number: dict[int, int] = field(default_factory=dict)
    had_gap: bool = False


class Errands:
    """What else is asked of the broker; of each thing, what may be true of it now."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.topics: dict[str, set[str | None]] = {}
        """By name, the values that segment.ms may have; None: there may be no such topic."""
        self.committed: dict[str, set[int]] = defaultdict(lambda: {-1})
        self.deleted_before: dict[Where, tuple[int, int]] = {}
        """Where the log starts at least, and at most."""
        self.producer_ids: set[int] = set()
        self.done: Counter[str] = Counter()
        self.failures: list[AssertionError] = []
        self._made = 0

    def run(self, address: str, is_over: Callable[[], bool]) -> None:
        """Do one after the other until the broker is gone."""
        try:
            self._run(address, is_over)
        except AssertionError as error:
            self.failures.append(error)

    def _run(self, address: str, is_over: Callable[[], bool]) -> None:
        errands = [self._create, self._alter, self._delete, self._trim, self._identify]
        errands += [self._commit] * 2
        try:
            with RawConnection(address, timeout_s=PATIENCE_S) as connection:
                while not is_over():
                    errand = self._rng.choice(errands)
                    errand(connection)
                    self.done[errand.__name__[1:]] += 1
                    time.sleep(self._rng.random() / 20)
        except OSError:
            return

    def _create(self, connection: RawConnection) -> None:
        if len(self.topics) >= 8:
            return
        name, value = f"passing-{self._made}", str(self._rng.randrange(10**6, 10**9))
        self._made += 1
        self.topics[name] = {None, value}
        new = {
            "name": name,
            "num_partitions": self._rng.randrange(1, 4),
            "configs": [{"name": "segment.ms", "value": value}],
        }
        answer = connection.ask(ApiKey.CREATE_TOPICS, 7, topics=[new], timeout_ms=60_000)
        assert answer.topics[0].error_code == 0, answer
        self.topics[name] = {value}

    def _alter(self, connection: RawConnection) -> None:
        name = self._one_that_is_there()
        if name is None:
            return
        value = str(self._rng.randrange(10**6, 10**9))
        self.topics[name] = {*self.topics[name], value}
        change = {"name": "segment.ms", "config_operation": 0, "value": value}
        resource = {"resource_type": 2, "resource_name": name, "configs": [change]}
        answer = connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
        assert answer.responses[0].error_code == 0, answer
        self.topics[name] = {value}

    def _delete(self, connection: RawConnection) -> None:
        name = self._one_that_is_there()
        if name is None:
            return
        self.topics[name].add(None)
        answer = connection.ask(ApiKey.DELETE_TOPICS, 5, topic_names=[name], timeout_ms=60_000)
        assert answer.responses[0].error_code == 0, answer
        del self.topics[name]

    def _one_that_is_there(self) -> str | None:
        there = [name for name, values in self.topics.items() if None not in values]
        return self._rng.choice(there) if there else None

    def _commit(self, connection: RawConnection) -> None:
        group = f"group-{self._rng.randrange(5)}"
        offset = max(self.committed[group]) + 1
        self.committed[group] = {*self.committed[group], offset}
        partition = {"partition_index": 0, "committed_offset": offset}
        answer = connection.ask(
            ApiKey.OFFSET_COMMIT,
            8,
            group_id=group,
            topics=[{"name": KEPT, "partitions": [partition]}],
        )
        assert answer.topics[0].partitions[0].error_code == 0, answer
        self.committed[group] = {offset}

    def _trim(self, connection: RawConnection) -> None:
        where = TRIMMED, self._rng.randrange(LOADED[TRIMMED])
        _, end = _bounds(connection, where)
        least, most = self.deleted_before.get(where, (0, 0))
        offset = max(end - self._rng.randrange(100, 1000), least)
        self.deleted_before[where] = least, max(offset, most)
        topics = [
            {"name": TRIMMED, "partitions": [{"partition_index": where[1], "offset": offset}]}
        ]
        answer = connection.ask(ApiKey.DELETE_RECORDS, 2, topics=topics, timeout_ms=60_000)
        assert answer.topics[0].partitions[0].error_code == 0, answer

    def _identify(self, connection: RawConnection) -> None:
        answer = connection.ask(ApiKey.INIT_PRODUCER_ID, 4)
        assert answer.error_code == 0, answer
        assert answer.producer_id not in self.producer_ids, "a producer id was given twice"
        self.producer_ids.add(answer.producer_id)

    def verify(self, connection: RawConnection) -> None:
        """What was acknowledged is there, what was under way may be."""
        answer = connection.ask(ApiKey.METADATA, 12, topics=None)
        # The topic of committed offsets comes with the first commit, and is not one of ours.
        there = {topic.name for topic in answer.topics if not topic.is_internal}
        assert all(p.error_code == 0 for topic in answer.topics for p in topic.partitions), answer
        known = set(self.topics) | set(LOADED)
        assert there <= known, f"deleted topics are back: {there - known}"
        for name, values in list(self.topics.items()):
            if name not in there:
                assert None in values, f"the acknowledged topic {name} is gone"
                del self.topics[name]
                continue
            asked = {
                "resource_type": 2,
                "resource_name": name,
                "configuration_keys": ["segment.ms"],
            }
            described = connection.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[asked])
            (value,) = (config.value for config in described.results[0].configs)
            assert value in values, f"segment.ms={value} of {name}, acknowledged {values}"
            self.topics[name] = {value}
        for group, offsets in self.committed.items():
            topics = [{"name": KEPT, "partition_indexes": [0]}]
            kept = connection.ask(ApiKey.OFFSET_FETCH, 7, group_id=group, topics=topics)
            offset = kept.topics[0].partitions[0].committed_offset
            assert offset in offsets, f"{group} has committed {offset}, acknowledged {offsets}"
            self.committed[group] = {offset}


class Soak(KilledBroker):
    """One run. `close` ends it."""

    SETTINGS: Mapping[str, object] = {
        "log.retention.check.interval.ms": 300,
        "log.initial.task.delay.ms": 100,
        "log.flush.offset.checkpoint.interval.ms": 200,
    }
    SAYS: Mapping[str, str] = {
        "torn tails cut": " bytes off ",
        "retries answered without appending": "was answered",
    }

    def __init__(
        self,
        nursery: Nursery,
        directory: Path,
        seed: int,
        *,
        producers: int = 4,
        ways_to_die: Iterable[str | None] | None = None,
    ) -> None:
        self.errands = Errands(random.Random(seed + 1))
        self.producers: list[Producer] = []
        self._goes = threading.Event()
        self._seen: defaultdict[Where, Seen] = defaultdict(Seen)
        self._verified: dict[Path, tuple[object, ...]] = {}
        super().__init__(nursery, directory, seed, ways_to_die=ways_to_die)
        try:
            self._make_topics()
            for number in range(producers):
                self.producers.append(Producer(number, self.address, seed + number, self._goes))
            for producer in self.producers:
                producer.start()
        except BaseException:
            self.close()
            raise

    def _make_topics(self) -> None:
        configs = {
            "segment.bytes": str(SEGMENT_BYTES),
            "index.interval.bytes": str(INTERVAL_BYTES),
            "file.delete.delay.ms": "100",
            "retention.ms": "-1",
        }
        with RawConnection(self.address, timeout_s=PATIENCE_S) as connection:
            for name, partitions in LOADED.items():
                own = {"retention.bytes": str(RETENTION_BYTES)} if name == EXPIRED else {}
                new = {
                    "name": name,
                    "num_partitions": partitions,
                    "configs": [{"name": n, "value": v} for n, v in (configs | own).items()],
                }
                answer = connection.ask(ApiKey.CREATE_TOPICS, 7, topics=[new], timeout_ms=60_000)
                assert answer.topics[0].error_code == 0, answer

    # --- one round ------------------------------------------------------------------------

    def _one_round(self) -> None:
        """Load and errands until it dies."""
        over = threading.Event()
        errands = threading.Thread(target=self.errands.run, args=(self.address, over.is_set))
        errands.start()
        self._goes.set()
        if self._dies is None or self._dies.startswith("stop"):
            records = self.rng.randrange(RECORDS_A_LIFE)
            self._await_end_or(records, self.rng.randrange(ERRANDS_A_LIFE), errands)
        elif not self._await_end_or(OUTLIVED_RECORDS, 0, errands):
            self.counts["outlived their step"] += 1
        self._take_down()
        self._goes.clear()
        over.set()
        errands.join(PATIENCE_S)
        assert not errands.is_alive()

    def _await_end_or(self, records: int, errands: int, thread: threading.Thread) -> bool:
        """Wait until it has died or so much is done; whether it has died."""
        records += self._acknowledged_count
        errands += self.errands.done.total()
        begun = time.monotonic()
        while not self.broker.await_end(min(pause_s(begun), 0.1)):
            if self._acknowledged_count >= records and (
                self.errands.done.total() >= errands or not thread.is_alive()
            ):
                return False
            assert not any(producer.failures for producer in self.producers)
        return True

    @property
    def _acknowledged_count(self) -> int:
        return sum(producer.acknowledged_count for producer in self.producers)

    def _take_down(self) -> None:
        if (self._dies or "").startswith("stop") and self.broker.end(signal.SIGTERM) == 0:
            self.counts["clean stops"] += 1
            self._listen()
            return
        super()._take_down()
        waiting = sum(producer.unacknowledged for producer in self.producers)
        self.counts["kills with data in flight"] += waiting > 0
        self.counts["records in flight at kills"] += waiting

    def _chance(self) -> Iterator[str | None]:
        """Half of all are killed from outside, whatever they do; the others at a step of theirs."""
        while True:
            draw = self.rng.random()
            if draw < 0.5:
                yield None
            elif draw < 0.8:
                yield f"tear:{self.rng.randrange(60)}:{self.rng.randrange(1, 1000)}"
            elif draw < 0.95:
                yield f"step:{self.rng.randrange(400)}"
            else:
                yield f"stop:{self.rng.randrange(60)}"

    # --- what must be true ----------------------------------------------------------------

    def _has_come_up(self) -> None:
        self.verify(full=self.counts["kills"] % FULL_EVERY == 0)

    def verify(self, *, full: bool) -> None:
        try:
            assert not self.errands.failures, self.errands.failures
            for producer in self.producers:
                assert not producer.failures, producer.failures[:3]
                for where, number, offset in producer.acknowledged():
                    self._seen[where].due.append((producer.number, number, offset))
                    self.counts["records acknowledged"] += 1
            with RawConnection(self.address, timeout_s=PATIENCE_S) as connection:
                self.errands.verify(connection)
                for topic, partitions in LOADED.items():
                    for partition in range(partitions):
                        self._verify_partition(connection, (topic, partition), full=full)
        except OSError:
            if self._dies is None:
                raise
            return  # it died as it was told to: the next one is looked at
        try:
            self._verify_indexes(full=full)
        except AssertionError:
            if self._dies is None or not self.broker.await_end(1):
                raise
            return  # while it was looked at: half an entry may be what it died of
        self.counts["full readings" if full else "readings of what is new"] += 1

    def _verify_partition(self, connection: RawConnection, where: Where, *, full: bool) -> None:
        seen = self._seen[where]
        start, end = _bounds(connection, where)
        self._verify_start(where, start)
        due, seen.due = seen.due, []
        for producer, _, offset in due:
            assert offset < end, f"{where}: {offset} of producer {producer} is lost, end {end}"
        offset = max(start, 0 if full else seen.next_offset - BACK)
        seen.had_gap |= start > seen.next_offset
        for found, producer, number in _records(connection, where, offset, end):
            if offset is not None and found != offset:
                now_start, _ = _bounds(connection, where)
                assert found <= now_start, f"{where}: {found} follows {offset - 1}"
                seen.had_gap = True
            offset = found + 1
            if found < seen.next_offset:
                assert seen.records.get(found, (producer, number)) == (producer, number), found
                continue
            before = seen.last_number.get(producer, -1)
            follows = number > before if seen.had_gap else number == before + 1
            assert follows, f"{where}: {number} of {producer} at {found} after {before}"
            seen.last_number[producer] = number
            seen.records[found] = producer, number
            seen.next_offset = found + 1
        for producer, number, found in due:
            kept = seen.records.get(found)
            if kept is None:
                assert found < _bounds(connection, where)[0], f"{where}: {found} was not read"
            else:
                assert kept == (producer, number), f"{where}: {kept} at {found}"

    def _verify_start(self, where: Where, start: int) -> None:
        if where[0] == KEPT:
            assert start == 0, f"{where} begins at {start}"
        elif where[0] == TRIMMED:
            _, most = self.errands.deleted_before.get(where, (0, 0))
            assert start <= most, f"{where} begins at {start}, asked was {most}"

    def _verify_indexes(self, *, full: bool) -> None:
        """Both indexes of every segment against its headers, unless no byte has changed."""
        for log in sorted(self.log_dir.glob("*-*/*.log")):
            files = [log, log.with_suffix(".index"), log.with_suffix(".timeindex")]
            try:
                state: tuple[object, ...] = tuple(
                    (s.st_ino, s.st_size, s.st_mtime_ns) for s in map(Path.stat, files)
                )
                if full or self._verified.get(log) != state:
                    verify_indexes(log)
            except FileNotFoundError:
                continue  # retention or a deletion took it
            self._verified[log] = state
            self.counts["segments' indexes verified"] += 1

    def finish(self) -> None:
        """End the load, stop cleanly, and look at everything once more."""
        self.broker.end()
        self._listen()
        self._start_and_wait()
        for producer in self.producers:
            producer.finish()
            assert producer.unacknowledged == 0
        for full in (False, True):
            self.verify(full=full)
        for producer in self.producers:
            for where, sent in producer.sent.items():
                last = self._seen[where].last_number.get(producer.number, -1)
                assert last == sent - 1 or where[0] != KEPT, f"{where}: {last} of {sent}"
        assert self.broker.end(signal.SIGTERM) == 0
        self._listen()
        found = [
            step
            for step in Verification.of(self.log_dir).steps()
            if isinstance(step, Finding) and step.severity is not Severity.NOTE
        ]
        assert not found, found

    def close(self) -> None:
        for producer in self.producers:
            producer.stop()
        super().close()


def verify_indexes(log: Path) -> None:
    """Every entry is of a batch and says what it says; a finished segment has no others."""
    is_finished = max(log.parent.glob("*.log")) != log
    # The indexes first: an entry is written after its batch, and the log may be growing.
    offsets = log.with_suffix(".index").read_bytes()
    times = log.with_suffix(".timeindex").read_bytes()
    facts = IndexBuilder(
        int(log.stem), INTERVAL_BYTES, _in_use(offsets, width=8), _in_use(times, width=12)
    )
    facts.add_all((at, header, None) for at, header in iter_headers(log.read_bytes()))
    assert facts.untrue == 0, f"{log}: {facts.untrue} untrue entries"
    if is_finished:
        assert offsets == facts.offset_entries, log
        assert times == facts.time_entries, log


def _in_use(index: bytes, width: int) -> bytes:
    """The entries before the zeros that fill a growing index."""
    return index[: -(-len(index.rstrip(b"\0")) // width) * width]


def _bounds(connection: RawConnection, where: Where) -> tuple[int, int]:
    offsets = []
    for timestamp in (-2, -1):
        partition = {"partition_index": where[1], "timestamp": timestamp}
        topics = [{"name": where[0], "partitions": [partition]}]
        answer = connection.ask(ApiKey.LIST_OFFSETS, 7, topics=topics)
        found = answer.topics[0].partitions[0]
        assert found.error_code == 0, answer
        offsets.append(found.offset)
    return offsets[0], offsets[1]


def _records(
    connection: RawConnection, where: Where, offset: int, end: int
) -> Iterator[tuple[int, int, int]]:
    """Offset, producer and number of each record; continues at the log start if that moves."""
    while offset < end:
        fields = fetch_fields(where[0], {where[1]: offset})
        answer = connection.ask(ApiKey.FETCH, 12, **fields)
        found = answer.responses[0].partitions[0]
        if found.error_code == 1:
            offset = max(offset, _bounds(connection, where)[0])
            continue
        assert found.error_code == 0, answer
        data = bytes(found.records or b"")
        for position, header in iter_headers(data):
            if position + header.size > len(data):
                break
            for record in read_records(data[position : position + header.size]):
                assert record.offset is not None
                assert record.value is not None
                if record.offset >= offset:
                    producer, number, _ = record.value.split(b" ", 2)
                    yield record.offset, int(producer), int(number)
            offset = header.next_offset
