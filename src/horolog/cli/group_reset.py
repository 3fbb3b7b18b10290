"""`horolog groups reset`: set the committed offsets of a group to a cut."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from horolog.cli.as_of import (
    Topics,
    TopicsPattern,
    as_of,
    as_of_option,
    chosen_topics,
    no_match,
)
from horolog.cli.connecting import KafkaBrokers
from horolog.cli.options import Zone, with_options
from horolog.cli.working import working
from horolog.client import CommittedOffset
from horolog.clock import SystemClock
from horolog.errors import Misconfigured
from horolog.results import Answer, Aside, Column, Shown, Table
from horolog.times import format_moment

if TYPE_CHECKING:
    from horolog.sources.group_resets import PositionReset


@dataclass(frozen=True, slots=True)
class ResetOptions:
    """Options that choose topics, and where the group continues."""

    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="CUT.json", help="Continue at a cut (horolog cut)."),
    ] = None
    as_of: Annotated[
        str | None,
        as_of_option("Continue with what was appended at or after this time, or behind a cut."),
    ] = None
    topics: Topics = None
    topics_pattern: TopicsPattern = None
    read_committed: Annotated[
        bool | None,
        typer.Option(
            "--read-committed/--read-uncommitted",
            help="Which records the consumers read (isolation.level): needed where a transaction "
            "was open at the cut.",
        ),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Set nothing; show what would be set, or refused.")
    ] = False
    zone: Zone = None


@with_options
def reset_group(
    group: Annotated[str, typer.Argument(metavar="GROUP", show_default=False)],
    brokers: KafkaBrokers,
    options: ResetOptions,
) -> Answer:
    """Set the committed offsets of a group to a cut, so that it continues at one append time.

    Its consumers then read exactly what was appended at or after the time. Without --topics all
    partitions are set of the topics in which the group has committed. All are set or none: it is
    refused where the group has members, a partition is inexact or offline, or the log does not have
    the offset any more. A cut file works at Apache Kafka's brokers, too; --as-of with a time needs
    horolog's. The exit code is 1 if nothing could be set.
    """
    # Only this command of `horolog groups` needs them.
    from horolog.sources.broker_log import BrokerLog  # noqa: PLC0415
    from horolog.sources.cut_files import Cut, read_cut  # noqa: PLC0415
    from horolog.sources.cuts import cut_all  # noqa: PLC0415
    from horolog.sources.group_resets import (  # noqa: PLC0415
        members_of,
        plan_reset,
        set_offsets,
    )
    from horolog.sources.limits import Pattern, TopicSelection  # noqa: PLC0415
    from horolog.sources.options import ReadOptions  # noqa: PLC0415

    if (options.to is None) == (options.as_of is None):
        raise Misconfigured("give --to CUT.json or --as-of TIME: where the group continues")
    if not group:
        raise Misconfigured("the name of the group is empty")
    place = (
        read_cut(str(options.to)) if options.as_of is None else as_of(options.as_of, options.zone)
    )
    chosen = chosen_topics(options.topics, options.topics_pattern)
    with brokers.connect() as client:
        before = client.offset_fetch(group)
        if chosen is None:
            chosen = TopicSelection(_committed_in(group, before))
        reading = ReadOptions.of_client(client.config, subscription=chosen)
        with BrokerLog(reading) as log:
            with working(f"reset of {group}", "partitions") as work:
                cut = (
                    place
                    if isinstance(place, Cut)
                    else cut_all(log, place, SystemClock().now_ms(), work)
                )
                planned = plan_reset(log, cut, before, read_committed=options.read_committed)
                refused = members_of(client, group)
            if not planned and isinstance(chosen, Pattern):
                raise no_match(chosen, client.config.bootstrap_servers)
            is_ok = refused is None and not any(its.refused for its in planned)
            if is_ok and not options.dry_run:
                set_offsets(log, group, planned)
    is_set = is_ok and not options.dry_run
    result = {
        "group": group,
        "at": cut.at_ms,
        "is_set": is_set,
        "refused": refused,
        "partitions": planned,
    }
    what = "reset to" if is_set else "would be reset to" if is_ok else "cannot be reset to"
    lines = _lines(f"{group} {what} {format_moment(cut.at_ms, options.zone or UTC)}", planned)
    return Answer(result, [*lines, *([Aside(refused)] if refused else [])], is_ok)


def _committed_in(
    group: str, before: Mapping[tuple[str, int], CommittedOffset | None]
) -> tuple[str, ...]:
    """Return the topics in which a group has committed.

    Raises:
        Misconfigured: it has committed nothing.
    """
    if not before:
        raise Misconfigured(f"{group} has committed no offset: give --topics NAME,NAME")
    return tuple(sorted({topic for topic, _ in before}))


def _lines(what: str, planned: "Sequence[PositionReset]") -> Iterator[Shown]:
    yield what
    yield ""
    columns: list[Column] = ["topic", "partition", "before", "after"]
    if any(its.refused for its in planned):
        columns.append(("refused because", "refused"))
    yield Table(planned, *columns)
