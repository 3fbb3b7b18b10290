"""The jobs on files, and the load of a table beside Spark's own Kafka sink.

    python -m bench.jobs_files [--quick] [--runs N] [--work files|tables] [--gigabytes N]
        [--job index|convert] [--json FILE]

`index` and `convert` run over logs of one size and of a quarter of it: what a record costs, and the
memory of a task, must not grow. They run once more in one process, without Spark, over the quarter.
`bootstrap` loads a Parquet table into a broker, staging and sending included; Spark's side reads
the same table and writes it with its Kafka sink, value as JSON, in no order. All in one Spark on 2
threads, and in memory where there is room.
"""

import shutil
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bench.harness import Numbers, Options, options_of, parser_of
from bench.sides import HOROLOG, KAFKA, Side, horolog
from bench.spark_session import (
    T0_MS,
    VALUE_BYTES,
    compare_rows,
    filled,
    in_memory,
    spark_with_kafka,
    timed,
    with_task_peak,
)

from horolog import jobs
from horolog.clock import SystemClock
from horolog.config import TopicConfig
from horolog.record.column_writer import encode_batches
from horolog.record.scan import load_kernels
from horolog.storage.files import Files
from horolog.storage.logs.writer import LogWriter, new_segment
from horolog.storage.offline.converting import Conversion
from horolog.storage.segments.numbered import as_they_are
from horolog.storage.verify import Verification, find_target

PARTITIONS = 8
_SEGMENT_ROWS = 400_000
_RECORD_BYTES = 125


def fill(log_dir: Path, size: int) -> int:
    """Make a log directory of about this many bytes; how many records it has."""
    rows = max(1, size // _RECORD_BYTES // PARTITIONS)
    first = log_dir / "events-0"
    first.mkdir(parents=True)
    files, config = Files(), TopicConfig()
    for start in range(0, rows, _SEGMENT_ROWS):
        table = rows_of(start, min(rows, start + _SEGMENT_ROWS))
        data = b"".join(encode_batches(table, base_offset=start, batch_bytes=64 << 10))
        writer = LogWriter(files, str(first), new_segment(files, str(first), start, config, 0))
        writer.append(as_they_are(data, start), config)
        writer.finish()
    files.close()
    for number in range(1, PARTITIONS):
        shutil.copytree(first, log_dir / f"events-{number}")
    (log_dir / "meta.properties").write_text("version=1\ncluster.id=bench\nnode.id=1\n")
    return rows * PARTITIONS


def rows_of(start: int, end: int) -> pa.Table:
    """Records of these numbers."""
    numbers = pa.array(range(start, end), pa.int64())
    filling = pa.scalar("." * (VALUE_BYTES - 12))
    values = pc.binary_join_element_wise(
        pc.utf8_lpad(numbers.cast(pa.string()), 12, "0"), filling, ""
    )
    keys = pc.utf8_lpad(pc.subtract(numbers, start).cast(pa.string()), 9, "k")
    times = pc.add(numbers, T0_MS)
    return pa.table(
        {
            "key": keys.cast(pa.binary()),
            "value": values.cast(pa.binary()),
            "timestamp_ms": times,
        }
    )


def verified(spark: Any, log_dir: Path, records: int) -> Numbers:
    """By the job."""
    return timed(lambda: jobs.index(spark, log_dir), records)


def verified_here(log_dir: Path, records: int) -> Numbers:
    """In this process."""
    return timed(lambda: list(Verification.of(log_dir).steps()), records)


def converted(spark: Any, log_dir: Path, records: int) -> Numbers:
    """By the job, there and back."""

    def convert() -> None:
        for to in ("v1", "v2"):
            with tempfile.TemporaryDirectory(prefix="convert-") as state:
                done = jobs.convert(spark, log_dir, to=to, state=f"{state}/state")
            if not done.is_ok or done.records != records:
                raise SystemExit(f"{done.records} records converted of {records}: {done.refused}")

    return timed(convert, 2 * records)


def converted_here(log_dir: Path, records: int) -> Numbers:
    """In this process, there and back."""

    def convert() -> None:
        for magic in (1, 2):
            work = Conversion(find_target(log_dir), magic, SystemClock().now_ms())
            list(work.steps())

    return timed(convert, 2 * records)


def bootstrapped(spark: Any, table: Path, side: Side, records: int) -> Numbers:
    """Load the table with the job."""
    with (
        tempfile.TemporaryDirectory(prefix="bootstrap-") as state,
        filled(side.bootstrap, "loaded", records, PARTITIONS),
    ):
        places = {"table": table, "target": side.bootstrap, "state": f"{state}/state"}
        load = partial(jobs.bootstrap, spark, topic="loaded", time="at", key="id", **places)
        return timed(load, records)


def sunk(spark: Any, table: Path, side: Side, records: int) -> Numbers:
    """Load the table with Spark's own sink."""

    def load() -> None:
        rows = spark.read.parquet(str(table))
        rows.selectExpr("cast(id as string) key", "to_json(struct(*)) value").write.format(
            "kafka"
        ).option("kafka.bootstrap.servers", side.bootstrap).option("topic", "sunk").mode(
            "append"
        ).save()

    with filled(side.bootstrap, "sunk", records, PARTITIONS):
        return timed(load, records)


def on_files(spark: Any, base: Path, asked: Options, size: int, only: str | None) -> None:
    """The lines of `index` and `convert`."""
    load_kernels()  # as tasks do, and the commands for logs that are not small
    logs = {}
    for factor in (1, 4):
        logs[factor] = base / f"log-{factor}"
        logs[factor].mkdir()
    counts = {factor: fill(path, size * factor // 4) for factor, path in logs.items()}
    for name, job, here in (
        ("index", verified, verified_here),
        ("convert", converted, converted_here),
    ):
        if only not in (None, name):
            continue
        growth = {
            "all records": partial(with_task_peak, partial(job, spark, logs[4], counts[4])),
            "a quarter": partial(with_task_peak, partial(job, spark, logs[1], counts[1])),
        }
        compare_rows(f"{name}: all of the log, and a quarter", growth, _here(growth), asked, "1x")
        alone = {
            "with Spark": partial(job, spark, logs[1], counts[1]),
            "without": partial(here, logs[1], counts[1]),
        }
        compare_rows(f"{name}: two threads of Spark, one process", alone, _here(alone), asked, "-")


def _here(calls: Iterable[str]) -> dict[str, str]:
    return dict.fromkeys(calls, "this tree")


def on_tables(spark: Any, base: Path, asked: Options, versions: dict[str, str]) -> None:
    """The line of `bootstrap`."""
    records = 500_000 if asked.quick else 5_000_000
    table = base / "table.parquet"
    numbers = range(records)
    columns = {
        "id": pa.array(numbers, pa.int64()),
        "at": pa.array([(T0_MS + each * 7_919 % records) * 1_000 for each in numbers]).cast(
            pa.timestamp("us", "UTC")
        ),
        "text": pa.array(["x" * VALUE_BYTES] * records),
    }
    pq.write_table(pa.table(columns), table, row_group_size=100_000)
    (base / "broker").mkdir()
    with horolog(directory=base / "broker") as side:
        calls = {
            HOROLOG: partial(bootstrapped, spark, table, side, records),
            KAFKA: partial(sunk, spark, table, side, records),
        }
        compare_rows(
            "bootstrap: a table into a topic", calls, versions, asked, "-", cpu_of=[side.pid]
        )


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__.splitlines()[0])
    parser.add_argument("--work", choices=["files", "tables"], help="only this")
    parser.add_argument("--job", choices=["index", "convert"], help="only this one on files")
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of the log (--quick: 1/8)")
    arguments = parser.parse_args()
    asked = options_of(arguments)
    size = int(arguments.gigabytes * (1 << 30)) // (8 if asked.quick else 1)
    session = spark_with_kafka("jobs_files")
    directory = in_memory(4 * size)
    print(f"{size / 1e6:,.0f} MB, in {directory or 'a directory on disk'}")
    with tempfile.TemporaryDirectory(prefix="jobs-files-", dir=directory) as base:
        if arguments.work != "files":
            on_tables(session.spark, Path(base), asked, session.versions("sink"))
        if arguments.work != "tables":
            on_files(session.spark, Path(base), asked, size, arguments.job)
    session.spark.stop()


if __name__ == "__main__":
    main()
