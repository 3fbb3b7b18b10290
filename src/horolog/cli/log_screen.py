"""Output of `horolog log inspect`: tables, lines and JSON."""

from collections.abc import Iterator, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Any

from horolog.record.batch import MAGIC
from horolog.results import Shown, Table, size
from horolog.storage.directory.checkpoints import kafka_uuid
from horolog.storage.offline.inspecting import InspectedLog, InspectedSegment, PlacedBatch
from horolog.times import format_time


def inspect_lines(path: Path, looks: Sequence[InspectedLog], zone: tzinfo) -> Iterator[Shown]:
    """Yield the segments of one partition, or a row for each partition of a directory."""
    if len(looks) == 1:
        yield from _segment_lines(looks[0], zone)
    else:
        yield f"{path}: {len(looks)} partitions"
        yield ""
        if looks:
            yield Table(
                looks,
                ("partition", "name"),
                ("segments", lambda look: len(look.segments)),
                "first offset",
                ("end offset", "next_offset"),
                ("records", lambda look: sum(segment.records for segment in look.segments)),
                ("size", lambda look: size(sum(segment.file_bytes for segment in look.segments))),
                ("from", lambda look: _span(look.segments, zone)[0]),
                ("to", lambda look: _span(look.segments, zone)[1]),
                ("batches", lambda look: _codecs(look.segments)),
            )
    yield from remarks(looks)


def _segment_lines(look: InspectedLog, zone: tzinfo) -> Iterator[Shown]:
    yield look.name
    if look.topic_id:
        yield f"  topic id {kafka_uuid(look.topic_id)}"
    if look.log_start_offset is not None:
        yield f"  log start offset {look.log_start_offset}"
    if look.recovery_point is not None:
        yield f"  recovery point {look.recovery_point}"
    if look.epochs:
        epochs = ", ".join(f"{epoch.epoch} from {epoch.start_offset}" for epoch in look.epochs)
        yield f"  leader epochs {epochs}"
    yield ""
    yield Table(
        look.segments,
        "base offset",
        "next offset",
        "records",
        ("size", lambda segment: size(segment.file_bytes)),
        ("from", lambda segment: _span([segment], zone)[0]),
        ("to", lambda segment: _span([segment], zone)[1]),
        ("index", "index_entries"),
        ("time index", "time_index_entries"),
        ("batches", lambda segment: _codecs([segment])),
    )


def remarks(looks: Sequence[InspectedLog]) -> Iterator[str]:
    """Yield sentences about damage, and missing or unreadable files."""
    for look in looks:
        yield from (f"{look.name}: {note}" for note in look.notes)
        for segment in look.segments:
            yield from (f"{segment.path}: {note}" for note in segment.notes)
            if segment.damage:
                yield f"{segment.path}: {segment.damage}"


def batch_line(batch: PlacedBatch, zone: tzinfo) -> str:
    """Format a batch as one line of tab-separated fields."""
    header = batch.header
    cells = [
        f"byte {batch.position}",
        f"v{header.magic}",
        f"offsets {header.base_offset} to {header.last_offset}",
        f"{header.records_count} records",
        f"{header.size} bytes",
        header.codec.name.lower(),
        header.timestamp_type_name,
        f"first {format_time(batch.first_ms, zone)}",
        f"largest {format_time(batch.largest_ms, zone)}",
        f"epoch {header.leader_epoch}",
    ]
    if header.producer_id >= 0:
        cells.append(
            f"producer {header.producer_id} epoch {header.producer_epoch} "
            f"sequence {header.base_sequence}"
        )
    if header.is_transactional:
        cells.append("transactional")
    if header.is_control:
        cells.append("control")
    if batch.delete_horizon_ms is not None:
        cells.append(f"delete horizon {format_time(batch.delete_horizon_ms, zone)}")
    return "\t".join(cells)


def batch_json(batch: PlacedBatch) -> dict[str, Any]:
    """Convert a batch for JSON."""
    header = batch.header
    return {
        "position": batch.position,
        "format": header.magic,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.records_count,
        "bytes": header.size,
        "codec": header.codec.name.lower(),
        "timestamp_type": header.timestamp_type_name,
        "first_timestamp": batch.first_ms,
        "max_timestamp": batch.largest_ms,
        "delete_horizon": batch.delete_horizon_ms,
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc": header.crc,
    }


def look_json(look: InspectedLog) -> dict[str, Any]:
    """Convert a partition and its segments for JSON; times in milliseconds."""
    return {
        "path": look.path,
        "partition": look.name,
        "topic_id": kafka_uuid(look.topic_id) if look.topic_id else None,
        "log_start_offset": look.log_start_offset,
        "recovery_point": look.recovery_point,
        "leader_epochs": [tuple(epoch) for epoch in look.epochs],
        "notes": look.notes,
        "segments": [_segment_json(segment) for segment in look.segments],
    }


def _segment_json(segment: InspectedSegment) -> dict[str, Any]:
    return {
        "path": segment.path,
        "base_offset": segment.base_offset,
        "next_offset": segment.next_offset,
        "bytes": segment.file_bytes,
        "whole_bytes": segment.whole_bytes,
        "batches": segment.batches,
        "records": segment.records,
        "first_timestamp": segment.first_ms,
        "max_timestamp": segment.largest_ms,
        "codecs": segment.codecs,
        "formats": {f"v{magic}": count for magic, count in sorted(segment.formats.items())},
        "index_entries": segment.index_entries,
        "time_index_entries": segment.time_index_entries,
        "damage": segment.damage,
        "notes": segment.notes,
    }


def _span(segments: Sequence[InspectedSegment], zone: tzinfo) -> tuple[str | None, str | None]:
    first = [segment.first_ms for segment in segments if segment.first_ms is not None]
    largest = [segment.largest_ms for segment in segments if segment.largest_ms is not None]
    if not first or not largest:
        return None, None
    return format_time(min(first), zone), format_time(max(largest), zone)


def _codecs(segments: Sequence[InspectedSegment]) -> str:
    total: dict[str, int] = {}
    for segment in segments:
        for codec, count in segment.codecs.items():
            total[codec] = total.get(codec, 0) + count
        for magic, count in segment.formats.items():
            if magic < MAGIC:  # the present one goes without saying
                total[f"of format v{magic}"] = total.get(f"of format v{magic}", 0) + count
    return ", ".join(f"{count} {codec}" for codec, count in sorted(total.items()))
