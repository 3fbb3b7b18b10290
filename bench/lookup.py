"""What does an offset by timestamp cost, and does it grow with the log?

Logs of 100-byte records a millisecond apart, in batches of 100, segments of 1 GB (the default).
"""

from collections.abc import Callable, Mapping

from bench import harness
from bench.sides import Side, create_topic

SIZE, PER_BATCH = 100, 100
LOOKUPS = 3000


def lookups(topic: str, records: int) -> Callable[[Side], Mapping[str, float]]:
    def measure(side: Side) -> Mapping[str, float]:
        before = side.cpu_s()
        numbers = harness.run_client(
            "raw_lookup", bootstrap=side.bootstrap, topic=topic, lookups=LOOKUPS, records=records
        )
        used = side.cpu_s() - before
        return {
            **numbers,
            "lookups/s": LOOKUPS / numbers["seconds"],
            "broker CPU-ms/lookup": 1000 * used / LOOKUPS,
        }

    return measure


def main() -> None:
    asked = harness.options(__doc__ or "")
    harness.require_peer()
    harness.machine()
    sizes = (100_000, 1_000_000) if asked.quick else (100_000, 1_000_000, 10_000_000)
    with harness.both_sides(asked) as sides:
        for records in sizes:
            topic = f"lookup-{records}"
            for side in sides:
                create_topic(side, topic)
                harness.run_client(
                    "fill",
                    bootstrap=side.bootstrap,
                    topic=topic,
                    records=records,
                    size=SIZE,
                    per_batch=PER_BATCH,
                )
            row = harness.Row(
                f"offset by timestamp, {records:,} records",
                lookups(topic, records),
                "lookups/s",
                "",
                "1.0x; cost flat in log size",
                details=("p50_ms", "p99_ms", "broker CPU-ms/lookup"),
            )
            harness.compare(row, sides, asked)


if __name__ == "__main__":
    main()
