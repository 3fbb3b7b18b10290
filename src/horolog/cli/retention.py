"""`horolog retention explain`: why each segment is still there, and when it goes."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from pathlib import Path
from typing import Annotated

import typer

from horolog.broker.offline_settings import OfflineSettings, OfflineTopic
from horolog.cli.connecting import CommandConfig, CommandProperties, connect
from horolog.cli.options import (
    LOCAL,
    Bootstrap,
    Json,
    Partitions,
    PathOrTopic,
    Zone,
    pairs,
    path_of,
)
from horolog.cli.retention_screen import Explained, as_json, show
from horolog.cli.retention_simulate import simulate
from horolog.cli.screen import show_json
from horolog.client import Client
from horolog.client.topic_facts import partition_numbers
from horolog.clock import SystemClock
from horolog.errors import Damaged, ErrorCode, RequestRefused, StorageFailed
from horolog.json_text import read_as
from horolog.storage import names
from horolog.storage.files import Files
from horolog.storage.names import INTERNAL_TOPICS, TopicPartition
from horolog.storage.offline.partition_reader import PartitionReader
from horolog.storage.removal.retention_report import SegmentRetention, report, settings_of
from horolog.storage.verify import find_target
from horolog.times import parse_time, parse_zone

app = typer.Typer(no_args_is_help=True)


@app.callback()
def retention() -> None:
    """Explain why segments are still there, and when they go."""


app.command(no_args_is_help=True)(simulate)


@app.command(no_args_is_help=True)
def explain(
    context: typer.Context,
    what: PathOrTopic,
    bootstrap: Bootstrap = LOCAL,
    client_config: CommandConfig = None,
    client_properties: CommandProperties = None,
    tried: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Answer as if this setting had this value; repeat for several.",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="Answer as of this time (default: now)."),
    ] = None,
    partitions: Partitions = None,
    zone: Zone = None,
    is_json: Json = False,
) -> None:
    """Show for each segment why it is still there, and when it will be deleted.

    For a topic a horolog broker answers, by its own clock and settings. For files no broker is
    needed: settings are those stored in the log directory, or Kafka's defaults, and broker settings
    that were given at its start must be given again with --set. Nothing is written or deleted. The
    exit code is 1 if a time that is unknown, or more than an hour ahead of the clock, keeps a
    segment, or if a log is damaged.
    """
    shown_zone = parse_zone(zone) if zone else UTC
    settings = pairs(tried, "--set")
    where = parse_zone(zone) if zone else None
    now_ms = SystemClock().now_ms()
    at_ms = None if at is None else parse_time(at, now_ms=now_ms, zone=where)
    path = path_of(context, what)
    if path is None:
        with connect(bootstrap, client_config, client_properties) as client:
            found = list(explained_by_broker(client, what, partitions, at_ms, settings))
    else:
        found = list(
            explained_by_files(path, partitions, now_ms if at_ms is None else at_ms, settings)
        )
    if is_json:
        show_json([as_json(each) for each in found])
    else:
        for number, each in enumerate(found):
            if number:
                typer.echo("")
            show(each, shown_zone)
    if any(each.damage or any(_odd(each)) for each in found):
        raise typer.Exit(1)


def _odd(explained: Explained) -> Iterator[bool]:
    return (segment.is_odd(explained.now_ms) for segment in explained.segments)


def explained_by_broker(
    client: Client,
    topic: str,
    partitions: Sequence[int] | None,
    at_ms: int | None,
    settings: Mapping[str, str],
) -> Iterator[Explained]:
    """What a broker says of each partition; raises as `Client.retention`."""
    for number in partition_numbers(client, topic, partitions):
        found = client.retention(topic, number, now_ms=at_ms, settings=settings)
        if found is None:
            raise RequestRefused(
                ErrorCode.unsupported_version,
                f"the broker at {client.config.bootstrap_servers} does not explain retention, as "
                "only horolog does: give the path of its log directory instead",
            )
        try:
            segments = [
                read_as(SegmentRetention, each, may_have_more=True) for each in found.segments
            ]
        except ValueError:
            raise StorageFailed(
                f"{client.config.bootstrap_servers} explains retention in another way"
            ) from None
        yield Explained(
            f"{topic}-{number}",
            found.now,
            found.settings,
            "the broker",
            found.is_exempt,
            segments,
            unread=client.unread_deleted(topic, number, settings=settings),
        )


def explained_by_files(
    path: Path, partitions: Sequence[int] | None, now_ms: int, settings: Mapping[str, str]
) -> Iterator[Explained]:
    """The same of a log directory, a partition or a segment, without a broker."""
    target = find_target(path)
    stored = OfflineSettings(target.log_dir, settings, now_ms)
    files = Files(read_only=True)
    for directory in target.partitions:
        partition = names.partition_of(directory.name) or TopicPartition(directory.name, 0)
        is_left_out = partition.topic in INTERNAL_TOPICS and target.is_log_dir
        if is_left_out or (partitions and partition.partition not in partitions):
            continue
        topic = stored.of(partition.topic)
        explained = Explained(
            directory.name, now_ms, settings_of(topic.config), topic.source, topic.is_exempt
        )
        try:
            log = PartitionReader(files, directory)
            found = _report(log, topic, now_ms)
            notes = tuple(log.notes)
        except (Damaged, StorageFailed) as error:  # its neighbours are shown all the same
            yield explained._replace(damage=str(error))
            continue
        if target.segment is not None:
            base_offset = names.base_offset_of(target.segment.name, names.LOG)
            found = [each for each in found if each.base_offset == base_offset]
        yield explained._replace(segments=found, notes=notes)


def _report(log: PartitionReader, topic: OfflineTopic, now_ms: int) -> list[SegmentRetention]:
    if not log.segments:
        return []
    found = report(
        log.segments,
        topic.config,
        log.log_start_offset,
        log.log_end_offset,
        now_ms,
        log.resets(),
        is_exempt=topic.is_exempt,
    )
    return list(found)
