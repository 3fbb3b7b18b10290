"""Clients of commands that connect to a broker, with the properties that Kafka's own tools take.

`--command-config FILE` and `--command-property NAME=VALUE` have the names that KIP-1147 gives them
in all of Kafka's tools, and one file does for both.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from horolog.cli.options import pairs
from horolog.cli.properties_files import read_properties
from horolog.cli.screen import say
from horolog.client import Client
from horolog.client.properties import BOOTSTRAP, OBEYED, client_of_properties, require_effect
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


def connect(bootstrap: str, file: Path | None, properties: Sequence[str] | None) -> Client:
    """A client of the brokers at `bootstrap`, which connects when it is first asked.

    Properties of the file that only other tools use are named on standard error.

    Raises:
        Misconfigured: a property that no connection could be made with; a name that is unknown;
            brokers in the properties that are not those of the command.
    """
    of_file = {} if file is None else read_properties(file)
    of_command = pairs(properties, "--command-property")
    require_effect(of_command, "--command-property")
    given = of_file | of_command
    named = given.get(BOOTSTRAP, bootstrap)
    if named != bootstrap:
        raise Misconfigured(
            f"{BOOTSTRAP}={named} of the client properties are other brokers than "
            f"--bootstrap-server {bootstrap}: give the same, or leave one out of the properties"
        )
    client = client_of_properties(bootstrap, given)
    without_effect = sorted(of_file.keys() - OBEYED)
    if without_effect:
        say(f"{file}: without effect on this command: {', '.join(without_effect)}")
    return client
