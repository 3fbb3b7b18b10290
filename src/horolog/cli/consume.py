"""`horolog consume`: print the records of a topic, or those of a time range; also from files."""

import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, tzinfo
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from horolog.cli.connecting import CommandConfig, CommandProperties, connect
from horolog.cli.options import (
    LOCAL,
    Bootstrap,
    ByClock,
    Partitions,
    PathOrTopic,
    Zone,
    path_of,
)
from horolog.cli.reading import PartitionSpan, ReadRecord, TimeRange, follow, plan, read_span
from horolog.cli.reading_files import open_partitions, plan_files, read_stretch
from horolog.cli.screen import Advance, progress, say
from horolog.cli.showing import Format, line_maker
from horolog.client import Client, RecordClock
from horolog.clock import SystemClock
from horolog.errors import Damaged, Misconfigured, StorageFailed
from horolog.times import format_time, parse_time, parse_zone

app = typer.Typer(no_args_is_help=True)


@app.command(no_args_is_help=True)
def consume(
    context: typer.Context,
    what: PathOrTopic,
    bootstrap: Bootstrap = LOCAL,
    client_config: CommandConfig = None,
    client_properties: CommandProperties = None,
    from_time: Annotated[
        str | None,
        typer.Option("--from-time", metavar="TIME", help="Print records at or after it."),
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option("--to-time", metavar="TIME", help="Print records before it."),
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the first record (default).")
    ] = False,
    from_end: Annotated[
        bool, typer.Option("--from-end", help="Start at the log end; needs --follow.")
    ] = False,
    offset: Annotated[
        int | None, typer.Option("--offset", min=0, help="Start at this offset.")
    ] = None,
    clock: ByClock = None,
    partitions: Partitions = None,
    max_messages: Annotated[
        int | None,
        typer.Option("--max-messages", "-n", min=1, help="Stop after so many records."),
    ] = None,
    follow_on: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new records until Ctrl-C.")
    ] = False,
    shape: Annotated[Format, typer.Option("--format", help="The output format.")] = Format.TEXT,
    zone: Zone = None,
) -> None:
    """Print the records of a topic or of files, up to the end at the start of the command.

    A time range is exact and includes late records: it has every record with from-time <= time <
    to-time, and no other. Times: ISO 8601 with a zone or --tz, epoch milliseconds, or relative
    (-15m, -2h, -7d). A text line has tab-separated: time, partition@offset, key, value, headers.
    With --clock append the range is of append times, and a line begins with the append time. Files
    need no broker, are only read, and may be Apache Kafka's; a line of several topics begins with
    the topic. The exit code is 1 if a log is damaged; what is before the damage is printed.
    """
    if sum((from_time is not None, from_beginning, from_end, offset is not None)) > 1:
        raise Misconfigured(
            "give only one of --from-time, --from-beginning, --from-end, --offset: "
            "each sets the start position"
        )
    times = _time_range(from_time, to_time, zone)
    zone_shown = parse_zone(zone) if zone else UTC
    path = path_of(context, what)
    if path is not None:
        if follow_on or from_end:
            given = "--follow" if follow_on else "--from-end"
            raise Misconfigured(f"{given} needs a broker: files are read up to their ends of now")
        output = _Output(shape, zone_shown, clock or RecordClock.CREATE, max_messages)
        is_damaged = _consume_files(path, partitions, offset, times, output)
        if sys.stderr.isatty():
            say(_summary(output.count, times))
        if is_damaged:
            raise typer.Exit(1)
        return
    topic = what
    make_line = line_maker(shape, topic, zone_shown, shows_append=clock is RecordClock.APPEND)
    out = sys.stdout.buffer
    with connect(bootstrap, client_config, client_properties) as client:
        spans, ends = plan(
            client,
            topic,
            partitions=partitions,
            times=times,
            from_offset=offset,
            from_end=from_end,
            clock=clock or RecordClock.CREATE,
        )
        count = 0
        try:
            taken = _read(client, topic, spans, ends, times, clock, follow_on)
            for read in islice(taken, max_messages):
                out.write(make_line(read))
                count += 1
                if follow_on:
                    out.flush()
        except KeyboardInterrupt:
            if not follow_on:
                raise
        out.flush()
    if sys.stderr.isatty():
        say(_summary(count, times))


class _Output:
    """Lines on standard output, up to a number of them."""

    def __init__(
        self, shape: Format, zone: tzinfo, clock: RecordClock, max_messages: int | None
    ) -> None:
        self.clock = clock
        self.count = 0
        self._shape = shape
        self._zone = zone
        self._max = max_messages
        self._makers: dict[str, Callable[[ReadRecord], bytes]] = {}

    @property
    def is_full(self) -> bool:
        """Whether no more lines are wanted."""
        return self.count == self._max

    def write(self, topic: str, read: ReadRecord, *, names_topic: bool) -> None:
        """Print a record."""
        make = self._makers.get(topic)
        if make is None:
            by_append = self.clock is RecordClock.APPEND
            make = line_maker(self._shape, topic, self._zone, shows_append=by_append)
            self._makers[topic] = make
        prefix = f"{topic}\t".encode() if names_topic and self._shape is Format.TEXT else b""
        sys.stdout.buffer.write(prefix + make(read))
        self.count += 1


def _consume_files(
    path: Path,
    partitions: Sequence[int] | None,
    offset: int | None,
    times: TimeRange,
    output: _Output,
) -> bool:
    """Print what files hold; whether a log is damaged, which hides no other."""
    stretches = plan_files(open_partitions(path, partitions), offset)
    names_topic = len({stretch.log.partition.topic for stretch in stretches}) > 1
    total = sum(stretch.end - stretch.start for stretch in stretches)
    done, is_damaged = 0, False
    with progress(f"reading {path}", total, "offsets") as advance:
        for stretch in stretches:
            try:
                for position, records in read_stretch(stretch, times, output.clock):
                    for read in records:
                        output.write(stretch.log.partition.topic, read, names_topic=names_topic)
                        if output.is_full:
                            sys.stdout.buffer.flush()
                            return is_damaged
                    advance(done + max(0, position - stretch.start))
            except (Damaged, StorageFailed) as error:
                is_damaged = True
                say(str(error))
            done += stretch.end - stretch.start
    sys.stdout.buffer.flush()
    return is_damaged


def _time_range(from_time: str | None, to_time: str | None, zone: str | None) -> TimeRange:
    now_ms = SystemClock().now_ms()
    where = parse_zone(zone) if zone else None
    from_ms, to_ms = (
        None if text is None else parse_time(text, now_ms=now_ms, zone=where, rounds_up=True)
        for text in (from_time, to_time)
    )
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise Misconfigured(
            f"--from-time {format_time(from_ms)} is not before --to-time {format_time(to_ms)}: "
            "the range is empty"
        )
    return TimeRange(from_ms, to_ms)


def _read(
    client: Client,
    topic: str,
    spans: list[PartitionSpan],
    ends: dict[int, int],
    times: TimeRange,
    clock: RecordClock | None,
    follow_on: bool,
) -> Iterator[ReadRecord]:
    total = sum(span.end - span.start for span in spans)
    with progress(f"reading {topic}", total, "offsets") as advance:
        yield from _read_spans(client, topic, spans, times, clock or RecordClock.CREATE, advance)
    if follow_on:
        yield from follow(client, topic, ends, times, clock or RecordClock.CREATE)


def _read_spans(
    client: Client,
    topic: str,
    spans: list[PartitionSpan],
    times: TimeRange,
    clock: RecordClock,
    advance: Advance,
) -> Iterator[ReadRecord]:
    done = 0
    for span in spans:
        for position, records in read_span(client, topic, span, times, clock):
            yield from records
            advance(done + position - span.start)
        done += span.end - span.start


def _summary(count: int, times: TimeRange) -> str:
    words = f"{count:,} record{'' if count == 1 else 's'}"
    if times.from_ms is not None:
        words += f" from {format_time(times.from_ms)}"
    if times.to_ms is not None:
        words += f" before {format_time(times.to_ms)}"
    return words
