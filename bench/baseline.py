"""Which figures did a run take? python -m bench.baseline RESULTS prints the table of BASELINE.md.

RESULTS is what the other benchmarks wrote with --json RESULTS.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.sides import HOROLOG, KAFKA

HIGHER = {"MB/s", "requests/s", "lookups/s", "records/s", "rows"}
COLUMNS = ("work", "figure", KAFKA, HOROLOG, "ratio", "CPU-s/GB beside", "CPU-s/GB", "pace")


def rows(results: Path) -> Iterator[tuple[str, ...]]:
    for line in results.read_text().splitlines():
        taken: dict[str, Any] = json.loads(line)
        medians, figure = taken["medians"], taken["figure"]
        theirs, ours = medians.get(KAFKA, {}), medians.get(HOROLOG, {})
        ratio = ""
        if theirs and ours:
            times = ours[figure] / theirs[figure]
            ratio = f"{times if figure in HIGHER else 1 / times:.2f}x"
        cost = "broker CPU-s/GB"
        busiest = [side["client_busiest"] for side in (theirs, ours) if "client_busiest" in side]
        yield (
            taken["work"],
            figure,
            _said(theirs.get(figure)),
            _said(ours.get(figure)),
            ratio,
            _said(theirs.get(cost)) if figure == "MB/s" else "",
            _said(ours.get(cost)) if figure == "MB/s" else "",
            "client" if busiest and max(busiest) > 0.85 else "",
        )


def _said(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


if __name__ == "__main__":
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    for row in rows(Path(sys.argv[1])):
        print("| " + " | ".join(row) + " |")
