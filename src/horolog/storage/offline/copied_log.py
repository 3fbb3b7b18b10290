"""A partition directory that takes the batches of another log as they are, with their offsets.

Nothing is stamped or numbered: bytes, offsets and leader epochs are those of the other log, and
append times where they are known. Snapshots of its producers say which transactions are open, so
that the index of aborted ones is complete. A broker that opens the directory afterwards adopts it.

What was written and not synced may be torn by a kill. So a log is opened from a place that is known
to be on disk (`CopiedEnd`); behind that, whole batches whose checksums hold and whose append times
are there are kept, and the rest is cut off. Two processes may follow one another on one directory,
and the second finds what the first has written; a lock keeps them apart.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple
from uuid import UUID

from horolog.config import TopicConfig
from horolog.errors import CorruptBatch, CorruptIndex, Misconfigured
from horolog.record.batch import MAGIC
from horolog.storage import names
from horolog.storage.append_times.earlier import take_over
from horolog.storage.append_times.floor import AppendTimes
from horolog.storage.directory.checkpoints import read_epochs, write_topic_id
from horolog.storage.directory.lock import lock_against_others
from horolog.storage.file_errors import failed_to
from horolog.storage.files import Files
from horolog.storage.index.abort import AbortedTxn
from horolog.storage.index.segment_end import SegmentEnd
from horolog.storage.logs.epochs import LeaderEpochs
from horolog.storage.logs.writer import LogWriter, active_segment, new_segment
from horolog.storage.producers.replay import replay
from horolog.storage.producers.states import Producers, remove_snapshot
from horolog.storage.removal.leftovers import base_offsets
from horolog.storage.segments.active import ActiveSegment
from horolog.storage.segments.numbered import Numbered
from horolog.storage.segments.segment import Segment


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
        self._config = TopicConfig(segment_bytes=segment_bytes, index_interval_bytes=interval_bytes)
        self._segment: Segment | None = None
        self._writer: LogWriter | None = None
        self._next_offset = known.next_offset
        self.found_records = 0
        """Of batches that were there behind what is known."""
        take_over(files, directory, set(files.names_in(directory)))
        self._append_times = AppendTimes.read(files, directory)
        path = f"{directory}/{names.LEADER_EPOCHS}"
        self._epochs = LeaderEpochs(files, path, read_epochs(files, path))
        self._producers = Producers()
        self._open(known)

    @property
    def next_offset(self) -> int:
        """That of the batch that comes next, or a smaller one."""
        ours = self._next_offset  # perhaps behind a gap
        return ours if self._writer is None else max(ours, self._writer.next_offset)

    @property
    def end(self) -> CopiedEnd:
        """How far it goes; on disk after `sync`."""
        if self._writer is None:
            return CopiedEnd(self.next_offset)
        segment = self._writer.active.segment
        return CopiedEnd(self.next_offset, segment.base_offset, segment.size)

    def write_topic_id(self, topic_id: UUID) -> None:
        """Say whose log this is."""
        write_topic_id(
            self._files, f"{self._directory}/{names.PARTITION_METADATA}", topic_id, sync=True
        )

    # Opening.

    def _open(self, known: CopiedEnd) -> None:
        bases = base_offsets(self._files.names_in(self._directory), names.LOG)
        if known.base_offset is None:
            ours = bases  # of a process before; the first one may begin behind a gap
        else:
            if known.base_offset not in bases:
                raise self._another()
            ours = bases[bases.index(known.base_offset) :]
        segments = [self._segment_at(base) for base in bases[: len(bases) - len(ours)]]
        for base in ours:
            is_known = base == known.base_offset
            if not is_known and base < self._next_offset and self._segment is not None:
                raise self._another()
            self._segment = self._taken(base, known.size if is_known else 0)
            segments.append(self._segment)
        segment = self._segment
        if segment is not None:
            self._check_times(segment, known)
            self._epochs.truncate_from_end(self._next_offset)
            self._learn_producers(segments, known)
            if segment.has_append_times:
                self._append_times.found(segment.append_times.latest_ms, self._next_offset)
            self._write_to(active_segment(self._files, segment, self._config, 0))

    def _write_to(self, active: ActiveSegment) -> LogWriter:
        self._writer = LogWriter(
            self._files,
            self._directory,
            active,
            append_times=self._append_times,
            epochs=self._epochs,
            producers=self._producers,
        )
        return self._writer

    def _another(self) -> Misconfigured:
        return Misconfigured(
            f"{self._directory} holds another log, or has lost a part of what was copied there. "
            "Give another --target, or remove it"
        )

    def _segment_at(self, base_offset: int) -> Segment:
        path = f"{self._directory}/{names.segment_file(base_offset, names.LOG)}"
        size = self._files.size(path)
        return Segment(self._files, self._directory, base_offset, self._config, size=size)

    def _taken(self, base_offset: int, known_size: int) -> Segment:
        """A segment with what it has behind a known size, as far as that is sound."""
        segment = self._segment_at(base_offset)
        size = segment.size
        if size < known_size:
            raise self._another()
        seal = segment.indexes.seal_facts(size) if size == known_size else None
        at, end = (0, base_offset) if seal is None else (size, seal.next_offset)
        walk = segment.batches()
        with suppress(CorruptBatch):
            for position, header in walk.headers(at):
                if position >= known_size:
                    if header.magic == MAGIC and header.base_offset < self._next_offset:
                        break  # not of this log
                    walk.check(position, header)
                    self._next_offset = header.next_offset
                    self.found_records += max(0, header.records_count) * (not header.is_control)
                at, end = position + header.size, header.next_offset
        if at < known_size:
            raise self._another()
        if at < size:
            self._files.truncate(segment.log.open(), at)
        segment.end = SegmentEnd(at, end)
        return segment

    def _check_times(self, segment: Segment, known: CopiedEnd) -> None:
        """Cut off batches whose append times a kill has lost."""
        if not segment.has_append_times:
            return
        proof = segment.append_times.proof()
        least = known.next_offset if known.base_offset == segment.base_offset else 0
        if least <= proof.end < self._next_offset:
            found = segment.locate(proof.end)
            if found is not None:
                position, header = found
                self._files.truncate(segment.log.open(), position)
                self._next_offset = header.base_offset
                segment.end = SegmentEnd(position, self._next_offset)
                segment.append_times.truncate(proof)

    def _learn_producers(self, segments: Sequence[Segment], known: CopiedEnd) -> None:
        """Find out who wrote it, and mend the indexes of aborted transactions that are not sure.

        These are sure up to what is known to be on disk, if a snapshot was written there.
        """
        last, first = segments[-1], known.base_offset or 0
        end = last.end.next_offset
        present = self._files.names_in(self._directory)
        offsets = base_offsets(present, names.SNAPSHOT)
        if (last.base_offset, last.size) == (known.base_offset, known.size) and end in offsets:
            first = end
            last.forget_aborted_from(end)  # whose marker a power failure has lost
        usable = [offset for offset in offsets if offset <= first]
        replayed = replay(self._files, self._directory, segments, self._producers, usable, now_ms=0)
        for segment in segments:
            entries = replayed.get(segment.base_offset)
            if entries is not None and (segment.base_offset >= first or not segment.has_aborted):
                _mend_aborted(segment, entries)
        kept = {*usable[-1:], *(segment.base_offset for segment in segments)}
        for offset in offsets:
            if offset not in kept or offset > end:
                remove_snapshot(self._files, self._directory, offset)

    # Appending.

    def append(self, batch: Numbered) -> None:
        """Append a batch as it is; its offsets come after those that are there.

        Raises:
            StorageFailed: the disk refused. The log is to be opened again.
        """
        self._begun(batch.base_offset).extend((batch,), self._config)

    def begin(self) -> None:
        """Have a segment, also if there is no batch: a broker finds the partition then."""
        self._begun(self._next_offset)

    def _begun(self, base_offset: int) -> LogWriter:
        if self._writer is not None:
            return self._writer
        return self._write_to(
            new_segment(self._files, self._directory, base_offset, self._config, 0)
        )

    # Making it last.

    def sync(self) -> None:
        """Finish the last segment, and wait until the disk has all that was appended.

        Raises:
            StorageFailed: it has not.
            CorruptBatch: the log is damaged.
        """
        if self._writer is not None:
            self._writer.finish()
            self._writer.sync()


def _mend_aborted(segment: Segment, entries: Sequence[AbortedTxn]) -> None:
    with suppress(CorruptIndex):
        if segment.aborted() == entries:
            return
    segment.write_aborted(entries)
    segment.sync(indexes=True)
