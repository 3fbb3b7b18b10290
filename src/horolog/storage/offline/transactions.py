"""Aborted transactions and last stable offset of a log on disk (KIP-98).

Only control batches are read, because a copy may lack Kafka's index of aborted transactions. So all
headers of the log are walked, at 61 bytes a batch, if committed records are asked for.

A header has no checksum of its own. Batches as small as a marker are checked, so that no flipped
bit hides a marker. The first batch of the transaction that ends committed reads is checked as well.
Damage may hide how open transactions ended. Then their earlier records count as aborted, and
nothing there is certain (`FileTransactions.known_to`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from horolog.errors import CorruptBatch, CorruptFile
from horolog.record.batch import MAGIC, BatchHeader
from horolog.record.markers import read_marker
from horolog.record.transactions import AbortedTransaction
from horolog.storage.batches.reader import BatchReader, TornTail
from horolog.storage.batches.whole import whole_batches
from horolog.storage.files import Files
from horolog.storage.producers.states import Producers

_NO_LIMIT: Final = (1 << 63) - 1
_LARGEST_MARKER: Final = 128  # bytes: a marker of today has 78


class Decided(NamedTuple):
    """Decisions of coordinators on transactions that are open in a partition, by producer id."""

    may_end: frozenset[int]
    """Producers whose transactions one of our coordinators may still end."""
    committed: frozenset[int]
    """Producers whose transactions a Kafka had decided to commit when it stopped."""


class FileTransactions(NamedTuple):
    """Facts that a reader of committed records needs."""

    aborted: Collection[AbortedTransaction]
    last_stable_offset: int
    """The offset before which every transaction has ended; the log end if all have."""
    damage: str | None = None
    """Damage that hides how transactions ended; None without any."""
    known_to: int = _NO_LIMIT
    """The other fields are certain for records before this offset."""


class OpenLogPart(NamedTuple):
    """Range of offsets of a partition's log, in one file."""

    batches: BatchReader
    start: int
    end: int
    must_reach_end: bool
    """True if a batch must end at `end`, unless the log is compacted."""


class _Open(NamedTuple):
    """Transaction that has not ended."""

    first_offset: int
    first_batch: tuple[BatchReader, int, BatchHeader] | None
    """First batch and its position; None if the transaction began before the first part."""


def open_before(files: Files, directory: str, offset: int) -> Mapping[int, int]:
    """Return the first offset of each transaction that is open at an offset, by producer id.

    Reads the snapshot of producers at that offset; empty if it is missing or damaged.

    Raises:
        StorageFailed: the disk refused.
    """
    producers = Producers()
    with suppress(CorruptFile):
        producers.read(files, directory, offset, 0, alone=True)
    return dict(producers.unended())


def find_transactions(
    parts: Iterable[OpenLogPart],
    begun: Mapping[int, int],
    log_dirs: Collection[tuple[Files, str]],
    bounds: tuple[int, int],
    decided: Callable[[Files, str], Decided | None],
    is_compacted: Callable[[], bool],
) -> FileTransactions:
    """Find the transactions of a partition, by a walk over all its batches.

    A transaction that is open at the end counts as committed if that was decided. It counts as
    aborted if no coordinator is left to end it (`LogView.aborted_transactions`). Behind damage
    the walk continues with the next whole batch.

    Args:
        parts: of the log, with those before its start that are still in files.
        log_dirs: that hold replicas of it.
        bounds: the log start and end offsets.
        decided: what is decided of those that are open there; None of a directory in which any may
            be ended.
        is_compacted: whether compaction has left offsets out.

    Raises:
        StorageFailed: the disk refused.
    """
    start, end = bounds
    walk = _Walk(begun, start, is_compacted)
    for part in parts:
        walk.take(part)
    left = walk.open
    held: set[int] = set()
    committed: set[int] = set()
    for files, log_dir in log_dirs if left else ():
        its = decided(files, log_dir)
        if its is None:
            held = left.keys() - walk.uncertain
            break
        held |= its.may_end & left.keys()
        committed |= its.committed
    for producer_id in walk.uncertain - held:
        if producer_id in left:
            first_offset = left[producer_id].first_offset
            walk.hide("a marker may be among offsets that are missing", first_offset)
    stable = end
    for producer_id in sorted(held, key=lambda id_: left[id_].first_offset):
        if stable < end or walk.has_begun(left[producer_id]):
            stable = min(stable, left.pop(producer_id).first_offset)
    walk.abort([id_ for id_ in left if id_ not in committed], end)
    return FileTransactions(walk.aborted, max(stable, start), walk.damage, walk.known_to)


class _Walk:
    """Walk over a log that tracks open and aborted transactions."""

    def __init__(
        self, begun: Mapping[int, int], log_start_offset: int, is_compacted: Callable[[], bool]
    ) -> None:
        """Start with the transactions that are open before the first batch."""
        self.aborted: list[AbortedTransaction] = []
        self.open = {producer_id: _Open(first, None) for producer_id, first in begun.items()}
        """The open transactions, by producer id."""
        self.uncertain: set[int] = set()
        """Producers whose markers may be among missing offsets."""
        self.damage: str | None = None
        self.known_to = _NO_LIMIT
        self._log_start_offset = log_start_offset
        self._is_compacted = is_compacted
        self._next = _NO_LIMIT
        self._has_v2 = False

    def hide(self, damage: str, offset: int) -> None:
        """Note damage: from this offset on it is unknown which records are committed."""
        self.damage = self.damage or damage
        self.known_to = min(self.known_to, offset)

    def has_begun(self, transaction: _Open) -> bool:
        """Return True if the first batch of an open transaction is undamaged.

        A flipped bit makes any batch look like a first one. Such a transaction is hidden.
        """
        if transaction.first_batch is not None:
            log, position, header = transaction.first_batch
            try:
                log.check(position, header)
            except CorruptBatch as error:
                self.hide(str(error), transaction.first_offset)
                return False
        return True

    def abort(self, producer_ids: Iterable[int], last_offset: int) -> None:
        """Count open transactions as aborted, up to an offset."""
        for producer_id in producer_ids:
            first_offset = self.open.pop(producer_id).first_offset
            self.aborted.append(AbortedTransaction(producer_id, first_offset, last_offset))

    def take(self, part: OpenLogPart) -> None:
        """Walk over the batches of the next part of the log.

        Raises:
            StorageFailed: the disk refused.
        """
        if self._next < part.start:
            self._note_gap(part.start, is_lost=False)
        log, at = part.batches, 0
        damage: CorruptBatch | None = None
        self._next = part.start
        try:
            for position, header in log.headers(0, before=part.end):
                at = position
                self._add(part, position, header)
                at += header.size
        except TornTail as error:
            if part.must_reach_end:  # otherwise a batch is being written
                damage = error
        except CorruptBatch as error:
            damage = error
        if damage is not None and self._next >= part.end:
            with suppress(CorruptBatch):  # what is behind the last batch is none
                self._next = min(self._next, log.header(at).base_offset)
        if self._next >= part.end:
            return
        if damage is None:
            self._note_gap(part.end, is_lost=part.must_reach_end and not self._is_compacted())
            return
        self._walk_whole_batches(part, at, str(damage))

    def _walk_whole_batches(self, part: OpenLogPart, at: int, damage: str) -> None:
        """Walk over the whole batches of a damaged part, from a position on."""
        is_damaged = True
        with suppress(CorruptBatch):  # too much looks like batches
            for position, header in whole_batches(part.batches, at):
                if part.start < header.next_offset <= part.end:
                    if is_damaged or position > at or header.base_offset < self._next:
                        self._note_damage(header.base_offset, damage)
                    self._add(part, position, header)
                    is_damaged, at = False, position + header.size
        if self._next < part.end:
            self._note_damage(part.end, damage)
        self._next = part.end

    def _add(self, part: OpenLogPart, position: int, header: BatchHeader) -> None:
        is_v2, log = header.magic == MAGIC, part.batches
        is_suspect = self._has_v2 if not is_v2 else header.is_control or _may_be_marker(header)
        if is_suspect:
            log.check(position, header)
        if header.next_offset > part.start:
            self._has_v2 = self._has_v2 or is_v2
            if header.is_transactional:
                self._track(log, position, header)
            self._next = header.next_offset

    def _track(self, log: BatchReader, position: int, header: BatchHeader) -> None:
        producer_id = header.producer_id
        self.uncertain.discard(producer_id)
        if not header.is_control:
            if producer_id not in self.open and header.records_count:
                self.open[producer_id] = _Open(header.base_offset, (log, position, header))
            return
        if producer_id not in self.open:
            return
        marker = read_marker(log.batch(position, header))
        if marker is not None and marker.is_abort:
            self.abort([producer_id], header.last_offset)
        else:
            del self.open[producer_id]

    def _note_gap(self, end: int, *, is_lost: bool) -> None:
        """Note that no batch contains the offsets up to `end`."""
        if is_lost:
            self._note_damage(end, f"offsets {self._next} to {end - 1} are in none of the files")
        elif end <= self._log_start_offset:
            self.open.clear()
        else:
            self.uncertain |= self.open.keys()

    def _note_damage(self, end: int, damage: str) -> None:
        """Note that the batches with the offsets up to `end` cannot be read.

        An `end` before the next offset is the base offset of a batch that contradicts earlier ones.
        """
        if max(self._next, end) <= self._log_start_offset:
            self.open.clear()
            return
        first_offsets = (transaction.first_offset for transaction in self.open.values())
        self.hide(damage, min([self._next, end, *first_offsets]))
        self.abort(list(self.open), end - 1)


def _may_be_marker(header: BatchHeader) -> bool:
    return header.size <= _LARGEST_MARKER and header.producer_id >= 0
