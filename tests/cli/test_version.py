"""`horolog --version` tells what is installed, and what an extra would add."""

import json
import platform
import subprocess
import sys
from importlib.metadata import version

import pytest
from command_runner import Run

from horolog import __version__

_WITHOUT = """
import importlib.metadata as metadata, json, sys
named, *hidden = json.loads(sys.argv.pop())
found = metadata.Distribution.from_name
def from_name(name):
    if name in named + hidden:
        raise metadata.PackageNotFoundError(name)
    return found(name)
metadata.Distribution.from_name = from_name
sys.modules.update(dict.fromkeys(hidden))
sys.argv = ["horolog", "--version"]
from horolog.cli import main
try: main()
finally: print([name for name in sys.modules if name in
    ("numba", "numpy", "pyarrow", "polars", "duckdb", "pyspark", "cramjam", "rich", "asyncio")
    and sys.modules[name]])
"""


def without(*hidden: str, metadata_of: tuple[str, ...] = ()) -> tuple[dict[str, str], str]:
    """Return the rows where packages are hidden, and the large modules that were imported."""
    code = [sys.executable, "-c", _WITHOUT, json.dumps([list(metadata_of), *hidden])]
    done = subprocess.run(code, check=True, capture_output=True, text=True)
    *lines, imported = done.stdout.splitlines()
    return {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}, imported


def test_the_first_line_is_the_version_of_horolog(offline: Run) -> None:
    first, *rows = offline("--version").lines
    assert first == f"horolog {__version__}"
    assert rows[0].startswith(f"python  {platform.python_version()} (")
    assert f"zstd (zstandard {version('zstandard')})" in rows[1]


def test_what_is_installed_has_its_version_and_is_not_imported() -> None:
    rows, imported = without()
    assert imported == "[]"
    assert rows["pyarrow"] == version("pyarrow")
    names = {"horolog", "python", "codecs", "numba", "uvloop", "pyarrow", "polars", "duckdb"}
    assert set(rows) == names | {"pyspark"}


@pytest.mark.parametrize(
    ("package", "extra"),
    [
        ("numba", "fast"),
        ("uvloop", "uvloop"),
        ("pyarrow", "arrow"),
        ("polars", "polars"),
        ("duckdb", "sql"),
        ("pyspark", "spark"),
    ],
)
def test_what_is_not_installed_has_its_cost_and_its_extra(package: str, extra: str) -> None:
    rows, _ = without(package)
    assert rows[package].startswith("not installed: ")
    assert rows[package].endswith(f"pip install 'horolog[{extra}]'")


def test_a_package_without_metadata_is_there() -> None:
    """PySpark of a Spark that was unpacked onto the path."""
    rows, _ = without(metadata_of=("pyspark",))
    assert rows["pyspark"] == "of unknown version"
