"""Which figures did a run take? python -m bench.baseline RESULTS prints the table of BASELINE.md.

RESULTS is what the other benchmarks wrote with --json RESULTS.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.harness import BUSY_THREAD, best, ratio, said
from bench.sides import HOROLOG, KAFKA

COLUMNS = ("work", "figure", KAFKA, HOROLOG, "ratio", "CPU-s/GB beside", "CPU-s/GB", "pace")


def rows(results: Path) -> Iterator[tuple[str, ...]]:
    for line in results.read_text().splitlines():
        taken: dict[str, Any] = json.loads(line)
        medians, figure = taken["medians"], taken["figure"]
        ours = medians.pop(HOROLOG, {})
        theirs = medians[best(list(medians), medians, figure)] if medians else {}
        times = f"{ratio(ours, theirs, figure):.2f}x" if theirs and ours else ""
        cost = "broker CPU-s/GB"
        busiest = [side["client_busiest"] for side in (theirs, ours) if "client_busiest" in side]
        yield (
            taken["work"],
            figure,
            _said(theirs.get(figure)),
            _said(ours.get(figure)),
            times,
            _said(theirs.get(cost)) if figure == "MB/s" else "",
            _said(ours.get(cost)) if figure == "MB/s" else "",
            "client" if busiest and max(busiest) > BUSY_THREAD else "",
        )


def _said(number: float | None) -> str:
    return "" if number is None else said(number)


if __name__ == "__main__":
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    for row in rows(Path(sys.argv[1])):
        print("| " + " | ".join(row) + " |")
