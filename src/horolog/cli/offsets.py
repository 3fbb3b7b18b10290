"""`horolog offsets`: find offsets by time, and explain the result."""

from datetime import UTC, tzinfo
from typing import Annotated

import typer

from horolog.cli.explaining import explain
from horolog.cli.options import LOCAL, Bootstrap, Json, Partitions, Topic, Zone
from horolog.cli.screen import show_json, show_table
from horolog.cli.times import format_time, parse_time, parse_zone
from horolog.cli.topic_facts import PartitionFacts, partition_facts, partition_numbers
from horolog.client import Client, FoundOffset
from horolog.clock import SystemClock
from horolog.errors import Misconfigured

app = typer.Typer(no_args_is_help=True)


@app.command(no_args_is_help=True)
def offsets(
    topic: Topic,
    bootstrap: Bootstrap = LOCAL,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="Find the first record at or after this time."),
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
    where = parse_zone(zone) if zone else None
    target = None if at is None else parse_time(at, now_ms=SystemClock().now_ms(), zone=where)
    if target is not None and target < 0:
        raise Misconfigured(
            f"--at {at} is before 1970, and Kafka's protocol uses negative numbers for special "
            "lookups; horolog consume --to-time reads such records"
        )
    if explained and target is None:
        raise Misconfigured("--explain explains a lookup by time: give it with --at TIME")
    shown_zone = where or UTC
    with Client(bootstrap) as client:
        if target is None:
            _show_bounds(partition_facts(client, topic, partitions), shown_zone, as_json)
            return
        numbers = list(partition_numbers(client, topic, partitions))
        asked = client.list_offsets({(topic, number): target for number in numbers})
        found = {tp[1]: answer for tp, answer in asked.items()}
        if explained:
            facts = {each.partition: each for each in partition_facts(client, topic, numbers)}
            for number in numbers:
                for line in explain(
                    client, topic, facts[number], target, found[number], shown_zone
                ):
                    typer.echo(line)
        else:
            _show_answers(topic, target, found, shown_zone, as_json)


def _show_answers(
    topic: str, target: int, found: dict[int, FoundOffset | None], zone: tzinfo, as_json: bool
) -> None:
    if as_json:
        answers = [
            {
                "partition": number,
                "offset": None if answer is None else answer.offset,
                "timestamp": None if answer is None else answer.timestamp,
                "time": None if answer is None else format_time(answer.timestamp, zone),
            }
            for number, answer in found.items()
        ]
        show_json({"topic": topic, "at": target, "partitions": answers})
        return
    typer.echo(f"first offset of {topic} at or after {format_time(target, zone)}\n")
    rows = [
        (number, answer.offset, format_time(answer.timestamp, zone))
        if answer
        else (number, "none", "")
        for number, answer in found.items()
    ]
    show_table(("partition", "offset", "its time"), rows)


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
