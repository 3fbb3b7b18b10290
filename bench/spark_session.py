"""The Spark of benchmarks: horolog's formats and Spark's own Kafka connector in one session."""

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from bench import spark_floor
from bench.harness import Numbers, Options, Row, in_turns, report
from bench.sides import HOROLOG, KAFKA, processes_below, records
from tools.peers.kafka import NoPeer, jars

from horolog.client import Client, Producer

PARTITIONS = 4
VALUE_BYTES = 100
T0_MS = 1_763_000_000_000
_CHUNK = 200_000


class Session(NamedTuple):
    """A session of two threads."""

    spark: Any
    connector_version: str

    def versions(self, part: str) -> dict[str, str]:
        """What is compared, for the table; `part` is "source" or "sink"."""
        return {HOROLOG: "this tree", KAFKA: f"Spark's Kafka {part} {self.connector_version}"}


def spark_with_kafka(name: str) -> Session:
    """Start a session; exit with status 2 if Spark's Kafka connector is not there."""
    try:
        connector = jars("spark")
    except NoPeer as missing:
        print(missing, file=sys.stderr)
        raise SystemExit(2) from None
    from horolog.spark import session

    spark = session(
        name,
        master="local[2]",
        **{"spark.jars": ",".join(map(str, connector)), "spark.driver.memory": "2g"},
    )
    spark_floor.register(spark)
    version = next(jar.stem for jar in connector if "sql-kafka" in jar.name).rpartition("-")[2]
    return Session(spark, version)


def in_memory(size: int) -> str | None:
    """A directory in memory for this many bytes; None, for the one on disk, if there is no room.

    A disk makes a job that syncs what it writes as slow as itself, and one that does not sync not.
    """
    meminfo = Path("/proc/meminfo").read_text()
    found = re.search(r"MemAvailable:\s+(\d+) kB", meminfo)
    room = min(int(found[1]) << 10 if found else 0, shutil.disk_usage("/dev/shm").free)
    return "/dev/shm" if size < room * 3 // 4 else None


def with_task_peak(work: Callable[[], Numbers]) -> Numbers:
    """What a call gives, and `task_mb`: the most memory that a Python worker of Spark had in it."""
    for pid in _workers():
        with suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is that from now on
    numbers = work()
    peaks = []
    for pid in _workers():
        with suppress(OSError):
            found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
            peaks.append(int(found[1]) / 1024 if found else 0.0)
    return {**numbers, "task_mb": max(peaks, default=0.0)}


def _workers() -> list[int]:
    found = []
    for pid in processes_below(os.getpid()):
        with suppress(OSError):
            if b"pyspark.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def timed(work: Callable[[], object], records: int) -> Numbers:
    """Seconds of a call, and million records a second."""
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "rows": records / seconds / 1e6}


def fill(bootstrap: str, topic: str, count: int, batch_bytes: int, span_ms: int) -> None:
    """Make a topic with this many records, whose times spread over so long."""
    with Client(bootstrap) as client:
        client.create_topics({topic: PARTITIONS}, configs={"retention.ms": "-1"})
        with Producer(client, batch_bytes=batch_bytes) as producer:
            for start in range(0, count, _CHUNK):
                numbers = range(start, min(start + _CHUNK, count))
                rows = {
                    "key": [b"key-%05d" % (number % 99_999) for number in numbers],
                    "value": [b"%012d" % number + bytes(VALUE_BYTES - 12) for number in numbers],
                    "timestamp_ms": [T0_MS + number * span_ms // count for number in numbers],
                }
                producer.send(topic, pa.table(rows))


@contextmanager
def filled(
    bootstrap: str, topic: str, expected: int, partitions: int = PARTITIONS
) -> Iterator[None]:
    """A topic that the block fills with at least this many offsets; it is deleted then.

    A commit of a transaction leaves a marker in each partition.
    """
    with Client(bootstrap) as client:
        client.create_topics({topic: partitions}, configs={"retention.ms": "-1"})
        yield
        found = records(client, topic, partitions)
        client.delete_topics([topic])
    if found < expected:
        raise SystemExit(f"{found} records of {expected}")


def read_topic(spark: Any, bootstrap: str, topic: str) -> Any:
    """A topic by Spark's Kafka source."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return reader.option("subscribe", topic).option("includeHeaders", "true").load()


def write_topic(rows: Any, bootstrap: str, topic: str) -> None:
    """Write such rows by Spark's Kafka sink."""
    writer = rows.select("key", "value", "headers", "timestamp", "partition").write
    writer = writer.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    writer.option("includeHeaders", "true").option("topic", topic).mode("append").save()


def compare_rows(
    work: str,
    calls: Mapping[str, Callable[[], Numbers]],
    versions: Mapping[str, str],
    asked: Options,
    reach: str,
    *,
    details: Sequence[str] = ("seconds",),
    cpu_of: Sequence[int] = (),
) -> None:
    """Take two calls that give `rows`, millions a second, in turns, and print their line.

    Where the processes of the brokers are given, the CPU of all processes is a line of its own,
    and the peak memory of tasks where the calls give it.
    """
    if asked.only in calls:
        calls = {asked.only: calls[asked.only]}
    taken = in_turns(calls, asked, cpu_of=cpu_of)
    report(Row(work, "rows", reach, details, "million/s"), taken, versions, asked)
    if cpu_of:
        report(Row(f"{work}, CPU", "cpu_s", "-", unit="s"), taken, versions, asked)
    if all("task_mb" in numbers for runs in taken.values() for numbers in runs):
        report(Row(f"{work}, memory", "task_mb", "-", unit="MB"), taken, versions, asked)
