"""The batches of a segment as the cleaner reads them: small ones some at a time, by its kernel."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from horolog.errors import CorruptBatch
from horolog.record.batch import MAGIC
from horolog.storage import names
from horolog.storage.batches.reader import EVERYTHING, BatchReader
from horolog.storage.cleaning.parts import Part, SmallParts, parts_of
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files

__all__ = ["Part", "SmallParts", "follow", "parts_in"]

_SECRET: Final = np.zeros(2, np.uint64)  # no keys are compared here


def parts_in(files: Files, path: str) -> Iterator[Part | SmallParts]:
    """The batches of a file, of format v2; none without a file.

    Each is valid until the next is asked for; checksums are right.

    Raises:
        CorruptBatch: what follows is not whole, not in order, or of another format.
        StorageFailed: the disk refused.
    """
    try:
        file = files.get(path)
    except FileMissing:
        return
    size, read, least = files.length(file), 0, 0
    log = BatchReader(files, file, size, EVERYTHING)
    for buffer in log.selected(0, names.MAX_OFFSET, None):
        for part in parts_of(buffer, least, _SECRET):
            if isinstance(part, Part):
                is_ordered = part.header.base_offset >= least and part.header.magic == MAGIC
            else:
                ends = np.diff(part.small.next_offsets, prepend=least)
                is_ordered = bool((ends >= np.diff(part.small.firsts)).all())
            if not is_ordered or part.next_offset <= least:
                raise CorruptBatch("offsets do not follow, or an old format", read, path=path)
            least = part.next_offset
            yield part
        read += len(buffer)
    if read < size:
        raise CorruptBatch("no whole batch", read, path=path)


def follow(parts: SmallParts, next_offset: int | None) -> bool:
    """Whether small batches begin at an offset, and every offset has its record."""
    if next_offset is None:
        return False
    ends = np.diff(parts.small.next_offsets, prepend=next_offset)
    return bool(np.array_equal(ends, np.diff(parts.small.firsts)))
