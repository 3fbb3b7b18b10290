"""The `.log` file of a segment under the name that it has at the moment, and where it ends."""

from typing import Final, NamedTuple

from horolog.storage import names
from horolog.storage.batches.reader import HEADERS, BatchReader, ReadAhead
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files, OpenFile

_ABANDONED: Final = -1


class TimeEntry(NamedTuple):
    """A timestamp, and the last offset of the batch that first reached it."""

    timestamp: int
    offset: int


class SegmentEnd(NamedTuple):
    """The end of a segment, as one value: a reader never sees half of an append."""

    size: int
    """Bytes of whole batches."""
    next_offset: int
    """The offset that follows them. Of a segment that was never appended to, its base offset."""
    last_position: int = 0
    last_base_offset: int | None = None
    """Base offset of the batch appended last, which a consumer at the log end asks for next."""
    largest: TimeEntry | None = None
    """Largest timestamp of these batches; only known of the segment that is appended to."""


class SegmentFile:
    """A file of a segment, found under its name or the one it has once the segment is deleted."""

    __slots__ = ("deleted_path", "files", "held", "inode", "path")

    def __init__(self, files: Files, path: str, deleted_path: str | None = None) -> None:
        self.files = files
        self.path = path
        self.deleted_path = deleted_path
        """The name that the file gets when its segment is deleted, once that is known."""
        self.inode = 0
        """Inode of the file that is meant, if known: another may get its name. -1 if it is no
        file any more."""
        self.held: OpenFile | None = None
        """The file, where it is read on under whatever name it gets."""

    def open(self) -> OpenFile:
        """Open the file under its current name.

        Raises:
            FileMissing: it is gone, or another has its name.
        """
        held, path = self.held, self.path
        if held is not None:
            return held
        try:
            file = self.files.get(path)
        except FileMissing:
            if self.deleted_path is None:
                raise
            try:
                file = self.files.get(self.deleted_path)
            except FileMissing:
                raise FileMissing(f"{path} is gone") from None
        # Asked last: until then no other file can have had this path.
        if self.inode and self.files.inode_of(file) != self.inode:
            raise FileMissing(f"{path} is gone, and another has its name")
        return file if path is self.path else self.open()


class LogFile(SegmentFile):
    """The `.log` file of a segment."""

    __slots__ = ("base_offset", "limit")

    deleted_path: str

    def __init__(self, files: Files, path: str, base_offset: int = 0) -> None:
        super().__init__(files, path, path + names.DELETED)
        self.base_offset = base_offset
        self.limit: int | None = None
        """Its offsets are before that, where it is known: the next segment begins there."""

    @property
    def is_abandoned(self) -> bool:
        """True if its directory has another name: what now has this path is another's."""
        return self.inode == _ABANDONED

    def abandon(self) -> None:
        """Open the file no more, because its directory was renamed."""
        self.inode = _ABANDONED

    def renamed(self) -> None:
        """The file has the name of a deleted one; another may take its former name now."""
        self.path = self.deleted_path

    def batches(
        self,
        size: int,
        ahead: ReadAhead = HEADERS,
        *,
        least_offset: int | None = None,
        limit: int | None = None,
    ) -> BatchReader:
        """Its batches in the first `size` bytes.

        Where only a part is read, its offsets may be known: they are from `least_offset` to before
        `limit`.

        Raises:
            FileMissing: it is gone.
        """
        before = self.base_offset + names.MAX_RELATIVE_OFFSET + 1
        for bound in (self.limit, limit):
            if bound is not None and bound < before:
                before = bound
        first = self.base_offset if least_offset is None else least_offset
        return BatchReader(self.files, self.open(), size, ahead, first, before)
