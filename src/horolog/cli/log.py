"""`horolog log`: inspect log directories of horolog or Apache Kafka without a broker."""

from collections.abc import Iterator, Sequence
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Annotated

import typer

from horolog.cli.compacting import compact
from horolog.cli.converting import convert
from horolog.cli.log_screen import (
    batch_json,
    batch_line,
    inspect_lines,
    look_json,
    remarks,
)
from horolog.cli.log_times import show_times
from horolog.cli.options import Json, Zone
from horolog.cli.screen import progress, say, show
from horolog.cli.showing import line_maker
from horolog.cli.terminal import echo
from horolog.cli.verifying import reindex, verify
from horolog.errors import Misconfigured
from horolog.sources.records import read_placed
from horolog.storage.batches.reader import BatchReader
from horolog.storage.file_errors import FileMissing, NotRegular
from horolog.storage.files import Files
from horolog.storage.offline.inspecting import (
    InspectedLog,
    InspectedSegment,
    PlacedBatch,
    look_at,
    open_segment,
    walk_segment,
)

app = typer.Typer(no_args_is_help=True)


@app.callback()
def log() -> None:
    """Inspect and verify log directories, rebuild indexes, convert formats, compact, offline."""


@app.command(no_args_is_help=True)
def inspect(
    path: Annotated[
        Path,
        typer.Argument(
            exists=True,
            show_default=False,
            help="A log or partition directory, or a .log file.",
        ),
    ],
    batches: Annotated[bool, typer.Option("--batches", help="Print a line per batch.")] = False,
    records: Annotated[bool, typer.Option("--records", help="Print a line per record.")] = False,
    times: Annotated[
        bool,
        typer.Option(
            "--times",
            help="Print a line per segment about the times of its records, from its block map "
            "alone: late, out of order, ahead of the clock, latency.",
        ),
    ] = False,
    zone: Zone = None,
    as_json: Json = False,
) -> None:
    """Show the content of the files: offsets, timestamps, sizes, codecs, index entries.

    Works without a broker or with a running one, also on read-only files, and writes nothing. Reads
    every batch header and counts the index entries; --records also reads and checks the records.
    Timestamps are those of the headers: "from" is the smallest timestamp of a batch's first record,
    "to" the largest timestamp of a record. A batch with a delete horizon (KIP-534) stores it in
    place of the first record's time, which is then read from the record. The exit code is 1 if a
    log is damaged.
    """
    shown_zone = zone or UTC
    if times:
        if batches or records:
            raise Misconfigured("--times reads no batch: give it without --batches and --records")
        show_times(path, shown_zone, as_json=as_json)
        return
    files = Files(read_only=True)
    looks = look_at(files, path)
    total = sum(_bytes_of(segment) for look in looks for segment in look.paths)
    with progress(f"reading {path}", total, "bytes") as advance:
        done = 0
        for look, log, batch in _walk(files, looks):
            done += batch.header.size
            advance(done)
            if records:
                _show_records(look, log, batch, shown_zone, as_json)
            elif batches:
                line = f"{look.name}\t{batch_line(batch, shown_zone)}"
                show({"partition": look.name, **batch_json(batch)}, [line], as_json=as_json)
    if not (as_json and (batches or records)):
        summary = remarks(looks) if records else inspect_lines(path, looks, shown_zone)
        show([*map(look_json, looks)], summary, as_json=as_json)
    damaged = [segment for look in looks for segment in look.segments if segment.damage]
    if damaged:
        if as_json:
            say(*(f"{segment.path}: {segment.damage}" for segment in damaged))
        raise typer.Exit(1)


def _bytes_of(path: Path) -> int:
    """Return the size of a file of any kind; 0 if it was removed."""
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _walk(
    files: Files, looks: Sequence[InspectedLog]
) -> Iterator[tuple[InspectedLog, BatchReader, PlacedBatch]]:
    for look in looks:
        for path in look.paths:
            try:
                facts, log = open_segment(files, path)
            except FileMissing:  # deleted by a running broker
                say(f"{path}: deleted during the inspection")
                continue
            except NotRegular as error:
                look.segments.append(InspectedSegment(path, str(error)))
                continue
            look.segments.append(facts)
            for batch in walk_segment(facts, log):
                yield look, log, batch


def _show_records(
    look: InspectedLog, log: BatchReader, batch: PlacedBatch, zone: tzinfo, as_json: bool
) -> None:
    segment = look.segments[-1]
    topic, partition = look.topic_partition
    make_line = line_maker("json" if as_json else "text", topic, zone, shows_append=as_json)
    for read in read_placed(segment, log, batch, partition):
        line = make_line(read).decode("utf-8", "replace").removesuffix("\n")
        echo(line if as_json else f"{topic}\t{line}")


app.command(no_args_is_help=True)(verify)
app.command(no_args_is_help=True)(reindex)
app.command(no_args_is_help=True)(convert)
app.command(no_args_is_help=True)(compact)
