"""Clients that write to and read from a cluster until they are told to stop, on threads.

They survive what a client has to survive; a fatal error makes a new client, under a new name where
its records are counted.
"""

import itertools
import random
import threading
import time
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from typing import Any

import confluent_kafka
from cluster_history import ClusterHistory, End, Stored, Where, Written
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from patience import eventually
from raw_connection import RawConnection, lookup_fields

from horolog.wire import ApiKey

QUIET = {"log_level": 0, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500}
PARTITIONS = 3


class Worker(threading.Thread):
    """One client's thread; `failure` is what ended it before its time."""

    def __init__(self, name: str, bootstrap: str, history: ClusterHistory, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.bootstrap = bootstrap
        self.history = history
        self.random = random.Random(seed)
        self.over = threading.Event()
        self.failure: str | None = None
        self.config: dict[str, Any] = {"bootstrap.servers": bootstrap, **QUIET}

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - a test looks at it
            self.failure = f"{self.name}: {error!r}"
            self.history.complain(self.failure)

    def work(self) -> None:
        raise NotImplementedError


class Writer(Worker):
    """Sends numbered records with acks=all; an idempotent one exactly once and in order."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        history: ClusterHistory,
        seed: int,
        *,
        topic: str,
        is_idempotent: bool,
        is_stamped: bool = False,
        pause_s: float = 0.002,
    ) -> None:
        super().__init__(name, bootstrap, history, seed)
        self.topic = topic
        self._is_idempotent = is_idempotent
        self._is_stamped = is_stamped
        self._pause_s = pause_s
        self._lives = itertools.count()

    def work(self) -> None:
        while not self.over.is_set():
            self._live(f"{self.name}.{next(self._lives)}")

    def _live(self, writer: str) -> None:
        if self._is_idempotent:
            self.history.once.add(writer)
        fatal = threading.Event()

        def on_error(error: confluent_kafka.KafkaError) -> None:
            if error.fatal():
                fatal.set()

        producer = confluent_kafka.Producer(
            {
                **self.config,
                "acks": "all",
                "enable.idempotence": self._is_idempotent,
                "message.timeout.ms": 0 if self._is_idempotent else 60_000,
                "linger.ms": self.random.choice([0, 2, 10]),
                "batch.num.messages": self.random.choice([1, 10, 100]),
                "compression.type": self.random.choice(["none", "lz4", "zstd"]),
                "error_cb": on_error,
            }
        )
        numbers = [0] * PARTITIONS
        while not self.over.is_set() and not fatal.is_set():
            partition = self.random.randrange(PARTITIONS)
            written = Written(writer, numbers[partition])
            where = self.topic, partition

            def told(error: Any, message: Any, written: Written = written) -> None:
                if error is None:
                    at = message.topic(), message.partition()
                    kind, time_ms = message.timestamp()
                    # Of a duplicate brokers tell its batch's largest time as its append time.
                    is_own = self._is_stamped or kind == confluent_kafka.TIMESTAMP_CREATE_TIME
                    time_ms = time_ms if is_own else None
                    self.history.acknowledge(at, message.offset(), written, time_ms)

            try:
                producer.produce(self.topic, written.value, partition=where[1], on_delivery=told)
            except BufferError:
                producer.poll(0.1)
                continue
            except KafkaException:
                break
            numbers[partition] += 1
            producer.poll(0)
            if len(producer) > 500:
                producer.poll(0.05)
            time.sleep(self._pause_s)
        if not fatal.is_set():
            producer.flush(120)
        producer.purge()


class Transactor(Worker):
    """Writes to several partitions in each transaction, and aborts some."""

    def __init__(
        self, name: str, bootstrap: str, history: ClusterHistory, seed: int, topics: Sequence[str]
    ) -> None:
        super().__init__(name, bootstrap, history, seed)
        self._topics = list(topics)
        self._numbers = itertools.count()

    def work(self) -> None:
        while not self.over.is_set():
            with suppress(KafkaException, NeedsAnother):
                self._live()
            time.sleep(0.2)

    def _live(self) -> None:
        producer = confluent_kafka.Producer(
            {
                **self.config,
                "transactional.id": self.name,
                "transaction.timeout.ms": 30_000,
                "message.timeout.ms": 25_000,
            }
        )
        self._persist(lambda: producer.init_transactions(20))
        while not self.over.is_set():
            self._one(producer, f"{self.name}.{next(self._numbers)}")

    def _one(self, producer: Any, name: str) -> None:
        history = self.history
        producer.begin_transaction()
        try:
            for number in range(self.random.randint(1, 6)):
                where = self.random.choice(self._topics), self.random.randrange(PARTITIONS)
                written = Written(name, number, name)
                history.send(where, written)
                producer.produce(where[0], written.value, partition=where[1])
                producer.poll(0)
                time.sleep(self.random.choice([0, 0.01]))
            if self.random.random() < 0.2:
                producer.flush(5)  # an end before the beginning is fatal to librdkafka
                self._persist(lambda: producer.abort_transaction(20))
                history.end(name, End.ABORTED)
                return
            self._persist(lambda: producer.commit_transaction(20))
            history.end(name, End.COMMITTED)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._persist(lambda: producer.abort_transaction(20))
            history.end(name, End.ABORTED)

    def _persist(self, attempt: Callable[[], None]) -> None:
        """Try again what may be tried again.

        Raises:
            KafkaException: it failed for good; how a commit ended is unknown then.
        """
        for _ in range(60):
            try:
                attempt()
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                time.sleep(0.1)
            else:
                return
        raise NeedsAnother


class NeedsAnother(Exception):
    """A producer that gets no answer is given up; the next one fences it."""


class Reader(Worker):
    """Reads topics from the beginning, over and over; what it reads must stay."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        history: ClusterHistory,
        seed: int,
        topics: Sequence[str],
        *,
        is_committed: bool,
    ) -> None:
        super().__init__(name, bootstrap, history, seed)
        self._places = [TopicPartition(it, at, 0) for it in topics for at in range(PARTITIONS)]
        self._level = "read_committed" if is_committed else "read_uncommitted"

    def work(self) -> None:
        while not self.over.is_set():
            consumer = open_consumer(self.bootstrap, self._level)
            try:
                consumer.assign(self._places)
                until = time.monotonic() + self.random.uniform(5, 30)
                while time.monotonic() < until and not self.over.is_set():
                    for message in consumer.consume(200, 0.5):
                        self._see(message)
            finally:
                consumer.close()

    def _see(self, message: Any) -> None:
        where = message.topic(), message.partition()
        error = message.error()
        if error is None:
            self.history.see(where, message.offset(), Written.of(message.value()))
        elif error.code() in (
            confluent_kafka.KafkaError._AUTO_OFFSET_RESET,
            confluent_kafka.KafkaError._LOG_TRUNCATION,
            confluent_kafka.KafkaError.OFFSET_OUT_OF_RANGE,
        ):
            self.history.complain(f"{self.name}: {where}: {error}")


STALE_S = 60  # a cut, and the session of a broker


class Finder(Worker):
    """Looks for acknowledged records by their timestamps, at whoever leads them.

    A Kafka may pass over records before the last one of the same time: its time index says where
    a time was reached last. Until one that is cut off hears of its successor, it answers for what
    it led: it is asked again.
    """

    kafkas: Container[int] = ()
    """Ids of brokers of Kafka."""

    def work(self) -> None:
        admin = AdminClient(self.config)
        while not self.over.is_set():
            sample = self.history.sample(self.random.random())
            if sample is not None:
                with suppress(KafkaException, OSError):  # no leader for the moment
                    self._find(admin, *sample)
            time.sleep(0.2)

    def _find(self, admin: Any, where: Where, offset: int, timestamp: int) -> None:
        until = time.monotonic() + STALE_S
        while (wrong := self._wrong(admin, where, offset, timestamp)) is not None:
            leader_id, found = wrong
            if leader_id not in self.kafkas or time.monotonic() > until:
                self.history.complain(
                    f"{self.name}: {where}: {offset} was appended at {timestamp}, but by broker "
                    f"{leader_id} {found} is the first at or after that"
                )
                return
            if self.over.wait(1):
                return

    def _wrong(
        self, admin: Any, where: Where, offset: int, timestamp: int
    ) -> tuple[int, int] | None:
        """The leader, and what it finds, if that is not right."""
        topic, partition = where
        metadata = admin.list_topics(topic, timeout=10)
        leader = metadata.brokers.get(metadata.topics[topic].partitions[partition].leader)
        if leader is None:
            return None
        with RawConnection(f"{leader.host}:{leader.port}", 20) as connection:
            answer = connection.ask(
                ApiKey.LIST_OFFSETS,
                7,
                replica_id=-1,
                **lookup_fields(topic, {partition: timestamp}),
            )
        found = answer.topics[0].partitions[0]
        passes_over = leader.id in self.kafkas and found.timestamp == timestamp
        is_right = found.error_code or 0 <= found.offset <= offset or passes_over
        return None if is_right else (leader.id, found.offset)


def open_consumer(bootstrap: str, level: str) -> Any:
    """A consumer without a group's needs, which never moves by itself."""
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            **QUIET,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": level,
            "check.crcs": True,
            "fetch.wait.max.ms": 100,
        }
    )


def _bounds(consumer: Any, place: TopicPartition) -> tuple[int, int]:
    """First and next offset of a partition, as soon as its leader answers."""
    found: list[tuple[int, int]] = []

    def asked() -> bool:
        with suppress(KafkaException):
            found.append(consumer.get_watermark_offsets(place, timeout=10))
        return bool(found)

    assert eventually(asked), f"nobody answers for {place}"
    return found[0]


def read_all(
    bootstrap: str,
    topics: Sequence[str],
    level: str,
    parse: Callable[[bytes], Written] = Written.of,
) -> dict[Where, list[Stored]]:
    """All records of topics up to their ends of now; `parse` reads a value."""
    consumer = open_consumer(bootstrap, level)
    found: dict[Where, list[Stored]] = {(it, at): [] for it in topics for at in range(PARTITIONS)}
    try:
        for where, stored in found.items():
            place = TopicPartition(*where)
            start, end = _bounds(consumer, place)
            place.offset = start
            consumer.assign([place])
            deadline = time.monotonic() + 120
            while consumer.position([place])[0].offset < end and end > start:
                assert time.monotonic() < deadline, f"{where} is readable up to {stored[-1:]}"
                for message in consumer.consume(1000, 0.2):
                    assert message.error() is None, f"{where}: {message.error()}"
                    written = parse(message.value())
                    stored.append(Stored(message.offset(), message.timestamp()[1], written))
    finally:
        consumer.close()
    return found
