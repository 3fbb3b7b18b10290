"""How long does a broker take to open many partitions (3,500, KIP-33's example) after a clean stop?

Every partition holds a segment with a few records. Timed from the command to an acknowledged record
in the last partition.
"""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench import harness
from bench.sides import SIDES, Side
from bench.start import not_running, start

TOPIC = "many"
PARTITIONS = 3500


def fill(side: Side, partitions: int) -> None:
    """One topic with that many partitions, ten records in each."""
    from confluent_kafka import Producer  # noqa: PLC0415 - not needed to measure
    from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415

    admin = AdminClient({"bootstrap.servers": side.bootstrap, "log_level": 0})
    topic = NewTopic(TOPIC, partitions, 1, config={"retention.ms": "-1"})
    admin.create_topics([topic], request_timeout=120, operation_timeout=120)[TOPIC].result()
    producer = Producer(
        {"bootstrap.servers": side.bootstrap, "linger.ms": 1000, "acks": "1", "log_level": 0}
    )
    for partition in range(partitions):
        for _ in range(10):
            producer.produce(TOPIC, value=b"x" * 100, partition=partition)
        producer.poll(0)
    assert producer.flush(300) == 0


def main() -> None:
    asked = harness.options(__doc__ or "")
    harness.require_peer()
    harness.machine()
    partitions = PARTITIONS // 7 if asked.quick else PARTITIONS
    base = Path(tempfile.mkdtemp(prefix="horolog-bench-open-"))
    try:
        for name in asked.names:
            with SIDES[name](directory=base / name) as side:
                fill(side, partitions)
        taken: dict[str, list[Mapping[str, float]]] = {name: [] for name in asked.names}
        for _ in range(asked.runs):
            for name in asked.names:
                to = {"topic": TOPIC, "partition": partitions - 1, "idle_s": 0}
                taken[name].append(start(name, base / name, **to))
        row = harness.Row(
            f"open {partitions:,} partitions", not_running, "first ack s", "", "1.0x", False
        )
        harness.report(row, taken, dict.fromkeys(asked.names, ""), asked)
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
