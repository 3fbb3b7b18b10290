"""Partition directory that receives batches of another log unchanged, at their offsets.

The log follows (`logs/log.py`): nothing is stamped or numbered, and known append times are kept. A
broker that opens the directory afterwards adopts it.

A kill may tear unsynced bytes. So a log is opened behind its synced part (`CopiedEnd`). Later whole
batches with valid checksums and with append times are kept, and the rest is cut off. Processes may
work on a directory one after the other. A lock keeps them apart, and each finds what the one before
has written.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from uuid import UUID

from horolog.buffers import Buffer
from horolog.config import TopicConfig
from horolog.errors import CorruptBatch, Misconfigured
from horolog.record.timestamps import AppendTimeStretch
from horolog.storage import names
from horolog.storage.directory.checkpoint_ids import Checkpointed
from horolog.storage.directory.lock import lock_against_others
from horolog.storage.file_errors import SyncFailed, failed_to
from horolog.storage.files import Files
from horolog.storage.logs.incoming import Origin, SourceBatches
from horolog.storage.names import TopicPartition
from horolog.storage.recovery.loading import load_log
from horolog.storage.recovery.segments import LoadPlan
from horolog.storage.removal.leftovers import base_offsets, current_names

_logger = logging.getLogger(__name__)


class CopiedEnd(NamedTuple):
    """End of a copy: next offset, last segment, and the bytes of that segment."""

    next_offset: int
    base_offset: int | None = None
    size: int = 0


@contextmanager
def copying(directory: str) -> Iterator[None]:
    """Lock a partition directory against other copying processes; create a missing one.

    Raises:
        StorageFailed: it cannot be made or opened.
    """
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        raise failed_to("create", directory, error) from error
    with lock_against_others(directory):
        yield


class CopiedLog:
    """Copy of a log in one partition directory, for use within `copying`."""

    def __init__(
        self,
        files: Files,
        directory: str,
        known: CopiedEnd,
        *,
        segment_bytes: int,
        interval_bytes: int = 4096,
        topic_id: UUID | None = None,
    ) -> None:
        """Open the copy, and recover what follows the synced part.

        Args:
            known: up to where it was synced.
            segment_bytes: a segment ends before it grows beyond that.
            interval_bytes: `index.interval.bytes`.
            topic_id: whose log this is; written where the directory has none.

        Raises:
            Misconfigured: it holds another log, or less than is known to be there, or that is
                damaged. No record of it is touched.
            StorageFailed: the disk refused.
        """
        self._files = files
        self._directory = directory
        self._known = known
        # As opening it will have them: what a kill has left of a compaction is ended there.
        present = current_names(files, directory, files.names_in(directory))
        bases = base_offsets(present, names.LOG)
        size = self._size_of_known(present)
        name = os.path.basename(directory)
        plan = LoadPlan(
            # Segments end by their size alone.
            TopicConfig(
                segment_bytes=segment_bytes,
                segment_ms=names.MAX_OFFSET,
                index_interval_bytes=interval_bytes,
            ),
            now_ms=0,
            is_clean=bases[-1:] == [known.base_offset] and size == known.size,
            checkpointed=Checkpointed(
                recovery_point=known.next_offset, high_watermark=names.MAX_BASE_OFFSET
            ),
            topic_id=topic_id,
            follows=True,
            whole_up_to=(known.base_offset or 0, known.size),
        )
        partition = names.partition_of(name) or TopicPartition(name, 0)
        try:
            self._log, report = load_log(files, directory, partition, plan)
        except CorruptBatch as damage:
            raise self._refusal(f"is damaged: {damage}") from damage
        for warning in report.warnings:
            _logger.warning("%s", warning)
        if not bases:
            self._log.truncate_fully(known.next_offset, 0)
        if self._log.is_in_doubt:
            self._log.flush()  # writes again what a sync that failed may have lost
        self._cut_without_times()
        self.found_records = self._records_behind_known()
        """Number of records found behind the synced part."""

    @property
    def next_offset(self) -> int:
        """Least offset that the next batch can have."""
        return max(self._known.next_offset, self._log.log_end_offset)  # perhaps behind a gap

    @property
    def end(self) -> CopiedEnd:
        """End of the copy; on disk after `sync`. A segment without batches does not count."""
        for segment in reversed(self._log.segments):
            if segment.size:
                return CopiedEnd(self.next_offset, segment.base_offset, segment.size)
        return CopiedEnd(self.next_offset)

    def _size_of_known(self, present: Mapping[str, str]) -> int | None:
        """Return the size of the last synced segment; None if none was synced.

        Raises:
            Misconfigured: it is not, or has lost a part.
        """
        base_offset = self._known.base_offset
        if base_offset is None:
            return None
        name = present.get(names.segment_file(base_offset, names.LOG))
        size = -1 if name is None else self._files.size(f"{self._directory}/{name}")
        if size < self._known.size:
            raise self._refusal("holds another log, or has lost a part of what was copied there")
        return size

    def _refusal(self, why: str) -> Misconfigured:
        return Misconfigured(f"{self._directory} {why}. Give another --target, or remove it")

    def _cut_without_times(self) -> None:
        """Cut off batches whose append times were lost in a kill."""
        last, known = self._log.segments[-1], self._known
        if last.has_append_times:
            end = last.append_times.proof().end
            least = known.next_offset if known.base_offset == last.base_offset else 0
            if least <= end < self._log.log_end_offset:
                self._log.truncate_to(end, 0)

    def _records_behind_known(self) -> int:
        start, records = self._known.next_offset, 0
        if start >= self._log.log_end_offset:
            return 0
        for segment in self._log.segments_from(start):
            position = segment.indexes.position_before(start, segment.size)
            for _, header in segment.headers(position, segment.size):
                if header.base_offset >= start and not header.is_control:
                    records += max(0, header.records_count)
        return records

    def append(self, data: Buffer, append_times: Sequence[AppendTimeStretch]) -> None:
        """Append whole batches unchanged.

        Their offsets are after all offsets of the copy.

        `append_times` begin with the first offset of the batches.

        Raises:
            CorruptBatch: one is damaged, or not behind those before; these are in the log.
            StorageFailed: the disk refused. The log is to be opened again.
        """
        first, log = append_times[0].offset, self._log
        if first < log.log_end_offset == log.segments[0].base_offset:
            log.truncate_fully(first, 0)  # the source starts within its first batch
        log.append(SourceBatches(data, append_times), 0, Origin.RESTORE)
        log.move_high_watermark(names.MAX_BASE_OFFSET)

    def sync(self) -> None:
        """Finish the last segment, and wait until everything is on disk.

        No more appends follow.

        Raises:
            StorageFailed: it has not.
            CorruptBatch: the log is damaged.
        """
        try:
            for path in self._log.finish():
                self._files.sync_path(path)
        except SyncFailed:
            self._log.flusher.doubt()
            raise
        self._log.finished()
