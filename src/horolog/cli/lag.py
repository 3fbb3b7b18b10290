"""`horolog lag`: how far consumer groups are behind, in offsets, in records and in time."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from itertools import chain
from typing import Annotated, Any, Final

import typer

from horolog.cli.connecting import KafkaBrokers
from horolog.cli.held_up import held_up_text
from horolog.cli.offline import offline_asides
from horolog.cli.options import Json, Zone, with_options
from horolog.cli.screen import show
from horolog.cli.terminal import echo
from horolog.client import Client, GroupPartitionLag, LagClock
from horolog.client.kafka_lag import OfflinePosition, group_lags, offline_positions
from horolog.clock import SECOND_MS, SystemClock, format_duration
from horolog.errors import Misconfigured
from horolog.offsets import commits_positions
from horolog.results import Aside, Column, Shown, Table
from horolog.times import format_time

app = typer.Typer(no_args_is_help=True)

_EVERY_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class LagOptions:
    """Options that choose groups and the measure."""

    groups: Annotated[list[str] | None, typer.Argument(metavar="GROUP...")] = None
    of_all: Annotated[bool, typer.Option("--all-groups", help="Of all consumer groups.")] = False
    clock: Annotated[
        LagClock,
        typer.Option(
            help="The lag in time is the age of the first unread record by its append time, or of "
            "the oldest unread one by its create time.",
        ),
    ] = LagClock.APPEND
    read_committed: Annotated[
        bool,
        typer.Option(
            "--read-committed", help="The groups read up to last stable offsets, not to log ends."
        ),
    ] = False
    watch: Annotated[
        bool, typer.Option("--watch", help="Measure again every two seconds, until Ctrl-C.")
    ] = False
    zone: Zone = None
    as_json: Json = False


@app.command(no_args_is_help=True)
@with_options
def lag(
    brokers: KafkaBrokers,
    options: LagOptions,
) -> None:
    """Show how far groups are behind in each partition, and what they will lose.

    Offsets are counted as Kafka's tools do. Lost records were deleted before a group read them.
    Records about to be lost will be deleted by retention before the group reads them, at the pace
    of its latest commits. The time to the end follows from that pace and the topic's: "never" if
    the group is slower. Groups that read committed records wait at the first open transaction of a
    partition. It is shown with --read-committed, and always if it hangs. Apache Kafka's brokers
    report offsets, open transactions, and the lag by append time of LogAppendTime topics. The exit
    code is 1 if a group does not exist.
    """
    if bool(options.groups) == options.of_all:
        raise Misconfigured("Give the names of groups, or --all-groups")
    if "" in (options.groups or ()):
        raise Misconfigured("the name of a group is empty")
    shown_zone = options.zone or UTC
    with brokers.connect() as client:
        while True:
            names = list(dict.fromkeys(options.groups or ()))
            if options.of_all:
                names = list(filter(commits_positions, client.groups.names()))
            now_ms = SystemClock().now_ms()
            lags = group_lags(
                client, names, now_ms, clock=options.clock, read_committed=options.read_committed
            )
            offline = offline_positions(client, names)
            known = {lag.group for lag in lags} | {position.group for position in offline}
            missing = (
                []
                if options.of_all
                else missing_groups(client, [name for name in names if name not in known])
            )
            without = sorted({*names} - {*known, *missing})
            lines = chain(
                lag_lines(lags, offline, without, shown_zone),
                () if names else ["no offsets are committed by any group"],
                _held_up(lags, shown_zone, read_committed=options.read_committed),
            )
            asides = offline_asides(
                client, ((position.topic, position.partition) for position in offline)
            )
            asides += [
                Aside(f"there is no group {name}: horolog groups list shows the existing ones")
                for name in missing
            ]
            result = [*lags, *map(unknown_lag, offline)]
            show(result, chain(lines, asides), as_json=options.as_json)
            if not options.watch:
                if missing:
                    raise typer.Exit(1)
                return
            try:
                time.sleep(_EVERY_S)
            except KeyboardInterrupt:
                return
            if not options.as_json:
                echo("")


def missing_groups(client: Client, names: Sequence[str]) -> list[str]:
    """Return the groups that do not exist."""
    described = client.groups.describe(names) if names else {}
    return [name for name in names if name not in described or not described[name].exists]


def lag_lines(
    lags: Sequence[GroupPartitionLag],
    offline: Sequence[OfflinePosition],
    without: Sequence[str],
    zone: tzinfo,
) -> Iterator[Shown]:
    """Yield a row for each partition, the groups without commits, and records about to be lost."""
    rows = sorted([*lags, *map(unknown_lag, offline)], key=lambda lag: lag[:3])
    if rows:
        yield Table(rows, *_COLUMNS)
    if without:
        yield f"no offsets are committed by {', '.join(without)}"
    if any(lag.unread_deleted is None for lag in lags):
        yield (
            "-: not known. Apache Kafka's brokers keep offsets, and append times of LogAppendTime "
            "topics; of a log that cannot be read only offsets are known"
        )
    for lag in lags:
        if lag.unread_deleted and lag.first_deleted_ms is not None:
            yield (
                f"retention deletes {lag.unread_deleted:,} "
                f"record{'' if lag.unread_deleted == 1 else 's'} of "
                f"{lag.topic}-{lag.partition} that {lag.group} has not read, first at "
                f"{format_time(lag.first_deleted_ms, zone)}"
            )


def unknown_lag(position: OfflinePosition) -> GroupPartitionLag:
    """Make a lag from a committed position alone."""
    members: dict[str, Any] = dict.fromkeys(GroupPartitionLag._fields)
    return GroupPartitionLag(**members | position._asdict())


def _held_up(
    lags: Sequence[GroupPartitionLag], zone: tzinfo, *, read_committed: bool
) -> Iterator[str]:
    """Describe the first open transaction of each partition, or only hanging ones."""
    shown = set()
    for lag in lags:
        name, held_up = f"{lag.topic}-{lag.partition}", lag.held_up
        if held_up is None or name in shown or not (read_committed or held_up.is_hanging):
            continue
        shown.add(name)
        yield held_up_text(name, held_up, zone)


def _catch_up(lag: GroupPartitionLag) -> str | None:
    if lag.catch_up_ms is not None:
        return _span(lag.catch_up_ms)
    return "never" if lag.is_pace_known else None


def _span(ms: int) -> str:
    return f"{ms} ms" if ms < 10 * SECOND_MS else format_duration(ms)


_COLUMNS: Final[Sequence[Column]] = (
    *("group", "topic", "partition", "committed", "end"),
    ("behind", "offsets_behind"),
    ("records", "records_behind"),
    (
        "lag",
        lambda lag: None if lag.lag_ms is None else _span(lag.lag_ms),
    ),
    ("catches up in", _catch_up),
    ("lost", "lost_records"),
)
