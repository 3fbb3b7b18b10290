"""How fast is a file of records loaded, beside a loop over confluent-kafka's `produce`?

Both read the same file, Parquet or Arrow (a key, and a value of 100 B), and produce to a new topic
of one horolog broker until every record is acknowledged (acks=all, idempotent), each in a process
of its own. `horolog.client` sends tables; the loop makes a Python object of each key and value, as
such loops do. A broker is not measured: it is the same for both.
"""

import itertools
import tempfile
from functools import partial
from pathlib import Path

from bench import harness
from bench.clients import payloads
from bench.sides import HOROLOG, Side, create_topic, delete_topic

CLIENTS = {HOROLOG: "arrow_load", "confluent-kafka": "librdkafka_load"}
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


def load(client: str, side: Side, file: Path, records: int) -> harness.Numbers:
    """Load the whole file once with a client."""
    topic = f"load-{next(_numbers)}"
    create_topic(side, topic)
    numbers = harness.run_client(
        client, side, topic=topic, file=str(file), records=records, size=SIZE
    )
    delete_topic(side, topic)
    return numbers


def main() -> None:
    asked = harness.options(__doc__ or "")
    asked.only = HOROLOG
    records = 2_000_000 if asked.quick else 10_000_000
    with (
        tempfile.TemporaryDirectory(prefix="horolog-bench-") as directory,
        harness.both_sides(asked) as (side,),
    ):
        for kind in ("arrow", "parquet"):
            file = write(Path(directory), records, kind)
            calls = {
                name: partial(load, client, side, file, records) for name, client in CLIENTS.items()
            }
            taken = harness.in_turns(calls, asked)
            work = f"{records:,} records of {SIZE} B loaded from {kind}"
            row = harness.Row(work, "records/s", "5x", ("client CPU-s/GB", "broker CPU-s/GB"))
            harness.report(row, taken, {}, asked)
            file.unlink()


if __name__ == "__main__":
    main()
