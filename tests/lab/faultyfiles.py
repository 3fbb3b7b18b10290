"""A way to the disk that fails, or is killed, at a chosen operation."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from horolog.buffers import Buffer
from horolog.storage import Files


class Killed(BaseException):
    """The process is gone: this is never caught, and nothing is done afterwards."""


class FaultyFiles(Files):
    """Counts what changes the disk; does something else at number `at`.

    The disk outlives the process, so nothing that was written is taken back, and a
    write that is killed has happened in part.
    """

    def __init__(self, at: int | None, fault: OSError | Killed | None = None, for_ops: int = 1):
        super().__init__()
        self.count = 0
        self.faults: list[str] = []
        self.at = at
        self._fault = fault
        self._for_ops = for_ops

    def fail_after(self, steps: int, fault: OSError | Killed) -> None:
        """Fail at the operation that this many others precede, counted from now on."""
        self.at, self._fault = self.count + steps, fault

    def heal(self) -> None:
        """Fail no more."""
        self.at = None

    def _step(self, what: str) -> bool:
        """Whether this operation is the one that fails."""
        number, self.count = self.count, self.count + 1
        if self.at is None or not self.at <= number < self.at + self._for_ops:
            return False
        self.faults.append(what)
        return True

    def _fail(self) -> None:
        assert self._fault is not None
        raise self._fault

    def os_open(self, path: str, flags: int) -> int:
        if flags & os.O_CREAT and self._step(f"create {os.path.basename(path)}"):
            self._fail()
        return super().os_open(path, flags)

    def os_pwritev(self, fd: int, parts: Sequence[Buffer], position: int) -> int:
        if self._step("write"):
            data = b"".join(parts)
            os.pwrite(fd, data[: len(data) // 2], position)
            self._fail()
        return super().os_pwritev(fd, parts, position)

    def os_ftruncate(self, fd: int, size: int) -> None:
        if self._step("truncate"):
            self._fail()
        super().os_ftruncate(fd, size)

    def os_fsync(self, fd: int) -> None:
        if self._step("sync"):
            self._fail()  # and otherwise pretend: tests cut no power

    def os_rename(self, source: str, target: str) -> None:
        if self._step(f"rename {os.path.basename(source)}"):
            self._fail()
        super().os_rename(source, target)

    def os_unlink(self, path: str) -> None:
        if self._step(f"remove {os.path.basename(path)}"):
            self._fail()
        super().os_unlink(path)

    def os_mkdir(self, path: str) -> None:
        if self._step(f"make {os.path.basename(path)}"):
            self._fail()
        super().os_mkdir(path)


class ForgetfulFiles(Files):
    """Knows what a power cut would leave, and syncs as Linux does.

    A sync that fails forgets what it should have written: the page cache has it, the
    disk does not, and the next sync succeeds without writing it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fails = False
        self._dirty: dict[int, list[tuple[int, bytes]]] = {}
        self._on_disk: dict[int, bytearray] = {}

    def on_disk(self, path: str) -> bytes:
        """What a file would hold after a power cut."""
        return bytes(self._on_disk.get(os.stat(path).st_ino, b""))

    def os_pwritev(self, fd: int, parts: Sequence[Buffer], position: int) -> int:
        self._dirty.setdefault(os.fstat(fd).st_ino, []).append((position, b"".join(parts)))
        return super().os_pwritev(fd, parts, position)

    def os_fsync(self, fd: int) -> None:
        inode = os.fstat(fd).st_ino
        dirty = self._dirty.pop(inode, [])
        if self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        content = self._on_disk.setdefault(inode, bytearray())
        for position, data in dirty:
            content.extend(bytes(max(0, position + len(data) - len(content))))
            content[position : position + len(data)] = data
