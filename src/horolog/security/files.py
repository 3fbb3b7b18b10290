"""Small files of settings and secrets: their content, and who else can read them."""

import os
import stat
from pathlib import Path

__all__ = ["is_readable_by_others", "read_small"]


def read_small(path: str, most_bytes: int) -> bytes:
    """Return the content of a file that a client may have named, as by altering a setting.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no regular file, or larger.
    """
    # Pipes and devices may never end, and an open of a pipe waits for a writer.
    with open(path, "rb", opener=_open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no regular file")
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it is larger than {most_bytes >> 20} MiB")
    return content


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def is_readable_by_others(file: Path | int) -> bool:
    """Return True if other users of the machine can read a file, given by its path or number.

    A directory, a pipe and a file that does not exist have no secrets.
    """
    try:
        mode = os.stat(file).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(mode) and bool(mode & 0o044)
