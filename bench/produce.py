"""How fast does a broker take records? 100 B and 1 kB, plain and compressed, acks=1."""

import itertools
from collections.abc import Iterator

from bench import harness
from bench.sides import Side, create_topic, delete_topic

_numbers = itertools.count()


def measured(side: Side, client: str, **arguments: object) -> harness.Numbers:
    """Run one client on a fresh topic; what it did a second, and what that cost the broker."""
    topic = f"produce-{next(_numbers)}"
    create_topic(side, topic)
    numbers = harness.run_client(client, side, topic=topic, **arguments)
    delete_topic(side, topic)
    return numbers


def librdkafka(records: int, size: int, codec: str) -> harness.Measure:
    settings = {"compression.type": codec}
    return lambda side: measured(
        side, "librdkafka_produce", records=records, size=size, settings=settings
    )


def packed(requests: int, size: int, codec: str) -> harness.Measure:
    return lambda side: measured(
        side, "raw_produce", requests=requests, size=size, records=500_000 // size, codec=codec
    )


def works(share: int) -> Iterator[tuple[str, str, harness.Measure]]:
    """What is done, the ratio to reach, and the measurement."""
    for size, megabytes in ((100, 300), (1000, 900)):
        client = librdkafka(megabytes * 1_000_000 // size // share, size, "none")
        yield f"produce {size} B, librdkafka, acks=1", "at least 1.0x, aim 1.5x", client
    for codec in ("lz4", "zstd"):
        client = librdkafka(900_000 // share, 1000, codec)
        yield f"produce 1000 B, {codec}, librdkafka, acks=1", "1.0x", client
    for size, codec in ((100, "none"), (1000, "none"), (1000, "lz4"), (1000, "zstd")):
        work = f"produce {size} B, {codec}, packed beforehand in 500 kB"
        client = packed(3000 // share, size, codec)
        yield work, "what the broker can: no client in the way", client


def main() -> None:
    asked = harness.options(__doc__ or "")
    harness.require_peer()
    with harness.both_sides(asked) as sides:
        for work, reach, measure in works(3 if asked.quick else 1):
            row = harness.Row(work, "MB/s", reach, ("records/s", "broker CPU-s/GB"))
            harness.compare(measure, sides, asked, row)


if __name__ == "__main__":
    main()
