"""How fast does a broker take records one by one? Requests a second, median and p99.

`--floor` also measures a server that only writes requests to a file and answers them. `--poll-us 0`
shows what busy polling gives; Apache Kafka ignores that setting.
"""

import contextlib
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import harness
from bench.produce import measured
from bench.sides import Side, start, stop, wait_until_ready

CPU = "broker CPU-us/request"


def one_by_one(requests: int) -> harness.Measure:
    """One request at a time over one connection."""
    return lambda side: measured(side, "raw_latency", requests=requests, size=100)


def pipelined(requests: int) -> harness.Measure:
    """Five requests under way, a client that does nothing else."""
    packed = {"requests": requests, "size": 100, "records": 1, "codec": "none"}
    return lambda side: measured(side, "raw_produce", **packed)


def librdkafka(requests: int) -> harness.Measure:
    """The usual client, told to send every record at once."""
    settings = {"batch.num.messages": 1, "linger.ms": 0}

    def measure(side: Side) -> harness.Numbers:
        numbers = measured(
            side, "librdkafka_produce", records=requests, size=100, settings=settings
        )
        return {**numbers, "requests/s": numbers["records/s"]}

    return measure


@contextlib.contextmanager
def bare_server() -> Iterator[Side]:
    """A server that does next to nothing."""
    with tempfile.TemporaryDirectory() as directory:
        errors = Path(directory, "errors")
        command = [sys.executable, "-m", "bench.bare_server", str(Path(directory, "requests"))]
        process = start(command, errors)
        try:
            (address,) = wait_until_ready(process, errors)
            yield Side("bare", address, process.pid, "")
        finally:
            process.kill()
            stop(process)


def print_floor(share: int, runs: int) -> None:
    """The figures of that server, medians of runs."""
    with bare_server() as side:
        taken: dict[str, list[float]] = {"p50_ms": [], "p99_ms": [], "requests/s": []}
        asked = {"topic": "produce-", "size": 100}
        packed = {**asked, "records": 1, "codec": "none"}
        for run in range(runs + 1):
            alone = harness.run_client("raw_latency", side, requests=15_000 // share, **asked)
            many = harness.run_client("raw_produce", side, requests=150_000 // share, **packed)
            if run:  # the first is not counted
                for figure in ("p50_ms", "p99_ms"):
                    taken[figure].append(alone[figure])
                taken["requests/s"].append(many["requests/s"])
    print("\nunbatched, a server that only writes and answers")
    for figure, numbers in taken.items():
        spread = f"{min(numbers):,.3g}-{max(numbers):,.3g}"
        print(f"  {figure:14}{statistics.median(numbers):>24,.3g}{spread:>22}")


def main() -> None:
    parser = harness.parser_of(__doc__ or "")
    parser.add_argument("--floor", action="store_true", help="measure the bare server as well")
    parser.add_argument("--poll-us", type=int, default=100, help="horolog.busy.poll.us (100)")
    options = parser.parse_args()
    asked = harness.options_of(options)
    harness.require_peer()
    share = 3 if asked.quick else 1
    polling = {"horolog.busy.poll.us": str(options.poll_us)}
    many = 150_000 // share
    with harness.both_sides(asked, polling) as sides:
        rows = [
            harness.Row("unbatched, one at a time", figure, "1.2x", (CPU,))
            for figure in ("p50_ms", "p99_ms")
        ]
        harness.compare(one_by_one(15_000 // share), sides, asked, *rows)
        for work, measure in (("5 under way", pipelined), ("librdkafka", librdkafka)):
            row = harness.Row(f"unbatched, {work}", "requests/s", "1.5x")
            harness.compare(measure(many), sides, asked, row)
        if options.floor:
            print_floor(share, asked.runs)


if __name__ == "__main__":
    main()
