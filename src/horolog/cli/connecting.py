"""Clients of commands that connect to a broker, with the properties that Kafka's own tools take.

`--command-config FILE` and `--command-property NAME=VALUE` have the names that KIP-1147 gives them
in all of Kafka's tools, and one file does for both.
"""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from horolog.cli.options import pairs
from horolog.cli.properties_files import read_properties
from horolog.cli.screen import say
from horolog.client import Client, Security
from horolog.client.security import NAMES
from horolog.errors import Misconfigured

CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        envvar="HOROLOG_COMMAND_CONFIG",
        exists=True,
        dir_okay=False,
        metavar="FILE",
        help="A file of client properties: security.protocol, ssl.*, sasl.* and others.",
    ),
]
CommandProperties = Annotated[
    list[str] | None,
    typer.Option(
        "--command-property",
        metavar="NAME=VALUE",
        help="A client property that overrides the file; repeatable. Other users of this machine "
        "can see it: give passwords in the file.",
    ),
]

_BOOTSTRAP: Final = "bootstrap.servers"
_CLIENT_ID: Final = "client.id"
_TIMEOUTS: Final = {
    "default.api.timeout.ms": "timeout_ms",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
}
_OBEYED: Final = frozenset({*NAMES, *_TIMEOUTS, _CLIENT_ID, _BOOTSTRAP})


def connect(bootstrap: str, file: Path | None, properties: Sequence[str] | None) -> Client:
    """A client of the brokers at `bootstrap`, which connects when it is first asked.

    Properties of the file that only other tools use are named on standard error.

    Raises:
        Misconfigured: a property that no connection could be made with; a name that is unknown;
            brokers in the properties that are not those of the command.
    """
    of_file = {} if file is None else read_properties(file)
    of_command = pairs(properties, "--command-property")
    for name in of_command:
        if name not in _OBEYED and not name.startswith(("ssl.", "sasl.")):
            close = difflib.get_close_matches(name, _OBEYED, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise Misconfigured(f"--command-property {name} has no effect on this client{hint}")
    given = of_file | of_command
    named = given.get(_BOOTSTRAP, bootstrap)
    if named != bootstrap:
        raise Misconfigured(
            f"{_BOOTSTRAP}={named} of the client properties are other brokers than "
            f"--bootstrap-server {bootstrap}: give the same, or leave one out of the properties"
        )
    security = Security.of(given)
    without_effect = sorted(of_file.keys() - _OBEYED)
    if without_effect:
        say(f"{file}: without effect on this command: {', '.join(without_effect)}")
    options: dict[str, Any] = {
        field: _milliseconds(name, given[name])
        for name, field in _TIMEOUTS.items()
        if name in given
    }
    if _CLIENT_ID in given:
        options["client_id"] = given[_CLIENT_ID]
    return Client(bootstrap, security=security, **options)


def _milliseconds(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 31):
        raise Misconfigured(f"{name}={text}: write milliseconds, from 1 to {(1 << 31) - 1}")
    return int(text)
