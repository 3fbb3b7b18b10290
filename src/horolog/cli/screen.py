"""Terminal output: tables and JSON on standard output, progress on standard error."""

import io
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from horolog.cli.terminal import echo, echo_json
from horolog.errors import escaped
from horolog.results import Aside, Outcome, Shown, plain

_WIDE = 4_096  # the width of a file or pipe, so that nothing is truncated
_BETWEEN = 3  # blanks, from column to column
_SAID_EVERY_S = 30.0
_LEAST_TEXT = 8  # of a text that is wrapped


class Advance(Protocol):
    """A callback that updates a progress bar."""

    def __call__(self, done: int) -> None:
        """Set the progress to `done` of the total."""


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; numbers are right-aligned and stay whole, `None` is a dash.

    In a terminal headings and texts are wrapped. In a terminal that is too narrow for that, each
    row is a block of lines.
    """
    cells = [["-" if cell is None else escaped(str(cell)) for cell in row] for row in rows]
    is_number = [any(isinstance(row[at], int) for row in rows) for at in range(len(columns))]
    console, widths = Console(highlight=False), None
    if sys.stdout.isatty():
        widths = _widths(columns, cells, is_number, console.width)
        if widths is None:
            _show_blocks(columns, cells)
            return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for at, column in enumerate(columns):
        table.add_column(
            column,
            justify="right" if is_number[at] else "left",
            overflow="fold",
            width=None if widths is None else widths[at],
        )
    for row in cells:
        table.add_row(*map(Text, row))
    if widths is not None:
        console.print(table)
        return
    text = io.StringIO()
    Console(file=text, highlight=False, width=_WIDE).print(table)
    for line in text.getvalue().splitlines():
        echo(line.rstrip())


def _widths(
    columns: Sequence[str], cells: Sequence[Sequence[str]], is_number: Sequence[bool], width: int
) -> list[int] | None:
    """Return column widths that keep numbers and words of headings whole; None if impossible."""
    widest = [max(map(cell_len, column), default=0) for column in zip(*cells, strict=True)]
    widest = widest or [0] * len(columns)
    words = [max(map(cell_len, column.split()), default=0) for column in columns]
    chosen = [
        max(cell_len(column), cell_width)
        for column, cell_width in zip(columns, widest, strict=True)
    ]
    least = [
        max(word, cell_width if number else min(cell_width, _LEAST_TEXT))
        for word, cell_width, number in zip(words, widest, is_number, strict=True)
    ]
    excess = sum(chosen) + _BETWEEN * (len(columns) - 1) - width
    while excess > 0:
        at = max(range(len(columns)), key=lambda at: chosen[at] - least[at])
        if chosen[at] == least[at]:
            return None
        chosen[at] -= 1
        excess -= 1
    return chosen


def _show_blocks(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    indent = max(map(cell_len, columns)) + _BETWEEN
    for number, row in enumerate(cells):
        if number:
            echo()
        for column, cell in zip(columns, row, strict=True):
            echo(f"{column}{' ' * (indent - cell_len(column))}{cell}")


def show(result: object, lines: Iterable[Shown], *, as_json: bool) -> None:
    """Print a result as JSON on one line, or its lines and tables; asides in both cases."""
    if as_json:
        echo_json(plain(result))
    for line in lines:
        if isinstance(line, Aside):
            say(line)
        elif as_json:
            continue
        elif isinstance(line, str):
            echo(line)
        else:
            show_table(line.headings, line.rows)


def show_outcome(outcome: Outcome, *, as_json: bool) -> None:
    """Print an outcome as JSON, or for people.

    Raises:
        typer.Exit: with code 1 if something is wrong.
    """
    show(outcome.to_json(), outcome.lines(), as_json=as_json)
    if not outcome.is_ok:
        raise typer.Exit(1)


def say(*lines: str) -> None:
    """Print a message to standard error, apart from the command's output."""
    echo(*lines, err=True)


class _Said(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


@contextmanager
def saying_warnings() -> Iterator[None]:
    """Print logged warnings to standard error, without the names of modules."""
    logger, handler = logging.getLogger("horolog"), _Said(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def progress(what: str, total: int, unit: str = "") -> Iterator[Advance]:
    """Show a progress bar on standard error, if that is a terminal.

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
        task = bar.add_task(escape(escaped(what)), total=total)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def waiting(what: str) -> Iterator[Callable[[object], None]]:
    """Show what is waited for on standard error, given the state of it.

    A terminal shows it at once; other outputs get a line each half minute.
    """
    if sys.stderr.isatty():
        with Console(stderr=True).status(escape(escaped(what))) as status:
            yield lambda state: status.update(escape(escaped(f"{what}: {state}")))
        return
    said_at = time.monotonic()

    def note(state: object) -> None:
        nonlocal said_at
        if time.monotonic() - said_at >= _SAID_EVERY_S:
            said_at = time.monotonic()
            say(f"{what}: {state}")

    yield note


def sent(topic: str, records: int, offsets: Mapping[int, tuple[int, int]]) -> str:
    """Return the sentence that counts the sent records, with their offsets."""
    places = ", ".join(
        f"partition {number} offsets {first} to {last}"
        for number, (first, last) in sorted(offsets.items())
    )
    words = f"sent {records:,} record{'' if records == 1 else 's'} to {topic}"
    return f"{words}: {places}" if places else words
