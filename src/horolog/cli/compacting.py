"""`horolog log compact`: keep the latest record of each key, and print what was done."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from horolog.cli.options import with_options
from horolog.cli.verifying import INTERVAL_BYTES, IntervalBytes, LogPath, Tally, bytes_of
from horolog.clock import SystemClock
from horolog.metadata.replicated import refuse_replicas
from horolog.results import Answer, size
from horolog.storage.verify import find_target

if TYPE_CHECKING:
    from horolog.storage.offline.compacting import CompactedPartition

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class CompactOptions:
    """Options of a compaction."""

    delete_retention_ms: Annotated[
        int,
        typer.Option("--delete-retention-ms", min=0, help="For how long tombstones still stay."),
    ] = _DAY_MS
    segment_bytes: Annotated[
        int, typer.Option("--segment-bytes", min=1 << 10, help="How large segments become.")
    ] = 1 << 30
    memory_bytes: Annotated[
        int,
        typer.Option("--memory-bytes", min=1 << 10, help="For the keys, 24 bytes for each."),
    ] = 128 << 20
    remove_keyless: Annotated[
        bool,
        typer.Option(
            "--remove-keyless", help="Remove records without a key, as Kafka's cleaner does."
        ),
    ] = False
    interval_bytes: IntervalBytes = INTERVAL_BYTES
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be left.")] = (
        False
    )


@with_options
def compact(
    path: LogPath,
    options: CompactOptions,
) -> Answer:
    """Compact logs, whatever their topics' policies: of each key the latest record stays.

    Does what the broker's cleaner does (docs/compaction.md), over all segments but the last one.
    New segments replace old ones once they are on the disk, so the command may be stopped or killed
    at any time. Offsets and times stay. A broker that uses the directory must be stopped first. The
    exit code is 1 if a partition was not compacted to its end.
    """
    from horolog.storage.offline.compacting import (  # noqa: PLC0415 - numpy, once it is needed
        Compaction,
    )

    target = find_target(path)
    if not options.dry_run:
        refuse_replicas(target.log_dir, target.partitions, "compact")
    work = Compaction(
        target,
        SystemClock().now_ms(),
        delete_retention_ms=options.delete_retention_ms,
        segment_bytes=options.segment_bytes,
        interval_bytes=options.interval_bytes,
        memory_bytes=options.memory_bytes,
        removes_keyless=options.remove_keyless,
        dry_run=options.dry_run,
    )
    with work.locked():
        done = Tally().of(work.steps(), f"compacting {path}", 2 * bytes_of(target))
    refused = [partition for partition in done if partition.refused]
    result = {
        "path": path.absolute(),
        "ok": not refused,
        "dry_run": options.dry_run,
        "partitions": done,
    }
    lines = _lines(done, refused, options.dry_run, options.remove_keyless)
    return Answer(result, lines, not refused)


def _lines(
    done: Sequence["CompactedPartition"],
    refused: Sequence["CompactedPartition"],
    dry_run: bool,
    remove_keyless: bool,
) -> Iterator[str]:
    would, when = ("would be ", "then") if dry_run else ("", "now")
    for partition in done:
        name = os.path.basename(partition.path)
        if partition.records_before:
            yield (
                f"{name}: {partition.records_after} of {partition.records_before} records "
                f"{would}left before offset {partition.end_offset}, "
                f"{size(partition.bytes_before)} before and {size(partition.bytes_after)} {when}"
            )
        if partition.keyless:
            what = f"{would}removed" if remove_keyless else "kept (--remove-keyless)"
            yield f"{name}: {partition.keyless} records without a key {what}"
        if partition.refused:
            yield f"{name}: {partition.refused}"
    yield f"{len(done)} partitions, {len(refused)} not compacted to their end"
