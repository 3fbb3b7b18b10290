"""The jobs archive and restore beside Spark's own Kafka source, Parquet and Kafka sink.

    python -m bench.jobs_archive [--quick] [--runs N] [--gigabytes N] [--batches large|small]
        [--only horolog] [--json FILE]

Both sides run in one Spark on two threads, from one horolog broker with a topic of four partitions
whose records spread over ten hours. Archive: to Parquet by date and hour with headers, against
`format("kafka")` written with `partitionBy`; ours writes the headers of batches, checksums and a
manifest besides. Restore: that archive to a log directory, synced, read back and compared, against
Spark's own way back, `read.parquet` to the Kafka sink of a second broker, which syncs nothing.
Files are in memory where there is room, since a disk would be all that is measured.

Batches are as large as our client makes them, or small, as a Java producer makes them by default.
The last lines take a quarter of the records: the cost of a record, and the memory of a task, have
to stay.
"""

import itertools
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from bench.harness import Numbers, Options, options_of, parser_of
from bench.sides import HOROLOG, KAFKA, Side, horolog
from bench.spark_session import Session, compare_rows, in_memory, spark_with_kafka, with_task_peak

from horolog.client import Client, Producer
from horolog.jobs.archives.archiving import archive
from horolog.jobs.archives.restoring import restore

PARTITIONS = 4
VALUE_BYTES = 100
HOURS = 10
T0_MS = 1_763_000_000_000
HOUR_MS = 3_600_000
BATCHES = {"large": 512 << 10, "small": 16 << 10}
_CHUNK = 200_000
_RECORD_BYTES = 125
_numbers = itertools.count()


def fill(bootstrap: str, topic: str, count: int, batch_bytes: int) -> None:
    """Make a topic with this many records."""
    with Client(bootstrap) as client:
        client.create_topics({topic: PARTITIONS}, configs={"retention.ms": "-1"})
        with Producer(client, batch_bytes=batch_bytes) as producer:
            for start in range(0, count, _CHUNK):
                numbers = range(start, min(start + _CHUNK, count))
                rows = {
                    "key": [b"key-%05d" % (number % 99_999) for number in numbers],
                    "value": [b"%012d" % number + bytes(VALUE_BYTES - 12) for number in numbers],
                    "timestamp_ms": [
                        T0_MS + number * HOURS * HOUR_MS // count for number in numbers
                    ],
                }
                producer.send(topic, pa.table(rows))


@contextmanager
def fresh(base: Path) -> Iterator[Path]:
    """A directory that is removed afterwards."""
    path = base / f"run-{next(_numbers)}"
    path.mkdir()
    yield path
    shutil.rmtree(path)


def by_archive(spark: Any, source: str, topic: str, base: Path, count: int) -> Numbers:
    """Archive the topic with the job."""
    with fresh(base) as path:
        start = time.perf_counter()
        state, to = path / "state", path / "lake"
        done = archive(spark, source=source, topics=topic, archive=to, state=state)
        seconds = time.perf_counter() - start
    if done.records != count or done.refused:
        raise SystemExit(f"{done.records} records of {count}: {done.refused}")
    return {"seconds": seconds, "rows": count / seconds / 1e6}


def by_parquet(spark: Any, source: str, topic: str, base: Path, count: int) -> Numbers:
    """Write the topic as Parquet with Spark alone."""
    with fresh(base) as path:
        start = time.perf_counter()
        write_parquet(spark, source, topic, path / "lake")
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "rows": count / seconds / 1e6}


def write_parquet(spark: Any, source: str, topic: str, path: Path) -> None:
    """The topic by date and hour."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", source)
    rows = reader.option("subscribe", topic).option("includeHeaders", "true").load()
    by_hour = rows.selectExpr(
        "*", "date(timestamp) as date", "lpad(hour(timestamp), 2, '0') as hour"
    )
    by_hour.write.partitionBy("date", "hour").option("compression", "zstd").parquet(str(path))


def by_restore(spark: Any, lake: Path, base: Path, count: int) -> Numbers:
    """Restore the archive with the job."""
    with fresh(base) as path:
        start = time.perf_counter()
        done = restore(spark, archive=lake, target=path / "log", state=path / "state")
        seconds = time.perf_counter() - start
    if done.records != count or done.refused:
        raise SystemExit(f"{done.records} records of {count}: {done.refused}")
    return {"seconds": seconds, "rows": count / seconds / 1e6}


def by_sink(spark: Any, lake: Path, target: str, count: int) -> Numbers:
    """Write Spark's own Parquet files to a topic with its Kafka sink."""
    topic = f"back-{next(_numbers)}"
    with Client(target) as client:
        client.create_topics({topic: PARTITIONS}, configs={"retention.ms": "-1"})
        start = time.perf_counter()
        rows = spark.read.parquet(str(lake)).select(
            "key", "value", "headers", "timestamp", "partition"
        )
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", target)
        writer.option("includeHeaders", "true").option("topic", topic).mode("append").save()
        seconds = time.perf_counter() - start
        client.delete_topics([topic])
    return {"seconds": seconds, "rows": count / seconds / 1e6}


def beside_spark(
    session: Session,
    source: Side,
    target: Side,
    base: Path,
    asked: Options,
    count: int,
    batches: dict[str, int],
) -> None:
    """The lines with a peer."""
    spark, versions = session.spark, session.versions("source, Parquet and sink")
    cpu_of = [source.pid, target.pid]
    for name, batch_bytes in batches.items():
        topic = f"topic-{batch_bytes}"
        fill(source.bootstrap, topic, count, batch_bytes)
        both = {
            HOROLOG: partial(by_archive, spark, source.bootstrap, topic, base, count),
            KAFKA: partial(by_parquet, spark, source.bootstrap, topic, base, count),
        }
        compare_rows(f"{name} batches: to Parquet", both, versions, asked, "5x", cpu_of=cpu_of)
        with fresh(base) as lakes:
            lake, plain = lakes / "lake", lakes / "plain"
            archive(
                spark, source=source.bootstrap, topics=topic, archive=lake, state=lakes / "state"
            )
            write_parquet(spark, source.bootstrap, topic, plain)
            both = {
                HOROLOG: partial(by_restore, spark, lake, base, count),
                KAFKA: partial(by_sink, spark, plain, target.bootstrap, count),
            }
            compare_rows(
                f"{name} batches: back to a log", both, versions, asked, "5x", cpu_of=cpu_of
            )
        with Client(source.bootstrap) as client:
            client.delete_topics([topic])


def growth(spark: Any, source: Side, base: Path, asked: Options, count: int) -> None:
    """The lines of the same jobs on more data."""
    counts = {"a quarter": count // 4, "all records": count}
    archives, restores = {}, {}
    with fresh(base) as lakes:
        for number, (name, records) in enumerate(counts.items()):
            topic, lake = f"part-{number}", lakes / f"lake-{number}"
            fill(source.bootstrap, topic, records, BATCHES["large"])
            state = lakes / f"state-{number}"
            archive(spark, source=source.bootstrap, topics=topic, archive=lake, state=state)
            work = partial(by_archive, spark, source.bootstrap, topic, base, records)
            archives[name] = partial(with_task_peak, work)
            work = partial(by_restore, spark, lake, base, records)
            restores[name] = partial(with_task_peak, work)
        sides = dict.fromkeys(counts, "this tree")
        compare_rows("archive, a quarter of the records", archives, sides, asked, "1x")
        compare_rows("restore, a quarter of the records", restores, sides, asked, "1x")


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of the log (--quick: 1/8)")
    parser.add_argument("--batches", choices=[*BATCHES], help="only these, beside Spark")
    arguments = parser.parse_args()
    batches = {arguments.batches: BATCHES[arguments.batches]} if arguments.batches else BATCHES
    asked = options_of(arguments)
    size = int(arguments.gigabytes * (1 << 30)) // (8 if asked.quick else 1)
    count = size // _RECORD_BYTES
    session = spark_with_kafka("jobs_archive")
    directory = in_memory((4 if asked.only else 6) * size)
    print(f"{count:,} records, {size / 1e6:,.0f} MB, in {directory or 'a directory on disk'}")
    with tempfile.TemporaryDirectory(prefix="jobs-archive-", dir=directory) as name:
        base = Path(name)
        brokers = base / "source", base / "target"
        for each in brokers:
            each.mkdir()
        with horolog(directory=brokers[0]) as source, horolog(directory=brokers[1]) as target:
            if asked.only is None:
                beside_spark(session, source, target, base, asked, count, batches)
            if asked.only != KAFKA:
                growth(session.spark, source, base, asked, count)
    session.spark.stop()


if __name__ == "__main__":
    main()
