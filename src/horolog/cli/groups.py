"""`horolog groups`: list, describe and reset consumer groups, and show what they committed."""

from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import Annotated, Any

import typer

from horolog.cli.connecting import KafkaBrokers
from horolog.cli.group_reset import reset_group
from horolog.cli.history import group_history
from horolog.cli.lag import lag_lines, unknown_lag
from horolog.cli.offline import offline_asides
from horolog.cli.options import Zone, with_options
from horolog.client import GroupMember
from horolog.client.kafka_lag import group_lags, offline_positions
from horolog.clock import SystemClock
from horolog.errors import ErrorCode, RequestRefused
from horolog.offsets import TopicPartition
from horolog.results import Answer, Column, Shown, Table

app = typer.Typer(
    no_args_is_help=True,
    help="List, describe and reset groups, and show what they committed, and when.",
)


@app.command("list")
@with_options
def list_groups(brokers: KafkaBrokers) -> Answer:
    """List the groups of all brokers with their states.

    A group without members is Empty, and may have committed offsets. Brokers before Kafka 2.6
    report no states, and those before 3.7 no types.
    """
    with brokers.connect() as client:
        listed = client.groups.list()
    protocol: Column = "protocol", lambda group: group.protocol_type or None
    table = Table(listed, "group", "state", "type", protocol, "coordinator")
    return Answer(listed, [table if listed else "no groups"])


@app.command(no_args_is_help=True)
@with_options
def describe(
    group: Annotated[str, typer.Argument(metavar="GROUP", show_default=False)],
    brokers: KafkaBrokers,
    zone: Zone = None,
) -> Answer:
    """Show a group's state and members, its committed offsets, and how far it is behind.

    Lags are those of horolog lag: to the log ends, by append time. Members of a consumer group
    (KIP-848) are shown with their epochs, and with the partitions that they are to have, if those
    are others. The exit code is 1 if there is no such group.
    """
    with brokers.connect() as client:
        described = client.groups.describe([group])[group]
        if not described.exists:
            raise RequestRefused(
                ErrorCode.group_id_not_found,
                f"there is no group {group}; horolog groups list shows the existing ones",
            )
        members = described.members
        coordinator = client.groups.coordinator(group)
        lags = group_lags(client, [group], SystemClock().now_ms())
        offline = offline_positions(client, [group])
        result = {
            "group": group,
            "state": described.state,
            "type": described.type,
            "protocol": described.protocol_type,
            "assignor": described.assignor,
            "coordinator": coordinator.node_id,
            "members": None if members is None else [*map(_plain, members)],
            "offsets": [*lags, *map(unknown_lag, offline)],
        }

        def lines() -> Iterator[Shown]:
            protocol = [text for text in (described.protocol_type, described.assignor) if text]
            where = f"coordinator {coordinator.node_id} at {coordinator.address}"
            yield f"{group}: {', '.join((described.state, *protocol, where))}"
            yield ""
            if members is None:
                yield f"the members of this group of type {described.type} are not known"
                yield ""
            elif members:
                yield Table(members, *_columns(members))
                yield ""
            yield from lag_lines(lags, offline, [] if lags or offline else [group], zone or UTC)

        asides = offline_asides(
            client, ((position.topic, position.partition) for position in offline)
        )
        return Answer(result, [*lines(), *asides])


app.command("history", no_args_is_help=True)(group_history)
app.command("reset", no_args_is_help=True)(reset_group)


def _columns(members: Sequence[GroupMember]) -> list[Column]:
    columns: list[Column] = [
        ("member", "member_id"),
        ("client", "client_id"),
        ("host", "client_host"),
        ("instance", "instance_id"),
        ("partitions", lambda member: _text(member.assigned)),
    ]
    if any(member.epoch is not None for member in members):
        columns.append("epoch")
    if any(member.target not in (None, member.assigned) for member in members):
        columns.append(("to have", lambda member: _text(member.target)))
    return columns


def _text(partitions: Sequence[TopicPartition] | None) -> str | None:
    if partitions is None:
        return None
    return ", ".join(f"{topic}-{number}" for topic, number in partitions) or "none"


def _plain(member: GroupMember) -> dict[str, Any]:
    given = {"assigned": member.assigned, "target": member.target}
    named = {
        name: [{"topic": topic, "partition": number} for topic, number in partitions]
        for name, partitions in given.items()
        if partitions is not None
    }
    return {**member._asdict(), **named}
