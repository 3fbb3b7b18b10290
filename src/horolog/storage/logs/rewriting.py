"""Writes what a cleaning pass leaves of a group of segments into a work directory.

What is there then is finished and synced, and may take the group's place (`replacing`): the cleaner
of a live log and `horolog log compact` both do it this way.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from horolog.config import TopicConfig
from horolog.storage import names
from horolog.storage.files import Files
from horolog.storage.index.abort import AbortedTxn
from horolog.storage.logs.replacing import make_alike
from horolog.storage.logs.writer import LogWriter, new_segment
from horolog.storage.removal.leftovers import base_offsets
from horolog.storage.segments.segment import Segment

if TYPE_CHECKING:
    from horolog.storage.cleaning.passes import Cleaned, CleaningPass, Group


def write_cleaned(
    files: Files, work: str, cleaning: "CleaningPass", group: "Group", config: TopicConfig
) -> "Iterator[Cleaned]":
    """Write what becomes of a group, and have the disk keep it; yields each piece once written.

    Args:
        files: the way to the disk.
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
        writer.extend_runs(piece.batches, config)
        yield piece
    writer.finish()
    _write_aborted(files, work, cleaning.take_aborted(), config)
    make_alike(files, work, group.segments[-1])


def size_of_logs(files: Files, work: str) -> int:
    """The bytes of the logs in a work directory."""
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
        entries = [each for each in aborted if base <= each.last_offset < end]
        if entries:
            Segment(files, work, base, config, size=0).write_aborted(entries)
