"""A shadow beside Apache Kafka's own replica and MirrorMaker 2, all behind one Apache Kafka.

    python -m bench.shadow [--quick] [--runs N] [--line follow|latency|idle]

follow   A topic of 1 kB records that lies ready at the source is followed from its beginning: by a
         horolog, by a second broker of the source's cluster that becomes a replica, and by
         MirrorMaker 2. Counted are MB per CPU second of the process that follows (of MirrorMaker
         and the broker that it writes to, both), from the request to the last record.
latency  One record each two milliseconds is written to the source. A consumer at the source and one
         at the shadow: how long after its create time each record is seen.
idle     The share of a core that a shadow needs for 1,000 partitions in which nothing happens.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pyarrow as pa
from bench.harness import Numbers, Options, options_of, parser_of, require_peer
from bench.sides import Side, horolog, records, tree_cpu_s
from tools.peers.kafka import JVM_FLAGS, Kafka, java
from tools.peers.mirror_maker import mirror_maker

from horolog.client import Client, Producer
from horolog.clock import SystemClock

PARTITIONS = 4
IDLE_PARTITIONS = 1_000
RECORD_BYTES = 1_000
TIMEOUT_S = 600.0
POLL_S = 0.02
KERNELS_S = 3.0  # a broker loads them a second after its start
WARM_BYTES = 16 << 20
BYTES, QUICK_BYTES = 1 << 30, 256 << 20
SETTINGS = {"log.retention.ms": "-1", "log.segment.delete.delay.ms": "1000"}
SHADOW, REPLICA, MIRROR_MAKER = "horolog", "Kafka replica", "MirrorMaker 2"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


def shadow_of(source: str, topics: str) -> AbstractContextManager[Side]:
    """A horolog that follows, as a process of its own."""
    return horolog({"horolog.follow": source, "horolog.follow.topics": topics})


def fill(bootstrap: str, topic: str, size: int) -> int:
    """Write this many bytes of records of 1 kB; how many records."""
    with Client(bootstrap) as client, Producer(client, batch_bytes=256 << 10) as producer:
        rows = pa.table({"value": [os.urandom(16) + bytes(RECORD_BYTES - 16)] * 8_000})
        count = -(-size // (rows.num_rows * RECORD_BYTES))
        for _ in range(count):
            producer.send(topic, rows)
    return count * rows.num_rows


def until(what: Callable[[], bool]) -> None:
    """Wait for it."""
    end = time.monotonic() + TIMEOUT_S
    while not what():
        if time.monotonic() > end:
            raise SystemExit("it did not catch up")
        time.sleep(POLL_S)


def measured(
    size: int, pids: list[int], begin: Callable[[], object], done: Callable[[], bool]
) -> Numbers:
    """MB a second and per CPU second of processes, from a beginning until something is done."""
    before, start = tree_cpu_s(*pids), time.perf_counter()
    begin()
    until(done)
    seconds, used = time.perf_counter() - start, tree_cpu_s(*pids) - before
    return {"MB/s": size / seconds / 1e6, "MB/CPU-s": size / used / 1e6}


def new_topic(kafka: Kafka, topic: str) -> None:
    with Client(kafka.bootstrap) as client:
        client.create_topics({topic: PARTITIONS}, configs={"retention.ms": "-1"})


def by_shadow(source: Kafka, topic: str, size: int) -> Numbers:
    """A shadow that has followed something before, as a broker that runs has."""
    new_topic(source, f"warm-{topic}")
    warm = fill(source.bootstrap, f"warm-{topic}", WARM_BYTES)
    with (
        shadow_of(source.bootstrap, f"(warm-)?{topic}") as shadow,
        Client(shadow.bootstrap) as client,
    ):
        until(lambda: records(client, f"warm-{topic}", PARTITIONS) == warm)
        time.sleep(KERNELS_S)
        os.kill(shadow.pid, signal.SIGSTOP)
        new_topic(source, topic)
        count = fill(source.bootstrap, topic, size)
        return measured(
            count * RECORD_BYTES,
            [shadow.pid],
            lambda: os.kill(shadow.pid, signal.SIGCONT),
            lambda: records(client, topic, PARTITIONS) == count,
        )


def by_replica(source: Kafka, second: Kafka, topic: str, size: int) -> Numbers:
    """A broker of the same cluster that becomes the second replica of each partition."""
    new_topic(source, topic)
    assign(source, topic, [1])
    with Client(source.bootstrap) as client:
        until(lambda: _nodes(client, topic, "replicas") == {1})
        count = fill(source.bootstrap, topic, size)
        return measured(
            count * RECORD_BYTES,
            [second.pid],
            lambda: assign(source, topic, [1, 2]),
            lambda: _nodes(client, topic, "isr") == {1, 2},
        )


def _nodes(client: Client, topic: str, member: str) -> set[int]:
    """The brokers that every partition has as replicas, or in sync."""
    found = client.metadata([topic]).topics[topic].partitions.values()
    return set.intersection(*(set(getattr(each, member)) for each in found))


def assign(kafka: Kafka, topic: str, brokers: list[int]) -> None:
    """Have Kafka's own tool reassign the partitions of a topic."""
    partitions = [
        {"topic": topic, "partition": each, "replicas": brokers} for each in range(PARTITIONS)
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as plan:
        json.dump({"version": 1, "partitions": partitions}, plan)
        plan.flush()
        arguments = ["--bootstrap-server", kafka.bootstrap, "--execute"]
        command = java(kafka.peer, REASSIGN, *arguments, "--reassignment-json-file", plan.name)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"reassignment refused: {done.stdout[-500:]}{done.stderr[-500:]}")


def by_mirror_maker(source: Kafka, target: Kafka, topic: str, size: int) -> Numbers:
    """MirrorMaker 2 into a Kafka of its own; counted from its first record on."""
    new_topic(source, topic)
    count = fill(source.bootstrap, topic, size)
    alias = f"from{time.monotonic_ns()}"
    with (
        Client(target.bootstrap) as client,
        mirror_maker(source.bootstrap, target.bootstrap, topic, alias=alias, tasks=2) as copy,
    ):
        until(lambda: records(client, copy.topic, PARTITIONS) > 0)
        first = records(client, copy.topic, PARTITIONS)
        pids = [copy.pid, target.pid]
        left = (count - first) * RECORD_BYTES
        return measured(
            left, pids, lambda: None, lambda: records(client, copy.topic, PARTITIONS) == count
        )


def follow(asked: Options, size: int) -> None:
    """The line of records that lie ready."""
    sides: dict[str, list[Numbers]] = {SHADOW: [], REPLICA: [], MIRROR_MAKER: []}
    with cluster() as (source, second, target):
        for run in range(asked.runs + 1):  # the first warms the JVMs
            found = {
                SHADOW: by_shadow(source, f"shadow-{run}", size),
                REPLICA: by_replica(source, second, f"replica-{run}", size),
                MIRROR_MAKER: by_mirror_maker(source, target, f"maker-{run}", size),
            }
            for name, numbers in found.items():
                if run:
                    sides[name].append(numbers)
            delete_topics(source)
    print(f"\n{size / 1e6:,.0f} MB of 1 kB records, {PARTITIONS} partitions")
    for name, taken in sides.items():
        said = []
        for figure in ("MB/s", "MB/CPU-s"):
            all_of = sorted(each[figure] for each in taken)
            middle = statistics.median(all_of)
            said.append(f"{middle:8,.0f} {figure} ({all_of[0]:,.0f}-{all_of[-1]:,.0f})")
        print(f"  {name:14} {'  '.join(said)}")
    ours = statistics.median(each["MB/CPU-s"] for each in sides[SHADOW])
    for name, reach in ((REPLICA, "1x"), (MIRROR_MAKER, "5x")):
        theirs = statistics.median(each["MB/CPU-s"] for each in sides[name])
        print(f"  {'ratio':14} {ours / theirs:.2f}x {name} per CPU second (reach: {reach})")


def delete_topics(kafka: Kafka) -> None:
    with Client(kafka.bootstrap) as client:
        mine = [name for name in client.metadata().topics if not name.startswith("_")]
        client.delete_topics(mine)


@contextmanager
def cluster() -> Iterator[tuple[Kafka, Kafka, Kafka]]:
    """The source, a second broker of its cluster, and a Kafka of its own."""
    flags = {"heap": "1g", "initial_heap": "1g", "flags": JVM_FLAGS, "settings": SETTINGS}
    with (
        tempfile.TemporaryDirectory() as base,
        Kafka(Path(base) / "source", **flags) as source,
        Kafka(Path(base) / "target", **flags) as target,
    ):
        second = source.another(Path(base) / "second")
        second.start()
        try:
            yield source, second, target
        finally:
            second.kill()


def latency(seconds: int) -> None:
    """The line of the live producer."""
    with (
        Kafka(settings=SETTINGS) as source,
        shadow_of(source.bootstrap, "live") as shadow,
    ):
        new_topic(source, "live")
        with Client(shadow.bootstrap) as client:
            until(
                lambda: (
                    records(client, "live", PARTITIONS) == 0 and "live" in client.metadata().topics
                )
            )
        seen: dict[str, list[float]] = {"the source": [], "the shadow": []}
        stopped = threading.Event()
        readers = [
            threading.Thread(target=_read_live, args=(address, delays, stopped))
            for address, delays in zip(
                (source.bootstrap, shadow.bootstrap), seen.values(), strict=True
            )
        ]
        for reader in readers:
            reader.start()
        time.sleep(3)
        _write_live(source.bootstrap, seconds)
        time.sleep(2)
        stopped.set()
        for reader in readers:
            reader.join()
    print("\na record each two milliseconds: from its create time until a consumer sees it")
    for name, delays in seen.items():
        delays.sort()
        middle, late = (delays[int(len(delays) * share)] for share in (0.5, 0.99))
        print(
            f"  at {name:12} {1000 * middle:6.1f} ms at the median, {1000 * late:6.1f} ms at p99 "
            f"({len(delays)} records)"
        )
    print("  (reach: 50 ms at p99)")


def _write_live(bootstrap: str, seconds: int) -> None:
    from confluent_kafka import Producer as LibrdkafkaProducer

    producer = LibrdkafkaProducer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": 1})
    start = time.perf_counter()
    for number in range(seconds * 500):
        producer.produce("live", bytes(RECORD_BYTES), partition=number % PARTITIONS)
        producer.poll(0)
        time.sleep(max(0.0, start + number / 500 - time.perf_counter()))
    producer.flush()


def _read_live(bootstrap: str, delays: list[float], stopped: threading.Event) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    clock = SystemClock()
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "live", "fetch.wait.max.ms": 500}
    )
    consumer.assign([TopicPartition("live", each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
    while not stopped.is_set():
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            delays.append((clock.now_ms() - message.timestamp()[1]) / 1000)
    consumer.close()


def idle(seconds: int) -> None:
    """The line of partitions in which nothing happens."""
    with (
        Kafka(settings=SETTINGS) as source,
        shadow_of(source.bootstrap, "idle") as shadow,
    ):
        with Client(source.bootstrap) as client, Client(shadow.bootstrap) as ours:
            client.create_topics({"idle": IDLE_PARTITIONS})
            until(lambda: len(_partitions(ours, "idle")) == IDLE_PARTITIONS)
        time.sleep(5)
        before = tree_cpu_s(shadow.pid)
        time.sleep(seconds)
        used = tree_cpu_s(shadow.pid) - before
    print(f"\n{IDLE_PARTITIONS} idle partitions: {used / seconds:.1%} of a core (reach: 5 %)")


def _partitions(client: Client, topic: str) -> set[int]:
    found = client.metadata().topics.get(topic)
    return set() if found is None else set(found.partitions)


def main() -> None:
    parser = parser_of("A shadow beside Kafka's replica and MirrorMaker 2")
    parser.add_argument("--line", choices=["follow", "latency", "idle"])
    given: argparse.Namespace = parser.parse_args()
    asked = options_of(given)
    require_peer()
    if given.line in (None, "follow"):
        follow(asked, QUICK_BYTES if asked.quick else BYTES)
    if given.line in (None, "latency"):
        latency(10 if asked.quick else 30)
    if given.line in (None, "idle"):
        idle(10 if asked.quick else 30)


if __name__ == "__main__":
    main()
