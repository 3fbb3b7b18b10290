"""`horolog groups`: list, describe and reset consumer groups, and show what they committed."""

from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import Annotated, Any, Final

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

    Lags are those of horolog lag: to the log ends, by append time. Members of a group of type
    consumer (KIP-848) are not shown. The exit code is 1 if there is no such group.
    """
    with brokers.connect() as client:
        described = client.groups.describe([group])[group]
        if not described.exists:
            raise RequestRefused(
                ErrorCode.group_id_not_found,
                f"there is no group {group}; horolog groups list shows the existing ones",
            )
        is_classic, members = described.type == "classic", described.members
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
            "members": [*map(_plain, members)] if is_classic else None,
            "offsets": [*lags, *map(unknown_lag, offline)],
        }

        def lines() -> Iterator[Shown]:
            protocol = [text for text in (described.protocol_type, described.assignor) if text]
            where = f"coordinator {coordinator.node_id} at {coordinator.address}"
            yield f"{group}: {', '.join((described.state, *protocol, where))}"
            yield ""
            if not is_classic:
                yield f"members of groups of type {described.type} are not shown"
                yield ""
            elif members:
                yield Table(members, *_MEMBER)
                yield ""
            yield from lag_lines(lags, offline, [] if lags or offline else [group], zone or UTC)

        asides = offline_asides(
            client, ((position.topic, position.partition) for position in offline)
        )
        return Answer(result, [*lines(), *asides])


app.command("history", no_args_is_help=True)(group_history)
app.command("reset", no_args_is_help=True)(reset_group)


def _partitions(member: GroupMember) -> str | None:
    if member.assigned is None:
        return None
    return ", ".join(f"{topic}-{number}" for topic, number in member.assigned) or "none"


_MEMBER: Final[Sequence[Column]] = (
    ("member", "member_id"),
    ("client", "client_id"),
    ("host", "client_host"),
    ("instance", "instance_id"),
    ("partitions", _partitions),
)


def _plain(member: GroupMember) -> dict[str, Any]:
    assigned = member.assigned
    if assigned is not None:
        partitions = [{"topic": topic, "partition": number} for topic, number in assigned]
        return {**member._asdict(), "assigned": partitions}
    return member._asdict()
