"""Segment of an open log, and the operations on its files.

It is read as any other (segments/reader.py); its indexes are checked and repaired, it is
synced, and its files get other names when it is deleted. Appending is for the last of a log
alone (segments/active.py).
"""

from collections.abc import Sequence

from horolog.config import TopicConfig
from horolog.errors import CorruptBatch, CorruptIndex, StorageFailed
from horolog.record.batch import verify_crc
from horolog.storage import names
from horolog.storage.batches.log_file import SegmentEnd
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.index.abort import ENTRY, AbortedTxn, append_aborted, write_aborted
from horolog.storage.index.builder import IndexBuilder
from horolog.storage.index.indexes import Trust
from horolog.storage.segments.reader import SegmentReader


class Segment(SegmentReader):
    """A segment and its files. One writer, any number of readers."""

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        config: TopicConfig,
        *,
        size: int,
        has_aborted: bool | None = None,
    ) -> None:
        """Open a segment whose files exist; the first `size` bytes of its log are whole batches.

        `has_aborted`: whether there is a file of aborted transactions; if None, it is looked for.
        """
        super().__init__(
            files,
            f"{directory}/{base_offset:020d}",
            base_offset,
            size,
            trust=Trust(repairs=not files.read_only, interval_bytes=config.index_interval_bytes),
            max_index_bytes=config.segment_index_bytes,
            has_aborted=has_aborted,
        )

    def adopt(self, facts: IndexBuilder) -> None:
        """Store the facts that a walk over all headers found."""
        self.end = SegmentEnd(facts.end, facts.next_offset)
        self._first_timestamp, self._first_known = facts.first_timestamp, facts.end > 0
        self.indexes.adopt(facts)

    def forget_aborted_from(self, offset: int) -> None:
        """Remove the aborted transactions whose markers were cut off."""
        if self.has_aborted:
            try:
                found = self.aborted()
            except CorruptIndex:
                return  # rebuilt when it is found so (recovery/loading.py)
            kept = [entry for entry in found if entry.last_offset < offset]
            if len(kept) * ENTRY.size != self._files.size(self.path_of(names.TXN_INDEX)):
                self.write_aborted(kept)

    def write_aborted(self, entries: Sequence[AbortedTxn]) -> None:
        """Replace the index of aborted transactions."""
        if not entries:
            self._has_aborted = False  # before its file is gone
        write_aborted(self._files, self.path_of(names.TXN_INDEX), entries)
        self._has_aborted, self._aborted_size = bool(entries), None
        self.indexes.reseal_aborted()

    def add_aborted(self, entries: Sequence[AbortedTxn]) -> None:
        """Append to the index of aborted transactions.

        Raises:
            StorageFailed: the disk refused; readers see none of them.
        """
        path = self.path_of(names.TXN_INDEX)
        size = self._aborted_size
        if size is None:
            size = self._files.size(path)
        if not self.has_aborted:
            self._files.create(path)
        self._has_aborted, self._aborted_size = True, size
        self._aborted_size = append_aborted(self._files, self._files.get(path), entries, size)

    @property
    def paths(self) -> list[str]:
        """The files that must outlive a crash once the segment is finished; indexes may be gone."""
        return [self.log.path, *filter(self._files.exists, self._beside)]

    @property
    def _beside(self) -> list[str]:
        """List the files that are synced with a finished segment."""
        found = [self._stem + suffix for suffix in names.SYNCED_BESIDE]
        return [*found, self.path_of(names.TXN_INDEX)] if self.has_aborted else found

    def sync(self, *, indexes: bool) -> None:
        """Sync the log to disk; with `indexes`, also the files that must survive a crash."""
        self._files.sync(self.log.open())
        if indexes:
            for path in self._beside:
                try:
                    self._files.sync_path(path)
                except FileMissing:
                    continue  # deleted meanwhile

    def write_again(self, offset: int, max_bytes: int) -> int:
        """Rewrite whole batches in place from `offset` on; return the offset after the last one.

        Raises:
            StorageFailed: the disk refused, or has forgotten what was written.
        """
        found = self.locate(offset)
        if found is None:
            return offset
        (position, _), file = found, self.log.open()
        try:
            for at, header in self.headers(position, self.end.size):
                batch = self.read_batch(at, header)
                verify_crc(batch, 0, header)
                self._files.write_at(file, [batch], at)
                offset = header.next_offset
                if at + header.size - position >= max_bytes:
                    break
        except CorruptBatch as error:
            raise StorageFailed(
                f"{file.path} lacks what was written to it: {error}. The next start cuts it there"
            ) from error
        return offset

    # Deleting.

    def abandon(self) -> None:
        """Close the files, because their directory was renamed."""
        self.log.abandon()
        self.indexes.abandon()
        self.companion.abandon()
        self._files.forget(*(self._stem + suffix for suffix in names.SEGMENT_SUFFIXES))

    def mark_deleted(self) -> list[str]:
        """Rename the files to `.deleted`, and return the paths to remove later.

        Readers continue.

        Other files may take their former names then, as those of a segment that replaces it. To be
        called again where the disk has refused.
        """
        self.indexes.abandon()
        self.companion.abandon()
        ending = self._deleted_ending()
        paths = []
        for suffix in names.SEGMENT_SUFFIXES:
            path = self._stem + suffix
            if suffix == names.APPENDING:
                self._files.remove(path)
                continue
            if suffix == names.COMPANION:
                self.append_times.will_rename(path + ending)
            if self._files.exists(path):
                self._files.rename(path, path + ending)
            self._follow(suffix, path + ending)
            if self._files.exists(path + ending):
                paths.append(path + ending)
        self._ending = ending
        return paths

    def _follow(self, suffix: str, path: str) -> None:
        """Read a renamed file under its new name."""
        if suffix == names.LOG:
            self.log.renamed()
        elif suffix == names.OFFSET_INDEX:
            self.indexes.offsets.entries.path = path
        elif suffix == names.TIME_INDEX:
            self.indexes.times.entries.path = path
        elif suffix == names.COMPANION:
            self.append_times.rename(path)

    def _deleted_ending(self) -> str:
        """Return a name ending for the deleted files that no earlier segment of this offset has."""
        if self._deleted_as is not None:
            return self._deleted_as
        ending, number = names.DELETED, 1
        while self._files.exists(self._stem + names.LOG + ending):
            number += 1
            ending = f".{number}{names.DELETED}"
        self.log.deleted_path = self.log.path + ending
        self._deleted_as = ending
        return ending
