"""Reads commits that differ from an earlier one only in numbers, without decoding them.

A consumer commits the same partition again and again. Two such batches of one plain record differ
only in base offset, leader epoch, checksum, timestamps, and the committed offset with its leader
epoch and time. Any bytes are valid there. So a batch with equal other bytes needs no decoding.
"""

from struct import Struct
from typing import Final

from horolog.errors import CorruptBatch
from horolog.history import GroupAspect, GroupEvent
from horolog.record.batch import HEADER_SIZE, MAGIC, BatchHeader
from horolog.record.builder import LogRecord
from horolog.schemas.offsets import committed_bytes, read_committed

_MOST: Final = 10_000
"""Number of templates, each of at most `_LONGEST` bytes."""
_MOST_LAYOUTS: Final = 4  # of batches of one size
_LONGEST: Final = 1_000
_I16, _I64 = Struct(">h"), Struct(">q")
_BEFORE_METADATA: Final = 14  # version, offset and leader epoch, from version 3 on
_PLAIN_TEXT, _FLEXIBLE_TEXT = 3, 4  # versions: metadata behind two bytes, or behind a varint
_ONE_BYTE: Final = 127  # a longer text has a longer varint

_Layout = tuple[int, int]
"""Positions of the offset and of the commit time."""


class CommitTemplates:
    """Earlier commits that later ones are compared with."""

    def __init__(self) -> None:
        self._layouts: dict[int, list[_Layout]] = {}  # by the size of a batch
        self._events: dict[tuple[_Layout, bytes], GroupEvent] = {}

    def event(self, batch: bytes, header: BatchHeader) -> GroupEvent | None:
        """Return the event of a batch; None if it resembles no earlier batch and must be decoded.

        It is whole, and its checksum is right.
        """
        if header.base_timestamp != header.max_timestamp:
            return None
        for layout in self._layouts.get(len(batch), ()):
            known = self._events.get((layout, _fixed(batch, layout)))
            if known is not None:
                (committed,) = _I64.unpack_from(batch, layout[0])
                fields = (header.base_timestamp, *known[1:5], committed, *known[6:])
                return GroupEvent._make(fields)
        return None

    def learn(
        self, batch: bytes, header: BatchHeader, record: LogRecord, event: GroupEvent
    ) -> None:
        """Keep a decoded commit as a template, if later commits may differ from it only in numbers.

        Args:
            batch: not compressed, of one record.
        """
        is_alike = header.magic == MAGIC and event.time == header.base_timestamp
        if event.aspect is not GroupAspect.COMMITTED or not is_alike or len(batch) > _LONGEST:
            return
        layout = _layout(batch, record)
        if layout is None or len(self._events) >= _MOST:
            return
        layouts = self._layouts.setdefault(len(batch), [])
        if layout not in layouts:
            if len(layouts) >= _MOST_LAYOUTS:
                return
            layouts.append(layout)
        self._events[layout, _fixed(batch, layout)] = event


def _fixed(batch: bytes, layout: _Layout) -> bytes:
    """Return the bytes that have to be equal: magic, attributes, and those after the timestamps."""
    offset, time = layout
    return (
        batch[16:17]
        + batch[21:27]
        + batch[43:offset]
        + batch[offset + 12 : time]
        + batch[time + 8 :]
    )


def _layout(batch: bytes, record: LogRecord) -> _Layout | None:
    """Locate the numbers of a value; None if they cannot be located for certain."""
    value = record.value
    if value is None or record.headers or len(value) < _BEFORE_METADATA:
        return None
    start = len(batch) - 1 - len(value)  # behind the value is the number of headers
    if start < HEADER_SIZE or batch[start:-1] != value:
        return None
    (version,) = _I16.unpack_from(value)
    try:
        committed = read_committed(value)
    except CorruptBatch:
        return None
    if version == _PLAIN_TEXT:
        (length,) = _I16.unpack_from(value, _BEFORE_METADATA)
        time = _BEFORE_METADATA + 2 + length
    elif version == _FLEXIBLE_TEXT and committed_bytes(committed) == value:
        length = len(committed.metadata.encode())
        if length + 1 > _ONE_BYTE:
            return None
        time = _BEFORE_METADATA + 1 + length
    else:
        return None
    return start + _I16.size, start + time
