"""`horolog topics history` and `horolog groups history`: earlier settings and commits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from horolog.cli.connecting import HorologBrokers
from horolog.cli.options import Topic, Zone, moment_of, with_options
from horolog.client import Client
from horolog.errors import Misconfigured
from horolog.history import (
    MOST_ENTRIES,
    AskGroupHistory,
    AskTopicHistory,
    GroupEvent,
    KeptLog,
    TopicAspect,
    TopicChange,
)
from horolog.metadata.group_history import read_group_history
from horolog.metadata.topic_history import read_topic_history
from horolog.results import Answer, Aside, Column, Shown, Table
from horolog.storage.verify import find_target
from horolog.times import format_moment, format_time
from horolog.wire.questions import HISTORY_GROUP, HISTORY_TOPIC

LogDirectory = Annotated[
    Path | None,
    typer.Option(
        "--log-dir",
        exists=True,
        file_okay=False,
        help="Read this log directory, of horolog or Apache Kafka, instead of asking a broker; one "
        "may be at work in it.",
    ),
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="Show instead what was in force at this time."),
]
Last = Annotated[
    int,
    typer.Option("--last", min=1, max=MOST_ENTRIES, help="Show at most this many, the last ones."),
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HistoryOptions:
    """Options that choose changes and their form."""

    log_dir: LogDirectory = None
    at: At = None
    last: Last = MOST_ENTRIES
    zone: Zone = None

    @property
    def shown_zone(self) -> tzinfo:
        """Zone of the output."""
        return self.zone or UTC


@with_options
def topic_history(topic: Topic, brokers: HorologBrokers, options: HistoryOptions) -> Answer:
    """Show how a topic's settings and partitions have changed, and when.

    Deleted topics are shown, too; a topic that was created again has another id. Times are those of
    the metadata log's records, which are kept for a year. Earlier changes are in the first entries,
    "by" the time of a snapshot. The exit code is 1 if a log is damaged, or the topic is unknown.
    """
    at_ms, shown_zone = moment_of(options.at, options.zone), options.shown_zone
    ask = AskTopicHistory(topic, at_ms, options.last)
    if options.log_dir is None:
        with brokers.connect() as client:
            history = _known(client, client.ask(HISTORY_TOPIC, "", ask))
    else:
        history = read_topic_history(_checked(options.log_dir), ask)
    result = {
        "topic": topic,
        "at": at_ms,
        "changes": history.changes,
        "logs": history.logs,
        "total": history.end,
    }
    line = f"nothing is known of a topic {topic}"
    if at_ms is not None:
        line = f"there was no topic {topic} at {format_moment(at_ms, shown_zone)}"
    table = _topic_table(history.changes, shown_zone, is_state=at_ms is not None)
    lines: list[Shown] = [table if history.changes else line]
    lines += _limits(history.logs, history.end - len(history.changes), shown_zone, at_ms)
    return _answer(result, lines, history.logs, is_known=bool(history.changes or options.at))


@with_options
def group_history(
    group: Annotated[str, typer.Argument(metavar="GROUP", show_default=False)],
    brokers: HorologBrokers,
    options: HistoryOptions,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Show committed offsets of this topic only.")
    ] = None,
) -> Answer:
    """Show what a group has committed, its rebalances, and its members' partitions, with times.

    Every commit is shown since the log was last compacted or replaced by a smaller one; a line says
    since when. Before that time the shown offsets are right, but others may be missing. A long log
    is read backwards as far as the last entries need. The exit code is 1 if a log is damaged, or
    the group is unknown.
    """
    at_ms, shown_zone = moment_of(options.at, options.zone), options.shown_zone
    ask = AskGroupHistory(at_ms, topic, options.last)
    if options.log_dir is None:
        with brokers.connect() as client:
            commits = _known(client, client.ask(HISTORY_GROUP, group, ask))
    else:
        commits = read_group_history(_checked(options.log_dir), group, ask)
    result = {
        "group": group,
        "at": at_ms,
        "events": commits.events,
        "logs": commits.logs,
        "total": commits.end if commits.since is None else None,
        "is_off": commits.is_off,
    }
    line = f"nothing is known of a group {group}"
    if at_ms is not None:
        line = f"{group} had committed nothing at {format_moment(at_ms, shown_zone)}"
    lines: list[Shown] = [line]
    if commits.events:
        lines = [_group_table(commits.events, shown_zone)]
    elif commits.is_off:
        lines.append("history is off: set horolog.history.ms (docs/history.md)")
    left_out = commits.end - len(commits.events) if commits.since is None else None
    lines += _limits(commits.logs, left_out, shown_zone, at_ms)
    return _answer(result, lines, commits.logs, is_known=bool(commits.events or options.at))


def _known(client: Client, history: T | None) -> T:
    if history is None:
        raise Misconfigured(
            f"the broker at {client.config.bootstrap_servers} does not tell the past, as only "
            "horolog does: give its log directory with --log-dir"
        )
    return history


def _checked(log_dir: Path) -> Path:
    target = find_target(log_dir)
    if not target.is_log_dir:
        raise Misconfigured(f"{log_dir} is not a log directory")
    return target.log_dir


def _topic_table(changes: Sequence[TopicChange], zone: tzinfo, *, is_state: bool) -> Table:
    def time(change: TopicChange) -> str:
        by = "by " if change.is_earlier else ""
        return by + format_time(change.time, zone)

    def what(change: TopicChange) -> str:
        is_named = change.aspect in (TopicAspect.SETTING, TopicAspect.STATE)
        return change.name if is_named and change.name else change.aspect.value

    columns: tuple[Column, ...] = ("time", time), ("what", what), "before", "after"
    if is_state:
        columns = ("since", time), ("what", what), ("value", "after")
    return Table(changes, *columns, "topic id", *_log_column(changes))


def _group_table(events: Sequence[GroupEvent], zone: tzinfo) -> Table:
    def offset(event: GroupEvent) -> object:
        if event.members is not None:
            return f"generation {event.generation}, {event.members} members"
        parts = [] if event.generation is None else [f"epoch {event.generation}"]
        parts += [event.state] if event.state else []
        return ", ".join(parts) or event.committed

    return Table(
        events,
        ("time", lambda event: format_time(event.time, zone)),
        ("what", lambda event: event.aspect.value),
        *(["member"] if any(event.member for event in events) else []),
        "topic",
        ("partition", lambda event: event.partitions or event.partition),
        ("offset", offset),
        ("metadata", lambda event: event.metadata or None),
        "topic id",
        *_log_column(events),
    )


def _log_column(entries: Sequence[TopicChange | GroupEvent]) -> tuple[Column, ...]:
    """Return a column for the log of each entry, if the entries come from several logs."""
    return ("log",) if len({entry.log for entry in entries}) > 1 else ()


def _answer(
    result: object, lines: Sequence[Shown], logs: Sequence[KeptLog], *, is_known: bool
) -> Answer:
    """Make the answer, with a line for each damage of a log."""
    damage = [Aside(f"{log.name}: {what}") for log in logs for what in log.damage]
    return Answer(result, [*lines, *damage], is_known and not damage)


def _limits(
    logs: Sequence[KeptLog], left_out: int | None, zone: tzinfo, at_ms: int | None
) -> Iterator[str]:
    """Name the changes that are not shown; `left_out` is None where they were not counted."""
    if left_out is None:
        yield "what came before these is not shown, and was not read"
    elif left_out:
        yield f"{left_out} more came before these and are not shown"
    for log in logs:
        if log.whole_from is not None and (at_ms is None or at_ms < log.whole_from):
            yield (
                f"{log.name} has every change since {format_time(log.whole_from, zone)}, and of "
                "what was before only what was not replaced by then"
            )
    if not logs:
        yield "there is no log of it"
