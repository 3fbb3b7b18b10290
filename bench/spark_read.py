"""Spark reading a log: format "horolog", from a broker and from files, beside Spark's Kafka source.

    python -m bench.spark_read [--quick] [--runs N] [--json FILE]

Both sides run in one Spark on two threads, read the same topic of one horolog broker in
equally many tasks, and end in the noop sink (`spark_stream` has streams). A row of its own is
the read of one hundredth of the time span: its seconds and its bytes beside those of a full scan.
"""

import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness import Numbers, Options, options
from bench.sides import HOROLOG, KAFKA, horolog
from bench.spark_session import compare_rows, spark_with_kafka, timed

from horolog.record.batch import HEADER_SIZE, parse_header, with_records
from horolog.record.builder import LogRecord, build_batch
from horolog.storage.index.builder import IndexBuilder

PARTITIONS = 4
TASKS = 8
SIZES = 100, 1000
BATCH_BYTES = 16 << 10  # what a Java producer fills
SEGMENT_BYTES = 256 << 20
SPAN_MS = 86_400_000
START_MS = 1_700_000_000_000
LATE_MS = 30_000  # how far the times of neighbours are out of order


def write_log(log_dir: Path, topic: str, value_bytes: int, size: int) -> int:
    """Fill the partitions of a topic to this many bytes in all; the number of records."""
    rng = random.Random(1)
    each = max(1, BATCH_BYTES // (value_bytes + 20))
    pool = [
        build_batch(
            [
                LogRecord(rng.randrange(-LATE_MS, 1), b"key-%05d" % rng.randrange(99_999), value)
                for value in (rng.randbytes(value_bytes) for _ in range(each))
            ]
        )
        for _ in range(32)
    ]
    count = size // PARTITIONS // len(pool[0])
    for partition in range(PARTITIONS):
        directory = log_dir / f"{topic}-{partition}"
        directory.mkdir(parents=True)
        _write_partition(directory, pool, count)
    return PARTITIONS * count * each


def write_logs(
    log_dir: Path, asked: Options, sizes: Sequence[int] = SIZES, gigabytes: float = 2.0
) -> dict[int, int]:
    """Fill a topic with records of each size; the sizes, and how many records."""
    size = int(gigabytes * (1 << 30)) // (3 if asked.quick else 1)
    return {
        value_bytes: write_log(log_dir, f"r{value_bytes}", value_bytes, size)
        for value_bytes in sizes
    }


def _write_partition(directory: Path, pool: Sequence[bytes], count: int) -> None:
    offset = 0
    number = 0
    while number < count:
        stem = directory / f"{offset:020d}"
        index = IndexBuilder(offset, 4096)
        with stem.with_suffix(".log").open("wb", buffering=1 << 20) as log:
            while number < count and log.tell() < SEGMENT_BYTES:
                batch = pool[number % len(pool)]
                records = memoryview(batch)[HEADER_SIZE:]
                header = parse_header(batch)
                at_ms = START_MS + number * SPAN_MS // count
                header = header._replace(
                    base_offset=offset,
                    leader_epoch=0,
                    base_timestamp=header.base_timestamp + at_ms,
                    max_timestamp=header.max_timestamp + at_ms,
                )
                index.add(log.tell(), header)
                log.write(with_records(header, records))
                offset, number = header.next_offset, number + 1
        index.finish()
        stem.with_suffix(".index").write_bytes(index.offset_entries)
        stem.with_suffix(".timeindex").write_bytes(index.time_entries)


def scan(frame: Any, records: int) -> Numbers:
    """Read a DataFrame to its end."""
    return timed(frame.write.format("noop").mode("overwrite").save, records)


class Reads:
    """The DataFrames of one topic."""

    def __init__(self, spark: Any, bootstrap: str, log_dir: Path, topic: str) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._log_dir = log_dir
        self._topic = topic

    def broker(self, source: str, **settings: str) -> Any:
        """From the broker, by either source."""
        reader = self._spark.read.format(source).option("subscribe", self._topic)
        reader = reader.option("kafka.bootstrap.servers", self._bootstrap)
        return reader.option("minPartitions", str(TASKS)).options(**settings).load()

    def files(self, **settings: str) -> Any:
        """From the files."""
        reader = self._spark.read.format("horolog").option("subscribe", self._topic)
        reader = reader.option("minPartitions", str(TASKS)).options(**settings)
        return reader.load(str(self._log_dir))


def main() -> None:
    """Print the table."""
    asked = options(__doc__.splitlines()[0])
    session = spark_with_kafka("spark_read")
    spark, versions = session.spark, session.versions("source")
    with tempfile.TemporaryDirectory(prefix="spark-read-") as base:
        log_dir = Path(base) / "data"
        records = write_logs(log_dir, asked)
        with horolog(directory=Path(base)) as side:
            for value_bytes, count in records.items():
                reads = Reads(spark, side.bootstrap, log_dir, f"r{value_bytes}")
                rows_of_all(reads, value_bytes, count, asked, versions)
            for value_bytes, count in records.items():
                reads = Reads(spark, side.bootstrap, log_dir, f"r{value_bytes}")
                rows_of_a_range(reads, value_bytes, count, asked)
    spark.stop()


def rows_of_all(
    reads: Reads, value_bytes: int, count: int, asked: Options, versions: Mapping[str, str]
) -> None:
    """Full scans, of all columns and of two."""
    kafka = reads.broker("kafka")
    two = "timestamp,offset"
    table = [
        ("broker, all columns", reads.broker("horolog"), kafka, "0.7x, aim 1.0x"),
        ("files, all columns", reads.files(), kafka, "0.7x, aim 1.0x"),
        (
            "broker, times and offsets",
            reads.broker("horolog", columns=two),
            kafka.select(*two.split(",")),
            "2x",
        ),
        ("files, times and offsets", reads.files(columns=two), kafka.select(*two.split(",")), "2x"),
    ]
    for name, ours, theirs, reach in table:
        work = f"{value_bytes} B records from {name}"
        calls = {HOROLOG: partial(scan, ours, count), KAFKA: partial(scan, theirs, count)}
        compare_rows(work, calls, versions, asked, reach)


def rows_of_a_range(reads: Reads, value_bytes: int, count: int, asked: Options) -> None:
    """One hundredth of the time, late records included, at the end of the span and amid it."""
    everything = reads.files()
    full = [scan(everything, count)["seconds"] for _ in range(asked.runs)]
    for where, part in (("last", 99), ("middle", 50)):
        from_ms = START_MS + SPAN_MS * part // 100
        between = f"""timestamp >= timestamp_millis({from_ms})
            and timestamp < timestamp_millis({from_ms + SPAN_MS // 100})"""
        taken = []
        for _ in range(asked.runs):
            frame = reads.files().where(between)
            taken.append(scan(frame, count)["seconds"])
        found = reads.files().where(between).count()
        exact = everything.where(f"({between}) or offset < 0").count()
        if found != exact:
            raise SystemExit(f"{found} rows of the {where} hundredth, {exact} by a full scan")
        print(
            f"\n{value_bytes} B records from files, the {where} hundredth of the time: "
            f"{found:,} of {count:,} rows, exact; {statistics.median(taken):.2f} s, a full scan "
            f"{statistics.median(full):.2f} s"
        )


if __name__ == "__main__":
    main()
