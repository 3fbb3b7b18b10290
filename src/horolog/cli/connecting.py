"""Client connections of commands, with the properties that Kafka's own tools take.

`--command-config FILE` and `--command-property NAME=VALUE` have the names that KIP-1147 gives them
in all of Kafka's tools, and one file does for both.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from horolog.cli.options import pairs
from horolog.cli.properties_files import read_client_properties
from horolog.client.config import ClientConfig
from horolog.client.properties import BOOTSTRAP, OBEYED, config_of_properties, require_effect
from horolog.errors import Misconfigured

if TYPE_CHECKING:
    from horolog.client import Client


def _bootstrap(text: str) -> Any:
    return typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="HOROLOG_BOOTSTRAP",
        metavar="HOST:PORT[,...]",
        help=text,
    )


_ANY: Final = "The broker to connect to: horolog or Apache Kafka."
_HOROLOG: Final = "The broker to connect to: horolog. Apache Kafka's do not answer this."


@dataclass(frozen=True, slots=True)
class KafkaBrokers:
    """Options of a connection to a broker, horolog or Apache Kafka."""

    bootstrap: Annotated[str, _bootstrap(_ANY)] = "127.0.0.1:9092"
    client_config: Annotated[
        Path | None,
        typer.Option(
            "--command-config",
            envvar="HOROLOG_COMMAND_CONFIG",
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="A file of client properties: security.protocol, ssl.*, sasl.* and others.",
        ),
    ] = None
    client_properties: Annotated[
        list[str] | None,
        typer.Option(
            "--command-property",
            metavar="NAME=VALUE",
            help="A client property that overrides the file; repeatable. Other users of this "
            "machine can see it: give passwords in the file.",
        ),
    ] = None

    def config(self) -> ClientConfig:
        """Return the configuration of a client.

        Properties of the file that only other tools use are listed on standard error.

        Raises:
            Misconfigured: a property is unknown or unusable, or names other brokers than the
                command.
        """
        of_file = {} if self.client_config is None else read_client_properties(self.client_config)
        of_command = pairs(self.client_properties, "--command-property")
        require_effect(of_command, "--command-property")
        given = of_file | of_command
        named = given.get(BOOTSTRAP, self.bootstrap)
        if named != self.bootstrap:
            raise Misconfigured(
                f"{BOOTSTRAP}={named} of the client properties are other brokers than "
                f"--bootstrap-server {self.bootstrap}: give the same, or leave one out of the "
                "properties"
            )
        config = config_of_properties(self.bootstrap, given)
        if without_effect := sorted(of_file.keys() - OBEYED):
            from horolog.cli.screen import say  # noqa: PLC0415 - 30 ms for this alone

            say(
                f"{self.client_config}: without effect on this command: {', '.join(without_effect)}"
            )
        return config

    def connect(self) -> "Client":
        """Create a client, which connects at its first request."""
        from horolog.client import Client  # noqa: PLC0415 - 50 ms that `health --alive` saves

        return Client.of(self.config())


@dataclass(frozen=True, slots=True)
class HorologBrokers(KafkaBrokers):
    """Options of a connection to a horolog broker, which answers more than Apache Kafka."""

    bootstrap: Annotated[str, _bootstrap(_HOROLOG)] = "127.0.0.1:9092"
