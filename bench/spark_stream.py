"""Spark streaming a log: format "horolog" beside Spark's own Kafka source, in one Spark.

    python -m bench.spark_stream [--quick] [--runs N] [--bytes 1000] [--gigabytes N] [--work follow]
        [--json FILE]

Both sources read the same topics of one horolog broker on two threads. A full scan is a stream of
what is available, its start and end included, as one micro-batch into the noop sink; a row of its
own puts it beside a Python source that has nothing to do (`spark_floor`). The rest follows a log
that a producer appends to at a steady pace: how long a micro-batch takes, and how long a record
takes from its append to the sink.
"""

import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness import Numbers, Options, Row, in_turns, options_of, parser_of, report
from bench.sides import HOROLOG, KAFKA, Side, horolog
from bench.spark_floor import FLOOR
from bench.spark_read import SIZES, TASKS, write_logs
from bench.spark_session import compare_rows, spark_with_kafka

from horolog.client import Client
from horolog.clock import SystemClock
from horolog.record.builder import LogRecord, build_batch

CLOCK = SystemClock()
FOLLOWED = "followed"
FOLLOWED_PARTITIONS = 4
APPEND_EVERY_S = 0.02
RECORDS_AN_APPEND = 10
WARM_BATCHES = 10  # the first micro-batches compile their plans


def stream(spark: Any, source: str, bootstrap: str, topic: str, **settings: str) -> Any:
    """A stream of a topic, by either source."""
    reader = spark.readStream.format(source).option("subscribe", topic)
    return reader.option("kafka.bootstrap.servers", bootstrap).options(**settings).load()


def drain(frame: Any, records: int) -> Numbers:
    """Read a stream up to what is available, in one micro-batch, its start and end included."""
    with tempfile.TemporaryDirectory(prefix="spark-stream-") as checkpoint:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        start = time.perf_counter()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.perf_counter() - start
        batch = max(query.recentProgress, key=lambda progress: progress["numInputRows"])
        read = sum(progress["numInputRows"] for progress in query.recentProgress)
    if read != records:
        raise SystemExit(f"{read} rows of the stream, {records} records")
    return {
        "seconds": seconds,
        "rows": records / seconds / 1e6,
        "batch_s": batch["durationMs"]["addBatch"] / 1000,
    }


@contextmanager
def appending(bootstrap: str) -> Iterator[None]:
    """A producer of records of the present moment, while the block runs."""
    stopped = threading.Event()

    def run() -> None:
        turn = 0
        with Client(bootstrap) as client:
            while not stopped.wait(APPEND_EVERY_S):
                records = [LogRecord(CLOCK.now_ms(), b"key", b"v" * 100)]
                batch = build_batch(records * RECORDS_AN_APPEND)
                client.produce(FOLLOWED, turn % FOLLOWED_PARTITIONS, batch)
                turn += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def follow(frame: Any, bootstrap: str, seconds: float) -> Numbers:
    """Follow a log that grows: micro-batches, and the way from append to sink, in milliseconds."""
    waited: list[float] = []

    def sink(rows: Any, batch: int) -> None:
        times = rows.selectExpr("unix_millis(timestamp) as t").toArrow().column("t")
        now_ms = CLOCK.now_ms()
        waited.extend(now_ms - each for each in times.to_pylist())

    with tempfile.TemporaryDirectory(prefix="spark-stream-") as checkpoint, appending(bootstrap):
        writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
        query = writer.start()
        try:
            while query.lastProgress is None or query.lastProgress["batchId"] < WARM_BATCHES:
                if query.exception() is not None:
                    raise SystemExit(query.exception())
                time.sleep(0.1)
            first = query.lastProgress["batchId"]
            waited.clear()
            time.sleep(seconds)
            batches = [
                progress["durationMs"]["triggerExecution"]
                for progress in query.recentProgress
                if progress["batchId"] > first and progress["numInputRows"]
            ]
            taken = sorted(waited)
        finally:
            query.stop()
    return {
        "seconds": seconds,
        "batch_ms": statistics.median(batches),
        "median_ms": statistics.median(taken),
        "p99_ms": taken[len(taken) * 99 // 100],
        "batches": len(batches),
    }


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, choices=SIZES, help="records of this size only")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of each size of records")
    parser.add_argument("--work", choices=["scan", "follow"], help="only this")
    arguments = parser.parse_args()
    asked = options_of(arguments)
    sizes = SIZES if arguments.bytes is None else (arguments.bytes,)
    session = spark_with_kafka("spark_stream")
    spark, versions = session.spark, session.versions("source")
    with tempfile.TemporaryDirectory(prefix="spark-stream-") as base:
        log_dir = Path(base) / "data"
        scanned = sizes if arguments.work != "follow" else ()
        records = write_logs(log_dir, asked, scanned, arguments.gigabytes)
        with horolog(directory=Path(base)) as side:
            for value_bytes, count in records.items():
                scans(spark, side, value_bytes, count, asked, versions)
            if arguments.work != "scan":
                with Client(side.bootstrap) as client:
                    client.create_topics({FOLLOWED: FOLLOWED_PARTITIONS})
                follows(spark, side.bootstrap, asked, versions)
    spark.stop()


def scans(
    spark: Any,
    side: Side,
    value_bytes: int,
    count: int,
    asked: Options,
    versions: dict[str, str],
) -> None:
    """Full scans of a topic as streams."""
    settings = {"minPartitions": str(TASKS), "startingOffsets": "earliest"}

    def of(source: str) -> Numbers:
        frame = stream(spark, source, side.bootstrap, f"r{value_bytes}", **settings)
        return drain(frame, count)

    def floor() -> Numbers:
        made = spark.readStream.format("made").options(rows=count, tasks=TASKS)
        return drain(made.option("valueBytes", value_bytes).load(), count)

    work = f"{value_bytes} B records from broker, as a stream"
    calls = {HOROLOG: partial(of, "horolog"), KAFKA: partial(of, "kafka")}
    details = "seconds", "batch_s"
    compare_rows(work, calls, versions, asked, "1.5x", details=details, cpu_of=[side.pid])
    work = f"{work}, beside a Python source that does nothing"
    calls = {HOROLOG: partial(of, "horolog"), FLOOR: floor}
    compare_rows(work, calls, versions, asked, "-", details=details)


def follows(spark: Any, bootstrap: str, asked: Options, versions: dict[str, str]) -> None:
    """A log that grows, followed."""
    seconds = 8 if asked.quick else 20

    def of(source: str) -> Numbers:
        return follow(stream(spark, source, bootstrap, FOLLOWED), bootstrap, seconds)

    taken = in_turns({HOROLOG: lambda: of("horolog"), KAFKA: lambda: of("kafka")}, asked)
    for work, figure in (
        ("a micro-batch of a log that grows", "batch_ms"),
        ("from append to sink, median", "median_ms"),
        ("from append to sink, p99", "p99_ms"),
    ):
        report(Row(work, figure, "1.0x", ("batches",)), taken, versions, asked)


if __name__ == "__main__":
    main()
