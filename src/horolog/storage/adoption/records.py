"""Records of Kafka's internal topics; read, never written."""

from collections.abc import Iterator

from horolog.buffers import Buffer
from horolog.record.batch import BatchHeader
from horolog.record.builder import Record, read_records
from horolog.storage.batches.reader import EVERYTHING, BatchReader
from horolog.storage.files import Files


def records_in(files: Files, path: str, start: int = 0) -> Iterator[Record]:
    """The records of a log or a snapshot from an offset on, markers left out.

    Raises:
        CorruptBatch: the file is damaged, or ends too early.
        FileMissing, StorageFailed: it cannot be read.
    """
    for header, batch in batches_in(files, path, start):
        if header.is_control:
            continue
        for record in read_records(batch):
            if (record.offset or 0) >= start:
                yield record


def batches_in(files: Files, path: str, start: int = 0) -> Iterator[tuple[BatchHeader, Buffer]]:
    """The batches of a log or a snapshot that have records from an offset on.

    Raises:
        CorruptBatch, FileMissing, StorageFailed: as `records_in`.
    """
    log = BatchReader.of_file(files, path, EVERYTHING)
    for position, header in log.headers():
        if header.last_offset >= start:
            yield header, log.batch(position, header)
