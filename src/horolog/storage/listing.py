"""Looks at paths of this machine: a file, or every file below a directory."""

import os
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from horolog.errors import Misconfigured, StorageFailed
from horolog.storage import names
from horolog.storage.file_errors import failed_to

_LISTED_AGAIN = 20


class FileEntry(NamedTuple):
    """A file or directory: its path within the file system, its size in bytes, its last change.

    `changed_ns` counts nanoseconds since 1970; 0 where the file system does not say, as `inode`.
    """

    path: str
    size: int
    changed_ns: int = 0
    is_directory: bool = False
    inode: int = 0


def entry_at(path: str) -> FileEntry | None:
    """Return the entry at a path, symbolic links followed; None if nothing is there.

    Raises:
        StorageFailed: it cannot be looked at, or is neither a file nor a directory.
    """
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        raise failed_to("look at", path, error) from error
    is_directory = stat.S_ISDIR(status.st_mode)
    if not (is_directory or stat.S_ISREG(status.st_mode)):
        raise StorageFailed(f"{path} is neither a file nor a directory")
    return FileEntry(path, status.st_size, status.st_mtime_ns, is_directory)


def segment_names(present: Iterable[str]) -> set[str]:
    """Return the names among these that say which segments a log has."""
    ends = names.LOG, names.SWAP, names.CLEANED
    return {name for name in present if name.endswith(ends)}


def files_below(directory: str) -> Iterator[FileEntry]:
    """Yield the regular files; a symbolic link could lead anywhere, and a FIFO would block.

    Raises:
        Misconfigured: something else has the name of a partition or of a segment, so that records
            would be missing.
        StorageFailed: a directory cannot be listed.
    """
    directories = [directory]
    while directories:
        listed = directories.pop()
        try:
            with os.scandir(listed) as entries:
                # All names before any size: behind a segment that is listed nothing is appended to
                # the one before it any more.
                found = [*entries]
            found = _listed_again(listed, found)
        except FileNotFoundError:
            continue  # it may go away while it is listed
        except OSError as error:
            raise StorageFailed(f"Cannot list {listed}: {error.strerror}") from error
        for entry in found:
            try:
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    size, inode = status.st_size, status.st_ino
                    yield FileEntry(entry.path, size, status.st_mtime_ns, inode=inode)
                else:
                    _refuse_if_named_as_log(entry)
            except FileNotFoundError:
                continue  # a file, too
            except OSError as error:
                raise StorageFailed(f"Cannot look at {entry.path}: {error.strerror}") from error


def _listed_again(directory: str, found: "list[os.DirEntry[str]]") -> "list[os.DirEntry[str]]":
    """List a directory until two listings in a row have the same segments.

    One listing may miss a file that is renamed meanwhile under both of its names.
    """
    for _ in range(_LISTED_AGAIN):
        segments = segment_names(entry.name for entry in found)
        if not segments:
            break
        with os.scandir(directory) as entries:
            found = [*entries]
        if segment_names(entry.name for entry in found) == segments:
            break
    return found


def _refuse_if_named_as_log(entry: "os.DirEntry[str]") -> None:
    is_segment = names.base_offset_of(entry.name.removesuffix(names.SWAP), names.LOG) is not None
    if entry.is_symlink() and (is_segment or names.partition_of(entry.name) is not None):
        raise Misconfigured(
            f"{entry.path} is a symbolic link, which is not followed: give the path that it leads "
            "to"
        )
    if is_segment:
        raise Misconfigured(f"{entry.path} is not a regular file, and cannot be read")
