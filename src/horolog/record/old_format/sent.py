"""Messages of v0 or v1 that a producer sends to a partition: plain, compressed, or both.

Their records are numbered from 0, whatever offsets they were sent with, because a leader counts
their places (KIP-31). All checksums are checked. Bytes after the last whole message are ignored.
"""

from array import array
from collections.abc import Iterator
from itertools import chain
from struct import Struct
from typing import Final

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, ErrorCode, RequestRefused
from horolog.record.batch import (
    CODEC_BITS,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    SMALLEST_BATCH,
    iter_headers,
    verify_crc,
    with_records,
)
from horolog.record.compression import Codec, compress_chunks
from horolog.record.kernels.message_kernels import (
    CHANGE_APPEND_TIME,
    CHANGE_BASE_TIME,
    CHANGE_COUNT,
    CHANGE_FIRST_OFFSET,
    CHANGE_MAX,
    CHANGE_MODE,
    CHANGE_TIMED,
    RENUMBER,
    WITH_CRCS,
)
from horolog.record.old_format.reading import (
    OpenedBatch,
    add_records,
    add_run,
    messages_in,
    new_state,
)
from horolog.record.old_format.writing import MAX_SET_BYTES
from horolog.record.timestamps import NO_TIMESTAMP

MAX_UNCOMPRESSED_BYTES: Final = 1 << 30
RUN_BYTES: Final = 512 << 10
_SIZE_TO_ATTRIBUTES = Struct(">iIbB")  # of a message, from byte 8: size, CRC-32, magic, attributes
_CODECS = tuple(Codec)


class Sent:
    """Messages of a produce request for one partition, whose headers were checked."""

    def __init__(self, messages: Buffer, *, max_batch_bytes: int = MAX_UNCOMPRESSED_BYTES) -> None:
        """Check the headers of the messages.

        Raises:
            CorruptBatch: there is no whole message of v0 or v1, or one names a codec that its
                format does not have.
        """
        first = next(iter_headers(messages), None)
        if first is None or first[1].magic == MAGIC:
            raise CorruptBatch("There is no whole message of format v0 or v1")
        self._messages = memoryview(messages)
        self._first = first[1]
        self._max_batch_bytes = max_batch_bytes
        self.magic = self._first.magic
        """Format of the first message, 0 or 1; messages of the other format are refused."""
        self.count = 0
        """Number of messages; a compressed message counts as one."""
        self.compressed = 0
        """Number of compressed messages."""
        self.largest = 0
        """Bytes of the largest message."""
        self.size = 0
        """Bytes of all messages."""
        self.codec = Codec.NONE
        """Codec of the last compressed message, which Kafka takes for the codec of all."""
        self._attributes = 0
        self._look()

    @property
    def claims_append_time(self) -> bool:
        """True if a message has the type LogAppendTime, which no producer may send (KIP-32)."""
        return bool(self._attributes & LOG_APPEND_TIME_BIT)

    def open(self, *, renumber: bool = True) -> OpenedBatch:
        """Open the records, once; their count and largest timestamp are unknown before the end.

        Args:
            renumber: whether offset deltas are 0, 1, 2, ...; otherwise messages in a compressed
                message keep the deltas with which they were sent.

        Raises:
            CorruptBatch: a checksum is wrong, or a message is malformed or of another format than
                the first; also from the pieces.
            RequestRefused: compressed messages contain more than is allowed; also from the pieces.
        """
        state = new_state(self._first)
        state[CHANGE_APPEND_TIME] = 0
        pieces = self._pieces(state, RENUMBER if renumber else 0)
        begin = [next(pieces)]
        header = self._first._replace(
            base_offset=0 if renumber else state[CHANGE_FIRST_OFFSET],
            batch_length=0,
            attributes=self._attributes & LOG_APPEND_TIME_BIT | self.codec,
            last_offset_delta=0,
            base_timestamp=state[CHANGE_BASE_TIME],
            max_timestamp=NO_TIMESTAMP,
        )
        return OpenedBatch(header, chain(begin, pieces))

    def as_batch(self, *, max_bytes: int = MAX_SET_BYTES) -> bytes:
        """Return the records as one batch of v2 with the messages' codec; v0 has no timestamps.

        Raises:
            CorruptBatch, RequestRefused: as `open`, or it is longer than `max_bytes` (10).
        """
        state = new_state(self._first)
        state[CHANGE_APPEND_TIME] = 0
        pieces = self._pieces(state, RENUMBER)
        payload = compress_chunks(self.codec, pieces, max_bytes=max_bytes - HEADER_SIZE)
        if payload is None:
            raise RequestRefused(
                ErrorCode.message_too_large,
                f"The records are larger than {max_bytes} bytes as a batch of format v2",
            )
        count = state[CHANGE_COUNT]
        header = self._first._replace(
            base_offset=0,
            attributes=self._attributes & LOG_APPEND_TIME_BIT | self.codec,
            last_offset_delta=count - 1,
            base_timestamp=state[CHANGE_BASE_TIME],
            max_timestamp=state[CHANGE_MAX] if state[CHANGE_TIMED] else NO_TIMESTAMP,
            records_count=count,
        )
        return with_records(header, payload)

    def _look(self) -> None:
        messages, position, codec = self._messages, 0, 0
        while len(messages) - position >= _SIZE_TO_ATTRIBUTES.size + 8:
            size, _, magic, attributes = _SIZE_TO_ATTRIBUTES.unpack_from(messages, position + 8)
            end = position + size + LOG_OVERHEAD
            if size < SMALLEST_BATCH - LOG_OVERHEAD or end > len(messages):
                break  # the first is refused when its turn comes, the second is no message
            if magic:
                self._attributes |= attributes
            if attributes & CODEC_BITS:
                codec = attributes & CODEC_BITS
                self.compressed += 1
            self.count += 1
            self.largest = max(self.largest, end - position)
            position = self.size = end
        if codec >= Codec.ZSTD:
            raise CorruptBatch(
                f"Messages of format v{self.magic} have no compression codec {codec}"
            )
        self.codec = _CODECS[codec]

    def _pieces(self, state: "array[int]", numbering: int) -> Iterator[Buffer]:
        """Yield all records; the state has their number in the end."""
        position, left = 0, self._max_batch_bytes
        while (found := next(iter_headers(self._messages, position), None)) is not None:
            _, header = found
            if header.magic != self.magic:
                raise CorruptBatch(
                    f"Messages of format v{self.magic} and v{header.magic} are mixed", position
                )
            state[CHANGE_MODE] = WITH_CRCS | numbering
            if header.codec_number:
                batch = self._messages[position : position + header.size]
                verify_crc(batch, 0, header)
                count = state[CHANGE_COUNT]
                for piece in add_records(messages_in(batch, header, max_bytes=left), state):
                    left = max(0, left - len(piece))
                    yield piece
                if state[CHANGE_COUNT] == count:
                    raise CorruptBatch("A compressed message holds no messages", position)
                position += header.size
                continue
            end = position + max(RUN_BYTES, header.size)
            records, size = add_run(self._messages[position:end], state)
            yield records
            position += size
