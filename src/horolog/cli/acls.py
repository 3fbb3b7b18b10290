"""`horolog acls`: list, add, remove and explain access control entries."""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Annotated, Final
from uuid import UUID

import typer

from horolog.cli.connecting import KafkaBrokers
from horolog.cli.options import with_options
from horolog.results import Answer, Column, Table
from horolog.rights.checks import new_ranges
from horolog.rights.entries import AclEntry, AclFilter
from horolog.rights.hosts import host_text
from horolog.rights.model import Rights
from horolog.rights.words import entry_of, resource_of
from horolog.wire.acl import AclOperation, AclPattern, AclPermission, AclResource

app = typer.Typer(
    no_args_is_help=True,
    help="List, add, remove and explain access control entries: who may do what.",
)

Principal = Annotated[
    str, typer.Argument(metavar="PRINCIPAL", show_default=False, help="As User:alice or User:*.")
]
Operation = Annotated[
    str,
    typer.Argument(
        metavar="OPERATION",
        show_default=False,
        help="read, write, create, delete, alter, describe, cluster-action, describe-configs, "
        "alter-configs, idempotent-write or all.",
    ),
]
On = Annotated[
    str,
    typer.Argument(
        metavar="KIND:NAME",
        show_default=False,
        help="topic:NAME, group:NAME, transactional-id:NAME, user:NAME or cluster.",
    ),
]


@dataclass(frozen=True)
class EntryOptions:
    """Arguments and options of an entry that is added or removed."""

    principal: Principal
    operation: Operation
    on: On
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="An address, a range of them, or *.")
    ] = "*"
    deny: Annotated[
        bool, typer.Option("--deny", help="Deny the operation instead of allowing it.")
    ] = False
    prefixed: Annotated[
        bool, typer.Option("--prefixed", help="For all names that begin with NAME.")
    ] = False

    def entry(self) -> AclEntry:
        """Return the entry.

        Raises:
            Misconfigured: there is no such operation, kind of a resource, or principal.
        """
        return entry_of(
            self.principal,
            self.operation,
            self.on,
            self.host,
            deny=self.deny,
            prefixed=self.prefixed,
        )


def _word(numbers: type[IntEnum], number: int) -> str:
    try:
        return numbers(number).name.lower().replace("_", "-")
    except ValueError:
        return str(number)


def _plain(entry: AclEntry) -> dict[str, object]:
    return {
        "principal": entry.principal,
        "effect": _word(AclPermission, entry.permission),
        "operation": _word(AclOperation, entry.operation),
        "kind": _word(AclResource, entry.resource_type),
        "name": entry.name,
        "pattern": _word(AclPattern, entry.pattern),
        "host": entry.host,
    }


_COLUMNS: Final[tuple[Column, ...]] = (
    "principal",
    "effect",
    "operation",
    ("on", lambda row: f"{row['kind']}:{row['name']}{_star(row)}"),
    "host",
)


def _star(row: dict[str, object]) -> str:
    return "..." if row["pattern"] == "prefixed" else ""


def _shown(entries: list[AclEntry], none: str) -> Answer:
    rows = [_plain(entry) for entry in entries]
    return Answer(rows, [Table(rows, *_COLUMNS) if rows else none])


@app.command("list")
@with_options
def list_acls(
    brokers: KafkaBrokers,
    principal: Annotated[
        str | None, typer.Option("--principal", metavar="PRINCIPAL", help="Only of this one.")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="KIND:NAME", help="Only those that apply to this resource."),
    ] = None,
) -> Answer:
    """List access control entries.

    A name with ... behind it stands for all names that begin so. Entries with a range of addresses
    that an Apache Kafka before 4.4 has not obeyed are named: horolog obeys them.
    """
    which = AclFilter(principal=principal)
    if on is not None:
        kind, name = resource_of(on)
        which = which._replace(resource_type=kind, name=name, pattern=AclPattern.MATCH)
    with brokers.connect() as client:
        entries = client.acls.list(which)
        ranges = new_ranges(entries, client.acls.metadata_version())
    answer = _shown(entries, "no access control entries")
    return answer if ranges is None else replace(answer, shown=[*answer.shown, ranges])


@app.command(no_args_is_help=True)
@with_options
def add(options: EntryOptions, brokers: KafkaBrokers) -> Answer:
    """Add an entry, as horolog acls add User:alice read topic:clicks.

    One that is there already is no error.
    """
    entry = options.entry()
    with brokers.connect() as client:
        client.acls.add([entry])
    return _shown([entry], "")


@app.command(no_args_is_help=True)
@with_options
def remove(options: EntryOptions, brokers: KafkaBrokers) -> Answer:
    """Remove an entry, given as it was added. The exit code is 1 if it is not there."""
    with brokers.connect() as client:
        removed = client.acls.remove(AclFilter(*options.entry()))
    answer = _shown(removed, "there is no such entry; horolog acls list shows those that are")
    return replace(answer, is_ok=bool(removed))


@app.command(no_args_is_help=True)
@with_options
def explain(
    principal: Principal,
    operation: Operation,
    on: On,
    brokers: KafkaBrokers,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="The client's address.")
    ] = "127.0.0.1",
) -> Answer:
    """Say which entry allows or denies an operation. The exit code is 1 if it is denied.

    Super users and allow.everyone.if.no.acl.found are settings that brokers do not tell.
    """
    asked = entry_of(principal, operation, on)
    which = AclFilter(asked.resource_type, asked.name, AclPattern.MATCH)
    rights = Rights()
    with brokers.connect() as client:
        for number, entry in enumerate(client.acls.list(which)):
            rights.add(UUID(int=number), entry)
    decision = rights.decide(
        asked.principal,
        host_text(host),
        AclOperation(asked.operation),
        AclResource(asked.resource_type),
        asked.name,
    )
    verb = "may" if decision.is_allowed else "may not"
    what = f"{asked.principal} {verb} {_word(AclOperation, asked.operation)} {on} from {host}"
    row = None if decision.entry is None else _plain(decision.entry)
    result = {"allowed": decision.is_allowed, "entry": row}
    if row is not None:
        return Answer(result, [f"{what}, by", Table([row], *_COLUMNS)], decision.is_allowed)
    about = "no entry of this principal applies" if len(rights) else "no entry is about it"
    return Answer(result, [f"{what}: {about}"], is_ok=False)
