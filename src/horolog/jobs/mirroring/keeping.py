"""Mirrors stretches into a log directory; runs in a task, and may run twice.

Batches are copied unchanged, with offsets and append times. Attempts at one partition wait for each
other, and each continues at the log end (`storage/offline/copied_log.py`).
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from horolog.errors import CorruptBatch, HorologError
from horolog.jobs.counting import count
from horolog.jobs.mirroring.moving import MAX_BYTES, Moved, PartitionMove, StretchToMirror, may_pass
from horolog.jobs.mirroring.reading import source_batches
from horolog.record.batch import BatchHeader, iter_headers
from horolog.record.timestamps import AppendTimeStretch, TimestampType
from horolog.sources.ahead import ahead
from horolog.sources.batches import Batches
from horolog.storage.directory.lock import share_offline
from horolog.storage.files import Files
from horolog.storage.offline.copied_log import CopiedEnd, CopiedLog, copying
from horolog.storage.segments.numbered import appended_at

WHY: Final = "a mirror writes there"
_Unit = TypeVar("_Unit", bound=PartitionMove)


class KeptTopic(NamedTuple):
    """Facts about a topic of the source that its segment files need."""

    topic_id: UUID | None
    segment_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Target directory of a mirror, as tasks use it."""

    path: Path
    topics: Mapping[str, KeptTopic]
    """Topics by their names at the source."""
    with_append_times: bool


def keep(copy: Copy, _: int, units: Iterable[StretchToMirror]) -> list[Moved]:
    """Write stretches of several partitions; an error is in the result of its partition."""
    return [_in_log(copy, unit, _keep) for unit in units]


def finish(copy: Copy, _: int, units: Iterable[PartitionMove]) -> list[Moved]:
    """Write the indexes of the last segments; create the directories of empty partitions."""
    return [_in_log(copy, unit, lambda copy, unit, log, moved: log.sync()) for unit in units]


def _in_log(
    copy: Copy, unit: _Unit, work: Callable[[Copy, _Unit, CopiedLog, Moved], None]
) -> Moved:
    """Do work in a partition's log, from its end; an error that is not a bug is in the result."""
    moved = Moved(unit.partition, unit.place)
    directory = str(copy.path / f"{unit.target_topic}-{unit.partition.partition}")
    topic_id, segment_bytes = copy.topics[unit.partition.topic]
    known = CopiedEnd(unit.place.offset, unit.place.segment, unit.place.size)
    try:
        with share_offline(copy.path, WHY), copying(directory), closing(Files()) as files:
            log = CopiedLog(files, directory, known, segment_bytes=segment_bytes, topic_id=topic_id)
            work(copy, unit, log, moved)
    except (HorologError, OSError) as error:
        moved.error, moved.may_pass = str(error), may_pass(error)
    return moved


def _keep(copy: Copy, unit: StretchToMirror, log: CopiedLog, moved: Moved) -> None:
    moved.records = log.found_records
    try:
        _append(unit, copy, log, moved)
    finally:
        log.sync()
        end = log.end
        moved.place = replace(
            moved.place,
            offset=end.next_offset,
            segment=end.base_offset,
            size=end.size,
            records=unit.place.records + moved.records,
        )
    if moved.bytes < MAX_BYTES and moved.place.offset < unit.end:
        # Compaction has removed the records at the end: the remaining offsets are empty.
        moved.place = replace(moved.place, offset=unit.end)


def _append(unit: StretchToMirror, copy: Copy, log: CopiedLog, moved: Moved) -> None:
    start = log.next_offset
    coming = source_batches(
        unit.stretches, start, unit.options, with_append_times=copy.with_append_times
    )
    with ahead(coming) as pieces:
        for piece in pieces:
            if _append_piece(unit, copy, log, moved, piece):
                return


def _append_piece(
    unit: StretchToMirror, copy: Copy, log: CopiedLog, moved: Moved, piece: Batches
) -> bool:
    """Append the batches that the log does not contain yet; True if the task is finished."""
    view = memoryview(piece.data)
    times = piece.append_times(log.next_offset, unit.end) if piece.append_times else ()
    headers: list[BatchHeader] = []
    appended: list[AppendTimeStretch] = []
    begin = end = 0
    is_done = False
    for position, header in iter_headers(view, least_offset=log.next_offset):
        if header.base_offset >= unit.end:
            is_done = True
            break
        if header.next_offset <= log.next_offset:
            continue
        stretch = appended_at(header, times)
        is_stamped = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        if stretch.known_ms is None and is_stamped and copy.with_append_times:
            stretch = AppendTimeStretch(header.base_offset, header.max_timestamp)
        begin = begin if headers else position
        headers.append(header)
        appended.append(stretch._replace(offset=header.base_offset))
        end = position + header.size
        if moved.bytes + end - begin >= MAX_BYTES:
            is_done = True
            break
    try:
        if headers:
            log.append(view[begin:end], appended)
    except CorruptBatch as error:
        offset = next(
            header.base_offset for header in headers if header.next_offset > log.next_offset
        )
        raise CorruptBatch(
            f"the batch at offset {offset} of the source is damaged: {error.reason}"
        ) from error
    finally:
        for header in headers:
            if header.next_offset <= log.next_offset:
                _note(moved, header)
    return is_done


def _note(moved: Moved, header: BatchHeader) -> None:
    records = max(0, header.records_count) * (not header.is_control)
    moved.records += records
    count(records)
    moved.bytes += header.size
    if header.records_count:
        moved.place = replace(moved.place, last_ms=header.max_timestamp)
