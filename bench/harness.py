"""How every benchmark is taken: both sides at once, in turns, the median of the turns, one table.

A measurement is a function of a side that gives named numbers. It first runs unmeasured on each
side for some seconds (a JVM is not itself before), then `runs` times on each in turns, so that
whatever else the machine does falls on both. The work of a client happens in a process of its own;
how busy its busiest thread was tells whether it, and not the broker, set the pace.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.sides import HOROLOG, KAFKA, SIDES, TICKS_PER_S, Side, tree_cpu_s
from tools.peers.kafka import NEWEST, NoPeer, jars

ROOT = Path(__file__).resolve().parents[1]
BUSY_THREAD = 0.85  # of a core: a client thread beyond this sets the pace

Numbers = Mapping[str, float]
Measure = Callable[[Side], Numbers]


@dataclass(frozen=True)
class Row:
    """One line of the design's table of figures."""

    work: str
    figure: str  # the number that the ratio is of
    reach: str  # as the design words it
    details: Sequence[str] = ()  # other numbers to print
    unit: str = ""


@dataclass
class Options:
    """What the command line asked for."""

    runs: int = 5
    quick: bool = False
    only: str | None = None
    results: list[dict[str, Any]] = field(default_factory=list)
    json_to: Path | None = None

    @property
    def warm_s(self) -> float:
        """How long each side runs before it is measured."""
        return 4 if self.quick else 12

    @property
    def names(self) -> list[str]:
        """The sides to run."""
        return [self.only] if self.only else [HOROLOG, KAFKA]


def options(about: str) -> Options:
    """Read the command line all benchmarks share."""
    return options_of(parser_of(about).parse_args())


def parser_of(about: str) -> argparse.ArgumentParser:
    """A parser of that command line, for benchmarks with options of their own."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="a third of the data, three runs")
    parser.add_argument("--runs", type=int, help="runs a side (5; with --quick 3)")
    parser.add_argument("--only", choices=[HOROLOG, KAFKA], help="one side: no ratio")
    parser.add_argument("--json", type=Path, help="append the medians to this file as JSON lines")
    return parser


def options_of(asked: argparse.Namespace) -> Options:
    """The options that all benchmarks share; prints what the table is taken on."""
    machine()
    return Options(
        runs=asked.runs or (3 if asked.quick else 5),
        quick=asked.quick,
        only=asked.only,
        json_to=asked.json,
    )


def require_peer() -> None:
    """End with "no peer" where Apache Kafka was not fetched: there is no table with one column."""
    try:
        jars(NEWEST)
    except NoPeer as missing:
        print(missing, file=sys.stderr)
        raise SystemExit(2) from None


@contextlib.contextmanager
def both_sides(
    asked: Options, settings: Mapping[str, str] | None = None, listeners: Sequence[str] = ()
) -> Iterator[list[Side]]:
    """The sides that were asked for, running, with listeners of further protocols."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(SIDES[name](settings, listeners=listeners)) for name in asked.names
        ]


def in_turns(
    sides: Mapping[str, Callable[[], Numbers]], asked: Options, *, cpu_of: Sequence[int] = ()
) -> dict[str, list[Numbers]]:
    """Where both sides use one broker: each once unmeasured, then all in turns.

    With `cpu_of`, processes, the numbers have `cpu_s` of them and of this process, with all that
    they started: on a machine that others use it says more than the time.
    """
    for side in sides.values():
        side()
    taken: dict[str, list[Numbers]] = {name: [] for name in sides}
    for _ in range(asked.runs):
        for name, side in sides.items():
            before = tree_cpu_s(os.getpid(), *cpu_of) if cpu_of else 0.0
            numbers = side()
            if cpu_of:
                used = tree_cpu_s(os.getpid(), *cpu_of) - before
                numbers = {**numbers, "cpu_s": used}
            taken[name].append(numbers)
    return taken


def compare(
    measure: Measure,
    sides: Sequence[Side],
    asked: Options,
    *rows: Row,
    warm_s: float | None = None,
) -> None:
    """Measure every side in turns, after so many seconds of warm-up, and print the rows."""
    taken: dict[str, list[Numbers]] = {side.name: [] for side in sides}
    for side in sides:
        warm = 0.0
        while warm < (asked.warm_s if warm_s is None else warm_s):
            warm += measure(side)["seconds"]
    for run in range(asked.runs):
        for side in sides if run % 2 else reversed(sides):
            taken[side.name].append(measure(side))
    for row in rows:
        report(row, taken, {side.name: side.version for side in sides}, asked)


def report(
    row: Row, taken: Mapping[str, Sequence[Numbers]], versions: Mapping[str, str], asked: Options
) -> None:
    """Print one row: medians, spread, details, and the ratio."""
    medians = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for name, runs in taken.items()
    }
    print(f"\n{row.work}   (reach: {row.reach})")
    print(f"  {'':14}{row.figure + ' ' + row.unit:>24}{'lowest-highest':>22}   details")
    for name, numbers in medians.items():
        figures = [run[row.figure] for run in taken[name]]
        spread = f"{said(min(figures))}-{said(max(figures))}"
        details = ", ".join(f"{key} {said(numbers[key])}" for key in row.details if key in numbers)
        print(f"  {name:14}{said(numbers[row.figure]):>24}{spread:>22}   {details}{_pace(numbers)}")
    ours, *peers = medians
    if peers:
        peer = best(peers, medians, row.figure)
        times = ratio(medians[ours], medians[peer], row.figure)
        beside = versions.get(peer) or peer
        print(f"  {'ratio':14}{times:>23.2f}x   (above 1: {ours} is ahead of {beside})")
    if asked.json_to:
        with asked.json_to.open("a") as file:
            line = {"work": row.work, "figure": row.figure, "unit": row.unit, "runs": asked.runs}
            file.write(json.dumps({**line, "versions": dict(versions), "medians": medians}) + "\n")


def best(names: Sequence[str], medians: Mapping[str, Numbers], figure: str) -> str:
    """The side with the best figure."""
    choose = max if is_higher_better(figure) else min
    return choose(names, key=lambda name: medians[name][figure])


def ratio(ours: Numbers, theirs: Numbers, figure: str) -> float:
    """How many times better a figure of ours is."""
    times = ours[figure] / theirs[figure]
    return times if is_higher_better(figure) else 1 / times


def is_higher_better(figure: str) -> bool:
    """Whether it is a rate; otherwise it is a time, or a size."""
    return figure.endswith("/s") or figure == "rows"


def said(number: float) -> str:
    """A number as tables have it."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def _pace(numbers: Numbers) -> str:
    """Who set the pace: the client when one of its threads had no time left."""
    if "client_busiest" not in numbers:
        return ""
    busiest = numbers["client_busiest"]
    limit = "; the client set the pace" if busiest >= BUSY_THREAD else ""
    return f"; client's busiest thread {busiest:.0%}{limit}"


def machine() -> None:
    """Print what the table was taken on."""
    model = "?"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    load = os.getloadavg()[0]
    print(
        f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, load {load:.1f} before the first run"
    )


# --- clients -------------------------------------------------------------------------------------


COUNTED = (
    "records",
    "requests",
    "lookups",
    "commits",
    "offsets",
    "connections",
    "logins",
    "heartbeats",
)


def run_client(name: str, side: Side, **arguments: Any) -> dict[str, float]:
    """Run a client of bench/clients.py at a broker, in a process of its own.

    To its numbers come what they are a second, and what they cost the broker.
    """
    before = side.cpu_s()
    given = json.dumps({"bootstrap": side.bootstrap, **arguments})
    done = subprocess.run(
        [sys.executable, "-m", "bench.clients", name, given],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"client {name} failed:\n{done.stderr[-3000:]}")
    numbers: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    used, seconds = side.cpu_s() - before, numbers["seconds"]
    for what in COUNTED:
        if what in numbers:
            numbers[f"{what}/s"] = numbers[what] / seconds
            numbers[f"broker CPU-us/{what[:-1]}"] = 1e6 * used / numbers[what]
    if "bytes" in numbers:
        numbers["MB/s"] = numbers["bytes"] / 1e6 / seconds
        numbers["broker CPU-s/GB"] = used / (numbers["bytes"] / 1e9)
    if "cpu_s" in numbers:
        numbers["client CPU-s/GB"] = numbers["cpu_s"] / (numbers["bytes"] / 1e9)
    return numbers


class Watch:
    """Seconds of work, and how busy this process's threads were in them."""

    def __init__(self) -> None:
        self._before = self._used()
        self._started = time.perf_counter()

    def numbers(self) -> dict[str, float]:
        """Stop."""
        seconds = time.perf_counter() - self._started
        used = self._used()
        busiest = max(used[thread] - self._before.get(thread, 0) for thread in used)
        return {"seconds": seconds, "client_busiest": busiest / seconds}

    @staticmethod
    def _used() -> dict[str, float]:
        used = {}
        for stat in Path("/proc/self/task").glob("*/stat"):
            with contextlib.suppress(OSError):  # a thread may end before, or while, it is read
                fields = stat.read_text().rpartition(")")[2].split()
                used[stat.parent.name] = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
        return used
