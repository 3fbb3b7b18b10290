"""What is written as v0 and v1 is what Apache Kafka writes, and what its readers expect."""

import tracemalloc

import pytest
from overrides import override

from golden import partitions
from horolog.record import (
    Codec,
    LogRecord,
    MessageTooLong,
    TimestampType,
    build_batch,
    iter_headers,
    messages_in,
    open_batch,
    open_message,
    parse_header,
    read_records,
    verify_crc,
    write_messages,
)
from horolog.record.codecs import lz4_frame

KAFKAS = [
    partition for partition in partitions("old-formats") if partition.name.startswith(("v0", "v1"))
]
MAX = 1 << 26


@pytest.mark.parametrize("partition", KAFKAS, ids=lambda partition: partition.name)
def test_kafkas_messages_are_written_to_the_last_byte(partition):
    """But for what a compressor makes of them, which differs from library to library."""
    for log in partition.logs():
        data = log.read_bytes()
        for position, header in iter_headers(data):
            message = data[position : position + header.size]
            opened = open_message(message, header, max_bytes=MAX)
            ours = write_messages(
                header.magic, opened.header, opened.pieces, codec=header.codec
            ).messages
            ours_header = parse_header(ours)
            verify_crc(ours)
            if not header.codec_number:
                assert ours == message
            assert ours_header.last_offset == header.last_offset
            assert ours_header.attributes == header.attributes
            assert ours_header.max_timestamp == header.max_timestamp
            inner = b"".join(messages_in(message, header, max_bytes=MAX))
            assert b"".join(messages_in(ours, ours_header, max_bytes=MAX)) == inner


def test_lz4_of_v0_has_the_checksum_that_kafka_gave_it():
    """Of the descriptor and the four bytes in front of it (KAFKA-3160)."""
    (partition,) = (partition for partition in KAFKAS if partition.name == "v0-lz4-0")
    for log in partition.logs():
        data = log.read_bytes()
        for position, header in iter_headers(data):
            if not header.codec_number:
                continue
            frame = data[position + 26 : position + header.size]
            sound = lz4_frame.with_true_checksum(frame)
            assert sound != frame
            assert lz4_frame.with_v0_checksum(sound) == frame
    assert lz4_frame.with_true_checksum(lz4_frame.compress(b"x" * 99, None)) == lz4_frame.compress(
        b"x" * 99, None
    )


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_append_times_are_in_the_message_that_holds_the_others(codec):
    """KIP-32: the type bit and the time of the outer message count."""
    batch = build_batch(
        [LogRecord(5, b"k", b"v")] * 2,
        base_offset=3,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        max_timestamp=900,
    )
    opened = open_batch(batch, parse_header(batch))
    written = write_messages(1, opened.header, opened.pieces, codec=codec)
    header = parse_header(written.messages)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == 900
    assert [row.timestamp for row in read_records(written.messages)][:1] == [900]
    assert written.last_offset == 4


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_that_is_far_too_long_is_neither_written_nor_read_whole(magic, monkeypatch):
    """Records come in pieces of a megabyte; only those of a message that is held whole are kept."""
    batch = build_batch([LogRecord(-1, b"k", bytes(9 << 20))], codec=Codec.GZIP)
    opened = open_batch(batch, parse_header(batch))
    message = write_messages(magic, opened.header, opened.pieces, codec=Codec.GZIP).messages
    override(monkeypatch, "horolog.record", MOST_MESSAGE_BYTES=2 << 20)

    def write():
        opened = open_batch(batch, parse_header(batch))
        write_messages(magic, opened.header, opened.pieces, codec=Codec.GZIP)

    def read():
        opened = open_message(message, parse_header(message), max_bytes=MAX)
        list(opened.pieces)

    for work in (write, read):
        tracemalloc.start()
        try:
            with pytest.raises(MessageTooLong, match="longer than"):
                work()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 8 << 20
