"""Compaction of batches: the keys of their records, and batches of the records that stay.

A key is identified by a hash of 128 bits under a secret (SipHash-2-4). Two keys with the same hash
would delete each other's records, and without the secret nobody can make such keys. The latest
offset of each key is in a map of fixed size, 24 bytes for each key.

A batch that loses records keeps its offsets, its producer, its epochs and its codec (KIP-98). It
also keeps the base timestamp from which deltas count, so that a batch stamped with an append time
still contains the create times of its records. Apache Kafka overwrites these with the append time.

Records are read and written in pieces, through their decompression. Neither all records of a batch
nor a record of a gigabyte are ever in memory. Records of more than one piece are decompressed once
for their keys, and once more to be written.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, ErrorCode, RequestRefused
from horolog.record.batch import (
    CODEC_BITS,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    with_records,
)
from horolog.record.compression import Codec, compress, compress_chunks
from horolog.record.conversion import open_batch
from horolog.record.kernels.cleaning_kernels import (
    JUDGE_END,
    JUDGE_KEPT,
    JUDGE_KEYLESS,
    JUDGE_STATE_SIZE,
    JUDGE_TOMBSTONES,
    KEYS_BASE_OFFSET,
    KEYS_LAST_DELTA,
    KEYS_POSITION,
    KEYS_RECORDS,
    KEYS_REST,
    KEYS_ROWS,
    KEYS_STATE_SIZE,
    NOT_PLAIN,
    NOTE_FROM,
    NOTE_ROOM,
    NOTE_STATE_SIZE,
    RETAIN_BASE,
    RETAIN_FILLED,
    RETAIN_MAX,
    RETAIN_OFFSET_SHIFT,
    RETAIN_POSITION,
    RETAIN_REST,
    RETAIN_ROWS,
    RETAIN_STATE_SIZE,
    RETAIN_TIME_SHIFT,
    RETAIN_TIMED,
    SLOT_SIZE,
    SMALL_ATTRIBUTES,
    SMALL_BASE_TIME,
    SMALL_FIRST,
    SMALL_KIND,
    SMALL_NEXT,
    SMALL_OTHERS,
    SMALL_POSITION,
    SMALL_PRODUCER,
    SMALL_RECORDS,
    SMALL_ROW,
    SMALL_START,
    SMALL_STATE_SIZE,
    WRITE_FILLED,
    WRITTEN_BASE,
    WRITTEN_MAX_TIME,
    WRITTEN_NEXT,
    WRITTEN_ROW,
    WRITTEN_START,
)
from horolog.record.kernels.layout import DONE
from horolog.record.kernels.loading import CLEANING_KERNELS
from horolog.record.kernels.machine import int64
from horolog.record.old_format.sent import MAX_UNCOMPRESSED_BYTES
from horolog.record.old_format.writing import MAX_SET_BYTES, write_messages
from horolog.record.timestamps import LOG_APPEND_TIME, NO_TIMESTAMP

__all__ = [
    "CleaningVerdict",
    "Keys",
    "OpenedRecords",
    "SmallBatches",
    "SmallWritten",
    "StayingRecords",
    "all_stay",
    "emptied",
    "join_keys",
    "judge",
    "load_kernels",
    "meet_all",
    "new_table",
    "note_offsets",
    "open_records",
    "read_keys",
    "read_small_batches",
    "retained",
    "write_small_batches",
]

SLOT_BYTES: Final = 8 * SLOT_SIZE
"""Bytes of a key in a map of keys."""

_MOST_SMALL_BATCHES: Final = 4096
_MOST_SMALL_RECORDS: Final = 16384
_SMALLEST_RECORD: Final = 6
"""Bytes, its length included; the number of its headers is not read here, and may be missing."""
_LONGEST_GROWTH = 15  # bytes by which a record's length and deltas can become longer
_MUCH: Final = 1 << 20  # bytes of a batch
_FAR_OFFSET: Final = (1 << 63) - 1

UInt64Array = npt.NDArray[np.uint64]
Int64Array = npt.NDArray[np.int64]
Mask = npt.NDArray[np.uint8]
BoolArray = npt.NDArray[np.bool_]


def load_kernels() -> None:
    """Load the kernels; return when they are ready."""
    CLEANING_KERNELS.load()


class Keys(NamedTuple):
    """Keys of successive records, as columns."""

    offsets: Int64Array
    hashes: UInt64Array
    """Two numbers for each record, one after the other; zeros for a record without a key."""
    flags: Mask
    """Bits of `kernels.layout`: HAS_KEY, IS_TOMBSTONE (a record without a value) and IS_BARE."""


_NO_KEYS: Final = Keys(np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.uint8))


class OpenedRecords:
    """Records of a batch, decompressed in pieces as often as needed; pieces are cut anywhere."""

    def __init__(
        self, header: BatchHeader, pieces: Iterable[Buffer], again: Callable[[], Iterable[Buffer]]
    ) -> None:
        """Keep the piece, if there is only one.

        Args:
            header: as format v2 has it, whatever the batch is.
            pieces: the records. To be gone through once.
            again: the same pieces once more.
        """
        self.header = header
        rest = iter(pieces)
        first = list(islice(rest, 2))
        self._only = first if len(first) < 2 else None
        self._unread: Iterator[Buffer] | None = chain(first, rest)
        self._again = again

    @classmethod
    def of(cls, header: BatchHeader, records: Buffer) -> "OpenedRecords":
        """Wrap records that are in memory already."""
        return cls(header, (records,), tuple)

    def pieces(self) -> Iterable[Buffer]:
        """Return the records in pieces.

        Raises:
            CorruptBatch: they break the format; also from the pieces.
            RequestRefused: they decompress to too much; also from the pieces.
        """
        if self._only is not None:
            return self._only
        unread, self._unread = self._unread, None
        return self._again() if unread is None else unread


class CleaningVerdict(NamedTuple):
    """Decision which of some records stay."""

    keep: Mask
    """1 for each record that stays."""
    kept: int
    tombstones: int
    """Tombstones among the records that stay."""
    keyless: int
    """Records without a key, whether they stay or not."""


def open_records(
    batch: Buffer, header: BatchHeader, *, max_bytes: int = MAX_UNCOMPRESSED_BYTES
) -> OpenedRecords:
    """Open the records of a whole batch of any format, without a look at its checksum.

    Raises:
        CorruptBatch: it breaks the format.
        RequestRefused: it decompresses to more than `max_bytes`.
    """
    opened = open_batch(batch, header, max_bytes=max_bytes)
    return OpenedRecords(*opened, lambda: open_batch(batch, header, max_bytes=max_bytes).pieces)


def read_keys(opened: OpenedRecords, secret: UInt64Array) -> Iterator[Keys]:
    """Yield the keys of a batch's records, some at a time; `secret` is two numbers.

    Raises:
        CorruptBatch: the records break the format, are not as many as declared, or their offsets
            do not grow within the batch. Some keys may have come before.
        RequestRefused: they decompress to too much.
    """
    header = opened.header
    state = array("q", bytes(8 * KEYS_STATE_SIZE))
    state[KEYS_RECORDS] = header.records_count
    state[KEYS_BASE_OFFSET] = header.base_offset
    state[KEYS_LAST_DELTA] = header.last_offset_delta
    carry = b""
    for piece in opened.pieces():
        data = carry + bytes(piece) if carry else piece
        rows = min(state[KEYS_RECORDS], len(data) // _SMALLEST_RECORD + 1)
        offsets, hashes = np.empty(rows, np.int64), np.empty(2 * rows, np.uint64)
        flags = np.empty(rows, np.uint8)
        columns = offsets, hashes, flags
        status = CLEANING_KERNELS.run.read_keys(data, state, secret, *columns)
        carry = bytes(memoryview(data)[state[KEYS_POSITION] :])
        if status != DONE or (carry and not state[KEYS_RECORDS]):
            raise _malformed(header)
        rows_noted = state[KEYS_ROWS]
        if rows_noted:
            yield Keys(offsets[:rows_noted], hashes[: 2 * rows_noted], flags[:rows_noted])
    if carry or state[KEYS_RECORDS] or state[KEYS_REST]:
        raise _malformed(header)


def join_keys(some: Iterable[Keys]) -> Keys:
    """Concatenate keys that came some at a time."""
    parts = list(some)
    if len(parts) == 1:
        return parts[0]
    columns = zip(*parts, strict=True)
    return Keys(*map(np.concatenate, columns)) if parts else _NO_KEYS


def all_stay(keys: Keys) -> CleaningVerdict:
    """Return the verdict that all of some records stay."""
    count = len(keys.offsets)
    return CleaningVerdict(np.ones(count, np.uint8), count, 0, 0)


class StayingRecords:
    """The records of a batch that stay, as a bit for each record."""

    def __init__(self) -> None:
        self.count = 0
        """Number of records that were judged."""
        self.kept = 0
        """Number of records that stay."""
        self.tombstones = 0
        """Number of tombstones that stay."""
        self.first_offset = -1
        """Offset of the first record that stays."""
        self._bytes: list[Mask] = []
        self._rest = np.empty(0, np.uint8)

    def add(self, keys: Keys, verdict: CleaningVerdict) -> None:
        """Add the verdict on the next records."""
        if verdict.kept and not self.kept:
            self.first_offset = int(keys.offsets[int(np.argmax(verdict.keep))])
        self.count += len(verdict.keep)
        self.kept += verdict.kept
        self.tombstones += verdict.tombstones
        masks = np.concatenate([self._rest, verdict.keep]) if len(self._rest) else verdict.keep
        whole = len(masks) & ~7
        self._bytes.append(np.packbits(masks[:whole]))
        self._rest = masks[whole:]

    def masks(self) -> "_Masks":
        """Return masks of the records that stay, in their order."""
        return _Masks(np.concatenate([*self._bytes, np.packbits(self._rest)]), self.count)


class _Masks:
    def __init__(self, bits: Mask, count: int) -> None:
        self._bits = bits
        self._count = count

    def between(self, first: int, end: int) -> Mask:
        """Return 1 for each record that stays, from number `first` to before `end`."""
        end = min(end, self._count)
        some = np.unpackbits(self._bits[first >> 3 : (end + 7) >> 3])
        return some[first & 7 : (first & 7) + end - first]


class SmallBatches(NamedTuple):
    """Successive batches of v2, none compressed, with the keys of all their records."""

    starts: Int64Array
    """Position of each batch, and the end of the last."""
    firsts: Int64Array
    """Number of the first record of each batch, and the number of all records."""
    next_offsets: Int64Array
    """Offset that follows each batch."""
    keys: Keys
    attributes: Int64Array
    base_timestamps: Int64Array
    producer_ids: Int64Array
    kinds: Int64Array
    """The role of each batch in the transactions of its producer, as `layout` lists them."""

    def counts_of(self, mask: npt.NDArray[Any]) -> Int64Array:
        """Count the records of each batch for which a mask of all records is set."""
        before = np.zeros(len(mask) + 1, np.int64)
        np.cumsum(mask, out=before[1:])
        return np.diff(before[self.firsts])

    def of_records(self, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Repeat a column of batches for each of their records."""
        return np.repeat(column, np.diff(self.firsts))


def read_small_batches(
    data: Buffer, position: int, secret: UInt64Array, *, all_kinds: bool = False
) -> SmallBatches | None:
    """Read the keys of small batches from a position on; a call for each would take far longer.

    The batches are whole, undamaged and not compressed. Without `all_kinds` they are also outside
    transactions, not empty, no markers, and without a delete horizon. None if the next batch is of
    another kind and must be read alone.
    """
    state = np.zeros(SMALL_STATE_SIZE, np.int64)
    state[SMALL_POSITION] = position
    state[SMALL_OTHERS] = CODEC_BITS if all_kinds else NOT_PLAIN
    rows = np.empty(SMALL_ROW * _MOST_SMALL_BATCHES, np.int64)
    records = _MOST_SMALL_RECORDS
    keys = Keys(
        np.empty(records, np.int64), np.empty(2 * records, np.uint64), np.empty(records, np.uint8)
    )
    count_of_batches = CLEANING_KERNELS.run.read_small(data, state, secret, rows, *keys)
    if not count_of_batches:
        return None
    count = int(state[SMALL_RECORDS])
    columns = rows[: SMALL_ROW * count_of_batches].reshape(count_of_batches, SMALL_ROW)
    return SmallBatches(
        np.append(columns[:, SMALL_START], state[SMALL_POSITION]),
        np.append(columns[:, SMALL_FIRST], count),
        columns[:, SMALL_NEXT],
        Keys(keys.offsets[:count], keys.hashes[: 2 * count], keys.flags[:count]),
        columns[:, SMALL_ATTRIBUTES],
        columns[:, SMALL_BASE_TIME],
        columns[:, SMALL_PRODUCER],
        columns[:, SMALL_KIND],
    )


class SmallWritten(NamedTuple):
    """Small batches with the records that stay, one behind the other."""

    data: memoryview
    starts: Int64Array
    """Position of each batch."""
    base_offsets: Int64Array
    next_offsets: Int64Array
    """The offset behind each."""
    max_timestamps: Int64Array

    def between(self, first: int, end: int) -> "SmallWritten":
        """Return the batches from number `first` to before `end`."""
        ends = [*self.starts[first : end + 1].tolist(), len(self.data)]
        start = ends[0]
        columns = [column[first:end] for column in self[1:]]
        return SmallWritten(self.data[start : ends[end - first]], columns[0] - start, *columns[1:])


def write_small_batches(
    data: Buffer,
    small: SmallBatches,
    keep: Mask,
    may_go: Mask,
    first: int,
    end: int,
    horizon_ms: int,
) -> SmallWritten:
    """Write small batches with the records that stay; batches that lose all records are left out.

    Args:
        data: the buffer from which the batches were read.
        keep: 1 for each record of all batches that stays.
        may_go: 1 for each batch that is a marker whose transaction is gone.
        first: number of the first batch to write.
        horizon_ms: delete horizon of batches with tombstones or such markers that have none yet.
    """
    starts, firsts = small.starts[[first, end]].tolist(), small.firsts[[first, end]].tolist()
    room = starts[1] - starts[0] + _LONGEST_GROWTH * (firsts[1] - firsts[0])
    out = np.empty(room, np.uint8)
    rows = np.empty(WRITTEN_ROW * (end - first), np.int64)
    state = np.array((first, end, horizon_ms, 0), np.int64)
    columns = small.starts, small.firsts, small.keys.flags, keep, may_go
    count = CLEANING_KERNELS.run.write_small(data, state, *columns, out, rows)
    if count < 0:
        raise CorruptBatch("a batch has changed since it was read", starts[0])
    written = rows.reshape(-1, WRITTEN_ROW)[:count]
    return SmallWritten(
        out.data[: int(state[WRITE_FILLED])],
        written[:, WRITTEN_START],
        written[:, WRITTEN_BASE],
        written[:, WRITTEN_NEXT],
        written[:, WRITTEN_MAX_TIME],
    )


def meet_all(
    known: Int64Array, places: Int64Array, kinds: Int64Array, numbers: Int64Array
) -> Int64Array:
    """Decide which batches of transactions may go, by `cleaning_kernels.step` for each.

    Args:
        known: states of producers before the first batch; becomes the states after the last.
        places: place of each batch's producer in `known`.
        kinds: kind of each batch, as `cleaning_kernels` lists them.
        numbers: numbers of the aborted transactions that begin.
    """
    fates = np.empty(len(kinds), np.int64)
    CLEANING_KERNELS.run.meet(known, places, kinds, numbers, fates)
    return fates


# The map of keys.


def new_table(slots: int) -> UInt64Array:
    """Return a map with room for a number of keys; its memory is allocated as it fills."""
    return np.zeros(SLOT_SIZE * slots, np.uint64)


def note_offsets(table: UInt64Array, keys: Keys, from_offset: int, room: int) -> tuple[int, int]:
    """Keep the latest offset of each key in the map.

    Args:
        keys: keys in the order of their offsets.
        from_offset: records before this offset are passed.
        room: number of keys that the map may still take.

    Returns:
        Number of records that were noted or passed before room ran out, and the room that is left.
    """
    state = array("q", bytes(8 * NOTE_STATE_SIZE))
    state[NOTE_FROM], state[NOTE_ROOM] = from_offset, room
    noted = int(CLEANING_KERNELS.run.note(table, state, *keys))
    return noted, state[NOTE_ROOM]


def judge(
    table: UInt64Array,
    keys: Keys,
    end_offset: int,
    *,
    keeps_tombstones: bool,
    keeps_keyless: bool = False,
) -> CleaningVerdict:
    """Decide which records stay.

    Args:
        end_offset: records from there on are not in the map, and stay.
        keeps_tombstones: whether a tombstone stays that is the latest record of its key.
        keeps_keyless: whether records without a key stay.
    """
    state = array("q", bytes(8 * JUDGE_STATE_SIZE))
    state[JUDGE_END] = min(end_offset, _FAR_OFFSET)
    state[JUDGE_TOMBSTONES], state[JUDGE_KEYLESS] = keeps_tombstones, keeps_keyless
    keep = np.empty(len(keys.offsets), np.uint8)
    CLEANING_KERNELS.run.judge(table, state, *keys, keep)
    return CleaningVerdict(
        keep,
        state[JUDGE_KEPT],
        state[JUDGE_TOMBSTONES],
        state[JUDGE_KEYLESS],
    )


# The batches that stay.


def retained(
    opened: OpenedRecords,
    header: BatchHeader,
    staying: StayingRecords,
    *,
    horizon_ms: int | None = None,
) -> bytes:
    """Return a batch with some of its records, at least one, as Apache Kafka's cleaner writes it.

    The largest timestamp is that of the records that stay, below zero too (KIP-228), or their
    common append time. A compressed message of v0 or v1 has the offset of its last message that
    stays (KIP-31), and in v1 the largest timestamp or the append time (KIP-32).

    Args:
        header: header of the original batch.
        staying: the records that stay.
        horizon_ms: delete horizon of the tombstones (KIP-534), for v2 only; None keeps the
            batch's own.

    Raises:
        CorruptBatch: the records break the format.
        RequestRefused: the batch becomes larger than a batch can be (10).
    """
    shift = 0
    if header.magic != MAGIC:  # its offsets count from the first record that stays
        shift = staying.first_offset - opened.header.base_offset
    fresh = array("q", bytes(8 * RETAIN_STATE_SIZE))
    fresh[RETAIN_BASE] = opened.header.base_timestamp
    fresh[RETAIN_OFFSET_SHIFT] = shift
    if horizon_ms is not None:
        fresh[RETAIN_TIME_SHIFT] = int64(opened.header.base_timestamp - horizon_ms)
    state = fresh[:]
    records = _retained_pieces(opened, staying, state)
    stamped = header.timestamp_type is LOG_APPEND_TIME
    if header.magic != MAGIC:
        first = opened.header.base_offset + shift
        inner = opened.header._replace(base_offset=first, records_count=staying.kept)
        return write_messages(header.magic, inner, records, codec=header.codec).messages
    payload = _packed(header.codec, records, max(_MUCH, 2 * header.size))
    if payload is None:  # whoever packed it has found repetitions that are far apart
        state = fresh[:]
        records = _retained_pieces(opened, staying, state)
        payload = compress_chunks(header.codec, records, max_bytes=MAX_SET_BYTES, is_far=True)
    if payload is None or len(payload) > MAX_SET_BYTES:
        raise RequestRefused(
            ErrorCode.message_too_large,
            f"The batch at offset {header.base_offset} is too large without some of its records",
        )
    attributes = header.attributes
    base_timestamp = header.base_timestamp
    if horizon_ms is not None:
        attributes, base_timestamp = attributes | DELETE_HORIZON_BIT, horizon_ms
    largest = state[RETAIN_MAX] if state[RETAIN_TIMED] else NO_TIMESTAMP
    changed = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=header.max_timestamp if stamped else largest,
        records_count=staying.kept,
    )
    return with_records(changed, payload)


def _packed(codec: Codec, records: Iterator[Buffer], most_bytes: int) -> Buffer | None:
    """Return compressed records; None if several pieces become larger than `most_bytes`."""
    first = next(records, b"")
    second = next(records, None)
    if second is None:
        return first if codec is Codec.NONE else compress(codec, first)
    return compress_chunks(codec, chain((first, second), records), max_bytes=most_bytes)


def emptied(header: BatchHeader) -> bytes:
    """Return a batch without its records, which keeps its offsets and its producer's sequence.

    The batch has no time, because indexes and lookups take the largest time of a batch from its
    header. (Kafka keeps the time in the header, and leaves it out of its indexes.) A message of v0
    or v1 cannot be empty: it becomes a batch of v2 that covers its offset.
    """
    kept_bits = TRANSACTIONAL_BIT | CONTROL_BIT
    changed = header._replace(
        attributes=header.attributes & kept_bits,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        records_count=0,
    )
    if header.magic != MAGIC:
        changed = changed._replace(base_offset=header.last_offset, last_offset_delta=0)
    return with_records(changed, b"")


def _retained_pieces(
    opened: OpenedRecords, staying: StayingRecords, state: "array[int]"
) -> Iterator[memoryview]:
    """Yield the records that stay, in pieces; the state has their largest timestamp in the end."""
    masks, number, carry = staying.masks(), 0, b""
    growth = _LONGEST_GROWTH if state[RETAIN_TIME_SHIFT] else 0
    for piece in opened.pieces():
        data = carry + bytes(piece) if carry else piece
        keep = masks.between(number, number + len(data) // _SMALLEST_RECORD + 1)
        out = np.empty(max(len(data) + growth * len(keep), 1), np.uint8)
        status = CLEANING_KERNELS.run.retain(data, state, keep, out)
        carry = bytes(memoryview(data)[state[RETAIN_POSITION] :])
        number += state[RETAIN_ROWS]
        if status != DONE or (carry and number == staying.count):
            raise _malformed(opened.header)
        if state[RETAIN_FILLED]:
            yield out.data[: state[RETAIN_FILLED]]
    if carry or number < staying.count or state[RETAIN_REST]:
        raise _malformed(opened.header)


def _malformed(header: BatchHeader) -> CorruptBatch:
    return CorruptBatch(
        f"The {header.records_count} records of the batch at offset {header.base_offset} are "
        "malformed, or their offsets do not grow within it"
    )
