"""Errors of files, and the action that an operator can take."""

import errno

from horolog.errors import StorageFailed


class FileMissing(StorageFailed):
    """The file does not exist; the caller decides whether that is damage."""


class FileThere(StorageFailed):
    """A file that was to be created exists."""


class NotRegular(StorageFailed):
    """A directory, symbolic link, FIFO, socket or device in the place of a regular file."""


class WouldBlock(Exception):
    """The data is not in the page cache, or the call takes long. See `Files.without_blocking`."""


class SyncFailed(StorageFailed):
    """An fsync failed. A later success proves nothing, because Linux drops the unwritten pages.

    The data must be written again.
    """


def failed_to(what: str, path: str, error: OSError) -> StorageFailed:
    """Build the error for a refused file operation, with advice."""
    return StorageFailed(what_failed(what, path, error))


def what_failed(what: str, path: str, error: OSError) -> str:
    """Return a sentence about a refused operation, with a hint where one helps."""
    hint = ""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        hint = "; raise the limit of open files (ulimit -n)"
    elif error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "; free some space, writing resumes by itself"
    return f"Cannot {what} {path}: {error.strerror or error}{hint}"
