"""Batches as other Kafka clients write and read them."""

import warnings

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from batches import AROUND_MS, BASE_OFFSET, GeneratedBatch, batches, make_batch
from hypothesis import given

from horolog.errors import CorruptBatch, RequestRefused
from horolog.record import (
    Codec,
    LogRecord,
    TimestampType,
    build_batch,
    parse_header,
    read_records,
    verify_crc,
)

with warnings.catch_warnings(action="ignore"):  # kafka-python still reads its schemas the old way
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

RECORDS = [
    LogRecord(AROUND_MS, b"key", b"value", (("trace", b"\x01\x02"), ("", None))),
    LogRecord(AROUND_MS - 3_600_000, None, b"v" * 9000, ()),
    LogRecord(AROUND_MS + 5, b"", None, (("höhe", b""),)),
    LogRecord(AROUND_MS + 4, None, None, ()),
]
# kafka-python reads snappy only with a library that we do not use.
KAFKA_PYTHON_CODECS = [codec for codec in Codec if codec is not Codec.SNAPPY]


@given(batch=batches(min_records=0))
def test_what_is_built_is_read_back_with_offsets_and_true_times(batch: GeneratedBatch):
    verify_crc(batch.data)
    header = parse_header(batch.data)
    assert header.size == len(batch.data)
    assert header.max_timestamp == batch.header_max_timestamp
    assert header.last_offset == batch.next_offset - 1
    assert tuple(read_records(batch.data)) == batch.records


@pytest.mark.parametrize("codec", list(Codec))
def test_aiokafka_reads_what_we_build(codec):
    batch = AioBatch(build_batch(RECORDS, base_offset=BASE_OFFSET, codec=codec))
    assert batch.validate_crc()
    assert batch.base_offset == BASE_OFFSET
    assert batch.max_timestamp == AROUND_MS + 5
    assert _seen(batch) == RECORDS


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
def test_kafka_python_reads_what_we_build(codec):
    batch = KafkaPythonBatch(build_batch(RECORDS, base_offset=BASE_OFFSET, codec=codec))
    assert batch.validate_crc()
    assert _seen(batch) == RECORDS


@pytest.mark.parametrize("codec", list(Codec))
def test_what_aiokafka_builds_is_read(codec):
    _assert_reads(_built(AioBuilder, codec), codec)


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
def test_what_kafka_python_builds_is_read(codec):
    _assert_reads(_built(KafkaPythonBuilder, codec), codec)


def _built(builder_type, codec: Codec) -> bytes:
    builder = builder_type(
        magic=2,
        compression_type=int(codec),
        is_transactional=1,
        producer_id=4711,
        producer_epoch=7,
        base_sequence=42,
        batch_size=1 << 20,
    )
    for index, record in enumerate(RECORDS):
        builder.append(
            index,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
    return bytes(builder.build())


def _assert_reads(data: bytes, codec: Codec) -> None:
    verify_crc(data)
    header = parse_header(data)
    assert header.codec is codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4711, 7, 42)
    assert header.is_transactional
    assert header.max_timestamp == AROUND_MS + 5
    assert list(read_records(data)) == [
        record._replace(offset=index) for index, record in enumerate(RECORDS)
    ]


def _seen(batch) -> list[LogRecord]:
    return [
        LogRecord(record.timestamp, record.key, record.value, tuple(record.headers))
        for record in batch
    ]


def test_a_batch_of_append_time_gives_every_record_the_same_time():
    batch = make_batch(RECORDS, append_time_ms=9)
    assert parse_header(batch.data).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in read_records(batch.data)] == [9] * 4
    assert [record.timestamp for record in AioBatch(batch.data)] == [9] * 4


def test_a_batch_emptied_by_compaction_has_a_header_and_no_more():
    data = build_batch([], base_offset=BASE_OFFSET, max_timestamp=77)
    header = parse_header(data)
    assert len(data) == 61
    assert (header.records_count, header.base_timestamp, header.max_timestamp) == (0, -1, 77)
    assert list(read_records(data)) == []


def test_all_fields_of_a_header_can_be_given():
    header = parse_header(
        build_batch(
            RECORDS,
            producer_id=4711,
            producer_epoch=7,
            base_sequence=42,
            leader_epoch=3,
            is_transactional=True,
            is_control=True,
            max_timestamp=1,
        )
    )
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4711, 7, 42)
    assert (header.leader_epoch, header.max_timestamp, header.last_sequence) == (3, 1, 45)
    assert header.is_transactional
    assert header.is_control


def test_header_keys_that_are_no_utf8_are_replaced_as_java_does():
    data = build_batch([LogRecord(1, b"k", b"v", (("hhhh", b"x"),))])
    data = data.replace(b"hhhh", b"h\xff\xe9h")
    (record,) = read_records(data)
    assert record.headers == (("h��h", b"x"),)


def test_reading_stops_at_the_bytes_it_may_hold():
    data = build_batch([LogRecord(1, None, bytes(5000))], codec=Codec.ZSTD)
    with pytest.raises(RequestRefused):
        list(read_records(data, max_bytes=5000))


@pytest.mark.parametrize("cut", [61, 62, 70, 100])
def test_a_batch_that_is_not_all_there_is_corrupt(cut):
    with pytest.raises(CorruptBatch, match=f"and {cut} are there"):
        list(read_records(build_batch(RECORDS)[:cut]))
