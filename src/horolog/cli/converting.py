"""`horolog log convert`: rewrite segments in another record format, and print what was done."""

import os
from typing import Annotated, Any, Literal

import typer

from horolog.cli.options import Json
from horolog.cli.screen import show_json, size
from horolog.cli.terminal import echo
from horolog.cli.verifying import INTERVAL_BYTES, IntervalBytes, LogPath, Tally, bytes_of
from horolog.clock import SystemClock
from horolog.record.compression import Codec
from horolog.record.conversion import Losses
from horolog.storage.offline.converting import Conversion, ConvertedSegment
from horolog.storage.verify import find_target

ZstdAs = Annotated[
    Literal["none", "gzip", "snappy", "lz4"] | None,
    typer.Option(
        "--zstd-as",
        show_default=False,
        help="What v0 and v1 are compressed with where v2 is with zstd, which came with v2. "
        "Without it such segments are left as they are.",
    ),
]
_LOST = {
    "headers": "headers of records",
    "timestamps": "timestamps",
    "producer_batches": "batches' producer ids and sequences",
    "control_batches": "control batches",
    "trailing_offsets": "offsets behind the last record of a compacted batch",
}


def convert(
    path: LogPath,
    to: Annotated[
        Literal["v0", "v1", "v2"],
        typer.Option("--to", show_default=False, help="The record format to write."),
    ],
    zstd_as: ZstdAs = None,
    interval_bytes: IntervalBytes = INTERVAL_BYTES,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be done, lost or refused.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Rewrite the segments of a log in another record format: v0, v1 (Kafka 0.10) or v2 (0.11).

    Each segment is written anew, read again, compared record for record, and only then takes the
    place of the old one; it may be stopped or killed at any time and continues where it ended.
    Offsets, codecs and modification times stay. What the format cannot hold is counted; what would
    change a log's meaning is refused. A broker that uses the directory must be stopped first. The
    exit code is 1 if a segment was left as it is although it has another format.
    """
    target = find_target(path)
    work = Conversion(
        target,
        int(to[1]),
        SystemClock().now_ms(),
        zstd_as=None if zstd_as is None else Codec[zstd_as.upper()],
        interval_bytes=interval_bytes,
        dry_run=dry_run,
    )
    with work.locked():
        done = Tally().of(work.steps(), f"converting {path} to {to}", bytes_of(target))
    refused = [each for each in done if each.refused]
    changed = [each for each in done if each.is_changed]
    losses = sum((each.losses for each in changed), start=Losses())
    if as_json:
        show_json(
            {
                "path": str(path.absolute()),
                "ok": not refused,
                "format": to,
                "dry_run": dry_run,
                "segments": len(done),
                "converted": [converted_json(each) for each in changed],
                "refused": {each.path: each.refused for each in refused},
                "lost": losses._asdict(),
            }
        )
    else:
        for each in done:
            show_converted(each, to, dry_run=dry_run)
        show_losses(losses, to)
        echo(
            f"{len(done)} segments, {len(changed)} {'would be ' if dry_run else ''}converted to "
            f"{to}, {len(refused)} left as they are"
        )
    if refused:
        raise typer.Exit(1)


def show_losses(losses: Losses, to: str) -> None:
    """Print what a format has no place for."""
    for name, count in losses._asdict().items():
        if count:
            echo(f"{to} has no place for {count} {_LOST[name]}")


def show_converted(done: ConvertedSegment, to: str, *, dry_run: bool) -> None:
    """Print what was done about a segment; nothing if it had the format."""
    name = os.path.join(os.path.basename(os.path.dirname(done.path)), os.path.basename(done.path))
    if done.refused:
        echo(f"{name}: left as it is: {done.refused}")
    elif done.is_changed:
        echo(
            f"{name}: {done.records} records {'would be ' if dry_run else ''}written anew in {to}, "
            f"{size(done.bytes_before)} before and {size(done.bytes_after)} "
            f"{'then' if dry_run else 'now'}"
        )
    for note in done.notes:
        echo(f"{name}: {note}")


def converted_json(done: ConvertedSegment) -> dict[str, Any]:
    """What was done about a segment, for JSON."""
    return {
        "path": done.path,
        "records": done.records,
        "bytes_before": done.bytes_before,
        "bytes_after": done.bytes_after,
        "lost": done.losses._asdict(),
        "notes": done.notes,
    }
