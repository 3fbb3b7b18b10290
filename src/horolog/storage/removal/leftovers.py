"""Files of interrupted work in a partition's directory, which a start removes or finishes.

    *.tmp                 an interrupted replacement of a small file: removed
    *.deleted             deleted segments: removed
    *.cleaned             an unfinished compaction: removed
    *.swap                a finished compaction: its segments replace the old ones. Those of Kafka
                          are set aside if they are damaged, have other offsets than their names,
                          or lack offsets of old segments that are all present. Ours have a
                          record (removal/replacement.py)
    indexes without log   removed
    *.cut.times           append times of a set-aside file that is gone: removed
    converting/           an unfinished conversion: removed
    cleaning/             an unfinished compaction: removed

`<base>.appending.deleted` next to its log remains (companion/marker.py). In an adopted directory
`.deleted` and `.cleaned` files and lone indexes remain: they do no harm, and a backup must not
change.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from horolog.errors import CorruptBatch
from horolog.record.batch import BatchHeader
from horolog.storage import names
from horolog.storage.batches.reader import BatchReader
from horolog.storage.batches.whole import whole_batches
from horolog.storage.directory.contents import clear_the_way, files_of
from horolog.storage.file_errors import FileMissing, NotRegular
from horolog.storage.files import Files
from horolog.storage.listing import segment_names
from horolog.storage.removal.replacement import Replacement, end_replacement, read_replacement
from horolog.storage.removal.set_aside import keep_file, keep_segment
from horolog.storage.scan.walk import whole_end

T = TypeVar("T")

_CHANGED_AGAIN = 20
_INDEX_SUFFIXES = frozenset(names.SEGMENT_SUFFIXES) - {names.LOG}


class Tidied(NamedTuple):
    """Remaining names of a directory, and sentences about the changes."""

    present: set[str]
    notes: list[str]
    warnings: list[str]


def tidy(files: Files, directory: str, *, keep: bool, now_ms: int) -> Tidied:
    """Remove or finish interrupted work in a directory.

    Args:
        keep: leave what does no harm.
        now_ms: the clock, in milliseconds.

    Raises:
        StorageFailed: the disk refused, or a name belongs to something that is no regular file;
            then nothing has been done.
    """
    notes: list[str] = []
    warnings: list[str] = []
    try:
        present = files_of(directory)
    except NotRegular:
        rebuilt = [
            name
            for name in os.listdir(directory)
            if name.endswith((*names.REBUILT, names.TEMPORARY))
            or name in (names.LEADER_EPOCHS, names.APPEND_TIME)
        ]
        warnings += [
            f"{moved} is not a regular file, and was set aside under this name"
            for moved in clear_the_way(files, directory, rebuilt)
        ]
        present = files_of(directory)
    if any(name.endswith(names.SWAP) for name in present):
        swaps = _valid_swaps(present)
        for name in present.difference(swaps):
            if _base_of(name, names.SWAP) is not None:
                files.remove(f"{directory}/{name}")
        ours = _ours(files, directory, swaps)
        if ours is not None:
            finish_replacement(files, directory, ours)
            notes.append(f"Finished a compaction in {directory}: {', '.join(swaps)}")
        else:
            logs = base_offsets(present, names.LOG)
            compaction = _Compaction(files, directory, swaps, logs)
            refusal = compaction.refusal()
            if refusal is not None:
                warnings.append(compaction.refuse(refusal, now_ms))
            elif swaps:
                notes.append(compaction.finish(warnings, now_ms))
        present = files_of(directory)
    if names.REPLACED in present:
        end_replacement(files, directory)
        present.discard(names.REPLACED)
    for work in (names.CONVERTING, names.CLEANING):
        if not keep and files.exists(f"{directory}/{work}"):
            files.remove_tree(f"{directory}/{work}")
            notes.append(f"Removed {directory}/{work}, a leftover")
    for name in sorted(present):
        obsolete = _is_deleted(name, present) or is_lone_index(name, present)
        if name.endswith(names.TEMPORARY) or (obsolete and not keep):
            files.remove(f"{directory}/{name}")
            present.remove(name)
            notes.append(f"Removed {directory}/{name}, a leftover")
    return Tidied(present, notes, warnings)


def finish_replacement(files: Files, directory: str, replacement: Replacement) -> None:
    """Remove the old segments, and give the new ones their names.

    May be repeated.

    All new files are `.swap` files, or have their final names. The log of a segment is renamed
    first. While its `.swap` file exists, files with the final names belong to the old segment.

    Raises:
        StorageFailed: the disk refused.
    """
    coming = {
        base
        for base in replacement.new
        if files.exists(names.log_path(directory, base) + names.SWAP)
    }
    for base in replacement.old:
        if base in coming or base not in replacement.new:
            for suffix in names.SEGMENT_SUFFIXES:
                files.remove(f"{directory}/{names.segment_file(base, suffix)}")
    for base in replacement.new:
        for suffix in names.SEGMENT_SUFFIXES:
            path = f"{directory}/{names.segment_file(base, suffix)}"
            if files.exists(path + names.SWAP):
                files.rename(path + names.SWAP, path)
    files.sync_path(directory)
    end_replacement(files, directory)


def base_offsets(present: Iterable[str], suffix: str) -> list[int]:
    """Return the base offsets in the names with this suffix, in order."""
    bases = (names.base_offset_of(name, suffix) for name in present if name.endswith(suffix))
    return sorted(base for base in bases if base is not None)


def current_names(files: Files, directory: str, present: Collection[str]) -> dict[str, str]:
    """Map the names that a start would give to a log's files to their present names.

    Old segments of a replacement count until the new ones do.

    Args:
        directory: of a partition, of which nothing is changed.
        present: the names in it, or some of them.

    Raises:
        FileMissing: the directory has changed since it was listed.
        StorageFailed: the disk refused.
    """
    settled = {name: name for name in present if not name.endswith((names.SWAP, names.CLEANED))}
    swaps = _valid_swaps(present)
    if not swaps:
        return settled
    replacement = _ours(files, directory, swaps)
    if replacement is None:
        compaction = _Compaction(files, directory, swaps, base_offsets(present, names.LOG))
        replacement = compaction.begun()
    if segment_names(files.names_in(directory)) != segment_names(present):
        raise FileMissing(f"{directory} has changed while it was read")
    if replacement is None:
        return settled
    coming = {name.removesuffix(names.SWAP): name for name in swaps}
    gone = {
        names.segment_file(base, suffix)
        for base in replacement.old
        if base not in replacement.new or names.segment_file(base, names.LOG) in coming
        for suffix in names.SEGMENT_SUFFIXES
    }
    return {name: name for name in settled if name not in gone} | coming


def stable_look(look: Callable[[], T]) -> T:
    """Read a directory, and again if it changed meanwhile.

    Raises:
        FileMissing: it changes again and again.
    """
    for _ in range(_CHANGED_AGAIN):
        with suppress(FileMissing):
            return look()
    return look()


def segments_in(files: Files, directory: str, present: Collection[str]) -> list[int]:
    """Return the base offsets of a log.

    `files` then finds its files by their final names.

    Raises:
        FileMissing: the directory has changed since it was listed; see `current_names`.
        StorageFailed: the disk refused.
    """
    current = current_names(files, directory, present)
    files.read_as(directory, {name: now for name, now in current.items() if name != now})
    return base_offsets(current, names.LOG)


def current_bases(files: Files, directory: str) -> list[int]:
    """List a directory and return the base offsets of its log (`segments_in`).

    Raises:
        FileMissing: it changes again and again.
        StorageFailed: the disk refused.
    """
    return stable_look(lambda: segments_in(files, directory, files.names_in(directory)))


def _ours(files: Files, directory: str, swaps: Collection[str]) -> Replacement | None:
    """Return the recorded replacement if it can be finished with these files; otherwise None."""
    ours = read_replacement(files, directory) if swaps else None
    if ours is None or not {_base_of(name, names.SWAP) for name in swaps} <= ours.new.keys():
        return None
    return ours if ours.fits(files, directory) else None


def _is_deleted(name: str, present: set[str]) -> bool:
    if name.endswith(names.APPENDING):
        return name.removesuffix(names.APPENDING) + names.LOG not in present
    if name.endswith(names.CUT + names.CUT_TIMES):
        return name.removesuffix(names.CUT_TIMES) not in present
    return name.endswith((names.DELETED, names.CLEANED))


def is_lone_index(name: str, present: Collection[str]) -> bool:
    """Return True if a file of a segment is present without the segment's log."""
    stem, dot, suffix = name.rpartition(".")
    if dot + suffix not in _INDEX_SUFFIXES or stem + names.LOG in present:
        return False
    return names.base_offset_of(name, dot + suffix) is not None


def _valid_swaps(present: Iterable[str]) -> list[str]:
    """Return the `.swap` files before the first `.cleaned` file, as Kafka does."""
    cleaned = [base for name in present if (base := _base_of(name, names.CLEANED)) is not None]
    first_void = min(cleaned, default=names.MAX_OFFSET + 1)
    bases = {name: _base_of(name, names.SWAP) for name in sorted(present)}
    return [name for name, base in bases.items() if base is not None and base < first_void]


class _Compaction:
    """Kafka's interrupted compaction of a directory. Nothing readable is deleted."""

    def __init__(self, files: Files, directory: str, swaps: list[str], old: Sequence[int]) -> None:
        self._files = files
        self._directory = directory
        self._swaps = swaps
        self._old = old  # base offsets of all segments that have their names
        self._new = base_offsets(swaps, names.LOG + names.SWAP)
        self._replaced: list[int] = []  # base offsets

    def refusal(self) -> str | None:
        """Return the reason why the new segments must not replace others; None if they may."""
        old, end = self._old, 0
        for base in self._new:
            path = self._swap_path(base)
            # What compaction leaves of a segment may be nothing, which takes its place alone.
            is_empty = not self._files.size(path)
            next_offset = base + 1 if is_empty else whole_end(self._files, path, base)
            if next_offset is None or base < end:
                return f"{os.path.basename(path)} is not whole, or has other offsets than its name"
            end = next_offset
        if not self._new:
            return None
        first = self._new[0]
        self._replaced = [base for base in old if first <= base < end]
        if first in old:  # so far none was deleted, and those that are there have all the records
            if not self._holds_all(self._replaced):
                return f"the segments from offset {first} on have offsets that it lacks"
        elif self._reach_beyond([base for base in old if base < first][-1:], first):
            return f"the segment before offset {first} has offsets beyond it"
        return None

    def begun(self) -> Replacement | None:
        """Return the replacement that a kill interrupted; None if it must not be finished."""
        if self._new and (self._new[0] in self._old or self.refusal() is not None):
            return None
        sizes = {base: self._files.size(self._swap_path(base)) for base in self._new}
        return Replacement(sizes, self._replaced)

    def refuse(self, why: str, now_ms: int) -> str:
        """Set the new segments aside. Returns a sentence about it."""
        kept = []
        for name in self._swaps:
            path = f"{self._directory}/{name}"
            if name.endswith(names.LOG + names.SWAP) and self._files.size(path):
                log = path.removesuffix(names.SWAP)
                kept.append(keep_file(self._files, path, log, now_ms))
            else:
                self._files.remove(path)
        return (
            f"A compaction in {self._directory} is not finished, and nothing is removed: {why}. "
            f"Set aside: {', '.join(kept) or 'nothing'}"
        )

    def finish(self, warnings: list[str], now_ms: int) -> str:
        """Give the new segments their names. Old ones with offsets that they lack are set aside."""
        files, directory = self._files, self._directory
        for base in self._replaced:
            if not self._holds_all([base]):
                kept = keep_segment(files, directory, base, now_ms)
                warnings.append(f"Set aside {kept}, which a compaction replaces")
        stems = (name.removesuffix(names.SWAP) for name in self._swaps)
        new = dict.fromkeys((int(stem.partition(".")[0]) for stem in stems), 0)
        finish_replacement(files, directory, Replacement(new, self._replaced))
        return f"Finished a compaction in {directory}: {', '.join(self._swaps)}"

    def _holds_all(self, old: Sequence[int]) -> bool:
        """Return True if the new segments have all offsets of the old ones' whole batches."""
        held = self._held()
        start = end = -1  # of the latest offsets without a gap
        try:
            for header in self._batches(old):
                while end < header.next_offset:
                    first, following = next(held, (-1, -1))
                    if following < 0:
                        return False
                    if first != end:
                        start = first
                    end = following
                if header.base_offset < start:
                    return False
        except CorruptBatch:  # too much looks like batches
            return False
        return True

    def _reach_beyond(self, old: Sequence[int], offset: int) -> bool:
        try:
            return any(header.next_offset > offset for header in self._batches(old))
        except CorruptBatch:
            return True

    def _held(self) -> Iterator[tuple[int, int]]:
        """Yield the range of offsets of each batch of the new segments, in order."""
        for base in self._new:
            for _, header in self._reader(self._swap_path(base), base).headers():
                yield header.base_offset, header.next_offset

    def _batches(self, old: Sequence[int]) -> Iterator[BatchHeader]:
        for base in old:
            path = names.log_path(self._directory, base)
            for _, header in whole_batches(self._reader(path, base)):
                yield header

    def _reader(self, path: str, base: int) -> BatchReader:
        return BatchReader(
            self._files, self._files.get(path), self._files.size(path), least_offset=base
        )

    def _swap_path(self, base: int) -> str:
        return names.log_path(self._directory, base) + names.SWAP


def _base_of(name: str, temporary: str) -> int | None:
    """Return the base offset in the name of a segment's file with a temporary suffix."""
    if not name.endswith(temporary):
        return None
    stem = name.removesuffix(temporary)
    for suffix in names.SEGMENT_SUFFIXES:
        base = names.base_offset_of(stem, suffix)
        if base is not None:
            return base
    return None
