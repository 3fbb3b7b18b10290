"""How fast does a client turn what it fetches into Arrow tables, beside confluent-kafka's objects?

Both read the same topics of one horolog broker, each in a process of its own: here
`horolog.sources.scan`, to tables of all columns, there `consume` a thousand messages at a time, and
key, value, offset and time of each. A broker is not measured: it is the same for both.
"""

from functools import partial

from bench import harness
from bench.sides import HOROLOG, KAFKA, Side, create_topic

CLIENTS = {HOROLOG: "arrow_fetch", KAFKA: "librdkafka_objects"}
NAMES = {HOROLOG: "horolog.client", KAFKA: "confluent-kafka"}
BATCH_BYTES = 16 << 10  # what a Java producer fills


def compare(side: Side, size: int, asked: harness.Options) -> None:
    """One size of records."""
    topic, records = f"arrow-{size}", (300_000_000 if asked.quick else 1_000_000_000) // size
    create_topic(side, topic)
    per_batch = BATCH_BYTES // (size + 10)
    records -= records % per_batch
    read = {"topic": topic, "records": records, "size": size}
    harness.run_client("fill", side, per_batch=per_batch, codec="none", **read)
    calls = {
        name: partial(harness.run_client, client, side, **read) for name, client in CLIENTS.items()
    }
    details = "MB/s", "client CPU-s/GB"
    row = harness.Row(f"{size} B records, client to Arrow", "records/s", "5x", details)
    harness.report(row, harness.in_turns(calls, asked), NAMES, asked)


def main() -> None:
    asked = harness.options(__doc__ or "")
    asked.only = HOROLOG
    with harness.both_sides(asked) as (side,):
        for size in (100, 1000):
            compare(side, size, asked)


if __name__ == "__main__":
    main()
