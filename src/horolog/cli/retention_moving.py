"""`horolog retention moving-out`: records that Apache Kafka would delete and horolog keeps."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from horolog.cli.connecting import HorologBrokers
from horolog.cli.options import pairs, path_of, with_options
from horolog.clock import SystemClock
from horolog.report.retention import AtRisk, at_risk, moved_by_broker, moved_by_files
from horolog.results import Answer, Shown, Table, size
from horolog.storage.names import INTERNAL_TOPICS


@with_options
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
) -> Answer:
    """List what an Apache Kafka that opens the directory deletes, and that is kept here.

    Kafka counts retention.ms from the largest timestamp of a segment's records. With another
    horolog.retention.by, Kafka deletes a backfill at once, and keeps segments with records from the
    future. Kafka keeps adopted topics, too. Nothing is written or deleted. The exit code is 1 if
    anything is at risk, or a log is damaged or offline.
    """
    settings = pairs(tried, "--set")
    path = None if what is None else path_of(context, what)
    now_ms = SystemClock().now_ms()
    if path is not None:
        both = list(moved_by_files(path, now_ms, settings))
    else:
        with brokers.connect() as client:
            topics = [what] if what is not None else sorted(client.metadata().topics)
            both = [
                pair
                for topic in topics
                if topic not in INTERNAL_TOPICS
                for pair in moved_by_broker(client, topic, settings)
            ]
    damaged = [f"{here.name}: {here.damage}" for here, _ in both if here.damage]
    risks = [risk for here, there in both for risk in at_risk(here, there)]
    result = {"at_risk": risks, "damage": damaged}
    return Answer(result, _lines(risks, damaged), not (risks or damaged))


def _lines(risks: Sequence[AtRisk], damaged: Sequence[str]) -> Iterator[Shown]:
    yield from damaged
    if not risks:
        yield "an Apache Kafka deletes nothing that is kept here"
        return
    yield Table(
        risks,
        "partition",
        ("deleted at once", lambda risk: size(risk.deleted_at_once)),
        "before offset",
        ("deleted earlier", lambda risk: size(risk.deleted_earlier)),
    )
    yield ""
    yield (
        "Give these topics a retention.ms that keeps what you need (horolog topics alter) before "
        "a Kafka opens the directory"
    )
