"""A partition directory that takes the batches of another log as they are, with their offsets.

Nothing is stamped or numbered: bytes, offsets and leader epochs are those of the other log, and
append times where they are known. A broker that opens the directory afterwards adopts it.

What was written and not synced may be torn by a kill. So a log is opened from a place that is known
to be on disk (`CopiedEnd`); behind that, whole batches whose checksums hold and whose append times
are there are kept, and the rest is cut off. Two processes may follow one another on one directory,
and the second finds what the first has written; a lock keeps them apart.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple
from uuid import UUID

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, Misconfigured
from horolog.record.batch import MAGIC, BatchHeader
from horolog.storage import names
from horolog.storage.append_times.file import AppendTimeEntry
from horolog.storage.batches.identity import IDENTITY_SIZE
from horolog.storage.directory.checkpoints import (
    AppendTimeReset,
    read_append_time_resets,
    read_epochs,
    write_append_time_resets,
    write_topic_id,
)
from horolog.storage.directory.lock import lock_against_others
from horolog.storage.file_errors import FileMissing, failed_to
from horolog.storage.files import Files
from horolog.storage.index.segment_end import SegmentEnd
from horolog.storage.logs.epochs import LeaderEpochs
from horolog.storage.segments.finished import write_companions
from horolog.storage.segments.reader import SegmentReader

_COMPANIONS = (names.OFFSET_INDEX, names.TIME_INDEX, names.SEAL, names.BLOCKS)


class CopiedEnd(NamedTuple):
    """How far a copy goes: its next offset, its last segment, and the bytes of that."""

    next_offset: int
    base_offset: int | None = None
    size: int = 0


@contextmanager
def copying(directory: str) -> Iterator[None]:
    """Keep other processes that copy into a partition directory waiting; it is made if missing.

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
    """One partition directory, to be used within `copying`."""

    def __init__(
        self,
        files: Files,
        directory: str,
        known: CopiedEnd,
        *,
        segment_bytes: int,
        interval_bytes: int = 4096,
    ) -> None:
        """Open it behind what is known to be on disk.

        Args:
            files: the way to the disk.
            directory: of the partition.
            known: up to where it was synced.
            segment_bytes: a segment ends before it grows beyond that.
            interval_bytes: `index.interval.bytes`.

        Raises:
            Misconfigured: it holds another log, or less than is known to be there.
            StorageFailed: the disk refused.
        """
        self._files = files
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._interval_bytes = interval_bytes
        self._active: SegmentReader | None = None
        self._last_ms: int | None = None
        self._is_unsynced = False
        self.next_offset = known.next_offset
        self.found_records = 0
        """Of batches that were there behind what is known."""
        self._epochs = LeaderEpochs(
            files,
            f"{directory}/{names.LEADER_EPOCHS}",
            read_epochs(files, f"{directory}/{names.LEADER_EPOCHS}"),
        )
        self._open(known)

    @property
    def end(self) -> CopiedEnd:
        """How far it goes; on disk after `sync`."""
        if self._active is None:
            return CopiedEnd(self.next_offset)
        return CopiedEnd(self.next_offset, self._active.base_offset, self._active.size)

    def write_topic_id(self, topic_id: UUID) -> None:
        """Say whose log this is."""
        write_topic_id(
            self._files, f"{self._directory}/{names.PARTITION_METADATA}", topic_id, sync=True
        )

    # Opening.

    def _open(self, known: CopiedEnd) -> None:
        bases = sorted(
            base
            for name in os.listdir(self._directory)
            if (base := names.base_offset_of(name, names.LOG)) is not None
        )
        if known.base_offset is None:
            ours = bases  # of a process before; the first one may begin behind a gap
        else:
            if known.base_offset not in bases:
                raise self._another()
            ours = bases[bases.index(known.base_offset) :]
        for base in ours:
            is_known = base == known.base_offset
            if not is_known and base < self.next_offset and self._active is not None:
                raise self._another()
            self._take(base, known.size if is_known else 0)
        if self._active is not None:
            self._check_times(known)
            self._epochs.truncate_from_end(self.next_offset)

    def _another(self) -> Misconfigured:
        return Misconfigured(
            f"{self._directory} holds another log, or has lost a part of what was copied there. "
            "Give another --target, or remove it"
        )

    def _take(self, base_offset: int, known_size: int) -> None:
        """Take what a segment has behind a known size, as far as it is sound."""
        path = f"{self._directory}/{names.segment_file(base_offset, names.LOG)}"
        file = self._files.get(path)
        size = self._files.size(path)
        if size < known_size:
            raise self._another()
        reader = SegmentReader(self._files, path.removesuffix(names.LOG), base_offset, size)
        walk, at = reader.batches(), known_size
        with suppress(CorruptBatch):
            for position, header in walk.headers(known_size):
                if header.magic == MAGIC and header.base_offset < self.next_offset:
                    break  # not of this log
                walk.check(position, header)
                self.next_offset, at = header.next_offset, position + header.size
                self.found_records += max(0, header.records_count) * (not header.is_control)
        if at < size:
            self._files.truncate(file, at)
        reader.end = SegmentEnd(at, self.next_offset)
        self._active = reader
        self._is_unsynced = True

    def _check_times(self, known: CopiedEnd) -> None:
        """Cut off batches whose append times a kill has lost."""
        reader = self._active
        assert reader is not None
        if not reader.has_append_times:
            return
        proof = reader.append_times.proof()
        least = known.next_offset if known.base_offset == reader.base_offset else 0
        if least <= proof.end < self.next_offset:
            found = reader.locate(proof.end)
            if found is not None:
                position, header = found
                self._files.truncate(reader.log.open(), position)
                self.next_offset = header.base_offset
                reader.end = SegmentEnd(position, self.next_offset)
                reader.append_times.truncate(proof)

    # Appending.

    def append(self, header: BatchHeader, batch: Buffer, append_ms: int | None) -> None:
        """Append a batch as it is; its offsets come after those that are there.

        Args:
            header: of the batch.
            batch: its bytes, whose checksum holds.
            append_ms: when the other log took it; None where that is unknown.

        Raises:
            StorageFailed: the disk refused. The log is to be opened again.
        """
        active = self._active
        if active is None or not self._has_room(active, header, append_ms):
            active = self._roll(header.base_offset)
        if header.leader_epoch > self._epochs.latest:
            self._epochs.assign(header.leader_epoch, header.base_offset)
        start = bytes(memoryview(batch)[:IDENTITY_SIZE])
        times = active.append_times
        if append_ms is not None:
            if not times.is_growing:
                times.make_ready(append_ms)
                self._last_ms = times.last_ms
            if append_ms != self._last_ms:
                times.add(header.base_offset, append_ms, start)
        elif times.is_growing and self._last_ms is not None:
            times.add_all([AppendTimeEntry(header.base_offset, None, start)])
        self._last_ms = append_ms
        position = active.size
        self._files.write_at(active.log.open(), [batch], position)
        active.end = SegmentEnd(
            position + header.size, header.next_offset, position, header.base_offset
        )
        self.next_offset = header.next_offset
        self._is_unsynced = True

    def _has_room(self, active: SegmentReader, header: BatchHeader, append_ms: int | None) -> bool:
        if active.size and active.size + header.size > self._segment_bytes:
            return False
        if header.last_offset - active.base_offset > names.MAX_RELATIVE_OFFSET:
            return False
        if append_ms is None or not active.has_append_times:
            return True
        latest = self._last_ms if active.append_times.is_growing else active.append_times.latest_ms
        if latest is not None and append_ms < latest:
            self._note_reset(header.base_offset, latest, append_ms)
            return False
        return active.append_times.fits(append_ms)

    def _note_reset(self, offset: int, old_ms: int, new_ms: int) -> None:
        """Append times go back here, as they were reset in the other log (docs/append-times.md)."""
        path = f"{self._directory}/{names.APPEND_TIME_RESETS}"
        resets = read_append_time_resets(self._files, path)
        if not any(each.offset == offset for each in resets):
            resets.append(AppendTimeReset(offset, old_ms, new_ms, new_ms))
            write_append_time_resets(self._files, path, resets)

    def _roll(self, base_offset: int) -> SegmentReader:
        if self._active is not None:
            self.finish()
        stem = f"{self._directory}/{names.segment_file(base_offset, '')}"
        self._files.create(stem + names.LOG)
        self._files.sync_path(self._directory)
        self._active = active = SegmentReader(self._files, stem, base_offset, 0)
        active.end = SegmentEnd(0, base_offset)
        self._last_ms = None
        return active

    def begin(self) -> None:
        """Have a segment, also if there is no batch: a broker finds the partition then."""
        if self._active is None:
            self._roll(self.next_offset)

    # Making it last.

    def sync(self) -> None:
        """Have the disk have it.

        Raises:
            StorageFailed: it has not.
        """
        active = self._active
        if active is None or not self._is_unsynced:
            return
        active.append_times.finish()
        self._files.sync(active.log.open())
        if active.has_append_times:
            self._files.sync(self._files.get(active.path_of(names.APPEND_TIMES)))
        self._files.sync_path(self._directory)
        self._is_unsynced = False

    def finish(self) -> None:
        """Write the indexes of the last segment, and sync it all.

        Raises:
            StorageFailed: the disk refused.
            CorruptBatch: the log is damaged.
        """
        active = self._active
        if active is None:
            return
        self.sync()
        for suffix in _COMPANIONS:
            self._files.remove(active.path_of(suffix))
        write_companions(self._files, active, self._interval_bytes)
        for suffix in (names.OFFSET_INDEX, names.TIME_INDEX, names.SEAL):
            with suppress(FileMissing):
                self._files.sync(self._files.get(active.path_of(suffix)))
        self._files.sync_path(self._directory)
