"""Reads the batches of a segment as the cleaner does: small batches several at a time."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from horolog.errors import CorruptBatch
from horolog.record.batch import MAGIC
from horolog.storage.batches.reader import EVERYTHING, BatchReader
from horolog.storage.cleaning import parts
from horolog.storage.cleaning.parts import Part, SmallParts
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files

__all__ = ["Part", "SmallParts", "follow", "parts_in"]

_SECRET: Final = np.zeros(2, np.uint64)  # no keys are compared here


def parts_in(files: Files, path: str) -> Iterator[Part | SmallParts]:
    """Yield the batches of a file, which have format v2; nothing without a file.

    Each is valid until the next is asked for; checksums are right.

    Raises:
        CorruptBatch: what follows is not whole, not in order, or of another format.
        StorageFailed: the disk refused.
    """
    try:
        file = files.get(path)
    except FileMissing:
        return
    log = BatchReader(files, file, files.length(file), EVERYTHING)
    for part in parts.parts_in(log, _SECRET):
        if isinstance(part, Part) and part.header.magic != MAGIC:
            raise CorruptBatch("a batch of an old format", path=path)
        yield part


def follow(small: SmallParts, next_offset: int | None) -> bool:
    """Return True if small batches begin at an offset and no offset is missing."""
    if next_offset is None:
        return False
    ends = np.diff(small.small.next_offsets, prepend=next_offset)
    return bool(np.array_equal(ends, np.diff(small.small.firsts)))
