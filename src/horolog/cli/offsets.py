"""`horolog offsets`: find offsets by time, and explain the result."""

from collections.abc import Iterable
from datetime import UTC, tzinfo
from typing import Annotated

import typer

from horolog.cli.connecting import Brokers, with_brokers
from horolog.cli.explaining import explain, explain_append_time
from horolog.cli.offline import say_offline
from horolog.cli.options import ByClock, Json, Partitions, Topic, Zone
from horolog.cli.screen import show_json, show_table
from horolog.cli.terminal import echo
from horolog.client import Client, FoundRecord, RecordClock
from horolog.client.topic_facts import (
    PartitionFacts,
    ServedPartitions,
    partition_facts,
    served_partitions,
)
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
        served = served_partitions(client, topic, partitions)
        numbers = served.leaders
        if target is None:
            _show_bounds(served, partition_facts(client, topic, numbers), shown_zone, as_json)
            say_offline(served)
            return
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
            _show_answers(served, target, found, by, shown_zone, as_json)
    say_offline(served)


def _find(
    client: Client, topic: str, numbers: Iterable[int], target: int, clock: RecordClock | None
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
    served: ServedPartitions,
    target: int,
    found: dict[int, FoundRecord | None],
    clock: RecordClock,
    zone: tzinfo,
    as_json: bool,
) -> None:
    by_append = clock is RecordClock.APPEND
    if as_json:
        answers = []
        for number in served.numbers:
            answer, offline = found.get(number), served.offline.get(number)
            shown: dict[str, object] = {
                "partition": number,
                "offset": None if answer is None else answer.offset,
                "timestamp": None if answer is None else answer.ms,
                "time": None if answer is None else format_time(answer.ms, zone),
            }
            if by_append:
                is_exact = answer is None or answer.ms is not None
                shown["is_exact"] = is_exact and offline is None
            answers.append({**shown, "offline": offline})
        shown_clock = str(clock)
        show_json(
            {"topic": served.topic, "at": target, "clock": shown_clock, "partitions": answers}
        )
        return
    what = "first offset of {} appended" if by_append else "first offset of {}"
    echo(f"{what.format(served.topic)} at or after {format_moment(target, zone)}", "")
    rows: list[tuple[object, ...]] = []
    for number in served.numbers:
        if number in served.offline:
            rows.append((number, None, None))
        elif (answer := found[number]) is None:
            rows.append((number, "none", ""))
        else:
            time = "unknown" if answer.ms is None else format_time(answer.ms, zone)
            rows.append((number, answer.offset, time))
    show_table(("partition", "offset", "appended at" if by_append else "its time"), rows)
    if any(answer is not None and answer.ms is None for answer in found.values()):
        echo("", "unknown: all before it was appended earlier; it may have been, too")


def _show_bounds(
    served: ServedPartitions, facts: list[PartitionFacts], zone: tzinfo, as_json: bool
) -> None:
    by_number = {each.partition: each for each in facts}
    if as_json:
        shown = []
        for number in served.numbers:
            each = by_number.get(number)
            values: tuple[int | None, ...] = (None,) * 4
            if each is not None:
                values = (each.earliest, each.end, each.latest_ms, each.latest_offset)
            names = ("earliest", "latest", "max_timestamp", "max_timestamp_offset")
            offline = served.offline.get(number)
            shown.append(
                {"partition": number, **dict(zip(names, values, strict=True)), "offline": offline}
            )
        show_json(shown)
        return
    rows: list[tuple[object, ...]] = []
    for number in served.numbers:
        each = by_number.get(number)
        if each is None:
            rows.append((number, *(None,) * 5))
        else:
            bounds = (each.earliest, each.end, each.end - each.earliest)
            rows.append((number, *bounds, format_time(each.latest_ms, zone), each.latest_offset))
    show_table(("partition", "earliest", "latest", "records", "largest time", "at offset"), rows)
