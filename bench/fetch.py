"""How fast does a broker hand records out? 1 kB records that are in the page cache."""

from collections.abc import Mapping

from bench import harness
from bench.sides import Side, create_topic

TOPIC, SIZE, PER_BATCH = "fetch", 1000, 500


def measured(side: Side, client: str, records: int) -> Mapping[str, float]:
    """Read the whole topic once."""
    end = {"end": records} if client == "raw_fetch" else {"records": records}
    before = side.cpu_s()
    numbers = harness.run_client(client, bootstrap=side.bootstrap, topic=TOPIC, size=SIZE, **end)
    used = side.cpu_s() - before
    return {
        **numbers,
        "MB/s": numbers["bytes"] / 1e6 / numbers["seconds"],
        "records/s": numbers["records"] / numbers["seconds"],
        "broker CPU-s/GB": used / (numbers["bytes"] / 1e9),
    }


def main() -> None:
    asked = harness.options(__doc__ or "")
    harness.require_peer()
    harness.machine()
    records = 300_000 if asked.quick else 1_000_000
    details = ("records/s", "broker CPU-s/GB")
    with harness.both_sides(asked) as sides:
        for side in sides:
            create_topic(side, TOPIC)
            harness.run_client(
                "fill",
                bootstrap=side.bootstrap,
                topic=TOPIC,
                records=records,
                size=SIZE,
                per_batch=PER_BATCH,
            )
        for client, work, reach in (
            ("librdkafka_fetch", "fetch 1000 B, librdkafka", "1.0x, aim 1.5x"),
            ("raw_fetch", "fetch 1000 B, client reads headers only", "what the broker can"),
        ):
            row = harness.Row(
                work,
                lambda side, client=client: measured(side, client, records),
                "MB/s",
                "",
                reach,
                details=details,
            )
            harness.compare(row, sides, asked)


if __name__ == "__main__":
    main()
