"""How fast does a client turn what it fetches into Arrow tables, beside confluent-kafka's objects?

Both read the same topics of one horolog broker, each in a process of its own: here
`horolog.sources.scan`, to tables of all columns, there `consume` a thousand messages at a time, and
key, value, offset and time of each. A broker is not measured: it is the same for both.
"""

from collections.abc import Callable, Mapping
from functools import partial

from bench import harness
from bench.sides import HOROLOG, KAFKA, Side, create_topic

CLIENTS = {HOROLOG: "arrow_fetch", KAFKA: "librdkafka_objects"}
NAMES = {HOROLOG: "horolog.client", KAFKA: "confluent-kafka"}
BATCH_BYTES = 16 << 10  # what a Java producer fills


def measured(
    bootstrap: str, topic: str, records: int, size: int
) -> Callable[[str], Mapping[str, float]]:
    """Read the whole topic once with the client of a side."""

    def measure(name: str) -> Mapping[str, float]:
        numbers = harness.run_client(
            CLIENTS[name], bootstrap=bootstrap, topic=topic, records=records, size=size
        )
        seconds = numbers["seconds"]
        return {
            **numbers,
            "records/s": numbers["records"] / seconds,
            "MB/s": numbers["bytes"] / 1e6 / seconds,
            "client CPU-s/GB": numbers["cpu_s"] / (numbers["bytes"] / 1e9),
        }

    return measure


def compare(side: Side, size: int, asked: harness.Options) -> None:
    """One size of records."""
    topic, records = f"arrow-{size}", (300_000_000 if asked.quick else 1_000_000_000) // size
    create_topic(side, topic)
    per_batch = BATCH_BYTES // (size + 10)
    records -= records % per_batch
    fill = {"topic": topic, "records": records, "size": size, "per_batch": per_batch}
    harness.run_client("fill", bootstrap=side.bootstrap, **fill)
    measure = measured(side.bootstrap, topic, records, size)
    taken = harness.in_turns({name: partial(measure, name) for name in CLIENTS}, asked)
    row = harness.Row(
        f"{size} B records, client to Arrow",
        lambda _: {},
        "records/s",
        "",
        "5x",
        details=("MB/s", "client CPU-s/GB"),
    )
    harness.report(row, taken, NAMES, asked)


def main() -> None:
    asked = harness.options(__doc__ or "")
    harness.machine()
    asked.only = HOROLOG
    with harness.both_sides(asked) as (side,):
        for size in (100, 1000):
            compare(side, size, asked)


if __name__ == "__main__":
    main()
