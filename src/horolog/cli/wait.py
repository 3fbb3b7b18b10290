"""`horolog wait`: wait until a topic is complete up to a time, for schedulers."""

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC
from typing import Annotated, Final

import typer

from horolog.cli.connecting import HorologBrokers
from horolog.cli.options import (
    Partitions,
    ReadCommitted,
    Timeout,
    Topic,
    Zone,
    moment_of,
    with_options,
)
from horolog.cli.screen import waiting
from horolog.errors import Misconfigured, RequestRefused
from horolog.results import Answer
from horolog.sources.broker_log import BrokerLog
from horolog.sources.complete import NotComplete, wait_complete
from horolog.sources.options import ReadOptions
from horolog.sources.planning import numbered
from horolog.storage.names import TopicPartition
from horolog.times import format_time, parse_duration

app = typer.Typer(no_args_is_help=True)

_LEAST_MS: Final = 1_000


@app.command(no_args_is_help=True)
@with_options
def wait(
    topic: Topic,
    brokers: HorologBrokers,
    until: Annotated[
        str,
        typer.Option(
            "--complete-until",
            metavar="TIME",
            show_default=False,
            help="Wait until no record with an earlier timestamp can come.",
        ),
    ],
    timeout: Timeout = "30s",
    partitions: Partitions = None,
    read_committed: ReadCommitted = False,
    zone: Zone = None,
) -> Answer:
    """Wait until a topic is complete up to a time, so that it can be read up to there.

    The exit code is 0 once it is complete, 1 if it is not within the timeout, and 2 if it never can
    be: the topic has no message.timestamp.before.max.ms or no such partition, or the broker is
    another product.
    """
    until_ms = moment_of(until, zone)
    assert until_ms is not None
    timeout_ms, shown_zone = parse_duration(timeout), zone or UTC
    with brokers.connect() as client:
        # A broker that does not answer is waited for no longer than the topic.
        most_ms = min(client.config.timeout_ms, max(_LEAST_MS, timeout_ms))
        options = ReadOptions.of_topic(replace(client.config, timeout_ms=most_ms), topic)
    with BrokerLog(options) as log, waiting(f"waiting for {topic}") as on_wait:
        try:
            complete = wait_complete(
                log,
                until_ms,
                partitions=lambda: _chosen(log.partitions(), partitions, topic),
                committed=read_committed,
                timeout_ms=timeout_ms,
                on_wait=on_wait,
            )
            line, is_complete = (
                f"{topic} is complete until {format_time(until_ms, shown_zone)}",
                True,
            )
        except NotComplete as error:
            complete, line, is_complete = error.complete, str(error), False
    result = {"topic": topic, "is_complete": is_complete, "complete_until_ms": complete.ms}
    return Answer(result, [line], is_complete)


def _chosen(
    present: Collection[TopicPartition], numbers: Collection[int] | None, topic: str
) -> Collection[TopicPartition]:
    """Return the partitions to wait for.

    Raises:
        Misconfigured: one of them does not exist.
    """
    try:
        return numbered(present, numbers, topic)
    except RequestRefused as error:
        raise Misconfigured(str(error)) from None
