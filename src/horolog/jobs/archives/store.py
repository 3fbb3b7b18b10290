"""Files of an archive, on a file system that all machines see, or in an object store."""

import io
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, BinaryIO, Final, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs
from crc32c import crc32c

from horolog.errors import CorruptFile, Misconfigured, StorageFailed
from horolog.sources.arrow_files import system_of
from horolog.sources.object_stores import NO_OPTIONS, StoreOptions
from horolog.sources.uris import absolute, shown
from horolog.storage.file_errors import FileMissing, failed_to

MOST_BYTES: Final = 128 << 20
"""Largest file that is read as a whole: a manifest of some 400,000 files."""
_CHUNK_BYTES: Final = 4 << 20


class Listed(NamedTuple):
    """A file of an archive, by its path within it."""

    path: str
    size: int
    changed_ns: int
    """Time of the last change, nanoseconds since 1970; 0 if the file system does not say."""


class Sink(io.RawIOBase):
    """File that is written once from beginning to end; counts and checks its bytes."""

    def __init__(self, raw: Any, path: str, scrub: Any) -> None:
        super().__init__()
        self.size = 0
        self.crc = 0
        self._raw = raw
        self._path = path
        self._scrub = scrub

    def write(self, data: Any) -> int:
        """Append bytes."""
        view = memoryview(data)
        try:
            self._raw.write(view)
        except OSError as error:
            raise StorageFailed(f"Cannot write {self._path}: {self._scrub(error)}") from None
        self.crc = crc32c(view, self.crc)
        self.size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Bytes written so far."""
        return self.size

    def writable(self) -> bool:
        """Return True, as pyarrow asks."""
        return True

    def close(self) -> None:
        """Close the file, and sync it if it is local.

        Raises:
            StorageFailed: it has it not.
        """
        if self.closed:
            return
        super().close()
        try:
            if hasattr(self._raw, "fileno") and not isinstance(self._raw, pa.NativeFile):
                self._raw.flush()
                os.fsync(self._raw.fileno())
            self._raw.close()
        except OSError as error:
            raise StorageFailed(f"Cannot write {self._path}: {self._scrub(error)}") from None


class ArchiveStore:
    """Directory of an archive's files; paths are relative to it, with slashes."""

    def __init__(self, uri: str | os.PathLike[str], store: StoreOptions = NO_OPTIONS) -> None:
        self.uri = os.fspath(uri)
        self.name = shown(self.uri)
        """The URI without credentials, for messages."""
        self._store = store
        system, root = system_of(self.uri, store)
        self._system = system
        self.root = root.rstrip("/") or "/"
        self.is_local = isinstance(system, pafs.LocalFileSystem)

    @classmethod
    def of(
        cls, archive: str | os.PathLike[str], settings: Mapping[str, str] | None
    ) -> "ArchiveStore":
        """Return the store that the arguments of a job name.

        Raises:
            Misconfigured: a setting of the store cannot be.
        """
        given = {name.lower(): value for name, value in (settings or {}).items()}
        return cls(absolute(os.fspath(archive)), StoreOptions.parse(given))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the URI and the settings; workers open the file system themselves."""
        return ArchiveStore, (self.uri, self._store)

    def path_of(self, path: str) -> str:
        """Return the path within the file system."""
        return f"{self.root}/{path}"

    def is_empty(self) -> bool:
        """True if the directory is missing or empty.

        Raises:
            Misconfigured: the path is a file.
        """
        kind = self._info(self.root).type
        if kind == pafs.FileType.File:
            raise Misconfigured(f"{self.name} is a file: an archive is a directory")
        if kind == pafs.FileType.NotFound:
            return True
        try:
            return not self._system.get_file_info(pafs.FileSelector(self.root))
        except OSError as error:
            raise self._failed("list", "", error) from None

    def create(self, path: str) -> Sink:
        """Create a file, to be written from beginning to end.

        Raises:
            StorageFailed: it cannot be made.
        """
        full = self.path_of(path)
        try:
            if self.is_local:
                os.makedirs(os.path.dirname(full), exist_ok=True)
                raw: BinaryIO | pa.NativeFile = open(full, "xb")  # noqa: SIM115 - `Sink` does
            else:
                raw = self._system.open_output_stream(full)
        except OSError as error:
            raise self._failed("create", path, error) from None
        return Sink(raw, f"{self.name}/{path}", self._store.scrubbed)

    def settle(self, path: str) -> None:
        """Sync the directories of a closed file, so that its name lasts."""
        if not self.is_local:
            return
        directory = os.path.dirname(self.path_of(path))
        while len(directory) >= len(self.root):
            fd = os.open(directory, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            directory = os.path.dirname(directory)

    def put_new(self, path: str, content: bytes) -> bool:
        """Write a small file as a whole; False if the file exists already.

        In an object store another writer may come between the look and the write: the last one
        wins there, and the others find that out when they read what they wrote.

        Raises:
            StorageFailed: it cannot be written.
        """
        full = self.path_of(path)
        if not self.is_local:
            if self._info(full).type != pafs.FileType.NotFound:
                return False
            with self._system.open_output_stream(full) as out:
                out.write(content)
            return self.read(path) == content
        temporary = f"{path}.{uuid.uuid4().hex}.tmp"
        sink = self.create(temporary)
        try:
            sink.write(content)
            sink.close()
            os.link(self.path_of(temporary), full)
        except FileExistsError:
            return False
        except OSError as error:
            raise failed_to("create", full, error) from None
        finally:
            sink.close()
            with suppress(OSError):
                os.unlink(self.path_of(temporary))
        self.settle(path)
        return True

    def read(self, path: str) -> bytes | None:
        """Return the content of a small file; None if it does not exist.

        Raises:
            CorruptFile: it is larger than `MOST_BYTES`.
            StorageFailed: it cannot be read.
        """
        try:
            with self._system.open_input_file(self.path_of(path)) as file:
                size = file.size()
                if size > MOST_BYTES:
                    raise CorruptFile(
                        f"{self.name}/{path} has {size} bytes, and at most {MOST_BYTES} are read"
                    )
                return bytes(file.read(size))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed("read", path, error) from None

    def open(self, path: str) -> pa.NativeFile:
        """Open a file for reads at any position.

        Raises:
            FileMissing: it is not there.
            StorageFailed: it cannot be opened.
        """
        try:
            return self._system.open_input_file(self.path_of(path))
        except FileNotFoundError:
            raise FileMissing(f"{self.name}/{path} is not there") from None
        except OSError as error:
            raise self._failed("open", path, error) from None

    def checksum(self, path: str) -> tuple[int, int]:
        """Return the size of a file, and the CRC-32C of its bytes.

        Raises:
            FileMissing, StorageFailed: as `open`.
        """
        size = crc = 0
        with self.open(path) as file:
            try:
                while chunk := file.read(_CHUNK_BYTES):
                    crc = crc32c(chunk, crc)
                    size += len(chunk)
            except OSError as error:
                raise self._failed("read", path, error) from None
        return size, crc

    def listed(self, below: str = "") -> Iterator[Listed]:
        """Yield the files below a directory of the archive, at any depth.

        Raises:
            StorageFailed: it cannot be listed.
        """
        directory = self.path_of(below).rstrip("/")
        try:
            infos = self._system.get_file_info(
                pafs.FileSelector(directory, recursive=True, allow_not_found=True)
            )
        except OSError as error:
            raise self._failed("list", below, error) from None
        for info in infos:
            if info.type == pafs.FileType.File:
                yield Listed(info.path[len(self.root) + 1 :], info.size, info.mtime_ns or 0)

    def now_ns(self) -> int:
        """Return the time by the clock of the file system, in nanoseconds since 1970.

        Raises:
            StorageFailed: nothing can be written here.
        """
        path = f"manifest/{uuid.uuid4().hex}.tmp"
        sink = self.create(path)
        sink.write(b"now")
        sink.close()
        changed_ns = self._info(self.path_of(path)).mtime_ns
        self.remove(path)
        return int(changed_ns or 0)

    def remove(self, path: str) -> None:
        """Remove a file, unless it is gone already.

        Raises:
            StorageFailed: it cannot be removed.
        """
        try:
            self._system.delete_file(self.path_of(path))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._failed("remove", path, error) from None

    def damaged(self, path: str, error: Exception) -> CorruptFile:
        """Return the error for a file that Arrow cannot read."""
        return CorruptFile(f"{self.name}/{path} is damaged: {self._store.scrubbed(error)}")

    def _info(self, path: str) -> pafs.FileInfo:
        try:
            return self._system.get_file_info(path)
        except OSError as error:
            raise self._failed("look at", "", error) from None

    def _failed(self, what: str, path: str, error: OSError) -> StorageFailed:
        at = f"{self.name}/{path}" if path else self.name
        return StorageFailed(f"Cannot {what} {at}: {self._store.scrubbed(error)}")
