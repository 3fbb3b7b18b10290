"""The index of aborted transactions (KIP-98). It exists only where there are some.

    0  i16  version (0)         10  i64  first offset      26  i64  last stable offset
    2  i64  producer id         18  i64  last offset

34 bytes an entry, in the order in which the transactions ended.
"""

from bisect import bisect_left
from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from horolog.errors import CorruptIndex
from horolog.storage.files import Files, OpenFile

ENTRY: Final = Struct(">hqqqq")
_VERSION = 0
_MAX_BYTES = (1 << 31) - 1


class AbortedTxn(NamedTuple):
    """An entry of `.txnindex`: Kafka's AbortedTxn. `last_offset` is the abort marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def read_aborted(
    files: Files, path: str, size: int | None = None, *, from_offset: int = 0
) -> list[AbortedTxn] | None:
    """Read the aborted transactions that ended in a segment; None if the file is missing.

    Args:
        size: bytes of the entries that are published; None if all of the file is.
        from_offset: only transactions that ended there or later.

    Raises:
        CorruptIndex: the file is not what its format says.
    """
    data = files.read_whole(path, _MAX_BYTES)
    if data is None:
        return None
    data = data[:size]
    if len(data) % ENTRY.size:
        raise CorruptIndex(f"{path}: {len(data)} bytes are no whole number of entries")
    found, start = [], 0
    if from_offset:  # markers are in offset order
        count = len(data) // ENTRY.size
        start = ENTRY.size * bisect_left(
            range(count), from_offset, key=lambda at: ENTRY.unpack_from(data, at * ENTRY.size)[3]
        )
    for version, *fields in ENTRY.iter_unpack(memoryview(data)[start:]):
        entry = AbortedTxn(*fields)
        if not can_be(version, entry.first_offset, entry.last_offset):
            raise CorruptIndex(f"{path}: version {version} of {entry} cannot be")
        found.append(entry)
    return found


def can_be(version: int, first_offset: int, last_offset: int) -> bool:
    """Return True if an entry may have these columns."""
    return version == _VERSION and 0 <= first_offset <= last_offset


def write_aborted(files: Files, path: str, entries: Iterable[AbortedTxn]) -> None:
    """Replace the file of a segment, or remove it if there are no entries."""
    content = _packed(entries)
    if content:
        files.replace(path, content, sync=False)
    else:
        files.remove(path)


def append_aborted(files: Files, file: OpenFile, entries: Iterable[AbortedTxn], size: int) -> int:
    """Write entries behind the first `size` bytes of a file; its new size.

    Raises:
        StorageFailed: the disk refused; a part of them may follow.
    """
    content = _packed(entries)
    files.write_at(file, [content], size)
    return size + len(content)


def _packed(entries: Iterable[AbortedTxn]) -> bytes:
    return b"".join(ENTRY.pack(_VERSION, *entry) for entry in entries)
