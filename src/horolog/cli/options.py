"""Options and arguments that several commands share."""

from collections.abc import Iterable
from typing import Annotated

import typer

from horolog.record.timestamps import RecordClock

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="HOROLOG_BOOTSTRAP",
        metavar="HOST:PORT[,...]",
        help="The broker to connect to: horolog or Apache Kafka.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Zone = Annotated[
    str | None,
    typer.Option("--tz", metavar="ZONE", help="The zone of times without one, and of the output."),
]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", min=0, help="Only this partition; repeat for several."),
]
ByClock = Annotated[
    RecordClock | None,
    typer.Option(
        "--clock",
        help="Whose time counts: the record's own (create, the default), or when the broker "
        "appended it (append; horolog only).",
    ),
]
LOCAL = "127.0.0.1:9092"


def pairs(texts: Iterable[str] | None, option: str) -> dict[str, str]:
    """Parse repeated NAME=VALUE; a value may contain further `=`."""
    values = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{text!r}: write {option} NAME=VALUE")
        values[name.strip()] = value.strip()
    return values
