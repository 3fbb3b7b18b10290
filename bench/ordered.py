"""What does an order by time cost? `scan(..., order=...)` beside the same read without order.

100 MB of records of 100 bytes in four partitions, each up to a minute late, so that neighbouring
batches overlap in time; from the files of a log and from its broker. The peak of memory is that of
the process, measured in a process for each read.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from horolog.client import Client
from horolog.record import LogRecord, build_batch
from horolog.record.scan import load_kernels
from horolog.sources import scan
from horolog.testing import Broker

PARTITIONS, SIZE, IN_BATCH = 4, 100, 500
T0_MS = 1_772_323_200_000
LATE_MS = 60_000


def write(directory: Path, megabytes: int) -> None:
    """Write the log."""
    chosen = random.Random(1)
    batches = megabytes * 1_000_000 // SIZE // IN_BATCH
    settings = {"log.retention.ms": -1, "log.segment.bytes": 64 << 20}
    with Broker(settings, log_dir=directory) as broker:
        broker.create_topic("late", partitions=PARTITIONS)
        with Client(broker.bootstrap_servers) as client:
            for number in range(batches):
                now_ms = T0_MS + number * 50
                records = [
                    LogRecord(now_ms - chosen.randrange(LATE_MS), None, chosen.randbytes(SIZE))
                    for _ in range(IN_BATCH)
                ]
                client.produce("late", number % PARTITIONS, build_batch(records))


def read(source: str, order: str | None) -> None:
    """Read once, and print the seconds, the records and the peak of memory in MB."""
    load_kernels()
    begun = time.perf_counter()
    records = sum(batch.num_rows for batch in scan(source, "late", order=order))
    took = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": took, "records": records, "peak": peak}))


def measured(source: str, order: str | None) -> dict[str, float]:
    """The figures of one read, in a process of its own."""
    command = [sys.executable, "-m", "bench.ordered", "--read", source, "--order", order or ""]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--read", help=argparse.SUPPRESS)
    parser.add_argument("--order", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.read:
        read(asked.read, asked.order or None)
        return
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write(directory, asked.megabytes)
        compare("files", str(directory), asked.runs)
        with Broker({"log.retention.ms": -1}, log_dir=directory) as broker:
            compare("broker", broker.bootstrap_servers, asked.runs)


def compare(what: str, source: str, runs: int) -> None:
    """Read in turns, and print the medians and the spread of the ratio."""
    pairs = [(measured(source, None), measured(source, "create_time")) for _ in range(runs)]
    ratios = sorted(plain["seconds"] / ordered["seconds"] for plain, ordered in pairs)
    plain, ordered = pairs[0]
    assert plain["records"] == ordered["records"]
    extra = max(ordered["peak"] - plain["peak"] for plain, ordered in pairs)
    print(
        f"{what}: in order at {ratios[len(ratios) // 2]:.2f} of the speed without "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f}); {extra:.0f} MB more at the peak"
    )


if __name__ == "__main__":
    main()
