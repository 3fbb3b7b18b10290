"""Conversion to v0 or v1 of what a producer sends, where a topic stores these (KIP-31, KIP-32).

    sent      stored in v0                          stored in v1
    v0        as it is, if plain                    converted: no timestamps (-1)
    v1        converted: timestamps are dropped     as it is
    v2        converted: timestamps are dropped     converted

"As it is" are the bytes that were sent, but for offsets and the append time of a LogAppendTime
topic. What is not: compressed messages that are more than one, mixed with plain ones, not
numbered from 0 (KIP-31), or of another codec than the topic's. These, and all of v0, whose inner
offsets are absolute, are compressed again. That is what Kafka 0.10 to 3.9 does, and like them a
leader refuses what these formats cannot hold: idempotent and transactional batches (43), record
headers and zstd, where Kafka answers -1, by 43 and 76.

Times before 1970 are stored (KIP-228); Kafka's writer of v1 refuses them.
"""

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from horolog.buffers import Buffer
from horolog.config import TopicConfig
from horolog.errors import CorruptBatch, ErrorCode, RequestRefused
from horolog.record.batch import HEADER_SIZE, BatchHeader, parse_header
from horolog.record.compression import Codec
from horolog.record.conversion import open_batch
from horolog.record.old_format.plain import list_all, place_compressed, place_messages
from horolog.record.old_format.reading import MessageTooLong, OpenedBatch
from horolog.record.old_format.sent import Sent
from horolog.record.old_format.writing import write_messages
from horolog.record.scan import RecordFacts, find_faults, scan_records
from horolog.record.time_stats import LATENCY_BOUNDS, LATENCY_COUNT, NO_RECORDS, TimeStats
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.storage.segments.numbered import NO_PARTICULARS, Numbered, Particulars
from horolog.storage.validation.rules import (
    MAX_RECORD_ERRORS,
    check_size,
    faults_to_find,
    level_of,
    refuse_records,
    target_codec,
    too_large,
)

MAX_SET_BYTES: Final = 64 << 20
"""Plain messages that a small compressed batch may become; in v0 what is compressed may hold.

An append compresses messages of v0, because its offsets are in them, and must not take long.
"""


class MessageSet(NamedTuple):
    """Messages to be stored, but for their offsets and an append time."""

    magic: int
    """0 or 1."""
    records: int
    """How many there are."""
    is_compressed: bool
    """One message that holds the others; otherwise plain ones."""
    largest_time: int
    """Largest time of the records; -1 if none has a time, as in v0."""
    data: bytearray
    """The messages, which `placed` changes in place."""
    compress: Callable[[int], bytearray] | None = None
    """Makes them for a first offset, in place of `data`; may take long."""

    def placed(self, base_offset: int, append_time_ms: int | None) -> bytearray:
        """Return the messages with offsets from `base_offset` on.

        On a LogAppendTime topic all of v1 get `append_time_ms`.

        Raises:
            RequestRefused: it is larger than the topic takes (10), or has record headers (43); only
                where `compress` makes it.
        """
        if self.compress is not None:
            return self.compress(base_offset)
        if self.is_compressed:
            is_append_time = append_time_ms is not None
            time = self.largest_time if append_time_ms is None else append_time_ms
            last_offset = base_offset + self.records - 1
            place_compressed(
                self.data, self.magic, last_offset, time, is_append_time=is_append_time
            )
        else:
            placed = place_messages(self.data, self.magic, base_offset, append_time_ms)
            assert placed == self.records, "as many as were checked"
        return self.data

    def facts(self, sent: RecordFacts) -> RecordFacts:
        """Derive the facts of the stored records from those of the sent ones."""
        if self.magic:
            return sent
        counts = NO_RECORDS._replace(records=sent.count, untimed=sent.count).counts()
        return sent._replace(max_timestamp=None, min_timestamp=None, counts=counts)

    def numbered(
        self, base_offset: int, leader_epoch: int, append_ms: int, counts: bytes, *, stamps: bool
    ) -> Numbered:
        """Return the messages with their offsets and append time.

        Args:
            counts: bytes of the counts of the records' times, as they were sent.

        Raises:
            RequestRefused: as `placed`.
        """
        data = self.placed(base_offset, append_ms if stamps else None)
        stamps = stamps and self.magic > 0  # v0 has no times
        header = parse_header(data)
        parts: tuple[Buffer, ...] = (data,)
        messages = None
        if header.size == len(data):  # one message, compressed or not
            parts = bytes(data[:HEADER_SIZE]), memoryview(data)[HEADER_SIZE:]
        else:
            messages = list(list_all(data, header))
        if stamps and not self.is_compressed:
            # Plain messages that are stamped hold nothing but the append time (KIP-32).
            at_once = bisect_right(LATENCY_BOUNDS, 0)
            latencies = [self.records * (bucket == at_once) for bucket in range(LATENCY_COUNT)]
            both = (append_ms,) * 6
            counts = TimeStats(self.records, 0, 0, *both, tuple(latencies)).counts().tobytes()
        return Numbered(
            parts,
            len(data),
            base_offset,
            base_offset + self.records - 1,
            append_ms if stamps else self.largest_time,
            leader_epoch,
            append_ms,
            counts,
            stamps,
            NO_PARTICULARS if messages is None else Particulars(messages=messages),
        )


def refuse_in_messages(header: BatchHeader, magic: int, partition: str) -> None:
    """Refuse a batch of v2 whose header says that messages cannot store it.

    Raises:
        RequestRefused: it is of an idempotent or transactional producer (43), as in Kafka.
    """
    if not header.is_transactional and header.producer_id < 0:
        return
    kind = "Transactional" if header.is_transactional else "Idempotent"
    raise RequestRefused(
        ErrorCode.unsupported_for_message_format,
        f"{kind} records cannot be used with magic version {magic}, which {partition} stores "
        "(message.format.version); set enable.idempotence=false",
    )


def most_uncompressed(config: TopicConfig, max_uncompressed_bytes: int) -> int:
    """Return how many bytes may be decompressed for a topic."""
    if config.message_format_version == 0:
        return min(max_uncompressed_bytes, MAX_SET_BYTES)
    return max_uncompressed_bytes


def set_of_batch(
    batch: Buffer,
    header: BatchHeader,
    facts: RecordFacts,
    config: TopicConfig,
    partition: str,
    max_uncompressed_bytes: int,
) -> MessageSet:
    """Convert a checked batch of v2 to messages of the topic's format.

    Raises:
        RequestRefused: they have headers (43), are to be compressed with zstd (76), or are larger
            than the topic takes (10, 18).
    """
    codec = target_codec(header.codec, config)
    opened = partial(open_batch, batch, header, max_bytes=max_uncompressed_bytes)
    return _converted(opened, facts, codec, config, partition)


def set_of_sent(
    sent: Sent, messages: Buffer, config: TopicConfig, now_ms: int, stamp_ms: int, partition: str
) -> tuple[BatchHeader, RecordFacts, MessageSet]:
    """Check the messages that a producer of v0 or v1 sent; return their facts and the stored set.

    Args:
        messages: their bytes, as they came.

    Returns:
        The header that a batch of the records would have, what is known of the records by the times
        that were sent, and the messages to store.

    Raises:
        CorruptBatch: a checksum is wrong, or a message malformed (2).
        RecordsRejected: some records are at fault, and which (32 or 87).
        RequestRefused: it is larger than the topic takes (10, 18), or to be compressed with zstd.
    """
    check_size(sent.largest, config, partition)
    magic = config.message_format_version
    codec = target_codec(sent.codec, config)
    is_plain = not sent.compressed and codec is Codec.NONE
    may_keep = sent.magic == magic and (
        is_plain or (magic == 1 and sent.count == sent.compressed == 1 and codec is sent.codec)
    )
    facts = _facts_if_numbered(sent, now_ms) if may_keep and not is_plain else None
    keeps = may_keep and (is_plain or facts is not None)
    opened = sent.open()
    header = opened.header
    if facts is None:
        facts = scan_records(header, opened.pieces, arrival_ms=now_ms)
    header = header._replace(last_offset_delta=facts.count - 1, records_count=facts.count)
    claims = sent.claims_append_time
    to_find = faults_to_find(facts, config, now_ms, stamp_ms, claims_append_time=claims)
    if to_find is not None:
        again = sent.open().pieces
        faults = find_faults(
            b"", header, to_find.keys, to_find.times, limit=MAX_RECORD_ERRORS, records=again
        )
        refuse_records(
            faults, facts, config, now_ms, stamp_ms, partition, claims_append_time=claims
        )
    if not keeps:
        return header, facts, _converted(sent.open, facts, codec, config, partition)
    if sent.size > config.segment_bytes:
        raise _set_too_large(sent.size, config.segment_bytes, partition)
    largest = NO_TIMESTAMP if facts.max_timestamp is None else facts.max_timestamp
    data = bytearray(memoryview(messages)[: sent.size])
    return header, facts, MessageSet(magic, facts.count, not is_plain, largest, data)


def _facts_if_numbered(sent: Sent, now_ms: int) -> RecordFacts | None:
    """Return the facts of a compressed message; None unless numbered from 0 on."""
    try:
        opened = sent.open(renumber=False)
        if opened.header.base_offset:
            return None
        facts = scan_records(opened.header, opened.pieces, arrival_ms=now_ms)
    except CorruptBatch:
        return None  # too far apart for one batch; what else is wrong is found again
    return facts if facts.dense_offsets else None


def _converted(
    open_records: Callable[[], OpenedBatch],
    facts: RecordFacts,
    codec: Codec,
    config: TopicConfig,
    partition: str,
) -> MessageSet:
    magic = config.message_format_version
    largest = NO_TIMESTAMP if facts.max_timestamp is None or not magic else facts.max_timestamp
    write = partial(_write, open_records, codec, config, partition)
    if not magic and codec is not Codec.NONE:
        if codec is Codec.ZSTD:
            write(0)  # refuses it
        return MessageSet(magic, facts.count, True, largest, bytearray(), write)
    return MessageSet(magic, facts.count, codec is not Codec.NONE, largest, write(0))


def _write(
    open_records: Callable[[], OpenedBatch],
    codec: Codec,
    config: TopicConfig,
    partition: str,
    base_offset: int,
) -> bytearray:
    """Return the records as messages with offsets from `base_offset` on."""
    magic, is_plain = config.message_format_version, codec is Codec.NONE
    room = min(config.segment_bytes, MAX_SET_BYTES if is_plain else config.max_message_bytes)
    header, pieces = open_records()
    try:
        written = write_messages(
            magic,
            header._replace(base_offset=base_offset),
            pieces,
            codec=codec,
            level=level_of(codec, config),
            max_bytes=room,
        )
    except MessageTooLong:
        raise
    except RequestRefused as error:
        if error.code is not ErrorCode.message_too_large:
            raise
        if is_plain:
            raise _set_too_large(room + 1, room, partition) from None  # or larger
        raise too_large(room + 1, config, partition) from None
    if written.headers_lost:
        raise RequestRefused(
            ErrorCode.unsupported_for_message_format,
            f"Magic v{magic} does not support record headers, and {partition} stores it "
            "(message.format.version)",
        )
    if is_plain and len(written.messages) > config.max_message_bytes:
        for listed in list_all(written.messages, parse_header(written.messages)):
            ends = (*listed.positions[1:], listed.end)
            sizes = (end - at for at, end in zip(listed.positions, ends, strict=True))
            check_size(max(sizes), config, partition)
    return bytearray(written.messages)


def _set_too_large(size: int, limit: int, partition: str) -> RequestRefused:
    why = "converted at once" if limit == MAX_SET_BYTES else "in a segment"
    return RequestRefused(
        ErrorCode.record_list_too_large,
        f"The messages in an append to partition {partition} are {size} bytes or more, which "
        f"exceeds the maximum {why} of {limit}.",
    )
