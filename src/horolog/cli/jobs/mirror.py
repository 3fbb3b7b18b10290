"""`horolog spark mirror`: topics into another cluster."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from horolog.cli.jobs.following import working_on
from horolog.cli.jobs.options import (
    Config,
    DryRun,
    From,
    IntoNonempty,
    Master,
    Once,
    Settings,
    Source,
    SparkConf,
    State,
    Target,
    To,
    Topics,
    TopicsPattern,
    session,
    settings_of,
    state_needed,
    stopped_by_signals,
)
from horolog.cli.options import Json, pairs
from horolog.cli.screen import say, show_json, show_table, size

if TYPE_CHECKING:
    from horolog.jobs.mirroring import Mirrored

app = typer.Typer()

TargetSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--target-set",
        metavar="NAME=VALUE",
        show_default=False,
        help="A setting of the target's clients, as kafka.security.protocol=SSL; repeat for more.",
    ),
]
TopicSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--topic-set",
        metavar="NAME=VALUE",
        show_default=False,
        help="A setting of topics that are created, instead of the source's; NAME= leaves it to "
        "the target.",
    ),
]
Rename = Annotated[
    str | None,
    typer.Option(
        "--rename",
        metavar="PATTERN=REPL",
        show_default=False,
        help=r"Rename topics whose whole name matches: '(.*)=west.\1'.",
    ),
]
Groups = Annotated[
    str | None,
    typer.Option(
        "--groups",
        metavar="NAME,NAME",
        show_default=False,
        help="Carry over the committed offsets of these groups, as offsets of the target.",
    ),
]
GroupsPattern = Annotated[
    str | None,
    typer.Option(
        "--groups-pattern",
        metavar="RE",
        show_default=False,
        help="Carry over those of groups whose whole name matches a regular expression of Java's.",
    ),
]
BatchBytes = Annotated[
    int | None,
    typer.Option(
        "--batch-bytes",
        metavar="BYTES",
        show_default=False,
        help="Send small successive batches of a partition as one of up to so many bytes before "
        "compression; 0 leaves each as it is, which takes several times longer. By default 524288, "
        "and compressed batches stay as they are.",
    ),
]
ReplaceCreateTimes = Annotated[
    bool,
    typer.Option(
        "--replace-create-times",
        help="Mirror into topics of LogAppendTime, which replace the records' create times.",
    ),
]
SkipLost = Annotated[
    bool,
    typer.Option(
        "--skip-lost",
        help="Go on behind records that the source has deleted before they were mirrored.",
    ),
]


@app.command()
def mirror(
    source: Source,
    target: Target,
    topics: Topics = None,
    topics_pattern: TopicsPattern = None,
    from_: From = None,
    to: To = None,
    state: State = None,
    rename: Rename = None,
    groups: Groups = None,
    groups_pattern: GroupsPattern = None,
    once: Once = False,
    dry_run: DryRun = False,
    batch_bytes: BatchBytes = None,
    replace_create_times: ReplaceCreateTimes = False,
    skip_lost: SkipLost = False,
    into_nonempty: IntoNonempty = False,
    settings: Settings = None,
    target_settings: TargetSettings = None,
    topic_settings: TopicSettings = None,
    master: Master = None,
    conf: SparkConf = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Mirror topics into another cluster or a log directory, until Ctrl-C, or once.

    Topics are created with their partitions and settings. Create times are kept, append times are
    the target's; a log directory gets the same offsets, bytes and append times. Run it again with
    the same --state after a kill: no record is lost or doubled.

    horolog spark mirror --source east:9092 --target west:9092 --topics clicks --state ./mirror
    """
    kept = state_needed(state, dry_run=dry_run)
    with session("mirror", master, conf) as spark, stopped_by_signals() as stop:
        from horolog.jobs.mirroring import Control
        from horolog.jobs.mirroring import mirror as run

        with working_on(spark, "mirror", "records", state=kept, stop=stop) as work:
            work(0, 0)
            told: set[str] = set()

            def follow(done: "Mirrored") -> None:
                for note in done.notes[:-1]:  # the last one, on offsets, has time until the end
                    if note not in told:
                        told.add(note)
                        say(f"note: {note}")
                remarks = [] if done.lag_ms is None else [f"{_age(done.lag_ms)} behind"]
                work(done.records, done.records + done.lag, "; ".join([*remarks, *done.errors[:1]]))

            done = run(
                spark,
                source=source,
                target=target,
                state=kept,
                topics=topics,
                topics_pattern=topics_pattern,
                from_=from_,
                to=to,
                settings=settings_of(settings),
                target_settings=pairs(target_settings, "--target-set"),
                topic_settings=pairs(topic_settings, "--topic-set"),
                rename=rename,
                groups=groups,
                groups_pattern=groups_pattern,
                batch_bytes=batch_bytes,
                replace_create_times=replace_create_times,
                skip_lost=skip_lost,
                into_nonempty=into_nonempty,
                once=once,
                dry_run=dry_run,
                control=Control(on_progress=follow, should_stop=stop.is_set),
            )
    if json:
        show_json(done.to_json())
    else:
        _show(done, told)
    if done.errors:
        raise typer.Exit(1)


def _show(done: "Mirrored", told: Collection[str]) -> None:
    columns = ["topic", "partition", "target", "records", "offset", "end", "behind", "lag"]
    rows = [
        [
            each.topic,
            each.partition,
            each.target,
            each.records,
            each.offset,
            each.end,
            each.lag,
            _age(each.lag_ms),
        ]
        for each in done.partitions
    ]
    show_table(columns, rows)
    for group in done.groups:
        carried = f"{group.partitions} committed offsets carried over"
        typer.echo(f"group {group.group}: {group.note or carried}")
    for note in done.notes:
        if note not in told:
            typer.echo(f"note: {note}")
    for error in done.errors:
        say(f"error: {error}")
    if done.is_dry_run:
        refused = f", {len(done.errors)} refused" if done.errors else ""
        typer.echo(f"A run would read {done.lag} offsets{refused}; nothing was changed.")
        return
    count = len(done.errors)
    ends = [f"{count} error{'s' * (count > 1)}"] if count else []
    if done.partitions or not count:
        ends.append(f"{done.lag} offsets behind")
    typer.echo(f"Mirrored {done.records} records ({size(done.bytes)}); {', '.join(ends)}.")


def _age(lag_ms: int | None) -> str:
    if lag_ms is None:
        return "-"
    return f"{lag_ms / 1000:.1f} s"
