"""`horolog topics`: list, create, describe, alter, delete, and reset append times."""

from collections.abc import Iterator
from datetime import UTC
from typing import Annotated, Any, Final

import typer

from horolog.cli.connecting import HorologBrokers, KafkaBrokers
from horolog.cli.history import topic_history
from horolog.cli.offline import offline_asides, say_offline, with_asides
from horolog.cli.options import Partitions, Topic, Zone, pairs, with_options
from horolog.cli.terminal import echo
from horolog.cli.topic_cleaning import cleaning_lines, cleaning_of
from horolog.client import Client, LeftBehind, ResourceType
from horolog.client.topic_facts import PartitionFacts, partition_facts, served_partitions
from horolog.clock import format_duration
from horolog.errors import Misconfigured, RequestRefused
from horolog.results import Answer, Column, Shown, Table
from horolog.storage.directory.checkpoints import kafka_uuid
from horolog.times import format_time

app = typer.Typer(no_args_is_help=True, help="List, create, describe, alter and delete topics.")

Names = Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False)]
Config = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="A topic setting; repeatable."),
]


@app.command("list")
@with_options
def list_topics(
    brokers: KafkaBrokers,
    internal: Annotated[bool, typer.Option(help="Include Kafka's internal topics.")] = False,
) -> Answer:
    """List topics with their partitions."""
    with brokers.connect() as client:
        topics = client.metadata().topics
        asides = offline_asides(
            client,
            (
                (topic.name, number)
                for topic in topics.values()
                for number, partition in topic.partitions.items()
                if partition.leader is None
            ),
        )
    shown = [topics[name] for name in sorted(topics) if internal or not topics[name].is_internal]
    result = [{"topic": topic.name, "partitions": len(topic.partitions)} for topic in shown]
    partitions: Column = "partitions", lambda topic: len(topic.partitions)
    table = Table(
        shown,
        ("topic", "name"),
        partitions,
        ("id", lambda topic: topic.topic_id and kafka_uuid(topic.topic_id)),
    )
    return Answer(result, [table if shown else "no topics", *asides])


@app.command()
@with_options
def create(
    topics: Names,
    brokers: KafkaBrokers,
    partitions: Annotated[
        int,
        typer.Option("--partitions", help="How many; -1 for the broker's default."),
    ] = -1,
    replication_factor: Annotated[
        int,
        typer.Option("--replication-factor", help="Replicas; -1 for the broker's default."),
    ] = -1,
    config: Config = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Ignore topics that exist.")
    ] = False,
) -> None:
    """Create topics with the given settings."""
    settings = pairs(config, "--config")
    with brokers.connect() as client:
        existing = set(client.metadata().topics) if if_not_exists else set()
        missing = {name: partitions for name in topics if name not in existing}
        if missing:
            client.create_topics(missing, configs=settings, replication_factor=replication_factor)
    for name in topics:
        echo(f"{name} exists" if name in existing else f"created {name}")


@app.command()
@with_options
def delete(topics: Names, brokers: KafkaBrokers) -> None:
    """Delete topics and all their records."""
    with brokers.connect() as client:
        client.delete_topics(topics)
    for name in topics:
        echo(f"deleted {name}")


@app.command()
@with_options
def describe(
    topic: Topic,
    brokers: KafkaBrokers,
    everything: Annotated[
        bool, typer.Option("--all", help="Include settings with default values.")
    ] = False,
    zone: Zone = None,
) -> Answer:
    """Show a topic's partitions, timestamps and settings."""
    shown_zone = zone or UTC
    with brokers.connect() as client:
        served = served_partitions(client, topic)
        facts = {
            partition_fact.partition: partition_fact
            for partition_fact in partition_facts(client, topic, served.leaders)
        }
        resource = (ResourceType.TOPIC, topic)
        entries = client.describe_configs([resource])[resource]
        left = client.left_behind(topic, min(facts)) if facts else None
        cleaned = cleaning_of(client, topic, list(facts))
    given = {name: entry for name, entry in entries.items() if everything or entry.is_given}
    rows = [
        {
            "partition": number,
            **_plain(facts.get(number)),
            "offline": served.offline.get(number),
        }
        for number in served.numbers
    ]
    result: dict[str, Any] = {
        "topic": topic,
        "partitions": rows,
        "settings": {name: entry.value for name, entry in given.items()},
        "compaction": [
            {"partition": number, **cleaning._asdict()} for number, cleaning in cleaned.items()
        ],
        "left_behind": left and {name: getattr(left, name) for name in _OF_LEFT_BEHIND},
    }

    def records(row: dict[str, Any]) -> int | None:
        return None if row["offline"] else row["end_offset"] - row["first_offset"]

    def latest(row: dict[str, Any]) -> str | None:
        return None if row["offline"] else format_time(row["latest_timestamp"], shown_zone)

    def lines() -> Iterator[Shown]:
        yield Table(
            rows,
            "partition",
            "leader",
            "first offset",
            "end offset",
            ("records", records),
            ("latest time", latest),
            ("at offset", "latest_time_offset"),
        )
        if given:
            yield ""
            source: Column = "given", lambda entry: _SOURCES.get(entry.source)
            yield Table(given.values(), ("setting", "name"), "value", source)
        yield from cleaning_lines(cleaned, shown_zone)
        if left is not None:
            yield from _left_behind(left)

    return with_asides(served, result, lines())


_OF_LEFT_BEHIND: Final = ("is_adopted", "is_made_here", "settings", "offsets")


def _left_behind(left: LeftBehind) -> Iterator[Shown]:
    if left.is_adopted:
        yield ""
        yield "found on disk: nothing of it expires until it is given settings"
    if left.is_made_here:
        yield ""
        yield (
            "unknown to the Kafka that had the log directory, which would rename its "
            "directories to *-stray (docs/moving-in-and-out.md)"
        )
    if left.settings:
        yield ""
        yield "settings that Kafka gave it, without effect here:"
        yield Table.of(("setting", "value"), left.settings.items())
    if left.offsets:
        yield ""
        yield "committed with Kafka and not carried over (docs/moving-in-and-out.md):"
        yield Table.of(("group", "partition", "offset"), left.offsets)


@app.command()
@with_options
def alter(
    topic: Topic,
    brokers: KafkaBrokers,
    config: Config = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="Reset a setting to its default; repeatable."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=1, help="Increase partitions to this total."),
    ] = None,
) -> None:
    """Change a topic's settings, or increase its partitions."""
    changes: dict[str, str | None] = {**pairs(config, "--config")}
    changes |= dict.fromkeys(unset or ())
    if not changes and partitions is None:
        raise typer.BadParameter("nothing to change: give --config, --unset or --partitions")
    with brokers.connect() as client:
        if changes:
            client.alter_configs({(ResourceType.TOPIC, topic): changes})
        if partitions is not None:
            client.create_partitions({topic: partitions})
    echo(f"altered {topic}")


app.command("history", no_args_is_help=True)(topic_history)


@app.command("reset-append-time")
@with_options
def reset_append_time(
    brokers: HorologBrokers,
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", show_default=False)] = None,
    partitions: Partitions = None,
    resets_all: Annotated[
        bool, typer.Option("--all", help="Reset all topics, instead of one.")
    ] = False,
) -> Answer:
    """Reset append times to the broker's clock, after it was ahead.

    Append times never go back, in a partition nor over the partitions of a broker. After the clock
    was far ahead, new records keep that time until the clock has caught up. This command makes new
    records follow the clock again; existing records keep their times. The broker's own clock of
    append times is set back with any topic; a partition that is not reset keeps its last append
    time. The partition's file append-time-resets records the reset.

    A partition without records needs no reset. Apache Kafka has no such command: its append times
    follow its clock back. The exit code is 1 if a partition is offline, or with --all a topic is
    refused; the others are reset.
    """
    if resets_all == (topic is not None) or (resets_all and partitions):
        raise Misconfigured("give a TOPIC, or --all without --partition")
    results: list[dict[str, Any]] = []
    lines: list[str] = []
    is_ok, clock_ms = True, 0
    with brokers.connect() as client:
        names = sorted(client.metadata().topics) if topic is None else [topic]
        for name in names:
            try:
                result, said, is_served, lowered_ms = _reset(client, name, partitions)
                clock_ms = max(clock_ms, lowered_ms)
            except RequestRefused as error:  # as of a topic that another cluster leads
                if topic is not None:
                    raise
                left = client.topics.append_times_ahead(name)
                clock_ms = max(clock_ms, left.clock_ahead_ms)
                result = {"topic": name, "reset": 0, "still_ahead": left.ahead}
                said, is_served = [f"{name} is not reset: {error}"], not left.ahead
            is_ok &= is_served
            results.append(result)
            if topic is not None or result["reset"] or result["still_ahead"]:
                lines += said
        if topic is None:
            client.topics.lower_append_time_clock()  # also where all topics are followed
    if clock_ms and not any(result["reset"] for result in results):
        lines.append(
            "the broker's clock of append times is set back to its clock; it was "
            f"{format_duration(clock_ms)} ahead"
        )
    if topic is None:
        lines = lines or ["no append time is ahead of the broker's clock"]
        return Answer({"topics": results}, lines, is_ok)
    return Answer(results[0], lines, is_ok)


def _reset(
    client: Client, topic: str, partitions: list[int] | None
) -> tuple[dict[str, Any], list[str], bool, int]:
    """Reset a topic.

    Return the result, lines about it, False if a partition is offline, and by how many milliseconds
    the broker's clock of append times was set back.
    """
    before = client.topics.append_times_ahead(topic)
    served = served_partitions(client, topic, partitions)
    say_offline(served)
    client.topics.reset_append_times(topic, list(served.leaders) if served.offline else partitions)
    after = client.topics.append_times_ahead(topic)
    count = max(0, before.ahead - after.ahead)
    parts = []
    if count:
        ahead = format_duration(before.most_ahead_ms)
        parts.append(f"reset {_partitions(count)} of {topic}, up to {ahead} ahead of the clock")
    elif not after.ahead:
        parts.append(f"no append time of {topic} is ahead of the broker's clock")
    if after.ahead:
        ahead = format_duration(after.most_ahead_ms)
        parts.append(f"{_partitions(after.ahead)} of {topic} still up to {ahead} ahead")
    result = {"topic": topic, "reset": count, "still_ahead": after.ahead}
    lowered_ms = max(0, before.clock_ahead_ms - after.clock_ahead_ms)
    return result, parts, not served.offline, lowered_ms


def _partitions(count: int) -> str:
    return f"{count} partition" + ("s" if count > 1 else "")


_SOURCES = {
    1: "for the topic",
    2: "for the broker",
    3: "for the cluster",
    4: "in the broker's file",
    5: "default",
}


def _plain(facts: PartitionFacts | None) -> dict[str, int | str | None]:
    if facts is None:
        names = ("leader", "first_offset", "end_offset", "latest_timestamp", "latest_time")
        return dict.fromkeys((*names, "latest_time_offset"))
    return {
        "leader": facts.leader,
        "first_offset": facts.earliest,
        "end_offset": facts.end,
        "latest_timestamp": facts.latest_ms,
        "latest_time": None if facts.latest_ms is None else format_time(facts.latest_ms),
        "latest_time_offset": facts.latest_offset,
    }
