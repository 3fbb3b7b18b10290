"""How fast does a broker take records? 100 B and 1 kB, plain and compressed, acks=1."""

import itertools
from collections.abc import Callable, Mapping

from bench import harness
from bench.sides import Side, create_topic, delete_topic

GB = 1e9
_numbers = itertools.count()


def measured(side: Side, client: str, **arguments: object) -> Mapping[str, float]:
    """Run one client on a fresh topic; what it did a second, and what that cost the broker."""
    topic = f"produce-{next(_numbers)}"
    create_topic(side, topic)
    before = side.cpu_s()
    numbers = harness.run_client(client, bootstrap=side.bootstrap, topic=topic, **arguments)
    used = side.cpu_s() - before
    delete_topic(side, topic)
    return {
        **numbers,
        "MB/s": numbers["bytes"] / 1e6 / numbers["seconds"],
        "records/s": numbers["records"] / numbers["seconds"],
        "broker CPU-s/GB": used / (numbers["bytes"] / GB),
    }


def librdkafka(records: int, size: int, codec: str) -> Callable[[Side], Mapping[str, float]]:
    settings = {"compression.type": codec}
    return lambda side: measured(
        side, "librdkafka_produce", records=records, size=size, settings=settings
    )


def packed(requests: int, size: int, codec: str) -> Callable[[Side], Mapping[str, float]]:
    return lambda side: measured(
        side, "raw_produce", requests=requests, size=size, records=500_000 // size, codec=codec
    )


def rows(share: int) -> list[harness.Row]:
    details = ("records/s", "broker CPU-s/GB")
    plain = [
        harness.Row(
            f"produce {size} B, librdkafka, acks=1",
            librdkafka(megabytes * 1_000_000 // size // share, size, "none"),
            "MB/s",
            "",
            "at least 1.0x, aim 1.5x",
            details=details,
        )
        for size, megabytes in ((100, 300), (1000, 900))
    ]
    compressed = [
        harness.Row(
            f"produce 1000 B, {codec}, librdkafka, acks=1",
            librdkafka(900_000 // share, 1000, codec),
            "MB/s",
            "",
            "1.0x",
            details=details,
        )
        for codec in ("lz4", "zstd")
    ]
    bare = [
        harness.Row(
            f"produce {size} B, {codec}, packed beforehand in 500 kB",
            packed(3000 // share, size, codec),
            "MB/s",
            "",
            "what the broker can: no client in the way",
            details=details,
        )
        for size, codec in ((100, "none"), (1000, "none"), (1000, "lz4"), (1000, "zstd"))
    ]
    return [*plain, *compressed, *bare]


def main() -> None:
    asked = harness.options(__doc__ or "")
    harness.require_peer()
    harness.machine()
    with harness.both_sides(asked) as sides:
        for row in rows(3 if asked.quick else 1):
            harness.compare(row, sides, asked)


if __name__ == "__main__":
    main()
