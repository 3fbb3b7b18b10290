"""What do an audit and a measurement of latencies cost beside a bare scan of times?

    python -m bench.jobs_questions [--quick] [--runs N] [--gigabytes N]

A bare scan reads the times of a topic with format "horolog" and ends in Spark's noop sink; the same
with Spark's own Kafka source is a row beside it. All in one Spark on two threads, in turns. The log
has no append times and nearly every record is out of order. Reach: 1.3x the bare scan.
"""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench.harness import Numbers, Options, in_turns
from bench.sides import horolog
from bench.spark_read import scan, write_log
from bench.spark_session import spark_with_kafka

from horolog import jobs

TOPIC = "r100"
REACH = 1.3


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="an eighth of the data, three runs")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    given = parser.parse_args()
    asked = Options(runs=given.runs or (3 if given.quick else 5))
    size = int(given.gigabytes * (1 << 30)) // (8 if given.quick else 1)
    spark = spark_with_kafka("jobs_questions").spark
    with tempfile.TemporaryDirectory(prefix="jobs-questions-") as base:
        log_dir = Path(base) / "data"
        records = write_log(log_dir, TOPIC, 100, size)
        with horolog(directory=Path(base)) as side:
            broker = {"kafka.bootstrap.servers": side.bootstrap, "subscribe": TOPIC}

            def scanned(source: str, column: str, **options: str) -> Numbers:
                frame = spark.read.format(source).options(**options).load()
                return scan(frame.select(column), records)

            def asked_of(job: Callable[..., Any], source: str) -> Numbers:
                return scan(job(spark, source=source, topics=TOPIC), records)

            times = {"column": "timestampMs", "columns": "timestampMs"}
            ways = {
                "broker, bare scan of times": partial(scanned, "horolog", **times, **broker),
                "broker, audit": partial(asked_of, jobs.audit, side.bootstrap),
                "broker, latency": partial(asked_of, jobs.latency, side.bootstrap),
                "files, bare scan of times": partial(
                    scanned, "horolog", **times, path=str(log_dir)
                ),
                "files, audit": partial(asked_of, jobs.audit, str(log_dir)),
                "files, latency": partial(asked_of, jobs.latency, str(log_dir)),
                "broker, times by Spark's Kafka source": partial(
                    scanned, "kafka", "timestamp", **broker
                ),
            }
            taken = {
                name: median(run["seconds"] for run in runs)
                for name, runs in in_turns(ways, asked).items()
            }
    spark.stop()
    print(f"{records:,} records, {size / 1e6:.0f} MB, medians of {asked.runs} runs")
    print("| | seconds | of the bare scan | to reach |")
    print("|---|---|---|---|")
    for name, seconds in taken.items():
        bare = taken[f"{name.split(',')[0]}, bare scan of times"]
        is_job = name.endswith(("audit", "latency"))
        reach = f"{REACH}x" if is_job else ""
        print(f"| {name} | {seconds:.2f} | {seconds / bare:.2f}x | {reach} |")


if __name__ == "__main__":
    main()
