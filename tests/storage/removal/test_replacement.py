"""What says which segments take the place of which, and when it does not count."""

from __future__ import annotations

from pathlib import Path

import pytest
from storelogs import NOW, placed

from horolog.storage import (
    Files,
    Replacement,
    end_replacement,
    read_replacement,
    tidy,
    write_replacement,
)

FILES = Files()


def log(directory: Path, base: int, data: bytes, ending: str = "") -> None:
    (directory / f"{base:020d}.log{ending}").write_bytes(data)


def names_in(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = Replacement({0: 100, 5: (1 << 63) - 1}, (0, 3, 5, 1 << 40))
    assert read_replacement(FILES, str(tmp_path)) is None
    write_replacement(FILES, str(tmp_path), written)
    assert read_replacement(FILES, str(tmp_path)) == written
    end_replacement(FILES, str(tmp_path))
    assert names_in(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0\n",
        "1\n1\nold 5\n",
        "0\n2\nold 5\n",
        "0\n1\nold -5\n",
        "0\n1\nold ../x\n",
        "0\n1\nnew 5\n",
        "0\n1\nnew 5 1 2\n",
        "0\n1\nother 5\n",
        "0\n1\nold 99999999999999999999\n",
        "0\n1\nold \u0665\n",
        "\xff\xfe",
    ],
)
def test_anything_else_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "replaced-segments").write_text(text)
    assert read_replacement(FILES, str(tmp_path)) is None


def test_a_start_goes_on_though_the_new_segments_have_less(tmp_path: Path) -> None:
    log(tmp_path, 0, placed(0) + placed(1))
    log(tmp_path, 2, placed(2))
    log(tmp_path, 3, placed(3))
    log(tmp_path, 0, placed(1), ".swap")
    write_replacement(FILES, str(tmp_path), Replacement({0: len(placed(1))}, (0, 2)))
    tidied = tidy(FILES, str(tmp_path), keep=False, now_ms=NOW)
    assert tidied.warnings == []
    assert names_in(tmp_path) == [f"{0:020d}.log", f"{3:020d}.log"]
    assert (tmp_path / f"{0:020d}.log").read_bytes() == placed(1)


@pytest.mark.parametrize("ending", [".log.cleaned", ".timeindex.cleaned"])
def test_a_start_keeps_the_old_segments_while_one_file_does_not_count(
    tmp_path: Path, ending: str
) -> None:
    log(tmp_path, 0, placed(0) + placed(1))
    log(tmp_path, 2, placed(2))
    log(tmp_path, 0, placed(1), ".swap")
    (tmp_path / f"{0:020d}{ending}").write_bytes(b"")
    write_replacement(FILES, str(tmp_path), Replacement({0: len(placed(1))}, (0, 2)))
    tidy(FILES, str(tmp_path), keep=False, now_ms=NOW)
    assert names_in(tmp_path) == [f"{0:020d}.log", f"{2:020d}.log"]
    assert (tmp_path / f"{0:020d}.log").read_bytes() == placed(0) + placed(1)


def test_what_does_not_fit_any_more_deletes_nothing(tmp_path: Path) -> None:
    """Another broker has ended it since, and begun a compaction of its own."""
    log(tmp_path, 0, placed(1))
    log(tmp_path, 3, placed(3))
    log(tmp_path, 3, placed(3), ".swap")
    write_replacement(FILES, str(tmp_path), Replacement({0: len(placed(1))}, (0, 2, 3)))
    tidy(FILES, str(tmp_path), keep=False, now_ms=NOW)
    assert names_in(tmp_path) == [f"{0:020d}.log", f"{3:020d}.log"]
    assert (tmp_path / f"{3:020d}.log").read_bytes() == placed(3)
