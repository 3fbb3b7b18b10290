"""The `horolog` command. Exit codes: 0 fine, 1 found something wrong, 2 misused."""

import gc
from typing import Annotated

import typer

from horolog.cli.lazy import LazyGroup

app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="The log that tells time: a Kafka-compatible log, found and kept by timestamp.",
    epilog="Exit codes: 0 fine, 1 found something wrong, 2 misused. "
    "Times: ISO-8601 (2026-11-20T09:00Z), epoch milliseconds, or relative (-15m, -2h, -7d).",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from horolog import __version__  # noqa: PLC0415

        typer.echo(f"horolog {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """What stands before any command."""


def main() -> None:
    """Run the command line; the process ends with its exit code."""
    gc.disable()  # until the command is loaded: nothing of that is garbage (lazy.py)
    try:
        app(prog_name="horolog")
    finally:
        # Leaving, the interpreter would look for garbage in everything that was ever loaded.
        gc.freeze()
