"""What do an audit and a measurement of latencies cost beside a bare scan of times?

    python -m bench.jobs_questions [--quick] [--runs N] [--gigabytes N]

A bare scan reads the times of a topic with format "horolog" and ends in Spark's noop sink; the same
with Spark's own Kafka source is a row beside it. All in one Spark on two threads, in turns. The log
has no append times and nearly every record is out of order. Reach: 1.3x the bare scan.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.sides import horolog
from bench.spark_read import write_log
from tools.peers.kafka import NoPeer, jars

TOPIC = "r100"
REACH = 1.3


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="an eighth of the data, three runs")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    asked = parser.parse_args()
    runs = asked.runs or (3 if asked.quick else 5)
    size = int(asked.gigabytes * (1 << 30)) // (8 if asked.quick else 1)
    try:
        connector = jars("spark")
    except NoPeer as missing:
        print(missing, file=sys.stderr)
        raise SystemExit(2) from None
    from horolog import jobs
    from horolog.spark import session

    spark = session(
        "jobs_questions",
        master="local[2]",
        **{"spark.jars": ",".join(map(str, connector)), "spark.driver.memory": "2g"},
    )
    with tempfile.TemporaryDirectory(prefix="jobs-questions-") as base:
        log_dir = Path(base) / "data"
        records = write_log(log_dir, TOPIC, 100, size)
        with horolog(directory=Path(base)) as side:
            broker = {"kafka.bootstrap.servers": side.bootstrap, "subscribe": TOPIC}

            def scanned(source: str, **options: str) -> None:
                frame = spark.read.format(source).options(**options).load()
                names = options["columns"].split(",") if "columns" in options else ["timestamp"]
                frame.select(*names).write.format("noop").mode("overwrite").save()

            def asked_of(job: Callable[..., Any], source: str) -> None:
                job(spark, source=source, topics=TOPIC).write.format("noop").mode(
                    "overwrite"
                ).save()

            files = {"path": str(log_dir), "columns": "timestampMs"}
            ways: dict[str, Callable[[], None]] = {
                "broker, bare scan of times": lambda: scanned(
                    "horolog", columns="timestampMs", **broker
                ),
                "broker, audit": lambda: asked_of(jobs.audit, side.bootstrap),
                "broker, latency": lambda: asked_of(jobs.latency, side.bootstrap),
                "files, bare scan of times": lambda: scanned("horolog", **files),
                "files, audit": lambda: asked_of(jobs.audit, str(log_dir)),
                "files, latency": lambda: asked_of(jobs.latency, str(log_dir)),
                "broker, times by Spark's Kafka source": lambda: scanned("kafka", **broker),
            }
            taken = in_turns(ways, runs)
    spark.stop()
    print(f"{records:,} records, {size / 1e6:.0f} MB, medians of {runs} runs")
    print("| | seconds | of the bare scan | to reach |")
    print("|---|---|---|---|")
    for name, seconds in taken.items():
        bare = taken[f"{name.split(',')[0]}, bare scan of times"]
        is_job = name.endswith(("audit", "latency"))
        reach = f"{REACH}x" if is_job else ""
        print(f"| {name} | {seconds:.2f} | {seconds / bare:.2f}x | {reach} |")


def in_turns(ways: dict[str, Callable[[], None]], runs: int) -> dict[str, float]:
    """The median seconds of each, once unmeasured and then in turns."""
    for way in ways.values():
        way()
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            taken[name].append(time.perf_counter() - started)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


if __name__ == "__main__":
    main()
