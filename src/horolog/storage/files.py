"""Every file operation of the storage, so that faults can be put in front of each.

Files are written at positions with `pwritev` and read with `pread`; nothing is
mapped into memory. A bounded number of them stays open, the least recently used
is closed first. An `OpenFile` closes itself when the last that holds it lets
go, so a slice that is still being sent outlives the file's eviction, renaming
and removal.

Safe for any number of threads. A path can get another file while a thread opens it:
a topic is deleted and created again, an index is replaced. What a thread opened
before such a change is for that thread alone; the next `get` opens the new file.
"""

import errno
import os
import shutil
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from horolog.buffers import Buffer
from horolog.errors import StorageFailed
from horolog.storage import names, page_cache
from horolog.storage.file_errors import (
    FileMissing,
    FileThere,
    NotRegular,
    SyncFailed,
    WouldBlock,
    failed_to,
    what_failed,
)
from horolog.storage.kept_blocks import KeptBlocks
from horolog.storage.listing import FileEntry, entry_at, files_below

T = TypeVar("T")

DEFAULT_MAX_OPEN: Final = 64
_MOST_PARTS: Final = 1024
"""IOV_MAX of Linux and macOS: one write refuses more buffers."""


class SystemCalls:
    """Each call as the system has it; they raise `OSError`."""

    mode = 0o644
    """Who may read a file that is created: all users."""

    def os_open(self, path: str, flags: int) -> int:
        """Call `os.open`."""
        return os.open(path, flags, self.mode)

    def os_pwritev(self, fd: int, parts: Sequence[Buffer], position: int) -> int:
        """`os.pwritev`."""
        return os.pwritev(fd, parts, position)

    def os_ftruncate(self, fd: int, size: int) -> None:
        """`os.ftruncate`."""
        os.ftruncate(fd, size)

    def os_fsync(self, fd: int) -> None:
        """`os.fsync`."""
        os.fsync(fd)

    def os_syncfs(self, fd: int, syncfs: Callable[[int], int]) -> int:
        """Sync a whole file system, by the system call that does it."""
        return syncfs(fd)

    def os_rename(self, source: str, target: str) -> None:
        """`os.replace`."""
        os.replace(source, target)

    def os_unlink(self, path: str) -> None:
        """`os.unlink`."""
        os.unlink(path)

    def os_mkdir(self, path: str) -> None:
        """`os.mkdir`."""
        os.mkdir(path)

    def os_rmtree(self, path: str) -> None:
        """`shutil.rmtree`, as far as that goes."""
        shutil.rmtree(path, ignore_errors=True)


class OpenFile:
    """A file descriptor that is closed with its last reference."""

    __slots__ = ("fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd

    _close = staticmethod(os.close)  # at exit the interpreter may have emptied this module

    def __del__(self) -> None:
        self._close(self.fd)


class Files(SystemCalls):
    """Opens, reads, writes, syncs and renames; every failure is a `StorageFailed` with the path.

    With `read_only` it opens nothing for writing; a call that changes a file is a bug.
    """

    least_read = 0
    """Bytes that cost no more to read than a few of them do."""
    is_local = True
    """Whether the paths are those of this machine, with its locks."""

    def __init__(self, *, max_open: int = DEFAULT_MAX_OPEN, read_only: bool = False) -> None:
        self.read_only = read_only
        self.index_blocks = KeptBlocks()
        self._max_open = max_open
        self._open: OrderedDict[str, OpenFile] = OrderedDict()
        self._renamed_later: dict[str, str] = {}  # by the path that its file will have
        self._changes = 0  # how often a path was created, renamed, removed or forgotten
        self.closings = 0
        """Changes when a file is closed that was open: until then what was open is open."""
        self._lock = threading.Lock()
        self._nonblocking_thread: int | None = None  # the thread that is within `without_blocking`
        self._refusal: str | None = None

    def without_blocking(self, look: Callable[[], T]) -> T:
        """Call `look`; its reads come from open files and the page cache. For one thread only.

        Raises:
            WouldBlock: the data is not in the page cache, a file is not open, or it takes long.
        """
        if not page_cache.CAN_TELL:
            raise WouldBlock
        self._nonblocking_thread = threading.get_ident()
        try:
            return look()
        finally:
            self._nonblocking_thread = None

    def may_block(self) -> None:
        """Mark that the following code may wait for the disk or take long.

        Raises:
            WouldBlock: this thread is within `without_blocking`.
        """
        if self.is_nonblocking:
            raise WouldBlock

    @property
    def is_nonblocking(self) -> bool:
        """True if this thread is within `without_blocking`."""
        thread = self._nonblocking_thread
        return thread is not None and thread == threading.get_ident()

    def refuse(self, why: str) -> None:
        """Do nothing any more but say why: these files are no longer where they were."""
        self._refusal = why
        self.close()

    @property
    def open_count(self) -> int:
        """Number of files that are kept open."""
        return len(self._open)

    def is_open(self, path: str) -> bool:
        """Return True if `get` would find the file open."""
        return path in self._open

    def get(self, path: str) -> OpenFile:
        """Return the open file of a path, opened now if it is not open.

        Raises:
            FileMissing: there is none.
            StorageFailed: it cannot be opened.
        """
        try:
            file = self._open[path]
            self._open.move_to_end(path)
        except KeyError:  # it is not open, or another thread has evicted it meanwhile
            changes = self._changes
        else:
            return file
        file = self._opened_as(path, os.O_RDONLY if self.read_only else os.O_RDWR)
        with self._lock:
            if self._changes != changes:
                return file  # perhaps no longer the one of this name: not kept for others
            file = self._open.setdefault(path, file)
            self._evict(path)
        return file

    def create(self, path: str, size: int = 0) -> OpenFile:
        """Create an empty file, sparse up to `size`; an existing file is emptied."""
        file = self._opened(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        if size:
            self.truncate(file, size)
        with self._lock:
            self._changes += 1
            self._open[path] = file
            self._evict(path)
        return file

    def forget(self, *paths: str) -> None:
        """Close these paths, including those that other threads are opening.

        To be called for the files in a directory once that has been renamed or removed.
        """
        with self._lock:
            self._changes += 1
            self.closings += 1
            for path in paths:
                self._open.pop(path, None)

    def read_as(self, directory: str, current_names: Mapping[str, str]) -> None:
        """Find files of a directory by names that they get once a replacement has ended.

        Args:
            directory: whose names are given; what was given of it before no longer counts.
            current_names: by the coming name, the name that the file has for now.
        """
        prefix = f"{directory}/"
        coming = {prefix + name: prefix + now for name, now in current_names.items()}
        with self._lock:
            kept = self._renamed_later.items()
            others = {path: now for path, now in kept if not path.startswith(prefix)}
            if others | coming == self._renamed_later:
                return
            self._renamed_later = others | coming
        self.forget(*(path for path in tuple(self._open) if path.startswith(prefix)))

    def close(self) -> None:
        """Keep nothing open; a file that is still held is closed when its holder lets go."""
        with self._lock:
            self._changes += 1
            self._close_all()

    def read_at(self, file: OpenFile, size: int, position: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        if self.is_nonblocking:
            return bytes(self.read_buffer(file, size, position))
        if self._refusal is not None:
            raise StorageFailed(self._refusal)
        try:
            data = os.pread(file.fd, size, position)
            if len(data) == size or not data:
                return data
            parts = [data]
            while data:
                position += len(data)
                size -= len(data)
                data = os.pread(file.fd, size, position)
                parts.append(data)
        except OSError as error:
            raise failed_to("read", file.path, error) from error
        return b"".join(parts)

    def read_buffer(self, file: OpenFile, size: int, position: int) -> bytes | bytearray:
        """Read like `read_at`, without a copy if the page cache has all the bytes."""
        if self._nonblocking_thread is None or not self.is_nonblocking:
            return self.read_at(file, size, position)
        if self._refusal is not None:
            raise StorageFailed(self._refusal)
        cached = page_cache.read_cached(file.fd, size, position)
        if cached is None:
            raise WouldBlock
        return cached

    def data_from(self, file: OpenFile, position: int) -> int:
        """Return the position of the next data at or after a position, behind a hole of zeros."""
        try:
            return os.lseek(file.fd, position, os.SEEK_DATA)
        except OSError as error:  # none follows, or the file system does not know holes
            return self.length(file) if error.errno == errno.ENXIO else position

    def will_need(self, file: OpenFile, size: int, position: int) -> None:
        """Have the disk read a stretch into the page cache at once; returns without waiting.

        Reads that follow one another in it then wait for the disk once, not one after the other.
        """
        if not self.is_nonblocking:
            page_cache.will_need(file.fd, size, position)

    def exists(self, path: str) -> bool:
        """Return True if a path exists, a dangling symbolic link included."""
        now = self._renamed_later.get(path)
        return (now is not None and os.path.lexists(now)) or os.path.lexists(path)

    def names_in(self, directory: str) -> list[str]:
        """List the names in a directory, in order.

        Raises:
            StorageFailed: it cannot be listed.
        """
        try:
            return sorted(os.listdir(directory))
        except OSError as error:
            raise failed_to("list", directory, error) from error

    def entry(self, path: str) -> FileEntry | None:
        """Return the file, directory or link at a path; see `listing.entry_at`."""
        return entry_at(path)

    def below(self, directory: str) -> Iterator[FileEntry]:
        """Yield every file in a directory, at any depth; see `listing.files_below`."""
        return files_below(directory)

    def size(self, path: str) -> int:
        """Return the length of a file; 0 if it is missing.

        Raises:
            StorageFailed: it is no regular file, or cannot be looked at.
        """
        status = self._status(path)
        return 0 if status is None else status.st_size

    def modified_ms(self, path: str) -> int:
        """Return the modification time of a file by its file system.

        Raises:
            FileMissing: it is not there.
            StorageFailed: it is no regular file, or cannot be looked at.
        """
        status = self._status(path)
        if status is None:
            raise FileMissing(f"{path} is missing")
        return status.st_mtime_ns // 1_000_000

    def modified_ns(self, path: str) -> int:
        """Return the modification time in nanoseconds; -1 if the file is missing."""
        status = self._status(path)
        return -1 if status is None else status.st_mtime_ns

    def inode(self, path: str) -> int:
        """Return the inode number of a file; 0 if the file is missing.

        Of a file that is kept open: it is read, though another may have its name by now.

        Raises:
            StorageFailed: it is no regular file, or cannot be looked at.
        """
        file = self._open.get(path)
        if file is not None:
            return self.inode_of(file)
        status = self._status(path)
        return 0 if status is None else status.st_ino

    def inode_of(self, file: OpenFile) -> int:
        """Return the inode number of an open file."""
        return os.fstat(file.fd).st_ino

    def touch(self, path: str, modified_ms: int) -> None:
        """Have a file last changed at a time."""
        try:
            os.utime(path, ns=(modified_ms * 1_000_000,) * 2)
        except OSError as error:
            raise failed_to("touch", path, error) from error

    def write_at(self, file: OpenFile, parts: Sequence[Buffer], position: int) -> None:
        """Write all of `parts` at `position`; a write that falls short is continued.

        Raises:
            StorageFailed: the disk refused; any part may have been written.
        """
        if self._refusal is not None:
            raise StorageFailed(self._refusal)
        if len(parts) > _MOST_PARTS:
            for start in range(0, len(parts), _MOST_PARTS):
                some = parts[start : start + _MOST_PARTS]
                self.write_at(file, some, position)
                position += sum(map(len, some))
            return
        try:
            written = self.os_pwritev(file.fd, parts, position)
            if written < sum(map(len, parts)):
                self._write_rest(file, b"".join(parts), written, position)
        except OSError as error:
            raise failed_to("write", file.path, error) from error

    def _write_rest(self, file: OpenFile, data: bytes, done: int, position: int) -> None:
        view = memoryview(data)
        while done < len(view):
            written = self.os_pwritev(file.fd, [view[done:]], position + done)
            if written == 0:
                raise OSError(errno.EIO, "wrote nothing")
            done += written

    def hide(self, path: str) -> None:
        """Let nobody but its owner read a regular file.

        Raises:
            StorageFailed: the disk refused.
        """
        try:
            if stat.S_ISREG(os.lstat(path).st_mode):
                os.chmod(path, 0o600)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise failed_to("hide", path, error) from error

    def truncate(self, file: OpenFile, size: int) -> None:
        """Cut or sparsely lengthen a file to `size`."""
        try:
            self.os_ftruncate(file.fd, size)
        except OSError as error:
            raise failed_to("truncate", file.path, error) from error

    def sync(self, file: OpenFile) -> None:
        """Wait until the disk has all that was written to a file.

        Raises:
            SyncFailed: it has not, and may never have it.
        """
        if self._refusal is not None:
            raise StorageFailed(self._refusal)
        try:
            self.os_fsync(file.fd)
        except OSError as error:
            raise SyncFailed(what_failed("sync", file.path, error)) from error

    def sync_path(self, path: str) -> None:
        """Sync a file by its name; of a directory, the names in it.

        Raises:
            StorageFailed: it cannot be opened.
            SyncFailed: the disk did not take them.
        """
        self.sync(self._opened(path, os.O_RDONLY, is_only_synced=True))

    def make_directory(self, path: str) -> None:
        """Make a directory.

        Raises:
            StorageFailed: there is one, or the disk refused.
        """
        try:
            self.os_mkdir(path)
        except OSError as error:
            raise failed_to("create", path, error) from error

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds, as far as that goes."""
        self.os_rmtree(path)

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory, and replace a file of the new name."""
        try:
            self.os_rename(source, target)
        except OSError as error:
            raise failed_to("rename", source, error) from error
        self.forget(source, target)

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        try:
            self.os_unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise failed_to("remove", path, error) from error
        self.forget(path)

    def replace(
        self,
        path: str,
        content: bytes,
        *,
        sync: bool = True,
        like: OpenFile | None = None,
        before: Callable[[str], None] | None = None,
    ) -> None:
        """Put a whole small file in place at once: readers see the old or the new content.

        It gets the owner and the rights of the file `like`, as far as that is permitted.
        `before` is called with the path of the new file before it is renamed.
        """
        temporary = path + names.TEMPORARY
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        try:
            file = self._opened(temporary, flags)
        except FileThere:  # of a replacement that was interrupted
            self.remove(temporary)
            file = self._opened(temporary, flags)
        if like is not None:
            owner = os.fstat(like.fd)
            with suppress(PermissionError):  # only root may give files away
                os.fchown(file.fd, owner.st_uid, owner.st_gid)
            os.fchmod(file.fd, stat.S_IMODE(owner.st_mode))
        self.write_at(file, [content], 0)
        if sync:
            self.sync(file)
        if before is not None:
            before(temporary)
        self.rename(temporary, path)

    def read_whole(self, path: str, max_bytes: int) -> bytes | None:
        """Read a small file as a whole; None if it is missing.

        Raises:
            StorageFailed: it cannot be read, or is longer than such a file can be.
        """
        try:
            file = self._opened_as(path, os.O_RDONLY)
        except FileMissing:
            return None
        length = self.length(file)
        if length > max_bytes:
            raise StorageFailed(f"{path} is longer than {max_bytes} bytes")
        return self.read_at(file, length, 0)

    def length(self, file: OpenFile) -> int:
        """Return the length of an open file."""
        return os.fstat(file.fd).st_size

    def _opened_as(self, path: str, flags: int) -> OpenFile:
        """Open the file that has a name now, or gets it when a replacement ends; see `read_as`."""
        now = self._renamed_later.get(path)
        if now is not None:
            with suppress(FileMissing):  # it has got its name
                file = self._opened(now, flags)
                file.path = path
                return file
        return self._opened(path, flags)

    def _status(self, path: str) -> os.stat_result | None:
        now = self._renamed_later.get(path)
        status = None if now is None else _regular_status(now)
        return _regular_status(path) if status is None else status

    def _opened(self, path: str, flags: int, *, is_only_synced: bool = False) -> OpenFile:
        """Open a regular file; with `is_only_synced`, also a directory.

        A log directory may come from anywhere: a symbolic link in it could lead out of it, a
        FIFO would block. The log directory itself may be a symbolic link.
        """
        self.may_block()
        if self._refusal is not None:
            raise StorageFailed(self._refusal)
        flags |= os.O_CLOEXEC | os.O_NONBLOCK | (0 if is_only_synced else os.O_NOFOLLOW)
        try:
            try:
                fd = self.os_open(path, flags)
            except OSError as error:
                if error.errno != errno.EMFILE:
                    raise
                with self._lock:  # others may have taken what was ours: make room once
                    self._close_all()
                fd = self.os_open(path, flags)
        except FileNotFoundError:
            raise FileMissing(f"{path} is not there") from None
        except FileExistsError:
            raise FileThere(f"{path} is there already") from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise NotRegular(f"{path} is a symbolic link, which is not followed") from None
            if error.errno in (errno.ENXIO, errno.EISDIR):  # a socket, a directory
                raise NotRegular(f"{path} is not a regular file") from None
            raise failed_to("open", path, error) from error
        if not is_only_synced and not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise NotRegular(f"{path} is not a regular file")
        return OpenFile(path, fd)

    def _evict(self, newest: str) -> None:
        """Close the least recently used where too many are open; with the lock held."""
        self._open.move_to_end(newest)
        while len(self._open) > self._max_open:
            self.closings += 1
            self._open.popitem(last=False)

    def _close_all(self) -> None:
        """Keep no file open; with the lock held."""
        self.closings += 1
        self._open.clear()


def _regular_status(path: str) -> os.stat_result | None:
    """Return the status of a regular file; None if it is missing.

    Raises:
        NotRegular: it is something else.
        StorageFailed: it cannot be looked at.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise failed_to("look at", path, error) from error
    if not stat.S_ISREG(status.st_mode):
        what = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
        raise NotRegular(f"{path} is {what}")
    return status
