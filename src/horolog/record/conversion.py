"""Conversion of batches of any format to any other, and the data that it loses.

    to v0   timestamps and their type, and all that v1 loses
    to v1   headers; producer ids and sequences; leader epochs; control batches, and with them which
            transactions were aborted; offsets behind the last record of a batch that was compacted
    to v2   nothing: records of v0 have no timestamp (-1)

A batch of the requested format is left as it is, to the byte. Other batches are converted in pieces
of about a megabyte; only the result is in memory as a whole. `convert_batch` does not check the
checksum of the batch: call `verify_crc` first, or damaged bytes get a correct checksum.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, ErrorCode, RequestRefused
from horolog.record.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    BatchHeader,
    iter_headers,
    verify_crc,
    with_records,
)
from horolog.record.compression import Codec, compress_chunks, decompress_chunks
from horolog.record.kernels.loading import MESSAGE_KERNELS
from horolog.record.old_format.reading import MessageRun, OpenedBatch, open_message, open_run
from horolog.record.old_format.sent import MAX_UNCOMPRESSED_BYTES, RUN_BYTES
from horolog.record.old_format.writing import MAX_SET_BYTES, write_messages


class Losses(NamedTuple):
    """Counts of data that the other format could not contain."""

    headers: int = 0
    timestamps: int = 0
    """Records that had a timestamp; lost in v0 only."""
    producer_batches: int = 0
    """Batches that had a producer id and sequence."""
    control_batches: int = 0
    """Batches of markers, which are left out."""
    trailing_offsets: int = 0
    """Offsets behind the last record of a batch; the batch after it still begins where it did."""

    def __add__(self, other: "Losses") -> "Losses":  # type: ignore[override]  # sums, not a tuple
        return Losses(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class Converted(NamedTuple):
    """Result of a conversion: a batch in the requested format, or batches that had it already."""

    data: Buffer
    """Empty where the format has no form of the batch."""
    next_offset: int
    """Offset that follows the original batch."""
    records: int
    """Number of rewritten records; 0 if the batch was left as it was."""
    losses: Losses
    size: int
    """Bytes of the original."""

    @property
    def is_untouched(self) -> bool:
        """True if `data` is the original bytes."""
        return self.records == 0 and len(self.data) == self.size


def down_convert(
    data: Buffer,
    magic: int,
    *,
    start_offset: int = 0,
    max_batch_bytes: int = MAX_UNCOMPRESSED_BYTES,
) -> Iterator[Converted]:
    """Yield the whole batches of a fetch for a client that reads no format beyond `magic`.

    As in Kafka, batches of that format and older ones are left as they are, and control batches are
    left out. In a batch that becomes plain messages, messages before `start_offset` are left out,
    because old consumers take the first message for the one they asked for.

    Args:
        data: batches of any formats; a part of a batch at the end is ignored.
        magic: 0 or 1.
        max_batch_bytes: limit of a decompressed batch.

    Raises:
        CorruptBatch: a batch is malformed.
        RequestRefused: a batch is compressed with zstd (76), or is too large (10).
    """
    view = memoryview(data)
    position, next_offset = 0, 0
    while position < len(view):
        end, changed = position, None
        for at, header in iter_headers(view, position, next_offset):
            if header.magic > magic:
                changed = header
                break
            end, next_offset = at + header.size, header.next_offset
        if end > position:
            yield Converted(view[position:end], next_offset, 0, Losses(), end - position)
        if changed is None:
            return
        if changed.magic != MAGIC and not changed.codec_number:
            run = open_run(view[end : end + max(RUN_BYTES, changed.size)], changed)
            converted = _convert_run(run, magic, start_offset)
        else:
            verify_crc(view, end, changed)  # or wrong bytes would get a right checksum
            converted = convert_batch(
                view[end : end + changed.size],
                changed,
                magic,
                start_offset=start_offset,
                max_batch_bytes=max_batch_bytes,
            )
        yield converted
        position, next_offset = end + converted.size, converted.next_offset


def convert_all(
    data: Buffer,
    magic: int,
    *,
    least_offset: int = 0,
    zstd_as: Codec | None = None,
    run_bytes: int = RUN_BYTES,
    max_batch_bytes: int = MAX_UNCOMPRESSED_BYTES,
    check_crcs: bool = True,
) -> Iterator[Converted]:
    """Yield every whole batch of a log in one format; plain messages become batches of `run_bytes`.

    Args:
        magic: 0, 1 or 2.
        least_offset: smallest offset that the first batch can have.
        zstd_as: codec of messages whose batch was compressed with zstd; None refuses the batch.
        run_bytes: bytes of plain messages that become one batch of v2.
        max_batch_bytes: limit of a decompressed batch.
        check_crcs: whether to check the checksums of all batches.

    Raises:
        CorruptBatch, RequestRefused: as `down_convert`.
    """
    view = memoryview(data)
    MESSAGE_KERNELS.load_for(len(view))
    position = 0
    while position < len(view):
        first = next(iter_headers(view, position, least_offset), None)
        if first is None:
            return
        _, header = first
        batch = view[position : position + header.size]
        if check_crcs:
            verify_crc(batch, 0, header)
        if header.magic == magic:
            converted = Converted(batch, header.next_offset, 0, Losses(), header.size)
        elif header.magic != MAGIC and not header.codec_number:
            # To plain messages as many as are at hand: they stay batches of their own.
            stretch_bytes = run_bytes if magic == MAGIC else RUN_BYTES
            run = open_run(view[position : position + max(stretch_bytes, header.size)], header)
            converted = _convert_run(run, magic)
        else:
            converted = convert_batch(
                batch, header, magic, zstd_as=zstd_as, max_batch_bytes=max_batch_bytes
            )
        yield converted
        position += converted.size
        least_offset = converted.next_offset


def _convert_run(run: MessageRun, magic: int, start_offset: int | None = None) -> Converted:
    header, pieces = run.opened
    if magic == MAGIC:
        data, losses = write_batch(header, pieces, codec=Codec.NONE), Losses()
    else:
        written = write_messages(magic, header, pieces, codec=Codec.NONE, start_offset=start_offset)
        data = written.messages
        losses = Losses(timestamps=written.timestamps if magic == 0 else 0)
    return Converted(data, header.next_offset, header.records_count, losses, run.size)


def as_plain_messages(data: Buffer, magic: int, *, least_offset: int = 0) -> Iterator[Converted]:
    """Yield every record as a plain message of v0 or v1, so that equal records have equal bytes.

    Control batches and headers of records are left out. All checksums are checked.

    Raises:
        CorruptBatch, RequestRefused: as `down_convert`.
    """
    view = memoryview(data)
    position = 0
    while (found := next(iter_headers(view, position, least_offset), None)) is not None:
        _, header = found
        size, batch = header.size, view[position : position + header.size]
        if header.magic == MAGIC or header.codec_number:
            verify_crc(batch, 0, header)
            opened = open_batch(batch, header)
        else:
            run = open_run(view[position : position + max(RUN_BYTES, size)], header)
            opened, size = run.opened, run.size
        next_offset = max(header.next_offset, opened.header.next_offset)
        if header.is_control:
            yield Converted(b"", next_offset, 0, Losses(), size)
        else:
            written = write_messages(magic, opened.header, opened.pieces, codec=Codec.NONE)
            _check_count(written.records, opened.header)
            yield Converted(written.messages, next_offset, written.records, Losses(), size)
        position += size
        least_offset = next_offset


def convert_batch(
    batch: Buffer,
    header: BatchHeader,
    magic: int,
    *,
    start_offset: int = 0,
    zstd_as: Codec | None = None,
    max_batch_bytes: int = MAX_UNCOMPRESSED_BYTES,
) -> Converted:
    """Convert one whole batch or message to another format, with its codec, offsets and times.

    Raises:
        CorruptBatch, RequestRefused: as `down_convert`.
    """
    if header.magic == magic:
        return Converted(
            memoryview(batch)[: header.size], header.next_offset, 0, Losses(), header.size
        )
    if header.is_control:
        return Converted(b"", header.next_offset, 0, Losses(control_batches=1), header.size)
    opened = open_batch(batch, header, max_bytes=max_batch_bytes)
    codec = header.codec
    if codec is Codec.ZSTD and zstd_as is not None:
        codec = zstd_as
    if magic == MAGIC:
        data = write_batch(opened.header, opened.pieces, codec=codec)
        return Converted(
            data, header.next_offset, opened.header.records_count, Losses(), header.size
        )
    written = write_messages(
        magic,
        opened.header,
        opened.pieces,
        codec=codec,
        start_offset=start_offset if codec is Codec.NONE else None,
    )
    if codec is not Codec.NONE or header.base_offset >= start_offset:
        _check_count(written.records, opened.header)
    losses = Losses(
        headers=written.headers_lost,
        timestamps=written.timestamps if magic == 0 else 0,
        producer_batches=int(header.producer_id >= 0),
        trailing_offsets=header.last_offset - written.last_offset,
    )
    return Converted(written.messages, header.next_offset, written.records, losses, header.size)


def open_batch(
    batch: Buffer, header: BatchHeader, *, max_bytes: int = MAX_UNCOMPRESSED_BYTES
) -> OpenedBatch:
    """Open the records of one whole batch of any format, decompressed, in pieces cut anywhere.

    Raises:
        CorruptBatch: it breaks the format; also from the pieces.
        RequestRefused: it decompresses to more than `max_bytes`; also from the pieces.
    """
    if header.magic != MAGIC:
        return open_message(batch, header, max_bytes=max_bytes)
    if header.size > len(batch) or header.records_count < 0:
        raise CorruptBatch(
            f"The batch at offset {header.base_offset} is {header.size} bytes long with "
            f"{header.records_count} records, and {len(batch)} bytes are there"
        )
    if not header.records_count:
        return OpenedBatch(header, ())
    payload = memoryview(batch)[HEADER_SIZE : header.size]
    return OpenedBatch(header, decompress_chunks(header.codec, payload, max_bytes=max_bytes))


def write_batch(header: BatchHeader, pieces: Iterable[Buffer], *, codec: Codec) -> bytes:
    """Return a batch of v2 of these records, with offsets and times of an opened header.

    Raises:
        RequestRefused: it is longer than `MAX_SET_BYTES` (10).
    """
    payload = compress_chunks(codec, pieces, max_bytes=MAX_SET_BYTES - HEADER_SIZE)
    if payload is None:
        raise RequestRefused(
            ErrorCode.message_too_large,
            f"The records at offset {header.base_offset} are larger than {MAX_SET_BYTES} bytes as "
            "a batch of format v2",
        )
    attributes = header.attributes & LOG_APPEND_TIME_BIT | codec
    return with_records(header._replace(attributes=attributes), payload)


def _check_count(records: int, header: BatchHeader) -> None:
    if records != header.records_count:
        raise CorruptBatch(
            f"The batch at offset {header.base_offset} declares {header.records_count} records and "
            f"holds {records}"
        )
