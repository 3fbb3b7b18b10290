"""Telling a person what is being done, and how long it took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def step(console: Console, text: str) -> Iterator[None]:
    """A line that moves while its block runs and stays once it is done."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    began = time.monotonic()
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        progress.add_task(text, total=None)
        yield
    took = time.monotonic() - began
    console.print(f"[green]✓[/green] {text} ({took:.1f} s)", highlight=False)
