"""How much of a log does a range of 1 % of its time span read, and how long does that take?

A topic of records with real create times, out of order: `--times FILE` is a CSV, gzipped or not,
with a column `author_ms` in the order of the log. Without it times are made up: most in order, one
in ten late by up to a year. Ranges at the start, in the middle and at the end are read through a
broker and from its files, as Spark's tasks do it, late records included. No peer: Kafka's indexes
bound neither end of such a range.

The bound is what a map of blocks of 256 KiB by smallest and largest time cannot exclude: its bytes,
and that share of the time that a read of everything takes once it is planned, after the planning
that every query begins with. Reach: 3x of both.
"""

import argparse
import csv
import gzip
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from horolog.client import Client, Fetched
from horolog.client.fetching import PartitionFetch
from horolog.record import scan
from horolog.record.builder import LogRecord, build_batch
from horolog.record.kernels.loading import COLUMN_KERNELS
from horolog.sources import planning
from horolog.sources.options import ReadOptions
from horolog.sources.reading import read_task
from horolog.sources.row_filter import Interval, Numbers, RowFilter
from horolog.testing import Broker

TOPIC = "commits"
VALUE_BYTES = 600
PER_BATCH = 25
SHARE = 100  # the range is the span divided by this
BLOCK_BYTES = 256 << 10
REACH = 3.0
NAMES = ("offset", "timestampMs", "value")
PLACES = {"start": 0.0, "middle": 0.5, "end": 1.0 - 1.0 / SHARE}


class Read(NamedTuple):
    """One read of a range."""

    rows: int
    read_bytes: int
    seconds: float
    planned_s: float
    """How much of that went by before the first task began."""


def real_times(path: Path) -> list[int]:
    """The create times of a CSV, in the order of the log."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", newline="") as file:
        return [int(row["author_ms"]) for row in csv.DictReader(file)]


def made_up_times(count: int) -> list[int]:
    """Seconds of ten years, one in ten late."""
    rng = random.Random(7)
    step = 10 * 365 * 86_400_000 // count
    late = 365 * 86_400_000
    return [
        1_400_000_000_000 + n * step - (rng.randrange(late) if rng.random() < 0.1 else 0)
        for n in range(count)
    ]


def fill(broker: Broker, times: Sequence[int]) -> list[tuple[int, int, int]]:
    """Write the topic; size, smallest and largest time of each block that a map could have."""
    rng = random.Random(3)
    blocks: list[tuple[int, int, int]] = []
    size, inside = 0, []
    broker.create_topic(TOPIC, settings={"retention.ms": -1, "segment.ms": 1 << 62})
    with Client(broker.bootstrap_servers) as client:
        for start in range(0, len(times), PER_BATCH):
            some = times[start : start + PER_BATCH]
            batch = build_batch([LogRecord(t, None, rng.randbytes(VALUE_BYTES)) for t in some])
            client.produce(TOPIC, 0, batch)
            if size and size + len(batch) > BLOCK_BYTES:
                blocks.append((size, min(inside), max(inside)))
                size, inside = 0, []
            size += len(batch)
            inside += some
    return [*blocks, (size, min(inside), max(inside))]


def bytes_read() -> int:
    """What this process has read so far, from files and sockets."""
    with open("/proc/self/io") as file:
        return int(dict(line.split(": ") for line in file)["rchar"])


class Fetches:
    """Counts what fetches return: a broker in this process reads files, too."""

    def __init__(self) -> None:
        self.bytes = 0
        plain = PartitionFetch.read

        def read(request: PartitionFetch, body: object) -> Fetched:
            fetched = plain(request, body)
            self.bytes += len(fetched.records)
            return fetched

        PartitionFetch.read = read


def read(options: ReadOptions, row_filter: RowFilter, so_far: Callable[[], int]) -> Read:
    """Plan and read as Spark does, in one process."""
    before, started = so_far(), time.perf_counter()
    tasks = planning.tasks(options, row_filter, cores=1)
    planned = time.perf_counter() - started
    rows = sum(
        table.num_rows
        for task in tasks
        for table in read_task(task, row_filter, options, NAMES, [True] * len(NAMES))
    )
    return Read(rows, so_far() - before, time.perf_counter() - started, planned)


def median(reads: Sequence[Read]) -> Read:
    return Read(
        reads[0].rows,
        round(statistics.median(each.read_bytes for each in reads)),
        statistics.median(each.seconds for each in reads),
        statistics.median(each.planned_s for each in reads),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--records", type=int, default=103_000, help="of times that are made up")
    asked = parser.parse_args()
    times = real_times(asked.times) if asked.times else made_up_times(asked.records)
    low, span = min(times), max(times) - min(times)
    scan.load_kernels()
    COLUMN_KERNELS.load()
    worst = 0.0
    os.environ["HOROLOG_CACHE_DIR"] = ""
    with (
        tempfile.TemporaryDirectory(prefix="horolog-bench-") as log_dir,
        Broker(log_dir=log_dir) as broker,
    ):
        blocks = fill(broker, times)
        total = sum(size for size, _, _ in blocks)
        print(f"{len(times):,} records, {total / 1e6:.1f} MB, {len(blocks)} blocks")
        fetches = Fetches()
        servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        ways = {
            "broker": (
                ReadOptions.parse({**servers, "subscribe": TOPIC}),
                lambda: fetches.bytes,
            ),
            "files": (ReadOptions.parse({"path": log_dir}), bytes_read),
        }
        print("| from | range | rows | bound MB | read MB | ratio | bound ms | ms | ratio |")
        print("|---|---|---|---|---|---|---|---|---|")
        for way, (options, so_far) in ways.items():
            whole = median([read(options, RowFilter(), so_far) for _ in range(asked.runs)])
            for place, share in PLACES.items():
                first = low + int(span * share)
                last = first + span // SHARE
                interval = Interval(first, last - 1 if place != "end" else last)
                row_filter = RowFilter({"timestampMs": Numbers(interval)})
                found = median([read(options, row_filter, so_far) for _ in range(asked.runs)])
                expected = sum(each in interval for each in times)
                assert found.rows == expected, (found.rows, expected)
                bound = sum(
                    size
                    for size, smallest, largest in blocks
                    if smallest <= interval.last and largest >= interval.first
                )
                in_time = whole.planned_s + (whole.seconds - whole.planned_s) * bound / total
                ratios = found.read_bytes / bound, found.seconds / in_time
                worst = max(worst, *ratios)
                print(
                    f"| {way} | {place} | {found.rows:,} | {bound / 1e6:.2f} | "
                    f"{found.read_bytes / 1e6:.2f} | {ratios[0]:.2f} | "
                    f"{in_time * 1000:.1f} | {found.seconds * 1000:.1f} | {ratios[1]:.2f} |"
                )
    print(f"\nworst ratio {worst:.2f}, to reach {REACH}")


if __name__ == "__main__":
    main()
