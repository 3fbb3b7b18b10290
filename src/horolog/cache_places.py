"""Directories that may hold this user's caches."""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path


def cache_places() -> Iterator[Path]:
    """Yield them, the preferred one first; they need not exist.

    Where no temporary directory can be written, Python takes the current one. That may be a log
    directory, in which one of ours would look like a partition, so it is no place.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.path.isabs(home):
        yield Path(home) / "horolog"
    try:
        temporary = tempfile.gettempdir()
        is_for_all = os.stat(temporary).st_mode & stat.S_ISVTX
        is_current = temporary == os.getcwd()
    except OSError:  # there is no writable directory at all
        return
    if is_for_all or not is_current:
        yield Path(temporary) / f"horolog-{os.getuid()}"
