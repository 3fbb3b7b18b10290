"""The system calls that `Files` makes to change files: what a test may make fail, one by one."""

import os
import shutil
from collections.abc import Callable, Sequence

from horolog.buffers import Buffer


class SystemCalls:
    """Each call as the system has it; they raise `OSError`."""

    def _os_open(self, path: str, flags: int) -> int:
        return os.open(path, flags, 0o644)

    def _pwritev(self, fd: int, parts: Sequence[Buffer], position: int) -> int:
        return os.pwritev(fd, parts, position)

    def _ftruncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def _fsync(self, fd: int) -> None:
        os.fsync(fd)

    def _syncfs(self, fd: int, syncfs: Callable[[int], int]) -> int:
        return syncfs(fd)

    def _rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def _unlink(self, path: str) -> None:
        os.unlink(path)

    def _mkdir(self, path: str) -> None:
        os.mkdir(path)

    def _rmtree(self, path: str) -> None:
        shutil.rmtree(path, ignore_errors=True)
