"""Sizes of installations: each extra has its row, and the base stays small."""

from collections import Counter
from pathlib import Path

import pytest
from tools import sizes


def rows() -> dict[str, int]:
    text = sizes.PAGE.read_text().partition(sizes.BEGIN)[2].partition(sizes.END)[0]
    cells = [line.split(" | ") for line in text.splitlines() if line.startswith("| `horolog")]
    return {name.strip("| `"): int(size) for name, size, _ in cells}


def test_the_base_and_each_extra_have_a_row_and_the_base_is_within_its_limit() -> None:
    found = rows()
    assert list(found) == ["horolog", *(f"horolog[{extra}]" for extra in sizes.extras())]
    assert found["horolog"] < sizes.BASE_LIMIT_MB
    assert min(found.values()) == found["horolog"]


def test_files_count_for_the_package_whose_folder_has_them(tmp_path: Path) -> None:
    for name, size in {
        "numpy/core/a.so": 30,
        "numpy/__pycache__/b.pyc": 4,
        "numpy.libs/c.so": 500,
        "numpy-2.4.6.dist-info/RECORD": 6,
        "_duckdb.cpython-311.so": 7,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    assert sizes.sizes(tmp_path) == Counter(numpy=540, duckdb=7)


def test_the_table_is_in_millions_of_bytes_with_the_largest_packages_first() -> None:
    found = Counter(a=1_000_000, b=2_600_000, c=400_000, d=1, e=0)
    assert list(sizes.table([("", found), ("fast", found)]))[2:] == [
        "| `horolog` | 4 | b 3, a 1, c 0, d 0 |",
        "| `horolog[fast]` | 4 | b 3, a 1, c 0, d 0 |",
    ]


def test_only_the_text_between_the_markers_changes() -> None:
    page = f"before\n{sizes.BEGIN}\nold\n{sizes.END}\nafter\n"
    new = sizes.written(page, ["new"])
    assert new == f"before\n{sizes.BEGIN}\n\nnew\n\n{sizes.END}\nafter\n"
    assert sizes.written(new, ["new"]) == new
    with pytest.raises(SystemExit, match="has no lines"):
        sizes.written("before\nafter\n", ["new"])
