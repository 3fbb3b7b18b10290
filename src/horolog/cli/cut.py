"""`horolog cut`: cut topics at an append time, to be read as of that time."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC
from itertools import groupby
from typing import Annotated

import typer

from horolog.cli.as_of import Topics, TopicsPattern, at_time, chosen_topics, no_match
from horolog.cli.connecting import HorologBrokers
from horolog.cli.options import StoreSettings, Zone, is_given, pairs, with_options
from horolog.cli.output_file import Output, check_output, whole_file
from horolog.cli.screen import say, show
from horolog.cli.working import working
from horolog.clock import SystemClock
from horolog.errors import Misconfigured
from horolog.jobs.cutting import opened_cut_source
from horolog.offsets import ranges_text
from horolog.results import Shown, Table
from horolog.sources.cut_files import Cut, CutEntry
from horolog.sources.cuts import cut_all
from horolog.sources.limits import Pattern
from horolog.sources.options import ReadOptions
from horolog.sources.uris import LogPath
from horolog.times import format_moment

app = typer.Typer(no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class CutOptions:
    """Options that choose the time and the topics."""

    at: Annotated[
        str,
        typer.Option("--at", metavar="TIME", help="Cut between what was appended before, and not."),
    ]
    topics: Topics = None
    topics_pattern: TopicsPattern = None
    output: Output = None
    zone: Zone = None
    settings: StoreSettings = None


@app.command(no_args_is_help=True)
@with_options
def cut(
    context: typer.Context,
    brokers: HorologBrokers,
    options: CutOptions,
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATH]",
            show_default=False,
            help="A log directory or an archive, also in an object store (s3://...), instead of a "
            "broker.",
        ),
    ] = None,
) -> None:
    """Cut topics at an append time: a file with the offsets that part every partition there.

    Before the offset of a partition is what was appended before TIME, and behind it what was
    appended later. Commands take the file in the place of a time: consume --as-of cut.json, groups
    reset --to cut.json. By default all topics are cut but internal ones. Without --output the file
    is printed. A cut is inexact where append times are unknown or were reset, the time is in the
    future, or records are deleted or compacted (docs/as-of.md); readers refuse these partitions.
    The exit code is 1 if a partition is inexact: the file is written, and says which and why.
    """
    if path is not None and is_given(context, "bootstrap"):
        raise Misconfigured(f"give {path} or --bootstrap-server: a cut has one source")
    at_ms = at_time(options.at, options.zone)
    chosen = chosen_topics(options.topics, options.topics_pattern)
    settings = pairs(options.settings, "--set")
    if options.output is not None:
        check_output(options.output)
    if path is not None:
        reading = ReadOptions.of_path(path, settings, subscription=chosen)
        where = LogPath.parse(path).name
    else:
        with brokers.connect() as client:
            where = client.config.bootstrap_servers
            reading = ReadOptions.of_client(client.config, subscription=chosen or Pattern(".*"))
    with working(f"cutting {where}", "partitions") as work, opened_cut_source(reading) as log:
        its = cut_all(log, at_ms, SystemClock().now_ms(), work)
    if not its.partitions and isinstance(chosen, Pattern):
        raise no_match(chosen, where)
    if options.output is None:
        sys.stdout.buffer.write(its.to_bytes())
        sys.stdout.buffer.flush()
        for topic, numbers, why in _inexact(its):
            say(f"{topic} {numbers}: {why}")
    else:
        with whole_file(options.output) as file:
            file.write(its.to_bytes())
        show(None, _lines(its, options), as_json=False)
    if not all(entry.exact for entry in its.partitions):
        raise typer.Exit(1)


def _lines(cut: Cut, options: CutOptions) -> Iterable[Shown]:
    count, inexact = len(cut.partitions), sum(not entry.exact for entry in cut.partitions)
    partitions = f"{count:,} partition" + ("" if count == 1 else "s")
    exact = f"{inexact:,} inexact" if inexact else "all exact"
    at = format_moment(cut.at_ms, options.zone or UTC)
    yield f"{options.output}: {partitions} at {at}, {exact}"
    if inexact:
        yield Table.of(("topic", "partitions", "inexact because"), list(_inexact(cut)))


def _inexact(cut: Cut) -> Iterable[tuple[str, str, str]]:
    """Yield topic, partitions and reason of what is inexact."""

    def kind(entry: CutEntry) -> tuple[str, str]:
        return entry.topic, entry.why or ""

    inexact = sorted((entry for entry in cut.partitions if not entry.exact), key=kind)
    for (topic, why), entries in groupby(inexact, kind):
        yield topic, ranges_text(entry.partition for entry in entries), why
