"""Tables as a terminal of 80 columns and a pipe show them."""

import os
import pty
import subprocess
import sys
from contextlib import nullcontext

import pytest
import typer

from horolog.cli.screen import show_outcome
from horolog.results import Answer, Aside

COLUMNS = ["topic", "compared with", "records", "microseconds", "nanoseconds", "before 1970"]
LONG = "clicks-of-a-region"


def shown(columns: list[str], rows: list[list[object]]) -> list[str]:
    """What a terminal of 80 columns shows, line by line."""
    primary, secondary = pty.openpty()
    source = f"from horolog.cli.screen import show_table; show_table({columns!r}, {rows!r})"
    environment = {**os.environ, "COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}
    subprocess.run([sys.executable, "-c", source], stdout=secondary, env=environment, check=True)
    os.close(secondary)
    found = b""
    try:
        while some := os.read(primary, 65_536):
            found += some
    except OSError:  # all was read
        pass
    os.close(primary)
    return found.decode().splitlines()


def test_a_wide_table_wraps_headings_and_texts_and_keeps_numbers_whole() -> None:
    lines = shown(COLUMNS, [[LONG, "append time", 1_200_000, 12_345_678, 0, None]])
    assert all(len(line) <= 80 for line in lines)
    assert any("1200000" in line for line in lines)
    assert any("12345678" in line for line in lines)
    assert any("microseconds" in line and "nanoseconds" in line for line in lines)


@pytest.mark.parametrize("count", [1, 2])
def test_a_row_that_does_not_fit_is_a_block_of_lines(count: int) -> None:
    columns = [*COLUMNS, "out of order", "seconds", "late by (ms)"]
    row = [LONG, "append time", *range(1_200_000_000_000, 1_200_000_000_007)]
    lines = shown(columns, [row] * count)
    assert all(len(line) <= 80 for line in lines)
    assert lines.count("nanoseconds     1200000000002") == count
    assert lines.count("") == count - 1


def test_a_pipe_has_each_row_on_a_line() -> None:
    source = (
        f"from horolog.cli.screen import show_table; show_table({COLUMNS!r}, [[{LONG * 9!r}] * 6])"
    )
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1].split() == [LONG * 9] * 6


@pytest.mark.parametrize("is_ok", [True, False])
@pytest.mark.parametrize("as_json", [True, False])
def test_asides_of_an_outcome_are_on_standard_error_beside_either_form(
    capsys: pytest.CaptureFixture[str], is_ok: bool, as_json: bool
) -> None:
    answer = Answer({"count": 1}, ["one", Aside("two is offline")], is_ok)
    with nullcontext() if is_ok else pytest.raises(typer.Exit) as exited:
        show_outcome(answer, as_json=as_json)
    assert exited is None or exited.value.exit_code == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ('{"count": 1}\n' if as_json else "one\n", "two is offline\n")
