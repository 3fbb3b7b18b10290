"""The job mirror beside Spark's own Kafka source and sink, which copy the same topic.

    python -m bench.jobs_mirror [--quick] [--runs N] [--only KIND] [--json FILE]

Both sides run in one Spark on two threads and copy a topic of four partitions, to a broker of the
same kind: horolog, and Apache Kafka. Its batches are as large as a Java producer makes them by
default (16 KiB), and as large as Arrow clients do (512 KiB). Spark's side reads and writes every
record with key, value, headers and timestamp; the mirror keeps its state on disk. A line of its own
compares the mirror into a log directory with that into a broker.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from bench.harness import Numbers, Options, options
from bench.sides import HOROLOG, KAFKA, Side, horolog
from bench.spark_session import compare_rows, spark_with_kafka
from tools.peers.kafka import Kafka

from horolog.client import Client, Producer
from horolog.jobs.mirroring import mirror

PARTITIONS = 4
VALUE_BYTES = 100
T0_MS = 1_763_000_000_000
TO_DIRECTORY = "into a directory"
BATCHES = {"16 KiB": 16 << 10, "512 KiB": 512 << 10}
_CHUNK = 200_000


def fill(bootstrap: str, topic: str, count: int, batch_bytes: int) -> None:
    """Make a topic with so many records."""
    with Client(bootstrap) as client:
        client.create_topics({topic: PARTITIONS}, configs={"retention.ms": "-1"})
        with Producer(client, batch_bytes=batch_bytes) as producer:
            for start in range(0, count, _CHUNK):
                numbers = range(start, min(start + _CHUNK, count))
                rows = {
                    "key": [b"key-%05d" % (number % 99_999) for number in numbers],
                    "value": [b"%012d" % number + bytes(VALUE_BYTES - 12) for number in numbers],
                    "timestamp_ms": [T0_MS + number for number in numbers],
                }
                producer.send(topic, pa.table(rows))


@contextmanager
def copy_of(bootstrap: str, topic: str, expected: int) -> Iterator[None]:
    """A topic at the target, checked and deleted afterwards."""
    with Client(bootstrap) as client:
        client.create_topics({topic: PARTITIONS}, configs={"retention.ms": "-1"})
        yield
        ends = client.list_offsets({(topic, partition): -1 for partition in range(PARTITIONS)})
        client.delete_topics([topic])
    found = sum(0 if end is None else end.offset for end in ends.values())
    if found != expected:
        raise SystemExit(f"{found} records of {expected}")


def by_mirror(spark: Any, source: str, target: str, topic: str, count: int) -> Numbers:
    """Copy the topic with the job."""
    with tempfile.TemporaryDirectory(prefix="mirror-") as state, copy_of(target, topic, count):
        start = time.perf_counter()
        done = mirror(spark, source=source, target=target, topics=topic, state=f"{state}/state")
        seconds = time.perf_counter() - start
        if done.errors:
            raise SystemExit(done.errors[0])
    return {"seconds": seconds, "rows": count / seconds / 1e6}


def into_directory(spark: Any, source: str, topic: str, count: int) -> Numbers:
    """Copy the topic into files."""
    path = Path(tempfile.mkdtemp(prefix="mirror-"))
    try:
        start = time.perf_counter()
        target, state = path / "copy", path / "state"
        done = mirror(spark, source=source, target=target, topics=topic, state=state)
        seconds = time.perf_counter() - start
        if done.errors:
            raise SystemExit(done.errors[0])
    finally:
        shutil.rmtree(path)
    return {"seconds": seconds, "rows": count / seconds / 1e6}


def by_spark(spark: Any, source: str, target: str, topic: str, count: int) -> Numbers:
    """Copy the topic with Spark's Kafka source and sink."""
    with copy_of(target, topic, count):
        start = time.perf_counter()
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", source)
        rows = reader.option("subscribe", topic).option("includeHeaders", "true").load()
        writer = rows.select("key", "value", "headers", "timestamp", "partition").write
        writer = writer.format("kafka").option("kafka.bootstrap.servers", target)
        writer.option("includeHeaders", "true").option("topic", topic).mode("append").save()
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "rows": count / seconds / 1e6}


def rows(
    spark: Any,
    kind: str,
    brokers: tuple[Side | Kafka, Side | Kafka],
    asked: Options,
    versions: dict[str, str],
) -> None:
    """The lines of one kind of broker."""
    source, target = (each.bootstrap for each in brokers)
    size = (200 << 20) if asked.quick else (1 << 30)
    count = size // VALUE_BYTES
    for name, batch_bytes in BATCHES.items():
        work = f"{kind}: a topic of {name} batches copied"
        if asked.only is not None and asked.only not in work:
            continue
        topic = f"mirror-{batch_bytes}"
        fill(source, topic, count, batch_bytes)
        ours = partial(by_mirror, spark, source, target, topic, count)
        theirs = partial(by_spark, spark, source, target, topic, count)
        compare_rows(
            work,
            {HOROLOG: ours, KAFKA: theirs},
            versions,
            asked,
            "5x",
            cpu_of=[each.pid for each in brokers],
        )
        if kind == HOROLOG:
            files = {TO_DIRECTORY: partial(into_directory, spark, source, topic, count)}
            sides = dict.fromkeys((TO_DIRECTORY, "into a broker"), "this tree")
            compare_rows(work, files | {"into a broker": ours}, sides, asked, "-")
        with Client(source) as client:
            client.delete_topics([topic])


def main() -> None:
    """Print the table."""
    asked = options(__doc__.splitlines()[0])
    session = spark_with_kafka("jobs_mirror")
    versions = session.versions("source and sink")
    with tempfile.TemporaryDirectory(prefix="jobs-mirror-") as base:
        ours, theirs = Path(base) / "source", Path(base) / "target"
        for each in (ours, theirs):
            each.mkdir()
        with horolog(directory=ours) as source, horolog(directory=theirs) as target:
            rows(session.spark, HOROLOG, (source, target), asked, versions)
        for each in (ours, theirs):
            shutil.rmtree(each)
            each.mkdir()
        with Kafka(ours) as source_kafka, Kafka(theirs) as target_kafka:
            rows(session.spark, KAFKA, (source_kafka, target_kafka), asked, versions)
    session.spark.stop()


if __name__ == "__main__":
    main()
