"""What is wrong with one batch."""

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, RequestRefused
from horolog.record.batch import MAGIC, UNKNOWN_COUNT, BatchHeader
from horolog.record.compression import Codec
from horolog.record.scan import RecordFacts, scan_batch
from horolog.record.timestamps import LOG_APPEND_TIME, NO_TIMESTAMP

MAX_UNCOMPRESSED_BYTES = 1 << 30


def header_fault(header: BatchHeader) -> str | None:
    """What is impossible in a header, whatever the records are."""
    count, last = header.records_count, header.last_offset_delta
    if not 0 <= count <= last + 1 and not (header.magic != MAGIC and count == UNKNOWN_COUNT):
        return f"it claims {count} records within the {last + 1} offsets it covers"
    if header.base_offset < 0:
        return f"its base offset is {header.base_offset}"
    if header.leader_epoch < -1:
        return f"its leader epoch is {header.leader_epoch}"
    codec = header.codec_number
    if codec > (Codec.ZSTD if header.magic == MAGIC else Codec.LZ4):
        return f"there is no compression codec {codec}"
    return None


def records_fault(header: BatchHeader, batch: Buffer | None) -> str | RecordFacts:
    """What is wrong with the records of a batch whose header and checksum are good, or their facts.

    `batch` is None where it is too long to be in memory. The largest timestamp must be the
    records' own. Kafka writes -1 over records that are all from before 1970; compaction keeps
    it for a batch that it has emptied.
    """
    if batch is None:
        return f"its {header.size} bytes are too many for its records to be looked at"
    try:
        facts = scan_batch(batch, header, max_bytes=MAX_UNCOMPRESSED_BYTES, create_times=True)
    except (CorruptBatch, RequestRefused) as error:
        return str(error)
    if not facts.growing_offsets or facts.last_offset_delta > header.last_offset_delta:
        return "the offsets of its records do not grow within those it covers"
    largest = facts.max_timestamp
    claimed = header.max_timestamp
    if header.timestamp_type is LOG_APPEND_TIME or facts.count == 0:
        return facts
    if claimed == (NO_TIMESTAMP if largest is None else largest):
        return facts
    if claimed == NO_TIMESTAMP and largest is not None and largest < 0:
        return facts
    return f"its header says {claimed} for the largest timestamp and its records {largest}"
