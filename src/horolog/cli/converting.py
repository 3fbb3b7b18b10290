"""`horolog log convert`: rewrite segments in another record format, and print what was done."""

from itertools import chain
from typing import Annotated, Literal

import typer

from horolog.cli.options import with_options
from horolog.cli.verifying import INTERVAL_BYTES, IntervalBytes, LogPath, Tally, bytes_of
from horolog.clock import SystemClock
from horolog.metadata.replicated import refuse_replicas
from horolog.record.compression import Codec
from horolog.record.conversion import Losses
from horolog.report.files import converted_json, converted_lines, loss_lines
from horolog.results import Answer
from horolog.storage.offline.converting import Conversion
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


@with_options
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
) -> Answer:
    """Rewrite the segments of a log in another record format: v0, v1 (Kafka 0.10) or v2 (0.11).

    Each segment is rewritten, read back, and compared record for record before it replaces the old
    one. The command may be stopped or killed at any time, and continues where it ended. Offsets,
    codecs and modification times stay. Fields that the format cannot store are counted. Segments
    whose meaning would change are refused. A broker that uses the directory must be stopped first.
    The exit code is 1 if a segment was refused.
    """
    target = find_target(path)
    if not dry_run:
        refuse_replicas(target.log_dir, target.partitions, "convert")
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
    refused = [segment for segment in done if segment.refused]
    changed = [segment for segment in done if segment.is_changed]
    losses = sum((segment.losses for segment in changed), start=Losses())
    result = {
        "path": path.absolute(),
        "ok": not refused,
        "format": to,
        "dry_run": dry_run,
        "segments": len(done),
        "converted": [*map(converted_json, changed)],
        "refused": {segment.path: segment.refused for segment in refused},
        "lost": losses,
    }
    summary = (
        f"{len(done)} segments, {len(changed)} {'would be ' if dry_run else ''}converted to "
        f"{to}, {len(refused)} left as they are"
    )
    lines = converted_lines(done, to, dry_run=dry_run), loss_lines(losses, to), [summary]
    return Answer(result, chain(*lines), not refused)
