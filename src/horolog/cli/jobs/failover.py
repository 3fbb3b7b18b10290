"""`horolog spark failover`: record, plan and apply where groups go on in another cluster."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from horolog.cli.jobs.following import working_on
from horolog.cli.jobs.options import (
    Config,
    DryRun,
    Master,
    Settings,
    Source,
    SparkConf,
    Target,
    Topics,
    TopicsPattern,
    session,
    settings_of,
)
from horolog.cli.jobs.tables import show_rows
from horolog.cli.options import Json
from horolog.cli.screen import say, show_json
from horolog.errors import printable
from horolog.times import format_time, parse_duration

if TYPE_CHECKING:
    from horolog.jobs.failing_over.applying import Applied
    from horolog.jobs.failing_over.planning import FailoverPlan
    from horolog.jobs.failing_over.recording import Recording

app = typer.Typer(
    no_args_is_help=True,
    help="Let consumer groups go on in another cluster that the same producers write to, without "
    "the loss of a record (KIP-33, use case 3). Record again and again while both clusters live; "
    "plan and apply need the survivor and the state directory alone.",
)

State = Annotated[
    Path,
    typer.Option(
        "--state",
        metavar="DIR",
        show_default=False,
        help="Where the recordings and the plan are kept; copy it to where the survivor is.",
    ),
]
Groups = Annotated[
    str | None,
    typer.Option("--groups", metavar="NAME,NAME", show_default=False, help="Consumer groups."),
]
GroupsPattern = Annotated[
    str | None,
    typer.Option(
        "--groups-pattern",
        metavar="RE",
        show_default=False,
        help="Those whose whole name matches a regular expression of Java's.",
    ),
]


@app.command()
def record(
    source: Source,
    state: State,
    groups: Groups = None,
    groups_pattern: GroupsPattern = None,
    topics: Topics = None,
    topics_pattern: TopicsPattern = None,
    live: Annotated[
        str,
        typer.Option(
            "--live",
            metavar="DURATION",
            help="Where the log keeps one time of a record (Apache Kafka), measure for so long how "
            "long records take that are appended meanwhile; 0s for not at all.",
        ),
    ] = "30s",
    master: Master = None,
    settings: Settings = None,
    conf: SparkConf = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Record how far groups have read, and how long records take, while the source lives.

    Without --topics it records all topics that the groups have committed offsets of. What groups
    read between the last recording and the failover they read again, so record often: a recording
    reads what was appended since the one before, and a little of where groups are that move.
    """
    live_ms = parse_duration(live)
    with (
        session("failover record", master, conf) as spark,
        working_on(spark, "record", "records"),
    ):
        from horolog.jobs.failing_over.failover import failover

        found = failover(spark, state=state).record(
            source=source,
            groups=_names(groups),
            groups_pattern=groups_pattern,
            topics=topics,
            topics_pattern=topics_pattern,
            settings=settings_of(settings),
            live_ms=live_ms,
        )
    _show_recording(found, as_json=as_json)
    idle = [group for group, its in found.groups.items() if not its]
    for group in idle:
        say(f"group {printable(group)} has committed no offset of these topics")
    raise typer.Exit(1 if idle else 0)


@app.command()
def plan(
    target: Target,
    state: State,
    groups: Groups = None,
    groups_pattern: GroupsPattern = None,
    margin: Annotated[
        str,
        typer.Option("--margin", metavar="DURATION", help="Added to what records took at most."),
    ] = "1m",
    bound: Annotated[
        str | None,
        typer.Option(
            "--bound",
            metavar="DURATION",
            show_default=False,
            help="What a record takes at most to the source's log, instead of what was recorded.",
        ),
    ] = None,
    same_partitions: Annotated[
        bool,
        typer.Option(
            "--same-partitions",
            help="Producers put a record into the partition of the same number in both clusters "
            "(by key, as many partitions): less is read again.",
        ),
    ] = False,
    ignore_odd_times: Annotated[
        bool,
        typer.Option(
            "--ignore-odd-times",
            help="Let records be lost that have no time, or one in another unit.",
        ),
    ] = False,
    master: Master = None,
    settings: Settings = None,
    conf: SparkConf = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Plan where groups start on the survivor; the source is not asked, nothing is committed.

    Exits with 1 where records could be missing all the same; the plan says why.
    """
    margin_ms = parse_duration(margin)
    bound_ms = None if bound is None else parse_duration(bound)
    with session("failover plan", master, conf) as spark, working_on(spark, "plan", "records"):
        from horolog.jobs.failing_over.failover import failover

        found = failover(spark, state=state).plan(
            target=target,
            groups=_names(groups),
            groups_pattern=groups_pattern,
            settings=settings_of(settings),
            margin_ms=margin_ms,
            bound_ms=bound_ms,
            same_partitions=same_partitions,
            ignore_odd_times=ignore_odd_times,
        )
    _show_plan(found, as_json=as_json)
    raise typer.Exit(0 if found.is_proven else 1)


@app.command()
def apply(
    target: Target,
    state: State,
    groups: Groups = None,
    groups_pattern: GroupsPattern = None,
    dry_run: DryRun = False,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Commit for groups, too, that have committed other offsets at the survivor, or "
            "that this plan was applied to before.",
        ),
    ] = False,
    accept_unproven: Annotated[
        bool,
        typer.Option(
            "--accept-unproven",
            help="Commit for groups, too, of which the plan says that records could be missing.",
        ),
    ] = False,
    settings: Settings = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Commit the plan's offsets at the survivor, group by group.

    Groups that have members are refused: stop them, since brokers let only members commit for such
    a group. Run it again after a failure: groups that are committed are left alone. Exits with 1
    where a group is refused.
    """
    from horolog.jobs.failing_over.failover import Failover

    found = Failover(None, state).apply(
        target=target,
        groups=_names(groups),
        groups_pattern=groups_pattern,
        settings=settings_of(settings),
        dry_run=dry_run,
        overwrite=overwrite,
        accept_unproven=accept_unproven,
    )
    _show_applied(found, as_json=as_json, dry_run=dry_run)
    raise typer.Exit(1 if any(each.error for each in found) else 0)


def _names(given: str | None) -> Sequence[str]:
    return [name.strip() for name in (given or "").split(",") if name.strip()]


def _show_recording(found: "Recording", *, as_json: bool) -> None:
    bounds: list[dict[str, Any]] = [
        {
            "topic": topic,
            "records": each.records,
            "read_now": found.records_read[topic],
            "latency_ms": each.latency_ms,
            "measured_by": each.latency_by,
            "lateness_ms": each.lateness_ms,
            "odd": each.odd,
        }
        for topic, each in sorted(found.bounds.items())
    ]
    groups: list[dict[str, Any]] = [
        {
            "group": group,
            "topic": topic,
            "recorded_at": format_time(each.at_ms),
            "unread": each.unread,
            "read_before": format_time(each.read_before_ms(found.bounds[topic].ms)),
        }
        for group, its in sorted(found.groups.items())
        for topic, each in sorted(its.items())
    ]
    if as_json:
        show_json({"topics": bounds, "groups": groups})
        return
    headings = {"latency_ms": "latency up to (ms)", "lateness_ms": "late by up to (ms)"}
    show_rows(bounds, list(bounds[0]), {**headings, "odd": "without usable time"})
    if groups:
        typer.echo("")
        show_rows(groups, list(groups[0]), {"read_before": "has read all created before"})


def _show_plan(found: "FailoverPlan", *, as_json: bool) -> None:
    if as_json:
        show_json({**found.to_json(), "proven": found.is_proven})
        return
    rows: list[dict[str, Any]] = [
        {
            "group": each.group,
            "topic": each.topic,
            "partition": number,
            "from": "the earliest" if from_ms is None else format_time(from_ms),
            "offset": each.offsets.get(number),
        }
        for each in found.starts
        for number, from_ms in each.from_ms.items()
    ]
    if rows:
        show_rows(rows, list(rows[0]), {})
        typer.echo("")
    for each in found.starts:
        name = printable(f"{each.group}, {each.topic}")
        typer.echo(
            f"{name}: {each.to_read:,} records to read, of which at most {each.duplicates:,} had "
            f"been read when it was recorded at {format_time(each.recorded_at_ms)}, and again "
            f"what was read since. Records took at most {each.bound_ms:,} ms, margin included"
        )
        for note in each.notes:
            typer.echo(f"  not proven: {printable(note)}")
    if found.is_proven:
        typer.echo("\nNo record is lost that takes no longer to the source's log than its bound.")


def _show_applied(found: Sequence["Applied"], *, as_json: bool, dry_run: bool) -> None:
    rows = [
        {
            "group": each.group,
            "offsets": each.offsets,
            "overwritten": each.before,
            "result": each.error
            or (
                "applied before" if not each.offsets else "would commit" if dry_run else "committed"
            ),
        }
        for each in found
    ]
    if as_json:
        show_json({"groups": rows, "dry_run": dry_run})
    else:
        show_rows(rows, ["group", "offsets", "overwritten", "result"], {})
