"""`horolog log inspect --times`: the times of all records, from block maps alone."""

from collections.abc import Iterator, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Any, NamedTuple

from horolog.cli.screen import show
from horolog.cli.times import latency_text
from horolog.record.time_stats import LATENCY_BOUNDS, TimeStats, latency_class
from horolog.results import Shown, Table
from horolog.storage.companion.block_cache import block_cache
from horolog.storage.files import Files
from horolog.storage.names import INTERNAL_TOPICS
from horolog.storage.offline.partition_reader import PartitionReader
from horolog.storage.verify import find_target
from horolog.times import format_time


class _Row(NamedTuple):
    partition: str
    base_offset: int
    facts: TimeStats | None
    seen: tuple[int, int] | None
    """First and last time when a follower saw records whose append times are unknown."""


def show_times(path: Path, zone: tzinfo, *, as_json: bool) -> None:
    """Print a row for each segment at a path, from its block map.

    Raises:
        Misconfigured: the path is no log directory, partition or segment.
        StorageFailed: a file cannot be read.
    """
    target, files, cache = find_target(path), Files(read_only=True), block_cache()
    rows = []
    for directory in target.partitions:
        log = PartitionReader(files, directory, segment=target.segment, cache=cache)
        if not (target.is_log_dir and log.partition.topic in INTERNAL_TOPICS):
            rows += [
                _Row(
                    str(log.partition),
                    segment.base_offset,
                    segment.blocks.times(segment.size),
                    segment.append_times.seen_span() if segment.has_append_times else None,
                )
                for segment in log.segments
            ]
    show([*map(_json, rows)], _lines(rows, zone), as_json=as_json)


def _lines(rows: Sequence[_Row], zone: tzinfo) -> Iterator[Shown]:
    columns: tuple[str, ...] = (
        *("partition", "base offset", "records", "without time", "out of order", "ahead of clock"),
        *("from", "to", "appended from", "appended to", "latency 50 %", "99 %"),
    )
    cells = [_cells(row, zone) for row in rows]
    if any(row.seen for row in rows):
        columns += "seen by a follower from", "seen to"
        cells = [
            (
                *row_cells,
                *([format_time(ms, zone) for ms in row.seen] if row.seen else (None, None)),
            )
            for row_cells, row in zip(cells, rows, strict=True)
        ]
    yield Table.of(columns, cells)
    if any(row.facts is None for row in rows):
        yield ""
        yield (
            "-: the block map does not cover the segment yet (the one that is appended to), or "
            "there is none: horolog log reindex makes it, --records reads the records"
        )


def _cells(row: _Row, zone: tzinfo) -> tuple[object, ...]:
    facts = row.facts
    if facts is None:
        return (row.partition, row.base_offset, *[None] * 10)
    moments = facts.create_min_ms, facts.create_max_ms, facts.append_min_ms, facts.append_max_ms
    return (
        row.partition,
        row.base_offset,
        facts.records,
        facts.untimed,
        facts.out_of_order,
        facts.ahead,
        *(None if moment is None else format_time(moment, zone) for moment in moments),
        *(_latency(facts, share) for share in (0.5, 0.99)),
    )


def _latency(facts: TimeStats, share: float) -> str | None:
    latency = latency_class(facts.latencies, share)
    return None if latency is None else latency_text(latency)


def _json(row: _Row) -> dict[str, Any]:
    return {
        "partition": row.partition,
        "base_offset": row.base_offset,
        "facts": None if row.facts is None else _json_of(row.facts),
        "seen_by_follower": row.seen,
    }


def _json_of(facts: TimeStats) -> dict[str, Any]:
    fields = facts._asdict()
    del fields["control_records"], fields["flags"]
    return {
        **fields,
        "lacks_append_times": facts.lacks_append_times,
        "is_stamped": facts.is_stamped,
        "latency_bounds_ms": list(LATENCY_BOUNDS),
    }
