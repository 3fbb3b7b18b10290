"""Commands that are imported when they are run, so that `horolog --help` is quick.

Every command is a row of `COMMANDS`: a module with a `typer.Typer` called `app`, and the line
that the overview shows. An error that is not a bug ends here, in a sentence on
standard error and an exit code.
"""

import gc
import os
import sys
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


class Entry(NamedTuple):
    """Where a command lives, and what it is for."""

    module: str
    summary: str


COMMANDS = {
    "serve": Entry("horolog.cli.serve", "Run a broker in the foreground."),
    "topics": Entry("horolog.cli.topics", "List, create, describe, alter and delete topics."),
    "produce": Entry("horolog.cli.produce", "Send lines to a topic, with the times you give them."),
    "consume": Entry("horolog.cli.consume", "Print records: from a time, to a time, exactly."),
    "offsets": Entry("horolog.cli.offsets", "Find the offset of a moment, and say how."),
    "log": Entry("horolog.cli.log", "Look into, check and mend log directories, offline."),
    "demo": Entry("horolog.cli.demo", "See it all work, on a git repository's history."),
}


class LazyGroup(TyperGroup):
    """The root of all commands; imports one when it is run."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # Stand-ins that know no more than the overview needs.
        for name, entry in COMMANDS.items():
            self.commands[name] = TyperCommand(name=name, help=entry.summary)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the table."""
        return list(COMMANDS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command itself; an unknown name is refused with the likely one."""
        name, stand_in, rest = super().resolve_command(ctx, args)
        if stand_in is None:
            return name, stand_in, rest
        command = load_command(str(name))
        gc.enable()
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run; errors become sentences and exit codes."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader has seen enough, as in `horolog consume | head`
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for the flush at exit
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except Exception as error:
            code = exit_code(error)
            if code is None:
                raise
            typer.echo(f"horolog: {error}", err=True)
            raise typer.Exit(code) from None


def load_command(name: str) -> Any:
    """The command as typer runs it."""
    command = typer.main.get_command(import_module(COMMANDS[name].module).app)
    command.name = name
    return command


def exit_code(error: Exception) -> int | None:
    """The code that tells this error; `None` for a bug, which keeps its traceback."""
    from horolog.errors import HorologError, Misconfigured  # noqa: PLC0415 - not for --help

    if isinstance(error, Misconfigured):
        return 2
    if isinstance(error, HorologError | OSError):
        return 1
    return None
