"""How fast does a client turn what it fetches into Arrow tables, beside two built on librdkafka?

All read the same topics of one horolog broker, each in a process of its own: `horolog.sources.scan`
to tables of all columns; confluent-kafka by `consume`, a thousand messages at a time, and key,
value, offset and time of each; kafkarrow (`make .peers/kafkarrow/.complete`) to its own Arrow
batches. A broker is not measured: it is the same for all.
"""

import sys
from functools import partial
from importlib.metadata import Distribution, version

from bench import harness
from bench.sides import HOROLOG, Side, create_topic
from tools.peers.kafka import PEERS

CLIENTS = {
    HOROLOG: "arrow_fetch",
    "confluent-kafka": "librdkafka_objects",
    "kafkarrow": "kafkarrow_fetch",
}
BATCH_BYTES = 16 << 10  # what a Java producer fills
REACH = {100: "5x", 1000: "1.2x"}


def versions() -> dict[str, str]:
    """What is compared; ends with "no peer" where kafkarrow was not fetched."""
    fetched = next(Distribution.discover(name="kafkarrow", path=[str(PEERS / "kafkarrow")]), None)
    if fetched is None:
        print("no peer kafkarrow: run `make .peers/kafkarrow/.complete`", file=sys.stderr)
        raise SystemExit(2)
    theirs = {"confluent-kafka": version("confluent-kafka"), "kafkarrow": fetched.version}
    return {name: f"{name} {number}" for name, number in theirs.items()}


def compare(side: Side, size: int, asked: harness.Options, beside: dict[str, str]) -> None:
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
    row = harness.Row(f"{size} B records, client to Arrow", "records/s", REACH[size], details)
    harness.report(row, harness.in_turns(calls, asked), beside, asked)


def main() -> None:
    asked = harness.options(__doc__ or "")
    asked.only = HOROLOG
    beside = versions()
    with harness.both_sides(asked) as (side,):
        for size in REACH:
            compare(side, size, asked, beside)


if __name__ == "__main__":
    main()
