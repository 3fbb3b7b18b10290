"""`horolog storage`: format the log directory of a broker of a cluster, as `kafka-storage` does."""

from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer

from horolog.cli.options import with_options
from horolog.cli.properties_files import read_properties
from horolog.config import BrokerConfig, Settings, with_provided
from horolog.errors import Misconfigured
from horolog.results import Answer

app = typer.Typer(
    no_args_is_help=True, help="Format the log directory of a broker of a cluster, and look at it."
)

ConfigFile = Annotated[
    Path,
    typer.Option("--config", "-c", exists=True, dir_okay=False, help="Its server.properties."),
]


def _config(file: Path) -> BrokerConfig:
    return Settings(static=with_provided(read_properties(file))).broker_config()


@app.command("format")
@with_options
def format_storage(
    config: ConfigFile,
    cluster_id: Annotated[
        str,
        typer.Option(
            "--cluster-id", "-t", metavar="ID", help="As `kafka-cluster cluster-id` prints it."
        ),
    ],
    ignore_formatted: Annotated[
        bool,
        typer.Option(
            "--ignore-formatted", "-g", help="Leave a directory that is formatted as it is."
        ),
    ] = False,
) -> Answer:
    """Write meta.properties into the log directory of a broker that is to join a cluster."""
    from horolog.broker.cluster.directory import format_directory  # noqa: PLC0415 - 50 ms

    settings = _config(config)
    if settings.cluster is None:
        raise Misconfigured(
            f"{config} is that of a node alone, whose directory needs no format: a broker of a "
            "cluster has process.roles=broker (docs/cluster.md)"
        )
    made = format_directory(settings, cluster_id, keeps_formatted=ignore_formatted)
    row = made._asdict()
    what = "is formatted already" if made.was_formatted else "is formatted"
    return Answer(row, [f"{made.path} {what}: node {made.node_id} of cluster {made.cluster_id}"])


@app.command()
@with_options
def info(config: ConfigFile) -> Answer:
    """Show the identity of the log directory, and whether a broker has closed it cleanly."""
    from horolog.broker.cluster.directory import directory_info  # noqa: PLC0415 - 50 ms

    found = directory_info(_config(config))
    names = {"path": "directory", "node_id": "node.id", "cluster_id": "cluster.id"}
    return Answer(found, [f"{names.get(name, name)}: {text}" for name, text in found.items()])


@app.command("random-uuid")
@with_options
def random_uuid() -> Answer:
    """Print a new id, for a cluster or a directory."""
    from horolog.storage.directory.checkpoints import kafka_uuid  # noqa: PLC0415 - 50 ms

    made = kafka_uuid(uuid4())
    while made.startswith("-"):  # an option, for a shell
        made = kafka_uuid(uuid4())
    return Answer(made, [made])
