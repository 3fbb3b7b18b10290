"""Terminal output: tables and JSON on standard output, progress on standard error."""

import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

_WIDE = 4_096  # the width of a file or pipe, so that nothing is truncated


class Advance(Protocol):
    """A callback that updates a progress bar."""

    def __call__(self, done: int) -> None:
        """Set the progress to `done` of the total."""


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; numbers are right-aligned, `None` is a dash."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, column in enumerate(columns):
        numbers = any(isinstance(row[index], int) for row in rows)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))
    if sys.stdout.isatty():
        Console(highlight=False).print(table)
        return
    text = io.StringIO()
    Console(file=text, highlight=False, width=_WIDE).print(table)
    for line in text.getvalue().splitlines():
        typer.echo(line.rstrip())


def show_json(value: Any) -> None:
    """Print a value on one line."""
    typer.echo(json.dumps(value, ensure_ascii=False))


def say(text: str) -> None:
    """Print a message to standard error, apart from the command's output."""
    typer.echo(text, err=True)


@contextmanager
def progress(what: str, total: int, unit: str = "") -> Iterator[Advance]:
    """A progress bar on standard error if that is a terminal.

    Do not use it while results are printed to the same terminal.
    """
    if not sys.stderr.isatty() or sys.stdout.isatty() or total <= 0:
        yield lambda done: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(f"{{task.completed:,.0f}}/{{task.total:,.0f}} {unit}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


def size(count: int) -> str:
    """Format a size in bytes with a unit."""
    amount, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 1000 and len(units) > 1:
        amount /= 1000
        units.pop(0)
    return f"{amount:.0f} {units[0]}" if units[0] == "B" else f"{amount:.1f} {units[0]}"
