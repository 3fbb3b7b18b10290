"""Puts new segments in the place of old ones; whatever a kill interrupts, one or the others count.

A `LogWriter` has written the new segments in a work directory and finished them. Then their files

    <work>/<base>.log     owner, rights and modification time of the old ones; synced
    <base>.log.cleaned    next to the old ones; void, as long as any has this suffix
    <base>.log.swap       they count: the next start goes on from here, Kafka's as well
    <base>.log            they have their names, and the old segments are gone

with their companion files alike. A compaction of Kafka's uses the same names, and the same code
ends what was interrupted (removal/leftovers.py). While the old segments are all there, and have
offsets that the new ones lack, a start of horolog keeps the old ones.
"""

import os
import stat
from contextlib import suppress

from horolog.storage import names
from horolog.storage.files import Files
from horolog.storage.removal.leftovers import tidy
from horolog.storage.segments.reader import SegmentReader


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


def replace_segments(files: Files, directory: str, work: str, now_ms: int) -> list[str]:
    """Let new segments take the place of those that begin at an offset which they reach over.

    Args:
        files: the way to the disk.
        directory: of the partition, which nobody else changes meanwhile.
        work: a directory of the same file system that holds finished, synced segments alone; they
            have all records of what they replace that are to stay.
        now_ms: the clock.

    Returns:
        Sentences on what could not be done.

    Raises:
        StorageFailed: the disk refused; the next start, or the next call, ends what was begun.
    """
    moved = sorted(files.names_in(work), reverse=True)
    for name in moved:
        files.rename(f"{work}/{name}", f"{directory}/{name}{names.CLEANED}")
    files.sync_path(directory)
    # The smallest base offset last: as long as one file is `.cleaned`, all are void.
    for name in moved:
        stem = f"{directory}/{name}"
        files.rename(f"{stem}{names.CLEANED}", f"{stem}{names.SWAP}")
    files.sync_path(directory)
    tidied = tidy(files, directory, keep=True, now_ms=now_ms, is_compared=True)
    files.sync_path(directory)
    return tidied.warnings
