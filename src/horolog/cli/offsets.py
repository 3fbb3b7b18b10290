"""`horolog offsets`: find offsets by time, and explain the result."""

from collections.abc import Sequence
from datetime import UTC, tzinfo
from typing import Annotated

import typer

from horolog.cli.connecting import Brokers, with_brokers
from horolog.cli.explaining import explain, explain_append_time
from horolog.cli.options import ByClock, Json, Partitions, Topic, Zone
from horolog.cli.screen import show_json, show_table
from horolog.cli.terminal import echo
from horolog.client import Client, FoundRecord, RecordClock
from horolog.client.topic_facts import PartitionFacts, partition_facts, partition_numbers
from horolog.clock import SystemClock
from horolog.errors import Misconfigured
from horolog.times import format_moment, format_time, parse_duration, parse_time

app = typer.Typer(no_args_is_help=True)


@app.command(no_args_is_help=True)
@with_brokers
def offsets(
    topic: Topic,
    brokers: Brokers,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="Find the first record at or after this time."),
    ] = None,
    clock: ByClock = None,
    skew: Annotated[
        str | None,
        typer.Option(
            "--skew",
            metavar="DURATION",
            help="Look up TIME minus this: by append time, as far as producers' clocks may be "
            "ahead of the broker's, so that no record with a create time from TIME on is missed.",
        ),
    ] = None,
    explained: Annotated[
        bool, typer.Option("--explain", help="Explain each result, or why there is none.")
    ] = False,
    partitions: Partitions = None,
    zone: Zone = None,
    as_json: Json = False,
) -> None:
    """Show the first and end offsets of each partition, or the offset for a time.

    With --at: the earliest offset whose record's timestamp is at or after TIME; "none" if there is
    no such record. Times: ISO 8601 with a zone or --tz, epoch milliseconds, or relative (-15m).
    """
    target = (
        None
        if at is None
        else parse_time(at, now_ms=SystemClock().now_ms(), zone=zone, rounds_up=True)
    )
    if target is None and (explained or clock is not None or skew is not None):
        given = "--explain" if explained else "--clock" if clock is not None else "--skew"
        raise Misconfigured(f"{given} is about a lookup by time: give it with --at TIME")
    if target is not None and skew is not None:
        target = max(target - parse_duration(skew), -(1 << 63))
    shown_zone = zone or UTC
    with brokers.connect() as client:
        if target is None:
            _show_bounds(partition_facts(client, topic, partitions), shown_zone, as_json)
            return
        numbers = list(partition_numbers(client, topic, partitions))
        found = _find(client, topic, numbers, target, clock)
        if explained and clock is RecordClock.APPEND:
            facts = {each.partition: each for each in partition_facts(client, topic, numbers)}
            for number in numbers:
                for line in explain_append_time(
                    client, topic, facts[number], target, found[number], shown_zone
                ):
                    echo(line)
        elif explained:
            facts = {each.partition: each for each in partition_facts(client, topic, numbers)}
            for number in numbers:
                for line in explain(
                    client, topic, facts[number], target, found[number], shown_zone
                ):
                    echo(line)
        else:
            by = clock or RecordClock.CREATE
            _show_answers(topic, target, found, by, shown_zone, as_json)


def _find(
    client: Client, topic: str, numbers: Sequence[int], target: int, clock: RecordClock | None
) -> dict[int, FoundRecord | None]:
    """Looked up as any broker can, unless that cannot be asked in Kafka's protocol."""
    targets = {(topic, number): target for number in numbers}
    if clock is RecordClock.APPEND or target < 0:
        by_clock = client.find_records(targets, clock or RecordClock.CREATE)
        return {tp[1]: answer for tp, answer in by_clock.items()}
    return {
        tp[1]: None if answer is None else FoundRecord(*answer)
        for tp, answer in client.list_offsets(targets).items()
    }


def _show_answers(
    topic: str,
    target: int,
    found: dict[int, FoundRecord | None],
    clock: RecordClock,
    zone: tzinfo,
    as_json: bool,
) -> None:
    by_append = clock is RecordClock.APPEND
    if as_json:
        answers = [
            {
                "partition": number,
                "offset": None if answer is None else answer.offset,
                "timestamp": None if answer is None else answer.ms,
                "time": None if answer is None else format_time(answer.ms, zone),
                **({"is_exact": answer is None or answer.ms is not None} if by_append else {}),
            }
            for number, answer in found.items()
        ]
        show_json({"topic": topic, "at": target, "clock": str(clock), "partitions": answers})
        return
    what = "first offset of {} appended" if by_append else "first offset of {}"
    echo(f"{what.format(topic)} at or after {format_moment(target, zone)}", "")
    rows = [
        (number, answer.offset, "unknown" if answer.ms is None else format_time(answer.ms, zone))
        if answer
        else (number, "none", "")
        for number, answer in found.items()
    ]
    show_table(("partition", "offset", "appended at" if by_append else "its time"), rows)
    if any(answer is not None and answer.ms is None for answer in found.values()):
        echo("", "unknown: all before it was appended earlier; it may have been, too")


def _show_bounds(facts: list[PartitionFacts], zone: tzinfo, as_json: bool) -> None:
    if as_json:
        show_json(
            [
                {
                    "partition": each.partition,
                    "earliest": each.earliest,
                    "latest": each.end,
                    "max_timestamp": each.latest_ms,
                    "max_timestamp_offset": each.latest_offset,
                }
                for each in facts
            ]
        )
        return
    rows = [
        (
            each.partition,
            each.earliest,
            each.end,
            each.end - each.earliest,
            format_time(each.latest_ms, zone),
            each.latest_offset,
        )
        for each in facts
    ]
    show_table(("partition", "earliest", "latest", "records", "largest time", "at offset"), rows)
