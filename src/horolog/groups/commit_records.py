"""The records of a commit in the form in which nearly all come, built from columns of its offsets.

What comes out is, byte for byte, what `records_of` and `stamped_records` make of the same offsets.
Commits of the same partitions differ in a few numbers, which `CommitRecords` copies.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, groupby, repeat
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class with a lower-case name
from typing import Any, Final, NamedTuple
from uuid import UUID

from horolog.groups.rows import GroupChange, OffsetRow
from horolog.record.stamped import varint
from horolog.schemas.offsets import NEWEST, OffsetKey, key_bytes, value_tail

_FIELDS: Final = Struct(">iBhqiBq")
"""The partition, which ends the key; the value's length, and its fields up to the commit time."""
_OF_KEY: Final = 4
_TIME: Final = Struct(">q")
_TO_OFFSET: Final = 7  # in the fields
_TO_TIME: Final = 13  # from the offset on
_NO_METADATA: Final = 1  # the length of a compact string that is empty
OVERHEAD: Final = 32
"""Bytes of a record beside key and value, at most."""
_LONGEST_GROUP: Final = 255  # whose records' form is remembered
_MOST_ROWS: Final = 1000  # that become a batch at once; their numbers take at most two bytes
_FEW: Final = 8  # rows of a topic that are built sooner one by one
_SHORT: Final = 64  # numbers before this one take a byte
_NUMBERS: Final = tuple(map(varint, range(_MOST_ROWS)))


class _Form(NamedTuple):
    """What all records of a group's offsets of one topic have in common."""

    short: bytes
    """Up to the record's number in its batch, where that takes one byte."""
    long: bytes
    """The same, where it takes two."""
    key: bytes
    """The key with its length, up to the partition."""
    size: int
    """The length of the value as a varint, which takes one byte."""
    tail: bytes
    """From the end of the commit time on."""


class _Run(NamedTuple):
    """Offsets at even distances in the records, and in the request."""

    to: int
    """The first one in the records."""
    step: int
    place: int
    """The first one in the request."""
    stride: int
    offsets: int
    """How many there are."""


def commit_records(change: GroupChange, most_bytes: int) -> bytes | None:
    """The records of offsets that a group commits; None of another change, or one that is refused.

    Args:
        change: anything but offsets without metadata or expiry time is another.
        most_bytes: that a change may have.
    """
    rows = change.offsets
    if not 0 < len(rows) <= _MOST_ROWS or change.groups or change.producer is not None:
        return None
    if change.dropped_offsets or change.dropped_groups:
        return None
    try:
        is_long = len(rows) > _FEW and rows[0].topic == rows[_FEW].topic
        parts = (_by_column if is_long else _by_row)(rows)
        body = None if parts is None else b"".join(parts)
    except (StructError, UnicodeError):
        return None
    if body is None or len(body) + OVERHEAD * len(rows) > most_bytes:
        return None
    return body


def _by_row(rows: Sequence[OffsetRow]) -> list[bytes] | None:
    parts: list[bytes] = []
    for number, row in enumerate(rows):
        group, topic, partition, offset, epoch, metadata, commit_ms, expire_ms, topic_id = row
        if metadata or expire_ms is not None:
            return None
        short, long, key, size, tail = _form_of(group, topic, topic_id)
        fields = _FIELDS.pack(partition, size, NEWEST, offset, epoch, _NO_METADATA, commit_ms)
        parts += short if number < _SHORT else long, _NUMBERS[number], key, fields, tail
    return parts


def _by_column(rows: Sequence[OffsetRow]) -> Iterable[bytes] | None:
    """As `_by_row`, without a step of the interpreter for each row."""
    groups, topics, partitions, offsets, epochs, metadata, times, expiries, ids = zip(
        *rows, strict=True
    )
    if any(metadata) or expiries.count(None) < len(rows):
        return None
    columns: list[list[Any]] = [[], [], [], [], []]
    for (topic, topic_id), its in groupby(zip(topics, ids, strict=True)):
        of_topic = len(list(its))
        for column, value in zip(columns, _form_of(groups[0], topic, topic_id), strict=True):
            column += [value] * of_topic
    heads, longs, keys, sizes, tails = columns
    heads[_SHORT:] = longs[_SHORT:]
    fields = map(
        _FIELDS.pack,
        partitions,
        sizes,
        repeat(NEWEST),
        offsets,
        epochs,
        repeat(_NO_METADATA),
        times,
    )
    return chain.from_iterable(zip(heads, _NUMBERS, keys, fields, tails, strict=False))


def _form_of(group: str, topic: str, topic_id: UUID | None) -> "_Form":
    form = _form if len(group) <= _LONGEST_GROUP else _form.__wrapped__
    return form(group, topic, topic_id and topic_id.int)


class CommitRecords:
    """The records of commits of the same partitions, which differ in offsets and time alone.

    They are those of `commit_records`: made once, and copied with other numbers.
    """

    __slots__ = ("_each", "_runs", "_template", "_width", "count")

    def __init__(self, rows: Sequence[OffsetRow], places: Iterable[int], width: int) -> None:
        """Of a commit, whose own offsets do not matter.

        Args:
            rows: up to 1,000, without metadata or expiry times.
            places: where the requests of such commits have the offset of each.
            width: of an offset there: 8, or 12 with the leader epoch that follows it.
        """
        self.count = len(rows)
        self._width = width
        self._runs: list[_Run] = []
        parts: list[bytes] = []
        start = 0
        for number, (row, place) in enumerate(zip(rows, places, strict=True)):
            short, long, key, size, tail = _form_of(row.group_id, row.topic, row.topic_id)
            head = (short if number < _SHORT else long) + _NUMBERS[number] + key
            fields = _FIELDS.pack(row.partition, size, NEWEST, 0, -1, _NO_METADATA, 0)
            self._add(start + len(head) + _TO_OFFSET, place)
            parts += head, fields, tail
            start += len(head) + len(fields) + len(tail)
        self._template = b"".join(parts)
        # Of short runs each offset: in the request, in the records, and its time there.
        self._each: list[tuple[slice, slice, slice]] = []
        for to, step, place, stride, count in self._runs:
            for _ in range(count if count <= _FEW else 0):
                time = slice(to + _TO_TIME, to + _TO_TIME + _TIME.size)
                self._each.append((slice(place, place + width), slice(to, to + width), time))
                to, place = to + step, place + stride
        self._runs = [run for run in self._runs if run.offsets > _FEW]

    def _add(self, to: int, place: int) -> None:
        if self._runs:
            run = self._runs[-1]
            step, stride = to - run.to, place - run.place
            if run.offsets == 1:
                self._runs[-1] = _Run(run.to, step, run.place, stride, 2)
                return
            if (step, stride) == (run.offsets * run.step, run.offsets * run.stride):
                self._runs[-1] = run._replace(offsets=run.offsets + 1)
                return
        self._runs.append(_Run(to, 1, place, 1, 1))

    def __len__(self) -> int:
        """Their bytes."""
        return len(self._template)

    def of(self, frame: bytes, commit_ms: int) -> bytearray:
        """Those of a commit.

        Args:
            frame: has the offsets, in their places.
            commit_ms: when they are committed, in milliseconds.
        """
        records, time = bytearray(self._template), _TIME.pack(commit_ms)
        for given, offset, of_time in self._each:
            records[offset] = frame[given]
            records[of_time] = time
        width = self._width
        for to, step, place, stride, count in self._runs:
            size, spaced = count * step, count * stride  # byte by byte, of all of them
            for each in range(width):
                column = frame[place + each : place + each + spaced : stride]
                records[to + each : to + each + size : step] = column
            for each, byte in enumerate(time, to + _TO_TIME):
                records[each : each + size : step] = bytes((byte,)) * count
        return records


@lru_cache(maxsize=1024)
def _form(group: str, topic: str, topic_id: int | None) -> _Form:
    key = key_bytes(OffsetKey(group, topic, 0))
    of_key, tail = varint(len(key)), value_tail(topic_id)
    value_size = _FIELDS.size - _OF_KEY - 1 + len(tail)
    (size,) = varint(value_size)
    tail += b"\0"  # no headers
    length = 3 + len(of_key) + len(key) + 1 + value_size + 1
    return _Form(
        varint(length) + b"\0\0",
        varint(length + 1) + b"\0\0",
        of_key + key[:-_OF_KEY],
        size,
        tail,
    )
