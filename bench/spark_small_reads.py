"""Small interactive reads with Spark, beside its own Kafka source: what they take, not how much.

    python -m bench.spark_small_reads [--quick] [--runs N] [--json FILE]

Both sides run in one Spark on two threads and read one topic of 1,000 records from one horolog,
each read from `load()` to its end. "nothing new" is a streaming query with the trigger
`availableNow` that goes on from a checkpoint where all is read, from its start to its end.
"""

import contextlib
import io
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness import Numbers, Options, Row, in_turns, options, report
from bench.sides import HOROLOG, KAFKA, horolog
from bench.spark_session import spark_with_kafka

from horolog.client import Client, Producer

RECORDS = 1000
TOPIC = "small"
REACH = "1x"
FORMATS = {HOROLOG: "horolog", KAFKA: "kafka"}

Read = Callable[[Any], object]


def show(frame: Any) -> None:
    """The first rows, as a user of a notebook sees them."""
    with contextlib.redirect_stdout(io.StringIO()):
        frame.show(5)


READS: dict[str, Read] = {
    "count": lambda frame: frame.count(),
    "show(5)": show,
    "take(5)": lambda frame: frame.take(5),
    "first": lambda frame: frame.first(),
    "limit(5)": lambda frame: frame.limit(5).collect(),
    "collect": lambda frame: frame.collect(),
    "filtered count": lambda frame: frame.where("timestamp >= '2020-01-01'").count(),
}


def timed(work: Callable[[], object]) -> Numbers:
    """How long it takes, in milliseconds."""
    start = time.perf_counter()
    work()
    return {"ms": (time.perf_counter() - start) * 1000}


def main() -> None:
    """Print the rows."""
    asked = options(__doc__.splitlines()[0])
    session = spark_with_kafka("spark_small_reads")
    versions = session.versions("source")
    with tempfile.TemporaryDirectory(prefix="small-reads-") as base, horolog() as side:
        _fill(side.bootstrap)
        reader = partial(_load, session.spark.read, side.bootstrap)
        for name, read in READS.items():
            calls = {each: partial(_read, reader, each, read) for each in FORMATS}
            _row(name, calls, versions, asked)
        streams = partial(_load, session.spark.readStream, side.bootstrap)
        # Taken once unmeasured, each has read all before it is measured.
        calls = {
            each: partial(_available_now, streams, each, Path(base) / each) for each in FORMATS
        }
        _row("nothing new", calls, versions, asked)
    session.spark.stop()


def _fill(bootstrap: str) -> None:
    with Client(bootstrap) as client, Producer(client) as producer:
        rows = [{"key": b"%d" % number, "value": b"v%d" % number} for number in range(RECORDS)]
        import pyarrow as pa

        producer.send(TOPIC, pa.Table.from_pylist(rows))


def _load(reader: Any, bootstrap: str, side: str) -> Any:
    chosen = reader.format(FORMATS[side]).option("kafka.bootstrap.servers", bootstrap)
    return chosen.option("subscribe", TOPIC).option("startingOffsets", "earliest").load()


def _read(load: Callable[[str], Any], side: str, read: Read) -> object:
    return read(load(side))


def _available_now(load: Callable[[str], Any], side: str, checkpoint: Path) -> None:
    writer = load(side).writeStream.format("noop").trigger(availableNow=True)
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()


def _row(
    name: str, calls: dict[str, Callable[[], object]], versions: dict[str, str], asked: Options
) -> None:
    taken = in_turns({each: partial(timed, call) for each, call in calls.items()}, asked)
    report(Row(f"small read: {name}", "ms", REACH), taken, versions, asked)


if __name__ == "__main__":
    main()
