"""What a client can make a leader do with a small batch: work and memory stay in proportion.

The measure is an honest batch that is as large uncompressed, checked in the same process: its
records are of a hundred bytes, so that a record of seven bytes may cost what it weighs in fields.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hostile import EDGES, Batch, batch_of, flood, record_of, varint
from memory import measured_peak
from storelogs import NOW, new_log

from horolog.config import TopicConfig
from horolog.errors import ErrorCode, RecordsRejected, RequestRefused
from horolog.record import Codec, LogRecord, build_batch, compress, is_numba_installed, scan
from horolog.record.record_bytes import record_bytes
from horolog.storage import MAX_RECORD_ERRORS, prepare

TOPIC = TopicConfig(max_message_bytes=1 << 30, message_timestamp_after_max_ms=3_600_000)
SIZE = 4 << 20
PACKED = [Codec.GZIP, Codec.LZ4, Codec.ZSTD]
TINY = record_bytes(0, 0, b"", None, ())
HEADERS = record_of(
    varint(0) + varint(0) + varint(-1) + varint(-1) + varint(20_000) + bytes(40_000)
)
LATE = record_bytes(86_400_000, 0, b"", None, ())
KEYLESS = record_bytes(0, 0, None, None, ())


@pytest.fixture(autouse=True, scope="module")
def _kernels() -> None:
    scan.load_kernels()


def cost(sent: Batch, topic: TopicConfig = TOPIC) -> tuple[float, RequestRefused | None]:
    """Seconds of this thread to check a batch, the best of three, and why it was refused."""
    best, why = float("inf"), None
    for _ in range(3):
        start = time.thread_time()
        try:
            prepare(sent.data, topic, NOW)
        except RequestRefused as error:
            why = error
        best = min(best, time.thread_time() - start)
    return best, why


def work(sent: Batch, topic: TopicConfig) -> tuple[int, RequestRefused | None]:
    """How many lines of Python check a batch, on a busy machine as well, and why it was refused."""
    steps, why, before = 0, None, sys.gettrace()

    def count(*_: object) -> object:
        nonlocal steps
        steps += 1
        return count

    sys.settrace(count)
    try:
        prepare(sent.data, topic, NOW)
    except RequestRefused as error:
        why = error
    finally:
        sys.settrace(before)
    return steps, why


def peak(call: Callable[[], object]) -> int:
    """The most that Python held at a time; what codecs hold besides is bounded by their window."""
    with measured_peak() as found:
        call()
    return found()


@cache
def honest_cost(codec: Codec) -> float:
    """Of a batch of SIZE bytes whose records have a hundred bytes each."""
    data = build_batch([LogRecord(NOW, b"key", b"v" * 88)] * (SIZE // 100), codec=codec)
    seconds, refusal = cost(Batch(data, SIZE))
    assert refusal is None
    return seconds


FLOODS = {
    "records whose offset deltas are all 0": (TINY, b""),
    "headers": (HEADERS, b""),
    "one record out of bounds after many": (TINY, LATE),
    "one record without key after many": (TINY, KEYLESS),
}


@pytest.mark.parametrize("codec", PACKED, ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_costs_what_its_bytes_cost(name: str, codec: Codec) -> None:
    record, last = FLOODS[name]
    sent = flood(codec, record, SIZE, NOW, last=last)
    assert len(sent.data) < SIZE // 50
    seconds, refusal = cost(sent)
    assert refusal is not None
    assert refusal.code is ErrorCode.invalid_record
    assert seconds < 60 * honest_cost(
        codec
    )  # some 8 by fields; record by record in Python it is thousands


@pytest.mark.skipif(not is_numba_installed(), reason="counts steps of Python: kernels have none")
@pytest.mark.parametrize("fault", ["late", "keyless"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD], ids=lambda codec: codec.name.lower())
def test_records_at_fault_are_found_among_many_without_looking_at_each_in_python(
    codec: Codec, fault: str
) -> None:
    count = 100_000
    last = record_bytes(86_400_000, count, b"", None, ())
    topic = TOPIC
    if fault == "keyless":
        last = record_bytes(0, count, None, None, ())
        topic = replace(TOPIC, cleanup_policy=frozenset({"compact"}))
    data = b"".join(record_bytes(0, delta, b"", None, ()) for delta in range(count)) + last
    sent = batch_of(codec, iter([data]), count + 1, NOW)
    work(sent, topic)  # imports modules and loads kernels
    steps, refusal = work(sent, topic)
    assert isinstance(refusal, RecordsRejected)
    assert [error.batch_index for error in refusal.errors] == [count]
    assert steps < count // 10


@pytest.mark.skipif(not is_numba_installed(), reason="counts steps of Python: kernels have none")
@pytest.mark.parametrize("topic", [TOPIC, replace(TOPIC, cleanup_policy=frozenset({"compact"}))])
def test_of_many_records_at_fault_a_thousand_are_named(topic: TopicConfig) -> None:
    steps = []
    for count in (2_000, 2_000, 50_000):  # the first finds modules that are not imported
        records = [LogRecord(NOW + 86_400_000, None, b"")] * count
        found, refusal = work(Batch(build_batch(records, codec=Codec.ZSTD), 0), topic)
        assert isinstance(refusal, RecordsRejected)
        assert len(refusal.errors) == MAX_RECORD_ERRORS
        steps.append(found)
    assert steps[2] - steps[1] < 480, "nothing is done for each of the others"


@pytest.mark.parametrize("codec", PACKED, ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("target", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_memory_does_not_grow_with_what_a_batch_decompresses_to(codec: Codec, target: str) -> None:
    """One record of 24 MB of zeros: small as sent, and in any codec but snappy and none."""
    size = 24 << 20
    start = varint(0) + varint(0) + varint(-1) + varint(size)
    head = varint(1 + len(start) + size + 1) + b"\0" + start

    def pieces():
        yield head
        for _ in range(size >> 20):
            yield bytes(1 << 20)
        yield varint(0)

    sent = batch_of(codec, pieces(), 1, NOW)
    topic = replace(TOPIC, compression_type=target, max_message_bytes=1 << 20)

    def check() -> None:
        fits = target not in ("uncompressed", "snappy")
        with nullcontext() if fits else pytest.raises(RequestRefused, match="exceeds"):
            prepare(sent.data, topic, NOW)

    assert peak(check) < 8 << 20


@pytest.mark.parametrize("codec", [Codec.NONE, *PACKED], ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("name", EDGES)
def test_a_record_at_the_edge_of_its_numbers_is_refused_and_costs_nothing(
    name: str, codec: Codec
) -> None:
    sent = batch_of(codec, iter([EDGES[name]]), 1, NOW)

    def check() -> None:
        with pytest.raises(RequestRefused) as error:
            prepare(sent.data, TOPIC, NOW)
        assert error.value.code is ErrorCode.invalid_record

    check()  # what the first check imports is not the batch's
    assert peak(check) < 1 << 20


def test_streams_within_streams_are_bytes_like_any_others() -> None:
    """A bomb in a bomb: only the outer one is decompressed."""
    inner = flood(Codec.ZSTD, TINY, 16 << 20, NOW).data
    outer = Batch(
        build_batch([LogRecord(NOW, b"k", compress(Codec.ZSTD, inner))], codec=Codec.ZSTD), 0
    )
    seconds, refusal = cost(outer)
    assert refusal is None
    assert seconds < honest_cost(Codec.ZSTD)


def test_a_bomb_is_refused_when_it_has_reached_the_limit_and_not_later() -> None:
    bomb = flood(Codec.ZSTD, TINY, 64 << 20, NOW)
    assert len(bomb.data) < 64 << 10
    start = time.thread_time()
    with pytest.raises(RequestRefused) as error:
        prepare(bomb.data, TOPIC, NOW, max_uncompressed_bytes=1 << 20)
    assert error.value.code is ErrorCode.message_too_large
    assert time.thread_time() - start < 20 * honest_cost(Codec.ZSTD)


def test_lookups_in_a_batch_of_many_records_look_at_none_of_them_in_python(tmp_path: Path) -> None:
    """Before 1970 no index knows them, and a log that starts within the batch has no largest."""
    count = 100_000
    times = [NOW - 7, *[-5_000 - number % 3 for number in range(count)], NOW - 9]
    sent = build_batch([LogRecord(at, b"", None) for at in times], codec=Codec.ZSTD)
    with new_log(tmp_path / "log") as log:
        log.append(prepare(sent, TOPIC, NOW), NOW)
        log.delete_records(10)
        start = time.thread_time()
        before_1970 = log.find_by_timestamp(-4_999)
        largest = log.find_max_timestamp()
        seconds = time.thread_time() - start
    assert before_1970 is not None
    assert before_1970[:2] == (NOW - 9, count + 1)
    assert largest is not None
    assert largest[:2] == (NOW - 9, count + 1)
    assert seconds < 30 * honest_cost(Codec.ZSTD)
