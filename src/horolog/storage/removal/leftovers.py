"""Files that a start finds in a partition's directory and that do not belong there any more.

    *.tmp                 a small file whose replacement was interrupted: removed
    *.deleted             of segments that were deleted: removed
    *.cleaned             a compaction that had not ended: removed
    *.swap                one that had ended: its segments take the place of those they replace,
                          unless they are damaged or empty: then they are set aside
    indexes without log   removed
    *.cut.times           of a file that was set aside and is gone: removed
    converting/           of a conversion that had not ended: removed

`<base>.appending.deleted` next to its log stays: it is no leftover (append_times/marker.py). In an
adopted directory `.deleted` and `.cleaned` files and lone indexes stay: they do no harm, and a
backup must stay as it is.
"""

import os
from collections.abc import Iterable
from typing import NamedTuple

from horolog.storage import names
from horolog.storage.batches.reader import BatchReader
from horolog.storage.batches.whole import is_whole
from horolog.storage.directory.contents import files_of
from horolog.storage.files import Files
from horolog.storage.removal.set_aside import keep_file

_INDEX_SUFFIXES = frozenset(names.SEGMENT_SUFFIXES) - {names.LOG}


class Tidied(NamedTuple):
    """What is in a directory now, and sentences on what was done."""

    present: set[str]
    notes: list[str]
    warnings: list[str]


def tidy(files: Files, directory: str, *, keep: bool, now_ms: int) -> Tidied:
    """Bring a directory into order.

    Args:
        files: the way to the disk.
        directory: of one partition.
        keep: leave what does no harm.
        now_ms: the clock, in milliseconds.

    Raises:
        StorageFailed: the disk refused, or a name belongs to something that is no regular file;
            then nothing has been done.
    """
    present = files_of(directory)
    notes: list[str] = []
    warnings: list[str] = []
    if any(name.endswith(names.SWAP) for name in present):
        swaps = _valid_swaps(files, directory, sorted(present))
        damaged = [name for name in swaps if _is_damaged(files, directory, name)]
        if damaged:
            warnings.append(_refuse_compaction(files, directory, swaps, damaged, now_ms))
        elif swaps:
            notes.append(_finish_compaction(files, directory, swaps))
        present = files_of(directory)
    if not keep and files.exists(f"{directory}/{names.CONVERTING}"):
        files.remove_tree(f"{directory}/{names.CONVERTING}")
        notes.append(f"Removed {directory}/{names.CONVERTING}, a leftover")
    for name in sorted(present):
        obsolete = _is_deleted(name, present) or _is_lone_index(name, present)
        if name.endswith(names.TEMPORARY) or (obsolete and not keep):
            files.remove(f"{directory}/{name}")
            present.remove(name)
            notes.append(f"Removed {directory}/{name}, a leftover")
    return Tidied(present, notes, warnings)


def base_offsets(present: Iterable[str], suffix: str) -> list[int]:
    """The base offsets of the files of one kind among these names, in order."""
    found = (names.base_offset_of(name, suffix) for name in present if name.endswith(suffix))
    return sorted(base for base in found if base is not None)


def _is_deleted(name: str, present: set[str]) -> bool:
    if name.endswith(names.APPENDING):
        return name.removesuffix(names.APPENDING) + names.LOG not in present
    if name.endswith(names.CUT + names.CUT_TIMES):
        return name.removesuffix(names.CUT_TIMES) not in present
    return name.endswith((names.DELETED, names.CLEANED))


def _is_lone_index(name: str, present: set[str]) -> bool:
    stem, dot, suffix = name.rpartition(".")
    if dot + suffix not in _INDEX_SUFFIXES or stem + names.LOG in present:
        return False
    return names.base_offset_of(name, dot + suffix) is not None


def _valid_swaps(files: Files, directory: str, entries: list[str]) -> list[str]:
    """Kafka's order: what was being cleaned is void, and with it any swap at or after it."""
    cleaned = [base for name in entries if (base := _base_of(name, names.CLEANED)) is not None]
    swaps = [name for name in entries if name.endswith(names.SWAP)]
    if cleaned:
        for name in swaps:
            base = _base_of(name, names.SWAP)
            if base is not None and base >= min(cleaned):
                files.remove(f"{directory}/{name}")
                swaps = [kept for kept in swaps if kept != name]
    return swaps


def _is_damaged(files: Files, directory: str, name: str) -> bool:
    base = names.base_offset_of(name, names.LOG + names.SWAP)
    return base is not None and not is_whole(files, f"{directory}/{name}")


def _refuse_compaction(
    files: Files, directory: str, swaps: list[str], damaged: list[str], now_ms: int
) -> str:
    """Keep the segments that damaged or empty ones would replace; they have all the records."""
    kept = []
    for name in swaps:
        path = f"{directory}/{name}"
        if name.endswith(names.LOG + names.SWAP) and files.size(path):
            kept.append(keep_file(files, path, path.removesuffix(names.SWAP), now_ms))
        else:
            files.remove(path)
    return (
        f"A compaction in {directory} is not finished, and nothing is removed: {damaged[0]} is not "
        f"whole. Set aside: {', '.join(kept) or 'nothing'}"
    )


def _finish_compaction(files: Files, directory: str, swaps: list[str]) -> str:
    _remove_replaced(files, directory, swaps)
    for name in swaps:
        path = f"{directory}/{name}"
        files.rename(path, path.removesuffix(names.SWAP))
    return f"Finished a compaction in {directory}: {', '.join(swaps)}"


def _remove_replaced(files: Files, directory: str, swaps: list[str]) -> None:
    ends = []
    for name in swaps:
        base = names.base_offset_of(name, names.LOG + names.SWAP)
        if base is not None:
            ends.append((base, _next_offset(files, f"{directory}/{name}", base)))
    if not ends:
        return
    first, last = min(base for base, _ in ends), max(end for _, end in ends)
    for base in base_offsets(os.listdir(directory), names.LOG):
        if first <= base < last:
            for suffix in names.SEGMENT_SUFFIXES:
                files.remove(f"{directory}/{names.segment_file(base, suffix)}")


def _next_offset(files: Files, path: str, base_offset: int) -> int:
    next_offset = base_offset
    for _, header, listed in BatchReader.of_file(files, path).stretches():
        next_offset = header.next_offset if listed is None else listed.next_offset
    return next_offset


def _base_of(name: str, temporary: str) -> int | None:
    """The base offset in the name of any of a segment's files with a suffix of a compaction."""
    if not name.endswith(temporary):
        return None
    stem = name.removesuffix(temporary)
    for suffix in names.SEGMENT_SUFFIXES:
        base = names.base_offset_of(stem, suffix)
        if base is not None:
            return base
    return None
