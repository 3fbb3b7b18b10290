"""Options of commands that cut topics at an append time, or read them as of one.

`horolog.sources` is imported when they are used: `horolog groups` lists groups without it.
"""

from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from horolog.cli.options import moment_of
from horolog.errors import Misconfigured
from horolog.patterns import given_pattern

if TYPE_CHECKING:
    from horolog.sources.cut_files import AsOf
    from horolog.sources.limits import Pattern, TopicSelection


def as_of_option(text: str) -> Any:
    """Declare the option `--as-of` of a command."""
    return typer.Option("--as-of", metavar="TIME|CUT.json", help=text)


Topics = Annotated[
    str | None,
    typer.Option("--topics", metavar="NAME,NAME", help="Only these topics."),
]
TopicsPattern = Annotated[
    str | None,
    typer.Option(
        "--topics-pattern",
        metavar="RE",
        help="Only topics whose whole name matches a regular expression, in RE2's syntax.",
    ),
]


def chosen_topics(names: str | None, pattern: str | None) -> "TopicSelection | Pattern | None":
    """Return what `--topics` and `--topics-pattern` choose; None without them.

    Raises:
        Misconfigured: both are given, or one that names nothing.
    """
    from horolog.sources.limits import Pattern, TopicSelection  # noqa: PLC0415 - see above

    if names is not None and pattern is not None:
        raise Misconfigured("give --topics or --topics-pattern, not both")
    if pattern is not None:
        return Pattern(given_pattern(pattern, "--topics-pattern").expression)
    if names is None:
        return None
    parts = filter(None, map(str.strip, names.split(",")))
    selection = TopicSelection(tuple(dict.fromkeys(parts)))
    if not selection.names:
        raise Misconfigured("--topics names no topic: write --topics NAME,NAME")
    return selection


def no_match(pattern: "Pattern", where: str) -> Misconfigured:
    """Return the error about a pattern that chooses no topic."""
    return Misconfigured(f"no topic of {where} matches {pattern.expression}")


def at_time(text: str, zone: tzinfo | None) -> int:
    """Parse an append time that parts what was appended before it from the rest, in milliseconds.

    Raises:
        Misconfigured: it is no time.
    """
    at_ms = moment_of(text, zone, rounds_up=True)
    assert at_ms is not None
    return at_ms


def as_of(text: str, zone: tzinfo | None) -> "AsOf":
    """Parse the value of `--as-of`: a time, or the path of a cut file.

    Raises:
        Misconfigured: it is no time, or a file that cannot be read or is no cut.
    """
    from horolog.sources.cut_files import parse_as_of  # noqa: PLC0415 - see above

    try:
        return parse_as_of(text, lambda time: at_time(time, zone))
    except Misconfigured:
        if "/" not in text and not text.endswith(".json") and Path(text).is_file():
            raise Misconfigured(f"{text} is not a time: for the file write ./{text}") from None
        raise
