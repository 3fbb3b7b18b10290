"""The system calls that `Files` makes to change files: what a test may make fail, one by one."""

import os
import shutil
from collections.abc import Callable, Sequence

from horolog.buffers import Buffer


class SystemCalls:
    """Each call as the system has it; they raise `OSError`."""

    def os_open(self, path: str, flags: int) -> int:
        """`os.open`; what it creates is for all to read."""
        return os.open(path, flags, 0o644)

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
