"""Message sets of v0 and v1 from records, an object each."""

from collections.abc import Iterable

from horolog.record import NO_TIMESTAMP, Codec, LogRecord, TimestampType, compress, message_bytes
from horolog.record.codecs.lz4_frame import with_v0_checksum


def build_messages(
    records: Iterable[LogRecord],
    magic: int,
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    append_time: int = NO_TIMESTAMP,
) -> bytes:
    """The records as plain messages, or as one compressed message.

    They take consecutive offsets from `base_offset` on, unless they have offsets. Headers are
    left out; in v0 timestamps too. With append times all have `append_time`: plain messages one
    each, a compressed one besides those of the messages in it, which no reader uses (KIP-32).
    """
    is_append_time = timestamp_type is TimestampType.LOG_APPEND_TIME
    rows = list(records)
    offsets = [
        base_offset + place if row.offset is None else row.offset for place, row in enumerate(rows)
    ]
    shift = offsets[0] if codec and magic == 1 and offsets else 0
    out = bytearray()
    for offset, row in zip(offsets, rows, strict=True):
        timestamp = append_time if is_append_time and not codec else row.timestamp
        out += message_bytes(
            magic, offset - shift, row.key, row.value, timestamp, is_append_time=is_append_time
        )
    if codec is Codec.NONE or not rows:
        return bytes(out)
    payload = compress(codec, out)
    if codec is Codec.LZ4 and magic == 0:
        payload = with_v0_checksum(payload)
    times = (row.timestamp for row in rows if row.timestamp != NO_TIMESTAMP)
    largest = append_time if is_append_time else max(times, default=NO_TIMESTAMP)
    return message_bytes(
        magic, offsets[-1], None, payload, largest, codec=codec, is_append_time=is_append_time
    )
