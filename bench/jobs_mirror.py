"""The job mirror beside Spark's own Kafka source and sink, which copy the same topic.

    python -m bench.jobs_mirror [--quick] [--runs N] [--only KIND] [--json FILE]
        [--batches NAME] [--line default|as-is|directory|mirror-maker|growth] [--gigabytes N]

Both sides run in one Spark on two threads and copy a topic of four partitions, to a broker of the
same kind: horolog, and Apache Kafka. Its batches are as large as a Java producer makes them by
default (16 KiB), and as large as Arrow clients do (512 KiB). Spark's side reads and writes every
record with key, value, headers and timestamp; the mirror keeps its state on disk. It joins small
batches unless it is asked not to (`batch_bytes=0`), which is measured, too. A line of its own
compares the mirror into a log directory with that into a broker. `--line growth` copies a topic
and one of a quarter of its records: the cost of a record, and the memory of a task, have to stay.
`--only` chooses the brokers.

Between two Apache Kafkas MirrorMaker 2 is a peer, too, with two tasks and its defaults. It is a
service: of its time only that from the first records at the target to the last is counted, and of
the records only those. The mirror's time is that of the whole job.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness import Numbers, Options, options
from bench.sides import HOROLOG, KAFKA, Side, horolog, records
from bench.spark_session import (
    PARTITIONS,
    VALUE_BYTES,
    compare_rows,
    fill,
    filled,
    read_topic,
    spark_with_kafka,
    timed,
    with_task_peak,
    write_topic,
)
from tools.peers.kafka import Kafka
from tools.peers.mirror_maker import has_mirror_maker, mirror_maker, mirror_maker_version

from horolog.client import Client
from horolog.jobs.mirroring import mirror

TO_DIRECTORY = "into a directory"
BATCHES = {"16 KiB": 16 << 10, "512 KiB": 512 << 10}
AS_THEY_ARE = 0
MIRROR_MAKER = "MirrorMaker 2"
MIRROR_MAKER_TIMEOUT_S = 600.0
SPARK_THREADS = 2
BYTES, QUICK_BYTES = 1 << 30, 64 << 20  # of values


@dataclass(frozen=True, slots=True)
class Lines:
    """Which lines of the table are asked for; None is all."""

    batches: str | None
    line: str | None
    size: int | None
    """Bytes of values."""

    @classmethod
    def parse(cls, arguments: list[str]) -> "tuple[Lines, list[str]]":
        """What the command line asks for, and the rest of it."""
        parser = argparse.ArgumentParser(add_help=False)
        parser.add_argument("--batches", choices=BATCHES)
        named = ["default", "as-is", "directory", "mirror-maker", "growth"]
        parser.add_argument("--line", choices=named)
        parser.add_argument("--gigabytes", type=float)
        asked, rest = parser.parse_known_args(arguments)
        size = None if asked.gigabytes is None else int(asked.gigabytes * (1 << 30))
        return cls(asked.batches, asked.line, size), rest

    def has(self, line: str) -> bool:
        """Whether a line is asked for."""
        return self.line in (None, line)


def copied(job: Callable[[], Any]) -> None:
    """Run the job, without an error."""
    done = job()
    if done.errors:
        raise SystemExit(done.errors[0])


def by_mirror(
    spark: Any, source: str, target: str, topic: str, count: int, batch_bytes: int | None = None
) -> Numbers:
    """Copy the topic with the job; small batches are joined by default."""
    with tempfile.TemporaryDirectory(prefix="mirror-") as state, filled(target, topic, count):
        places = {"source": source, "target": target, "state": f"{state}/state"}
        job = partial(mirror, spark, topics=topic, batch_bytes=batch_bytes, **places)
        return timed(partial(copied, job), count)


def into_directory(spark: Any, source: str, topic: str, count: int) -> Numbers:
    """Copy the topic into files."""
    with tempfile.TemporaryDirectory(prefix="mirror-") as path:
        places = {"source": source, "target": Path(path, "copy"), "state": Path(path, "state")}
        job = partial(mirror, spark, topics=topic, **places)
        return timed(partial(copied, job), count)


def by_spark(spark: Any, source: str, target: str, topic: str, count: int) -> Numbers:
    """Copy the topic with Spark's Kafka source and sink."""
    with filled(target, topic, count):
        return timed(lambda: write_topic(read_topic(spark, source, topic), target, topic), count)


def by_mirror_maker(source: str, target: str, topic: str, count: int) -> Numbers:
    """Copy the topic with MirrorMaker 2."""
    alias = f"run{time.monotonic_ns()}"
    with (
        Client(target) as client,
        mirror_maker(source, target, topic, alias=alias, tasks=SPARK_THREADS) as copy,
    ):
        until = time.monotonic() + MIRROR_MAKER_TIMEOUT_S
        first, start, found = 0, 0.0, 0
        while found < count:
            if time.monotonic() > until:
                raise SystemExit(f"MirrorMaker 2 mirrored {found} records of {count}")
            time.sleep(0.02)
            now, found = time.perf_counter(), records(client, copy.topic, PARTITIONS)
            if found and not first:
                first, start = found, now
        seconds = time.perf_counter() - start
    with Client(target) as client:
        client.delete_topics([copy.topic])
    if first == count:
        raise SystemExit("MirrorMaker 2 was done before it was seen: give it more data")
    return {"seconds": seconds, "rows": (count - first) / seconds / 1e6}


def rows(
    spark: Any,
    kind: str,
    brokers: tuple[Side | Kafka, Side | Kafka],
    asked: Options,
    lines: Lines,
    versions: dict[str, str],
) -> None:
    """The lines of one kind of broker."""
    asked = replace(asked, only=None)  # of the brokers; both copy
    source, target = (each.bootstrap for each in brokers)
    size = lines.size or (QUICK_BYTES if asked.quick else BYTES)
    count = size // VALUE_BYTES
    if lines.has("growth") and kind == HOROLOG:
        growth(spark, source, target, asked, count)
    if lines.line == "growth":
        return
    for name, batch_bytes in BATCHES.items():
        work = f"{kind}: a topic of {name} batches copied"
        if lines.batches is not None and lines.batches != name:
            continue
        topic = f"mirror-{batch_bytes}"
        fill(source, topic, count, batch_bytes, count)
        ours = partial(by_mirror, spark, source, target, topic, count)
        theirs = partial(by_spark, spark, source, target, topic, count)
        pids = [each.pid for each in brokers]
        sides = {HOROLOG: ours, KAFKA: theirs}
        if lines.has("default"):
            compare_rows(work, sides, versions, asked, "5x", cpu_of=pids)
        if lines.has("as-is") and batch_bytes != max(BATCHES.values()):
            sides[HOROLOG] = partial(ours, batch_bytes=AS_THEY_ARE)
            compare_rows(f"{work} as they are", sides, versions, asked, "5x", cpu_of=pids)
        if lines.has("mirror-maker") and kind == KAFKA and has_mirror_maker():
            maker = partial(by_mirror_maker, source, target, topic, count)
            peers = {HOROLOG: "this tree", MIRROR_MAKER: mirror_maker_version()}
            both = {HOROLOG: ours, MIRROR_MAKER: maker}
            compare_rows(f"{work}, MirrorMaker 2", both, peers, asked, "5x")
        if lines.has("directory") and kind == HOROLOG:
            files = {TO_DIRECTORY: partial(into_directory, spark, source, topic, count)}
            names = dict.fromkeys((TO_DIRECTORY, "into a broker"), "this tree")
            compare_rows(work, files | {"into a broker": ours}, names, asked, "-")
        with Client(source) as client:
            client.delete_topics([topic])


def growth(spark: Any, source: str, target: str, asked: Options, count: int) -> None:
    """The line of the same job on more data."""
    sides = {}
    for name, some in {"a quarter": count // 4, "all records": count}.items():
        topic = f"growing-{some}"
        fill(source, topic, some, max(BATCHES.values()), some)
        work = partial(by_mirror, spark, source, target, topic, some)
        sides[name] = partial(with_task_peak, work)
    versions = dict.fromkeys(sides, "this tree")
    compare_rows("mirror, a quarter of the records", sides, versions, asked, "1x")


def main() -> None:
    """Print the table."""
    lines, rest = Lines.parse(sys.argv[1:])
    sys.argv[1:] = rest
    asked = options(__doc__.splitlines()[0])
    session = spark_with_kafka("jobs_mirror")
    versions = session.versions("source and sink")
    with tempfile.TemporaryDirectory(prefix="jobs-mirror-") as base:
        ours, theirs = Path(base) / "source", Path(base) / "target"
        for each in (ours, theirs):
            each.mkdir()
        if asked.only in (None, HOROLOG):
            with horolog(directory=ours) as source, horolog(directory=theirs) as target:
                rows(session.spark, HOROLOG, (source, target), asked, lines, versions)
        for each in (ours, theirs):
            shutil.rmtree(each)
            each.mkdir()
        if asked.only in (None, KAFKA):
            with Kafka(ours) as source_kafka, Kafka(theirs) as target_kafka:
                brokers = source_kafka, target_kafka
                rows(session.spark, KAFKA, brokers, asked, lines, versions)
    session.spark.stop()


if __name__ == "__main__":
    main()
