"""Plain messages of v0 and v1 that follow each other, walked without an object for each.

Each plain message is a batch of its own. `list_messages` finds where they are; `place_messages`
gives them the offsets and the append time that a leader assigns (KIP-31, KIP-32).
"""

import zlib
from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

from horolog.buffers import Buffer
from horolog.record.batch import LOG_APPEND_TIME_BIT, LOG_OVERHEAD, BatchHeader
from horolog.record.kernels.loading import PLAIN_KERNELS
from horolog.record.kernels.plain_kernels import (
    LIST_APPEND_TIME,
    LIST_COUNT,
    LIST_LAST_OFFSET,
    LIST_MAGIC,
    LIST_POSITION,
    LIST_ROW,
    LIST_STATE_SIZE,
    LIST_WITH_CRCS,
    PLACE_MAGIC,
    PLACE_OFFSET,
    PLACE_STAMPED,
    PLACE_STATE_SIZE,
    PLACE_TIME,
)
from horolog.record.timestamps import LOG_APPEND_TIME, NO_TIMESTAMP

MOST_LISTED: Final = 1 << 15
"""Messages that are listed at a time; their lists take a megabyte."""

_SMALLEST: Final = 26  # bytes of an empty message of v0
_INT64_MIN: Final = -(1 << 63)
_ATTRIBUTES: Final = 17
_CRC: Final = slice(12, 16)
_CRC_START: Final = 16
_TIMESTAMP: Final = slice(18, 26)


class PlainMessages(NamedTuple):
    """Plain messages of one format and one type of timestamps, in order."""

    header: BatchHeader
    """Header of the first message."""
    positions: "array[int]"
    """Position of each message in the data; never empty."""
    offsets: "array[int]"
    """They grow."""
    times: "array[int]"
    """The timestamp of each; -1 is none."""
    end: int
    """The position after the last."""

    @property
    def next_offset(self) -> int:
        """Offset that follows the last message."""
        return self.offsets[-1] + 1

    def header_of(self, index: int) -> BatchHeader:
        """Return the header of a message, without its checksum."""
        offset, time = self.offsets[index], self.times[index]
        return self.header._replace(
            base_offset=offset,
            batch_length=self.end_of(index) - self.positions[index] - LOG_OVERHEAD,
            base_timestamp=time,
            max_timestamp=time,
        )

    def end_of(self, index: int) -> int:
        """Return the position after a message."""
        return self.positions[index + 1] if index + 1 < len(self.positions) else self.end

    def until(self, count: int) -> "PlainMessages":
        """Return the first messages; fewer than all, and at least one."""
        return PlainMessages(
            self.header,
            self.positions[:count],
            self.offsets[:count],
            self.times[:count],
            self.positions[count],
        )


def largest_of(times: "array[int]") -> int:
    """Return the largest timestamp, below zero too; -1 for none (KIP-228)."""
    largest = max(times)
    if largest == NO_TIMESTAMP:
        return max((time for time in times if time != NO_TIMESTAMP), default=NO_TIMESTAMP)
    return largest


def list_messages(
    data: Buffer,
    header: BatchHeader,
    position: int = 0,
    *,
    least_offset: int = _INT64_MIN,
    check_crcs: bool = False,
) -> PlainMessages | None:
    """List the plain message of `header` and similar ones that follow; None for another message.

    The list ends before a message that is incomplete, compressed, of another format or type of
    timestamps, out of order, damaged (if `check_crcs`), or beyond `MOST_LISTED`. Keys and values
    are not read.

    Args:
        header: header of the message at `position`.
        position: position of the first message in the data.
        check_crcs: whether to compare the messages with their checksums.
    """
    state = array("q", bytes(8 * LIST_STATE_SIZE))
    state[LIST_POSITION] = position
    state[LIST_MAGIC] = header.magic
    state[LIST_APPEND_TIME] = header.timestamp_type is LOG_APPEND_TIME
    state[LIST_LAST_OFFSET] = max(_INT64_MIN, least_offset - 1)
    state[LIST_WITH_CRCS] = check_crcs
    room = min(MOST_LISTED, (len(data) - position) // _SMALLEST + 1)
    rows = array("q", bytes(8 * LIST_ROW * room))
    PLAIN_KERNELS.run.list_messages(data, state, rows)
    PLAIN_KERNELS.note_work(state[LIST_POSITION] - position)
    end = LIST_ROW * state[LIST_COUNT]
    if not end:
        return None
    positions, offsets, times = (rows[column:end:LIST_ROW] for column in range(LIST_ROW))
    return PlainMessages(header, positions, offsets, times, state[LIST_POSITION])


def list_all(data: Buffer, header: BatchHeader) -> Iterator[PlainMessages]:
    """Yield the messages of a set that is sound and plain, some at a time."""
    messages = list_messages(data, header)
    while messages is not None:
        yield messages
        if messages.end >= len(data):
            return
        messages = list_messages(data, header, messages.end, least_offset=messages.next_offset)


def place_messages(
    messages: bytearray, magic: int, base_offset: int, append_time_ms: int | None
) -> int:
    """Number plain messages from an offset on, and stamp those of v1 with an append time if given.

    Return the number of messages; they end before bytes that are no whole message.
    """
    state = array("q", bytes(8 * PLACE_STATE_SIZE))
    state[PLACE_MAGIC] = magic
    state[PLACE_OFFSET] = base_offset
    if append_time_ms is not None:
        state[PLACE_STAMPED], state[PLACE_TIME] = 1, append_time_ms
    PLAIN_KERNELS.note_work(len(messages))
    PLAIN_KERNELS.run.place_messages(messages, state)
    return state[PLACE_OFFSET] - base_offset


def place_compressed(
    message: bytearray, magic: int, last_offset: int, timestamp: int, *, is_append_time: bool
) -> None:
    """Set the last offset of a compressed message, and in v1 its timestamp and timestamp type.

    The messages in it stay as they are. A checksum is computed only if the timestamp or type
    changes.
    """
    message[:8] = last_offset.to_bytes(8, "big", signed=True)
    if not magic:
        return
    time = timestamp.to_bytes(8, "big", signed=True)
    attributes = message[_ATTRIBUTES] & ~LOG_APPEND_TIME_BIT
    if is_append_time:
        attributes |= LOG_APPEND_TIME_BIT
    if message[_ATTRIBUTES] == attributes and message[_TIMESTAMP] == time:
        return
    message[_ATTRIBUTES], message[_TIMESTAMP] = attributes, time
    message[_CRC] = zlib.crc32(memoryview(message)[_CRC_START:]).to_bytes(4, "big")
