"""Imports commands only when they run, so that `horolog --help` is fast.

Every command is a row of `COMMANDS`: a module with a `typer.Typer` called `app`, and its summary
for the overview. Errors that are not bugs are printed to standard error as a sentence, with an
exit code.
"""

import gc
import inspect
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


class Lazy(NamedTuple):
    """Row of a command: its module, whose `app` makes it, and its summary."""

    module: str
    summary: str


COMMANDS = {
    "serve": Lazy("horolog.cli.serve", "Run a broker in the foreground."),
    "topics": Lazy("horolog.cli.topics", "List, create, describe, alter and delete topics."),
    "produce": Lazy("horolog.cli.produce", "Send lines to a topic, with chosen timestamps."),
    "consume": Lazy("horolog.cli.consume", "Print records of a topic or files, or a time range."),
    "cut": Lazy("horolog.cli.cut", "Cut topics at an append time, to read as of that time."),
    "sql": Lazy("horolog.cli.sql", "Query topics or files with SQL, by DuckDB."),
    "replay": Lazy("horolog.cli.replay", "Send records on, merged by time, at their pace."),
    "times": Lazy("horolog.cli.times", "Show up to which time a topic is complete, and its times."),
    "wait": Lazy("horolog.cli.wait", "Wait until a topic is complete up to a time."),
    "offsets": Lazy("horolog.cli.offsets", "Find the offset of a time, and explain the result."),
    "groups": Lazy(
        "horolog.cli.groups", "List, describe and reset groups; what they committed, and when."
    ),
    "acls": Lazy("horolog.cli.acls", "List, add, remove and explain access control entries."),
    "quotas": Lazy("horolog.cli.quotas", "List, set and remove quotas: how much a client may use."),
    "users": Lazy("horolog.cli.users", "List, add and remove users that log in by SCRAM."),
    "lag": Lazy("horolog.cli.lag", "Show how far groups are behind, in time, too."),
    "report": Lazy("horolog.cli.report", "Write a page on the times of topics, to be mailed."),
    "retention": Lazy(
        "horolog.cli.retention", "Explain why segments are still there, and when they go."
    ),
    "health": Lazy("horolog.cli.health", "Say what is wrong with a broker, for scripts too."),
    "follow": Lazy("horolog.cli.follow", "Follow another cluster, and see how far."),
    "promote": Lazy("horolog.cli.promote", "Have a broker lead what it has followed."),
    "spark": Lazy("horolog.cli.spark", "Run a job on Spark: audit, mirror, archive and others."),
    "storage": Lazy("horolog.cli.storage", "Format the log directory of a broker of a cluster."),
    "log": Lazy("horolog.cli.log", "Inspect, verify and reindex log directories, offline."),
    "demo": Lazy("horolog.cli.demo", "Run an end-to-end demo on a git repository's history."),
}


# Click's, of which newer releases of typer have a copy.
_UsageError: Any = typer.BadParameter.__mro__[1]
_COMPLETION = ("install_completion", "show_completion")


class LazyGroup(TyperGroup):
    """Group of commands that imports a command when it runs."""

    table: ClassVar[Mapping[str, Lazy]] = COMMANDS

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # Placeholders with what the overview needs.
        for name, entry in self.table.items():
            self.commands[name] = TyperCommand(name=name, help=entry.summary)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the command names, in the order of the table."""
        return list(self.table)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command; an unknown name is refused with a suggestion."""
        name, stand_in, rest = super().resolve_command(ctx, args)
        if stand_in is None:
            return name, stand_in, rest
        command = load_command(str(name), self.table)
        gc.enable()
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run a command; turn errors into messages and exit codes."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader closed the pipe, as in `horolog consume | head`
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for the flush at exit
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except _UsageError as error:
            if not error.message.strip():  # a command without arguments has printed its help
                raise
            from horolog.errors import printable  # noqa: PLC0415 - not for --help

            # It may name a URI with credentials.
            raise _UsageError(printable(error.format_message()), error.ctx) from None
        except Exception as raised:
            known = _without_extra(raised, ctx.command_path)
            code = exit_code(known)
            if code is None:
                raise
            from horolog.cli.terminal import echo  # noqa: PLC0415 - not for --help

            echo(f"horolog: {known}", err=True)
            raise typer.Exit(code) from None


def _without_extra(error: Exception, command: str) -> Exception:
    """Return the error, or the sentence that names the extra to install."""
    if not isinstance(error, ImportError):
        return error
    from horolog.extras import missing_extra  # noqa: PLC0415 - not for --help

    if exit_code(error) is not None:
        return error
    extra = "spark" if "spark" in command.split() else None
    return missing_extra(error, f"this {command} command", extra) or error


def load_command(name: str, table: Mapping[str, Lazy] = COMMANDS) -> Any:
    """Import a command, and return it in the form that typer runs."""
    app = import_module(table[name].module).app
    command = typer.main.get_command(app if isinstance(app, typer.Typer) else app(name))
    command.name = name
    # Completion is installed once, for the whole of `horolog`.
    command.params = [param for param in command.params if param.name not in _COMPLETION]
    _join_lines(command)
    return command


def _join_lines(command: Any) -> None:
    """Make each paragraph of the help one line: the terminal decides where it is wrapped."""
    if command.help:
        paragraphs = inspect.cleandoc(command.help).split("\n\n")
        command.help = "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)
    for subcommand in getattr(command, "commands", {}).values():
        _join_lines(subcommand)


def exit_code(error: Exception) -> int | None:
    """Return the exit code of an error; None for a bug, which keeps its traceback."""
    from horolog.errors import HorologError, Misconfigured  # noqa: PLC0415 - not for --help

    if isinstance(error, Misconfigured):
        return 2
    if isinstance(error, HorologError | OSError):
        return 1
    return None
