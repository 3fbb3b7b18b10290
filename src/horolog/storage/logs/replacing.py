"""Puts new segments in the place of old ones; whatever a kill interrupts, one or the others count.

A `LogWriter` has written the new segments in a work directory and finished them. Then their files

    <work>/<base>.log     owner, rights and modification time of the old ones; synced
    <base>.log.cleaned    next to the old ones; void, as long as any has this suffix
    <base>.log.swap       they count: the next start continues from here, Kafka's as well
    <base>.log            they have their names, and the old segments are gone

with their companion files alike. Which go and which come is written down before the new ones count
(removal/replacement.py). A compaction of Kafka's uses the same names, and the same code ends what
was interrupted (removal/leftovers.py).

What a cleaning pass leaves is written so, too: by the cleaner of a live log and `horolog log
compact`.
"""

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from horolog.config import TopicConfig
from horolog.errors import StorageFailed
from horolog.storage import names
from horolog.storage.files import Files
from horolog.storage.index.abort import AbortedTxn
from horolog.storage.logs.appendable import AppendableLog
from horolog.storage.logs.writer import LogWriter, new_segment
from horolog.storage.removal.leftovers import base_offsets, finish_replacement
from horolog.storage.removal.replacement import Replacement, end_replacement, write_replacement
from horolog.storage.scan.walk import whole_end
from horolog.storage.segments.reader import SegmentReader
from horolog.storage.segments.segment import Segment

if TYPE_CHECKING:
    from horolog.storage.cleaning.passes import Cleaned, CleaningGroup, CleaningPass


def make_alike(files: Files, work: str, old: SegmentReader) -> None:
    """Give new segments the owner, the rights and the modification time of an old one; sync them.

    Retention counts a segment without timestamps from its modification time.

    Raises:
        StorageFailed: the disk refused.
    """
    modified_ms = old.modified_ms()
    owner = os.fstat(old.log.open().fd)
    for name in files.names_in(work):
        path = f"{work}/{name}"
        file = files.get(path)
        os.fchmod(file.fd, stat.S_IMODE(owner.st_mode))
        with suppress(PermissionError):  # only root may give files away
            os.fchown(file.fd, owner.st_uid, owner.st_gid)
        files.sync(file)
        if name.endswith(names.LOG):
            files.touch(path, modified_ms)
    files.sync_path(work)


def replace_segments(
    files: Files, directory: str, work: str, replaced: Sequence[int] | None = None
) -> None:
    """Let new segments take the place of old ones.

    Args:
        directory: of the partition, which nobody else changes meanwhile.
        work: a directory of the same file system that holds finished, synced segments alone; they
            have all records of what they replace that are to stay.
        replaced: the base offsets of those that go; by default all of an offset that the new ones
            reach over.

    Raises:
        StorageFailed: the disk refused; the next start, or the next call, ends what was begun.
    """
    finish_replacement(files, directory, begin_replacement(files, directory, work, replaced))


def begin_replacement(
    files: Files, directory: str, work: str, replaced: Sequence[int] | None = None
) -> Replacement:
    """Let the new segments count, before they have their final names.

    `finish_replacement` gives them those; `take_back` undoes it.

    Raises:
        StorageFailed: the disk refused; see `take_back`.
    """
    moved = sorted(files.names_in(work), reverse=True)
    sizes = {
        base: files.size(f"{work}/{names.segment_file(base, names.LOG)}")
        for base in base_offsets(moved, names.LOG)
    }
    if replaced is None:
        replaced = _reached_over(files, directory, work, sizes)
    replacement = Replacement(sizes, tuple(replaced))
    for name in moved:
        files.rename(f"{work}/{name}", f"{directory}/{name}{names.CLEANED}")
    write_replacement(files, directory, replacement)
    files.sync_path(directory)
    # The smallest base offset last: as long as one file is `.cleaned`, all are void.
    for name in moved:
        stem = f"{directory}/{name}"
        files.rename(f"{stem}{names.CLEANED}", f"{stem}{names.SWAP}")
    files.sync_path(directory)
    return replacement


def take_back(files: Files, directory: str) -> None:
    """Undo a `begin_replacement` that the disk has refused half-way; may be repeated.

    Raises:
        StorageFailed: the disk refused.
    """
    end_replacement(files, directory)  # first: without it a start does not continue with the others
    for name in files.names_in(directory):
        if name.endswith((names.CLEANED, names.SWAP)):
            files.remove(f"{directory}/{name}")
    files.sync_path(directory)


def _reached_over(files: Files, directory: str, work: str, new: Collection[int]) -> list[int]:
    old, found = base_offsets(files.names_in(directory), names.LOG), set[int]()
    for base in new:
        path = f"{work}/{names.segment_file(base, names.LOG)}"
        end = whole_end(files, path, base)
        if end is None:
            raise StorageFailed(f"{path} is not whole: nothing was replaced")
        found.update(base_offset for base_offset in old if min(new) <= base_offset < end)
    return sorted(found)


def write_cleaned(
    files: Files, work: str, cleaning: "CleaningPass", group: "CleaningGroup", config: TopicConfig
) -> "Iterator[Cleaned]":
    """Write the cleaned segments of a group and sync them; yields each piece after its write.

    Args:
        work: the directory to write into; what is in it goes.
        cleaning: the pass, whose keys are read.
        group: the next of its groups.
        config: how large segments become, and how dense their indexes are.

    Raises:
        CorruptBatch: a segment is damaged.
        RequestRefused: a batch decompresses to too much, or becomes too large.
        StorageFailed: the disk refused.
    """
    if files.exists(work):
        files.remove_tree(work)
    files.make_directory(work)
    writer = LogWriter(files, work, new_segment(files, work, group.base_offset, config, 0))
    for piece in cleaning.cleaned(group):
        writer.append(piece.batches, config)
        yield piece
    writer.finish()
    _write_aborted(files, work, cleaning.take_aborted(), config)
    mark_cleaned(files, work)
    make_alike(files, work, group.segments[-1])


def mark_cleaned(files: Files, work: str) -> None:
    """Have the seals of finished segments say that compaction may have left out offsets.

    Raises:
        StorageFailed: the disk refused.
    """
    for base in base_offsets(files.names_in(work), names.LOG):
        reader = SegmentReader.at(files, f"{work}/{names.segment_file(base, names.LOG)}", base)
        reader.indexes.note_left_out()


def size_of_logs(files: Files, work: str) -> int:
    """Return the total size of the logs in a work directory."""
    return sum(
        files.size(f"{work}/{names.segment_file(base, names.LOG)}")
        for base in base_offsets(files.names_in(work), names.LOG)
    )


def _write_aborted(
    files: Files, work: str, aborted: Sequence[AbortedTxn], config: TopicConfig
) -> None:
    """Write the index of aborted transactions, each where its marker is."""
    bases = base_offsets(files.names_in(work), names.LOG)
    for base, end in zip(bases, [*bases[1:], names.MAX_OFFSET], strict=True):
        entries = [transaction for transaction in aborted if base <= transaction.last_offset < end]
        if entries:
            Segment(files, work, base, config, size=0).write_aborted(entries)


class Swap:
    """Puts new segments in the place of old ones of one open log, an argument of each call.

    It holds what is left to do. No write to the log, and no flush, runs during a call.
    """

    __slots__ = ("_due_ms", "_new", "_old", "_replacement", "is_unfinished")

    def __init__(self) -> None:
        self.is_unfinished = False
        """Whether the disk has refused it half-way."""
        self._old: Sequence[Segment] = ()
        self._new: Sequence[Segment] = ()
        self._due_ms = 0
        self._replacement: Replacement | None = None  # until the new ones count

    def put(self, log: AppendableLog, old: Sequence[Segment], work: str, due_ms: int) -> None:
        """Put the segments of a directory in the place of old ones.

        Args:
            log: that has the old ones, which follow each other.
            work: holds finished, synced segments alone, with what is to stay of the old ones.
            due_ms: from when on, by the monotonic clock, the old ones' files may be removed.

        Raises:
            StorageFailed: the disk refused; see `finish`.
        """
        log.is_settled = False
        self._old, self._new, self._due_ms = old, _coming(log, work), due_ms
        self._replacement, self.is_unfinished = None, True
        bases = [segment.base_offset for segment in old]
        self._replacement = begin_replacement(log.files, log.directory, work, bases)
        self.finish(log)

    def finish(self, log: AppendableLog) -> None:
        """Complete the replacement, or undo it if the new segments do not count yet.

        Raises:
            StorageFailed: the disk refused; each step may be repeated.
        """
        if not self.is_unfinished:
            return
        if self._replacement is None:
            take_back(log.files, log.directory)
            self.is_unfinished = False
            return
        for segment in self._old:
            log.removed_files.remove_replaced_later(segment, self._due_ms)
        finish_replacement(log.files, log.directory, self._replacement)
        at = log.segments.index(self._old[0])
        log.segments = (*log.segments[:at], *self._new, *log.segments[at + len(self._old) :])
        log.index_checks.want_maps()  # their block maps are made like those of other brokers'
        self._old, self._new, self.is_unfinished = (), (), False


def _coming(log: AppendableLog, work: str) -> list[Segment]:
    """Return the segments of a work directory as they will be in a log."""
    files, present = log.files, log.files.names_in(work)
    return [
        Segment(
            files,
            log.directory,
            base,
            log.config,
            size=files.size(f"{work}/{names.segment_file(base, names.LOG)}"),
            has_aborted=names.segment_file(base, names.TXN_INDEX) in present,
        )
        for base in base_offsets(present, names.LOG)
    ]
