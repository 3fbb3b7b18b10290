"""Measure what installations take, and write the table into docs/dependencies.md (`make sizes`).

Each row is a new environment into which pip installs the wheel of `dist/` with the versions of
`constraints.txt`. Compiled modules are counted, as users have them, and pip itself is not.
"""

import datetime
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "dependencies.md"
BEGIN, END = "<!-- Written by `make sizes`. -->", "<!-- End of what `make sizes` writes. -->"
BASE_LIMIT_MB = 180
LARGEST = 4


def extras() -> list[str]:
    """Return the extras of users, in the order of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [name for name in project["optional-dependencies"] if name != "docs"]


def installed(wheel: Path, extra: str, place: Path) -> Counter[str]:
    """Install the wheel into a new environment; return bytes by package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    chosen = f"{wheel}[{extra}]" if extra else str(wheel)
    pip = [sys.executable, "-m", "pip", "--python", str(place), "install", "--quiet"]
    options = ["--constraint", str(ROOT / "constraints.txt"), "--disable-pip-version-check"]
    subprocess.run([*pip, *options, chosen], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    return sizes(packages)


def sizes(packages: Path) -> Counter[str]:
    """Return the bytes of files in a folder of packages, by package."""
    found: Counter[str] = Counter()
    for path in packages.rglob("*"):
        if path.is_file():
            first = path.relative_to(packages).parts[0]
            found[re.split(r"[-.]", first)[0].lstrip("_")] += path.lstat().st_size
    return found


def table(rows: Iterable[tuple[str, Counter[str]]]) -> Iterator[str]:
    """Yield the lines of the table, in megabytes of a million bytes."""
    yield "| `pip install` | MB | largest packages |"
    yield "|---|---|---|"
    for extra, found in rows:
        name = f"horolog[{extra}]" if extra else "horolog"
        largest = (f"{package} {megabytes(size)}" for package, size in found.most_common(LARGEST))
        yield f"| `{name}` | {megabytes(found.total())} | {', '.join(largest)} |"


def megabytes(size: int) -> int:
    """Return millions of bytes, rounded."""
    return round(size / 1e6)


def written(page: str, lines: Iterable[str]) -> str:
    """Return a page with other lines between the markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE.name} has no lines {BEGIN} and {END}: write them")
    return "\n".join([before + begin, "", *lines, "", end + after])


def main() -> int:
    wheels = list((ROOT / "dist").glob("horolog-*.whl"))
    if len(wheels) != 1:
        raise SystemExit("dist/ has to contain one wheel: run make release")
    rows: list[tuple[str, Counter[str]]] = []
    for extra in ["", *extras()]:
        with tempfile.TemporaryDirectory(prefix="horolog-sizes-") as place:
            rows.append((extra, installed(wheels[0], extra, Path(place))))
        print(*list(table(rows[-1:]))[2:], flush=True)
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    today = datetime.datetime.now(datetime.UTC).date()
    caption = f"Measured on {system}, {today}:"
    PAGE.write_text(written(PAGE.read_text(), [caption, "", *table(rows)]))
    base = megabytes(rows[0][1].total())
    if base >= BASE_LIMIT_MB:
        print(f"the base takes {base} MB, its limit is {BASE_LIMIT_MB}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except subprocess.CalledProcessError as error:
        sys.exit(f"no sizes: {error}")
