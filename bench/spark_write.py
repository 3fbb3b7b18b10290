"""Spark writing a log: format "horolog" beside Spark's Kafka sink.

    python -m bench.spark_write [--quick] [--runs N] [--bytes 1000] [--work stream] [--to-kafka]
        [--json FILE]

Both sides run in one Spark on two threads and write the same rows, made from a range of numbers,
to four partitions of one horolog broker, with their defaults (acks=all, idempotent, no
compression); once as a stream of Parquet files in one micro-batch, its start and end included.
A row of its own gives Spark's sink the settings that its producer is tuned with, and one compares
horolog's sink with itself: exactly once and at least once. Another one is a Python sink that drops
the rows (`spark_floor`): what Spark's passing of rows to Python takes. With `--to-kafka` horolog's
sink alone writes to an Apache Kafka: what exactly once costs there, in transactions.
"""

import itertools
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench.harness import Numbers, Options, options_of, parser_of
from bench.sides import HOROLOG, KAFKA, Side, horolog, kafka
from bench.spark_floor import FLOOR
from bench.spark_session import compare_rows, spark_with_kafka, timed

from horolog.client import Client
from horolog.sources import scan

PARTITIONS = 4
EXACTLY, AT_LEAST = "exactly once", "at least once"
ONE_TREE = {EXACTLY: "this tree", AT_LEAST: "this tree"}
TASKS = 4
SIZES = 100, 1000
WORK = BATCH, STREAM = "batch", "stream"
TUNED = {"kafka.batch.size": "500000", "kafka.linger.ms": "20", "kafka.buffer.memory": "67108864"}
SCHEMA = "key string, value string"
_MARKERS_S = 30.0
_numbers = itertools.count()


def rows_of(spark: Any, count: int, value_bytes: int) -> Any:
    """Rows with keys, and values of this many bytes; their making costs the JVM little."""
    filler = "x" * (value_bytes - 12)
    return spark.range(0, count, 1, TASKS).selectExpr(
        "concat('key-', lpad(cast(id % 99999 as string), 5, '0')) key",
        f"concat(lpad(cast(id as string), 12, '0'), '{filler}') value",
    )


class Target:
    """A broker, and a topic for each write."""

    def __init__(self, side: Side) -> None:
        self.bootstrap = side.bootstrap
        self.pid = side.pid

    @contextmanager
    def topic(self, expected: int) -> Iterator[str]:
        """A new topic, deleted afterwards; it has to hold exactly this many records."""
        # Producers that Spark's sink keeps create a deleted topic again: no name is used twice.
        name = f"w{next(_numbers)}"
        with Client(self.bootstrap) as client:
            client.create_topics({name: PARTITIONS})
            yield name
            found = self.count(client, name, expected)
            client.delete_topics([name])
        if found != expected:
            raise SystemExit(f"{found} records of {expected}")

    def count(self, client: Client, topic: str, expected: int) -> int:
        """How many committed records a topic has: markers of transactions take offsets, too."""
        give_up = time.monotonic() + _MARKERS_S
        while True:  # a commit returns before all partitions have their markers
            rows = scan(client, topic, columns=("offset",), read_committed=True)
            found = sum(batch.num_rows for batch in rows)
            if found >= expected or time.monotonic() > give_up:
                return found


def save(frame: Any, source: str, target: Target, count: int, more: Mapping[str, str]) -> Numbers:
    """Write a DataFrame once."""
    with target.topic(count) as topic:
        writer = frame.write.format(source).option("kafka.bootstrap.servers", target.bootstrap)
        writer = writer.option("topic", topic).options(**more)
        return timed(writer.mode("append").save, count)


def drop(frame: Any, count: int) -> Numbers:
    """Pass a DataFrame to a Python sink that drops it."""
    return timed(frame.write.format("dropped").mode("append").save, count)


def save_once(frame: Any, target: Target, count: int) -> Numbers:
    """Write a DataFrame exactly once, under a name of its own."""
    name = f"bench-{uuid.uuid4()}"
    once = {"exactlyOnce": "true", "writeName": name, "writeBatch": "0"}
    return save(frame, "horolog", target, count, once)


def drain(
    spark: Any,
    files: Path,
    source: str,
    target: Target,
    count: int,
    more: Mapping[str, str] = MappingProxyType({}),
) -> Numbers:
    """Write a stream of all files, in one micro-batch."""
    with (
        target.topic(count) as topic,
        tempfile.TemporaryDirectory(prefix="spark-write-") as checkpoint,
    ):
        writer = spark.readStream.schema(SCHEMA).parquet(str(files)).writeStream.format(source)
        writer = writer.option("kafka.bootstrap.servers", target.bootstrap).option("topic", topic)
        writer = writer.option("checkpointLocation", checkpoint).options(**more)
        writer = writer.trigger(availableNow=True)
        return timed(lambda: writer.start().awaitTermination(), count)


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, choices=SIZES, help="records of this size only")
    parser.add_argument("--work", choices=WORK, help="only writes of a batch, or of a stream")
    parser.add_argument("--to-kafka", action="store_true", help="only exactly once, to Kafka")
    arguments = parser.parse_args()
    asked = options_of(arguments)
    session = spark_with_kafka("spark_write")
    spark, versions = session.spark, session.versions("sink")
    quick, whole = (300, 1000) if arguments.to_kafka else (500, 1500)
    size = (quick if asked.quick else whole) << 20
    broker = kafka if arguments.to_kafka else horolog
    with (
        tempfile.TemporaryDirectory(prefix="spark-write-") as base,
        broker(directory=Path(base)) as side,
    ):
        target = Target(side)
        for value_bytes in SIZES if arguments.bytes is None else [arguments.bytes]:
            count = size // value_bytes
            frame = rows_of(spark, count, value_bytes)
            compared = {} if arguments.to_kafka else versions
            if arguments.work != STREAM:
                batches(frame, target, value_bytes, count, asked, compared)
            if arguments.work != BATCH:
                streams(frame, target, value_bytes, count, asked, compared)
    spark.stop()


def batches(
    frame: Any,
    target: Target,
    value_bytes: int,
    count: int,
    asked: Options,
    versions: Mapping[str, str],
) -> None:
    """A DataFrame of records of one size; beside Spark's sink where versions are given."""
    work = f"{value_bytes} B records written{'' if versions else ' to Kafka'}"
    ours = partial(save, frame, "horolog", target, count, {})
    if versions:
        for name, settings in (("", {}), (", Spark's sink tuned", TUNED)):
            calls = {HOROLOG: ours, KAFKA: partial(save, frame, "kafka", target, count, settings)}
            compare_rows(work + name, calls, versions, asked, "1.5x", cpu_of=[target.pid])
        calls = {HOROLOG: ours, FLOOR: partial(drop, frame, count)}
        beside = f"{work}, beside a Python sink that drops them"
        compare_rows(beside, calls, versions, asked, "-")
    once = {EXACTLY: partial(save_once, frame, target, count), AT_LEAST: ours}
    compare_rows(work, once, ONE_TREE, asked, "0.8x")


def streams(
    frame: Any,
    target: Target,
    value_bytes: int,
    count: int,
    asked: Options,
    versions: Mapping[str, str],
) -> None:
    """The same rows, as a stream."""
    spark = frame.sparkSession
    with tempfile.TemporaryDirectory(prefix="spark-write-") as files:
        frame.write.mode("overwrite").parquet(files)
        work = f"{value_bytes} B records written{'' if versions else ' to Kafka'} as a stream"
        ours = partial(drain, spark, Path(files), "horolog", target, count)
        if versions:
            theirs = partial(drain, spark, Path(files), "kafka", target, count)
            calls = {HOROLOG: ours, KAFKA: theirs}
            compare_rows(work, calls, versions, asked, "1.5x", cpu_of=[target.pid])
        once = {EXACTLY: partial(ours, {"exactlyOnce": "true"}), AT_LEAST: ours}
        compare_rows(work, once, ONE_TREE, asked, "0.8x")


if __name__ == "__main__":
    main()
