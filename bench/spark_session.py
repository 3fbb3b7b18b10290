"""The Spark of benchmarks: horolog's formats and Spark's own Kafka connector in one session."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bench import spark_floor
from bench.harness import Numbers, Options, Row, in_turns, report
from bench.sides import HOROLOG, KAFKA
from tools.peers.kafka import NoPeer, jars


class Session(NamedTuple):
    """A session of two threads."""

    spark: Any
    connector_version: str

    def versions(self, part: str) -> dict[str, str]:
        """What is compared, for the table; `part` is "source" or "sink"."""
        return {HOROLOG: "this tree", KAFKA: f"Spark's Kafka {part} {self.connector_version}"}


def spark_with_kafka(name: str) -> Session:
    """Start a session; exit with status 2 if Spark's Kafka connector is not there."""
    try:
        connector = jars("spark")
    except NoPeer as missing:
        print(missing, file=sys.stderr)
        raise SystemExit(2) from None
    from horolog.spark import session

    spark = session(
        name,
        master="local[2]",
        **{"spark.jars": ",".join(map(str, connector)), "spark.driver.memory": "2g"},
    )
    spark_floor.register(spark)
    version = next(jar.stem for jar in connector if "sql-kafka" in jar.name).rpartition("-")[2]
    return Session(spark, version)


def compare_rows(
    work: str,
    calls: Mapping[str, Callable[[], Numbers]],
    versions: Mapping[str, str],
    asked: Options,
    reach: str,
    *,
    details: Sequence[str] = ("seconds",),
    cpu_of: Sequence[int] = (),
) -> None:
    """Take two calls that give `rows`, millions a second, in turns, and print their line.

    Where the processes of the brokers are given, the CPU of all processes is a line of its own.
    """
    row = Row(work, lambda _: {}, "rows", "million/s", reach, details=details)
    taken = in_turns(calls, asked, cpu_of=cpu_of)
    report(row, taken, versions, asked)
    if cpu_of:
        row = Row(f"{work}, CPU", lambda _: {}, "cpu_s", "s", "-", higher_is_better=False)
        report(row, taken, versions, asked)
