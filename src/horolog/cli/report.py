"""`horolog report`: one page about the times of topics, to be mailed."""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from horolog.cli.connecting import Brokers, with_brokers
from horolog.cli.consume import options_of_path, options_of_topic
from horolog.cli.offline import say_all
from horolog.cli.options import path_of
from horolog.cli.retention_explained import explained_by_broker, explained_by_files
from horolog.cli.retention_screen import Explained
from horolog.cli.screen import say
from horolog.cli.working import Work, working
from horolog.client import Client
from horolog.client.kafka_lag import group_lags
from horolog.client.topic_facts import served_partitions
from horolog.clock import SystemClock
from horolog.errors import Damaged, Misconfigured, RequestRefused, StorageFailed
from horolog.offsets import commits_positions
from horolog.report.page import Horizon, PartitionPart, TopicPart, page
from horolog.report.picture import Picture
from horolog.sources.arrivals import ArrivalLog
from horolog.storage.names import INTERNAL_TOPICS, TopicPartition
from horolog.wire.questions import REFUSED

app = typer.Typer(no_args_is_help=True)

_MOST_SEGMENTS: Final = 1_000  # of a partition on the page
_OF_SEGMENT: Final = (
    *("base_offset", "end_offset", "size", "is_active", "largest_ms"),
    *("appended_ms", "seen_ms", "goes_ms", "goes_now", "reason"),
)
_STEP: Final = 500  # batches between two words on how far it is


@app.command(no_args_is_help=True)
@with_brokers
def report(
    context: typer.Context,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.html", help="Where to write the page.")
    ],
    brokers: Brokers,
    what: Annotated[str | None, typer.Argument(metavar="[TOPIC|PATH]")] = None,
) -> None:
    """Write a page on a topic, a log directory, or all topics of a broker.

    It has a picture of the log by both clocks, in which late records and those of the future stand
    out, with segments and the retention horizon; the segments and when they go; latencies; and,
    from a broker, groups with their lag, and what was refused and why. The file needs no network.
    All records' times are read.
    """
    _check_output(output)
    now_ms = SystemClock().now_ms()
    path = None if what is None else path_of(context, what)
    if path is not None:
        explained = list(explained_by_files(path, None, now_ms, {}))
        log = ArrivalLog(options_of_path(str(path), None))
        parts = _topics(log, explained, str(path), {}, {})
        text = page(f"Times of {path.name or path}", str(path), now_ms, parts)
    else:
        with brokers.connect() as client:
            topics = [what] if what is not None else _all_topics(client)
            parts = [part for topic in topics for part in _topics_of_broker(client, topic, now_ms)]
            where = client.config.bootstrap_servers
            text = page(f"Times of {what or where}", f"the broker at {where}", now_ms, parts)
    partial = output.with_name(f"{output.name}.{os.getpid()}.part")
    try:
        partial.write_text(text, "utf-8")
        partial.replace(output)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise StorageFailed(f"{output} cannot be written: {error.strerror}") from None
    say(f"wrote {output}, {len(text) >> 10} KiB")
    if not any(part.partitions for part in parts):  # all are offline
        raise typer.Exit(1)


def _check_output(output: Path) -> None:
    """Refuse before anything is read.

    Raises:
        Misconfigured: the file cannot be there.
    """
    if output.is_dir():
        raise Misconfigured(f"{output} is a directory: name a file in it, as report.html")
    if not output.parent.is_dir():
        raise Misconfigured(f"There is no directory {output.parent}: make it first")
    if not os.access(output.parent, os.W_OK):
        raise Misconfigured(f"{output.parent} cannot be written to: choose another place")


def _all_topics(client: Client) -> list[str]:
    found = client.metadata().topics
    names = sorted(name for name, topic in found.items() if not topic.is_internal)
    if not names:
        raise Misconfigured("the broker has no topics yet")
    return names


def _topics_of_broker(client: Client, topic: str, now_ms: int) -> list[TopicPart]:
    served = served_partitions(client, topic)
    say_all(served.offline)
    notes = list(served.offline.values())
    if not served.leaders:
        return [TopicPart(topic, Picture(), [], None, None, notes)]
    try:
        explained = list(explained_by_broker(client, served._replace(offline={}), None, {}))
    except RequestRefused as error:  # Apache Kafka's brokers
        explained = []
        notes.append(str(error))
    readers = list(filter(commits_positions, client.groups.names()))
    lags = group_lags(client, readers, now_ms)
    groups = [each._asdict() for each in lags if each.topic == topic]
    answer = client.ask(REFUSED, topic)
    log = ArrivalLog(options_of_topic(client.config, topic), served.leaders)
    return _topics(
        log,
        explained,
        topic,
        {topic: groups},
        {} if answer is None else {topic: [each._asdict() for each in answer.refused]},
        notes,
    )


def _topics(
    log: ArrivalLog,
    explained: Sequence[Explained],
    what: str,
    groups: Mapping[str, Sequence[dict[str, Any]]],
    refused: Mapping[str, Sequence[dict[str, Any]]],
    notes: Sequence[str] = (),
) -> list[TopicPart]:
    by_name = {each.name: each for each in explained}
    by_topic: dict[str, list[TopicPartition]] = defaultdict(list)
    for partition in log.partitions:
        if partition.topic not in INTERNAL_TOPICS:
            by_topic[partition.topic].append(partition)
    parts, done = [], 0
    with working(f"report {what}", "offsets") as work:
        for topic, partitions in by_topic.items():
            picture, said = Picture(), [*notes]
            for partition in partitions:
                try:
                    _read(log, partition, picture, done, work)
                except (Damaged, StorageFailed) as error:  # its neighbours are shown all the same
                    said.append(f"{partition}: {error}")
                done += log.offsets_of(partition)
                work(done, log.offsets)
            its = [_partition(str(each), by_name.get(str(each))) for each in partitions]
            said += [
                f"{each}: {by_name[each].damage}"
                for each in map(str, partitions)
                if each in by_name and by_name[each].damage
            ]
            parts.append(
                TopicPart(topic, picture, its, groups.get(topic), refused.get(topic), said)
            )
    return parts


def _read(
    log: ArrivalLog, partition: TopicPartition, picture: Picture, done: int, work: Work
) -> None:
    start: int | None = None
    for number, batch in enumerate(log.times(partition)):
        start = batch.base_offset if start is None else start
        times = batch.create_times
        offsets = range(batch.base_offset, batch.base_offset + len(times))
        picture.add(partition.partition, batch.append_ms, offsets, times)
        if number % _STEP == 0:
            work(done + batch.base_offset - start, log.offsets)


def _partition(name: str, explained: Explained | None) -> PartitionPart:
    if explained is None:
        return PartitionPart(name, "nothing is known of its segments", None, ())
    settings = explained.settings
    note = ", ".join(f"{key}={value}" for key, value in settings.items())
    segments = [
        {name: getattr(each, name) for name in _OF_SEGMENT}
        for each in explained.segments[-_MOST_SEGMENTS:]
    ]
    left_out = len(explained.segments) - len(segments)
    if left_out:
        note += f"; the oldest {left_out} segments are left out"
    horizon, limit_ms = None, int(settings.get("retention.ms", -1))
    if limit_ms >= 0 and not explained.is_exempt:
        by = settings.get("horolog.retention.by")
        clock = "create" if by == "create-time" else "append"
        horizon = Horizon(explained.now_ms - limit_ms, clock)
    return PartitionPart(name, note, horizon, segments)
