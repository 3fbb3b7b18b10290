"""What is written into the golden log directories: one function a scenario, each for one topic.

Every batch is closed by hand (a producer that lingers, then a flush), so that a file's batches are
the scenario's. Create times hang on one fixed instant; append times are the day's clock.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

T0_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z
MINUTE_MS = 60_000
QUIET = {"log_level": 0, "log.connection.close": False}
PATIENCE_S = 600  # of a busy machine; only what hangs ever meets it
LOADING = {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR}


class Sent(NamedTuple):
    """A record to send."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


Batch = Sequence[Sent]
Write = Callable[[str, str], None]  # bootstrap address, topic


@dataclass(frozen=True)
class Scenario:
    """A topic, how it is made, and what writes it."""

    topic: str
    about: str
    write: Write
    config: dict[str, str] = field(default_factory=dict)
    partitions: int = 1


def write_all(bootstrap: str, scenarios: Sequence[Scenario]) -> None:
    """Create every scenario's topic and write it."""
    create(bootstrap, scenarios)
    for one in scenarios:
        print(f"  {one.topic}: {one.about}", flush=True)
        one.write(bootstrap, one.topic)


def create(bootstrap: str, scenarios: Iterable[Scenario]) -> None:
    """Create every scenario's topic; nothing is deleted for its age unless the scenario says so."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    topics = [
        NewTopic(one.topic, one.partitions, 1, config={"retention.ms": "-1", **one.config})
        for one in scenarios
    ]
    made = admin.create_topics(topics, operation_timeout=PATIENCE_S, request_timeout=PATIENCE_S)
    for future in made.values():
        future.result()


def alter(bootstrap: str, topic: str, **config: str) -> None:
    """Set a topic's settings (underscores for dots)."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    resource = ConfigResource(
        ConfigResource.Type.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in config.items()
        ],
    )
    changed = admin.incremental_alter_configs([resource], request_timeout=PATIENCE_S)
    for future in changed.values():
        future.result()


def producer(bootstrap: str, **settings: Any) -> Producer:
    """A librdkafka producer that closes a batch only when it is flushed."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20_000,
            "batch.size": 4_000_000,
            "acks": "1",
            "message.timeout.ms": PATIENCE_S * 1000,
            **QUIET,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def transactional(bootstrap: str, name: str) -> Producer:
    """A producer whose transactions stay open until it ends them."""
    settings = {"transactional_id": name, "transaction_timeout_ms": PATIENCE_S * 1000}
    return producer(bootstrap, acks="all", **settings)


def send(to: Producer, topic: str, batch: Batch, partition: int = 0) -> None:
    """Send one batch and wait until it is acknowledged."""
    failures: list[Any] = []
    for record in batch:
        to.produce(
            topic,
            partition=partition,
            key=record.key,
            value=record.value,
            timestamp=record.timestamp,
            headers=list(record.headers) or None,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert to.flush(PATIENCE_S) == 0, "not all was acknowledged"
    assert not failures, failures


def batches(count: int, size: int, *, seed: int, spread_ms: int = 5_000) -> list[list[Sent]]:
    """Batches of JSON-like records whose times wander forward, some late, some equal."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        batch = []
        for index in range(size):
            timestamp = T0_MS + number * spread_ms + chance.randrange(-spread_ms, spread_ms)
            value = b'{"batch":%d,"index":%d,"word":"%s"}' % (
                number,
                index,
                b"tick" * chance.randrange(4),
            )
            batch.append(Sent(timestamp, b"key-%d" % chance.randrange(7), value))
        made.append(batch)
    return made


def odd_batches() -> list[list[Sent]]:
    """Nulls, empties and headers, each legal and each easy to get wrong."""
    return [
        [
            Sent(T0_MS + 5, None, b"no key"),
            Sent(T0_MS + 1, b"no value", None),
            Sent(T0_MS + 9, b"", b""),
            Sent(T0_MS + 9, b"tie", b"the second with the largest time"),
            Sent(
                T0_MS + 3,
                b"h",
                b"headers",
                [("a", b"1"), ("a", None), ("\N{SNOWMAN}", b"\x00\xff"), ("", b"")],
            ),
        ],
        [Sent(T0_MS + 7, b"one", b"alone")],
    ]


# --- one function a scenario -------------------------------------------------------------------


def nothing(bootstrap: str, topic: str) -> None:
    """An empty topic stays empty."""


def compressed_by_client(codec: str, *, headers: bool = True) -> Write:
    """Batches that librdkafka compressed and Kafka kept as they came."""

    def write(bootstrap: str, topic: str) -> None:
        to = producer(bootstrap, compression_type=codec)
        for batch in [*batches(3, 25, seed=1), *odd_batches()]:
            send(to, topic, [one if headers else one._replace(headers=()) for one in batch])

    return write


def compressed_by_broker(bootstrap: str, topic: str) -> None:
    """Batches that came uncompressed and that Kafka rebuilt with the topic's own codec."""
    to = producer(bootstrap)
    for batch in [*batches(3, 25, seed=2), *odd_batches()]:
        send(to, topic, batch)


def many_small(count: int = 60, *, seed: int, spread_ms: int = 5_000) -> Write:
    """Many batches of three records."""

    def write(bootstrap: str, topic: str) -> None:
        to = producer(bootstrap)
        for batch in batches(count, 3, seed=seed, spread_ms=spread_ms):
            send(to, topic, batch)

    return write


def out_of_order(bootstrap: str, topic: str) -> None:
    """Times that jump back by hours, ties inside and across batches, every other batch packed."""
    chance = random.Random(3)
    plain, packed = producer(bootstrap), producer(bootstrap, compression_type="lz4")
    for number in range(40):
        base = T0_MS + chance.choice([0, 1, 2, 3]) * 60 * MINUTE_MS
        batch = [
            Sent(base + chance.randrange(10), b"%d" % number, b"%d" % index)
            for index in range(1 + number % 4)
        ]
        send(packed if number % 2 else plain, topic, batch)


def several_partitions(bootstrap: str, topic: str) -> None:
    """Three partitions, the last of them empty."""
    to = producer(bootstrap, compression_type="zstd")
    for number, batch in enumerate(batches(6, 8, seed=4)):
        send(to, topic, batch, partition=number % 2)


def wild(timestamps: Sequence[Sequence[int]]) -> Write:
    """Times that librdkafka will not send: -1, before 1970 (kafka-python sends what it gets)."""

    def write(bootstrap: str, topic: str) -> None:
        from kafka import KafkaProducer  # noqa: PLC0415 - its import warns

        to = KafkaProducer(
            bootstrap_servers=bootstrap, linger_ms=60_000, enable_idempotence=False, acks=1
        )
        for batch in timestamps:
            sent = [
                to.send(topic, value=b"at %d" % at, timestamp_ms=at, partition=0) for at in batch
            ]
            to.flush()
            for future in sent:
                future.get(PATIENCE_S)
        to.close()

    return write


def idempotent(bootstrap: str, topic: str) -> None:
    """Two idempotent producers in turns, over several segments."""
    first = producer(bootstrap, enable_idempotence=True, acks="all")
    second = producer(bootstrap, enable_idempotence=True, acks="all")
    for number, batch in enumerate(batches(14, 4, seed=5)):
        send(second if number % 3 == 2 else first, topic, batch)


def transactions(bootstrap: str, topic: str) -> None:
    """Committed, aborted and plain batches between each other, over several segments."""
    plain = producer(bootstrap)
    first = transactional(bootstrap, f"{topic}-first")
    second = transactional(bootstrap, f"{topic}-second")
    made = iter(batches(18, 3, seed=6))
    first.init_transactions(PATIENCE_S)
    second.init_transactions(PATIENCE_S)
    for commit_first in (True, False, True, False):
        first.begin_transaction()
        second.begin_transaction()
        send(first, topic, next(made))
        send(second, topic, next(made))
        send(plain, topic, next(made))
        send(first, topic, next(made))
        (first.commit_transaction if commit_first else first.abort_transaction)(PATIENCE_S)
        (second.abort_transaction if commit_first else second.commit_transaction)(PATIENCE_S)
    send(plain, topic, next(made))


class OpenTransaction:
    """A transaction that is not ended: its producer stays until the broker is gone."""

    def __init__(self) -> None:
        self._producers: list[Producer] = []

    def __call__(self, bootstrap: str, topic: str) -> None:
        """Leave it open between two plain batches."""
        plain = producer(bootstrap)
        hanging = transactional(bootstrap, f"{topic}-open")
        made = batches(3, 3, seed=7)
        hanging.init_transactions(PATIENCE_S)
        send(plain, topic, made[0])
        hanging.begin_transaction()
        send(hanging, topic, made[1])
        send(plain, topic, made[2])
        self._producers.append(hanging)


def compacted(bootstrap: str, topic: str) -> None:
    """Keys written again and again, deleted keys, and a batch that ends up holding nothing."""
    chance = random.Random(8)
    to = producer(bootstrap)
    emptied = producer(bootstrap, enable_idempotence=True, acks="all")
    for number in range(30):
        batch = []
        for index in range(4):
            key = b"key-%d" % chance.randrange(12)
            value = None if chance.random() < 0.15 else b"value %d.%d" % (number, index)
            batch.append(Sent(T0_MS + number * MINUTE_MS + index, key, value))
        send(to, topic, batch)
    send(emptied, topic, [Sent(T0_MS + 31 * MINUTE_MS, b"key-1", b"soon written over")])
    send(
        to,
        topic,
        [Sent(T0_MS + 32 * MINUTE_MS, b"key-%d" % n, b"last of %d" % n) for n in range(3)],
    )
    # What is in the active segment is not compacted: enough to push all of the above out of it.
    for number in range(8):
        send(to, topic, [Sent(T0_MS + (40 + number) * MINUTE_MS, b"filler-%d" % number, b"f" * 90)])


def deleted_records(to_offset: int) -> Write:
    """Records removed up to an offset inside a batch."""

    def write(bootstrap: str, topic: str) -> None:
        many_small(30, seed=9)(bootstrap, topic)
        admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
        to = [TopicPartition(topic, 0, to_offset)]
        for future in admin.delete_records(to, request_timeout=PATIENCE_S).values():
            future.result()

    return write


def committed_offsets(group: str, of_topic: str) -> Callable[[str], None]:
    """A group's committed offset, so that there is a `__consumer_offsets`."""

    def write(bootstrap: str) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                **QUIET,
            }
        )
        for pause in (0.1, 0.3, 1, 3, 6, None):
            try:
                consumer.commit(offsets=[TopicPartition(of_topic, 0, 7)], asynchronous=False)
                break
            except KafkaException as refused:
                if pause is None or refused.args[0].code() not in LOADING:
                    raise
                time.sleep(pause)
        consumer.close()

    return write


OLD, NEGATIVE = -1, (-5_000, -1, -2, -6_106_000_000_000)
ENDLESS = str(2**63 - 1)

CLEAN: tuple[Scenario, ...] = (
    *(
        Scenario(
            f"client-{codec}", f"compressed by librdkafka: {codec}", compressed_by_client(codec)
        )
        for codec in ("none", "gzip", "snappy", "lz4", "zstd")
    ),
    *(
        Scenario(
            f"broker-{codec}",
            f"rebuilt by Kafka: {codec}",
            compressed_by_broker,
            {"compression.type": codec},
        )
        for codec in ("gzip", "snappy", "lz4", "zstd")
    ),
    Scenario(
        "append-time",
        "times of the broker's clock, record times kept beneath",
        compressed_by_client("none"),
        {"message.timestamp.type": "LogAppendTime"},
    ),
    Scenario(
        "append-time-zstd",
        "the same, compressed",
        compressed_by_client("zstd"),
        {"message.timestamp.type": "LogAppendTime"},
    ),
    Scenario(
        "out-of-order",
        "times that jump back by hours, ties; an index entry every 200 bytes",
        out_of_order,
        {"index.interval.bytes": "200", "internal.segment.bytes": "1000"},
    ),
    Scenario(
        "no-time",
        "records without a time: a batch of them, a batch with one that has one, a batch of them",
        wild([(OLD, OLD), (OLD, T0_MS, OLD), (OLD,)]),
    ),
    Scenario(
        "never-a-time",
        "no record has a time: the time index stays empty",
        wild([(OLD, OLD), (OLD,)]),
    ),
    Scenario(
        "before-1970",
        "times before 1970, alone and beside later ones",
        wild([NEGATIVE, (-7, 5), (-9,)]),
    ),
    Scenario(
        "wild-future",
        "nanoseconds and microseconds sent as milliseconds, with the bound lifted",
        wild([(T0_MS, T0_MS * 1000), (T0_MS * 1_000_000, 2**63 - 1), (T0_MS + 1, 0)]),
        {"message.timestamp.after.max.ms": ENDLESS},
    ),
    Scenario("empty", "no record at all", nothing),
    Scenario(
        "several", "three partitions, the last of them empty", several_partitions, partitions=3
    ),
    Scenario(
        "index-all",
        "an entry for every batch but a segment's first",
        many_small(40, seed=11),
        {"index.interval.bytes": "0", "internal.segment.bytes": "2000"},
    ),
    Scenario(
        "index-some",
        "an entry every 500 bytes, segments rolled by size",
        many_small(60, seed=12),
        {"index.interval.bytes": "500", "internal.segment.bytes": "3000"},
    ),
    Scenario("index-default", "default density, one segment", many_small(120, seed=13)),
    Scenario(
        "index-full",
        "segments rolled because an index was full (96 bytes: 12 offsets, 8 times)",
        many_small(40, seed=14, spread_ms=20_000),
        {"index.interval.bytes": "0", "segment.index.bytes": "96"},
    ),
    Scenario(
        "roll-by-time",
        "segments rolled by the records' own times",
        many_small(40, seed=15),
        {"segment.ms": "30000", "index.interval.bytes": "300"},
    ),
    Scenario(
        "idempotent",
        "two idempotent producers over several segments",
        idempotent,
        {"internal.segment.bytes": "900"},
    ),
    Scenario(
        "transactions",
        "committed, aborted and plain batches over several segments",
        transactions,
        {"internal.segment.bytes": "900", "index.interval.bytes": "200"},
    ),
    Scenario("transaction-open", "a transaction that nobody has ended", OpenTransaction()),
    Scenario(
        "compacted",
        "compacted: gaps in offsets, tombstones with a delete horizon, a batch emptied but kept",
        compacted,
        {
            "cleanup.policy": "compact",
            "internal.segment.bytes": "1500",
            "min.cleanable.dirty.ratio": "0.01",
            "index.interval.bytes": "200",
        },
    ),
    Scenario(
        "deleted-records",
        "records deleted up to the middle of a batch, and the segments before it",
        deleted_records(40),
        {"internal.segment.bytes": "1500", "file.delete.delay.ms": "0"},
    ),
    Scenario(
        "deleted-all",
        "every record deleted: the log starts at its end",
        deleted_records(-1),
        {"file.delete.delay.ms": "0"},
    ),
    Scenario(
        "retained",
        "what retention by size has left: the first segment's base is not zero",
        many_small(40, seed=16),
        {
            "internal.segment.bytes": "1000",
            "retention.bytes": "2500",
            "file.delete.delay.ms": "0",
            "index.interval.bytes": "200",
        },
    ),
    Scenario(
        "epochs",
        "written under three leader epochs",
        many_small(4, seed=17),
        {"index.interval.bytes": "0"},
    ),
)

_SEGMENTED = {
    "index.interval.bytes": "200",
    "internal.segment.bytes": "3000",
    "segment.index.bytes": "4096",
}
KILLED: tuple[Scenario, ...] = (
    Scenario(
        "plain", "default settings: both indexes at their full 10 MB", compressed_by_client("lz4")
    ),
    Scenario(
        "segments",
        "several segments, an entry every 200 bytes",
        many_small(60, seed=21),
        _SEGMENTED,
    ),
    Scenario(
        "torn",
        "the last batch of the log cut short",
        many_small(30, seed=22),
        _SEGMENTED,
    ),
    Scenario(
        "flipped",
        "one bit changed inside a record of the last segment",
        many_small(60, seed=23),
        _SEGMENTED,
    ),
    Scenario(
        "no-index",
        "the offset index of the first segment gone",
        many_small(30, seed=24),
        _SEGMENTED,
    ),
    Scenario(
        "append-time",
        "times of the broker's clock",
        many_small(10, seed=25),
        {"message.timestamp.type": "LogAppendTime", "segment.index.bytes": "4096"},
    ),
    Scenario(
        "never-a-time",
        "no record has a time",
        wild([(OLD, OLD), (OLD,)]),
        {"segment.index.bytes": "4096"},
    ),
    Scenario(
        "idempotent",
        "two idempotent producers over several segments",
        idempotent,
        {"internal.segment.bytes": "900", "segment.index.bytes": "4096"},
    ),
    Scenario(
        "transactions",
        "committed, aborted and plain batches over several segments",
        transactions,
        {"internal.segment.bytes": "900", "segment.index.bytes": "4096"},
    ),
    Scenario(
        "transaction-open",
        "a transaction that nobody has ended",
        OpenTransaction(),
        {"segment.index.bytes": "4096"},
    ),
    Scenario("empty", "no record at all", nothing, {"segment.index.bytes": "4096"}),
    Scenario(
        "deleted-records",
        "records deleted up to the middle of a batch",
        deleted_records(40),
        {
            "internal.segment.bytes": "1500",
            "segment.index.bytes": "4096",
            "file.delete.delay.ms": "0",
        },
    ),
)


OLD_FORMATS = {"v0": "0.9.0", "v1": "0.10.2"}


def mixed(bootstrap: str, topic: str) -> None:
    """One log that was written in all three formats, as an upgraded cluster's are."""
    made = batches(9, 4, seed=31)
    packed = producer(bootstrap, compression_type="gzip")
    for at, version in enumerate((*OLD_FORMATS.values(), "2.8")):
        alter(bootstrap, topic, message_format_version=version)
        settle(1)
        plain = producer(bootstrap)
        send(plain, topic, made[3 * at])
        send(packed, topic, made[3 * at + 1])
        send(plain, topic, made[3 * at + 2])


OLD_KAFKA: tuple[Scenario, ...] = (
    *(
        Scenario(
            f"{name}-{codec}",
            f"format {name}, {codec}",
            compressed_by_client(codec, headers=False),
            {"message.format.version": version, "index.interval.bytes": "200"},
        )
        for name, version in OLD_FORMATS.items()
        for codec in ("none", "gzip", "snappy", "lz4")
    ),
    *(
        Scenario(
            f"v1-append-time-{codec}",
            f"format v1 under the broker's clock, {codec}",
            compressed_by_client(codec, headers=False),
            {"message.format.version": "0.10.2", "message.timestamp.type": "LogAppendTime"},
        )
        for codec in ("none", "gzip")
    ),
    Scenario(
        "v1-segments",
        "format v1 over several segments",
        many_small(40, seed=32),
        {
            "message.format.version": "0.10.2",
            "segment.bytes": "2000",
            "index.interval.bytes": "300",
        },
    ),
    Scenario("mixed", "v0, then v1, then v2 in one log", mixed, {"segment.bytes": "1200"}),
    Scenario("v2", "format v2, beside the old ones", compressed_by_client("lz4")),
)


def settle(seconds: float = 4.0) -> None:
    """Let retention (every half second), the cleaner and the checkpoints do their work."""
    time.sleep(seconds)
