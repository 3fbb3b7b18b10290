"""Processes of root that obey the rights of files as anybody's do."""

import ctypes


def drop_capabilities() -> None:
    """Keep the user, who can read the interpreter's files, without the rights of root."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this process
    if ctypes.CDLL(None, use_errno=True).capset(header, (ctypes.c_uint32 * 6)()) != 0:
        raise OSError(ctypes.get_errno(), "capset")
