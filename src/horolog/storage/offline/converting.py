"""Rewrites the segments of a log in another record format, without a broker.

A segment is rewritten in `<partition>/converting/<base>/`, synced, read again and compared record
for record. Only then it takes the place of the old one (logs/replacing.py). A kill leaves the old
or the new one. A segment that has the format is left unchanged, so that a second run continues.

Several processes may convert segments of one partition. Each locks the segment's log, and the
partition's directory while it changes names.

Offsets remain, and modification times, by which segments without timestamps expire. A segment that
grows beyond `MAX_SEGMENT_BYTES` becomes several.
"""

import hashlib
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from horolog.buffers import Buffer
from horolog.config import TopicConfig
from horolog.errors import CorruptBatch, RequestRefused, StorageFailed
from horolog.record.compression import Codec
from horolog.record.conversion import Losses, as_plain_messages, convert_all
from horolog.record.old_format.sent import RUN_BYTES
from horolog.record.timestamps import AppendTimeStretch
from horolog.storage import names
from horolog.storage.batches.reader import EVERYTHING
from horolog.storage.companion.seal import read_seal
from horolog.storage.directory.lock import lock_against_others
from horolog.storage.logs.replacing import make_alike, mark_cleaned, replace_segments
from horolog.storage.logs.writer import LogWriter, new_segment
from horolog.storage.offline.work import OfflineWork, refusal
from horolog.storage.removal.leftovers import base_offsets, current_bases, tidy
from horolog.storage.scan.findings import Checked, Steps
from horolog.storage.scan.walk import walk_headers
from horolog.storage.segments.numbered import Numbered, as_they_are
from horolog.storage.segments.reader import SegmentReader

MAX_SEGMENT_BYTES = 1 << 30
_ABORTED_AND_LARGE = "it has aborted transactions, and would become several segments"


@dataclass(slots=True)
class ConvertedSegment:
    """Outcome of converting one segment."""

    path: str
    records: int = 0
    """Number of rewritten records."""
    bytes_before: int = 0
    bytes_after: int = 0
    losses: Losses = field(default_factory=Losses)
    refused: str | None = None
    """Reason why the segment was left unchanged."""
    notes: list[str] = field(default_factory=list)

    @property
    def is_changed(self) -> bool:
        """True if the segment was rewritten."""
        return self.records > 0 or self.bytes_after > 0


@dataclass(frozen=True, slots=True)
class Conversion(OfflineWork):
    """Conversion of one target."""

    REASON = "it would append to what is converted"

    magic: int
    now_ms: int
    zstd_as: Codec | None = None
    interval_bytes: int = 4096
    max_segment_bytes: int = MAX_SEGMENT_BYTES

    def steps(self) -> Steps[list[ConvertedSegment]]:
        """Convert every segment. Yields progress, and returns the outcomes."""
        done = []
        for directory in self.target.partitions:
            if is_kafkas_own(directory.name):
                # The metadata log is in every directory of horolog's: no topic of the user's.
                is_metadata = directory.name == f"{names.CLUSTER_METADATA}-0"
                if not self.target.is_log_dir and not is_metadata:
                    own = "a topic that Kafka keeps for itself: these logs are never changed"
                    done.append(ConvertedSegment(str(directory), refused=own))
                continue
            with self.alone(str(directory)):  # the names do not change while they are listed
                if not self.dry_run:
                    tidy(self.files, str(directory), keep=True, now_ms=self.now_ms)
                    for name in os.listdir(directory):  # of a kill before the first `.swap`
                        if name.endswith(names.CLEANED):
                            self.files.remove(f"{directory}/{name}")
                bases = current_bases(self.files, str(directory))
            for index, base in enumerate(bases):
                path = directory / names.segment_file(base, names.LOG)
                if self.target.segment in (None, path):
                    is_last = index + 1 == len(bases)
                    done.append((yield from self._one(path, base, is_last=is_last)))
        return done

    def _one(self, path: Path, base_offset: int, *, is_last: bool) -> Steps[ConvertedSegment]:
        try:
            with self.alone(str(path)):
                self.files.close()  # another process may have converted it meanwhile
                converting = _Segment(self, str(path.parent), base_offset, is_last=is_last)
                return (yield from converting.steps())
        except StorageFailed as error:
            return ConvertedSegment(str(path), refused=str(error))


class _Segment:
    """Segment that is converted."""

    def __init__(
        self, conversion: Conversion, directory: str, base_offset: int, *, is_last: bool
    ) -> None:
        self._conversion = conversion
        self._files = conversion.files
        self._directory = directory
        self._base_offset = base_offset
        self._is_last = is_last
        path = names.log_path(directory, base_offset)
        self._old = SegmentReader.at(self._files, path, base_offset)
        self._parent = f"{directory}/{names.CONVERTING}"
        self._work = f"{self._parent}/{names.segment_file(base_offset, '')}"
        self._done = ConvertedSegment(path, bytes_before=self._old.size)
        self._new: list[SegmentReader] = []
        self._config = TopicConfig(
            segment_bytes=conversion.max_segment_bytes,
            index_interval_bytes=conversion.interval_bytes,
        )
        self._times: Sequence[AppendTimeStretch] = ()
        self._least_offset = self._next_offset = base_offset  # after what was read, and written

    def steps(self) -> Steps[ConvertedSegment]:
        """Convert the segment, unless it has the format already."""
        done, dry_run = self._done, self._conversion.dry_run
        if not dry_run:
            self._clear()  # of a conversion that was killed
        try:
            if not self._has_other_format():
                yield Checked(bytes=self._old.size, segments=1)
                return done
            yield from self._write()
            if not dry_run:
                self._compare()
                self._put_beside()
        except (CorruptBatch, RequestRefused, StorageFailed) as error:
            done.refused = refusal(error)
            done.records, done.bytes_after, done.losses = 0, 0, Losses()
            if not dry_run:
                self._clear()
            yield Checked(segments=1)
            return done
        if not dry_run:
            self._swap()
        yield Checked(segments=1)
        return done

    def _clear(self) -> None:
        """Remove the work directory. Other processes may be converting other segments."""
        if not self._files.exists(self._parent):
            return
        self._files.remove_tree(self._work)
        with lock_against_others(self._directory), suppress(OSError):
            os.rmdir(self._parent)

    def _has_other_format(self) -> bool:
        """Return True if any batch has another format.

        Raises:
            CorruptBatch: a header is none; also where the log is torn at its end.
            StorageFailed: it has what the format has no place for.
        """
        magic, is_other = self._conversion.magic, False
        for _, header, *_ in walk_headers(self._old.batches()):
            is_other |= header.magic != magic
            if magic < 2 and header.is_control and not header.is_transactional:
                raise StorageFailed(
                    f"the batch at offset {header.base_offset} holds control records, which have "
                    f"no place in format v{magic}"
                )
            if magic < 2 and header.is_transactional:
                raise StorageFailed(
                    f"the batch at offset {header.base_offset} is part of a transaction: format "
                    f"v{magic} cannot say which are aborted, and their records would come back"
                )
        return is_other

    # Writing.

    def _write(self) -> Steps[None]:
        conversion, done, base_offset = self._conversion, self._done, self._base_offset
        writer, least_offset = None, base_offset
        if self._old.has_append_times:
            self._times = self._old.append_times.stretches(base_offset, names.MAX_OFFSET, seen=True)
        if not conversion.dry_run:
            with lock_against_others(self._directory):
                if not self._files.exists(self._parent):
                    self._files.make_directory(self._parent)
                self._files.make_directory(self._work)
            active = new_segment(self._files, self._work, base_offset, self._config, 0)
            writer = LogWriter(self._files, self._work, active)
        for buffer in self._old.batches(EVERYTHING).selected(0, names.MAX_OFFSET, None):
            converted = self._converted(buffer, least_offset)
            if writer is None:
                deque(converted, 0)
            else:
                writer.append(converted, self._config)
            least_offset = self._least_offset
            yield Checked(bytes=len(buffer))
        if self._is_last and least_offset != self._next_offset:
            raise StorageFailed(
                f"the log ends at offset {least_offset} and would end at {self._next_offset}, so "
                f"that offsets are given out twice: format v{conversion.magic} has no place for "
                "what comes last"
            )
        if not done.bytes_after:
            raise StorageFailed(f"nothing of it has a place in format v{conversion.magic}")
        if writer is not None:
            writer.finish()
            self._new = [
                SegmentReader.at(self._files, names.log_path(self._work, base), base)
                for base in base_offsets(self._files.names_in(self._work), names.LOG)
            ]
        elif self._old.has_aborted and done.bytes_after > conversion.max_segment_bytes:
            raise StorageFailed(_ABORTED_AND_LARGE)

    def _converted(self, buffer: Buffer, least_offset: int) -> Iterator[Numbered]:
        """Yield batches in the new format, and count them."""
        conversion, done = self._conversion, self._done
        for part in convert_all(
            buffer,
            conversion.magic,
            least_offset=least_offset,
            zstd_as=conversion.zstd_as,
            run_bytes=0 if self._old.has_append_times else RUN_BYTES,  # these are of each message
        ):
            self._least_offset = part.next_offset
            done.records += part.records
            done.losses += part.losses
            for batch in as_they_are(bytes(part.data), self._next_offset, self._times):
                self._next_offset = batch.last_offset + 1
                done.bytes_after += batch.size
                yield batch

    # Proving.

    def _compare(self) -> None:
        """Compare the new segments with the old one, record for record.

        Raises:
            StorageFailed: they differ.
        """
        magic = self._conversion.magic
        before, after = _digest([self._old], magic), _digest(self._new, magic)
        if before != after:
            raise StorageFailed(
                "what was written is not what was there: that is a defect of horolog, and nothing "
                "was changed"
            )

    # Taking its place.

    def _put_beside(self) -> None:
        if len(self._new) > 1 and self._old.has_aborted:
            raise StorageFailed(_ABORTED_AND_LARGE)
        # It names offsets, and so is true of the log in any format.
        aborted = self._files.read_whole(self._old.path_of(names.TXN_INDEX), MAX_SEGMENT_BYTES)
        if aborted is not None:
            path = self._new[0].path_of(names.TXN_INDEX)
            self._files.write_at(self._files.create(path), [aborted], 0)
            self._new[0].indexes.reseal_aborted()
        seal = read_seal(self._old.companion)
        if seal is not None and seal.leaves_out:
            mark_cleaned(self._files, self._work)
        make_alike(self._files, self._work, self._old)

    def _swap(self) -> None:
        with lock_against_others(self._directory):
            replace_segments(self._files, self._directory, self._work)
        self._clear()


def _digest(readers: Sequence[SegmentReader], magic: int) -> tuple[str, int]:
    """Return a digest of the records, as far as a format stores them, and their number."""
    digest = hashlib.blake2b()
    records = 0
    for reader in readers:
        least_offset = reader.base_offset
        for buffer in reader.batches(EVERYTHING).selected(0, names.MAX_OFFSET, None):
            for part in as_plain_messages(buffer, min(magic, 1), least_offset=least_offset):
                digest.update(part.data)
                records += part.records
                least_offset = part.next_offset
    return digest.hexdigest(), records


def is_kafkas_own(name: str) -> bool:
    """Return True if a directory of this name belongs to an internal topic."""
    partition = names.partition_of(name)
    return partition is not None and partition.topic in names.INTERNAL_TOPICS
