"""`horolog groups`: list and describe consumer groups, and show what they have committed."""

from datetime import UTC
from typing import Annotated, Any

import typer

from horolog.cli.connecting import Brokers, with_brokers
from horolog.cli.history import group_history
from horolog.cli.lag import lag_as_json, offline_as_json, say_offline, show_lags
from horolog.cli.options import Json, Zone
from horolog.cli.screen import show_json, show_table
from horolog.cli.terminal import echo
from horolog.client import Client, GroupDescription, GroupListing, GroupMember
from horolog.client.kafka_lag import group_lags, offline_positions
from horolog.clock import SystemClock
from horolog.errors import ErrorCode, RequestRefused

app = typer.Typer(
    no_args_is_help=True, help="List and describe groups, and show what they committed, and when."
)

_DEAD = "Dead"


@app.command("list")
@with_brokers
def list_groups(brokers: Brokers, as_json: Json = False) -> None:
    """List the groups of all brokers with their states.

    A group without members is Empty; it has committed offsets. Brokers before Kafka 2.6 do not say
    states, nor do those before 3.7 say types.
    """
    with brokers.connect() as client:
        found = client.groups.list()
    if as_json:
        show_json([each._asdict() for each in found])
    elif not found:
        echo("no groups")
    else:
        show_table(
            ("group", "state", "type", "protocol", "coordinator"),
            [
                (each.group, each.state, each.type, each.protocol_type or None, each.coordinator)
                for each in found
            ],
        )


@app.command(no_args_is_help=True)
@with_brokers
def describe(
    group: Annotated[str, typer.Argument(metavar="GROUP", show_default=False)],
    brokers: Brokers,
    zone: Zone = None,
    as_json: Json = False,
) -> None:
    """Show a group's state and members, its committed offsets, and how far it is behind.

    Lags are those of horolog lag: to the log ends, by append time. Members of a group of type
    consumer (KIP-848) are not shown. The exit code is 1 if there is no such group.
    """
    with brokers.connect() as client:
        described = client.groups.describe([group])[group]
        state, members = described.state, list(described.members)
        listing = _listing(client, group) if state == _DEAD else None
        if state == _DEAD:
            if listing is None:
                raise RequestRefused(
                    ErrorCode.group_id_not_found,
                    f"there is no group {group}; horolog groups list shows the existing ones",
                )
            state = listing.state or state
        coordinator = client.groups.coordinator(group)
        lags = group_lags(client, [group], SystemClock().now_ms())
        offline = offline_positions(client, [group])
        if as_json:
            show_json(
                {
                    "group": group,
                    "state": state,
                    "type": "classic" if listing is None else listing.type,
                    "protocol": described.protocol_type,
                    "assignor": described.assignor,
                    "coordinator": coordinator.node_id,
                    "members": None if listing is not None else [*map(_plain, members)],
                    "offsets": [*map(lag_as_json, lags), *map(offline_as_json, offline)],
                }
            )
        else:
            where = f"coordinator {coordinator.node_id} at {coordinator.address}"
            echo(f"{group}: {', '.join((state, *_protocol(described), where))}", "")
            if listing is not None:
                echo(f"members of groups of type {listing.type} are not shown", "")
            elif members:
                show_table(
                    ("member", "client", "host", "instance", "partitions"),
                    [_row(each) for each in members],
                )
                echo("")
            show_lags(lags, offline, [] if lags or offline else [group], zone or UTC)
        say_offline(client, offline)


app.command("history", no_args_is_help=True)(group_history)


def _listing(client: Client, group: str) -> GroupListing | None:
    """A group that brokers list, of whatever type."""
    return next((each for each in client.groups.list() if each.group == group), None)


def _protocol(described: GroupDescription) -> list[str]:
    return [each for each in (described.protocol_type, described.assignor) if each]


def _row(member: GroupMember) -> tuple[object, ...]:
    partitions = None
    if member.assigned is not None:
        partitions = ", ".join(f"{topic}-{number}" for topic, number in member.assigned) or "none"
    return (member.member_id, member.client_id, member.client_host, member.instance_id, partitions)


def _plain(member: GroupMember) -> dict[str, Any]:
    assigned = member.assigned
    if assigned is not None:
        partitions = [{"topic": topic, "partition": number} for topic, number in assigned]
        return {**member._asdict(), "assigned": partitions}
    return member._asdict()
