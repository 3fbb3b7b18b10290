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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness import Numbers, Options, options_of, parser_of
from bench.sides import HOROLOG, KAFKA, Side, horolog
from bench.spark_session import (
    Session,
    compare_rows,
    fill,
    filled,
    in_memory,
    read_topic,
    spark_with_kafka,
    timed,
    with_task_peak,
    write_topic,
)

from horolog.client import Client
from horolog.jobs.archives.archiving import archive
from horolog.jobs.archives.restoring import restore

SPAN_MS = 10 * 3_600_000
BATCHES = {"large": 512 << 10, "small": 16 << 10}
_RECORD_BYTES = 125
_numbers = itertools.count()


@contextmanager
def fresh(base: Path) -> Iterator[Path]:
    """A directory that is removed afterwards."""
    path = base / f"run-{next(_numbers)}"
    path.mkdir()
    yield path
    shutil.rmtree(path)


def checked(job: Callable[[], Any], count: int) -> None:
    """Run a job on this many records."""
    done = job()
    if done.records != count or done.refused:
        raise SystemExit(f"{done.records} records of {count}: {done.refused}")


def by_archive(spark: Any, source: str, topic: str, base: Path, count: int) -> Numbers:
    """Archive the topic with the job."""
    with fresh(base) as path:
        state, to = path / "state", path / "lake"
        job = partial(archive, spark, source=source, topics=topic, archive=to, state=state)
        return timed(partial(checked, job, count), count)


def by_parquet(spark: Any, source: str, topic: str, base: Path, count: int) -> Numbers:
    """Write the topic as Parquet with Spark alone."""
    with fresh(base) as path:
        return timed(partial(write_parquet, spark, source, topic, path / "lake"), count)


def write_parquet(spark: Any, source: str, topic: str, path: Path) -> None:
    """The topic by date and hour."""
    by_hour = read_topic(spark, source, topic).selectExpr(
        "*", "date(timestamp) as date", "lpad(hour(timestamp), 2, '0') as hour"
    )
    by_hour.write.partitionBy("date", "hour").option("compression", "zstd").parquet(str(path))


def by_restore(spark: Any, lake: Path, base: Path, count: int) -> Numbers:
    """Restore the archive with the job."""
    with fresh(base) as path:
        log, state = path / "log", path / "state"
        job = partial(restore, spark, archive=lake, target=log, state=state)
        return timed(partial(checked, job, count), count)


def by_sink(spark: Any, lake: Path, target: str, count: int) -> Numbers:
    """Write Spark's own Parquet files to a topic with its Kafka sink."""
    topic = f"back-{next(_numbers)}"
    with filled(target, topic, count):
        return timed(lambda: write_topic(spark.read.parquet(str(lake)), target, topic), count)


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
        fill(source.bootstrap, topic, count, batch_bytes, SPAN_MS)
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
            fill(source.bootstrap, topic, records, BATCHES["large"], SPAN_MS)
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
