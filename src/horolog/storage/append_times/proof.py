"""How much of a file of append times is true of its log.

Apache Kafka may have appended or truncated since the file was written, at the same offsets. So by
the rule of all such files (batches/proof.py):

- A finished file covers the log as far as it says, if the last covered batch is there.
- A file that was appended to, with a valid marker, covers all of the log
  (index/marker.py).
- Else each entry counts whose batch is in the log, and that batch alone after the last of them.

Invariant: no entry counts before which one does not.
"""

from typing import NamedTuple, Protocol

from horolog.errors import CorruptBatch, CorruptIndex
from horolog.record.batch import UNKNOWN_COUNT, BatchHeader
from horolog.storage import names
from horolog.storage.append_times.format import is_intact, is_of_batch
from horolog.storage.batches.log_file import LogFile
from horolog.storage.batches.proof import IDENTITY_SIZE, identity_of, identity_of_header, proved
from horolog.storage.files import Files
from horolog.storage.index.companion import Covered
from horolog.storage.index.entries import Entries
from horolog.storage.index.indexes import SegmentEnd


class ProvingSegment(Protocol):
    """The segment whose batches prove what is said of it."""

    @property
    def base_offset(self) -> int:
        """As its files are named."""

    @property
    def log(self) -> LogFile:
        """Its `.log` file."""

    @property
    def end(self) -> SegmentEnd:
        """How far it goes."""

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The batch that holds `offset`, or else the next; its position first; None at the end."""


class Proof(NamedTuple):
    """How much of a file is true of its log."""

    entries: int
    """How many, from the first on."""
    end: int
    """Offset before which append times are known, as far as entries do not say otherwise."""


NOTHING = Proof(0, 0)


class StoredBatch(NamedTuple):
    """A batch where it is in the log."""

    position: int
    header: BatchHeader
    identity: int


def prove(
    files: Files,
    segment: ProvingSegment,
    entries: Entries,
    covered: Covered | None,
    *,
    is_marked: bool,
) -> Proof:
    """Compare entries with the batches that they name; see the module.

    Args:
        files: the way to the disk.
        segment: whose batches prove the entries.
        entries: of the file.
        covered: what the header says, None if it is damaged.
        is_marked: whether the file has a valid marker.

    Raises:
        StorageFailed: the disk refused.
    """
    base_offset = segment.base_offset
    count = len(entries)
    if is_marked:
        counted = _count_true(files, segment, entries, 0, count)
        # A kill leaves one entry without its batch at most; a damaged one may be of any.
        is_left = counted < count and not (counted == count - 1 and is_intact(entries[counted]))
        if not is_left and (counted or not segment.end.size):
            return Proof(counted, names.MAX_OFFSET)
    sure, end = 0, base_offset
    if covered is not None and covered.entries <= count and is_there(files, segment, covered):
        sure, end = covered.entries, covered.end
    counted = _count_true(files, segment, entries, sure, count)
    if counted > sure:
        found = batch_at(files, segment, base_offset + (entries[counted - 1][1] >> 1))
        end = end if found is None else found.header.next_offset
    return Proof(counted, end)


def batch_at(files: Files, segment: ProvingSegment, offset: int) -> StoredBatch | None:
    """The batch that holds an offset, or the next; None if there is none that can be read.

    Raises:
        StorageFailed: the disk refused.
    """
    try:
        found = segment.locate(offset) if segment.end.size else None
        if found is None:
            return None
        position, header = found
        identity = identity_of_header(header)
        if identity is None:
            batch = files.read_at(segment.log.open(), IDENTITY_SIZE, position)
            identity = identity_of(batch)
    except (CorruptBatch, CorruptIndex):
        return None
    return StoredBatch(position, header, identity)


def is_there(files: Files, segment: ProvingSegment, covered: Covered) -> bool:
    """Whether the last covered batch is in the log, where it was."""
    if covered.end <= segment.base_offset:
        return False
    found = batch_at(files, segment, covered.end - 1)
    if found is None:
        return False
    position, batch, identity = found
    return (batch.next_offset, position + batch.size, identity) == covered[1:]


def _count_true(
    files: Files, segment: ProvingSegment, entries: Entries, first: int, count: int
) -> int:
    """How many entries are of batches in the log, when those before `first` are."""

    def is_true(number: int) -> bool:
        return _is_true(files, segment, entries[number])

    found = proved(first, count, is_true)
    # Twelve bits are few: two entries have to be right.
    return found if found < first + 2 or is_true(found - 2) else first


def _is_true(files: Files, segment: ProvingSegment, entry: tuple[int, ...]) -> bool:
    offset = segment.base_offset + (entry[1] >> 1)
    found = batch_at(files, segment, offset)
    return (
        found is not None
        and _begins_at(found.header, offset)
        and is_of_batch(entry, found.identity)
        and is_intact(entry)
    )


def _begins_at(batch: BatchHeader, offset: int) -> bool:
    """Whether a batch begins there; of a compressed message of v0 or v1, as far as is known."""
    if batch.records_count == UNKNOWN_COUNT:
        return batch.base_offset <= offset <= batch.last_offset
    return batch.base_offset == offset
