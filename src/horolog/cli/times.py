"""`horolog times`: up to which time a topic is complete, and the times of its records."""

from collections.abc import Iterator, Mapping
from datetime import UTC, tzinfo
from typing import Any, Final

import typer

from horolog.cli.connecting import HorologBrokers
from horolog.cli.offline import with_asides
from horolog.cli.options import Topic, Zone, with_options
from horolog.client import Client, PartitionTimes
from horolog.client.complete_times import CompleteUntil, least
from horolog.client.topic_facts import served_partitions
from horolog.clock import format_duration
from horolog.errors import Misconfigured
from horolog.record.time_stats import LATENCY_BOUNDS, LatencyClass, latency_class
from horolog.results import Answer, Shown, Table
from horolog.times import duration_text, format_time
from horolog.wire.questions import TIMES, AskTimes

QUANTILES: Final = (50, 90, 99)
"""Quantiles in per cent."""


app = typer.Typer(no_args_is_help=True)


@app.command(no_args_is_help=True)
@with_options
def times(topic: Topic, brokers: HorologBrokers, zone: Zone = None) -> Answer:
    """Show up to which time a topic is complete, and which times its records have.

    Complete: no record with an earlier timestamp can be appended any more, because
    message.timestamp.before.max.ms is set (docs/complete-until.md). Records without a time may
    come. Of the records it is shown which times they have by both clocks, how many are out of
    order, of the future or without a time, and how late they come. No record is read.
    """
    with brokers.connect() as client:
        served = served_partitions(client, topic)
        found = topic_times(client, topic, list(served.leaders))
    known: dict[int, PartitionTimes | None] = {**dict.fromkeys(served.offline), **found}
    until, committed = least(known, committed=False), least(known, committed=True)
    result = {
        "topic": topic,
        "complete_until_ms": until.ms,
        "committed_complete_until_ms": committed.ms,
        "complete_withdrawn": _withdrawn(until) or _withdrawn(committed),
        "partitions": [plain_times(number, its) for number, its in found.items()],
    }
    lines = times_lines(topic, found, until, committed, zone or UTC)
    return with_asides(served, result, lines)


def _withdrawn(until: CompleteUntil) -> str | None:
    return None if until.ms is not None else until.withdrawn or "offline"


def topic_times(client: Client, topic: str, partitions: list[int]) -> dict[int, PartitionTimes]:
    """Ask for the statistics of each partition; the broker reads no record for them.

    Raises:
        Misconfigured: a leader is an Apache Kafka broker.
        RequestRefused: a partition does not exist, or a broker refuses.
        NoAnswer: no broker answers.
    """
    by_partition = {}
    asks = {(topic, number): AskTimes(number) for number in partitions}
    for (_, number), times in client.ask.many(TIMES, asks).items():
        if times is None:
            raise Misconfigured(
                f"The leader of {topic}-{number} keeps no sums of times, as Apache Kafka's brokers "
                "do not: horolog spark latency and audit read the records"
            )
        by_partition[number] = times
    return by_partition


def plain_times(number: int, times: PartitionTimes) -> dict[str, Any]:
    """Convert the statistics of a partition for JSON, with quantiles of latency as classes."""
    members = times._asdict()
    latencies = members.pop("latencies")
    quantiles = {f"p{per_cent}": _quantile(times, per_cent) for per_cent in QUANTILES}
    return {"partition": number, **members, "latency_ms": quantiles, "latencies": latencies}


def times_lines(
    topic: str,
    statistics: Mapping[int, PartitionTimes],
    until: CompleteUntil,
    committed: CompleteUntil,
    zone: tzinfo,
) -> Iterator[Shown]:
    """Yield complete times, time spans of both clocks for each partition, and odd records."""
    if until.ms is None:
        yield until.why(topic)
    else:
        yield f"complete until {format_time(until.ms, zone)}"
        if committed.ms is None:
            yield f"for readers of committed records, {committed.why(topic)}"
        elif committed.ms != until.ms:
            yield f"for readers of committed records until {format_time(committed.ms, zone)}"
    if len(statistics) > 1:
        yield ""
        yield Table.of(
            ("partition", "complete until", "committed", "withdrawn"),
            (
                (
                    number,
                    _shown_time(its.complete_until_ms, zone),
                    _shown_time(its.committed_complete_until_ms, zone),
                    its.complete_withdrawn,
                )
                for number, its in statistics.items()
            ),
        )
    yield ""
    spans, facts = [], []
    for number, times in statistics.items():
        for clock, first, last in (
            ("create", times.create_min_ms, times.create_max_ms),
            ("append", times.append_first_ms, times.append_last_ms),
        ):
            shown = (
                None if moment is None else format_time(moment, zone) for moment in (first, last)
            )
            spans.append((number, clock, *shown))
        seen = times.seen_first_ms, times.seen_last_ms
        if seen != (None, None):
            shown = (None if moment is None else format_time(moment, zone) for moment in seen)
            spans.append((number, "seen by a follower", *shown))
        counts = times.out_of_order, times.future, times.missing
        latencies = (_quantile(times, per_cent) for per_cent in QUANTILES)
        facts.append(
            (
                number,
                times.records,
                *(_share(count, times.records) for count in counts),
                *(None if latency is None else latency_text(latency) for latency in latencies),
            )
        )
    yield Table.of(("partition", "clock", "first", "last"), spans)
    yield ""
    quantiles = (f"latency {per_cent} %" for per_cent in QUANTILES)
    yield Table.of(
        ("partition", "records", "out of order", "of the future", "without time", *quantiles),
        facts,
    )
    unknown = sum(partition_times.unknown_offsets for partition_times in statistics.values())
    if unknown:
        yield ""
        yield (
            f"without {unknown} offsets, whose segments have no whole block map yet: a read of a "
            "range of times makes it, that of the last segment the next append"
        )


def _shown_time(moment_ms: int | None, zone: tzinfo) -> str | None:
    return None if moment_ms is None else format_time(moment_ms, zone)


def _quantile(times: PartitionTimes, per_cent: int) -> LatencyClass | None:
    largest_ms = None
    if times.append_last_ms is not None and times.create_min_ms is not None:
        largest_ms = times.append_last_ms - times.create_min_ms
    return latency_class(times.latencies, per_cent / 100, largest_ms)


def latency_text(bounds: LatencyClass) -> str:
    """Format a class of latency: "1s to 10s"."""
    if bounds.from_ms is None:
        return "ahead of the clock"
    if bounds.below_ms is None:
        return f"{duration_text(bounds.from_ms)} or more"
    is_bound = bounds.below_ms in LATENCY_BOUNDS
    below = duration_text(bounds.below_ms) if is_bound else format_duration(bounds.below_ms)
    return f"{duration_text(bounds.from_ms)} to {below}"


def _share(count: int, of: int) -> str:
    return f"{count} ({count / of:.1%})" if count else "0"
