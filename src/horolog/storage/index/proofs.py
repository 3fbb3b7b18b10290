"""Proofs that the batch of an index entry is at the position that the entry names.

What a time entry says about all batches before its own is not proved here: see `Indexes.check`.
"""

from itertools import islice

from horolog.errors import CorruptBatch
from horolog.record.batch import HEADER_SIZE, SMALLEST_BATCH, BatchHeader, parse_header
from horolog.storage.batches.log_file import LogFile, TimeEntry
from horolog.storage.batches.reader import BatchReader
from horolog.storage.index.sparse import OffsetPosition

_BATCHES_OF_AN_APPEND = 1_000  # that one entry of a follower's index may be about


def points_to_its_batch(
    log: LogFile, base_offset: int, entry: OffsetPosition, log_size: int
) -> bool:
    """Return True if the batch of an offset entry begins at its position.

    Or after it: a follower of Kafka until 3.9 indexes the end of several batches that it
    appended at once, at the first of them.

    Args:
        log_size: bytes of the log that may be read.

    Raises:
        FileMissing: the log is gone.
    """
    if not 0 < entry.position <= log_size - SMALLEST_BATCH:
        return False
    try:
        size = min(HEADER_SIZE, log_size - entry.position)
        header = parse_header(
            log.files.read_at(log.open(), size, entry.position), least_offset=base_offset
        )
        if header.base_offset <= entry.offset <= header.last_offset:
            return True
        batches = log.batches(log_size).headers(entry.position)
        for _, header in islice(batches, _BATCHES_OF_AN_APPEND):
            if not base_offset <= header.base_offset <= entry.offset:
                return False
            if entry.offset <= header.last_offset:
                return True
    except CorruptBatch:
        pass
    return False


def batch_of_time_entry(
    log: BatchReader, entry: TimeEntry, start: int, within: int | None
) -> tuple[int, BatchHeader] | None:
    """Return position and header of the batch that a time entry names; None if no batch matches.

    That it is where the offset index says, or near, proves that index right as well.

    Args:
        start: where the offset index says that the batch is, or one before it.
        within: bytes after `start` in which the batch must begin; None for any number.
    """
    if not 0 <= start < log.size:
        return None
    try:
        found = log.find(start, entry.offset, within=within)
    except CorruptBatch:
        return None
    if found is None:
        return None
    _, header = found
    names_it = header.base_offset <= entry.offset and header.max_timestamp == entry.timestamp
    return found if names_it else None
