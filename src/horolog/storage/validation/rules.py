"""Rules by which a leader accepts records for a topic, whatever their format.

The checks, their order, codes and texts are those of Kafka's produce path. One record that is
refused refuses its batch, and all records at fault are named (KIP-467).
"""

from collections.abc import Sequence
from typing import NamedTuple

from horolog.config import TopicConfig
from horolog.errors import BatchRefused, ErrorCode, RecordError, RecordsRejected, RequestRefused
from horolog.record.batch import BatchHeader
from horolog.record.compression import Codec
from horolog.record.looks_like import looks_like, unit_of
from horolog.record.scan import Fault, RecordFacts
from horolog.record.timestamps import LOG_APPEND_TIME

MAX_RECORD_ERRORS = 1_000
"""A hostile batch of a megabyte can hold millions of bad records; the answer names the first."""

_CODECS = tuple(Codec)
_FAST_LZ4_LEVEL = 9  # KIP-390
_ZSTD = Codec.ZSTD.value  # the last one
_ZSTD_SINCE_PRODUCE = 7
_INT64_MAX = (1 << 63) - 1
_INT64_MIN = -(1 << 63)


CLOCK_AHEAD = "clock-ahead"
"""Reason of a refusal that the clock alone would not give: append times are ahead of it."""
RESET_ALL = "horolog topics reset-append-time --all"


class FaultChecks(NamedTuple):
    """Checks of each record for `find_faults`. Without either check all records are refused."""

    keys: bool
    times: tuple[int, int, int] | None


def check_size(size: int, config: TopicConfig, partition: str) -> None:
    """Refuse a batch that is larger than a batch or a segment of the topic may be (10, 18)."""
    if size > config.max_message_bytes or size > config.segment_bytes:
        raise too_large(size, config, partition)


def too_large(size: int, config: TopicConfig, partition: str) -> RequestRefused:
    """Error for a batch that exceeds `max.message.bytes`."""
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


def codec_of(header: BatchHeader, produce_version: int | None) -> Codec:
    """Return the codec of a batch; an unknown one is refused (76)."""
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


def faults_to_find(
    facts: RecordFacts,
    config: TopicConfig,
    now_ms: int,
    stamp_ms: int,
    *,
    claims_append_time: bool,
) -> FaultChecks | None:
    """Return the checks that records need one by one; None if the topic accepts all of them.

    Args:
        facts: about all of them, by their producer's times.
        now_ms: the leader's clock, from which `message.timestamp.after.max.ms` counts.
        stamp_ms: the clock of append times, from which `before.max.ms` counts: nothing may come in
            that the broker has called complete, also after its clock was set back. Never behind
            the other.
        claims_append_time: whether they say that their timestamps are append times.
    """
    if claims_append_time:
        return FaultChecks(False, None)
    keyless = facts.has_null_key and "compact" in config.cleanup_policy
    untimely = _may_be_untimely(facts, config, now_ms, stamp_ms)
    if not keyless and not untimely:
        return None
    earliest_ms = config.earliest_ms(stamp_ms)
    bounds = (
        _INT64_MIN if earliest_ms is None else max(_INT64_MIN, min(earliest_ms, _INT64_MAX)),
        now_ms,
        config.message_timestamp_after_max_ms,
    )
    return FaultChecks(keyless, bounds if untimely else None)


def refuse_records(
    faults: Sequence[Fault],
    facts: RecordFacts,
    config: TopicConfig,
    now_ms: int,
    stamp_ms: int,
    partition: str,
    *,
    claims_append_time: bool,
) -> None:
    """Raise an error that lists each faulty record with its first fault, if any record has one.

    Raises:
        RecordsRejected: which they are.
    """
    if claims_append_time:
        raise _rejected(_claimed_append_times(facts))
    if faults:
        raise _rejected([_error_of(fault, config, now_ms, stamp_ms, partition) for fault in faults])


def _claimed_append_times(facts: RecordFacts) -> "list[_Wrong]":
    """Refused whatever the topic's type, as KIP-32 asks and Kafka did up to 3.5.

    Since then a CreateTime topic lets such a batch in and calls the producer's claim a create
    time.
    """
    return [
        _Wrong(
            ErrorCode.invalid_timestamp,
            RecordError(
                index,
                f"Invalid timestamp type in message with offset {index}. Producer should not "
                "set timestamp type to LogAppendTime.",
            ),
            ("append-time", ""),
        )
        for index in range(min(facts.count, MAX_RECORD_ERRORS))
    ]


def _error_of(
    fault: Fault, config: TopicConfig, now_ms: int, stamp_ms: int, partition: str
) -> "_Wrong":
    if fault.lacks_key:
        text = f"Compacted topic cannot accept message without key in topic partition {partition}."
        return _Wrong(ErrorCode.invalid_record, RecordError(fault.position, text), ("no-key", ""))
    before_max_ms = config.message_timestamp_before_max_ms
    if now_ms - before_max_ms <= fault.timestamp < stamp_ms - before_max_ms:
        reason = CLOCK_AHEAD
    else:
        reason = "past" if fault.timestamp < now_ms else "future"
    error = _out_of_range(fault.position, fault.timestamp, config, now_ms, stamp_ms, reason)
    kind = reason, unit_of(fault.timestamp)
    return _Wrong(ErrorCode.invalid_timestamp, error, kind)


def _may_be_untimely(facts: RecordFacts, config: TopicConfig, now_ms: int, stamp_ms: int) -> bool:
    if (
        config.message_timestamp_type is LOG_APPEND_TIME
        or facts.min_timestamp is None
        or facts.max_timestamp is None
    ):
        return False
    oldest = stamp_ms - facts.min_timestamp
    newest = facts.max_timestamp - now_ms
    return not (
        oldest <= config.message_timestamp_before_max_ms
        and newest <= config.message_timestamp_after_max_ms
    )


def _out_of_range(
    index: int, timestamp: int, config: TopicConfig, now_ms: int, stamp_ms: int, reason: str
) -> RecordError:
    """Kafka's sentence, and a hint if the number makes sense in another unit, or a clock is wrong.

    A limit beyond 64 bits is printed as the largest there is; Kafka prints it wrapped.
    """
    earliest = max(_INT64_MIN, stamp_ms - config.message_timestamp_before_max_ms)
    latest = min(_INT64_MAX, now_ms + config.message_timestamp_after_max_ms)
    hint = looks_like(timestamp)
    if reason == CLOCK_AHEAD:
        hint = (
            f"It counts from the broker's last append time, which is {stamp_ms - now_ms} ms ahead "
            f"of its clock: `{RESET_ALL}` ends that"
        )
    return RecordError(
        index,
        f"Timestamp {timestamp} of message with offset {index} is out of range. The timestamp "
        f"should be within [{earliest}, {latest}]" + (f". {hint}" if hint else ""),
    )


class _Wrong(NamedTuple):
    """A fault of one record, and the kind under which metrics count it."""

    code: ErrorCode
    error: RecordError
    kind: tuple[str, str]


def _rejected(wrong: Sequence[_Wrong]) -> RecordsRejected:
    """Return one error for the whole batch. A faulty timestamp decides over other faults."""
    records, kinds = [fault.error for fault in wrong], [fault.kind for fault in wrong]
    if any(fault.code is ErrorCode.invalid_timestamp for fault in wrong):
        text = "One or more records have been rejected due to invalid timestamp"
        return RecordsRejected(ErrorCode.invalid_timestamp, text, records, kinds)
    first = ", ".join(
        f"RecordError(batchIndex={error.batch_index}, message='{error.message}')"
        for error in records[:3]
    )
    text = (
        f"One or more records have been rejected due to {len(records)} record errors in total, "
        f"and only showing the first three errors at most: [{first}]"
    )
    return RecordsRejected(ErrorCode.invalid_record, text, records, kinds)


def target_codec(sent: Codec, config: TopicConfig) -> Codec:
    """Return the codec to store with: the topic's, or the producer's if the topic keeps that.

    Raises:
        RequestRefused: zstd, which brokers of the inter-broker protocol cannot read (76).
    """
    name = config.compression_type
    if name == "producer":
        codec = sent
    else:
        codec = Codec.NONE if name == "uncompressed" else Codec[name.upper()]
    if codec is Codec.ZSTD and not config.may_store_zstd:
        raise RequestRefused(
            ErrorCode.unsupported_compression_type,
            "Produce requests to inter.broker.protocol.version < 2.1 broker are not allowed to use "
            "ZStandard compression",
        )
    return codec


def level_of(codec: Codec, config: TopicConfig) -> int | None:
    """Return the topic's level for a codec; None means the codec's default."""
    match codec:
        case Codec.GZIP:
            return config.compression_gzip_level
        case Codec.LZ4:
            # As in Kafka the default level is the fast compressor, and every other one LZ4 HC.
            level = config.compression_lz4_level
            return None if level == _FAST_LZ4_LEVEL else level
        case Codec.ZSTD:
            return config.compression_zstd_level
        case _:
            return None


def invalid(message: str) -> BatchRefused:
    """Return the error for a batch that Kafka's log refuses (87)."""
    return BatchRefused(ErrorCode.invalid_record, message)
