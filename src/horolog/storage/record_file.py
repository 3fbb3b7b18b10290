"""One file of record batches (format v2): appended to, and replaced at once.

For what is kept in one file beside the logs of a directory, because the directory is another's:
the records are those that Kafka keeps in a log of its own. The file has no index and no companion.
It is read from its first byte to its last, and rewritten by its owner when it has grown.

Offsets are given out here: a batch gets the next one, and a file that is replaced continues behind
the old one's. So no offset is ever given twice.

What a kill leaves:
- an append that was interrupted leaves the beginning of a batch, or zeros. They are cut off before
  the next append.
- a replacement that was interrupted leaves `<name>.tmp`; the old file counts.

A damaged file is read as far as that goes: every batch whose checksum is right counts, wherever it
begins. Before the next append the file is kept as `<name>.<number>.set-aside`, and the batches that
count take its place.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, StorageFailed, printable
from horolog.record.batch import MAGIC, BatchHeader, parse_header
from horolog.storage.batches.reader import EVERYTHING, MAX_HELD_BYTES, BatchReader
from horolog.storage.batches.whole import is_torn_tail, whole_batches
from horolog.storage.directory.contents import copy_aside
from horolog.storage.file_errors import FileMissing, SyncFailed
from horolog.storage.files import Files, OpenFile
from horolog.storage.names import TEMPORARY

_WRITE_BYTES: Final = 1 << 20
_MOST_OFFSET: Final = 1 << 62  # that a batch can begin at: no file has room for more offsets
_MOST_LOST: Final = 100
_BASE_OFFSET = Struct(">q")

_logger = logging.getLogger(__name__)


class Lost(NamedTuple):
    """Bytes of a file of batches that hold no whole one: what they held is lost."""

    path: str
    start: int
    end: int
    reason: str
    next_offset: int | None = None
    """Of the batch behind; None where none follows."""

    def __str__(self) -> str:
        return printable(f"{self.path}, bytes {self.start} to {self.end}: {self.reason}")


class RecordFile:
    """See the module. One thread at a time."""

    def __init__(self, files: Files, path: str, least_offset: int = 0) -> None:
        """Of a path; its offsets are not below `least_offset`."""
        self.path = path
        self.lost: tuple[Lost, ...] = ()
        """What `read` could not read. An append that was interrupted is not among it."""
        self.torn_bytes = 0
        """After `read`: what an append that was interrupted has left."""
        self._files = files
        self._end: int | None = None  # bytes of whole batches; None before the file was read
        self._least_offset = self._next_offset = least_offset
        self._is_longer = False  # than its whole batches
        self._is_in_doubt = False  # the disk may lack what was written before
        self._is_named = True  # on the disk

    @property
    def size(self) -> int:
        """Bytes of the batches."""
        return self._known_end()

    @property
    def next_offset(self) -> int:
        """What the next batch begins at."""
        self._known_end()
        return self._next_offset

    def read(self) -> Iterator[Buffer]:
        """The batches in order, each valid until the next is asked for; none without a file.

        Where a batch has a base offset that cannot be (there is no checksum of it), it is given
        the one that follows the batch before it.

        Raises:
            StorageFailed: the file cannot be read, or is no regular file.
        """
        try:
            file = self._files.get(self.path)
        except FileMissing:
            self._set(0, self._least_offset, (), is_longer=False)
            return
        self.torn_bytes, size = 0, self._files.length(file)
        log = BatchReader(self._files, file, size, EVERYTHING)
        lost: list[Lost] = []
        end, next_offset = 0, self._least_offset
        for position, header in self._whole(log, lost):
            base_offset = header.base_offset
            if position > end:
                _add(lost, Lost(self.path, end, position, "no whole batch", base_offset))
            batch: Buffer = log.batch(position, header)
            if not next_offset <= base_offset <= _MOST_OFFSET:
                reason = f"{base_offset} is no base offset here"
                _add(lost, Lost(self.path, position, position + 8, reason, next_offset))
                base_offset = next_offset
                batch = _BASE_OFFSET.pack(base_offset) + bytes(batch[_BASE_OFFSET.size :])
            end = position + header.size
            next_offset = base_offset + header.last_offset_delta + 1
            yield batch
        is_longer = end < size
        if is_longer and not is_torn_tail(self._files, file, end, size):
            _add(lost, Lost(self.path, end, size, "no whole batch"))
        elif is_longer:
            self.torn_bytes = size - end
        self._set(end, next_offset, tuple(lost), is_longer=is_longer)

    def append(self, batch: Buffer, *, sync: bool = True) -> int:
        """Append a whole batch; it is given the next offset, which is returned.

        Args:
            batch: of format v2; its base offset does not matter.
            sync: wait until the disk has it, and all before it. Otherwise it survives a kill of
                the process.

        Raises:
            StorageFailed: the disk refused; the file is as it was.
        """
        return self.append_all([batch], sync=sync)

    def append_all(self, batches: Sequence[Buffer], *, sync: bool = True) -> int:
        """As `append`, of several batches in one write; the first of the offsets.

        Raises:
            StorageFailed: the disk refused; the file is as it was.
        """
        file = self._ready()
        end, first_offset = self._known_end(), self._next_offset
        next_offset, size = first_offset, 0
        parts: list[Buffer] = []
        for batch in batches:
            header = parse_header(batch)
            assert header.magic == MAGIC
            assert header.size == len(batch)
            parts += _BASE_OFFSET.pack(next_offset), memoryview(batch)[_BASE_OFFSET.size :]
            next_offset += header.last_offset_delta + 1
            size += header.size
        try:
            self._files.write_at(file, parts, end)
            if sync:
                self._sync(file)
        except StorageFailed:
            self._is_longer = True
            self._cut(file)
            raise
        self._end, self._next_offset = end + size, next_offset
        return first_offset

    def sync(self) -> None:
        """Wait until the disk has all that was appended.

        Raises:
            StorageFailed: the disk refused. What was written is written again by the next append.
        """
        if self._known_end():
            self._sync(self._ready())

    def replace(self, batches: Iterable[Buffer]) -> None:
        """Put other batches in the place of all that there are; they get the offsets behind them.

        Raises:
            StorageFailed: the disk refused; the old file counts.
        """
        self._known_end()
        if self.lost:
            self._keep_damaged()
        self._put(batches, self._next_offset)

    def _known_end(self) -> int:
        if self._end is None:
            for _ in self.read():
                pass
        assert self._end is not None
        return self._end

    def _set(self, end: int, next_offset: int, lost: tuple[Lost, ...], *, is_longer: bool) -> None:
        self._end, self._next_offset = end, next_offset
        self.lost, self._is_longer = lost, is_longer

    def _whole(self, log: BatchReader, lost: list[Lost]) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every whole batch of format v2."""
        following = 0
        log.in_any_order = True
        try:
            for position, header in log.headers():
                if header.magic != MAGIC or header.size > MAX_HELD_BYTES:
                    break
                log.check(position, header)
                yield position, header
                following = position + header.size
        except CorruptBatch as error:
            _logger.debug("%s: %s", self.path, error)
        if following == log.size:
            return
        try:
            for found, header in whole_batches(log, following):
                if header.magic == MAGIC and header.size <= MAX_HELD_BYTES:
                    yield found, header
        except CorruptBatch as error:
            lost.append(Lost(self.path, following, log.size, f"not searched to its end: {error}"))

    def _ready(self) -> OpenFile:
        """The file, ending with its last whole batch."""
        end = self._known_end()
        if self.lost:
            self._keep_damaged()
            self._put(self.read(), None)
        elif self._is_in_doubt:
            self._put(self._first(end), None)
        try:
            file = self._files.get(self.path)
        except FileMissing:
            if end:
                raise
            self._is_named = False
            file = self._files.create(self.path)
        if self._is_longer:
            self._files.truncate(file, self._known_end())
            self._is_longer = False
        return file

    def _keep_damaged(self) -> None:
        kept = copy_aside(self._files, self.path)
        for each in self.lost:
            _logger.error("%s; the file is kept as %s", each, kept)

    def _first(self, end: int) -> Iterator[Buffer]:
        """The batches before a position, all of which are whole."""
        log = BatchReader(self._files, self._files.get(self.path), end, EVERYTHING)
        try:
            for position, header in log.headers():
                log.check(position, header)
                yield log.batch(position, header)
        except CorruptBatch as error:
            raise StorageFailed(f"{self.path} cannot be written again: {error}") from error

    def _put(self, batches: Iterable[Buffer], next_offset: int | None) -> None:
        """Replace the file; `next_offset` numbers the batches anew."""
        temporary = self.path + TEMPORARY
        self._files.remove(temporary)
        file = self._files.create(temporary)
        end = written = 0
        parts: list[Buffer] = []
        last_offset = self._next_offset - 1
        for batch in batches:
            header = parse_header(batch)
            base_offset = header.base_offset if next_offset is None else next_offset
            parts.append(_BASE_OFFSET.pack(base_offset) + bytes(batch[_BASE_OFFSET.size :]))
            last_offset = base_offset + header.last_offset_delta
            next_offset = None if next_offset is None else last_offset + 1
            end += header.size
            if end - written > _WRITE_BYTES:
                self._files.write_at(file, parts, written)
                parts, written = [], end
        if parts:
            self._files.write_at(file, parts, written)
        self._files.sync(file)
        self._files.rename(temporary, self.path)
        self._set(end, max(last_offset + 1, self._next_offset), (), is_longer=False)
        self._is_in_doubt, self._is_named = False, False
        self._sync_name()

    def _sync(self, file: OpenFile) -> None:
        try:
            self._files.sync(file)
        except SyncFailed:
            self._is_in_doubt = True
            raise
        self._sync_name()

    def _sync_name(self) -> None:
        if not self._is_named:
            self._files.sync_path(os.path.dirname(self.path))
            self._is_named = True

    def _cut(self, file: OpenFile) -> None:
        """Cut off what follows the last whole batch; where that fails, the next append does it."""
        try:
            self._files.truncate(file, self._known_end())
        except StorageFailed as error:
            _logger.warning("%s", error)
        else:
            self._is_longer = False


def _add(lost: list[Lost], more: Lost) -> None:
    """Add one; of very many the last is about all the rest."""
    if len(lost) < _MOST_LOST:
        lost.append(more)
    else:
        lost[-1] = lost[-1]._replace(
            end=more.end, reason="much here is no whole batch", next_offset=more.next_offset
        )
