"""`horolog consume`: print the records of a topic, or those of a time range; also from files."""

import sys
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from typing import Annotated, Any, Final

import typer

from horolog.cli.as_of import as_of, as_of_option
from horolog.cli.connecting import KafkaBrokers
from horolog.cli.consume_printing import (
    Ordering,
    Output,
    print_in_order,
    print_new,
    print_records,
)
from horolog.cli.offline import say_offline
from horolog.cli.options import (
    ByClock,
    Partitions,
    PathOrTopic,
    StoreSettings,
    Timeout,
    Zone,
    pairs,
    path_of,
    with_options,
)
from horolog.cli.screen import say, saying_warnings, waiting
from horolog.cli.showing import Format
from horolog.client import ClientConfig
from horolog.client.topic_facts import served_partitions
from horolog.clock import SystemClock
from horolog.errors import Misconfigured
from horolog.record.timestamps import RecordClock, TimeRange
from horolog.sources.broker_log import BrokerLog
from horolog.sources.complete import end_of_complete, wait_complete
from horolog.sources.options import ReadOptions
from horolog.sources.ordered import WithoutTime, checked_memory, clock_of_order
from horolog.sources.planning import check_read, numbered
from horolog.sources.records import RecordLog
from horolog.sources.uris import has_scheme
from horolog.times import bytes_of, format_moment, parse_duration, parse_time

app = typer.Typer(no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """Options that choose records and their form."""

    from_time: Annotated[
        str | None,
        typer.Option("--from-time", metavar="TIME", help="Print records at or after it."),
    ] = None
    to_time: Annotated[
        str | None,
        typer.Option("--to-time", metavar="TIME", help="Print records before it."),
    ] = None
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the first record (default).")
    ] = False
    from_end: Annotated[
        bool, typer.Option("--from-end", help="Start at the log end; needs --follow.")
    ] = False
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="Start at this offset.")] = (
        None
    )
    clock: ByClock = None
    partitions: Partitions = None
    as_of: Annotated[
        str | None,
        as_of_option(
            "Only what was appended before this time, or before a cut (horolog cut); refused where "
            "that is not exactly known."
        ),
    ] = None
    read_committed: Annotated[
        bool,
        typer.Option(
            "--read-committed",
            help="Print records of committed transactions only; without it every record is "
            "printed. With --as-of those that were committed before it.",
        ),
    ] = False
    latest: Annotated[
        bool,
        typer.Option(
            "--latest",
            help="Print the last record of each key of each partition, of committed records; one "
            "without a value deletes its key. With --as-of as it was known then.",
        ),
    ] = False
    latest_memory: Annotated[
        str,
        typer.Option(
            "--latest-memory",
            metavar="SIZE",
            help="With --latest, how much the keys of a partition may take.",
        ),
    ] = "256MiB"
    max_messages: Annotated[
        int | None,
        typer.Option("--max-messages", "-n", min=1, help="Stop after this many records."),
    ] = None
    follow_on: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new records until Ctrl-C.")
    ] = False
    order: Annotated[
        str | None,
        typer.Option(
            "--order",
            metavar="create-time|append-time",
            help="Print records in the order of these times, over all partitions, late ones "
            "included.",
        ),
    ] = None
    without_time: Annotated[
        WithoutTime,
        typer.Option(
            "--without-time", help="With --order, where records without a time are printed."
        ),
    ] = WithoutTime.LAST
    order_memory: Annotated[
        str,
        typer.Option(
            "--order-memory",
            metavar="SIZE",
            help="With --order, how much of records that overlap in time may be held.",
        ),
    ] = "256MiB"
    lateness: Annotated[
        str | None,
        typer.Option(
            "--lateness",
            metavar="DURATION",
            help="With --order and --follow, hold records back for so long after the latest one, "
            "because earlier ones may come.",
        ),
    ] = None
    complete: Annotated[
        bool,
        typer.Option(
            "--complete",
            help="Wait until no record before --to-time can come any more; with --order and "
            "--follow, print a record once no earlier one can come.",
        ),
    ] = False
    timeout: Timeout = "30s"
    uncommitted: Annotated[
        bool,
        typer.Option(
            "--uncommitted",
            help="With files, also read what the broker of a cluster may still take back: records "
            "behind the high watermark of its last checkpoint.",
        ),
    ] = False
    settings: StoreSettings = None
    shape: Annotated[Format, typer.Option("--format", help="The output format.")] = "text"
    zone: Zone = None


@app.command(no_args_is_help=True)
@with_options
def consume(
    context: typer.Context,
    what: PathOrTopic,
    brokers: KafkaBrokers,
    options: ConsumeOptions,
) -> None:
    """Print the records of a topic or of files, up to the end at the start of the command.

    A time range is exact and includes late records: it has every record with from-time <= time <
    to-time, and no other. Times: ISO 8601 with a zone or --tz, epoch milliseconds, or relative
    (-15m, -2h, -7d). A text line has tab-separated: time, partition@offset, key, value, headers.
    With --clock append the range is of append times, and a line begins with the append time. With
    --as-of only records are printed that were appended before a time: what was known then. With
    --complete the command waits until the range can get no record any more. With
    --order records come by time, over all partitions and inside them, exactly. Files
    need no broker, are only read, and may be Apache Kafka's, or in an object store (s3://...); a
    line of several topics begins with the topic. The exit code is 1 if a log is damaged or offline;
    what is before the damage is printed. It is 1, too, if the range is not complete within the
    timeout.
    """
    if (
        sum(
            (
                options.from_time is not None,
                options.from_beginning,
                options.from_end,
                options.offset is not None,
            )
        )
        > 1
    ):
        raise Misconfigured(
            "give only one of --from-time, --from-beginning, --from-end, --offset: "
            "each sets the start position"
        )
    times = _time_range(
        options.from_time, options.to_time, options.zone, options.clock or RecordClock.CREATE
    )
    path = what if has_scheme(what) else path_of(context, what)
    if path is not None and (options.follow_on or options.from_end or options.complete):
        given = "--from-end" if options.from_end else "--complete"
        given = "--follow" if options.follow_on else given
        raise Misconfigured(f"{given} needs a broker: files are read up to their ends of now")
    latest_memory = _latest_memory(options) if options.latest else 0
    more: dict[str, Any] = {"read_committed": options.read_committed or options.latest}
    if options.as_of is not None:
        if options.follow_on or options.from_end:
            given = "--follow" if options.follow_on else "--from-end"
            raise Misconfigured(f"--as-of says where the read ends: leave out {given}")
        more["as_of"] = as_of(options.as_of, options.zone)
    ordering = _ordering(options)
    output = Output(
        options.shape,
        options.zone or UTC,
        times.clock if ordering is None else ordering.clock,
        options.max_messages,
    )
    is_damaged = False
    with saying_warnings():
        if path is None:
            with brokers.connect() as client:
                if options.complete and not options.follow_on:
                    _wait_complete(client.config, what, times, options)
                served = served_partitions(client, what, options.partitions)
            say_offline(served)
            numbers: Collection[int] | None = served.leaders
            is_damaged = bool(served.offline)
            reading = ReadOptions.of_topic(client.config, what, **more)
        else:
            numbers, reading = (
                options.partitions or None,
                ReadOptions.of_path(
                    str(path),
                    pairs(options.settings, "--set"),
                    uncommitted=options.uncommitted,
                    **more,
                ),
            )
        if options.latest:
            reading = replace(reading, is_latest=True, fail_on_data_loss=True)
        with RecordLog(
            reading,
            times,
            runs_ahead=ordering is None,
            with_append_times=ordering is not None and ordering.clock is RecordClock.APPEND,
        ) as log:
            chosen = numbered(log.partitions, numbers, what)
            output.names_topic = len({partition.topic for partition in chosen}) > 1
            if ordering is not None and ordering.is_complete:  # before the ends of the plan
                until_ms = log.complete_until(chosen)
                ordering = ordering._replace(until_ms=_EVER if until_ms is None else until_ms)
            plan = log.plan(chosen, options.offset)
            try:
                if options.latest:
                    from horolog.cli.consume_latest import (  # noqa: PLC0415 - imports pyarrow
                        print_latest,
                    )

                    is_damaged |= print_latest(
                        log, plan, reading, latest_memory, what, output.write
                    )
                elif ordering is not None:
                    stretches = () if options.from_end else plan.stretches
                    ends = plan.ends if options.follow_on else None
                    is_damaged |= print_in_order(log, stretches, ends, what, output, ordering)
                else:
                    is_damaged |= not options.from_end and print_records(
                        log, plan.stretches, what, output
                    )
                    if options.follow_on:
                        print_new(log, plan.ends, output)
                if not options.latest:  # it is checked above
                    check_read(reading, plan.stretches, chosen)
            except KeyboardInterrupt:
                if not options.follow_on:
                    raise
            finally:
                sys.stdout.buffer.flush()
    if sys.stderr.isatty():
        say(_summary(output.count, times))
    if is_damaged:
        raise typer.Exit(1)


def _latest_memory(options: ConsumeOptions) -> int:
    """Return what the keys of a partition may take; refuse options that their table cannot have."""
    others = {
        "--from-time": options.from_time is not None,
        "--to-time": options.to_time is not None,
        "--offset": options.offset is not None,
        "--from-end": options.from_end,
        "--clock": options.clock is not None,
        "--follow": options.follow_on,
        "--order": options.order is not None,
        "--complete": options.complete,
    }
    for name, is_given in others.items():
        if is_given:
            raise Misconfigured(f"--latest prints the last record of each key: leave out {name}")
    return bytes_of(options.latest_memory, "--latest-memory")


_EVER: Final = -(1 << 63)


def _ordering(options: ConsumeOptions) -> Ordering | None:
    is_complete = options.complete and options.follow_on
    if options.order is None:
        if options.lateness is not None:
            raise Misconfigured("--lateness is about an order: give it with --order and --follow")
        if is_complete:
            raise Misconfigured("--complete with --follow is about an order: give --order, too")
        return None
    clock = clock_of_order(options.order)
    lateness_ms = None if options.lateness is None else parse_duration(options.lateness)
    if options.follow_on != (lateness_ms is not None) and not is_complete:
        raise Misconfigured(
            "--order with --follow needs --complete or --lateness, and --lateness needs --follow: "
            "how long after the latest record earlier ones may come"
        )
    if lateness_ms is not None and (lateness_ms < 0 or is_complete):
        what = "is not needed with --complete" if is_complete else "is negative"
        raise Misconfigured(f"--lateness {options.lateness} {what}")
    if is_complete and clock is RecordClock.APPEND:
        raise Misconfigured("--complete is about create times: give --lateness for append times")
    return Ordering(
        clock,
        checked_memory(bytes_of(options.order_memory, "--order-memory")),
        options.without_time,
        lateness_ms,
        is_complete,
    )


def _wait_complete(
    config: ClientConfig, topic: str, times: TimeRange, options: ConsumeOptions
) -> None:
    """Wait until a range of time can get no record any more.

    Raises:
        Misconfigured: that is never known.
        NotComplete: it is not so within the timeout.
    """
    until_ms = end_of_complete(times, is_as_of=options.as_of is not None)
    with (
        BrokerLog(ReadOptions.of_topic(config, topic)) as log,
        waiting(f"waiting for {topic}") as on_wait,
    ):
        wait_complete(
            log,
            until_ms,
            partitions=lambda: numbered(log.partitions(), options.partitions, topic),
            committed=options.read_committed,
            timeout_ms=parse_duration(options.timeout),
            on_wait=on_wait,
        )


def _time_range(
    from_time: str | None, to_time: str | None, zone: tzinfo | None, clock: RecordClock
) -> TimeRange:
    now_ms = SystemClock().now_ms()  # one for both, so that an empty range is seen
    from_ms, to_ms = (
        None if text is None else parse_time(text, now_ms=now_ms, zone=zone, rounds_up=True)
        for text in (from_time, to_time)
    )
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise Misconfigured(
            f"--from-time {format_moment(from_ms)} is not before --to-time {format_moment(to_ms)}: "
            "the range is empty"
        )
    return TimeRange.between(from_ms, to_ms, clock)


def _summary(count: int, times: TimeRange) -> str:
    words = f"{count:,} record{'' if count == 1 else 's'}"
    if times.from_ms is not None:
        words += f" from {format_moment(times.from_ms)}"
    if times.to_ms is not None:
        words += f" before {format_moment(times.to_ms)}"
    return words
