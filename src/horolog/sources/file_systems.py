"""A path that logs are read from, opened: a directory, a segment file, or a pattern of them.

A local path is read by the storage's own `Files`; any other by pyarrow, behind the same methods
(`arrow_files`).
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import cached_property
from importlib import import_module
from typing import NamedTuple, Protocol, TypeVar

from horolog.errors import Misconfigured, StorageFailed
from horolog.sources.object_stores import NO_OPTIONS, StoreOptions
from horolog.sources.uris import LogPath, alternatives, is_pattern, matches
from horolog.storage import names
from horolog.storage.companion.block_cache import BlockCache, block_cache
from horolog.storage.file_errors import failed_to
from horolog.storage.files import Files
from horolog.storage.removal.leftovers import segment_names

_REMOTE_LOOKS = 16
_LISTED_AGAIN = 20

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class FileEntry(NamedTuple):
    """A file below a root: its path within the file system, its size in bytes, its last change.

    `changed_ns` counts nanoseconds since 1970; 0 where the file system does not say, as `inode`.
    """

    path: str
    size: int
    changed_ns: int = 0
    is_directory: bool = False
    inode: int = 0


class FileSystem(Protocol):
    """Where the files below a root are: on this machine, or elsewhere (`arrow_files`)."""

    is_local: bool
    files: Files

    def entry(self, path: str) -> FileEntry | None:
        """What is at a path; None if nothing is."""
        ...

    def below(self, directory: str) -> Iterator[FileEntry]:
        """Every file in a directory, at any depth."""
        ...


class Root:
    """A path given to `load()`, opened: a directory, or a segment file. Close it after use.

    It may be a pattern, and its `matches` are what is to be read then. With `looks_once` an object
    store is asked once for what there is about a file, and once for what a directory has.
    """

    def __init__(
        self, given: LogPath, store: StoreOptions = NO_OPTIONS, *, looks_once: bool = False
    ) -> None:
        self.given = given
        self.name = given.name
        """The URI without credentials, for messages."""
        self._pattern = given.pattern
        self._system, self._above = _opened(given, store, looks_once=looks_once)
        self.path = self._above
        if self._pattern is not None:
            self.path = f"{self._above.rstrip('/')}/{self._pattern}"
        self.is_local, self.files = self._system.is_local, self._system.files

    @cached_property
    def block_cache(self) -> BlockCache | None:
        """Where maps of logs by time are kept, since none is written next to them."""
        return block_cache(self.given.scheme)

    def __enter__(self) -> "Root":
        return self

    def __exit__(self, *exc: object) -> None:
        self.files.close()

    def exists(self, path: str | None = None) -> bool:
        """Whether there is a file or a directory."""
        return self._system.entry(self.path if path is None else path) is not None

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
        return [self.at(path) for path in found]

    def _matched_in(self, directory: str, pattern: str) -> list[str]:
        found = self._system.entry(directory)
        if found is None or not found.is_directory:
            return []
        children = (name for name in self.files.names_in(directory) if matches(name, pattern))
        return [f"{directory.rstrip('/')}/{name}" for name in children]

    def at(self, path: str) -> "Root":
        """A path of the same file system, which is closed with this one."""
        root = copy(self)
        root.path = path
        root.name = path if self.is_local else f"{self.given.scheme}://{path}"
        root._pattern = None
        return root

    def entries(self, *, may_miss: bool = False) -> list[FileEntry]:
        """Every file below the root, at any depth; of a file, itself.

        Raises:
            Misconfigured: there is nothing at the path, unless it `may_miss`.
        """
        entry = self._system.entry(self.path)
        if entry is None:
            if may_miss:
                return []
            raise Misconfigured(f"There is no path {self.name}")
        return sorted(self._system.below(self.path)) if entry.is_directory else [entry]

    def map(self, function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
        """The function of each item; many at a time where every look costs a round trip."""
        if self.is_local:
            return [function(item) for item in items]
        with ThreadPoolExecutor(_REMOTE_LOOKS) as pool:
            return list(pool.map(function, items))


def _opened(given: LogPath, store: StoreOptions, *, looks_once: bool) -> tuple[FileSystem, str]:
    """The file system of a path, and the path above its pattern within that.

    Raises:
        Misconfigured: there is no such file system, or it cannot be opened so.
    """
    if given.local is not None:
        return LocalFileSystem(), given.local
    try:
        arrow = import_module("horolog.sources.arrow_files")
    except ModuleNotFoundError as error:
        raise Misconfigured(
            f"{given.name} is read with pyarrow ({error}): pip install 'horolog[arrow]'"
        ) from None
    system, path = arrow.system_of(given.above, store)
    return arrow.ArrowFileSystem(system, store, looks_once=looks_once), path


class LocalFileSystem:
    """As `FileSystem`."""

    is_local = True

    def __init__(self) -> None:
        self.files = Files(read_only=True)

    def entry(self, path: str) -> FileEntry | None:
        """What is at a path, or at the end of a symbolic link there; None if nothing is.

        Raises:
            StorageFailed: it cannot be looked at, or is neither a file nor a directory.
        """
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        except OSError as error:
            raise failed_to("look at", path, error) from error
        is_directory = stat.S_ISDIR(status.st_mode)
        if not (is_directory or stat.S_ISREG(status.st_mode)):
            raise StorageFailed(f"{path} is neither a file nor a directory")
        return FileEntry(path, status.st_size, status.st_mtime_ns, is_directory)

    def below(self, directory: str) -> Iterator[FileEntry]:
        """Every file in a directory, at any depth."""
        return _local_files_below(directory)


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
            found = _listed_again(listed, found)
        except FileNotFoundError:
            continue  # it may go away while it is listed
        except OSError as error:
            raise StorageFailed(f"Cannot list {listed}: {error.strerror}") from error
        for entry in found:
            try:
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    size, inode = status.st_size, status.st_ino
                    yield FileEntry(entry.path, size, status.st_mtime_ns, inode=inode)
                else:
                    _refuse_if_named_as_log(entry)
            except FileNotFoundError:
                continue  # a file, too
            except OSError as error:
                raise StorageFailed(f"Cannot look at {entry.path}: {error.strerror}") from error


def _listed_again(directory: str, found: "list[os.DirEntry[str]]") -> "list[os.DirEntry[str]]":
    """The entries, listed until a listing has the same segments as the one before.

    One listing may miss a file that is renamed meanwhile under both of its names.
    """
    for _ in range(_LISTED_AGAIN):
        segments = segment_names(entry.name for entry in found)
        if not segments:
            break
        with os.scandir(directory) as entries:
            found = [*entries]
        if segment_names(entry.name for entry in found) == segments:
            break
    return found


def _refuse_if_named_as_log(entry: "os.DirEntry[str]") -> None:
    is_segment = names.base_offset_of(entry.name.removesuffix(names.SWAP), names.LOG) is not None
    if entry.is_symlink() and (is_segment or names.partition_of(entry.name) is not None):
        raise Misconfigured(
            f"{entry.path} is a symbolic link, which is not followed: give the path that it leads "
            "to"
        )
    if is_segment:
        raise Misconfigured(f"{entry.path} is not a regular file, and cannot be read")
