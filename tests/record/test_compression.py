"""Every codec both ways, next to other implementations, and under bombs and damage."""

import gzip
import random
import struct
import subprocess
import sys
import threading
import warnings
import zlib
from contextlib import suppress

import aiokafka.codec
import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from memory import measured_peak

from horolog.errors import CorruptBatch, ErrorCode, RequestRefused
from horolog.record import (
    Codec,
    compress,
    decompress,
    decompress_chunks,
    decompress_into,
    fleeting_chunks,
)

with warnings.catch_warnings(action="ignore"):  # kafka-python still reads its schemas the old way
    import kafka.codec

PACKED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
LIMIT = 1 << 30
BOMB_BYTES = 64 << 20
TEXT = b'{"at": 1700000000000, "page": "/checkout", "user": "u-1234"}\n' * 5000


def with_each(codecs):
    return pytest.mark.parametrize("codec", codecs, ids=lambda codec: codec.name.lower())


@with_each(list(Codec))
@given(data=st.binary(max_size=300), times=st.integers(1, 400))
def test_what_was_packed_comes_back(codec, data, times):
    packed = compress(codec, data * times)
    assert decompress(codec, memoryview(packed), max_bytes=LIMIT) == data * times


@with_each(PACKED)
@pytest.mark.parametrize("level", [1, 9])
def test_a_level_changes_the_size_and_not_the_data(codec, level):
    packed = compress(codec, TEXT, level)
    assert decompress(codec, packed, max_bytes=LIMIT) == TEXT


@with_each(PACKED)
@pytest.mark.parametrize("chunk_bytes", [1, 7, 1000, 1 << 20])
def test_pieces_are_never_larger_than_asked_and_never_empty(codec, chunk_bytes):
    data = TEXT[: min(len(TEXT), chunk_bytes * 2000)]
    pieces = list(
        decompress_chunks(codec, compress(codec, data), max_bytes=LIMIT, chunk_bytes=chunk_bytes)
    )
    assert b"".join(pieces) == data
    assert all(1 <= len(piece) <= chunk_bytes for piece in pieces)


@with_each(PACKED)
@pytest.mark.parametrize(
    "size", [0, 1, 1000, 70_000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20]
)
def test_pieces_for_the_moment_are_the_same_bytes(codec, size):
    data = (TEXT * (size // len(TEXT) + 1))[:size]
    packed = compress(codec, data)
    next(fleeting_chunks(codec, packed, max_bytes=LIMIT), None)  # a reader may have seen enough
    once = b"".join(bytes(piece) for piece in fleeting_chunks(codec, packed, max_bytes=LIMIT))
    assert once == data
    nested = bytearray()
    for piece in fleeting_chunks(codec, packed, max_bytes=LIMIT):
        before = bytes(piece)
        assert b"".join(map(bytes, fleeting_chunks(codec, packed, max_bytes=LIMIT))) == data
        assert piece == before  # another reader on the same thread has memory of its own
        nested += piece
    assert nested == data


def test_bytes_that_are_not_packed_are_not_copied():
    data = bytearray(b"records")
    (piece,) = decompress_chunks(Codec.NONE, memoryview(data), max_bytes=1)
    data[0] = ord("R")
    assert piece == b"Records"
    assert list(decompress_chunks(Codec.NONE, b"", max_bytes=1)) == []


@with_each(PACKED)
def test_the_limit_is_the_last_size_that_passes(codec):
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, max_bytes=len(TEXT)) == TEXT
    with pytest.raises(RequestRefused, match=f"more than {len(TEXT) - 1} bytes") as caught:
        decompress(codec, packed, max_bytes=len(TEXT) - 1)
    assert caught.value.code is ErrorCode.message_too_large


# -- other implementations ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("codec", "pack"),
    [
        (Codec.GZIP, gzip.compress),
        (Codec.GZIP, lambda data: gzip.compress(data[:100]) + gzip.compress(data[100:])),
        (Codec.GZIP, aiokafka.codec.gzip_encode),
        (Codec.SNAPPY, aiokafka.codec.snappy_encode),
        (Codec.SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
        (Codec.LZ4, kafka.codec.lz4_encode),
        (Codec.LZ4, aiokafka.codec.lz4_encode),
        (Codec.LZ4, lambda data: lz4.frame.compress(data, block_linked=False, store_size=True)),
        (Codec.ZSTD, kafka.codec.zstd_encode),
        (Codec.ZSTD, aiokafka.codec.zstd_encode),
        (Codec.ZSTD, lambda data: zstandard.compress(data[:9]) + zstandard.compress(data[9:])),
    ],
)
def test_what_others_pack_is_read(codec, pack):
    assert decompress(codec, bytes(pack(TEXT)), max_bytes=LIMIT) == TEXT


@pytest.mark.parametrize(
    ("codec", "unpack"),
    [
        (Codec.GZIP, gzip.decompress),
        (Codec.GZIP, aiokafka.codec.gzip_decode),
        (Codec.SNAPPY, aiokafka.codec.snappy_decode),
        (Codec.LZ4, kafka.codec.lz4_decode),
        (Codec.LZ4, aiokafka.codec.lz4_decode),
        (Codec.ZSTD, kafka.codec.zstd_decode),
        (Codec.ZSTD, aiokafka.codec.zstd_decode),
    ],
)
def test_what_we_pack_is_read_by_others(codec, unpack):
    assert bytes(unpack(compress(codec, TEXT))) == TEXT


def test_snappy_comes_in_xerials_frame_with_its_blocks():
    packed = compress(Codec.SNAPPY, TEXT)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    (size,) = struct.unpack_from(">i", packed, 16)
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + size]) == 32 << 10


def test_lz4_blocks_do_not_lean_on_each_other_since_java_refuses_those():
    assert not lz4.frame.get_frame_info(compress(Codec.LZ4, TEXT))["block_linked"]


def test_streams_of_snappy_may_follow_one_another():
    packed = compress(Codec.SNAPPY, b"one") + compress(Codec.SNAPPY, b"two")
    assert decompress(Codec.SNAPPY, packed, max_bytes=6) == b"onetwo"


# -- bombs -------------------------------------------------------------------------------


def bomb(codec: Codec) -> bytes:
    """Sixty-four megabytes of zeros, packed without ever being there as a whole."""
    zeros = bytes(1 << 20)
    count = BOMB_BYTES // len(zeros)
    match codec:
        case Codec.GZIP:
            packer = zlib.compressobj(wbits=31)
            return b"".join(packer.compress(zeros) for _ in range(count)) + packer.flush()
        case Codec.LZ4:
            with lz4.frame.LZ4FrameCompressor(block_linked=False) as frame:
                parts = [frame.begin(), *(frame.compress(zeros) for _ in range(count))]
                return b"".join([*parts, frame.flush()])
        case _:
            stream = zstandard.ZstdCompressor().compressobj()
            return b"".join(stream.compress(zeros) for _ in range(count)) + stream.flush()


@with_each([Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_is_refused_at_the_limit_and_never_held(codec):
    packed = bomb(codec)
    assert len(packed) < 2 << 20
    with measured_peak() as peak, pytest.raises(RequestRefused):
        for _ in decompress_chunks(codec, packed, max_bytes=BOMB_BYTES - 1):
            pass
    assert peak() < 4 << 20


@with_each([Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_read_to_its_end_costs_the_process_next_to_nothing(codec):
    """Measured from outside, since codecs do not allocate through Python."""
    program = (
        "import resource, sys\n"
        "from horolog.record.compression import Codec, compress, decompress_chunks\n"
        "codec = Codec(int(sys.argv[1]))\n"
        "packed = sys.stdin.buffer.read()\n"
        "list(decompress_chunks(codec, compress(codec, b'warm'), max_bytes=9))\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "size = sum(len(piece) for piece in decompress_chunks(codec, packed, max_bytes=1 << 30))\n"
        "after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(size, after - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(int(codec))],
        input=bomb(codec),
        capture_output=True,
        check=True,
    )
    size, grown_kib = map(int, done.stdout.split())
    assert size == BOMB_BYTES
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    assert grown_kib < 16 * unit


def test_snappy_that_claims_more_than_snappy_can_pack_is_corrupt_before_it_costs_memory():
    liar = b"\xff\xff\xff\xff\x0f" + b"\x00x" * 50  # says it holds four gigabytes
    for packed in (liar, b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(liar)) + liar):
        claims = "claim to hold 4294967295"
        with measured_peak() as peak, pytest.raises(CorruptBatch, match=claims):
            decompress(Codec.SNAPPY, packed, max_bytes=LIMIT)
        assert peak() < 1 << 20


def test_the_best_ratio_that_snappy_can_reach_is_accepted():
    packed = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
    assert decompress(Codec.SNAPPY, packed, max_bytes=1 << 20) == bytes(1 << 20)


# -- damage ------------------------------------------------------------------------------


@with_each(PACKED)
@given(data=st.binary(max_size=60))
def test_bytes_of_no_codec_are_corrupt_or_nothing(codec, data):
    with suppress(CorruptBatch, RequestRefused):
        decompress(codec, data, max_bytes=1 << 20)


@with_each(PACKED)
@given(data=st.data())
def test_a_damaged_stream_raises_nothing_but_corrupt(codec, data):
    packed = bytearray(compress(codec, TEXT[:3000]))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(packed) - 1))
        packed[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(packed)))
    with suppress(CorruptBatch, RequestRefused):
        decompress(codec, packed[:cut], max_bytes=1 << 20)


def read(codec, packed, max_bytes, **how):
    """What is read, or the error; and all that came before it."""
    seen = bytearray()
    try:
        for piece in fleeting_chunks(codec, packed, max_bytes=max_bytes, **how):
            seen += piece
    except (CorruptBatch, RequestRefused) as error:
        return type(error), seen
    return None, seen


# Of less than a block, of two, and blocks that lz4 leaves as they are.
_NOISE = random.Random(1).randbytes(100_000)
_SEARCHED = [TEXT[:3000], TEXT[:150_000], _NOISE, b""]


@with_each(PACKED)
@pytest.mark.parametrize("data", _SEARCHED, ids=len)
def test_what_clients_pack_is_decompressed_in_few_calls_where_it_fits(codec, data):
    packed = compress(codec, data)
    room = memoryview(bytearray(256 << 10))
    assert decompress_into(codec, packed, room) == len(data)
    assert room[: len(data)] == data
    if data:
        assert decompress_into(codec, packed, room[: len(data) - 1]) is None


def test_a_zstd_frame_that_claims_to_be_empty_is_read_to_its_end():
    # A single segment of no bytes, and a raw block of five.
    packed = bytes.fromhex("28b52ffd 20 00") + struct.pack("<I", 5 << 3 | 1)[:3] + b"hello"
    with pytest.raises(CorruptBatch):
        decompress(Codec.ZSTD, packed, max_bytes=LIMIT)
    assert decompress_into(Codec.ZSTD, packed, memoryview(bytearray(1 << 20))) is None


def tiny_blocks(count):
    """A frame of lz4 of blocks of a byte each."""
    frame = compress(Codec.LZ4, b"")
    return frame[:7] + b"\x02\x00\x00\x00\x10x" * count + bytes(4)


def test_a_frame_of_very_many_blocks_is_not_read_block_by_block(monkeypatch):
    packed, calls = tiny_blocks(40_000), []
    one_by_one = lz4.block.decompress

    def noted(block, **how):
        calls.append(block)
        return one_by_one(block, **how)

    monkeypatch.setattr("lz4.block.decompress", noted)
    assert decompress_into(Codec.LZ4, packed, memoryview(bytearray(1 << 20))) is None
    assert read(Codec.LZ4, packed, LIMIT, is_search=True) == (None, b"x" * 40_000)
    assert len(calls) == 1


@with_each(PACKED)
@given(data=st.data())
def test_every_reader_reads_the_same_and_refuses_the_same(codec, data):
    plain = data.draw(st.sampled_from(_SEARCHED))
    packed = bytearray(compress(codec, plain))
    if data.draw(st.booleans()) and data.draw(st.booleans()):
        packed += compress(codec, plain[:100])
    if codec is Codec.LZ4 and data.draw(st.booleans()):
        options = {"block_size": data.draw(st.sampled_from([4, 5, 6, 7])), "block_linked": False}
        options["store_size"] = data.draw(st.booleans())
        options["content_checksum"] = data.draw(st.booleans())
        packed = bytearray(lz4.frame.compress(plain, **options))
    for _ in range(data.draw(st.integers(0, 3))):
        near_a_header = st.sampled_from([*range(14), -1, -4, -5, -8])
        at = data.draw(st.one_of(near_a_header, st.integers(0, len(packed) - 1))) % len(packed)
        packed[at] = data.draw(st.one_of(st.sampled_from([0, 1, 64, 128]), st.integers(0, 255)))
    cut = data.draw(st.sampled_from([len(packed), len(packed), len(packed) - 4, 7, 20]))
    limit = data.draw(st.sampled_from([LIMIT, 100_000, 65_536, 1000, 1]))
    wrong, seen = read(codec, packed[:cut], limit)
    packed = packed[:cut]
    room = memoryview(bytearray(min(limit, 1 << 20)))
    once = decompress_into(codec, packed, room)
    assert once is None or (wrong is None and room[:once] == seen)
    searched = read(codec, packed, limit, is_search=True)
    assert searched[0] == wrong
    if wrong is None:
        assert searched[1] == seen


def test_a_search_unpacks_a_block_of_lz4_at_a_time():
    packed = compress(Codec.LZ4, TEXT)
    pieces = fleeting_chunks(Codec.LZ4, packed, max_bytes=LIMIT, is_search=True)
    assert len(next(pieces)) == 64 << 10


@pytest.mark.parametrize(
    ("packed", "says"),
    [
        (b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + b"\x82SNA", "that follows ends early"),
        (b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 5) + b"abc", "5 bytes of 3 left"),
        (b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, -5) + b"abc", "-5 bytes of 3 left"),
        (b"", "nothing to decompress"),
    ],
)
def test_a_broken_xerial_frame_is_named(packed, says):
    with pytest.raises(CorruptBatch, match=says):
        decompress(Codec.SNAPPY, packed, max_bytes=LIMIT)


def test_half_a_gzip_stream_is_named():
    with pytest.raises(CorruptBatch, match="gzip: the stream ends early"):
        decompress(Codec.GZIP, compress(Codec.GZIP, TEXT)[:-9], max_bytes=LIMIT)


def test_zstd_readers_of_one_thread_and_of_many_do_not_disturb_each_other():
    packed = compress(Codec.ZSTD, TEXT)
    outer = decompress_chunks(Codec.ZSTD, packed, max_bytes=LIMIT, chunk_bytes=1000)
    inner = decompress_chunks(Codec.ZSTD, packed, max_bytes=LIMIT, chunk_bytes=1000)
    assert all(a == b for a, b in zip(outer, inner, strict=True))
    results: list[bytes] = []

    def read() -> None:
        results.extend(decompress(Codec.ZSTD, packed, max_bytes=LIMIT) for _ in range(20))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [TEXT] * 80
