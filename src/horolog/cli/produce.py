"""`horolog produce`: send lines of standard input or files as records with chosen timestamps."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from horolog.cli.connecting import KafkaBrokers
from horolog.cli.lines import Input, LineFormat, read_chunks
from horolog.cli.options import Topic, Zone, pairs, with_options
from horolog.cli.screen import progress, say, sent
from horolog.cli.too_old import TooOldHint
from horolog.client.lines import LineSender
from horolog.clock import SystemClock
from horolog.errors import Misconfigured
from horolog.extras import missing_extra
from horolog.record.compression import Codec
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.times import parse_record_time

app = typer.Typer(no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """Options that make records of the input."""

    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...", help="Read these instead of standard input.", show_default=False
        ),
    ] = None
    tables: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="A row a record: .parquet, .arrow, .feather, .csv or .tsv; repeat for several.",
        ),
    ] = None
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="PART=NAME",
            help="With --from: which column is the value, key, timestamp, timestamp_ms, partition "
            "or headers; repeat. Else columns are taken by these names.",
        ),
    ] = None
    shape: Annotated[
        Input,
        typer.Option("--format", help="text: a value per line; json: as consume prints."),
    ] = "text"
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-k", help="Separates key and value in a line.")
    ] = None
    null: Annotated[
        str | None, typer.Option("--null", metavar="TEXT", help="The text of a null value.")
    ] = None
    timestamp: Annotated[
        str | None,
        typer.Option("--timestamp", metavar="TIME", help="Timestamp of every record."),
    ] = None
    timestamp_field: Annotated[
        str | None,
        typer.Option(
            "--timestamp-field", metavar="NAME", help="The field of JSON values with the timestamp."
        ),
    ] = None
    key_field: Annotated[
        str | None,
        typer.Option("--key-field", metavar="NAME", help="The field of JSON values to use as key."),
    ] = None
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="For every record; repeatable."),
    ] = None
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, help="Send all here, not by key."),
    ] = None
    codec: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"],
        typer.Option("--codec", help="Compression."),
    ] = "none"
    acks: Annotated[Literal["0", "1", "all"], typer.Option("--acks", help="0, 1 or all.")] = "all"
    zone: Zone = None


@app.command(no_args_is_help=True)
@with_options
def produce(
    topic: Topic,
    brokers: KafkaBrokers,
    options: ProduceOptions,
) -> None:
    """Send every line as a record; the timestamp is the current time unless given.

    Times: ISO 8601 with a zone or --tz, epoch milliseconds, or relative (-15m). Lines that arrive
    together are sent in one batch. If the broker refuses a batch, the command fails and lists its
    lines. Rows of tables (--from) are sent many times as fast as lines. A hint on standard error
    says if records are older than the topic keeps them.
    """
    wanted_acks = -1 if options.acks == "all" else int(options.acks)
    if options.timestamp is not None and options.timestamp_field is not None:
        raise Misconfigured(
            "give only one of --timestamp and --timestamp-field: each sets the timestamps"
        )
    if options.tables:
        of_lines = {
            "FILE": options.files,
            "--key-separator": options.key_separator,
            "--null": options.null,
            "--timestamp": options.timestamp,
            "--timestamp-field": options.timestamp_field,
            "--key-field": options.key_field,
            "--header": options.header,
        }
        for option, given in of_lines.items():
            if given is not None and given != []:
                raise Misconfigured(f"{option} is for lines and cannot be given with --from")
        try:
            from horolog.cli.produce_tables import produce_tables  # noqa: PLC0415 - an extra's
        except ImportError as error:
            raise (missing_extra(error, "--from", "arrow") or error) from None
        names = pairs(options.column, "--column")
        with brokers.connect() as client:
            produce_tables(
                client,
                topic,
                options.tables,
                names,
                options.partition,
                Codec[options.codec.upper()],
                wanted_acks,
                options.zone,
            )
        return
    if options.column:
        raise Misconfigured("--column is for tables: give them with --from")
    clock = SystemClock()
    line_format = LineFormat(
        shape=options.shape,
        key_separator=None
        if options.key_separator is None
        else options.key_separator.replace("\\t", "\t").encode(),
        null=None if options.null is None else options.null.encode(),
        timestamp_ms=None
        if options.timestamp is None
        else parse_record_time(options.timestamp, now_ms=clock.now_ms(), zone=options.zone),
        timestamp_field=options.timestamp_field,
        key_field=options.key_field,
        headers=tuple(
            (name, value.encode()) for name, value in pairs(options.header, "--header").items()
        ),
        zone=options.zone,
    )
    with brokers.connect() as client:
        sender = LineSender(
            client, topic, options.partition, Codec[options.codec.upper()], wanted_acks
        )
        hint = TooOldHint(client, topic)
        try:
            total = sum(path.stat().st_size for path in options.files or ())
            with progress(f"sending to {topic}", total, "bytes") as advance:
                number, done = 0, 0
                for chunk in _chunks(options.files):
                    now_ms = clock.now_ms()
                    lines = [
                        line_format.read(number + i, line, now_ms)
                        for i, line in enumerate(chunk, 1)
                    ]
                    sender.send(lines)
                    times = (line.record.timestamp for line in lines)
                    hint.look(min((time for time in times if time != NO_TIMESTAMP), default=None))
                    number += len(chunk)
                    done += sum(map(len, chunk)) + len(chunk)
                    advance(done)
        finally:
            say(sent(topic, sender.sent, sender.offsets))


def _chunks(files: Sequence[Path] | None) -> Iterator[list[bytes]]:
    if not files:
        yield from read_chunks(sys.stdin.buffer)
        return
    for path in files:
        with path.open("rb") as stream:
            yield from read_chunks(stream)
