"""The machine's current uptime, by which files are known that no copy has and no restart leaves."""

import sys
from functools import cache

from horolog.storage import names
from horolog.storage.files import Files


def home_of(files: Files, log_dir: str) -> str:
    """Return the machine's uptime and the inode of a log directory's lock file.

    Empty if one is unknown. No copy of the directory has it, nor the directory after a restart of
    the machine, which may have lost what was written last.

    Raises:
        StorageFailed: the lock file is no regular file.
    """
    boot, inode = boot_id(), files.inode(f"{log_dir}/{names.LOCK}")
    return f"{boot} {inode}" if boot and inode else ""


@cache
def boot_id() -> str:
    """Return an id of the machine's current uptime; empty if it is unknown."""
    if sys.platform == "darwin":
        return _boot_session_of_macos()
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""


def _boot_session_of_macos() -> str:
    import ctypes  # noqa: PLC0415 - 5 ms that no other system need wait for

    text, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    sysctl = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    if sysctl is None or sysctl(b"kern.bootsessionuuid", text, ctypes.byref(size), None, 0):
        return ""
    return text.value.decode("ascii", "replace")
