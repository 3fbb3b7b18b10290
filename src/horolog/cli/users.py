"""`horolog users`: list, add and remove users that log in by SCRAM."""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from horolog.cli.connecting import KafkaBrokers
from horolog.cli.options import with_options
from horolog.cli.properties_files import read_properties
from horolog.config import with_provided
from horolog.errors import Misconfigured
from horolog.results import Answer, Table
from horolog.security.scram import ScramMechanism

app = typer.Typer(no_args_is_help=True, help="List, add and remove users that log in by SCRAM.")

_MOST_BYTES: Final = 4_096

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


def _mechanism(title: str) -> ScramMechanism:
    mechanism = ScramMechanism.titled(title.upper())
    if mechanism is None:
        known = " and ".join(it.title for it in ScramMechanism)
        raise Misconfigured(f"{title} is no mechanism of users; these are {known}")
    return mechanism


def _password(name: str, file: Path | None) -> str:
    """Return a password from a file, from standard input, or asked for twice.

    Raises:
        Misconfigured: there is none, or two that differ.
    """
    if file is None and sys.stdin.isatty():
        return str(
            typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
        )
    if file is None:
        text, where = sys.stdin.read(_MOST_BYTES), "standard input"
    else:
        text, where = file.read_text(encoding="utf-8")[:_MOST_BYTES], str(file)
    lines = text.splitlines()
    if not lines or not lines[0] or len(lines) > 2 or len(set(lines)) > 1:
        raise Misconfigured(f"{where} has to be one line with the password, or two equal ones")
    return lines[0]


@app.command("list")
@with_options
def list_users(brokers: KafkaBrokers) -> Answer:
    """List users with their mechanisms. Users of PLAIN are in the broker's settings."""
    with brokers.connect() as client:
        users = client.users.list()
    return Answer(users, [Table(users, "user", "mechanism", "iterations") if users else "no users"])


@app.command(no_args_is_help=True)
@with_options
def add(
    name: Name,
    brokers: KafkaBrokers,
    mechanism: Annotated[
        str, typer.Option("--mechanism", metavar="MECHANISM", help="Or SCRAM-SHA-256.")
    ] = "SCRAM-SHA-512",
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file", exists=True, dir_okay=False, metavar="FILE", help="Its only line."
        ),
    ] = None,
    log_dir: Annotated[
        Path | None,
        typer.Option(
            "--log-dir",
            file_okay=False,
            metavar="DIR",
            help="Add it in the log directory of a broker that is stopped, also in a new one.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="With --log-dir, the broker's server.properties, for a new directory.",
        ),
    ] = None,
) -> Answer:
    """Add a user, or change its password.

    The password is asked for twice. Without a terminal it is the line of standard input. The broker
    gets it salted. The first user is added with --log-dir, before the broker is started.
    """
    known = _mechanism(mechanism)
    if config is not None and log_dir is None:
        raise Misconfigured("--config is for --log-dir DIR")
    password = _password(name, password_file)
    if log_dir is not None:
        from horolog.broker.offline_users import set_password  # noqa: PLC0415 - loads a broker

        settings = {} if config is None else with_provided(read_properties(config))
        set_password(log_dir, settings, name, known, password)
    else:
        with brokers.connect() as client:
            client.users.put(name, password, known)
    return Answer({"user": name, "mechanism": known.title}, [f"{name} logs in by {known.title}"])


@app.command(no_args_is_help=True)
@with_options
def remove(
    name: Name,
    brokers: KafkaBrokers,
    mechanism: Annotated[
        str | None,
        typer.Option("--mechanism", metavar="MECHANISM", help="Only for this one."),
    ] = None,
) -> Answer:
    """Remove a user. Who has logged in stays so. The exit code is 1 if there is no such user."""
    with brokers.connect() as client:
        if mechanism is None:
            titles = [user.mechanism for user in client.users.list([name])]
        else:
            titles = [mechanism]
        client.users.remove(name, [_mechanism(title) for title in titles])
    return Answer({"user": name, "mechanisms": titles}, [f"{name} is removed: {', '.join(titles)}"])
