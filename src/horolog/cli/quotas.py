"""`horolog quotas`: list, set and remove quotas of clients."""

from dataclasses import dataclass, replace
from typing import Annotated, Final

import typer

from horolog.cli.connecting import KafkaBrokers
from horolog.cli.options import with_options
from horolog.errors import Misconfigured
from horolog.quotas.entities import CLIENT_ID, IP, USER, Entity, QuotaKey
from horolog.results import Answer, Column, Table

app = typer.Typer(
    no_args_is_help=True, help="List, set and remove quotas: how much a client may use."
)

_KEYS: Final = ", ".join(QuotaKey)


@dataclass(frozen=True)
class Whose:
    """Options that say whose quota it is."""

    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="Of this user.")] = None
    client_id: Annotated[
        str | None, typer.Option("--client-id", metavar="ID", help="Of clients with this id.")
    ] = None
    ip: Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="Of this address.")] = (
        None
    )
    default_user: Annotated[
        bool, typer.Option("--default-user", help="Of each user without a quota of its own.")
    ] = False
    default_client_id: Annotated[
        bool, typer.Option("--default-client-id", help="Of each client id without one of its own.")
    ] = False
    default_ip: Annotated[
        bool, typer.Option("--default-ip", help="Of each address without one of its own.")
    ] = False

    def entity(self) -> Entity:
        """Return the entity.

        Raises:
            Misconfigured: there is none, or a name beside its default.
        """
        parts: list[tuple[str, str | None]] = []
        for kind, name, is_default in (
            (USER, self.user, self.default_user),
            (CLIENT_ID, self.client_id, self.default_client_id),
            (IP, self.ip, self.default_ip),
        ):
            if name is not None and is_default:
                raise Misconfigured(f"give --{kind} or --default-{kind}, not both")
            if name is not None or is_default:
                parts.append((kind, name))
        if not parts:
            raise Misconfigured("say whose quota it is: --user, --client-id, --ip or a default")
        return frozenset(parts)


def _value(text: str) -> tuple[str, float]:
    key, equals, value = text.partition("=")
    try:
        if not equals or key not in set(QuotaKey):
            raise ValueError
        return key, float(value)
    except ValueError:
        raise Misconfigured(f"{text} is no quota; write KEY=NUMBER with one of {_KEYS}") from None


def _plain(entity: Entity, key: str, value: float | None) -> dict[str, object]:
    names = dict(entity)
    of = {kind: {"name": names[kind]} for kind in (USER, CLIENT_ID, IP) if kind in names}
    return {"of": of, "key": key, "value": value}


def _named(row: dict[str, object]) -> str:
    of = row["of"]
    assert isinstance(of, dict)
    return ", ".join(
        f"every other {kind}" if its["name"] is None else f"{kind} {its['name']}"
        for kind, its in of.items()
    )


_COLUMNS: Final[tuple[Column, ...]] = (
    ("of", _named),
    "key",
    ("value", lambda row: f"{row['value']:.15g}"),
)


@app.command("list")
@with_options
def list_quotas(brokers: KafkaBrokers) -> Answer:
    """List all quotas. A name null in --json is the default."""
    with brokers.connect() as client:
        quotas = client.quotas.list()
    rows = sorted((_plain(*quota) for quota in quotas), key=lambda row: (_named(row), row["key"]))
    return Answer(rows, [Table(rows, *_COLUMNS) if rows else "no quotas"])


@app.command("set", no_args_is_help=True)
@with_options
def set_quotas(
    values: Annotated[
        list[str],
        typer.Argument(metavar="KEY=NUMBER...", show_default=False, help=f"KEY is one of {_KEYS}."),
    ],
    brokers: KafkaBrokers,
    whose: Whose,
) -> Answer:
    """Set quotas, as horolog quotas set producer_byte_rate=1048576 --user alice.

    With --user and --client-id they are of that user's clients with that id.
    """
    entity = whose.entity()
    changes = dict(map(_value, values))
    with brokers.connect() as client:
        client.quotas.change(entity, changes)
    rows = [_plain(entity, key, value) for key, value in changes.items()]
    return Answer(rows, [Table(rows, *_COLUMNS)])


@app.command("remove", no_args_is_help=True)
@with_options
def remove_quotas(
    brokers: KafkaBrokers,
    whose: Whose,
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY...]", show_default=False, help="All, if none is given."),
    ] = None,
) -> Answer:
    """Remove quotas of exactly these options. The exit code is 1 if there are none."""
    entity = whose.entity()
    with brokers.connect() as client:
        present = [quota for quota in client.quotas.list() if quota.entity == entity]
        removed = [quota for quota in present if not keys or quota.key in keys]
        if removed:
            client.quotas.change(entity, {quota.key: None for quota in removed})
    rows = [_plain(*quota) for quota in removed]
    answer = Answer(rows, [Table(rows, *_COLUMNS) if rows else "there are no such quotas"])
    return replace(answer, is_ok=bool(rows))
