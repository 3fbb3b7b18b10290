"""`horolog retention explain`: why each segment is still there, and when it goes."""

from dataclasses import dataclass
from datetime import UTC
from itertools import chain
from typing import Annotated

import typer

from horolog.cli.connecting import HorologBrokers
from horolog.cli.options import (
    Partitions,
    PathOrTopic,
    Tried,
    Zone,
    moment_of,
    pairs,
    path_of,
    with_options,
)
from horolog.cli.retention_moving import moving_out
from horolog.cli.retention_screen import plain_retention, retention_lines
from horolog.cli.retention_simulate import simulate
from horolog.client.topic_facts import served_partitions
from horolog.clock import SystemClock
from horolog.report.retention import explained_by_broker, explained_by_files
from horolog.results import Answer

app = typer.Typer(no_args_is_help=True)


@app.callback()
def retention() -> None:
    """Explain why segments are still there, and when they go."""


app.command(no_args_is_help=True)(simulate)
app.command()(moving_out)


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """Options that choose partitions, settings and the time."""

    tried: Tried = None
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="Answer as of this time (default: now)."),
    ] = None
    partitions: Partitions = None
    zone: Zone = None


@app.command(no_args_is_help=True)
@with_options
def explain(
    context: typer.Context,
    what: PathOrTopic,
    brokers: HorologBrokers,
    options: ExplainOptions,
) -> Answer:
    """Show for each segment why it is still there, and when it will be deleted.

    Needs a horolog broker or a path: Apache Kafka's brokers do not answer this. For a topic the
    broker answers, by its own clock and settings. Files need no broker: settings are those stored
    in the log directory, or Kafka's defaults. Broker settings that were given at its start must be
    given again with --set. Nothing is written or deleted. The exit code is 1 if a segment is kept
    by a time that is unknown or more than an hour ahead of the clock, or if a log is damaged or
    offline.
    """
    shown_zone = options.zone or UTC
    settings = pairs(options.tried, "--set")
    now_ms = SystemClock().now_ms()
    at_ms = moment_of(options.at, options.zone)
    path = path_of(context, what)
    if path is None:
        with brokers.connect() as client:
            served = served_partitions(client, what, options.partitions)
            explanations = list(explained_by_broker(client, served, at_ms, settings))
    else:
        explanations = list(
            explained_by_files(
                path, options.partitions, now_ms if at_ms is None else at_ms, settings
            )
        )
    lines = (
        line
        for number, explained in enumerate(explanations)
        for line in chain([""] if number else [], retention_lines(explained, shown_zone))
    )
    is_odd = any(
        explained.damage or any(segment.is_odd(explained.now_ms) for segment in explained.segments)
        for explained in explanations
    )
    return Answer([*map(plain_retention, explanations)], lines, not is_odd)
