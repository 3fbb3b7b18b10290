"""Each refusal with its code and text; what is stored of what was sent."""

from __future__ import annotations

from dataclasses import replace

import pytest
from batches import batch
from storelogs import APPEND_TIME, NOW

from horolog.config import LONG_MAX, TopicConfig
from horolog.errors import CorruptBatch, ErrorCode, RecordsRejected, RequestRefused
from horolog.record import (
    HEADER_SIZE,
    Codec,
    LogRecord,
    TimestampType,
    build_batch,
    compress,
    decompress,
    parse_header,
    read_records,
    verify_crc,
    with_records,
)
from horolog.record.record_bytes import record_bytes
from horolog.storage import Prepared, prepare

CONFIG = TopicConfig(message_timestamp_after_max_ms=3_600_000)


def refused(sent: bytes, config: TopicConfig = CONFIG, **more: object) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        prepare(sent, config, NOW, partition="events-3", **more)
    return caught.value


def rejected(sent: bytes, config: TopicConfig = CONFIG) -> RecordsRejected:
    error = refused(sent, config)
    assert isinstance(error, RecordsRejected)
    return error


def changed(sent: bytes, **fields: int) -> bytes:
    """The batch with other header fields, its checksum right."""
    header = parse_header(sent)._replace(**fields)
    return with_records(header, sent[HEADER_SIZE:])


def stored(prepared: Prepared) -> bytes:
    return bytes(prepared.batch)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_good_batch_is_kept_as_it_was_sent(codec: Codec) -> None:
    sent = batch(NOW, NOW + 5, NOW - 7, codec=codec)
    prepared = prepare(sent, CONFIG, NOW)
    assert stored(prepared) == sent
    assert prepared.records == sent[HEADER_SIZE:]
    assert prepared.max_timestamp == NOW + 5
    assert prepared.ahead_ms == 5
    assert prepared.timestamp_type is TimestampType.CREATE_TIME


# Shape.


@pytest.mark.parametrize("sent", [b"", b"\0" * 16, batch(NOW)[:-1], batch(NOW)[:40]])
def test_at_least_one_whole_batch_is_required(sent: bytes) -> None:
    error = refused(sent, produce_version=9)
    assert error.code is ErrorCode.invalid_record
    assert str(error) == (
        "Produce requests with version 9 must have at least one record batch per partition"
    )


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_only_format_v2_is_taken(magic: int) -> None:
    sent = batch(NOW)
    error = refused(sent[:16] + bytes([magic]) + sent[17:])
    assert error.code is ErrorCode.invalid_record
    assert "only allowed to contain record batches with magic version 2" in str(error)


def test_only_one_batch_is_taken() -> None:
    error = refused(batch(NOW) + batch(NOW))
    assert error.code is ErrorCode.invalid_record
    assert "exactly one record batch per partition" in str(error)


def test_an_incomplete_second_batch_is_skipped_as_kafka_does() -> None:
    sent = batch(NOW)
    assert stored(prepare(sent + sent[:-1], CONFIG, NOW)) == sent
    assert stored(prepare(sent + b"\0" * 10, CONFIG, NOW)) == sent


def test_the_base_offset_must_be_zero() -> None:
    error = refused(batch(NOW, base_offset=7))
    assert error.code is ErrorCode.invalid_record
    assert str(error) == (
        "The baseOffset of the record batch in the append to events-3 should be 0, but it is 7"
    )


@pytest.mark.parametrize("position", [21, 30, 61, -1])
def test_a_flipped_bit_is_a_corrupt_message(position: int) -> None:
    sent = bytearray(batch(NOW))
    sent[position] ^= 1
    with pytest.raises(CorruptBatch, match=r"stored crc = \d+, computed crc = \d+"):
        prepare(bytes(sent), CONFIG, NOW)


@pytest.mark.parametrize("length", [-1, 0, 13, 48])
def test_a_length_that_no_batch_has_is_a_corrupt_message(length: int) -> None:
    sent = batch(NOW)
    with pytest.raises(CorruptBatch):
        prepare(sent[:8] + length.to_bytes(4, "big", signed=True) + sent[12:], CONFIG, NOW)


def test_a_batch_of_exactly_the_largest_size_is_taken() -> None:
    sent = batch(NOW, value=b"v" * 300)
    assert prepare(sent, replace(CONFIG, max_message_bytes=len(sent)), NOW)
    error = refused(sent, replace(CONFIG, max_message_bytes=len(sent) - 1))
    assert error.code is ErrorCode.message_too_large
    assert str(error) == (
        f"The record batch size in the append to events-3 is {len(sent)} bytes which exceeds the "
        f"maximum configured value of {len(sent) - 1}."
    )


def test_a_batch_that_no_segment_can_hold_is_refused() -> None:
    sent = batch(NOW)
    assert prepare(sent, replace(CONFIG, segment_bytes=len(sent)), NOW)
    error = refused(sent, replace(CONFIG, segment_bytes=len(sent) - 1))
    assert error.code is ErrorCode.record_list_too_large


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"records_count": 0}, "Invalid reported count"),
        ({"records_count": -1}, "Invalid reported count"),
        ({"records_count": 3}, "Inconsistent batch offset range"),
        ({"last_offset_delta": 2}, "Inconsistent batch offset range"),
        ({"last_offset_delta": -1}, "invalid offset range"),
        ({"records_count": 3, "last_offset_delta": 2}, "premature EOF"),
        ({"records_count": 1, "last_offset_delta": 0}, "records still remaining"),
        ({"attributes": 0x20}, "Clients are not allowed to write control records"),
        ({"producer_id": 5, "producer_epoch": 0, "base_sequence": -1}, "Invalid sequence number"),
    ],
)
def test_an_inconsistent_batch_is_an_invalid_record(fields: dict[str, int], text: str) -> None:
    error = refused(changed(batch(NOW, NOW), **fields))
    assert error.code is ErrorCode.invalid_record
    assert text in str(error)


def test_nonsense_under_a_right_checksum_is_an_invalid_record() -> None:
    sent = batch(NOW, codec=Codec.ZSTD)
    payload = b"this is no zstd"
    header = parse_header(sent)._replace(batch_length=49 + len(payload))
    assert refused(with_records(header, payload)).code is ErrorCode.invalid_record


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_unsupported(codec: int) -> None:
    error = refused(changed(batch(NOW), attributes=codec))
    assert error.code is ErrorCode.unsupported_compression_type
    assert f"no compression codec {codec}" in str(error)


def test_zstd_needs_produce_version_7() -> None:
    sent = batch(NOW, codec=Codec.ZSTD)
    assert prepare(sent, CONFIG, NOW, produce_version=7)
    error = refused(sent, produce_version=6)
    assert error.code is ErrorCode.unsupported_compression_type


def test_transactional_batches_without_a_transactional_id_are_refused() -> None:
    sent = batch(NOW, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    error = refused(sent)
    assert error.code is ErrorCode.transactional_id_authorization_failed
    assert "transactional.id" in str(error)


def test_a_bomb_is_refused_before_it_is_held() -> None:
    sent = batch(NOW, codec=Codec.ZSTD, value=b"\0" * 5_000_000)
    error = refused(sent, max_uncompressed_bytes=1_000_000)
    assert error.code is ErrorCode.message_too_large


# Times (KIP-32, KIP-937).


@pytest.mark.parametrize(
    ("timestamp", "taken"),
    [
        pytest.param(NOW - 86_400_000, True, id="exactly as old as allowed"),
        pytest.param(NOW - 86_400_001, False, id="a millisecond older"),
        pytest.param(NOW + 3_600_000, True, id="exactly as far ahead as allowed"),
        pytest.param(NOW + 3_600_001, False, id="a millisecond further"),
        pytest.param(-1, True, id="no timestamp is always taken"),
        pytest.param(-2, False, id="before 1970 is older than a day"),
        pytest.param(-(1 << 63), False, id="wraps around to the far future, as Java's"),
        pytest.param((1 << 63) - 1, False, id="the largest there is"),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_bounds_are_inclusive(timestamp: int, taken: bool, codec: Codec) -> None:
    config = replace(CONFIG, message_timestamp_before_max_ms=86_400_000)
    sent = batch(NOW, timestamp, codec=codec)
    if taken:
        assert prepare(sent, config, NOW)
        return
    error = rejected(sent, config)
    assert error.code is ErrorCode.invalid_timestamp
    assert str(error) == "One or more records have been rejected due to invalid timestamp"
    assert [record.batch_index for record in error.errors] == [1]


def test_the_smallest_time_passes_an_unlimited_future_as_in_kafka() -> None:
    """now - (-2^63) wraps to the far future, so the unlimited past is not what decides."""
    unlimited = replace(CONFIG, message_timestamp_after_max_ms=LONG_MAX)
    assert prepare(batch(-(1 << 63)), unlimited, NOW).max_timestamp == -(1 << 63)
    assert rejected(batch(-(1 << 63))).code is ErrorCode.invalid_timestamp


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_no_time_is_too_early_for_a_bound_and_let_in_as_the_far_future(codec: Codec) -> None:
    """Kafka's difference wraps, and lets it in where the future is unlimited."""
    config = replace(
        CONFIG, message_timestamp_after_max_ms=LONG_MAX, message_timestamp_before_max_ms=1_000
    )
    error = rejected(batch(NOW, -(1 << 63), NOW - 1_001, codec=codec), config)
    assert [record.batch_index for record in error.errors] == [1, 2]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_the_past_counts_from_append_times_that_are_ahead_and_the_future_from_the_clock(
    codec: Codec,
) -> None:
    config = replace(CONFIG, message_timestamp_before_max_ms=60_000)
    stamp_ms = NOW + 600_000
    assert prepare(batch(NOW + 540_000, codec=codec), config, NOW, stamp_ms=stamp_ms)
    sent = batch(NOW + 539_999, NOW - 60_001, NOW + 3_600_001, codec=codec)
    with pytest.raises(RecordsRejected) as caught:
        prepare(sent, config, NOW, stamp_ms=stamp_ms)
    assert caught.value.code is ErrorCode.invalid_timestamp
    assert [reason for reason, _ in caught.value.kinds] == ["clock-ahead", "past", "future"]
    ahead, past, _ = caught.value.errors
    assert f"within [{NOW + 540_000}, {NOW + 3_600_000}]" in ahead.message
    assert "600000 ms ahead of its clock: `horolog topics reset-append-time --all`" in (
        ahead.message
    )
    assert "reset-append-time" not in past.message


def test_a_rejected_record_gets_kafkas_error_text() -> None:
    config = replace(CONFIG, message_timestamp_before_max_ms=1000)
    (error,) = rejected(batch(NOW, NOW - 1001), config).errors
    assert error.message == (
        f"Timestamp {NOW - 1001} of message with offset 1 is out of range. The timestamp should "
        f"be within [{NOW - 1000}, {NOW + 3_600_000}]"
    )


@pytest.mark.parametrize(
    ("timestamp", "unit"),
    [(NOW // 1000, "seconds"), (NOW * 1000, "microseconds"), (NOW * 1_000_000, "nanoseconds")],
)
def test_a_rejected_record_in_another_unit_gets_a_hint(timestamp: int, unit: str) -> None:
    config = replace(CONFIG, message_timestamp_before_max_ms=86_400_000)
    (error,) = rejected(batch(timestamp), config).errors
    assert f"]. The value looks like {unit} (2023-11-14 22:13:20 UTC)" in error.message


def test_every_bad_record_is_named_and_the_whole_batch_refused() -> None:
    config = replace(CONFIG, message_timestamp_before_max_ms=1000)
    error = rejected(batch(NOW - 2000, NOW, NOW + 4_000_000, NOW - 1001), config)
    assert [record.batch_index for record in error.errors] == [0, 2, 3]


def test_an_append_time_topic_has_no_bounds() -> None:
    config = replace(
        APPEND_TIME, message_timestamp_before_max_ms=0, message_timestamp_after_max_ms=0
    )
    prepared = prepare(batch(0, 1 << 60), config, NOW)
    assert prepared.timestamp_type is TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize("config", [CONFIG, APPEND_TIME], ids=["CreateTime", "LogAppendTime"])
def test_a_producer_may_not_claim_log_append_time(config: TopicConfig) -> None:
    sent = batch(NOW, NOW, timestamp_type=TimestampType.LOG_APPEND_TIME)
    error = rejected(sent, config)
    assert error.code is ErrorCode.invalid_timestamp
    assert [record.batch_index for record in error.errors] == [0, 1]
    assert "Producer should not set timestamp type to LogAppendTime." in error.errors[0].message


def test_a_wrong_largest_timestamp_in_the_header_is_put_right() -> None:
    sent = changed(batch(NOW, NOW + 9, NOW + 3), max_timestamp=NOW + 777_777_777)
    assert prepare(sent, CONFIG, NOW).max_timestamp == NOW + 9


@pytest.mark.parametrize(
    ("times", "expected"),
    [((-1, -1), -1), ((-5000,), -5000), ((-1, -5000), -5000), ((-5000, 0), 0)],
)
def test_the_largest_timestamp_is_true_before_1970_too(
    times: tuple[int, ...], expected: int
) -> None:
    assert prepare(batch(*times), CONFIG, NOW).max_timestamp == expected


def test_how_far_ahead_a_batch_is_is_reported() -> None:
    assert prepare(batch(NOW + 3_600_000, NOW), CONFIG, NOW).ahead_ms == 3_600_000
    assert prepare(batch(NOW - 5), CONFIG, NOW).ahead_ms == 0
    assert prepare(batch(-1), CONFIG, NOW).ahead_ms == 0


# Keys.


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    config = replace(CONFIG, cleanup_policy=frozenset({"compact", "delete"}))
    records = [LogRecord(NOW, key, b"v") for key in (b"k", None, b"", None, None, None)]
    sent = build_batch(records)
    assert prepare(sent, CONFIG, NOW)
    error = rejected(sent, config)
    assert error.code is ErrorCode.invalid_record
    assert [record.batch_index for record in error.errors] == [1, 3, 4, 5]
    assert error.errors[0].message == (
        "Compacted topic cannot accept message without key in topic partition events-3."
    )
    assert "due to 4 record errors in total, and only showing the first three" in str(error)
    assert str(error).count("batchIndex=") == 3


def test_one_bad_time_among_bad_keys_decides_the_code() -> None:
    config = replace(
        CONFIG, cleanup_policy=frozenset({"compact"}), message_timestamp_before_max_ms=1000
    )
    records = [
        LogRecord(NOW, None, b"v"),
        LogRecord(NOW - 2000, b"k", b"v"),
        LogRecord(NOW, b"k", b"v"),
    ]
    error = rejected(build_batch(records), config)
    assert error.code is ErrorCode.invalid_timestamp
    assert [record.batch_index for record in error.errors] == [0, 1]


# Codecs.


@pytest.mark.parametrize("sent_codec", list(Codec))
@pytest.mark.parametrize("name", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_with_a_codec_of_its_own_gets_it(sent_codec: Codec, name: str) -> None:
    target = Codec.NONE if name == "uncompressed" else Codec[name.upper()]
    times = (-5000, -1, NOW, 0)
    sent = batch(*times, codec=sent_codec, producer_id=9, producer_epoch=2, base_sequence=4)
    prepared = prepare(sent, replace(CONFIG, compression_type=name), NOW)
    header = parse_header(prepared.batch)
    verify_crc(prepared.batch)
    assert header.codec is target
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 4)
    assert [record[:-1] for record in read_records(prepared.batch)] == [
        record[:-1] for record in read_records(sent)
    ]
    assert (stored(prepared) == sent) == (sent_codec is target)


def test_another_level_does_not_cause_recompression() -> None:
    sent = batch(NOW, codec=Codec.GZIP, value=b"v" * 1000)
    config = replace(CONFIG, compression_type="gzip", compression_gzip_level=9)
    assert stored(prepare(sent, config, NOW)) == sent


def test_the_topics_level_is_used() -> None:
    value = bytes(range(256)) * 40
    sizes = {
        level: len(
            prepare(
                batch(NOW, value=value),
                replace(CONFIG, compression_type="gzip", compression_gzip_level=level),
                NOW,
            ).batch
        )
        for level in (1, 9)
    }
    assert sizes[9] < sizes[1]


@pytest.mark.parametrize("target", ["producer", "gzip", "uncompressed"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("deltas", [[0, 0, 0], [0, 2, 4], [-1, 0, 1], [2, 1, 0], [1, 2, 3]])
def test_offset_deltas_other_than_0_1_2_are_refused(
    deltas: list[int], codec: Codec, target: str
) -> None:
    """Kafka stores them in uncompressed batches, and throws for compressed ones."""
    records = b"".join(record_bytes(0, delta, b"key", b"value", ()) for delta in deltas)
    body = compress(codec, records)
    header = parse_header(batch(NOW, codec=codec))._replace(
        batch_length=49 + len(body), records_count=3, last_offset_delta=2
    )
    error = refused(with_records(header, body), replace(CONFIG, compression_type=target))
    assert error.code is ErrorCode.invalid_record
    assert "must be 0, 1, 2" in str(error)


def test_a_rebuilt_batch_must_fit_too() -> None:
    sent = batch(NOW, codec=Codec.ZSTD, value=b"v" * 10_000)
    config = replace(CONFIG, compression_type="uncompressed", max_message_bytes=5000)
    assert refused(sent, config).code is ErrorCode.message_too_large
    assert len(decompress(Codec.ZSTD, sent[HEADER_SIZE:], max_bytes=20_000)) > 5000
    config = replace(CONFIG, compression_type="uncompressed", segment_bytes=5000)
    assert refused(sent, config).code is ErrorCode.record_list_too_large
