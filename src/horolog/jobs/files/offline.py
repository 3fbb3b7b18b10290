"""Locks that keep brokers out of log directories while tasks of a job change files."""

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from horolog.storage.directory.lock import SharersRemain, lock_offline

_ORPHANS_S: Final = 60.0
_LOOK_S = 0.1


@contextmanager
def locked_offline(log_dirs: Iterable[Path], why: str) -> Iterator[None]:
    """Hold the locks of log directories, shared with the tasks of this job.

    Waits for the tasks of a killed earlier run, which end soon after its driver. The locks are
    those of this machine: a broker on another one that mounts the same disk may not see them.

    Raises:
        Misconfigured: a broker is at work in a directory, or tasks of an earlier run still are.
    """
    until = time.monotonic() + _ORPHANS_S
    with ExitStack() as held:
        for log_dir in sorted({path.resolve() for path in log_dirs}):
            while True:
                try:
                    held.enter_context(lock_offline(log_dir, why, is_shared=True))
                    break
                except SharersRemain:
                    if time.monotonic() > until:
                        raise
                    time.sleep(_LOOK_S)
        yield
