"""Last batches of each producer, so that a retry is not written twice (KIP-98).

For every producer id its epoch and its five newest batches, the first offset of its
open transaction, and when it was last heard of. Written to Kafka's `.snapshot` file
at every roll and at a clean close; after a restart the newest usable one is read
and the batches after it are replayed.

    <offset>.snapshot: i16 version (1), u32 CRC-32C of the rest, i32 count, then for each
       i64 producer id · i16 epoch · i32 last sequence · i64 last offset · i32 offset delta
       · i64 timestamp · i32 coordinator epoch · i64 first offset of the open transaction
    <offset>.batches: ours, with what Kafka's file has no place for: i16 version (2), u32 CRC-32C
       of the rest, u32 that CRC of the snapshot, i32 count, i32 count; then the older of the five
       batches, without which a retry that spans a kill would be out of sequence
       i64 producer id · i16 epoch · i32 last sequence · i64 last offset · i32 offset delta
       · i64 timestamp
       and last markers, by which a promotion knows what is open. They count beside that very
       snapshot only: a Kafka that was here since may have cut the log and written it anew
       i64 producer id · i16 epoch · bool commit · i64 timestamp

One thread changes the state. Kafka forgets a producer by the timestamps of its
records; here it is forgotten by when its last batch was appended, so that records
with old timestamps are no less protected.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter, itemgetter
from struct import Struct
from typing import NamedTuple

import crc32c

from horolog.errors import BatchRefused, CorruptFile, ErrorCode, RequestRefused
from horolog.record.batch import BatchHeader
from horolog.record.markers import Marker, TransactionEnd, read_marker
from horolog.storage import names
from horolog.storage.files import Files
from horolog.storage.index.abort import AbortedTxn

SEQUENCES = 1 << 31  # after 2147483647 comes 0
CACHED_BATCHES = 5

MOST_ENDED = 256  # transactions that are remembered until consumers can see their ends

NEVER_GIVEN = 1 << 62  # no broker gives producer ids from here on

_FRAME = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_COMPANION = Struct(">hIIii")
_BATCH = Struct(">qhiqiq")
_END = Struct(">qh?q")
_CRC_START = 6
_VERSION = 1
_COMPANION_VERSION = 2
_MAX_BYTES = 1 << 30


class WrittenBatch(NamedTuple):
    """A recent batch of a producer, as the answer to a duplicate of it."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence of its first record."""
        return (self.last_sequence - self.offset_delta) % SEQUENCES

    @property
    def base_offset(self) -> int:
        """The offset of its first record."""
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerState:
    """State of one producer."""

    epoch: int
    batches: list[WrittenBatch] = field(default_factory=list)
    coordinator_epoch: int = -1
    last_append_ms: int = 0
    is_heard: bool = False
    """Whether it has appended in this epoch since the log was opened."""
    ended: int = 0
    """How many of its transactions have ended since the log was opened."""
    last_end: "LastEnd | None" = None
    """Its last marker, or `NO_END`; None where it is not known."""


class LastEnd(NamedTuple):
    """The last marker of a producer."""

    epoch: int
    is_commit: bool
    timestamp: int


NO_END = LastEnd(-1, False, -1)
"""No marker of the producer's epoch was before its first batch: its sequences began with 0."""


class Admission(NamedTuple):
    """A coordinator has this partition in the transaction that a batch is of.

    Made when the batch is handed to the log. If that transaction is over once it is the batch's
    turn, nothing of it is appended: no marker would come for it (Kafka's verification guard).
    In the second flow of KIP-890 epochs alone tell: a marker is of a later epoch than what it ends.
    The marker of an earlier transaction may come while the coordinator answers.
    """

    ended: int
    """How many transactions of the producer had ended by then (`Producers.admit`)."""
    is_strict: bool = False
    """The producer uses the second flow of KIP-890: unknown here, it begins at sequence 0."""


class ActiveProducer(NamedTuple):
    """A producer as DescribeProducers reports it; -1 for unknown values."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    """Largest of its last batch, in milliseconds."""
    coordinator_epoch: int
    first_open_offset: int
    """Where its open transaction began."""


class OpenNow(NamedTuple):
    """A transaction that has not ended."""

    producer_id: int
    epoch: int
    """-1 where it ended just now, and its producer is forgotten."""
    first_offset: int


class Epochs(NamedTuple):
    """Epochs of a producer and of the coordinator of its transactions."""

    producer: int
    coordinator: int


class Unended(NamedTuple):
    """A transaction that no marker will end."""

    producer_id: int
    first_offset: int
    is_committed: bool = False
    """Its commit was decided; else it counts as aborted."""


class CompletedTransaction(NamedTuple):
    """A transaction that a marker has ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool
    last_stable_offset: int
    """Up to where no transaction was open when it ended."""

    @property
    def aborted(self) -> AbortedTxn | None:
        """Entry for the index of aborted transactions; None if the transaction was committed."""
        if not self.is_aborted:
            return None
        return AbortedTxn(
            self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset
        )


_LAST_OFFSET = attrgetter("last_offset")


def first_unread(
    ended: Sequence[CompletedTransaction], high_watermark: int, first_open: int | None
) -> int | None:
    """Return the start of the first transaction that has no marker below the high watermark.

    Args:
        ended: as `Producers.ended`.
        first_open: start of the first transaction without a marker; None if there is none.
    """
    at = bisect_left(ended, high_watermark, key=_LAST_OFFSET)
    if at == len(ended):
        return first_open
    first = ended[at].first_offset
    return first if first_open is None else min(first, first_open)


class Producers:
    """State of the producers of one log. Batches are noted in offset order."""

    def __init__(self) -> None:
        self._states: dict[int, ProducerState] = {}
        self._open: OrderedDict[int, int] = OrderedDict()
        """First offsets, in order: a marker asks for the first one, however many are open."""
        self.ended: tuple[CompletedTransaction, ...] = ()
        """Transactions whose markers consumers may not see yet; replaced, never mutated.

        In the order of their ends and of their first offsets: one that began before another, and
        ended behind it, stands for both. At most `MOST_ENDED`."""
        self.keeps_ended = False
        """Whether transactions are remembered that ended at or behind the high watermark."""

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[tuple[int, ProducerState]]:
        return iter(self._states.items())

    @property
    def highest_id(self) -> int:
        """Highest producer id in the log that a broker can have assigned; -1 if there is no id.

        A client may claim any: one at the end of its type would leave none to give.
        """
        return max((id_ for id_ in self._states if id_ < NEVER_GIVEN), default=-1)

    def find_duplicate(
        self, header: BatchHeader, admission: Admission | None = None
    ) -> WrittenBatch | None:
        """Return the earlier batch with exactly these sequences; None if the batch is new.

        Args:
            admission: of a transactional batch to its transaction.

        Raises:
            BatchRefused: the epoch is over (47), batches are missing before it (45), it is not of
                a transaction that continues, or not of the one that is open (48).
        """
        state = self._states.get(header.producer_id)
        if state is not None:
            first, last = header.base_sequence, header.last_sequence
            if header.producer_epoch == state.epoch:
                for batch in state.batches:
                    if batch.last_sequence == last and batch.first_sequence == first:
                        return batch
            if header.producer_epoch < state.epoch:
                raise BatchRefused(
                    ErrorCode.invalid_producer_epoch,
                    f"Epoch of producer {header.producer_id} is {header.producer_epoch}, which is "
                    f"smaller than the last seen epoch {state.epoch}",
                )
        if header.is_transactional:
            self._check_admission(header, state, admission)
        elif self._open and header.producer_id in self._open:
            raise BatchRefused(
                ErrorCode.invalid_txn_state,
                f"Expected transactional write from producer {header.producer_id}, of which a "
                f"transaction is open since offset {self._open[header.producer_id]}",
            )
        if state is not None:
            self._check_sequence(header, state)
        return None

    def admit(self, producer_id: int, *, is_strict: bool) -> Admission:
        """Return the admission of a producer's next batch, checked at its append.

        Any thread may ask.
        """
        state = self._states.get(producer_id)
        return Admission(0 if state is None else state.ended, is_strict)

    def _check_admission(
        self, header: BatchHeader, state: ProducerState | None, admission: Admission | None
    ) -> None:
        ended = 0 if state is None else state.ended
        is_open = header.producer_id in self._open
        if admission is None or not (is_open or admission.is_strict or admission.ended == ended):
            raise BatchRefused(
                ErrorCode.invalid_txn_state,
                f"Record was not part of an ongoing transaction of producer {header.producer_id}",
            )
        if state is None and admission.is_strict and header.base_sequence != 0:
            raise BatchRefused(
                ErrorCode.out_of_order_sequence_number,
                f"Invalid sequence number for new producer ID {header.producer_id}: "
                f"{header.base_sequence}, and 0 is expected",
            )

    def _check_sequence(self, header: BatchHeader, state: ProducerState) -> None:
        first = header.base_sequence
        if header.producer_epoch > state.epoch:
            expected = 0
        else:
            newest = state.batches[-1].last_sequence if state.batches else -1
            expected = (newest + 1) % SEQUENCES
        if first != expected:
            raise BatchRefused(
                ErrorCode.out_of_order_sequence_number,
                f"Out of order sequence number for producer {header.producer_id}: {first} "
                f"(incoming seq. number), {expected} expected after {state.batches[-1:]}",
            )

    def update(
        self, header: BatchHeader, last_offset: int, timestamp: int, now_ms: int
    ) -> ProducerState:
        """Take note of a batch that was written; one of a transaction begins or continues it.

        One without sequences is a coordinator's: offsets that a group commits in a transaction.
        """
        state = self._states.get(header.producer_id)
        if state is None:
            state = self._states[header.producer_id] = ProducerState(header.producer_epoch)
            state.last_end = _end_before(header)
        elif state.epoch != header.producer_epoch:
            state.epoch = header.producer_epoch
            state.batches.clear()
            state.is_heard = False
            state.last_end = state.last_end or _end_before(header)
        delta = header.last_offset_delta
        if header.base_sequence >= 0:
            batch = WrittenBatch(header.last_sequence, last_offset, delta, timestamp)
            state.batches.append(batch)
            del state.batches[:-CACHED_BATCHES]
        if header.is_transactional and header.records_count:
            # What compaction has emptied is of a transaction that has ended.
            self._open.setdefault(header.producer_id, last_offset - delta)
        state.last_append_ms = now_ms
        return state

    def replay(
        self, header: BatchHeader, read_batch: Callable[[], bytes], now_ms: int
    ) -> CompletedTransaction | None:
        """Take note of a batch that is in the log, markers of transactions included.

        Raises:
            CorruptBatch: a marker is no marker.
        """
        if header.producer_id < 0:
            return None
        if header.is_control:
            marker = read_marker(read_batch())
            return None if marker is None else self.end(header, marker, now_ms)
        if header.base_sequence >= 0 or header.is_transactional:
            self.update(header, header.last_offset, header.max_timestamp, now_ms)
        return None

    def ended_by(self, header: BatchHeader, marker: Marker) -> CompletedTransaction | None:
        """Return the open transaction that a marker ends; it stays open."""
        first = self._open.get(header.producer_id)
        if first is None:
            return None
        others = (offset for id_, offset in self._open.items() if id_ != header.producer_id)
        stable = min(header.next_offset, next(others, header.next_offset))
        return CompletedTransaction(
            header.producer_id, first, header.last_offset, marker.is_abort, stable
        )

    def end(self, header: BatchHeader, marker: Marker, now_ms: int) -> CompletedTransaction | None:
        """Apply a marker that is in the log; return the transaction that it ended, or None."""
        completed = self.ended_by(header, marker)
        state = self._states.get(header.producer_id)
        if state is None:
            state = self._states[header.producer_id] = ProducerState(header.producer_epoch)
        if header.producer_epoch > state.epoch:
            state.epoch = header.producer_epoch
            state.batches.clear()
        if marker.coordinator_epoch is not None:
            state.coordinator_epoch = marker.coordinator_epoch
        state.last_append_ms = now_ms
        state.ended += 1
        state.last_end = LastEnd(header.producer_epoch, not marker.is_abort, header.max_timestamp)
        self._open.pop(header.producer_id, None)
        if completed is not None and self.keeps_ended:
            kept = len(self.ended)
            while kept and self.ended[kept - 1].first_offset >= completed.first_offset:
                kept -= 1
            last = completed
            if kept == MOST_ENDED:  # one stands for two: stable a little later, never too early
                kept -= 1
                last = completed._replace(first_offset=self.ended[kept].first_offset)
            self.ended = (*self.ended[:kept], last)
        return completed

    def forget_ended(self, high_watermark: int) -> None:
        """Forget the transactions that ended before the high watermark."""
        if self.ended:
            self.ended = self.ended[bisect_left(self.ended, high_watermark, key=_LAST_OFFSET) :]

    def first_open(self, unended: Collection[Unended] = ()) -> int | None:
        """Return the start of the first transaction without a marker that is not `unended`."""
        if not unended:
            return next(iter(self._open.values()), None)
        stable = {(transaction.producer_id, transaction.first_offset) for transaction in unended}
        return next((item[1] for item in self._open.items() if item not in stable), None)

    def epochs_of(self, producer_id: int) -> Epochs:
        """Return the epochs of a marker that continues the state of a known producer."""
        state = self._states[producer_id]
        return Epochs(max(0, state.epoch), max(0, state.coordinator_epoch))

    def is_open(self, producer_id: int, first_offset: int) -> bool:
        """Return True if a producer's transaction that began at an offset has not ended."""
        return self._open.get(producer_id) == first_offset

    def has_open(self, producer_id: int, epoch: int) -> bool:
        """Return True if a producer has an open transaction in this epoch. Any thread may ask."""
        state = self._states.get(producer_id)
        return state is not None and state.epoch == epoch and producer_id in self._open

    def check_end(self, ended: TransactionEnd) -> None:
        """Refuse a marker that is not of the producer's last coordinator, or epoch.

        A strict one with the epoch of the state can only be a retry, if nothing is open
        (KAFKA-19999).

        Raises:
            RequestRefused: the epoch is over (47), or the coordinator is (52), or no producer of
                transactions can have that id (49).
        """
        producer_id, producer_epoch, coordinator_epoch, _, is_strict = ended
        if producer_id < 0 or producer_epoch < 0:
            raise RequestRefused(
                ErrorCode.invalid_producer_id_mapping,
                f"Producer {producer_id} of epoch {producer_epoch} cannot have a transaction",
            )
        state = self._states.get(producer_id)
        if state is None:
            return
        is_used = is_strict and producer_epoch == state.epoch and producer_id in self._open
        if producer_epoch < state.epoch or is_used:
            raise RequestRefused(
                ErrorCode.invalid_producer_epoch,
                f"Epoch {producer_epoch} of a marker for producer {producer_id} is "
                f"{'not above' if is_used else 'below'} its epoch {state.epoch}",
            )
        if coordinator_epoch < state.coordinator_epoch:
            raise RequestRefused(
                ErrorCode.transaction_coordinator_fenced,
                f"A coordinator of epoch {coordinator_epoch} ends a transaction of producer "
                f"{producer_id}, and one of epoch {state.coordinator_epoch} has ended one before",
            )

    def active(self) -> list[ActiveProducer]:
        """List all known producers; not while a batch is noted."""
        return [
            ActiveProducer(
                producer_id,
                state.epoch,
                state.batches[-1].last_sequence if state.batches else -1,
                state.batches[-1].timestamp if state.batches else -1,
                state.coordinator_epoch,
                self._open.get(producer_id, -1),
            )
            for producer_id, state in self._states.items()
        ]

    def last_offset_of(self, producer_id: int) -> int | None:
        """Return the last offset that a producer has written; None if unknown."""
        state = self._states.get(producer_id)
        return state.batches[-1].last_offset if state is not None and state.batches else None

    def unended(self) -> tuple[tuple[int, int], ...]:
        """Producer id and first offset of each transaction that has not ended, in offset order."""
        return tuple(self._open.items())

    @property
    def open_count(self) -> int:
        """Number of open transactions."""
        return len(self._open)

    def open_now(self, most: int) -> list[OpenNow]:
        """Return the first open transactions with epochs. Any thread may ask."""
        while True:
            try:
                opened = list(islice(self._open.items(), most))
            except RuntimeError:  # one began or ended meanwhile
                continue
            states = self._states
            return [
                OpenNow(id_, -1 if (state := states.get(id_)) is None else state.epoch, first)
                for id_, first in opened
            ]

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers inactive for that long without an open transaction; how many."""
        gone = [
            producer_id
            for producer_id, state in self._states.items()
            if now_ms - state.last_append_ms >= expiration_ms and producer_id not in self._open
        ]
        for producer_id in gone:
            del self._states[producer_id]
        return len(gone)

    def clear(self) -> None:
        """Forget everything, to be read or replayed again."""
        self._states.clear()
        self._open.clear()
        self.ended = ()

    def write(self, files: Files, directory: str, offset: int) -> None:
        """Write down the state of all batches before `offset`."""
        count, opened = len(self._states), self._open
        entries = bytearray(count * _ENTRY.size)
        older = bytearray(count * (CACHED_BATCHES - 1) * _BATCH.size)
        ends = bytearray(count * _END.size)
        at = at_older = at_end = 0
        none = [WrittenBatch(-1, -1, 0, -1)]
        for producer_id, state in self._states.items():
            epoch, coordinator = state.epoch, state.coordinator_epoch
            *before, last = state.batches or none
            first = opened.get(producer_id, -1)
            _ENTRY.pack_into(entries, at, producer_id, epoch, *last, coordinator, first)
            at += _ENTRY.size
            for batch in before:
                _BATCH.pack_into(older, at_older, producer_id, epoch, *batch)
                at_older += _BATCH.size
            if state.last_end is not None:
                _END.pack_into(ends, at_end, producer_id, *state.last_end)
                at_end += _END.size
        path, companion = _paths(directory, offset)
        snapshot, crc = _summed(_VERSION, count.to_bytes(4, "big"), entries)
        if at_older or at_end:
            counts = at_older // _BATCH.size, at_end // _END.size
            head = _COMPANION.pack(0, 0, crc, *counts)[_CRC_START:]
            more = older[:at_older], ends[:at_end]
            files.replace(companion, _summed(_COMPANION_VERSION, head, *more)[0], sync=False)
        else:
            files.remove(companion)
        files.replace(path, snapshot, sync=False)

    def read(
        self, files: Files, directory: str, offset: int, now_ms: int, *, alone: bool = False
    ) -> None:
        """Replace the state by the snapshot of `offset`.

        Args:
            offset: up to which the batches count.
            now_ms: when all of them count as heard of.
            alone: leave out what was written beside the snapshot.

        Raises:
            CorruptFile: one of the files is damaged, or there is no snapshot. Nothing is replaced.
        """
        path, companion = _paths(directory, offset)
        crc, entries = _read_snapshot(files, path)
        more = _Companion() if alone else _read_companion(files, companion)
        states, opened = {}, {}
        for producer_id, epoch, *last, coordinator, first in entries:
            batch = WrittenBatch(*last)
            states[producer_id] = ProducerState(
                epoch, [batch] if batch.last_offset >= 0 else [], coordinator, now_ms
            )
            opened[producer_id] = first
        self._states = states
        begun = (item for item in opened.items() if 0 <= item[1] < offset)
        self._open = OrderedDict(sorted(begun, key=itemgetter(1)))
        # From the newest on; a Kafka that was here since has rewritten the snapshot and
        # knows nothing of the companion, so that only what leads up to the newest is true.
        for producer_id, epoch, *older in reversed(more.older):
            state, batch = states.get(producer_id), WrittenBatch(*older)
            if state is not None and state.epoch == epoch and _follows(state.batches, batch):
                state.batches.insert(0, batch)
        for producer_id, *end in more.ends if more.crc_of_snapshot == crc else ():
            if (state := states.get(producer_id)) is not None:
                state.last_end = LastEnd._make(end)


def _end_before(first: BatchHeader) -> LastEnd | None:
    """Derive the last marker before the first batch of an epoch."""
    return NO_END if first.is_transactional and first.base_sequence == 0 else None


def remove_snapshot(files: Files, directory: str, offset: int) -> None:
    """Remove the snapshot of an offset and its companion, if they exist.

    The snapshot last: as long as it is there, whoever removes it comes again after a kill.
    """
    for path in reversed(_paths(directory, offset)):
        files.remove(path)


def check_beside_snapshot(files: Files, directory: str, offset: int) -> None:
    """Check that the companion of a snapshot can be read, if it exists.

    Raises:
        CorruptFile: it is damaged.
    """
    _read_companion(files, _paths(directory, offset)[1])


def _follows(batches: list[WrittenBatch], older: WrittenBatch) -> bool:
    """Return True if the oldest of these batches follows another without a gap."""
    if not batches or len(batches) == CACHED_BATCHES:
        return False
    is_next = (older.last_sequence + 1) % SEQUENCES == batches[0].first_sequence
    return is_next and older.last_offset < batches[0].base_offset


def _paths(directory: str, offset: int) -> tuple[str, str]:
    stem = f"{directory}/{offset:020d}"
    return stem + names.SNAPSHOT, stem + names.BATCHES


class _Companion(NamedTuple):
    """State that Kafka's snapshot has no place for."""

    crc_of_snapshot: int = -1
    older: Sequence[tuple[int, ...]] = ()
    ends: Sequence[tuple[int, ...]] = ()


def _summed(version: int, *parts: bytes | bytearray) -> tuple[bytes, int]:
    """Join the parts of a file, and compute its checksum."""
    body = b"".join(parts)
    crc = crc32c.crc32c(body)
    return version.to_bytes(2, "big") + crc.to_bytes(4, "big") + body, crc


def _read_summed(files: Files, path: str, head: Struct, version: int) -> bytes:
    if files.exists(path) and files.size(path) > _MAX_BYTES:
        raise CorruptFile(f"{path} is longer than {_MAX_BYTES} bytes")
    data = files.read_whole(path, _MAX_BYTES)
    if data is None or len(data) < head.size:
        raise CorruptFile(f"{path} is missing or cut off")
    found = int.from_bytes(data[:2], "big")
    crc = int.from_bytes(data[2:_CRC_START], "big")
    if found != version or crc != crc32c.crc32c(memoryview(data)[_CRC_START:]):
        raise CorruptFile(f"{path} is of version {found} or damaged")
    return data


def _read_snapshot(files: Files, path: str) -> tuple[int, list[tuple[int, ...]]]:
    """Return checksum and entries of a snapshot, which Kafka may have written."""
    data = _read_summed(files, path, _FRAME, _VERSION)
    _, crc, count = _FRAME.unpack_from(data)
    end = _FRAME.size + count * _ENTRY.size
    if count < 0 or end > len(data):
        raise CorruptFile(f"{path} ends before its {count} entries")
    return crc, list(_ENTRY.iter_unpack(data[_FRAME.size : end]))


def _read_companion(files: Files, path: str) -> _Companion:
    """Read the companion of a snapshot; empty if the file does not exist."""
    if not files.exists(path):
        return _Companion()
    data = _read_summed(files, path, _COMPANION, _COMPANION_VERSION)
    *_, crc, older, ends = _COMPANION.unpack_from(data)
    middle = _COMPANION.size + older * _BATCH.size
    if min(older, ends) < 0 or middle + ends * _END.size != len(data):
        raise CorruptFile(f"{path} has not the size of its {older} and {ends} entries")
    batches = list(_BATCH.iter_unpack(data[_COMPANION.size : middle]))
    return _Companion(crc, batches, list(_END.iter_unpack(data[middle:])))
