"""What a leader checks before it appends. Pure: the same answer for the same arguments.

The checks, their order, codes and texts are those of Kafka's produce path; where we
answer differently the reason is given there. One record that is refused
refuses its batch, and all records at fault are named (KIP-467).

A batch is stored as it was sent, but for its header, unless the topic asks for
another codec; then what was decompressed is compressed again, piece by piece.

A few hundred bytes of a client may decompress to millions of records. So nothing here is done
record by record in Python, but for the records that an error names; what is done for each is a
pass of `horolog.record.scan`.
"""

from struct import Struct
from typing import NamedTuple

from horolog.buffers import Buffer
from horolog.config import TopicConfig
from horolog.errors import (
    BatchRefused,
    CorruptBatch,
    ErrorCode,
    RecordError,
    RecordsRejected,
    RequestRefused,
)
from horolog.record.attempts import is_attempt, rows_digest
from horolog.record.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    pack_header,
    parse_header,
    verify_crc,
)
from horolog.record.compression import Codec, compress_chunks, fleeting_chunks
from horolog.record.conversion import batch_of_sent
from horolog.record.looks_like import looks_like
from horolog.record.scan import Fault, RecordFacts, find_faults, scan_batch
from horolog.record.timestamps import LOG_APPEND_TIME, NO_TIMESTAMP, TimestampType
from horolog.storage.attempts import Fences

MAX_UNCOMPRESSED_BYTES = 1 << 30
MAX_RECORD_ERRORS = 1_000
"""A hostile batch of a megabyte can hold millions of bad records; the answer names the first."""

_LENGTH = Struct(">i")
_CODECS = tuple(Codec)
_ZSTD = Codec.ZSTD.value  # the last one
_KEPT_BITS = 0x38  # timestamp type, transactional, control: what a rebuilt batch keeps
_ZSTD_SINCE_PRODUCE = 7
_LAST_OF_MESSAGES = 2  # the last version of Produce that may hold formats v0 and v1
_INT64_MAX = (1 << 63) - 1
_INT64_MIN = -(1 << 63)


class Prepared(NamedTuple):
    """A batch that may be appended; offsets, epoch and append time are still to be given."""

    header: BatchHeader
    batch: Buffer
    records: memoryview
    timestamp_type: TimestampType
    """What the topic's records carry; an append time is still to be given."""
    max_timestamp: int
    """True maximum of the records' timestamps, below zero too (KIP-228); -1 if none has one."""
    ahead_ms: int
    """How far that is ahead of the clock; 0 if it is not, or if an append time replaces it."""
    facts: RecordFacts
    """What the records say, by their producer's times."""
    digest: int | None = None
    """Of the rows of an exactly-once sink (`rows_digest`); None for all others."""


def prepare(
    batch: Buffer,
    config: TopicConfig,
    now_ms: int,
    *,
    partition: str = "",
    produce_version: int | None = None,
    max_uncompressed_bytes: int = MAX_UNCOMPRESSED_BYTES,
    fences: Fences | None = None,
) -> Prepared:
    """Check what a producer sent for one partition.

    Args:
        batch: the record set of the request; bytes after it that are no whole batch are ignored.
        config: the topic's settings.
        now_ms: the leader's clock, in milliseconds.
        partition: for texts, `topic-partition`.
        produce_version: of the request; None is the newest.
        max_uncompressed_bytes: what the records may decompress to.
        fences: the batches of exactly-once sinks: the timestamps of all attempts at one are
            checked against the time of its start, so that a retry is not refused for its age.

    Raises:
        RequestRefused: with Kafka's code and a sentence; BatchRefused where Kafka's log and not
            its request handler finds the fault.
        RecordsRejected: some records are at fault, and which (32 or 87).
        CorruptBatch: the checksum is wrong, or the header is no header (2).
    """
    if is_old_format(batch, produce_version):
        batch = _as_v2(batch, config, max_uncompressed_bytes)
    header = _only_batch(batch, produce_version)
    if header.base_offset != 0:
        raise _invalid(
            f"The baseOffset of the record batch in the append to {partition} should be 0, but it "
            f"is {header.base_offset}"
        )
    size = header.size
    _check_size(size, config, partition)
    verify_crc(batch, 0, header)
    codec = _codec(header, produce_version)
    _check_header(header)
    sent = memoryview(batch)[:size]
    facts = _scan(sent, header, max_uncompressed_bytes, now_ms)
    if not facts.dense_offsets:
        raise _invalid(
            "The offset deltas of the records in a batch must be 0, 1, 2 and so on, as its last "
            "offset delta and its count of records claim"
        )
    digest = None
    checked_ms = now_ms
    if is_attempt(header):
        digest = rows_digest(header, sent[HEADER_SIZE:], max_bytes=max_uncompressed_bytes)
        checked_ms = now_ms if fences is None else fences.now_ms(header, now_ms)
    errors = _record_errors(sent, header, facts, config, checked_ms, partition)
    if errors:
        raise _rejected(errors)
    if config.compression_type != "producer":
        target = _target_codec(config)
        if target is not codec:
            sent = memoryview(
                _packed_anew(sent, header, target, config, partition, max_uncompressed_bytes)
            )
            header = parse_header(sent)
    timestamp_type = config.message_timestamp_type
    largest = NO_TIMESTAMP if facts.max_timestamp is None else facts.max_timestamp
    ahead_ms = 0 if timestamp_type is LOG_APPEND_TIME or largest < now_ms else largest - now_ms
    records = sent[HEADER_SIZE:]
    return Prepared(header, sent, records, timestamp_type, largest, ahead_ms, facts, digest)


def is_old_format(records: Buffer, produce_version: int | None) -> bool:
    """Whether a producer sent messages of format v0 or v1, which versions 0 to 2 may hold.

    These versions may hold a batch of v2 as well, as in Kafka up to 3.9.
    """
    return (
        produce_version is not None
        and produce_version <= _LAST_OF_MESSAGES
        and len(records) > MAGIC_POSITION
        and records[MAGIC_POSITION] != MAGIC
    )


def _as_v2(messages: Buffer, config: TopicConfig, max_uncompressed_bytes: int) -> bytes:
    """The messages of a request as one batch, numbered from 0 (KIP-32, KIP-98).

    Kafka merges them as well, and refuses a batch that is larger than `max.message.bytes` then.
    """
    return batch_of_sent(
        messages,
        max_batch_bytes=max_uncompressed_bytes,
        max_bytes=min(config.max_message_bytes, config.segment_bytes),
    )


def _only_batch(records: Buffer, produce_version: int | None) -> BatchHeader:
    """The header of the one batch that a produce request may hold for a partition."""
    if not _is_whole(records, 0):
        raise _unfit(produce_version, "must have at least one record batch per partition")
    if records[MAGIC_POSITION] != MAGIC:
        raise _unfit(
            produce_version, "are only allowed to contain record batches with magic version 2"
        )
    header = parse_header(records)
    if _is_whole(records, header.size):
        raise _unfit(
            produce_version, "are only allowed to contain exactly one record batch per partition"
        )
    return header


def _unfit(produce_version: int | None, what: str) -> RequestRefused:
    version = "" if produce_version is None else f" with version {produce_version}"
    return RequestRefused(ErrorCode.invalid_record, f"Produce requests{version} {what}")


def _is_whole(records: Buffer, position: int) -> bool:
    """Whether a batch of any format is at a position; a length no batch has counts as one."""
    if len(records) - position <= MAGIC_POSITION:
        return False
    (length,) = _LENGTH.unpack_from(records, position + 8)
    return bool(length + LOG_OVERHEAD <= len(records) - position)


def _check_size(size: int, config: TopicConfig, partition: str) -> None:
    if size > config.max_message_bytes or size > config.segment_bytes:
        raise _too_large(size, config, partition)


def _too_large(size: int, config: TopicConfig, partition: str) -> RequestRefused:
    if size > config.max_message_bytes:
        return RequestRefused(
            ErrorCode.message_too_large,
            f"The record batch size in the append to {partition} is {size} bytes which exceeds "
            f"the maximum configured value of {config.max_message_bytes}.",
        )
    return RequestRefused(
        ErrorCode.record_list_too_large,
        f"Message batch size is {size} bytes in append to partition {partition} which exceeds "
        f"the maximum configured segment size of {config.segment_bytes}.",
    )


def _codec(header: BatchHeader, produce_version: int | None) -> Codec:
    """The codec; an unknown one is refused with 76, in Kafka with UNKNOWN_SERVER_ERROR (-1)."""
    number = header.codec_number
    if number < _ZSTD:
        return _CODECS[number]
    if number > _ZSTD:
        raise RequestRefused(
            ErrorCode.unsupported_compression_type,
            f"There is no compression codec {number}; Kafka has 0 none, 1 gzip, 2 snappy, 3 lz4 "
            "and 4 zstd",
        )
    if produce_version is not None and produce_version < _ZSTD_SINCE_PRODUCE:
        raise RequestRefused(
            ErrorCode.unsupported_compression_type,
            f"Produce requests with version {produce_version} are not allowed to use ZStandard "
            "compression",
        )
    return _CODECS[number]


def _check_header(header: BatchHeader) -> None:
    if header.last_offset_delta < 0:
        raise _invalid(
            f"Batch has an invalid offset range: its last offset delta is "
            f"{header.last_offset_delta}"
        )
    if header.records_count <= 0:
        raise _invalid(f"Invalid reported count for record batch: {header.records_count}")
    if header.last_offset_delta + 1 != header.records_count:
        raise _invalid(
            f"Inconsistent batch offset range [0, {header.last_offset_delta}] and count of records "
            f"{header.records_count}"
        )
    if header.is_control:
        raise _invalid("Clients are not allowed to write control records")
    if header.is_transactional:
        # What Kafka answers to a batch outside of a transaction; here there are none.
        raise BatchRefused(
            ErrorCode.invalid_txn_state,
            "This broker runs no transactions: produce without transactional.id",
        )
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise _invalid(
            f"Invalid sequence number {header.base_sequence} in record batch with producerId "
            f"{header.producer_id}"
        )


def _scan(batch: Buffer, header: BatchHeader, max_bytes: int, now_ms: int) -> RecordFacts:
    """The checksum holds, so nonsense inside is the producer's (87), not the wire's (2)."""
    try:
        return scan_batch(batch, header, max_bytes=max_bytes, arrival_ms=now_ms)
    except CorruptBatch as error:
        raise _invalid(str(error)) from error


def _record_errors(
    batch: Buffer,
    header: BatchHeader,
    facts: RecordFacts,
    config: TopicConfig,
    now_ms: int,
    partition: str,
) -> list[tuple[ErrorCode, RecordError]]:
    """The first records at fault, each with its first fault."""
    if header.timestamp_type is LOG_APPEND_TIME:
        return _claimed_append_times(facts)
    keyless = facts.has_null_key and "compact" in config.cleanup_policy
    untimely = _may_be_untimely(facts, config, now_ms)
    if not keyless and not untimely:
        return []
    bounds = (now_ms, config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms)
    faults = find_faults(
        batch, header, keys=keyless, times=bounds if untimely else None, limit=MAX_RECORD_ERRORS
    )
    return [_error_of(fault, config, now_ms, partition) for fault in faults]


def _claimed_append_times(facts: RecordFacts) -> list[tuple[ErrorCode, RecordError]]:
    """Refused whatever the topic's type, as KIP-32 asks and Kafka did up to 3.5.

    Since then a CreateTime topic lets such a batch in and calls the producer's claim a create
    time.
    """
    return [
        (
            ErrorCode.invalid_timestamp,
            RecordError(
                index,
                f"Invalid timestamp type in message with offset {index}. Producer should not "
                "set timestamp type to LogAppendTime.",
            ),
        )
        for index in range(min(facts.count, MAX_RECORD_ERRORS))
    ]


def _error_of(
    fault: Fault, config: TopicConfig, now_ms: int, partition: str
) -> tuple[ErrorCode, RecordError]:
    if fault.lacks_key:
        text = f"Compacted topic cannot accept message without key in topic partition {partition}."
        return ErrorCode.invalid_record, RecordError(fault.position, text)
    error = _out_of_range(fault.position, fault.timestamp, config, now_ms)
    return ErrorCode.invalid_timestamp, error


def _may_be_untimely(facts: RecordFacts, config: TopicConfig, now_ms: int) -> bool:
    if (
        config.message_timestamp_type is LOG_APPEND_TIME
        or facts.min_timestamp is None
        or facts.max_timestamp is None
    ):
        return False
    oldest = now_ms - facts.min_timestamp
    newest = facts.max_timestamp - now_ms
    return not (
        oldest <= config.message_timestamp_before_max_ms
        and newest <= config.message_timestamp_after_max_ms
    )


def _out_of_range(index: int, timestamp: int, config: TopicConfig, now_ms: int) -> RecordError:
    """Kafka's sentence, and a hint if the number makes sense in another unit.

    A limit beyond 64 bits is printed as the largest there is; Kafka prints it wrapped.
    """
    earliest = max(_INT64_MIN, now_ms - config.message_timestamp_before_max_ms)
    latest = min(_INT64_MAX, now_ms + config.message_timestamp_after_max_ms)
    hint = looks_like(timestamp)
    return RecordError(
        index,
        f"Timestamp {timestamp} of message with offset {index} is out of range. The timestamp "
        f"should be within [{earliest}, {latest}]" + (f". {hint}" if hint else ""),
    )


def _rejected(errors: list[tuple[ErrorCode, RecordError]]) -> RecordsRejected:
    """One error for the whole batch: a timestamp at fault decides over any other fault."""
    records = [error for _, error in errors]
    if any(code is ErrorCode.invalid_timestamp for code, _ in errors):
        text = "One or more records have been rejected due to invalid timestamp"
        return RecordsRejected(ErrorCode.invalid_timestamp, text, records)
    first = ", ".join(
        f"RecordError(batchIndex={error.batch_index}, message='{error.message}')"
        for error in records[:3]
    )
    text = (
        f"One or more records have been rejected due to {len(records)} record errors in total, "
        f"and only showing the first three errors at most: [{first}]"
    )
    return RecordsRejected(ErrorCode.invalid_record, text, records)


def _target_codec(config: TopicConfig) -> Codec:
    name = config.compression_type
    return Codec.NONE if name == "uncompressed" else Codec[name.upper()]


def _packed_anew(
    batch: Buffer,
    header: BatchHeader,
    target: Codec,
    config: TopicConfig,
    partition: str,
    max_uncompressed_bytes: int,
) -> bytes:
    """The same records in the topic's codec; never more is held than the topic takes.

    Kafka's builder refuses times before 1970 here (-1); ours keeps them (KIP-228).
    """
    room = min(config.max_message_bytes, config.segment_bytes) - HEADER_SIZE
    pieces = fleeting_chunks(
        header.codec, memoryview(batch)[HEADER_SIZE:], max_bytes=max_uncompressed_bytes
    )
    payload = compress_chunks(target, pieces, _level(target, config), max_bytes=room)
    if payload is None:
        raise _too_large(HEADER_SIZE + room + 1, config, partition)  # or larger
    header = header._replace(
        batch_length=HEADER_SIZE - LOG_OVERHEAD + len(payload),
        attributes=header.attributes & _KEPT_BITS | target,
    )
    return b"".join((pack_header(header, payload), payload))


def _level(codec: Codec, config: TopicConfig) -> int | None:
    match codec:
        case Codec.GZIP:
            return config.compression_gzip_level
        case Codec.LZ4:
            return config.compression_lz4_level
        case Codec.ZSTD:
            return config.compression_zstd_level
        case _:
            return None


def _invalid(message: str) -> BatchRefused:
    return BatchRefused(ErrorCode.invalid_record, message)
