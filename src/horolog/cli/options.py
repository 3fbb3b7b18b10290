"""Options and arguments that several commands share."""

import inspect
import os
from collections.abc import Callable, Iterable
from datetime import tzinfo
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from horolog.clock import SystemClock
from horolog.errors import Misconfigured
from horolog.record.timestamps import RecordClock
from horolog.results import Outcome
from horolog.times import parse_time, parse_zone

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Zone = Annotated[
    tzinfo | None,
    typer.Option(
        "--tz",
        metavar="ZONE",
        parser=parse_zone,
        help="The zone of times without one, and of the output.",
    ),
]
StoreSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        show_default=False,
        help="An option of an object store, as fs.s3a.endpoint; repeatable.",
    ),
]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
PathOrTopic = Annotated[
    str,
    typer.Argument(
        metavar="PATH|TOPIC",
        show_default=False,
        help="A log directory, a partition directory or a .log file; or a topic of the broker. A "
        "name that is both is a path, unless --bootstrap-server is given.",
    ),
]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", min=0, help="Only this partition; repeat for several."),
]
Tried = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Answer as if this setting had this value; repeat for several.",
    ),
]
ReadCommitted = Annotated[
    bool,
    typer.Option(
        "--read-committed", help="For readers of committed records, who wait for transactions."
    ),
]
Timeout = Annotated[
    str, typer.Option("--timeout", metavar="DURATION", help="Wait no longer than this.")
]
ByClock = Annotated[
    RecordClock | None,
    typer.Option(
        "--clock",
        help="Whose time counts: the record's own (create, the default), or when the broker "
        "appended it (append; horolog only).",
    ),
]


def path_of(context: typer.Context, text: str) -> Path | None:
    """Return the path that an argument PATH|TOPIC names; None for a topic.

    The argument is a path if it contains a separator, which no topic name does. It is also a path
    if the path exists and the command line names no broker.

    Raises:
        Misconfigured: the path does not exist.
    """
    path = Path(text)
    if "/" in text or os.sep in text or text in (".", ".."):
        if not path.exists():
            raise Misconfigured(f"there is no {text}")
        return path
    return path if path.exists() and not is_given(context, "bootstrap") else None


def is_given(context: typer.Context, parameter: str) -> bool:
    """Return True if a parameter is on the command line."""
    source = context.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


def moment_of(text: str | None, zone: tzinfo | None, *, rounds_up: bool = False) -> int | None:
    """Return the milliseconds of an option with a time; None without one."""
    now_ms = SystemClock().now_ms()
    return None if text is None else parse_time(text, now_ms=now_ms, zone=zone, rounds_up=rounds_up)


def pairs(texts: Iterable[str] | None, option: str) -> dict[str, str]:
    """Parse repeated NAME=VALUE; a value may contain further `=`."""
    values = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{text!r}: write {option} NAME=VALUE")
        values[name.strip()] = value.strip()
    return values


def with_options(command: Callable[..., Outcome | None]) -> Callable[..., None]:
    """Make options of the fields of a command's dataclasses, in the place of each.

    A command that returns an outcome has the option `--json`. Its outcome is shown, and the exit
    code is 1 if something is wrong.
    """
    signature = inspect.signature(command)
    parameters: list[inspect.Parameter] = []
    grouped: dict[str, list[str]] = {}
    for parameter in signature.parameters.values():
        group = [parameter]
        kind: Any = parameter.annotation
        if hasattr(kind, "__dataclass_fields__"):
            group = [*inspect.signature(kind).parameters.values()]
            grouped[parameter.name] = [member.name for member in group]
        parameters += (member.replace(kind=inspect.Parameter.KEYWORD_ONLY) for member in group)
    shows = signature.return_annotation is not None
    if shows:
        parameters.append(
            inspect.Parameter(
                "as_json", inspect.Parameter.KEYWORD_ONLY, annotation=Json, default=False
            )
        )

    @wraps(command)
    def run(**given: Any) -> None:
        as_json = shows and given.pop("as_json")
        for name, members in grouped.items():
            options = {member: given.pop(member) for member in members}
            given[name] = signature.parameters[name].annotation(**options)
        outcome = command(**given)
        if outcome is not None:
            from horolog.cli.screen import show_outcome  # noqa: PLC0415 - a broker needs no tables

            show_outcome(outcome, as_json=as_json)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run
