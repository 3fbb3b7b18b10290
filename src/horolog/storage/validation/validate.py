"""Check a batch before a leader appends it.

Pure: the same answer for the same arguments.

The checks, their order, codes and texts are those of Kafka's produce path; where we
answer differently the reason is given there. `rules` has those that are the same for all record
formats.

A batch is stored as it was sent, but for its header, unless the topic asks for another codec; then
what was decompressed is compressed again, piece by piece. Where the topic asks for format v0 or v1
(`message.format.version`), `message_sets` makes messages of it.

A few hundred bytes of a client may decompress to millions of records. So nothing here is done
record by record in Python, but for the records that an error names; what is done for each is a
pass of `horolog.record.scan`.
"""

from struct import Struct
from typing import NamedTuple

from horolog.buffers import Buffer
from horolog.config import TopicConfig
from horolog.errors import CorruptBatch, ErrorCode, RequestRefused
from horolog.record.batch import (
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL_BIT,
    BatchHeader,
    parse_header,
    restamp,
    verify_crc,
    with_records,
)
from horolog.record.compression import Codec, compress_chunks, fleeting_chunks
from horolog.record.old_format.sent import Sent
from horolog.record.scan import RecordFacts, find_faults, scan_batch, scan_plain
from horolog.record.stamped import StampedBatch
from horolog.record.timestamps import LOG_APPEND_TIME, NO_TIMESTAMP, TimestampType
from horolog.storage.producers.states import Admission
from horolog.storage.segments.numbered import Numbered
from horolog.storage.validation.message_sets import (
    MessageSet,
    most_uncompressed,
    refuse_in_messages,
    set_of_batch,
    set_of_sent,
)
from horolog.storage.validation.rules import (
    MAX_RECORD_ERRORS,
    check_size,
    codec_of,
    faults_to_find,
    invalid,
    level_of,
    refuse_records,
    target_codec,
    too_large,
)

MAX_UNCOMPRESSED_BYTES = 1 << 30

_LENGTH = Struct(">i")
_KEPT_BITS = 0x38  # timestamp type, transactional, control: what a rebuilt batch keeps
_LAST_OF_MESSAGES = 2  # the last version of Produce that may hold formats v0 and v1


class Prepared(NamedTuple):
    """A batch that may be appended; offsets, epoch and append time are still to be given."""

    header: BatchHeader
    batch: Buffer
    records: memoryview
    timestamp_type: TimestampType
    """Timestamp type of the topic's records; an append time is still to be given."""
    max_timestamp: int
    """True maximum of the records' timestamps, below zero too (KIP-228); -1 if none has one."""
    ahead_ms: int
    """How far that is ahead of the clock; 0 if it is not, or if an append time replaces it."""
    facts: RecordFacts
    """Facts of the records, by their producer's times."""
    messages: MessageSet | None = None
    """Messages that are stored in place of the batch, where the topic has format v0 or v1."""
    is_converted: bool = False
    """Whether the producer sent another format than is stored."""
    admission: Admission | None = None
    """Admission of a transactional batch to its transaction."""

    def numbered(self, base_offset: int, leader_epoch: int, append_ms: int) -> Numbered:
        """Return the stored batch, with offsets, epoch and, on a LogAppendTime topic, append time.

        Raises:
            RequestRefused: as `MessageSet.placed`.
        """
        # Read at once: each field by its name costs as much as all of them.
        header, sent, records, timestamp_type, timestamp, _, facts, messages, _, _ = self
        stamps, counts = timestamp_type is LOG_APPEND_TIME, facts.counts.tobytes()
        if messages is not None:
            return messages.numbered(base_offset, leader_epoch, append_ms, counts, stamps=stamps)
        if stamps:
            timestamp = append_ms
        stamped = restamp(
            header,
            sent,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            timestamp_type=timestamp_type,
            max_timestamp=timestamp,
        )
        return Numbered(
            (stamped, records),
            header.size,
            base_offset,
            base_offset + header.last_offset_delta,
            timestamp,
            leader_epoch,
            append_ms,
            counts,
            stamps,
        )


def prepare(
    batch: Buffer,
    config: TopicConfig,
    now_ms: int,
    *,
    stamp_ms: int | None = None,
    partition: str = "",
    produce_version: int | None = None,
    max_uncompressed_bytes: int = MAX_UNCOMPRESSED_BYTES,
    admission: Admission | None = None,
) -> Prepared:
    """Validate a producer's record set for one partition.

    Args:
        batch: the record set of the request; bytes after it that are no whole batch are ignored.
        now_ms: the leader's clock, in milliseconds.
        stamp_ms: the clock of append times, which may be ahead of that; None if it is not.
        produce_version: of the request; None is the newest.
        max_uncompressed_bytes: what the records may decompress to.
        admission: to a transaction; a transactional batch without one is refused (53).

    Raises:
        RequestRefused: with Kafka's code and a sentence; BatchRefused where Kafka's log and not
            its request handler finds the fault.
        RecordsRejected: some records are at fault, and which (32 or 87).
        CorruptBatch: the checksum is wrong, or the header is no header (2).
    """
    if stamp_ms is None:
        stamp_ms = now_ms
    plain = plain_header(batch, config, is_admitted=admission is not None)
    if plain is not None and type(batch) is bytes:
        verify_crc(batch, 0, plain)
        facts = scan_plain(batch, plain, arrival_ms=now_ms)
        if (
            facts is not None
            and facts.dense_offsets
            and faults_to_find(facts, config, now_ms, stamp_ms, claims_append_time=False) is None
        ):
            prepared = _prepared(plain, memoryview(batch), facts, config, now_ms)
            return prepared._replace(admission=admission) if plain.attributes else prepared
    return _prepare_carefully(
        batch,
        config,
        now_ms,
        stamp_ms,
        partition=partition,
        produce_version=produce_version,
        max_uncompressed_bytes=max_uncompressed_bytes,
        admission=admission,
    )


def trusted(batch: bytes, config: TopicConfig, now_ms: int) -> Prepared:
    """Prepare a batch that this broker has built, without a client's rules.

    Raises:
        RequestRefused: it is larger than a segment of the topic may be (18).
        CorruptBatch: it is no batch of format v2.
    """
    header = parse_header(batch)
    _check_size(header, config)
    facts = None
    if plain_header(batch, config) is not None:
        facts = scan_plain(batch, header, arrival_ms=now_ms)
    if facts is None:
        facts = scan_batch(batch, header, max_bytes=MAX_UNCOMPRESSED_BYTES, arrival_ms=now_ms)
    return _prepared(header, memoryview(batch), facts, config, now_ms)


def trusted_plain(built: StampedBatch, config: TopicConfig, now_ms: int) -> Prepared:
    """Prepare a batch whose facts are known, without reading its records.

    Raises:
        RequestRefused: as `trusted`.
    """
    header, batch, facts = built
    _check_size(header, config)
    return _prepared(header, memoryview(batch), facts, config, now_ms)


def _check_size(header: BatchHeader, config: TopicConfig) -> None:
    if header.size > config.segment_bytes:
        raise RequestRefused(
            ErrorCode.record_list_too_large,
            f"A batch of {header.size} bytes exceeds segment.bytes={config.segment_bytes}.",
        )


def plain_header(
    batch: Buffer, config: TopicConfig, *, is_admitted: bool = False
) -> BatchHeader | None:
    """Return the header of a batch that is stored unchanged; None if it needs more checks.

    One of a transaction does if it `is_admitted`.

    None says nothing: what is not this plain goes through the checks one by one. A test holds both
    ways to the same answers.
    """
    size = len(batch)
    if (
        size < HEADER_SIZE
        or size > config.max_message_bytes
        or size > config.segment_bytes
        or batch[MAGIC_POSITION] != MAGIC
        or _LENGTH.unpack_from(batch, 8)[0] + LOG_OVERHEAD != size
    ):
        return None
    header = parse_header(batch)
    offset, _, _, _, _, attributes, last_delta, *_, producer_id, _, sequence, count = header
    if (
        offset == 0  # create time, no codec, no control batch
        and (
            attributes == 0
            or (is_admitted and attributes == TRANSACTIONAL_BIT and producer_id >= 0)
        )
        and last_delta + 1 == count > 0
        and (producer_id < 0 or sequence >= 0)
        and config.message_format_version == MAGIC
        and config.compression_type == "producer"
    ):
        return header
    return None


def _prepare_carefully(
    batch: Buffer,
    config: TopicConfig,
    now_ms: int,
    stamp_ms: int,
    *,
    partition: str,
    produce_version: int | None,
    max_uncompressed_bytes: int,
    admission: Admission | None,
) -> Prepared:
    """Prepare a batch check by check."""
    stored = config.message_format_version
    max_uncompressed_bytes = most_uncompressed(config, max_uncompressed_bytes)
    is_old = is_old_format(batch, produce_version)
    if is_old:
        old = Sent(batch, max_batch_bytes=max_uncompressed_bytes)
        if stored != MAGIC:
            header, facts, to_store = set_of_sent(old, batch, config, now_ms, stamp_ms, partition)
            is_converted = old.magic != to_store.magic
            return _as_messages(header, facts, to_store, config, now_ms, is_converted=is_converted)
        # Kafka merges messages as well, and refuses a batch that is larger then (KIP-32, KIP-98).
        batch = old.as_batch(max_bytes=min(config.max_message_bytes, config.segment_bytes))
    header = _only_batch(batch, produce_version)
    if header.base_offset != 0:
        raise invalid(
            f"The baseOffset of the record batch in the append to {partition} should be 0, but it "
            f"is {header.base_offset}"
        )
    size = header.size
    check_size(size, config, partition)
    verify_crc(batch, 0, header)
    codec = codec_of(header, produce_version)
    target = target_codec(codec, config)
    if stored != MAGIC:
        refuse_in_messages(header, stored, partition)
    _check_header(header, admission)
    sent = memoryview(batch)[:size]
    facts = _scan(sent, header, max_uncompressed_bytes, now_ms)
    if not facts.dense_offsets:
        raise invalid(
            "The offset deltas of the records in a batch must be 0, 1, 2 and so on, as its last "
            "offset delta and its count of records claim"
        )
    if codec is not Codec.NONE and facts.longest > config.max_decompressed_message_bytes:
        raise invalid(
            f"A record of {facts.longest} bytes in a compressed batch exceeds "
            f"max.decompressed.message.bytes={config.max_decompressed_message_bytes}"
        )
    claims = header.timestamp_type is LOG_APPEND_TIME
    to_find = faults_to_find(facts, config, now_ms, stamp_ms, claims_append_time=claims)
    if to_find is not None:
        faults = find_faults(sent, header, to_find.keys, to_find.times, limit=MAX_RECORD_ERRORS)
        refuse_records(
            faults, facts, config, now_ms, stamp_ms, partition, claims_append_time=claims
        )
    if stored != MAGIC:
        messages = set_of_batch(sent, header, facts, config, partition, max_uncompressed_bytes)
        return _as_messages(header, facts, messages, config, now_ms, is_converted=True)
    if target is not codec:
        sent = memoryview(
            _packed_anew(sent, header, target, config, partition, max_uncompressed_bytes)
        )
        header = parse_header(sent)
    elif header.has_delete_horizon:
        # The cleaner alone says when tombstones go. (Kafka stores what the producer claims.)
        header = header._replace(attributes=header.attributes & ~DELETE_HORIZON_BIT)
        sent = memoryview(with_records(header, sent[HEADER_SIZE:]))
        header = parse_header(sent)
    prepared = _prepared(header, sent, facts, config, now_ms, is_converted=is_old)
    return prepared._replace(admission=admission) if header.is_transactional else prepared


def _prepared(
    header: BatchHeader,
    batch: memoryview,
    facts: RecordFacts,
    config: TopicConfig,
    now_ms: int,
    *,
    is_converted: bool = False,
) -> Prepared:
    timestamp_type = config.message_timestamp_type
    largest = NO_TIMESTAMP if facts.max_timestamp is None else facts.max_timestamp
    ahead_ms = 0 if timestamp_type is LOG_APPEND_TIME or largest < now_ms else largest - now_ms
    records = batch[HEADER_SIZE:]
    return tuple.__new__(  # the constructor takes three times as long
        Prepared,
        (
            header,
            batch,
            records,
            timestamp_type,
            largest,
            ahead_ms,
            facts,
            None,
            is_converted,
            None,
        ),
    )


def _as_messages(
    header: BatchHeader,
    facts: RecordFacts,
    messages: MessageSet,
    config: TopicConfig,
    now_ms: int,
    *,
    is_converted: bool,
) -> Prepared:
    """Convert a batch to the messages that the log stores. Records of v0 lose their times."""
    timestamp_type = config.message_timestamp_type
    facts = messages.facts(facts)
    largest = NO_TIMESTAMP if facts.max_timestamp is None else facts.max_timestamp
    ahead_ms = 0 if timestamp_type is LOG_APPEND_TIME or largest < now_ms else largest - now_ms
    return Prepared(
        header,
        b"",
        memoryview(b""),
        timestamp_type,
        largest,
        ahead_ms,
        facts,
        messages,
        is_converted,
    )


def is_old_format(records: Buffer, produce_version: int | None) -> bool:
    """Return True if a producer sent messages of format v0 or v1, as versions 0 to 2 may.

    These versions may hold a batch of v2 as well, as in Kafka up to 3.9.
    """
    return (
        produce_version is not None
        and produce_version <= _LAST_OF_MESSAGES
        and len(records) > MAGIC_POSITION
        and records[MAGIC_POSITION] != MAGIC
    )


def _only_batch(records: Buffer, produce_version: int | None) -> BatchHeader:
    """Return the header of the one batch that a produce request may hold for a partition."""
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
    """Return True if a batch at a position is whole, or has an impossible length."""
    if len(records) - position <= MAGIC_POSITION:
        return False
    (length,) = _LENGTH.unpack_from(records, position + 8)
    return bool(length + LOG_OVERHEAD <= len(records) - position)


def _check_header(header: BatchHeader, admission: Admission | None) -> None:
    if header.last_offset_delta < 0:
        raise invalid(
            f"Batch has an invalid offset range: its last offset delta is "
            f"{header.last_offset_delta}"
        )
    if header.records_count <= 0:
        raise invalid(f"Invalid reported count for record batch: {header.records_count}")
    if header.last_offset_delta + 1 != header.records_count:
        raise invalid(
            f"Inconsistent batch offset range [0, {header.last_offset_delta}] and count of records "
            f"{header.records_count}"
        )
    if header.is_control:
        raise invalid("Clients are not allowed to write control records")
    if header.is_transactional:
        if admission is None:
            raise RequestRefused(
                ErrorCode.transactional_id_authorization_failed,
                "Transactional records come with the transactional.id of their producer",
            )
        if header.producer_id < 0:
            raise invalid(f"Producer id {header.producer_id} cannot have a transaction")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise invalid(
            f"Invalid sequence number {header.base_sequence} in record batch with producerId "
            f"{header.producer_id}"
        )


def _scan(batch: Buffer, header: BatchHeader, max_bytes: int, now_ms: int) -> RecordFacts:
    """Scan records with a valid checksum, so that damage is the producer's fault (87)."""
    try:
        return scan_batch(batch, header, max_bytes=max_bytes, arrival_ms=now_ms)
    except CorruptBatch as error:
        raise invalid(str(error)) from error


def _packed_anew(
    batch: Buffer,
    header: BatchHeader,
    target: Codec,
    config: TopicConfig,
    partition: str,
    max_uncompressed_bytes: int,
) -> bytes:
    """Return the records compressed by the topic's codec, within the topic's size limit.

    Kafka's builder refuses times before 1970 here (-1); ours keeps them (KIP-228).
    """
    room = min(config.max_message_bytes, config.segment_bytes) - HEADER_SIZE
    pieces = fleeting_chunks(
        header.codec, memoryview(batch)[HEADER_SIZE:], max_bytes=max_uncompressed_bytes
    )
    payload = compress_chunks(target, pieces, level_of(target, config), max_bytes=room)
    if payload is None:
        raise too_large(HEADER_SIZE + room + 1, config, partition)  # or larger
    attributes = header.attributes & _KEPT_BITS | target
    return with_records(header._replace(attributes=attributes), payload)
