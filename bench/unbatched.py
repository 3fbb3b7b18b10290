"""How fast does a broker take records one by one? Requests a second, median and p99.

`--floor` also measures a server that only writes requests to a file and answers them. `--poll-us 0`
shows what busy polling gives; Apache Kafka ignores that setting.
"""

import contextlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench import harness
from bench.produce import measured
from bench.sides import Side, stop, wait_until_ready

CPU = "broker CPU-us/request"


def latency(requests: int) -> Callable[[Side], Mapping[str, float]]:
    """One request at a time over one connection."""

    def measure(side: Side) -> Mapping[str, float]:
        used = side.cpu_s()
        numbers = _requests(measured(side, "raw_latency", requests=requests, size=100))
        return {**numbers, CPU: 1e6 * (side.cpu_s() - used) / requests}

    return measure


def pipelined(requests: int) -> Callable[[Side], Mapping[str, float]]:
    """Five requests under way, a client that does nothing else."""

    def measure(side: Side) -> Mapping[str, float]:
        return _requests(measured(side, "raw_produce", requests=requests, size=100, records=1))

    return measure


def librdkafka(requests: int) -> Callable[[Side], Mapping[str, float]]:
    """The usual client, told to send every record at once."""
    settings = {"batch.num.messages": 1, "linger.ms": 0}

    def measure(side: Side) -> Mapping[str, float]:
        return _requests(
            measured(side, "librdkafka_produce", records=requests, size=100, settings=settings)
        )

    return measure


def _requests(numbers: Mapping[str, float]) -> Mapping[str, float]:
    done = numbers.get("requests", numbers["records"])
    return {**numbers, "requests/s": done / numbers["seconds"]}


@contextlib.contextmanager
def bare_server() -> Iterator[str]:
    """The address of a server that does next to nothing."""
    with tempfile.TemporaryDirectory() as directory:
        errors = Path(directory, "errors")
        command = [sys.executable, "-m", "bench.bare_server", str(Path(directory, "requests"))]
        with errors.open("wb") as file:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=file, text=True, cwd=harness.ROOT
            )
        try:
            yield wait_until_ready(process, errors)
        finally:
            process.kill()
            stop(process)


def print_floor(share: int, runs: int) -> None:
    """The figures of that server, medians of runs."""
    with bare_server() as bootstrap:
        taken: dict[str, list[float]] = {"p50_ms": [], "p99_ms": [], "requests/s": []}
        asked = {"bootstrap": bootstrap, "topic": "produce-", "size": 100}
        for run in range(runs + 1):
            alone = harness.run_client("raw_latency", requests=15_000 // share, **asked)
            many = harness.run_client("raw_produce", requests=150_000 // share, records=1, **asked)
            if run:  # the first is not counted
                for figure in ("p50_ms", "p99_ms"):
                    taken[figure].append(alone[figure])
                taken["requests/s"].append(_requests(many)["requests/s"])
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
    harness.machine()
    share = 3 if asked.quick else 1
    polling = {"horolog.busy.poll.us": str(options.poll_us)}
    alone, many = latency(15_000 // share), 150_000 // share
    with harness.both_sides(asked, polling) as sides:
        taken = harness.take(alone, sides, asked)
        for figure in ("p50_ms", "p99_ms"):
            row = harness.Row(
                "unbatched, one at a time", alone, figure, "", "1.2x", False, details=(CPU,)
            )
            harness.report(row, taken, {side.name: side.version for side in sides}, asked)
        for work, measure in (("5 under way", pipelined), ("librdkafka", librdkafka)):
            row = harness.Row(f"unbatched, {work}", measure(many), "requests/s", "", "1.5x")
            harness.compare(row, sides, asked)
        if options.floor:
            print_floor(share, asked.runs)


if __name__ == "__main__":
    main()
