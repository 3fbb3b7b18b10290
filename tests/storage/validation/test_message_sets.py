"""Topics that store v0 and v1 (KIP-31, KIP-32): what is in their logs and companion files."""

from __future__ import annotations

import itertools
import random
import zlib
from pathlib import Path
from typing import NamedTuple

import pytest
from examples import some_of
from faultyfiles import FaultyFiles
from old_messages import build_messages
from overrides import override
from plain_kernels import without_numba
from storelogs import (
    NOW,
    Truth,
    first_at_or_after,
    moments,
    new_log,
    partition_dir,
    records_in,
    reopened,
    snapshot_of,
    times_in,
)

from horolog.config import TopicConfig
from horolog.errors import (
    CorruptBatch,
    ErrorCode,
    RecordsRejected,
    RequestRefused,
    StorageFailed,
)
from horolog.record import (
    MESSAGE_KERNELS,
    PLAIN_KERNELS,
    Codec,
    LogRecord,
    TimeRange,
    TimestampType,
    UncompressedTooLarge,
    build_batch,
    iter_headers,
    messages_in,
    parse_header,
    read_with_create_times,
    verify_crc,
)
from horolog.storage import (
    Appended,
    Finding,
    Log,
    Reindexing,
    Severity,
    Verification,
    find_target,
    prepare,
)

OLD_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
APPEND_TIME = TimestampType.LOG_APPEND_TIME
TYPES = tuple(TimestampType)
MAX = 1 << 20
EVER = (1 << 63) - 1
ANY = {"message_timestamp_after_max_ms": EVER, "segment_ms": EVER}
ROWS = [
    LogRecord(NOW - 3, b"k0", b"v0"),
    LogRecord(NOW + 9, None, b"v1"),
    LogRecord(-5_000, b"k2", None),
    LogRecord(-1, b"", b""),
]


def config(magic: int, kind: TimestampType = TimestampType.CREATE_TIME, **more: object):
    return TopicConfig(message_format_version=magic, message_timestamp_type=kind, **{**ANY, **more})


def sent(rows: list[LogRecord], magic: int, codec: Codec = Codec.NONE) -> bytes:
    if magic == 2:
        return build_batch(rows, codec=codec)
    return build_messages(rows, magic, codec=codec)


def produce(log: Log, data: bytes, now_ms: int = NOW) -> Appended:
    version = 9 if data[16] == 2 else 2
    prepared = prepare(data, log.config, now_ms, partition=str(log), produce_version=version)
    return log.append(prepared, now_ms)


def stored(log: Log) -> bytes:
    return b"".join(Path(segment.log.path).read_bytes()[: segment.size] for segment in log.segments)


def expected_time(row: LogRecord, source: int, magic: int, kind: TimestampType, now_ms: int) -> int:
    if magic == 0:
        return -1
    if kind is APPEND_TIME:
        return now_ms
    return -1 if source == 0 else row.timestamp


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("source", [0, 1, 2])
@pytest.mark.parametrize("magic", [0, 1])
def test_every_format_that_is_sent_is_stored_in_the_topics(
    tmp_path: Path, magic: int, source: int, codec: Codec, kind: TimestampType
) -> None:
    with new_log(tmp_path, config(magic, kind)) as log:
        for at, now_ms in enumerate((NOW, NOW + 7)):
            appended = produce(log, sent(ROWS, source, codec), now_ms)
            assert (appended.base_offset, appended.last_offset) == (4 * at, 4 * at + 3)
            assert appended.log_append_time_ms == (now_ms if kind is APPEND_TIME else -1)
            remarks = appended.remarks
            assert (remarks is not None and remarks.is_converted) == (source != magic)
        data = stored(log)
        headers = [header for _, header in iter_headers(data)]
        assert {header.magic for header in headers} == {magic}
        assert {header.codec for header in headers} == {codec}
        assert len(headers) == (8 if codec is Codec.NONE else 2)
        for position, header in iter_headers(data):
            verify_crc(data, position, header)
            stamped = magic == 1 and kind is APPEND_TIME
            assert header.timestamp_type == (kind if stamped else TimestampType.CREATE_TIME)
        assert records_in(log) == [
            LogRecord(
                expected_time(row, source, magic, kind, now_ms), row.key, row.value, (), offset
            )
            for offset, (now_ms, row) in enumerate(itertools.product((NOW, NOW + 7), ROWS))
        ]


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_what_has_the_format_is_stored_to_the_byte_but_for_offsets(
    tmp_path: Path, magic: int, codec: Codec
) -> None:
    """What is compressed in v0 has absolute offsets in it, and is compressed again (KIP-31)."""
    with new_log(tmp_path, config(magic)) as log:
        data = sent(ROWS, magic, codec)
        produce(log, data)
        produce(log, data)
        if magic == 1 or codec is Codec.NONE:
            assert stored(log) == data + with_offsets(data, 4)
        inner = [
            b"".join(messages_in(message, parse_header(message), max_bytes=MAX))
            for message in messages(stored(log))
        ]
        assert b"".join(inner[: len(inner) // 2]) == b"".join(
            b"".join(messages_in(message, parse_header(message), max_bytes=MAX))
            for message in messages(data)
        )


def messages(data: bytes) -> list[bytes]:
    return [data[position : position + header.size] for position, header in iter_headers(data)]


def with_offsets(data: bytes, base: int) -> bytes:
    out = bytearray(data)
    for position, header in iter_headers(data):
        out[position : position + 8] = (header.last_offset + base).to_bytes(8, "big")
    return bytes(out)


def test_what_a_compressor_made_is_not_made_again(tmp_path: Path) -> None:
    packed = zlib.compressobj(level=1, wbits=31)
    inner = build_messages([LogRecord(5, b"k", bytes(9_000))] * 9, 1)
    payload = packed.compress(inner) + packed.flush()
    message = bytearray(build_messages([LogRecord(5, None, payload, (), 8)], 1))
    message[17] |= Codec.GZIP
    message[12:16] = zlib.crc32(message[16:]).to_bytes(4, "big")
    with new_log(tmp_path, config(1)) as log:
        produce(log, bytes(message))
        assert stored(log) == message
    with new_log(tmp_path / "stamped", config(1, APPEND_TIME)) as log:
        produce(log, bytes(message))
        data = stored(log)
        assert (data[:12], data[26:]) == (message[:12], message[26:])
        assert parse_header(data).max_timestamp == NOW
        assert [ms for _, ms in read_with_create_times(data)] == [5] * 9


def test_messages_that_are_not_numbered_from_zero_are_packed_anew(tmp_path: Path) -> None:
    """As producers of 0.8 and 0.9 number them, and some releases of librdkafka (KIP-31)."""
    far = [
        row._replace(offset=offset) for row, offset in zip(ROWS, (0, 7, 9, 1 << 40), strict=True)
    ]
    late = [row._replace(offset=offset) for row, offset in zip(ROWS, (3, 4, 5, 6), strict=True)]
    with new_log(tmp_path, config(1)) as log:
        for rows in (far[:3], late):
            produce(log, build_messages(rows, 1, codec=Codec.GZIP))
        assert [record.offset for record in records_in(log)] == list(range(7))


def test_plain_and_compressed_messages_become_one_compressed_message(tmp_path: Path) -> None:
    mixed = sent(ROWS[:2], 1) + sent(ROWS[2:], 1, Codec.GZIP) + sent(ROWS, 1, Codec.SNAPPY)
    with new_log(tmp_path, config(1)) as log:
        produce(log, mixed)
        (header,) = (header for _, header in iter_headers(stored(log)))
        assert header.codec is Codec.SNAPPY
        assert [record.timestamp for record in records_in(log)] == [
            row.timestamp for row in (*ROWS, *ROWS)
        ]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_topic_with_a_codec_of_its_own_stores_that(tmp_path: Path, magic: int) -> None:
    with new_log(tmp_path, config(magic, compression_type="gzip")) as log:
        for source in (0, 1, 2):
            produce(log, sent(ROWS, source, Codec.SNAPPY))
            produce(log, sent(ROWS, source))
        assert {header.codec for _, header in iter_headers(stored(log))} == {Codec.GZIP}
    with new_log(tmp_path / "plain", config(magic, compression_type="uncompressed")) as log:
        produce(log, build_batch(ROWS, codec=Codec.ZSTD))
        produce(log, sent(ROWS, magic, Codec.LZ4))
        assert {header.codec for _, header in iter_headers(stored(log))} == {Codec.NONE}
        assert len(records_in(log)) == 8


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_what_old_formats_cannot_hold_is_refused(tmp_path: Path, magic: int, codec: Codec) -> None:
    idempotent = build_batch(ROWS, codec=codec, producer_id=5, producer_epoch=0, base_sequence=0)
    transactional = build_batch(
        ROWS,
        codec=codec,
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    with_headers = build_batch([LogRecord(NOW, b"k", b"v", (("h", b"x"),))], codec=codec)
    with new_log(tmp_path, config(magic)) as log:
        for data in (idempotent, transactional, with_headers):
            with pytest.raises(RequestRefused) as refused:
                produce(log, data)
            assert refused.value.code is ErrorCode.unsupported_for_message_format
        with pytest.raises(RequestRefused) as refused:
            produce(log, build_batch(ROWS, codec=Codec.ZSTD))
        assert refused.value.code is ErrorCode.unsupported_compression_type
        assert log.log_end_offset == 0
        assert produce(log, sent(ROWS, 2, codec)).base_offset == 0


@pytest.mark.parametrize("source", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_damage_is_refused_and_nothing_of_it_is_kept(
    tmp_path: Path, source: int, codec: Codec
) -> None:
    with new_log(tmp_path, config(1)) as log:
        data = bytearray(sent(ROWS, source, codec))
        data[-1] ^= 1
        with pytest.raises(CorruptBatch):
            produce(log, bytes(data))
        assert (log.log_end_offset, log.size) == (0, 0)


@pytest.mark.parametrize("source", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
@pytest.mark.parametrize("magic", [0, 1])
def test_the_topics_rules_count_for_what_was_sent(
    tmp_path: Path, magic: int, codec: Codec, source: int
) -> None:
    with new_log(tmp_path, config(magic, message_timestamp_before_max_ms=10)) as log:
        data = sent([LogRecord(NOW, b"k", b"v"), LogRecord(NOW - 11, b"k", b"v")], source, codec)
        if source:
            with pytest.raises(RecordsRejected) as refused:
                produce(log, data)
            assert refused.value.code is ErrorCode.invalid_timestamp
            assert [error.batch_index for error in refused.value.errors] == [1]
        else:  # no times, no bounds
            produce(log, data)
        log.config = config(magic, cleanup_policy=frozenset({"compact"}))
        with pytest.raises(RecordsRejected) as refused:
            produce(
                log, sent([LogRecord(NOW, b"k", b"v"), LogRecord(NOW, None, b"v")], source, codec)
            )
        assert refused.value.code is ErrorCode.invalid_record
        assert [error.batch_index for error in refused.value.errors] == [1]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_producer_that_claims_append_times_is_refused(tmp_path: Path, magic: int) -> None:
    with new_log(tmp_path, config(magic)) as log:
        for codec in (Codec.NONE, Codec.GZIP):
            data = build_messages(ROWS, 1, codec=codec, timestamp_type=APPEND_TIME, append_time=NOW)
            with pytest.raises(RecordsRejected) as refused:
                produce(log, data)
            assert refused.value.code is ErrorCode.invalid_timestamp


def test_what_is_too_large_is_refused(tmp_path: Path) -> None:
    large = [LogRecord(NOW, None, random.Random(1).randbytes(3_000))]
    limits = {"max_message_bytes": 2_000, "segment_bytes": 9_000}
    for magic, source in itertools.product((0, 1), (0, 1, 2)):
        with new_log(tmp_path / f"{magic}{source}", config(magic, **limits)) as log:
            for data in (
                sent(large, source),
                sent(large, source, Codec.GZIP),
                sent([LogRecord(NOW, None, bytes(3_000))] * 4, source, Codec.GZIP),
            ):
                if len(data) > 2_000:
                    with pytest.raises(RequestRefused) as refused:
                        produce(log, data)
                    assert refused.value.code is ErrorCode.message_too_large
            # One by one they are small enough, but all together larger than a segment.
            small = [LogRecord(NOW, None, bytes(1_000))] * 10
            data = sent(small, source) if source < 2 else sent(small, 2, Codec.GZIP)
            log.config = config(magic, compression_type="uncompressed", **limits)
            with pytest.raises(RequestRefused) as refused:
                produce(log, data)
            assert refused.value.code is ErrorCode.record_list_too_large
            # A message that is small only as long as it is compressed.
            data = sent([LogRecord(NOW, None, bytes(2_500))], source, Codec.GZIP)
            with pytest.raises(RequestRefused) as refused:
                produce(log, data)
            assert refused.value.code is ErrorCode.message_too_large
            assert log.log_end_offset == 0


def test_what_an_append_has_to_compress_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets in v0 are absolute: what is compressed is made while the log waits for it."""
    override(monkeypatch, "horolog.storage", MAX_SET_BYTES=50_000)
    few = [LogRecord(NOW, None, bytes(30_000))]
    with new_log(tmp_path, config(0)) as log:
        for source in (0, 1, 2):
            produce(log, sent(few, source, Codec.GZIP))
            with pytest.raises(UncompressedTooLarge):
                produce(log, sent(few * 2, source, Codec.GZIP))
        assert len(records_in(log)) == 3


# Logs that live.


class Step(NamedTuple):
    magic: int
    kind: TimestampType
    source: int
    codec: Codec
    rows: list[LogRecord]


def some_steps(rng: random.Random, count: int) -> list[Step]:
    steps = []
    for at in range(count):
        rows = [
            LogRecord(
                rng.choice((NOW + 50 * at + rng.randrange(99), rng.randrange(-9_000, 9_000), -1)),
                rng.choice((None, b"k")),
                rng.choice((None, b"v" * rng.randrange(120))),
            )
            for _ in range(rng.choice((1, 1, 2, 7, 40)))
        ]
        steps.append(
            Step(
                rng.choice((0, 1, 1, 2)),
                rng.choice((*TYPES, TimestampType.CREATE_TIME)),
                rng.randrange(3),
                rng.choice((*OLD_CODECS, Codec.NONE)),
                rows,
            )
        )
    return steps


def live(
    log: Log, steps: list[Step], first_ms: int = NOW, **more: object
) -> list[tuple[Truth, int]]:
    """Append all of it; the true times of the records, and when they were appended."""
    truth = []
    for at, step in enumerate(steps):
        now_ms = first_ms + 100 * (at // 3)
        log.config = config(step.magic, step.kind, **more)
        produce(log, sent(step.rows, step.source, step.codec), now_ms)
        for row in step.rows:
            timed = 2 if step.magic == 2 and step.source == 2 else step.source
            if step.magic == 2:
                ms = now_ms if step.kind is APPEND_TIME else (row.timestamp if timed else -1)
            else:
                ms = expected_time(row, step.source, step.magic, step.kind, now_ms)
            truth.append((Truth(len(truth), ms), now_ms))
    return truth


def check(log: Log, truth: list[tuple[Truth, int]]) -> None:
    """Records, lookups by both clocks, and ranges of time are as they must be."""
    times = [each for each, _ in truth]
    start = log.log_start_offset
    assert times_in(log) == times[start:]
    for moment in moments(times):
        found = log.find_by_timestamp(moment)
        expected = first_at_or_after(times, moment, start)
        assert (found and (found.offset, found.timestamp)) == (expected and tuple(expected)), moment
    for ms in sorted({each for _, each in truth}):
        for asked in (ms, ms + 1):
            found = log.find_by_append_time(asked)
            expected = next(
                (
                    each.offset
                    for each, appended in truth
                    if each.offset >= start and appended >= asked
                ),
                None,
            )
            assert (found and found.offset) == expected
    known: list[int | None] = []
    stretches = log.append_times(start, log.log_end_offset)
    for stretch, following in itertools.zip_longest(stretches, stretches[1:]):
        end = log.log_end_offset if following is None else following.offset
        known += [stretch.ms] * (end - stretch.offset)
    assert known == [appended for _, appended in truth[start:]]
    for low, high in ((-9_000, -2), (0, 9_000), (NOW, NOW + 300)):
        inside = {each.offset for each in times[start:] if low <= each.timestamp <= high} - {
            each.offset for each in times if each.timestamp == -1
        }
        covered: set[int] = set()
        for segment in log.segments:
            spans = segment.blocks.spans(
                TimeRange(low, high), segment.size, segment.end.next_offset
            )
            for span in spans:
                covered |= set(range(span.base_offset, span.next_offset or log.log_end_offset))
        assert inside <= covered


def faults(path: Path) -> list[Finding]:
    return [
        step
        for step in Verification.of(path).steps()
        if isinstance(step, Finding) and step.severity is not Severity.NOTE
    ]


SMALL = {"index_interval_bytes": 300, "segment_bytes": 4_000}


@pytest.mark.parametrize("with_kernels", [True, False])
@pytest.mark.parametrize("case", some_of(range(12), 6))
def test_a_log_whose_format_changes_is_read_searched_and_recovered(
    tmp_path: Path, case: int, with_kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kernels in (MESSAGE_KERNELS, PLAIN_KERNELS):
        kernels.load()
        if not with_kernels:
            without_numba(kernels, monkeypatch)
    rng = random.Random(case)
    steps = some_steps(rng, 40)
    path = tmp_path / "log"
    with new_log(path, config(1, **SMALL)) as log:
        truth = live(log, steps, **SMALL)
        assert len(log.segments) > 2
        check(log, truth)
        killed = snapshot_of(path, tmp_path / "killed")
        log.delete_records(len(truth) // 3)
        check(log, truth)
    assert faults(killed) == []
    with reopened(killed, config(1, **SMALL)) as (_, log):  # as a kill left it
        check(log, truth)
        cut = 2 * len(truth) // 3
        log.truncate_to(cut, NOW + 100_000)
        del truth[log.log_end_offset :]
        assert cut - 41 < log.log_end_offset <= cut
        check(log, truth)
        log.roll(NOW + 100_000)
        check(log, truth)
        epoch, start = log.leader_epoch, log.log_end_offset
        assert epoch > 0
        later = live(log, some_steps(rng, 9), first_ms=NOW + 200_000, **SMALL)
        truth += [(each._replace(offset=each.offset + start), ms) for each, ms in later]
        check(log, truth)
    with reopened(killed, config(1, **SMALL)) as (_, log):
        check(log, truth)
        assert log.epochs.epoch_at(start) == epoch < log.leader_epoch
    assert all(fault.path.endswith(".cut") for fault in faults(killed))


@pytest.mark.parametrize("case", range(4))
def test_indexes_that_grow_are_those_that_are_rebuilt(tmp_path: Path, case: int) -> None:
    rng = random.Random(case)
    path = tmp_path / "log"
    with new_log(path, config(1, index_interval_bytes=200)) as log:
        live(log, some_steps(rng, 30), index_interval_bytes=200)
        log.roll(NOW)
        directory = partition_dir(path)
        grown = {
            name: (directory / f"{0:020d}{name}").read_bytes() for name in (".index", ".timeindex")
        }
        copy = snapshot_of(path, tmp_path / "copy")
    for name in grown:
        (partition_dir(copy) / f"{0:020d}{name}").unlink()
    list(Reindexing(find_target(copy), 200).steps())
    for name, content in grown.items():
        assert (partition_dir(copy) / f"{0:020d}{name}").read_bytes() == content, name
    assert len(grown[".index"]) > 80


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("source", [1, 2])
def test_a_disk_that_refuses_leaves_the_log_as_it_was(
    tmp_path: Path, source: int, kind: TimestampType
) -> None:
    many = [LogRecord(NOW + at, b"k", b"v" * 50) for at in range(40)]
    files = FaultyFiles(None)
    settings = config(1, kind, index_interval_bytes=100)
    with new_log(tmp_path / "log", settings, files=files) as log:
        truth = [(Truth(at, NOW if kind is APPEND_TIME else NOW + at), NOW) for at in range(40)]
        produce(log, sent(many, source))
        for fault_at in range(60):
            files.fail_after(fault_at, OSError(28, "No space left on device"))
            try:
                produce(log, sent(many, source), NOW + 1 + fault_at)
            except StorageFailed:
                files.heal()
                check(log, truth)
                continue
            break
        files.heal()
        assert fault_at > 3  # the messages are one write
        now_ms = NOW + 1 + fault_at
        truth += [
            (Truth(40 + at, now_ms if kind is APPEND_TIME else NOW + at), now_ms)
            for at in range(40)
        ]
        check(log, truth)
    with reopened(tmp_path / "log", settings) as (_, log):
        check(log, truth)
    assert faults(tmp_path / "log") == []


def test_a_kill_in_the_middle_of_a_set_leaves_whole_messages(tmp_path: Path) -> None:
    """Nothing was acknowledged; plain messages are batches of their own, as in Kafka."""
    with new_log(tmp_path / "log", config(1)) as log:
        produce(log, sent(ROWS, 1))
        produce(log, sent(ROWS * 5, 1))
        whole = snapshot_of(tmp_path / "log", tmp_path / "whole")
        content = (partition_dir(whole) / f"{0:020d}.log").read_bytes()
        ends = [position + header.size for position, header in iter_headers(content)]
    for cut in range(ends[3], len(content), 17):
        killed = snapshot_of(whole, tmp_path / f"killed-{cut}")
        with (partition_dir(killed) / f"{0:020d}.log").open("r+b") as file:
            file.truncate(cut)
        with reopened(killed, config(1)) as (_, log):
            assert log.log_end_offset == sum(end <= cut for end in ends)
            assert log.size == max(end for end in ends if end <= cut)
            assert [s.ms for s in log.append_times(0, log.log_end_offset)] == [NOW]


def test_an_index_without_room_ends_the_segment_and_no_sooner(tmp_path: Path) -> None:
    many = [LogRecord(NOW + at, None, b"v" * 30) for at in range(200)]
    settings = config(1, index_interval_bytes=0, segment_index_bytes=240)
    with new_log(tmp_path / "log", settings) as log:
        for _ in range(3):
            produce(log, sent(many, 1))
        assert [segment.base_offset for segment in log.segments] == [0, 200, 400]
        assert len(records_in(log)) == 600
        assert log.find_by_timestamp(NOW + 199) is not None
    with reopened(tmp_path / "log", settings) as (_, log):
        assert len(records_in(log)) == 600
    assert faults(tmp_path / "log") == []
