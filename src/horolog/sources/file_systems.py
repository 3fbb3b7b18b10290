"""Opened paths that logs are read from: a directory, a segment file, or a pattern.

A local path is read by the storage's own `Files`, any other by pyarrow, behind the same methods.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import cached_property
from typing import TypeVar

from horolog.errors import Misconfigured
from horolog.sources.object_stores import NO_OPTIONS, StoreOptions
from horolog.sources.uris import LogPath, alternatives, is_pattern, matches
from horolog.storage.companion.block_cache import BlockCache, block_cache
from horolog.storage.files import Files
from horolog.storage.listing import FileEntry

_REMOTE_LOOKS = 16

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Root:
    """An opened path given to `load()`: a directory, a segment file, or a pattern.

    Close it after use.

    Read the `matches` of a pattern. With `looks_once` an object store is asked once for each file
    and once for each directory.
    """

    def __init__(
        self, given: LogPath, store: StoreOptions = NO_OPTIONS, *, looks_once: bool = False
    ) -> None:
        self.given = given
        self.name = given.name
        """URI without credentials, for messages."""
        self._pattern = given.pattern
        self.files, self._above = _opened(given, store, looks_once=looks_once)
        self.path = self._above
        if self._pattern is not None:
            self.path = f"{self._above.rstrip('/')}/{self._pattern}"
        self.is_local = self.files.is_local

    @cached_property
    def block_cache(self) -> BlockCache | None:
        """Cache for block maps, since none is written beside the logs."""
        return block_cache(self.given.scheme)

    def __enter__(self) -> "Root":
        return self

    def __exit__(self, *exc: object) -> None:
        self.files.close()

    def exists(self, path: str | None = None) -> bool:
        """Return True if a file or directory exists."""
        return self.files.entry(self.path if path is None else path) is not None

    def matches(self, *, may_miss: bool = False) -> "list[Root]":
        """Return the paths that match the pattern now, or the path itself if it exists.

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
        for alternative in alternatives(pattern):
            level = [self._above]
            for part in alternative.split("/"):
                if is_pattern(part):
                    level = [path for above in level for path in self._matched_in(above, part)]
                else:
                    level = [f"{above.rstrip('/')}/{part}" for above in level]
            found |= dict.fromkeys(path for path in level if self.exists(path))
        return [self.at(path) for path in found]

    def _matched_in(self, directory: str, pattern: str) -> list[str]:
        found = self.files.entry(directory)
        if found is None or not found.is_directory:
            return []
        children = (name for name in self.files.names_in(directory) if matches(name, pattern))
        return [f"{directory.rstrip('/')}/{name}" for name in children]

    def at(self, path: str) -> "Root":
        """Return a path of the same file system, which closes with this one."""
        root = copy(self)
        root.path = path
        root.name = path if self.is_local else f"{self.given.scheme}://{path}"
        root._pattern = None
        return root

    def entries(self, *, may_miss: bool = False) -> list[FileEntry]:
        """Return every file below the root at any depth; a file returns itself.

        Raises:
            Misconfigured: there is nothing at the path, unless it `may_miss`.
        """
        entry = self.files.entry(self.path)
        if entry is None:
            if may_miss:
                return []
            raise Misconfigured(f"There is no path {self.name}")
        return sorted(self.files.below(self.path)) if entry.is_directory else [entry]

    def map(self, function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
        """Apply a function to each item, many at a time in an object store."""
        if self.is_local:
            return [function(item) for item in items]
        with ThreadPoolExecutor(_REMOTE_LOOKS) as pool:
            return list(pool.map(function, items))


def _opened(given: LogPath, store: StoreOptions, *, looks_once: bool) -> tuple[Files, str]:
    """Return the files of a path's file system, and the path above its pattern.

    Raises:
        Misconfigured: the file system does not exist, or cannot be opened by this URI.
    """
    if given.local is not None:
        return Files(read_only=True), given.local
    try:
        from horolog.sources import arrow_files  # noqa: PLC0415 - pyarrow is of an extra
    except ModuleNotFoundError as error:
        raise Misconfigured(
            f"{given.name} is read with pyarrow ({error}): pip install 'horolog[arrow]'"
        ) from None
    system, path = arrow_files.system_of(given.above, store)
    kind = arrow_files.ArrowFilesLookedAtOnce if looks_once else arrow_files.ArrowFiles
    return kind(system, store), path
