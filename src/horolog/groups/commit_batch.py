"""The batch of a commit in the form in which nearly all come, built from columns of its offsets.

What comes out is, byte for byte, what `records_of` and `stamped_batch` make of the same offsets.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, groupby, repeat
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class with a lower-case name
from typing import Any, Final, NamedTuple
from uuid import UUID

from horolog.groups.rows import GroupChange, OffsetRow
from horolog.record.stamped import StampedBatch, stamped_body, varint
from horolog.schemas.offsets import NEWEST, OffsetKey, key_bytes, value_tail

_FIELDS: Final = Struct(">iBhqiBq")
"""The partition, which ends the key; the value's length, and its fields up to the commit time."""
_OF_KEY: Final = 4
_NO_METADATA: Final = 1  # the length of a compact string that is empty
_OVERHEAD: Final = 32  # of a record, at most
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


def commit_batch(change: GroupChange, now_ms: int, most_bytes: int) -> StampedBatch | None:
    """The batch of offsets that a group commits; None of another change, or one that is refused.

    Args:
        change: anything but offsets without metadata or expiry time is another.
        now_ms: the timestamp of the records, in milliseconds.
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
    if body is None or len(body) + _OVERHEAD * len(rows) > most_bytes:
        return None
    return stamped_body(body, len(rows), now_ms)


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
