"""What does a broker cost without numba (`horolog[fast]`)? CPU time with it, and without.

Each case runs in processes of its own: one that compiles the kernels for this processor, one that
compiles them for any of its architecture, as the container image does, and one in which numba
cannot be imported. Requests are fed to a broker from memory, as in `bench.request_cost`. The log
that is compacted has ten records for each key.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

RECORDS = 1_000
VALUE_BYTES = 100
WORTH_SECONDS = 0.5

Times = dict[str, float]


def _best(work: Callable[[], object], runs: int) -> float:
    """CPU seconds of the best of some runs, each of which repeats the work."""
    work()
    best, count = float("inf"), 1
    for _ in range(runs):
        before = time.process_time()
        for _ in range(count):
            work()
        taken = time.process_time() - before
        best = min(best, taken / count)
        count = max(1, int(WORTH_SECONDS / runs / best))
    return best


async def _requests(runs: int) -> Times:
    """Microseconds of a record that is produced or found."""
    from bench import raw
    from bench.clients import T0_MS, batch_of
    from bench.request_cost import Client, served

    found = {}
    async with served() as service:
        client = Client(service)

        async def cost(api: tuple[int, int], body: bytes) -> float:
            best = float("inf")
            for _ in range(runs):
                before = time.process_time()
                for _ in range(100):
                    client.send(api, body)
                    await client.answer()
                best = min(best, (time.process_time() - before) / 100)
            return 1e6 * best

        for records in 1, RECORDS:
            topic = f"records-{records}"
            await service.broker.controller.ensure_topic(topic)
            body = raw.produce_request(topic, batch_of(VALUE_BYTES, records))
            found[f"produce: us a request of {records:,} x 100 B"] = await cost(raw.PRODUCE, body)
        body = raw.list_offsets_request(f"records-{RECORDS}", T0_MS + RECORDS // 2)
        found[f"fetch by time: us a lookup in {RECORDS:,} records"] = await cost(
            raw.LIST_OFFSETS, body
        )
        client.close()
    return found


def _write_keys(directory: Path, batches: int) -> None:
    from horolog.record.builder import LogRecord, build_batch

    dice, offset = random.Random(1), 0
    directory.mkdir()
    for base in range(0, batches * RECORDS, batches * RECORDS // 4):
        with (directory / f"{base:020}.log").open("wb") as log:
            while offset < base + batches * RECORDS // 4:
                keys = [b"%010d" % dice.randrange(batches * RECORDS // 10) for _ in range(RECORDS)]
                rows = [LogRecord(1_000_000, key, bytes(82)) for key in keys]
                log.write(build_batch(rows, base_offset=offset))
                offset += RECORDS


def _cleaning(batches: int) -> Times:
    """Microseconds of a record that is compacted."""
    from horolog.record.kernels.loading import CLEANING_KERNELS, SCAN_KERNELS
    from horolog.storage.offline.compacting import Compaction
    from horolog.storage.verify import find_target

    CLEANING_KERNELS.load()
    SCAN_KERNELS.load()
    with tempfile.TemporaryDirectory() as home:
        directory = Path(home) / "t-0"
        _write_keys(directory, batches)
        compaction = Compaction(find_target(directory), now_ms=2_000_000, dry_run=True)
        before = time.process_time()
        for _ in compaction.steps():
            pass
        taken = time.process_time() - before
    return {"cleaning: us a record": 1e6 * taken / (batches * RECORDS)}


def _reading(runs: int) -> Times:
    """Microseconds of a record that is read into Arrow columns."""
    from bench.clients import batch_of

    from horolog.record.columns import decode
    from horolog.record.kernels.loading import COLUMN_KERNELS

    COLUMN_KERNELS.load()
    batch = batch_of(VALUE_BYTES, RECORDS)
    taken = _best(lambda: sum(table.num_rows for table in decode(batch)), runs)
    return {"reading into Arrow: us a record": 1e6 * taken / RECORDS}


def measure(runs: int, batches: int) -> Times:
    found = asyncio.run(_requests(runs)) | _cleaning(batches)
    try:
        return found | _reading(runs)
    except ImportError:
        return found  # without pyarrow


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--batches", type=int, default=40, help="that are compacted")
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    parser.add_argument("--measure", choices=("with", "without"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure is not None:
        if asked.measure == "without":
            sys.modules["numba"] = None  # type: ignore[assignment]
        print(json.dumps(measure(asked.runs, asked.batches)))
        return
    size = ["--runs", "2", "--batches", "8"] if asked.quick else []
    size = size or ["--runs", str(asked.runs), "--batches", str(asked.batches)]
    told = []
    generic_code = {"NUMBA_CPU_NAME": "generic"}
    for way, environment in ("with", {}), ("with", generic_code), ("without", {}):
        command = [sys.executable, "-m", "bench.without_numba", "--measure", way, *size]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env={**os.environ, **environment}
        )
        told.append(json.loads(done.stdout))
    compiled, generic, plain = told
    print(f"{'CPU time':48} {'with':>10} {'generic':>10} {'without':>10} {'times':>6}")
    for name, took in compiled.items():
        print(
            f"{name:48} {took:10.2f} {generic[name]:10.2f} {plain[name]:10.2f} "
            f"{plain[name] / took:6.1f}"
        )


if __name__ == "__main__":
    main()
