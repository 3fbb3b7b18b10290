"""The lock of a log directory: one broker at a time, a Kafka or one of ours.

It is of the kind that Java takes, but where the system has such locks it belongs to the
descriptor and not to the process, so that it also holds between two brokers of one process.
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
from horolog.storage.files import NotRegular, failed_to

_OPEN_FILE_LOCK: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None)
_OPEN_FILE_LOCK_ASK: Final[int | None] = getattr(fcntl, "F_OFD_GETLK", None)
_WHOLE_FILE = Struct("hhqqi4x")  # Linux's struct flock on 64 bits


class DirectoryLock:
    """A lock that is held until it is closed; `fd` is the descriptor, None afterwards."""

    def __init__(self, fd: int) -> None:
        self.fd: int | None = fd

    def close(self) -> None:
        """Let go of the lock; nothing if that has been done."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def lock_directory(path: str) -> int:
    """Lock a file against other processes; the descriptor holds the lock until it is closed.

    Raises:
        BlockingIOError: another process holds the lock.
        StorageFailed: the file cannot be opened, or is no regular file.
    """
    fd = _opened(path, os.O_RDWR | os.O_CREAT)
    try:
        if _OPEN_FILE_LOCK is None:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            fcntl.fcntl(fd, _OPEN_FILE_LOCK, _WHOLE_FILE.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        os.close(fd)
        raise
    return fd


def lock_log_dir(path: Path) -> DirectoryLock:
    """Lock a log directory, made if there is none.

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


@contextmanager
def lock_offline(log_dir: Path, why: str) -> Iterator[None]:
    """Keep brokers away from a log directory, if it is one, while a tool changes it.

    Args:
        log_dir: the directory.
        why: a broker must not run, for the refusal.

    Raises:
        Misconfigured: a broker is at work there.
        StorageFailed: as `lock_directory`.
    """
    path = log_dir / names.LOCK
    if not path.exists() and not (log_dir / names.META_PROPERTIES).exists():
        yield
        return
    try:
        fd = lock_directory(str(path))
    except BlockingIOError:
        raise Misconfigured(
            f"{path} is locked: a broker is at work in this directory. Stop it first; {why}"
        ) from None
    try:
        yield
    finally:
        os.close(fd)


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
    """Whether the file that was locked is still where it was."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except OSError:
        return False


def is_locked(path: str) -> bool:
    """Whether a process holds the lock of `lock_directory`; neither locks nor changes anything.

    Raises:
        StorageFailed: the file is there and cannot be opened.
    """
    if not os.path.lexists(path):
        return False
    fd = _opened(path, os.O_RDONLY)
    try:
        if _OPEN_FILE_LOCK_ASK is not None:
            asked = _WHOLE_FILE.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, *_ = _WHOLE_FILE.unpack(fcntl.fcntl(fd, _OPEN_FILE_LOCK_ASK, asked))
            return bool(kind != fcntl.F_UNLCK)
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # let go of with the descriptor
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
