"""The lock of a log directory: one broker at a time, a Kafka or one of ours.

It is of the kind that Java takes, but where the system has such locks it belongs to the
descriptor and not to the process, so that it also holds between two brokers of one process.

A tool whose work is done by several processes keeps the first byte locked, and each of the
processes shares the bytes behind it. A broker locks the whole file: it starts when the tool and
the last of its processes are gone. Locks are those of one machine: a file system that several
machines mount may not pass them on.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Final

from horolog.errors import Misconfigured
from horolog.storage import names
from horolog.storage.file_errors import FileMissing, NotRegular, failed_to

_OPEN_FILE_LOCK: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None)
_OPEN_FILE_LOCK_ASK: Final[int | None] = getattr(fcntl, "F_OFD_GETLK", None)
_RANGE = Struct("hhqqi4x")  # Linux's struct flock on 64 bits
_SHARED_FROM: Final = 1  # the byte before is the tool's own


class DirectoryLock:
    """Lock that is held until it is closed; `fd` is None afterwards."""

    def __init__(self, fd: int) -> None:
        self.fd: int | None = fd

    def close(self) -> None:
        """Let go of the lock; nothing if that has been done."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def lock_directory(path: str) -> int:
    """Lock a file against other processes, until the returned descriptor is closed.

    Raises:
        BlockingIOError: another process holds the lock.
        StorageFailed: the file cannot be opened, or is no regular file.
    """
    fd = _opened(path, os.O_RDWR | os.O_CREAT)
    try:
        if _OPEN_FILE_LOCK is None:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            fcntl.fcntl(fd, _OPEN_FILE_LOCK, _range(fcntl.F_WRLCK))
    except OSError:
        os.close(fd)
        raise
    return fd


def lock_log_dir(path: Path) -> DirectoryLock:
    """Lock a log directory, which is created if it is missing.

    Raises:
        Misconfigured: another broker has it, or it cannot be made or written to.
        StorageFailed: the lock file cannot be opened.
    """
    _ensure_directory(path)
    try:
        return DirectoryLock(lock_directory(str(path / names.LOCK)))
    except BlockingIOError:
        raise Misconfigured(
            f"Failed to acquire lock on file .lock in {path}. A broker in another process is "
            "using this directory."
        ) from None


def _ensure_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Misconfigured(f"log.dirs = {path} cannot be made: {error.strerror}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise Misconfigured(
            f"log.dirs = {path} is not writable; `horolog log inspect {path}` reads it as it is"
        )


class SharersRemain(Misconfigured):
    """Processes of a tool that was stopped are still at work; they end by themselves."""


@contextmanager
def lock_offline(log_dir: Path, why: str, *, is_shared: bool = False) -> Iterator[None]:
    """Keep brokers away from a log directory while a tool changes it.

    Args:
        why: a broker must not run, for the refusal.
        is_shared: let processes of the tool share the lock by `share_offline`.

    Raises:
        Misconfigured: a broker is at work there.
        SharersRemain: processes that shared the lock of another tool are.
        StorageFailed: as `lock_directory`.
    """
    path = _lock_of(log_dir)
    if path is None:
        yield
        return
    try:
        fd = lock_directory(path)
    except BlockingIOError:
        if _is_shared(path):
            raise SharersRemain(
                f"{path} is locked by tasks of a job that was stopped. Wait until they end"
            ) from None
        raise _at_work(path, why) from None
    try:
        if is_shared and _OPEN_FILE_LOCK is not None:
            fcntl.fcntl(fd, _OPEN_FILE_LOCK, _range(fcntl.F_UNLCK, _SHARED_FROM))
        yield
    finally:
        os.close(fd)


@contextmanager
def share_offline(log_dir: Path, why: str) -> Iterator[None]:
    """Share the lock of a tool that called `lock_offline`, or keep it should that tool be gone.

    Raises:
        Misconfigured: a broker is at work there.
        StorageFailed: as `lock_directory`.
    """
    path = _lock_of(log_dir)
    if path is None or _OPEN_FILE_LOCK is None:
        yield
        return
    fd = _opened(path, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.fcntl(fd, _OPEN_FILE_LOCK, _range(fcntl.F_RDLCK, _SHARED_FROM))
        except BlockingIOError:
            raise _at_work(path, why) from None
        yield
    finally:
        os.close(fd)


@contextmanager
def lock_against_others(path: str) -> Iterator[None]:
    """Keep other processes that call this from a file or directory, as long as it has its name.

    Waits for them. A process that dies lets go.

    Raises:
        FileMissing: it is not there.
        StorageFailed: it cannot be opened or locked.
    """
    fd = _waited_for(path)
    while not still_locks(path, fd):  # meanwhile another may have taken its place
        os.close(fd)
        fd = _waited_for(path)
    try:
        yield
    finally:
        os.close(fd)


def _waited_for(path: str) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise FileMissing(f"{path} is not there") from None
    except OSError as error:
        raise failed_to("open", path, error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError as error:
        os.close(fd)
        raise failed_to("lock", path, error) from error
    return fd


def is_log_dir(path: Path) -> bool:
    """Return True if a directory is, or was, a broker's log directory."""
    return (path / names.LOCK).exists() or (path / names.META_PROPERTIES).exists()


def _lock_of(log_dir: Path) -> str | None:
    return str(log_dir / names.LOCK) if is_log_dir(log_dir) else None


def _at_work(path: str, why: str) -> Misconfigured:
    return Misconfigured(
        f"{path} is locked: a broker is at work in this directory. Stop it first; {why}"
    )


def _is_shared(path: str) -> bool:
    if _OPEN_FILE_LOCK_ASK is None:
        return False
    fd = _opened(path, os.O_RDONLY)
    try:
        kind, *_ = _RANGE.unpack(fcntl.fcntl(fd, _OPEN_FILE_LOCK_ASK, _range(fcntl.F_WRLCK)))
        return bool(kind == fcntl.F_RDLCK)
    finally:
        os.close(fd)


def _range(kind: int, start: int = 0) -> bytes:
    """Return a lock request from a byte to the end of the file."""
    return _RANGE.pack(kind, os.SEEK_SET, start, 0, 0)


def _opened(path: str, flags: int) -> int:
    try:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        raise failed_to("open", path, error) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotRegular(f"{path} is not a regular file; remove it if no broker is at work here")
    return fd


def still_locks(path: str, fd: int) -> bool:
    """Return True if the locked file still has its path."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except OSError:
        return False


def is_locked(path: str) -> bool:
    """Return True if a process has the lock of `lock_directory`; changes nothing.

    Raises:
        StorageFailed: the file is there and cannot be opened.
    """
    if not os.path.lexists(path):
        return False
    fd = _opened(path, os.O_RDONLY)
    try:
        if _OPEN_FILE_LOCK_ASK is not None:
            asked = _range(fcntl.F_WRLCK)
            kind, *_ = _RANGE.unpack(fcntl.fcntl(fd, _OPEN_FILE_LOCK_ASK, asked))
            return bool(kind != fcntl.F_UNLCK)
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # let go of with the descriptor
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
