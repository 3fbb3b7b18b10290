"""The `horolog` command. Exit codes: 0 success, 1 failure or problems found, 2 usage error.

Each command has a module of its name; `lazy` lists them, and imports one when it runs:
    serve, health, follow, promote     a broker
    storage    the log directory of a broker of a cluster
    topics (topic_cleaning), times, wait, groups (group_reset), history, lag, offsets, offline
    produce (lines, produce_tables, table_files), consume, sql (query_output), replay
    cut        the file of a cut; `as_of` has options of reads as of a time
    log        directories, without a broker: verifying, converting, compacting, log_times,
               log_screen
    retention  retention_simulate, retention_moving, retention_screen
    report, demo, and spark: the jobs, whose commands `jobs` makes
Modules that commands share:
    options, connecting, properties_files     options, and how outcomes become output
    terminal                                  the only module that prints text
    screen, showing, working, held_up         tables, records, progress
    output_file                               files that appear when they are complete
    log_lines                                 the broker's log output
    version                                   versions of what is installed
"""

import gc
import sys
from typing import Annotated

import typer

from horolog.cli.lazy import LazyGroup

app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="The log that tells time: a Kafka-compatible log, found and kept by timestamp.",
    epilog="Exit codes: 0 success, 1 failure or problems found, 2 usage error. "
    "Times: ISO 8601 (2026-11-20T09:00Z), epoch milliseconds, or relative (-15m, -2h, -7d).",
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from horolog.cli.terminal import echo  # noqa: PLC0415 - 20 ms for this alone
        from horolog.cli.version import version_lines  # noqa: PLC0415 - likewise

        echo(*version_lines())
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print versions."),
    ] = False,
) -> None:
    """Options before the command."""


def main() -> None:
    """Run the command line and exit the process with its exit code."""
    gc.disable()  # until the command is loaded: imports leave no garbage (lazy.py)
    try:
        app(prog_name="horolog")
    finally:
        # At exit the interpreter would collect garbage among all loaded modules. DuckDB complains
        # on standard error of what is then left of it.
        if "duckdb" not in sys.modules:
            gc.freeze()
