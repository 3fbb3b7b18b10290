"""Records of Kafka's internal topics, and their fields; read, never written."""

from collections.abc import Iterator
from struct import Struct

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch
from horolog.record.batch import BatchHeader
from horolog.record.builder import Record, read_records
from horolog.storage.batches.reader import EVERYTHING, BatchReader
from horolog.storage.files import Files

_MAX_VARINT_BYTES = 5


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


class Fields:
    """The bytes of one key or value, from front to back.

    Every method raises CorruptBatch where they end too early or are no such field.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        """The next bytes."""
        taken = self._data[self._position : self._position + max(size, 0)]
        if len(taken) != size:
            raise CorruptBatch("a record of Kafka's own ends too early")
        self._position += size
        return taken

    def unpack(self, shape: Struct) -> tuple[int, ...]:
        """The next numbers."""
        return shape.unpack(self.take(shape.size))

    def unsigned(self) -> int:
        """The next unsigned varint."""
        value = 0
        for index in range(_MAX_VARINT_BYTES):
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value
        raise CorruptBatch("a varint of a record of Kafka's own has no end")

    def text(self) -> str | None:
        """The next compact string, None if it is null."""
        size = self.unsigned()
        return None if size == 0 else self.text_of(size - 1)

    def text_of(self, size: int) -> str:
        """The next string, of so many bytes."""
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            raise CorruptBatch("a text of a record of Kafka's own is no text") from None

    def pass_tagged(self) -> None:
        """Skip the tagged fields that end a flexible struct (KIP-482)."""
        for _ in range(self.unsigned()):
            self.unsigned()
            self.take(self.unsigned())
