"""For every topic setting that is obeyed, the difference it makes."""

import os
import zlib
from functools import cache
from typing import Any

import lz4.frame
import pytest
import zstandard
from raw_connection import fetch_fields
from setting_checks import of_topic
from settings_lab import Trial

from horolog.clock import HOUR_MS
from horolog.record import (
    HEADER_SIZE,
    AppendTimeStretch,
    Codec,
    LogRecord,
    TimestampType,
    build_batch,
    parse_header,
    read_records,
)
from horolog.replication.leading import Leading
from horolog.schemas.metadata import PartitionRecord
from horolog.wire import ApiKey

INVALID_TIMESTAMP = 32
MESSAGE_TOO_LARGE = 10
INVALID_RECORD = 87
NOT_ENOUGH_REPLICAS = 19
EVER = str((1 << 63) - 1)


def one(timestamp_ms: int, value: bytes = b"v", codec: Codec = Codec.NONE) -> bytes:
    return build_batch([LogRecord(timestamp_ms, b"k", value)], codec=codec)


@of_topic("message.downconversion.enable", {"true": 0, "false": 35})
def what_a_client_gets_that_reads_format_v1(trial: Trial) -> int:
    trial.put_at(trial.now_ms)
    with trial.lab.connect() as connection:
        answer = connection.ask(ApiKey.FETCH, 2, **fetch_fields(trial.name, {0: 0}))
    return int(answer.responses[0].partitions[0].error_code)


@of_topic("message.format.version", {"0.9.0": 0, "0.10.2": 1, "2.8": 2})
def the_format_that_is_stored(trial: Trial) -> int:
    offset = trial.put_at(trial.now_ms).base_offset
    (header,) = (header for header in trial.headers() if header.last_offset == offset)
    return header.magic


# --- time -----------------------------------------------------------------------------------


@of_topic(
    "message.timestamp.type",
    {
        "CreateTime": (TimestampType.CREATE_TIME, -5),
        "LogAppendTime": (TimestampType.LOG_APPEND_TIME, 0),
    },
)
def whose_time_a_record_carries(trial: Trial) -> Any:
    offset = trial.put_at(trial.now_ms - 5).base_offset
    (header,) = (header for header in trial.headers() if header.base_offset == offset)
    return header.timestamp_type, header.max_timestamp - trial.now_ms


@of_topic("message.timestamp.before.max.ms", {"5000": 0, "4999": INVALID_TIMESTAMP, EVER: 0})
def what_becomes_of_a_record_five_seconds_old(trial: Trial) -> int:
    return trial.refusal(one(trial.now_ms - 5_000))


@of_topic("message.timestamp.after.max.ms", {"5000": 0, "4999": INVALID_TIMESTAMP, EVER: 0})
def what_becomes_of_a_record_five_seconds_ahead(trial: Trial) -> int:
    return trial.refusal(one(trial.now_ms + 5_000))


@of_topic("message.timestamp.difference.max.ms", {"5000": (0, 0), "4999": (INVALID_TIMESTAMP,) * 2})
def what_becomes_of_records_five_seconds_off(trial: Trial) -> tuple[int, int]:
    return what_becomes_of_a_record_five_seconds_old(
        trial
    ), what_becomes_of_a_record_five_seconds_ahead(trial)


# --- segments and indexes -------------------------------------------------------------------


@of_topic("segment.bytes", {"500": 3, "100000": 0})
def segments_begun_by_four_records_of_300_bytes(trial: Trial) -> int:
    return _segments_begun_by(trial, [(trial.now_ms, 300)] * 4)


@of_topic("internal.segment.bytes", {"500": 3, "100000": 0}, beside={"segment.bytes": "200000"})
def segments_begun_though_segment_bytes_says_otherwise(trial: Trial) -> int:
    return segments_begun_by_four_records_of_300_bytes(trial)


@of_topic(
    "segment.ms",
    {str(HOUR_MS): 1, str(HOUR_MS + 1): 0},
    log_roll_hours={"1": 1, "2": 0},
)
def segments_begun_by_records_an_hour_and_a_millisecond_apart(trial: Trial) -> int:
    start_ms = trial.now_ms - HOUR_MS - 1
    return _segments_begun_by(trial, [(start_ms, 1), (trial.now_ms, 1)])


@of_topic(
    "segment.jitter.ms",
    {"0": 0, str(HOUR_MS): 1},  # but once in 3,600,000 tries
    beside={"segment.ms": str(HOUR_MS)},
    log_roll_jitter_hours={"0": 0, "1": 1},
)
def segments_begun_by_records_exactly_an_hour_apart(trial: Trial) -> int:
    return _segments_begun_by(trial, [(trial.now_ms - HOUR_MS, 1), (trial.now_ms, 1)])


@of_topic(
    "segment.index.bytes",
    {"48": 4, "10485760": 0, "4": 19},  # 48 bytes are 6 offsets or 3 times and one in reserve
    beside={"index.interval.bytes": "0"},
)
def segments_begun_by_twenty_batches_that_are_all_indexed(trial: Trial) -> int:
    return _segments_begun_by(trial, [(trial.now_ms + at, 1) for at in range(20)])


@of_topic("index.interval.bytes", {"0": 9, "1000": 3, "100000": 0})
def entries_for_ten_batches_of_370_bytes(trial: Trial) -> int:
    trial.begin_segment()
    segment = trial.log.segments[-1]
    for at in range(10):
        trial.put_at(trial.now_ms + at, b"x" * 300)
    return len(segment.indexes.offsets.entries)


@of_topic("preallocate", {"true": 70_000, "false": 0}, beside={"segment.bytes": "70000"})
def length_of_a_segment_file_that_holds_nothing_yet(trial: Trial) -> int:
    trial.begin_segment()
    return os.stat(trial.log.segments[-1].log.path).st_size


def _segments_begun_by(trial: Trial, records: list[tuple[int, int]]) -> int:
    trial.begin_segment()
    before = trial.segments
    for timestamp_ms, size in records:
        trial.put_at(timestamp_ms, b"x" * size)
    return trial.segments - before


# --- keeping and deleting -------------------------------------------------------------------


@of_topic(
    "cleanup.policy",
    {"delete": 1, "": 0, "compact": 0, "compact,delete": 1},
    beside={"retention.ms": "1000"},
)
def segments_deleted_when_their_time_is_over(trial: Trial) -> int:
    trial.put_at(trial.now_ms)
    trial.advance(HOUR_MS)
    return trial.look_for_expired()


@of_topic(
    "horolog.retention.before.1970",
    {"false": 0, "true": 1},
    beside={"retention.ms": str(HOUR_MS)},
)
def whether_records_of_1969_expire_when_they_are_written(trial: Trial) -> Any:
    trial.advance(2 * HOUR_MS)
    trial.look_for_expired()  # what was there before is gone
    trial.put_at(-5_000)
    return trial.look_for_expired()


@of_topic(
    "horolog.retention.by",
    {"create-time": (1, 0), "append-time": (0, 1), "later": (0, 0)},
    beside={"retention.ms": str(HOUR_MS)},
)
def whether_a_backfill_and_what_holds_a_record_from_the_future_is_deleted(trial: Trial) -> Any:
    trial.advance(2 * HOUR_MS)
    trial.look_for_expired()  # what was there before is gone
    trial.put_at(trial.now_ms - 2 * HOUR_MS)
    backfill = trial.look_for_expired()
    trial.put_at(trial.now_ms + HOUR_MS // 2)
    trial.advance(HOUR_MS + 1)
    return backfill, trial.look_for_expired()


@of_topic(
    "horolog.roll.by",
    {"first-time": (1, 0), "largest-time": (0, 0), "append-time": (0, 1)},
    beside={"segment.ms": str(HOUR_MS)},
)
def segments_begun_an_hour_after_what_counts(trial: Trial) -> Any:
    last_ms = trial.now_ms
    by_records = _segments_begun_by(
        trial, [(last_ms - ago, 1) for ago in (5_400_000, 2_700_000, 0)]
    )
    trial.advance(HOUR_MS + 1)
    before = trial.segments
    trial.put_at(last_ms)
    return by_records, trial.segments - before


@of_topic(
    "horolog.seen.as.append.time",
    {"false": 0, "true": 1},
    beside={"horolog.retention.by": "append-time", "retention.ms": str(HOUR_MS)},
)
def whether_what_a_follower_saw_expires_by_append_time(trial: Trial) -> int:
    trial.lab.hang_up()
    seen = AppendTimeStretch(0, trial.now_ms, is_seen=True)
    data = build_batch([LogRecord(trial.now_ms, b"k", b"v")], base_offset=0)
    trial.lab.broker.restart_followed(trial.name, data, [seen])
    trial.advance(HOUR_MS + 1)
    return trial.look_for_expired()


@of_topic(
    "horolog.roll.idle",
    {"true": 1, "false": 0},
    beside={"segment.ms": str(HOUR_MS), "retention.ms": "-1"},
)
def segments_begun_when_nothing_is_appended_for_an_hour(trial: Trial) -> int:
    begun = _segments_begun_by(trial, [(trial.now_ms, 1)])
    trial.advance(HOUR_MS + 1)
    before = trial.segments
    trial.look_for_expired()
    return begun + trial.segments - before


@of_topic(
    "retention.ms",
    {str(HOUR_MS): 1, str(HOUR_MS + 1): 0, "-1": 0},
    log_retention_minutes={"60": 1, "61": 0, "-1": 0},
    log_retention_hours={"1": 1, "2": 0, "-1": 0},
)
def segments_deleted_an_hour_and_a_millisecond_later(trial: Trial) -> int:
    trial.put_at(trial.now_ms)
    trial.advance(HOUR_MS + 1)
    return trial.look_for_expired()


@of_topic("retention.bytes", {"0": 4, "800": 1, "-1": 0}, beside={"segment.bytes": "400"})
def segments_deleted_of_four_with_370_bytes(trial: Trial) -> int:
    trial.begin_segment()
    trial.log.delete_records(-1)
    trial.look_for_expired()
    for _ in range(4):
        trial.put_at(trial.now_ms, b"x" * 300)
    return trial.look_for_expired()


@of_topic("file.delete.delay.ms", {"1000": 0, "1001": 4}, beside={"retention.ms": "1000"})
def files_of_a_deleted_segment_a_second_later(trial: Trial) -> int:
    trial.put_at(trial.now_ms)
    trial.advance(HOUR_MS)
    assert trial.look_for_expired() == 1
    trial.advance(1_000)
    trial.tidy()
    return len(list(trial.directory.glob("*.deleted")))


# --- writing --------------------------------------------------------------------------------

_SIZE = len(one(0, b"x" * 500))
_TEXT = b" ".join(b"%d %d" % (n, n * n % 977) for n in range(4_000))


@of_topic("max.message.bytes", {str(_SIZE): 0, str(_SIZE - 1): MESSAGE_TOO_LARGE})
def what_becomes_of_a_batch_of_a_certain_size(trial: Trial) -> int:
    return trial.refusal(one(trial.now_ms, b"x" * 500))


@of_topic("min.insync.replicas", {"1": 0, "2": NOT_ENOUGH_REPLICAS})
def what_becomes_of_a_batch_while_one_replica_is_in_sync(trial: Trial) -> int:
    partition = trial.lab.broker.broker.led(trial.name, 0)

    async def lead() -> None:
        log = partition.log
        await partition.change(lambda log: log.become_leader(0, is_replicated=True))
        state = PartitionRecord(0, log.topic_id, (1, 2), (1,), (), (), 1, 0, 0, 1)
        partition.lead(
            Leading(
                1,
                state,
                lambda broker_id: None,
                log_end=log.log_end_offset,
                epoch_start=0,
                high_watermark=log.high_watermark,
                min_isr=log.config.min_insync_replicas,
                lag_max_ms=HOUR_MS,
                now_ms=0,
            )
        )

    trial.lab.broker.run(lead())
    return trial.refusal(one(trial.now_ms), acks=-1)


_LENGTH = 508  # of a record with a key of one byte and a value of 500, as the batch has it


@of_topic(
    "max.decompressed.message.bytes",
    {str(_LENGTH): [0, 0], str(_LENGTH - 1): [INVALID_RECORD, 0]},
)
def what_becomes_of_a_record_of_a_certain_size(trial: Trial) -> list[int]:
    """Compressed, and as it is: there the size of the batch is limited."""
    codecs = (Codec.GZIP, Codec.NONE)
    return [trial.refusal(one(trial.now_ms, b"x" * 500, codec)) for codec in codecs]


@of_topic(
    "compression.type",
    {
        "producer": [Codec.NONE, Codec.GZIP],
        "uncompressed": [Codec.NONE] * 2,
        "gzip": [Codec.GZIP] * 2,
        "snappy": [Codec.SNAPPY] * 2,
        "lz4": [Codec.LZ4] * 2,
        "zstd": [Codec.ZSTD] * 2,
    },
)
def codecs_that_two_batches_are_kept_in(trial: Trial) -> list[Codec]:
    kept = []
    for codec in (Codec.NONE, Codec.GZIP):
        offset = trial.put(one(trial.now_ms, b"x" * 500, codec)).base_offset
        assert offset is not None
        batch = bytes(trial.fetch(offset).records)
        kept.append(parse_header(batch).codec)
        assert [record.value for record in read_records(batch)] == [b"x" * 500]
    return kept


@cache
def _records() -> bytes:
    """The records of the batch below, as they are in it."""
    return one(0, _TEXT)[HEADER_SIZE:]


def _lz4(level: int) -> int:
    packed = lz4.frame.compress(
        _records(),
        compression_level=level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return len(packed)


def _zstd(level: int) -> int:
    return len(zstandard.ZstdCompressor(level=level).compress(_records()))


def _gzip(level: int) -> int:
    return len(zlib.compress(_records(), level, wbits=31))


@of_topic(
    "compression.gzip.level",
    {"1": _gzip(1), "9": _gzip(9), "-1": _gzip(6)},
    beside={"compression.type": "gzip"},
)
def packed_with_gzip(trial: Trial) -> int:
    return _packed_bytes(trial)


@of_topic(
    "compression.lz4.level",
    {"1": _lz4(1), "9": _lz4(0), "12": _lz4(12)},  # Kafka calls the fast compressor 9
    beside={"compression.type": "lz4"},
)
def packed_with_lz4(trial: Trial) -> int:
    return _packed_bytes(trial)


@of_topic(
    "compression.zstd.level",
    {"-50": -50, "3": 3, "19": 19},
    beside={"compression.type": "zstd"},
)
def packed_with_zstd(trial: Trial) -> int:
    packed = _packed_bytes(trial)  # in pieces: a few bytes more or less than at once
    level = min((-50, 3, 19), key=lambda level: abs(packed - _zstd(level)))
    assert packed == pytest.approx(_zstd(level), rel=0.005)
    return level


def _packed_bytes(trial: Trial) -> int:
    offset = trial.put(one(trial.now_ms, _TEXT)).base_offset
    assert offset is not None
    return parse_header(trial.fetch(offset).records).size - HEADER_SIZE


@of_topic("flush.messages", {"3": 0, "4": 3})
def records_not_flushed_after_three(trial: Trial) -> int:
    _flush(trial)
    trial.put(build_batch([LogRecord(trial.now_ms, None, b"v")] * 3))
    return _unflushed(trial)


@of_topic("flush.ms", {"1000": 0, EVER: 1})
def records_not_flushed_after_a_second(trial: Trial) -> int:
    tasks = trial.lab.broker.service.background_tasks
    now_ms = tasks.monotonic_ms() + HOUR_MS  # beyond what real time comes to meanwhile
    _flush(trial)
    trial.log.flush_due(now_ms)
    trial.put_at(trial.now_ms)
    real, tasks.monotonic_ms = tasks.monotonic_ms, lambda: now_ms + 1_000
    trial.lab.broker.run(tasks.flush())
    tasks.monotonic_ms = real
    return _unflushed(trial)


def _flush(trial: Trial) -> None:
    trial.log.flush()


def _unflushed(trial: Trial) -> int:
    return trial.log.log_end_offset - trial.log.recovery_point
