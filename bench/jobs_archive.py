"""The jobs archive and restore beside Spark's own Kafka source, Parquet and Kafka sink.

    python -m bench.jobs_archive [--quick] [--runs N] [--json FILE]

Both sides run in one Spark on two threads, from one horolog broker with a topic of four partitions
whose records spread over ten hours. Archive: to Parquet by date and hour with headers, against
`format("kafka")` written with `partitionBy`; ours writes the headers of batches, checksums and a
manifest besides. Restore: that archive to a log directory, read back and compared, against Spark's
own way back, `read.parquet` to the Kafka sink of a second broker. The last lines take a quarter and
a half of the records: the cost of a record has to stay the same.
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
from bench.harness import Numbers, Options, options
from bench.sides import HOROLOG, KAFKA, Side, horolog
from bench.spark_session import compare_rows, spark_with_kafka

from horolog.client import Client, Producer
from horolog.jobs.archives.archiving import archive
from horolog.jobs.archives.restoring import restore

PARTITIONS = 4
VALUE_BYTES = 100
HOURS = 10
T0_MS = 1_763_000_000_000
HOUR_MS = 3_600_000
_CHUNK = 200_000
_numbers = itertools.count()


def fill(bootstrap: str, topic: str, count: int) -> None:
    """Make a topic with so many records, in batches as Arrow clients make them."""
    with Client(bootstrap) as client:
        client.create_topics({topic: PARTITIONS}, configs={"retention.ms": "-1"})
        with Producer(client) as producer:
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


def lines(
    spark: Any, source: Side, target: Side, base: Path, asked: Options, versions: dict[str, str]
) -> None:
    """The lines of the table."""
    count = (1 if asked.quick else 8) * 1_000_000
    topics = {part: count // part for part in (1, 2, 4)}
    for part, records in topics.items():
        fill(source.bootstrap, f"part-{part}", records)
    cpu_of = [source.pid, target.pid]
    ours = partial(by_archive, spark, source.bootstrap, "part-1", base, count)
    theirs = partial(by_parquet, spark, source.bootstrap, "part-1", base, count)
    both = {HOROLOG: ours, KAFKA: theirs}
    compare_rows("a topic to Parquet by hour", both, versions, asked, "1x", cpu_of=cpu_of)
    lake, plain = base / "lake", base / "plain"
    archive(spark, source=source.bootstrap, topics="part-1", archive=lake, state=base / "state")
    write_parquet(spark, source.bootstrap, "part-1", plain)
    both = {
        HOROLOG: partial(by_restore, spark, lake, base, count),
        KAFKA: partial(by_sink, spark, plain, target.bootstrap, count),
    }
    compare_rows("Parquet back to a log", both, versions, asked, "5x", cpu_of=cpu_of)
    for part in (2, 4):
        less = partial(by_archive, spark, source.bootstrap, f"part-{part}", base, topics[part])
        name = f"1/{part} of the records"
        sides = dict.fromkeys((name, "all records"), "this tree")
        both = {name: less, "all records": ours}
        compare_rows(f"archive, {name}", both, sides, asked, "-")


def main() -> None:
    """Print the table."""
    asked = options(__doc__.splitlines()[0])
    session = spark_with_kafka("jobs_archive")
    with tempfile.TemporaryDirectory(prefix="jobs-archive-") as name:
        base = Path(name)
        brokers = base / "source", base / "target"
        for each in brokers:
            each.mkdir()
        with horolog(directory=brokers[0]) as source, horolog(directory=brokers[1]) as target:
            versions = session.versions("source, Parquet and sink")
            lines(session.spark, source, target, base, asked, versions)
    session.spark.stop()


if __name__ == "__main__":
    main()
