"""How fast is a file of records loaded, beside a loop over confluent-kafka's `produce`?

Both read the same file, Parquet or Arrow (a key, and a value of 100 B), and produce to a new topic
of one horolog broker until every record is acknowledged (acks=all, idempotent), each in a process
of its own. `horolog.client` sends tables; the loop makes a Python object of each key and value, as
such loops do. A broker is not measured: it is the same for both.
"""

import itertools
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from bench import harness
from bench.clients import payloads
from bench.sides import HOROLOG, KAFKA, Side, create_topic, delete_topic

CLIENTS = {HOROLOG: "arrow_load", KAFKA: "librdkafka_load"}
NAMES = {HOROLOG: "horolog.client", KAFKA: "confluent-kafka"}
SIZE = 100
_numbers = itertools.count()


def write(directory: Path, records: int, kind: str) -> Path:
    """A file of the records, in pieces of a million."""
    import pyarrow as pa
    from pyarrow import ipc, parquet

    values = pa.array(payloads(SIZE), pa.binary())
    schema = pa.schema([("key", pa.string()), ("value", pa.binary())])
    file = directory / f"records.{kind}"
    writer = (
        parquet.ParquetWriter(file, schema) if kind == "parquet" else ipc.new_file(file, schema)
    )
    with writer:
        for start in range(0, records, 1_000_000):
            numbers = pa.array(range(start, min(records, start + 1_000_000)), pa.int64())
            which = pa.array([number.as_py() % len(values) for number in numbers[:1000]])
            repeat = (len(numbers) + len(which) - 1) // len(which)
            picked = pa.concat_arrays([values.take(which)] * repeat)[: len(numbers)]
            writer.write_table(pa.table([numbers.cast(pa.string()), picked], schema=schema))
    return file


def measured(side: Side, file: Path, records: int) -> Callable[[str], Mapping[str, float]]:
    """Load the whole file once with the client of a name."""

    def measure(name: str) -> Mapping[str, float]:
        topic = f"load-{next(_numbers)}"
        create_topic(side, topic)
        before = side.cpu_s()
        numbers = harness.run_client(
            CLIENTS[name], bootstrap=side.bootstrap, topic=topic, file=str(file), records=records
        )
        used = side.cpu_s() - before
        delete_topic(side, topic)
        gigabytes = records * SIZE / 1e9
        return {
            **numbers,
            "records/s": numbers["records"] / numbers["seconds"],
            "client CPU-s/GB": numbers["cpu_s"] / gigabytes,
            "broker CPU-s/GB": used / gigabytes,
        }

    return measure


def main() -> None:
    asked = harness.options(__doc__ or "")
    harness.machine()
    asked.only = HOROLOG
    records = 2_000_000 if asked.quick else 10_000_000
    with (
        tempfile.TemporaryDirectory(prefix="horolog-bench-") as directory,
        harness.both_sides(asked) as (side,),
    ):
        for kind in ("arrow", "parquet"):
            file = write(Path(directory), records, kind)
            measure = measured(side, file, records)
            taken = harness.in_turns({name: partial(measure, name) for name in CLIENTS}, asked)
            row = harness.Row(
                f"{records:,} records of {SIZE} B loaded from {kind}",
                lambda _: {},
                "records/s",
                "",
                "5x",
                details=("client CPU-s/GB", "broker CPU-s/GB"),
            )
            harness.report(row, taken, NAMES, asked)
            file.unlink()


if __name__ == "__main__":
    main()
