"""The file systems that a path given to `load()` may be in, behind the storage's own `Files`.

A local path is read by `Files` itself; any other by pyarrow, in the same words, so that
indexes, seals and checkpoints are read the same way wherever they are.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import cached_property
from typing import NamedTuple, Protocol, TypeVar

import pyarrow.fs as pafs

from horolog.errors import Misconfigured, StorageFailed
from horolog.sources.object_stores import NO_OPTIONS, StoreOptions, shown
from horolog.sources.uris import alternatives, is_pattern, local_path, matches, split_pattern
from horolog.storage import names
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files, OpenFile
from horolog.storage.index.block_cache import BlockCache, block_cache

_REMOTE_FILES_OPEN = 64
_REMOTE_LOOKS = 16
_REMOTE_LEAST = 1 << 20
_REMOTE_WHOLE = 16 << 20

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class FileEntry(NamedTuple):
    """A file below a root: its path within the file system, its size in bytes, its last change.

    `changed_ns` counts nanoseconds since 1970; 0 where the file system does not say.
    """

    path: str
    size: int
    changed_ns: int = 0


class _Handle(Protocol):
    """A file of pyarrow's, as far as it is used."""

    def read_at(self, nbytes: int, offset: int) -> bytes: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class Root:
    """A path given to `load()`, opened: a directory, or a segment file. Close it after use.

    It may be a pattern, and its `matches` are what is to be read then.
    """

    def __init__(self, uri: str, store: StoreOptions = NO_OPTIONS) -> None:
        self.uri = uri
        self.name = shown(uri)
        """The URI without credentials, for messages."""
        above, self._pattern = split_pattern(uri)
        system, self._above = system_of(above, store)
        self.path = self._above
        if self._pattern is not None:
            self.path = f"{self._above.rstrip('/')}/{self._pattern}"
        self._system = system
        self._store = store
        self.is_local = isinstance(system, pafs.LocalFileSystem)
        self.files = Files(read_only=True) if self.is_local else ArrowFiles(system, store)

    @cached_property
    def block_cache(self) -> BlockCache | None:
        """Where maps of logs by time are kept, since none is written next to them."""
        return block_cache("" if self.is_local else self.uri.partition(":")[0])

    def __enter__(self) -> "Root":
        return self

    def __exit__(self, *exc: object) -> None:
        self.files.close()

    def exists(self, path: str | None = None) -> bool:
        """Whether there is a file or a directory."""
        kind = self._info(self.path if path is None else path).type
        return bool(kind != pafs.FileType.NotFound)

    def matches(self, *, may_miss: bool = False) -> "list[Root]":
        """What matches the path now if it is a pattern, unless it is there literally; else itself.

        They are closed with this one.

        Raises:
            Misconfigured: nothing is at the path, or matches it, unless it `may_miss`.
        """
        if self.exists():
            return [self]
        found = [] if self._pattern is None else self._matching(self._pattern)
        if found or may_miss:
            return found
        if self._pattern is None:
            raise Misconfigured(f"There is no path {self.name}")
        raise Misconfigured(f"No path matches {self.name}, and none has this name")

    def _matching(self, pattern: str) -> "list[Root]":
        found: dict[str, None] = {}
        for each in alternatives(pattern):
            level = [self._above]
            for part in each.split("/"):
                if is_pattern(part):
                    level = [path for above in level for path in self._matched_in(above, part)]
                else:
                    level = [f"{above.rstrip('/')}/{part}" for above in level]
            found |= dict.fromkeys(path for path in level if self.exists(path))
        return [self._at(path) for path in found]

    def _matched_in(self, directory: str, pattern: str) -> list[str]:
        if self._info(directory).type != pafs.FileType.Directory:
            return []
        infos = self._listed(pafs.FileSelector(directory, allow_not_found=True))
        return sorted(info.path for info in infos if matches(info.base_name, pattern))

    def _at(self, path: str) -> "Root":
        root = copy(self)
        root.path = path
        root.name = path if self.is_local else f"{self.uri.partition(':')[0]}://{path}"
        root._pattern = None
        return root

    def entries(self, *, may_miss: bool = False) -> list[FileEntry]:
        """Every file below the root, at any depth; of a file, itself.

        Raises:
            Misconfigured: there is nothing at the path, unless it `may_miss`.
        """
        info = self._info(self.path)
        if info.type == pafs.FileType.NotFound:
            if may_miss:
                return []
            raise Misconfigured(f"There is no path {self.name}")
        if info.type == pafs.FileType.File:
            return [_entry(info)]
        return sorted(self._below(self.path))

    def map(self, function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
        """The function of each item; many at a time where every look costs a round trip."""
        if self.is_local:
            return [function(item) for item in items]
        with ThreadPoolExecutor(_REMOTE_LOOKS) as pool:
            return list(pool.map(function, items))

    def _info(self, path: str) -> pafs.FileInfo:
        try:
            return self._system.get_file_info(path)
        except OSError as error:
            raise StorageFailed(
                f"Cannot look at {self.name}: {self._store.scrubbed(error)}"
            ) from None

    def _below(self, directory: str) -> Iterator[FileEntry]:
        if self.is_local:
            yield from _local_files_below(directory)
            return
        # A file or directory may go away while it is listed.
        selector = pafs.FileSelector(directory, recursive=True, allow_not_found=True)
        for info in self._listed(selector):
            if info.type == pafs.FileType.File:
                yield _entry(info)

    def _listed(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        try:
            return list(self._system.get_file_info(selector))
        except OSError as error:
            raise StorageFailed(f"Cannot list {self.name}: {self._store.scrubbed(error)}") from None


def _entry(info: pafs.FileInfo) -> FileEntry:
    return FileEntry(info.path, info.size, info.mtime_ns or 0)


def _local_files_below(directory: str) -> Iterator[FileEntry]:
    """The regular files; a symbolic link could lead anywhere, and a FIFO would block.

    Raises:
        Misconfigured: something else has the name of a partition or of a segment, so that records
            would be missing.
        StorageFailed: a directory cannot be listed.
    """
    directories = [directory]
    while directories:
        listed = directories.pop()
        try:
            with os.scandir(listed) as entries:
                # All names before any size: behind a segment that is listed nothing is appended to
                # the one before it any more.
                found = [*entries]
        except FileNotFoundError:
            continue  # it may go away while it is listed
        except OSError as error:
            raise StorageFailed(f"Cannot list {listed}: {error.strerror}") from error
        for entry in found:
            try:
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    stat = entry.stat(follow_symlinks=False)
                    yield FileEntry(entry.path, stat.st_size, stat.st_mtime_ns)
                else:
                    _refuse_if_wanted(entry)
            except FileNotFoundError:
                continue  # a file, too
            except OSError as error:
                raise StorageFailed(f"Cannot look at {entry.path}: {error.strerror}") from error


def _refuse_if_wanted(entry: "os.DirEntry[str]") -> None:
    is_segment = names.base_offset_of(entry.name, names.LOG) is not None
    if entry.is_symlink() and (is_segment or names.partition_of(entry.name) is not None):
        raise Misconfigured(
            f"{entry.path} is a symbolic link, which is not followed: give load() the path that it "
            "leads to"
        )
    if is_segment:
        raise Misconfigured(f"{entry.path} is not a regular file, and cannot be read")


def system_of(uri: str, store: StoreOptions = NO_OPTIONS) -> tuple[pafs.FileSystem, str]:
    """The file system of a path or URI, and the path within it.

    Raises:
        Misconfigured: pyarrow has no such file system, or cannot open it so.
    """
    local = local_path(uri)
    if local is not None:
        return pafs.LocalFileSystem(), local
    system, path = store.open(uri)
    return system, path.rstrip("/")


class _ArrowFile(OpenFile):
    """A file that pyarrow has open; a small one that is no log is read once, as a whole."""

    __slots__ = ("_content", "handle")

    def __init__(self, path: str, handle: _Handle) -> None:
        self.path = path
        self.handle = handle
        self._content: bytes | None = None

    def read_at(self, size: int, position: int) -> bytes:
        if self._content is None:
            if self.path.endswith(names.LOG) or self.handle.size() > _REMOTE_WHOLE:
                return self.handle.read_at(size, position)
            self._content = self.handle.read_at(self.handle.size(), 0)
        return self._content[position : position + size]

    def __del__(self) -> None:
        self.handle.close()


class ArrowFiles(Files):
    """Files of any pyarrow file system; read only."""

    least_read = _REMOTE_LEAST
    is_local = False

    def __init__(self, system: pafs.FileSystem, store: StoreOptions = NO_OPTIONS) -> None:
        super().__init__(max_open=_REMOTE_FILES_OPEN, read_only=True)
        self._system = system
        self._store = store

    def read_at(self, file: OpenFile, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        assert isinstance(file, _ArrowFile)
        try:
            return file.read_at(size, position)
        except OSError as error:
            raise self._failed("read", file.path, error) from None

    def data_from(self, file: OpenFile, position: int) -> int:
        """The position itself: objects have no holes."""
        return position

    def will_need(self, file: OpenFile, size: int, position: int) -> None:
        """Do nothing: there is no page cache."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or a directory."""
        return bool(self._info(path).type != pafs.FileType.NotFound)

    def names_in(self, directory: str) -> list[str]:
        """The names of what is in a directory, in order; none if it is not there."""
        selector = pafs.FileSelector(directory, allow_not_found=True)
        try:
            found = self._system.get_file_info(selector)
        except OSError as error:
            raise self._failed("list", directory, error) from None
        return sorted(info.base_name for info in found)

    def size(self, path: str) -> int:
        """The length of a file; 0 if it is not there."""
        return int(self._info(path).size or 0)

    def modified_ms(self, path: str) -> int:
        """When a file was last changed, by its file system.

        Raises:
            FileMissing: it is not there.
        """
        changed_ns = self.modified_ns(path)
        if changed_ns < 0:
            raise FileMissing(f"{path} is missing")
        return changed_ns // 1_000_000

    def modified_ns(self, path: str) -> int:
        """As `modified_ms`; -1 if there is no such file, 0 where the system does not say."""
        info = self._info(path)
        return -1 if info.type == pafs.FileType.NotFound else int(info.mtime_ns or 0)

    def inode(self, path: str) -> int:
        """0: such a file has no number."""
        return 0

    def _info(self, path: str) -> pafs.FileInfo:
        try:
            return self._system.get_file_info(path)
        except OSError as error:
            raise self._failed("look at", path, error) from None

    def length(self, file: OpenFile) -> int:
        """How many bytes an open file has."""
        assert isinstance(file, _ArrowFile)
        return file.handle.size()

    def _opened(self, path: str, flags: int, *, is_only_synced: bool = False) -> OpenFile:
        try:
            return _ArrowFile(path, self._system.open_input_file(path))
        except FileNotFoundError:
            raise FileMissing(f"{path} is not there") from None
        except OSError as error:
            raise self._failed("open", path, error) from None

    def _failed(self, what: str, path: str, error: OSError) -> StorageFailed:
        return StorageFailed(f"Cannot {what} {path}: {self._store.scrubbed(error)}")
