"""The batch of a commit in the form in which nearly all come, built in one pass over its offsets.

What comes out is, byte for byte, what `records_of` and `stamped_batch` make of the same offsets.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class with a lower-case name
from typing import Final, NamedTuple

from horolog.groups.rows import GroupChange, OffsetRow
from horolog.record.stamped import StampedBatch, stamped_body, varint
from horolog.schemas.offsets import NEWEST, OffsetKey, key_bytes, value_tail

_FIELDS: Final = Struct(">iBhqiBq")
"""The partition, which ends the key; the value's length, and its fields up to the commit time."""
_OF_KEY: Final = 4
_NO_METADATA: Final = 1  # the length of a compact string that is empty
_OVERHEAD: Final = 32  # of a record, at most
_LONGEST_GROUP: Final = 255  # whose records' form is remembered
_MOST_ROWS: Final = 8192  # whose numbers take at most two bytes


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
    if not rows or change.groups or change.producer is not None:
        return None
    if change.dropped_offsets or change.dropped_groups:
        return None
    try:
        body = _body(rows)
    except (StructError, UnicodeError):
        return None
    if body is None or len(body) + _OVERHEAD * len(rows) > most_bytes:
        return None
    return stamped_body(body, len(rows), now_ms)


def _body(rows: Sequence[OffsetRow]) -> bytes | None:
    parts: list[bytes] = []
    pack = _FIELDS.pack
    of_group = of_topic = of_id = None
    short = long = key = tail = b""
    size = 0
    if len(rows) > _MOST_ROWS:
        return None
    for number, row in enumerate(rows):
        group, topic, partition, offset, epoch, metadata, commit_ms, expire_ms, topic_id = row
        if metadata or expire_ms is not None:
            return None
        if topic is not of_topic or group is not of_group or topic_id is not of_id:
            of_group, of_topic, of_id = group, topic, topic_id
            form = _form if len(group) <= _LONGEST_GROUP else _form.__wrapped__
            short, long, key, size, tail = form(group, topic, topic_id and topic_id.int)
        fields = pack(partition, size, NEWEST, offset, epoch, _NO_METADATA, commit_ms)
        parts += short if number < 64 else long, varint(number), key, fields, tail
    return b"".join(parts)


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
