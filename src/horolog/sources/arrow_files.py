"""File systems of pyarrow behind the storage's `Files` interface.

Imports pyarrow.

Indexes, seals and checkpoints are read by the same code wherever they are.
"""

from collections.abc import Iterator
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from horolog.errors import Misconfigured, StorageFailed
from horolog.sources.object_stores import NO_OPTIONS, StoreOptions
from horolog.sources.option_values import flag
from horolog.sources.uris import for_arrow, local_path, shown
from horolog.storage import names
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files, OpenFile
from horolog.storage.listing import FileEntry

_FILES_OPEN = 64
_LEAST_BYTES = 1 << 20
_WHOLE_BYTES = 16 << 20


def _entry(info: pafs.FileInfo) -> FileEntry:
    is_directory = info.type == pafs.FileType.Directory
    return FileEntry(info.path, info.size or 0, info.mtime_ns or 0, is_directory)


def system_of(uri: str, store: StoreOptions = NO_OPTIONS) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a path or URI, and the path within it.

    Raises:
        Misconfigured: pyarrow lacks the file system, or cannot open it by this URI.
    """
    local = local_path(uri)
    if local is not None:
        return pafs.LocalFileSystem(), local
    plain = for_arrow(uri)
    scheme = plain.partition(":")[0].lower()
    try:
        if scheme == "s3" and store.names_s3:
            return _s3(plain, store)
        if scheme in ("abfs", "abfss"):
            parts = urlsplit(plain)
            host = parts.hostname or ""
            if (key := store.azure_key(host)) is not None:
                system = pafs.AzureFileSystem(host.partition(".")[0], account_key=key)
                return system, ((parts.username or "") + parts.path).rstrip("/")
        system, path = pafs.FileSystem.from_uri(plain)
        return system, str(path).rstrip("/")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, ValueError) as error:
        raise Misconfigured(
            f"The path {shown(uri)} is in no file system that pyarrow can open: "
            f"{store.scrubbed(error)}"
        ) from None


def _s3(uri: str, store: StoreOptions) -> tuple[pafs.FileSystem, str]:
    parts = urlsplit(uri)
    get = store.settings.get
    endpoint = get("fs.s3a.endpoint", "").strip()
    scheme, _, host = endpoint.rpartition("://")
    if not scheme and "fs.s3a.connection.ssl.enabled" in store.settings:
        is_tls = flag(store.settings, "fs.s3a.connection.ssl.enabled", default=True)
        scheme = "https" if is_tls else "http"
    bucket = parts.netloc.rpartition("@")[2]
    named: dict[str, Any] = {
        "access_key": get("fs.s3a.access.key", unquote(parts.username or "") or None),
        "secret_key": get("fs.s3a.secret.key", unquote(parts.password or "") or None),
        "session_token": get("fs.s3a.session.token"),
        "region": get("fs.s3a.endpoint.region"),
        "role_arn": get("fs.s3a.assumed.role.arn"),
        "anonymous": store.is_anonymous,
        "scheme": scheme or None,
        "endpoint_override": host.rstrip("/") or None,
        "force_virtual_addressing": not flag(
            store.settings, "fs.s3a.path.style.access", default=True
        ),
    }
    if named["region"] is None and not endpoint:
        named["region"] = pafs.resolve_s3_region(bucket)
    system = pafs.S3FileSystem(**{name: value for name, value in named.items() if value})
    return system, (bucket + parts.path).rstrip("/")


class _Handle(Protocol):
    """Interface of a pyarrow file, as far as it is used."""

    def read_at(self, nbytes: int, offset: int) -> bytes: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class _ArrowFile(OpenFile):
    """A file opened by pyarrow; a small file that is no log is read once as a whole."""

    __slots__ = ("_content", "handle")

    def __init__(self, path: str, handle: _Handle) -> None:
        self.path = path
        self.handle = handle
        self._content: bytes | None = None

    def read_at(self, size: int, position: int) -> bytes:
        if self._content is None:
            if self.path.endswith(names.LOG) or self.handle.size() > _WHOLE_BYTES:
                return self.handle.read_at(size, position)
            self._content = self.handle.read_at(self.handle.size(), 0)
        return self._content[position : position + size]

    def __del__(self) -> None:
        self.handle.close()


class ArrowFiles(Files):
    """Read-only files of any pyarrow file system."""

    least_read = _LEAST_BYTES
    is_local = False

    def __init__(self, system: pafs.FileSystem, store: StoreOptions = NO_OPTIONS) -> None:
        super().__init__(max_open=_FILES_OPEN, read_only=True)
        self._system = system
        self._store = store

    def read_at(self, file: OpenFile, size: int, position: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        assert isinstance(file, _ArrowFile)
        try:
            return file.read_at(size, position)
        except OSError as error:
            raise self._failed("read", file.path, error) from None

    def data_from(self, file: OpenFile, position: int) -> int:
        """Return the position itself: objects have no holes."""
        return position

    def will_need(self, file: OpenFile, size: int, position: int) -> None:
        """Do nothing: there is no page cache."""

    def exists(self, path: str) -> bool:
        """Return True if a file or directory exists."""
        return bool(self.info(path).type != pafs.FileType.NotFound)

    def entry(self, path: str) -> FileEntry | None:
        """Return the entry of a path; None if nothing exists there."""
        info = self.info(path)
        return None if info.type == pafs.FileType.NotFound else _entry(info)

    def below(self, directory: str) -> Iterator[FileEntry]:
        """Yield every file in a directory, at any depth."""
        # A file or directory may go away while it is listed.
        found = self.listed(directory, recursive=True)
        return (_entry(info) for info in found if info.type == pafs.FileType.File)

    def names_in(self, directory: str) -> list[str]:
        """Return the sorted names in a directory; none if it does not exist."""
        return sorted(info.base_name for info in self.listed(directory))

    def listed(self, directory: str, *, recursive: bool = False) -> list[pafs.FileInfo]:
        """Return pyarrow's entries of a directory; none if it does not exist."""
        selector = pafs.FileSelector(directory, recursive=recursive, allow_not_found=True)
        try:
            return list(self._system.get_file_info(selector))
        except OSError as error:
            raise self._failed("list", directory, error) from None

    def size(self, path: str) -> int:
        """Return the length of a file; 0 if it does not exist."""
        return int(self.info(path).size or 0)

    def modified_ms(self, path: str) -> int:
        """Return when a file was last modified, in milliseconds.

        Raises:
            FileMissing: it is not there.
        """
        changed_ns = self.modified_ns(path)
        if changed_ns < 0:
            raise FileMissing(f"{path} is missing")
        return changed_ns // 1_000_000

    def modified_ns(self, path: str) -> int:
        """Return when a file was last modified, in nanoseconds; -1 without a file, 0 if unknown."""
        info = self.info(path)
        return -1 if info.type == pafs.FileType.NotFound else int(info.mtime_ns or 0)

    def inode(self, path: str) -> int:
        """Return 0: files of object stores have no inode."""
        return 0

    def inode_of(self, file: OpenFile) -> int:
        """Return 0: files of object stores have no inode."""
        return 0

    def info(self, path: str) -> pafs.FileInfo:
        """Return pyarrow's entry of a path."""
        now = self._renamed_later.get(path)
        if now is not None:
            found = self._info(now)
            if found.type != pafs.FileType.NotFound:
                return found
        return self._info(path)

    def _info(self, path: str) -> pafs.FileInfo:
        try:
            return self._system.get_file_info(path)
        except OSError as error:
            raise self._failed("look at", path, error) from None

    def length(self, file: OpenFile) -> int:
        """Return the length of an open file."""
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


class ArrowFilesLookedAtOnce(ArrowFiles):
    """Files of an object store that keep the first answer about each path and directory.

    A look costs a round trip, or two if there is nothing, and checks look again and again.
    """

    def __init__(self, system: pafs.FileSystem, store: StoreOptions = NO_OPTIONS) -> None:
        super().__init__(system, store)
        self._seen: dict[str, pafs.FileInfo] = {}
        self._in_directories: dict[str, list[pafs.FileInfo]] = {}

    def listed(self, directory: str, *, recursive: bool = False) -> list[pafs.FileInfo]:
        """Return pyarrow's entries of a directory; none if it does not exist."""
        if recursive:
            return super().listed(directory, recursive=True)
        if directory not in self._in_directories:
            found = self._in_directories[directory] = super().listed(directory)
            self._seen |= {f"{directory}/{info.base_name}": info for info in found}
        return self._in_directories[directory]

    def _info(self, path: str) -> pafs.FileInfo:
        if path not in self._seen:
            is_listed = path.rpartition("/")[0] in self._in_directories
            missing = pafs.FileInfo(path, pafs.FileType.NotFound)
            self._seen[path] = missing if is_listed else super()._info(path)
        return self._seen[path]

    def _opened(self, path: str, flags: int, *, is_only_synced: bool = False) -> OpenFile:
        if not self.exists(path):
            raise FileMissing(f"{path} is not there")
        return super()._opened(path, flags, is_only_synced=is_only_synced)
