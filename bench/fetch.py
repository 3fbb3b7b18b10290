"""How fast does a broker hand records out? 1 kB records that are in the page cache."""

from functools import partial

from bench import harness
from bench.sides import Side, create_topic

TOPIC, SIZE, PER_BATCH = "fetch", 1000, 500


def read(side: Side, client: str, records: int) -> harness.Numbers:
    """Read the whole topic once."""
    end = {"end": records} if client == "raw_fetch" else {"records": records}
    return harness.run_client(client, side, topic=TOPIC, size=SIZE, **end)


def main() -> None:
    asked = harness.options(__doc__ or "")
    harness.require_peer()
    records = 300_000 if asked.quick else 1_000_000
    details = "records/s", "broker CPU-s/GB"
    filling = {"topic": TOPIC, "records": records, "size": SIZE, "per_batch": PER_BATCH}
    with harness.both_sides(asked) as sides:
        for side in sides:
            create_topic(side, TOPIC)
            harness.run_client("fill", side, codec="none", **filling)
        for client, work, reach in (
            ("librdkafka_fetch", "fetch 1000 B, librdkafka", "1.0x, aim 1.5x"),
            ("raw_fetch", "fetch 1000 B, client reads headers only", "what the broker can"),
        ):
            row = harness.Row(work, "MB/s", reach, details)
            harness.compare(partial(read, client=client, records=records), sides, asked, row)


if __name__ == "__main__":
    main()
