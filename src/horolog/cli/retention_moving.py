"""`horolog retention moving-out`: what an Apache Kafka would delete that is kept here."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from horolog.cli.connecting import HorologBrokers, with_brokers
from horolog.cli.options import Json, pairs, path_of
from horolog.cli.retention_explained import explained_by_broker, explained_by_files
from horolog.cli.retention_screen import Explained
from horolog.cli.screen import show_json, show_table, size
from horolog.cli.terminal import echo
from horolog.client import Client
from horolog.client.topic_facts import served_partitions
from horolog.clock import SystemClock
from horolog.storage.names import INTERNAL_TOPICS

_AS_KAFKA: Final = {"horolog.retention.by": "create-time"}


class AtRisk(NamedTuple):
    """A partition of which Kafka deletes more, or earlier."""

    partition: str
    deleted_at_once: int
    """Bytes, at Kafka's first check."""
    before_offset: int | None
    """All records before it are deleted at once; None if none are."""
    deleted_earlier: int
    """Bytes of segments that are deleted later than that, and before they would be here."""


@with_brokers
def moving_out(
    context: typer.Context,
    brokers: HorologBrokers,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATH|TOPIC]",
            show_default=False,
            help="A log directory or a partition directory; or a topic of the broker. Default: "
            "all topics of the broker.",
        ),
    ] = None,
    tried: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Answer as if this setting had this value; repeat for several. For files, give "
            "broker settings again that were given at its start.",
        ),
    ] = None,
    is_json: Json = False,
) -> None:
    """List what an Apache Kafka that opens the directory deletes, and that is kept here.

    Kafka counts retention.ms from the largest timestamp of a segment's records. Where
    horolog.retention.by says otherwise, a backfill is deleted there at once, and a record from the
    future keeps what is deleted here. Adopted topics are kept by Kafka, too. Nothing is written or
    deleted. The exit code is 1 if anything is at risk, or a log is damaged or offline.
    """
    settings = pairs(tried, "--set")
    path = None if what is None else path_of(context, what)
    now_ms = SystemClock().now_ms()
    if path is not None:
        both = list(_by_files(path, now_ms, settings))
    else:
        with brokers.connect() as client:
            topics = [what] if what is not None else sorted(client.metadata().topics)
            both = [
                each
                for topic in topics
                if topic not in INTERNAL_TOPICS
                for each in _by_broker(client, topic, settings)
            ]
    damaged = [f"{here.name}: {here.damage}" for here, _ in both if here.damage]
    found = [risk for here, there in both for risk in _compared(here, there)]
    _show(found, damaged, is_json=is_json)
    if found or damaged:
        raise typer.Exit(1)


def _by_files(
    path: Path, now_ms: int, settings: Mapping[str, str]
) -> Iterator[tuple[Explained, Explained]]:
    """Each partition as retention here sees it, and as Kafka's does."""
    here = explained_by_files(path, None, now_ms, settings)
    there = explained_by_files(path, None, now_ms, {**settings, **_AS_KAFKA})
    return zip(here, there, strict=True)


def _by_broker(
    client: Client, topic: str, settings: Mapping[str, str]
) -> Iterator[tuple[Explained, Explained]]:
    served = served_partitions(client, topic)
    here = explained_by_broker(client, served, None, settings)
    there = explained_by_broker(client, served, None, {**settings, **_AS_KAFKA})
    return zip(here, there, strict=True)


def _compared(here: Explained, there: Explained) -> list[AtRisk]:
    """A partition here and in Kafka; nothing where Kafka does not delete more, nor earlier."""
    if here.is_exempt:
        return []
    stay = {each.base_offset: each for each in here.segments if not each.goes_now}
    at_once = [each for each in there.segments if each.goes_now and each.base_offset in stay]
    earlier = [
        each.size
        for each in there.segments
        if not each.goes_now
        and each.goes_ms is not None
        and (its := stay.get(each.base_offset)) is not None
        and (its.goes_ms is None or each.goes_ms < its.goes_ms)
    ]
    if not at_once and not earlier:
        return []
    before = max((each.end_offset for each in at_once), default=None)
    return [AtRisk(here.name, sum(each.size for each in at_once), before, sum(earlier))]


def _show(found: list[AtRisk], damaged: list[str], *, is_json: bool) -> None:
    if is_json:
        show_json({"at_risk": [each._asdict() for each in found], "damage": damaged})
        return
    for why in damaged:
        echo(why)
    if not found:
        echo("an Apache Kafka deletes nothing that is kept here")
        return
    rows = [
        (
            each.partition,
            size(each.deleted_at_once),
            each.before_offset,
            size(each.deleted_earlier),
        )
        for each in found
    ]
    show_table(("partition", "deleted at once", "before offset", "deleted earlier"), rows)
    echo(
        "",
        "Give these topics a retention.ms that keeps what you need (horolog topics alter) before "
        "a Kafka opens the directory",
    )
