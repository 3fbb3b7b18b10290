"""Records of Kafka's internal topics; read, never written."""

from collections.abc import Iterator

from horolog.buffers import Buffer
from horolog.record.batch import BatchHeader
from horolog.record.builder import Record, read_records
from horolog.storage.batches.reader import EVERYTHING, BatchReader
from horolog.storage.files import Files


def records_in(files: Files, path: str) -> Iterator[Record]:
    """The records of a log or a snapshot, markers left out.

    Raises:
        CorruptBatch: the file is damaged, or ends too early.
        FileMissing, StorageFailed: it cannot be read.
    """
    for header, batch in batches_in(files, path):
        if not header.is_control:
            yield from read_records(batch)


def batches_in(files: Files, path: str) -> Iterator[tuple[BatchHeader, Buffer]]:
    """The batches of a log or a snapshot.

    Raises:
        CorruptBatch, FileMissing, StorageFailed: as `records_in`.
    """
    log = BatchReader.of_file(files, path, EVERYTHING)
    for position, header in log.headers():
        yield header, log.batch(position, header)
