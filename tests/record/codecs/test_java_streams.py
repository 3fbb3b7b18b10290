"""A stream is read where Java reads it, with the same values, and refused where Java refuses it.

`streams.jsonl.xz` has 1,663 streams, most of them damaged, and the answers of Kafka's own client
(`tools/codec_streams/make.py`).
"""

import base64
import hashlib
import json
import lzma
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from batches import batch_of

from horolog.config import TopicConfig
from horolog.errors import CorruptBatch, ErrorCode, RequestRefused
from horolog.record import (
    HEADER_SIZE,
    BatchHeader,
    Codec,
    decode,
    parse_header,
    read_records,
    scan_batch,
)
from horolog.record.codecs import lz4_frame, snappy_stream, zstd_frame
from horolog.storage import prepare

# Java reads these, and we do not (the modules of the codecs say why).
STRICTER = {
    (Codec.GZIP, "small then 1f8b0800000000000003 (10)"),  # a second member, cut in its first bytes
    (Codec.GZIP, "small then 1f8b08000000000000035362 (12)"),
    (Codec.LZ4, "content size wrong"),
    (Codec.LZ4, "content size less"),
    (Codec.LZ4, "content size huge"),
    (Codec.LZ4, "content checksum wrong"),
    *((Codec.LZ4, f"checked frame, byte {byte} flipped") for byte in (76, 77, 78, 79)),  # of it too
    (Codec.LZ4, "block of nothing inside"),
    (Codec.LZ4, "raw block of nothing inside (bare high bit)"),
    (Codec.ZSTD, "small then 28"),  # a second frame, cut within its header
    (Codec.ZSTD, "small then 28b52ffd"),
    (Codec.ZSTD, "full then skippable cut"),
    (Codec.ZSTD, "full then skippable header cut"),
}
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


class Stream(NamedTuple):
    """A batch with this stream as its records; `digest` of their values, None if Java refuses."""

    name: str
    batch: bytes
    digest: str | None

    @property
    def header(self) -> BatchHeader:
        return parse_header(self.batch)


@cache
def streams(codec: Codec) -> list[Stream]:
    lines = lzma.decompress(Path(__file__).with_name("streams.jsonl.xz").read_bytes()).splitlines()
    rows = (json.loads(line) for line in lines)
    return [
        Stream(
            name,
            batch_of(codec, count, base64.b64decode(data)),
            answer.removeprefix("OK ") if answer.startswith("OK ") else None,
        )
        for of, name, count, data, answer in rows
        if of == codec.name
    ]


def digest_of(values: Iterable[bytes | None]) -> str:
    digest = hashlib.sha256()
    for value in values:
        digest.update(value or b"")
        digest.update(b"\0")
    return digest.hexdigest()


def records_of(batch: bytes) -> Iterator[bytes | None]:
    return (record.value for record in read_records(batch))


def columns_of(batch: bytes) -> Iterator[bytes | None]:
    for table in decode(batch, columns=["value"]):
        yield from table.column("value").to_pylist()


def is_read(stream: Stream, codec: Codec) -> bool:
    return stream.digest is not None and (codec, stream.name) not in STRICTER


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("read", [records_of, columns_of])
def test_readers_find_what_java_finds_and_refuse_what_java_refuses(
    codec: Codec, read: Callable[[bytes], Iterator[bytes | None]]
):
    for stream in streams(codec):
        try:
            found = digest_of(read(stream.batch))
        except (CorruptBatch, RequestRefused):
            found = None
        assert found == (stream.digest if is_read(stream, codec) else None), stream.name


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())
def test_a_scan_accepts_what_java_reads_and_nothing_else(codec: Codec):
    for stream in streams(codec):
        try:
            scan_batch(stream.batch, stream.header, max_bytes=1 << 30)
        except (CorruptBatch, RequestRefused):
            assert not is_read(stream, codec), stream.name
        else:
            assert is_read(stream, codec), stream.name


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())
def test_a_leader_stores_nothing_that_java_cannot_read(codec: Codec):
    refused = Counter[ErrorCode]()
    for stream in streams(codec):
        if is_read(stream, codec):
            continue
        with pytest.raises(RequestRefused) as error:
            prepare(stream.batch, TopicConfig(), 1_000)
        refused[error.value.code] += 1
    assert set(refused) == {ErrorCode.invalid_record}
    assert refused[ErrorCode.invalid_record] > 100


def test_every_exception_is_one_that_java_reads():
    read = {(codec, stream.name) for codec in CODECS for stream in streams(codec) if stream.digest}
    assert read >= STRICTER


@pytest.mark.parametrize(
    ("codec", "module"),
    [(Codec.SNAPPY, snappy_stream), (Codec.LZ4, lz4_frame), (Codec.ZSTD, zstd_frame)],
    ids=["snappy", "lz4", "zstd"],
)
@pytest.mark.parametrize("room", [1 << 20, 200_000, 1_000])
def test_memory_to_decompress_into_changes_no_answer(codec: Codec, module: Any, room: int):
    def read(stream: Stream, scratch: memoryview | None) -> bytes | None:
        packed = memoryview(stream.batch)[HEADER_SIZE:]
        try:
            return b"".join(map(bytes, module.chunks(packed, 1 << 20, scratch)))
        except (CorruptBatch, RequestRefused):
            return None

    scratch = memoryview(bytearray(b"\xa5" * room))
    for stream in streams(codec):
        assert read(stream, scratch) == read(stream, None), stream.name
