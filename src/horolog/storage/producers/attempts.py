"""What exactly-once sinks wrote to a log, so that a repeated attempt appends nothing twice.

For every task of the last batch of every query: the sequences, the digest and the offset of each
of its batches in this log. Unlike producers (KIP-98) they do not expire, and not only the last five
are kept: a retry begins at the first row, whenever it comes (docs/exactly-once.md).

Written down with each snapshot of producers; what was appended after it is replayed from the log.

    <offset>.attempts: ours, framed as `<offset>.snapshot`, one entry for each batch:
       i64 producer id · i16 epoch · i32 last sequence · i32 records - 1 · u64 digest
       · i64 base offset · i64 timestamp
"""

import threading
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from horolog.errors import BatchRefused, CorruptFile, ErrorCode
from horolog.record.attempts import FIRST_PRODUCER_ID, MOST_ROWS, AttemptId, rows_digest
from horolog.record.attempts import records_of as _records_of
from horolog.record.batch import BatchHeader

ENTRY: Final = Struct(">qhiiQqq")

MOST_REMEMBERED: Final = 4 << 20
"""Batches that one broker remembers, of all its logs; each takes 28 bytes."""
_OF_A_TASK: Final = 16  # what the state of a task takes, in batches

_ANY_SIZE: Final = (1 << 63) - 1  # what is in a log was accepted, and takes no memory here


class Fence(NamedTuple):
    """The batch that a query may write."""

    query: str
    batch: int
    tasks: int | None
    """How many tasks it has, None if that is not known before it is committed."""
    started_ms: int
    """When it was first begun. The timestamps of all its attempts are checked against this."""
    is_committed: bool
    """Complete: attempts may only repeat what is there."""
    is_open: bool = True
    """Not so while a new run has to repeat what earlier ones have written."""


class Fences:
    """Which batch each query may write, and how much is remembered; for all logs of a broker.

    The registry of queries changes `of_slot` on its thread; logs read it while they append.
    """

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self.of_slot: dict[int, Fence] = {}
        self.most = most
        self._remembered = 0
        self._lock = threading.Lock()

    @property
    def remembered(self) -> int:
        """How much all logs remember."""
        return self._remembered

    def note(self, change: int) -> None:
        """Take note that a log remembers more or less."""
        with self._lock:
            self._remembered += change

    @property
    def is_full(self) -> bool:
        """Whether nothing more is remembered."""
        return self._remembered >= self.most

    def now_ms(self, header: BatchHeader, now_ms: int) -> int:
        """The time against which the timestamps of an attempt's records are checked."""
        fence = self.of_slot.get(AttemptId.of(header.producer_id, header.producer_epoch).slot)
        return now_ms if fence is None else fence.started_ms


class RunsDiffer(BatchRefused):
    """Nothing is appended before a run has repeated all that earlier ones have written (51)."""

    def __init__(self, slot: int, message: str) -> None:
        super().__init__(ErrorCode.concurrent_transactions, message)
        self.slot = slot


class Repeat(NamedTuple):
    """The batch of an earlier attempt that a batch repeats."""

    base_offset: int
    last_offset: int
    timestamp: int


class _Rows:
    """What one task has written here: parallel arrays, an item for each batch."""

    __slots__ = ("base_offsets", "digests", "last_sequences", "repeated", "timestamps")

    def __init__(self) -> None:
        self.repeated = 0  # up to which sequence the present run has repeated them
        self.last_sequences = array("i")
        self.digests = array("Q")
        self.base_offsets = array("q")
        self.timestamps = array("q")

    def __len__(self) -> int:
        return len(self.last_sequences)

    @property
    def next_sequence(self) -> int:
        return self.last_sequences[-1] + 1 if self.last_sequences else 0

    def append(self, last_sequence: int, digest: int, base_offset: int, timestamp: int) -> None:
        self.last_sequences.append(last_sequence)
        self.digests.append(digest)
        self.base_offsets.append(base_offset)
        self.timestamps.append(timestamp)


class _Batch:
    """The tasks of the last batch of one query."""

    __slots__ = ("batch", "tasks")

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.tasks: dict[int, _Rows] = {}

    @property
    def remembered(self) -> int:
        return sum(map(len, self.tasks.values())) + _OF_A_TASK * len(self.tasks)


class Attempts:
    """The attempts of one log. One thread changes the state; see `Producers`."""

    def __init__(self) -> None:
        self.fences: Fences | None = None
        """Of the broker; None in tools that only read."""
        self.was_written = False
        """Whether there is a file, which the next one has to replace even if it is empty."""
        self._slots: dict[int, _Batch] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def adopt(self, fences: Fences) -> None:
        """Count what is remembered here among what the broker remembers."""
        self.fences = fences
        self._note(sum(batch.remembered for batch in self._slots.values()))

    def release(self) -> None:
        """The log is no longer served: its part of what the broker remembers is free."""
        self._note(-sum(batch.remembered for batch in self._slots.values()))
        self.fences = None

    def last_batch(self, slot: int) -> int | None:
        """The last batch that a query wrote here; any thread may ask."""
        batch = self._slots.get(slot)
        return None if batch is None else batch.batch

    # Appending.

    def find_repeat(self, header: BatchHeader, digest: int) -> Repeat | None:
        """The batch of an earlier attempt with these rows; None if they are to be appended.

        Raises:
            BatchRefused: the query may not write this batch (47, 49), rows are missing before it
                (45), an earlier attempt wrote other rows (87), or too much is remembered (89).
            RunsDiffer: rows of earlier runs have to be repeated first (51).
        """
        attempt = AttemptId.of(header.producer_id, header.producer_epoch)
        fence = self._fence(header, attempt)
        first, last = header.base_sequence, header.base_sequence + header.last_offset_delta
        what = f"task {attempt.task} of batch {attempt.batch} of query {fence.query}"
        if last >= MOST_ROWS:
            raise _refusal(f"{what} has more than {MOST_ROWS} rows for one partition")
        batch = self._slots.get(attempt.slot)
        rows = None
        if batch is not None and batch.batch == attempt.batch:
            rows = batch.tasks.get(attempt.task)
        following = 0 if rows is None else rows.next_sequence
        if first > following:
            raise BatchRefused(
                ErrorCode.out_of_order_sequence_number,
                f"Out of order: {what} sends rows from {first}, and {following} is expected",
            )
        if first == following:
            self._check_may_append(attempt, fence, what, following)
            return None
        assert rows is not None
        index = bisect_left(rows.last_sequences, first)
        begins = rows.last_sequences[index - 1] + 1 if index else 0
        if begins != first or rows.last_sequences[index] != last or rows.digests[index] != digest:
            raise _refusal(
                f"{what} sends other rows {first} to {last} than an earlier attempt wrote at "
                f"offset {rows.base_offsets[index]}: nothing of this attempt is appended from here "
                "on. An attempt has to repeat its rows in their order; see docs/exactly-once.md"
            )
        if first <= rows.repeated:
            rows.repeated = max(rows.repeated, last + 1)
        base_offset = rows.base_offsets[index]
        return Repeat(base_offset, base_offset + last - first, rows.timestamps[index])

    def _fence(self, header: BatchHeader, attempt: AttemptId) -> Fence:
        fence = None if self.fences is None else self.fences.of_slot.get(attempt.slot)
        if fence is None:
            raise BatchRefused(
                ErrorCode.invalid_producer_id_mapping,
                f"Producer id {header.producer_id} is of an exactly-once sink, and no query with "
                "it is registered: begin the batch before its rows are sent",
            )
        if header.producer_epoch < 0 or attempt.batch != fence.batch:
            raise BatchRefused(
                ErrorCode.invalid_producer_epoch,
                f"Query {fence.query} writes batch {fence.batch}: nothing of batch "
                f"{attempt.batch} is appended any more",
            )
        if fence.tasks is not None and attempt.task >= fence.tasks:
            raise _refusal(
                f"Batch {fence.batch} of query {fence.query} was begun with {fence.tasks} tasks, "
                f"and has no task {attempt.task}"
            )
        return fence

    def _check_may_append(
        self, attempt: AttemptId, fence: Fence, what: str, following: int
    ) -> None:
        if fence.is_committed:
            raise _refusal(
                f"{what} sends more than the {following} rows that are in this partition since the "
                "batch was committed"
            )
        if not fence.is_open:
            raise RunsDiffer(
                attempt.slot,
                f"Batch {attempt.batch} of query {fence.query} has rows of an earlier run, which "
                "this run has to repeat before it appends any: not all of its tasks have done that "
                "yet. If they cannot, there are fewer tasks than before, or fewer can run at a "
                "time; see docs/exactly-once.md",
            )
        if self.fences is not None and self.fences.is_full:
            raise BatchRefused(
                ErrorCode.throttling_quota_exceeded,
                "This broker remembers as many batches of exactly-once sinks as it can: forget "
                "queries that have ended (`horolog queries forget`)",
            )

    def update(self, header: BatchHeader, digest: int, last_offset: int, timestamp: int) -> None:
        """Take note of a batch that was appended, or is in the log."""
        attempt = AttemptId.of(header.producer_id, header.producer_epoch)
        batch = self._slots.get(attempt.slot)
        before = 0 if batch is None else batch.remembered if batch.batch != attempt.batch else -1
        if before >= 0:
            batch = self._slots[attempt.slot] = _Batch(attempt.batch)
            self._note(-before)
        assert batch is not None
        rows = batch.tasks.get(attempt.task)
        if rows is None:
            rows = batch.tasks[attempt.task] = _Rows()
            self._note(_OF_A_TASK)
        base_offset = last_offset - header.last_offset_delta
        last_sequence = header.base_sequence + header.last_offset_delta
        rows.append(last_sequence, digest, base_offset, timestamp)
        self._note(1)

    def replay(self, header: BatchHeader, read_batch: Callable[[], bytes]) -> None:
        """Take note of a batch that is in the log.

        Raises:
            CorruptBatch: it does not decompress.
        """
        attempt = AttemptId.of(header.producer_id, header.producer_epoch)
        batch = self._slots.get(attempt.slot)
        following = 0
        if batch is not None and batch.batch == attempt.batch and attempt.task in batch.tasks:
            following = batch.tasks[attempt.task].next_sequence
        last = header.base_sequence + header.last_offset_delta
        if header.base_sequence != following or last >= MOST_ROWS or header.last_offset_delta < 0:
            return  # no log of ours: a broker appends them in order
        records = _records_of(read_batch())
        digest = rows_digest(header, records, max_bytes=_ANY_SIZE)
        self.update(header, digest, header.last_offset, header.max_timestamp)

    # Asking and forgetting.

    def rows_of(self, slot: int, batch: int) -> dict[int, int]:
        """How many rows each task of a batch has in this log."""
        found = self._slots.get(slot)
        if found is None or found.batch != batch:
            return {}
        return {task: rows.next_sequence for task, rows in found.tasks.items()}

    def begin_run(self, slot: int, batch: int) -> None:
        """A new run of a batch has repeated nothing yet of what is here."""
        found = self._slots.get(slot)
        if found is not None and found.batch == batch:
            for rows in found.tasks.values():
                rows.repeated = 0

    def unrepeated(self, slot: int, batch: int) -> set[int]:
        """The tasks of a batch whose rows the present run has not repeated completely."""
        found = self._slots.get(slot)
        if found is None or found.batch != batch:
            return set()
        return {task for task, rows in found.tasks.items() if rows.repeated < rows.next_sequence}

    def forget(self, slots: Iterable[int]) -> int:
        """Forget queries; how many were known here."""
        gone = [self._slots.pop(slot) for slot in list(slots) if slot in self._slots]
        self._note(-sum(batch.remembered for batch in gone))
        return len(gone)

    def forget_superseded(self) -> int:
        """Forget batches of queries that have gone on since; how many."""
        fences = {} if self.fences is None else self.fences.of_slot
        return self.forget(
            [
                slot
                for slot, batch in self._slots.items()
                if (fence := fences.get(slot)) is not None and fence.batch > batch.batch
            ]
        )

    def clear(self) -> None:
        """Forget everything, to be read or replayed again."""
        self.forget(list(self._slots))

    def _note(self, change: int) -> None:
        if self.fences is not None:
            self.fences.note(change)

    # The file.

    def entries(self) -> Iterator[bytes]:
        """What is written down."""
        for slot, batch in self._slots.items():
            for task, rows in batch.tasks.items():
                producer = AttemptId(slot, batch.batch, task).producer
                begins = 0
                for last, digest, base_offset, timestamp in zip(
                    rows.last_sequences,
                    rows.digests,
                    rows.base_offsets,
                    rows.timestamps,
                    strict=True,
                ):
                    yield ENTRY.pack(*producer, last, last - begins, digest, base_offset, timestamp)
                    begins = last + 1

    def read(self, entries: Iterable[tuple[int, ...]], offset: int, path: str) -> None:
        """Replace everything by what was written down at an offset.

        Raises:
            CorruptFile: the entries contradict each other.
        """
        self.clear()
        self.was_written = True
        for producer_id, epoch, last, delta, digest, base_offset, timestamp in entries:
            attempt = AttemptId.of(producer_id, epoch)
            batch = self._slots.setdefault(attempt.slot, _Batch(attempt.batch))
            rows = batch.tasks.setdefault(attempt.task, _Rows())
            is_sound = (
                producer_id >= FIRST_PRODUCER_ID
                and attempt.producer == (producer_id, epoch)
                and batch.batch == attempt.batch
                and delta >= 0
                and last - delta == rows.next_sequence
                and 0 <= base_offset <= offset - delta - 1
            )
            if not is_sound:
                self._slots.clear()
                raise CorruptFile(f"{path} contradicts itself at producer {producer_id}")
            rows.append(last, digest, base_offset, timestamp)
        self._note(sum(batch.remembered for batch in self._slots.values()))


def _refusal(message: str) -> BatchRefused:
    return BatchRefused(ErrorCode.invalid_record, message)
