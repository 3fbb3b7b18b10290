"""`horolog offsets`: find offsets by time, and explain the result."""

from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Annotated, Any, Final

import typer

from horolog.cli.connecting import KafkaBrokers
from horolog.cli.offline import with_asides
from horolog.cli.options import ByClock, Partitions, Topic, Zone, moment_of, with_options
from horolog.client import FoundRecord, RecordClock
from horolog.client.topic_facts import (
    PartitionFacts,
    ServedPartitions,
    partition_facts,
    served_partitions,
)
from horolog.errors import Misconfigured
from horolog.report.lookup import Lookup, explain, look_up
from horolog.results import Answer, Shown, Table
from horolog.times import format_moment, format_time, parse_duration

app = typer.Typer(no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class OffsetsOptions:
    """Options of a lookup."""

    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="Find the first record at or after this time."),
    ] = None
    clock: ByClock = None
    skew: Annotated[
        str | None,
        typer.Option(
            "--skew",
            metavar="DURATION",
            help="Look up TIME minus this: by append time, as far as producers' clocks may be "
            "ahead of the broker's, so that no record with a create time from TIME on is missed.",
        ),
    ] = None
    explained: Annotated[
        bool, typer.Option("--explain", help="Explain each result, or why there is none.")
    ] = False
    partitions: Partitions = None
    zone: Zone = None


@app.command(no_args_is_help=True)
@with_options
def offsets(
    topic: Topic,
    brokers: KafkaBrokers,
    options: OffsetsOptions,
) -> Answer:
    """Show the first and end offsets of each partition, or the offset for a time.

    With --at: the earliest offset whose record's timestamp is at or after TIME; "none" if there is
    no such record. Times: ISO 8601 with a zone or --tz, epoch milliseconds, or relative (-15m).
    """
    target = moment_of(options.at, options.zone, rounds_up=True)
    if target is None and (
        options.explained or options.clock is not None or options.skew is not None
    ):
        given = (
            "--explain"
            if options.explained
            else "--clock"
            if options.clock is not None
            else "--skew"
        )
        raise Misconfigured(f"{given} is about a lookup by time: give it with --at TIME")
    if target is not None and options.skew is not None:
        target = max(target - parse_duration(options.skew), -(1 << 63))
    shown_zone = options.zone or UTC
    with brokers.connect() as client:
        served = served_partitions(client, topic, options.partitions)
        numbers = served.leaders
        if target is None:
            return _bounds(served, partition_facts(client, topic, numbers), shown_zone)
        lookup = Lookup(topic, target, options.clock or RecordClock.CREATE, shown_zone)
        records = look_up(client, lookup, numbers)
        answer = _answer(served, lookup, records)
        if not options.explained:
            return answer
        lines = [
            line
            for facts in partition_facts(client, topic, numbers)
            for line in explain(client, lookup, facts, records[facts.partition])
        ]
        return with_asides(served, answer.result, lines)


def _answer(
    served: ServedPartitions, lookup: Lookup, found_records: dict[int, FoundRecord | None]
) -> Answer:
    by_append, zone = lookup.clock is RecordClock.APPEND, lookup.zone
    answers: list[dict[str, Any]] = []
    for number in served.numbers:
        answer, offline = found_records.get(number), served.offline.get(number)
        ms = None if answer is None else answer.ms
        exact = {"is_exact": (answer is None or ms is not None) and offline is None}
        answers.append(
            {
                "partition": number,
                "offset": None if answer is None else answer.offset,
                "timestamp": ms,
                "time": None if answer is None else format_time(ms, zone),
                **(exact if by_append else {}),
                "offline": offline,
            }
        )
    result = {
        "topic": served.topic,
        "at": lookup.target_ms,
        "clock": str(lookup.clock),
        "partitions": answers,
    }

    def offset(row: dict[str, Any]) -> object:
        return row["offset"] if row["offline"] or row["offset"] is not None else "none"

    def time(row: dict[str, Any]) -> str | None:
        if row["offline"]:
            return None
        is_unknown = row["offset"] is not None and row["timestamp"] is None
        return "unknown" if is_unknown else row["time"] or ""

    what = f"first offset of {served.topic}{' appended' if by_append else ''}"
    lines: list[Shown] = [
        f"{what} at or after {format_moment(lookup.target_ms, zone)}",
        "",
        Table(
            answers,
            "partition",
            ("offset", offset),
            ("appended at" if by_append else "its time", time),
        ),
    ]
    if any(answer is not None and answer.ms is None for answer in found_records.values()):
        lines += ["", "unknown: all before it was appended earlier; it may have been, too"]
    return with_asides(served, result, lines)


_BOUNDS: Final = {
    "earliest": "earliest",
    "latest": "end",
    "max_timestamp": "latest_ms",
    "max_timestamp_offset": "latest_offset",
}


def _bounds(served: ServedPartitions, facts: list[PartitionFacts], zone: tzinfo) -> Answer:
    by_number = {fact.partition: fact for fact in facts}
    bounds: list[dict[str, Any]] = [
        {
            "partition": number,
            **{name: getattr(by_number.get(number), of, None) for name, of in _BOUNDS.items()},
            "offline": served.offline.get(number),
        }
        for number in served.numbers
    ]

    def records(row: dict[str, Any]) -> int | None:
        return None if row["offline"] else row["latest"] - row["earliest"]

    def time(row: dict[str, Any]) -> str | None:
        return None if row["offline"] else format_time(row["max_timestamp"], zone)

    columns = ("records", records), ("largest time", time), ("at offset", "max_timestamp_offset")
    table = Table(bounds, "partition", "earliest", "latest", *columns)
    return with_asides(served, bounds, [table])
