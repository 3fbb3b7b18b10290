"""Messages of v0 and v1 as records of v2.

The content of a message is never in memory as a whole: it comes in pieces of whole records, from
the walk through its decompression. Content of more than one piece is decompressed twice, because in
v1 only the last message determines the offset of the first one (KIP-31).
"""

from array import array
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, ErrorCode, RequestRefused
from horolog.record.batch import LOG_APPEND_TIME_BIT, BatchHeader
from horolog.record.codecs.lz4_frame import with_true_checksum
from horolog.record.compression import CHUNK_BYTES, Codec, decompress_chunks
from horolog.record.kernels.layout import CUT_OFF, DONE
from horolog.record.kernels.loading import MESSAGE_KERNELS
from horolog.record.kernels.message_kernels import (
    BEYOND_MESSAGE,
    CHANGE_APPEND_TIME,
    CHANGE_BASE_TIME,
    CHANGE_COUNT,
    CHANGE_FILLED,
    CHANGE_FIRST_OFFSET,
    CHANGE_LAST_OFFSET,
    CHANGE_MAGIC,
    CHANGE_MAX,
    CHANGE_MODE,
    CHANGE_NEED,
    CHANGE_POSITION,
    CHANGE_STATE_SIZE,
    CHANGE_TIMED,
    FAR_OFFSET,
    LONGEST_RECORD_HEAD,
    NESTED,
    OTHER_MAGIC,
    PLAIN,
    SMALL_MESSAGE,
    WITH_CRCS,
    WRONG_CRC,
)
from horolog.record.timestamps import LOG_APPEND_TIME, NO_TIMESTAMP, NO_TIMESTAMP_TYPE

MOST_MESSAGE_BYTES: Final = 64 << 20
"""A message within a compressed one: it is held whole, as its checksum is before its bytes."""
_HEADS = (18, 26)  # bytes of a message before its key's length
_I32 = 4
_FRESH_STATE = array("q", bytes(8 * CHANGE_STATE_SIZE))

_WRONG = {
    SMALL_MESSAGE: "it is smaller than an empty message",
    OTHER_MAGIC: "it is of another format than the compressed message that holds it",
    WRONG_CRC: "Record is corrupt (its checksum is not that of its bytes)",
    NESTED: "it is compressed within a compressed message, which Kafka refuses",
    BEYOND_MESSAGE: "its key or value runs past its end",
    FAR_OFFSET: "its offset is too far from that of the first one",
    CUT_OFF: "it runs past the end of the message that holds it",
}


class MessageTooLong(RequestRefused):
    """Refusal of a record that is too long for a message of v0 or v1 (MESSAGE_TOO_LARGE)."""

    def __init__(self, magic: int) -> None:
        """Make the error; `magic` is the format of the message."""
        super().__init__(
            ErrorCode.message_too_large,
            f"A record is longer than {MOST_MESSAGE_BYTES} bytes, which no message of format "
            f"v{magic} within a compressed one may be",
        )


class OpenedBatch(NamedTuple):
    """A batch of v0 or v1 as an uncompressed batch of format v2."""

    header: BatchHeader
    """Header of format v2, with true base offset and number of records; size and checksum are 0."""
    pieces: Iterable[Buffer]
    """Its records; can be read once."""

    @property
    def timestamp_type(self) -> int:
        """Timestamp type of the records: 0 or 1, or -1 in v0 (Kafka's NoTimestampType)."""
        return timestamp_type_of(self.header)


def timestamp_type_of(header: BatchHeader) -> int:
    """Return 0 for CreateTime, 1 for LogAppendTime, -1 for messages of v0, which have no times."""
    return NO_TIMESTAMP_TYPE if header.magic == 0 else header.attributes >> 3 & 1


def open_message(batch: Buffer, header: BatchHeader, *, max_bytes: int) -> OpenedBatch:
    """Open the records of one whole message, plain or compressed.

    The checksum of the message itself is not checked; those of the messages in it are.

    Args:
        batch: the bytes of the message.
        max_bytes: limit of its decompressed content.

    Raises:
        CorruptBatch: it breaks the format, or contains compressed messages, messages of another
            format, or none at all; also from `pieces`.
        RequestRefused: it decompresses to more than `max_bytes`, or a message in it is longer than
            `MOST_MESSAGE_BYTES`; also from `pieces`.
    """
    state = new_state(header)
    if header.codec is Codec.NONE:
        pieces = list(add_records([_whole(batch, header)], state))
        return OpenedBatch(_opened_header(header, state), pieces)
    state[CHANGE_MODE] = WITH_CRCS
    state[CHANGE_APPEND_TIME] = 0  # the messages in it keep their create times
    chunks = _decompressed(batch, header, max_bytes)
    first, total = [], 0
    for chunk in chunks:
        first.append(bytes(chunk))
        total += len(chunk)
        if total > CHUNK_BYTES:
            break
    else:
        pieces = list(add_records([b"".join(first)], state))
        return OpenedBatch(_opened_header(header, state), pieces)
    looked = state[:]
    for _ in _passes(chain(first, chunks), looked, is_written=False):
        pass
    again = _decompressed(batch, header, max_bytes)
    return OpenedBatch(_opened_header(header, looked), add_records(again, state))


def true_header(batch: Buffer, header: BatchHeader, *, max_bytes: int) -> BatchHeader:
    """Return the header of a message, with its first offset and its number of records.

    Raises as `open_message` does.
    """
    opened = open_message(batch, header, max_bytes=max_bytes).header
    return header._replace(
        base_offset=opened.base_offset,
        last_offset_delta=header.last_offset - opened.base_offset,
        base_timestamp=opened.base_timestamp,
        records_count=opened.records_count,
    )


def messages_in(batch: Buffer, header: BatchHeader, *, max_bytes: int) -> Iterator[Buffer]:
    """Yield the bytes of a plain message, or of the messages in a compressed one.

    Raises as `open_message` does.
    """
    if header.codec is Codec.NONE:
        return iter((_whole(batch, header),))
    return _decompressed(batch, header, max_bytes)


def add_records(chunks: Iterable[Buffer], state: "array[int]") -> Iterator[Buffer]:
    """Yield the records of the messages in `chunks`, in pieces of whole records.

    Records are numbered from the first message that the state has seen.
    """
    return _passes(chunks, state, is_written=True)


class MessageRun(NamedTuple):
    """Successive plain messages of one format and one type of timestamps."""

    opened: OpenedBatch
    size: int
    """Bytes of the messages."""


def open_run(data: Buffer, header: BatchHeader, *, check_crcs: bool = True) -> MessageRun:
    """Open the records of a plain message at the start of `data`, and of similar ones that follow.

    The run ends before a message that is incomplete, compressed, of another format or type, out of
    order, or damaged.

    Raises:
        CorruptBatch: the first message is damaged.
    """
    state = new_state(header)
    state[CHANGE_MODE] = WITH_CRCS if check_crcs else 0
    records, size = add_run(memoryview(data), state)
    return MessageRun(OpenedBatch(_opened_header(header, state), [records]), size)


def add_run(data: memoryview, state: "array[int]") -> tuple[memoryview, int]:
    """Return the records of plain messages up to a different one, and the messages' size.

    Raises:
        CorruptBatch: the first message is damaged.
    """
    out = memoryview(bytearray(_room_for(len(data))))
    state[CHANGE_MODE] |= PLAIN
    status = to_records(data, state, out)
    if not state[CHANGE_POSITION]:
        state[CHANGE_MODE] &= ~PLAIN
        status = to_records(data, state, out)  # what is wrong with it
    if not state[CHANGE_POSITION]:
        raise _malformed(state, status, 0)
    return out[: state[CHANGE_FILLED]], state[CHANGE_POSITION]


def new_state(header: BatchHeader) -> "array[int]":
    """Return the state of a kernel for messages of this header's format and times."""
    state = _FRESH_STATE[:]
    state[CHANGE_MAGIC] = header.magic
    if header.timestamp_type is LOG_APPEND_TIME:
        state[CHANGE_APPEND_TIME] = 1
        state[CHANGE_BASE_TIME] = header.max_timestamp
    return state


def to_records(data: memoryview, state: "array[int]", out: memoryview) -> int:
    """Run the kernel that writes records of messages."""
    MESSAGE_KERNELS.note_work(len(data))
    return int(MESSAGE_KERNELS.run.to_records(data, state, out))


def to_messages(data: memoryview, state: "array[int]", out: memoryview) -> int:
    """Run the kernel that writes messages of records."""
    MESSAGE_KERNELS.note_work(len(data))
    return int(MESSAGE_KERNELS.run.to_messages(data, state, out))


def _whole(batch: Buffer, header: BatchHeader) -> memoryview:
    if header.size > len(batch):
        raise CorruptBatch(
            f"The batch at offset {header.last_offset} is {header.size} bytes long and only "
            f"{len(batch)} are there"
        )
    return memoryview(batch)[: header.size]


def _decompressed(batch: Buffer, header: BatchHeader, max_bytes: int) -> Iterator[Buffer]:
    value = _value(_whole(batch, header), header)
    if header.magic == 0 and header.codec is Codec.LZ4:
        value = with_true_checksum(value)
    return decompress_chunks(header.codec, value, max_bytes=max_bytes)


def _value(message: memoryview, header: BatchHeader) -> Buffer:
    """Return the compressed messages in a message."""
    at = _HEADS[header.magic]
    size = 0
    for field in ("key", "value"):
        if len(message) - at < _I32:
            raise _broken(header, f"its {field} runs past its end")
        size = int.from_bytes(message[at : at + _I32], "big", signed=True)
        at += _I32
        if size > len(message) - at:
            raise _broken(header, f"its {field} runs past its end")
        if field == "key":
            at += max(0, size)
    if size < 0:
        raise _broken(header, "it is compressed, and its value is null")
    return message[at : at + size]


def _passes(chunks: Iterable[Buffer], state: "array[int]", *, is_written: bool) -> Iterator[Buffer]:
    carry = bytearray()
    need = passed = 0
    for chunk in chunks:
        if carry:
            carry += chunk
            if len(carry) < need:
                if len(carry) > MOST_MESSAGE_BYTES:
                    raise MessageTooLong(state[CHANGE_MAGIC])
                continue
        data = memoryview(carry or chunk)
        out = memoryview(bytearray(_room_for(len(data)) if is_written else 0))
        status = to_records(data, state, out)
        position = state[CHANGE_POSITION]
        if status not in (DONE, CUT_OFF):
            raise _malformed(state, status, passed + position)
        if state[CHANGE_FILLED]:
            yield out[: state[CHANGE_FILLED]]
        need = state[CHANGE_NEED]
        passed += position
        carry = bytearray(data[position:])
    if carry:
        raise _malformed(state, CUT_OFF, passed)


def _room_for(size: int) -> int:
    """Return the most bytes that messages of this size take as records."""
    return size + (size >> 2) + 2 * LONGEST_RECORD_HEAD


def _opened_header(header: BatchHeader, state: "array[int]") -> BatchHeader:
    """Return the header of the batch of records, once all messages have been read."""
    count = state[CHANGE_COUNT]
    if not count:
        raise _broken(header, "it is compressed, and holds no messages")
    first, last = state[CHANGE_FIRST_OFFSET], state[CHANGE_LAST_OFFSET]
    shift = 0
    if header.magic == 1 and header.codec_number:  # KIP-31: offsets in it count from the first
        # librdkafka sends 0 as the offset of what holds them; then they count from 0.
        shift = header.last_offset - last if header.last_offset else 0
        if shift < 0:
            raise _broken(
                header, f"its last message is its {last}th by offset, more than its own offset"
            )
    append_time = header.timestamp_type is LOG_APPEND_TIME
    largest = state[CHANGE_MAX] if state[CHANGE_TIMED] else NO_TIMESTAMP
    return header._replace(
        base_offset=first + shift,
        batch_length=0,
        crc=0,
        attributes=header.attributes & LOG_APPEND_TIME_BIT,
        last_offset_delta=last - first,
        base_timestamp=state[CHANGE_BASE_TIME],
        max_timestamp=header.max_timestamp if append_time else largest,
        records_count=count,
    )


def _broken(header: BatchHeader, what: str) -> CorruptBatch:
    return CorruptBatch(
        f"The message of format v{header.magic} at offset {header.last_offset} is malformed: {what}"
    )


def _malformed(state: "array[int]", status: int, position: int) -> CorruptBatch:
    return CorruptBatch(
        f"Message {state[CHANGE_COUNT]} of a batch of format v{state[CHANGE_MAGIC]} "
        f"is malformed: {_WRONG[status]}, at byte {position} of the messages"
    )
