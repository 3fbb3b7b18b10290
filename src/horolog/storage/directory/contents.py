"""The content of log and partition directories, by names and types of their entries.

A symbolic link is never followed: it could lead out of the log directory.
"""

import os
from collections.abc import Container, Iterable
from pathlib import Path
from typing import NamedTuple

from horolog.storage import names
from horolog.storage.file_errors import NotRegular, failed_to
from horolog.storage.files import Files
from horolog.storage.names import TopicPartition

_MAX_COPY_BYTES = 1 << 20


class Contents(NamedTuple):
    """Partitions in the order of their names. An entry with a name of no known form is ignored."""

    partitions: list[TopicPartition]
    """Directories to be opened."""
    internal: list[TopicPartition]
    """Directories of Kafka's internal topics that are not opened."""
    blocked: dict[TopicPartition, str]
    """Names of partitions that something other than a directory has, and what that is."""
    deleted: list[str]
    """Paths of partitions whose topic was deleted, and which wait to be removed."""
    has_moved: bool
    """There are partitions that a Kafka was moving to another disk (-future), or set aside."""


def contents_of(log_dir: Path, reserved: Container[str] = names.INTERNAL_TOPICS) -> Contents:
    """List a log directory without opening anything in it; `reserved` topics are not to be opened.

    Raises:
        StorageFailed: it cannot be listed.
    """
    found = Contents([], [], {}, [], has_moved=False)
    has_moved = False
    for entry in _entries(str(log_dir)):
        partition = names.partition_of(entry.name)
        if not entry.is_dir(follow_symlinks=False):
            if partition is not None:
                what = "a symbolic link" if entry.is_symlink() else "not a directory"
                found.blocked[partition] = f"{entry.path} is {what}"
        elif names.is_deleted_directory(entry.name):
            found.deleted.append(entry.path)
        elif partition is None:
            has_moved |= names.is_moved_partition(entry.name)
        elif partition.topic in reserved:
            found.internal.append(partition)
        else:
            found.partitions.append(partition)
    return found._replace(has_moved=has_moved)


def earlier_files(log_dir: Path) -> list[str]:
    """Paths of files in the form of an earlier development version, within a log directory.

    Nothing reads them. Where they are, append times or settings would be lost silently.

    Raises:
        StorageFailed: a directory cannot be listed.
    """
    found = [name for name in names.EARLIER_STATE if os.path.lexists(log_dir / name)]
    for partition in contents_of(log_dir, reserved=()).partitions:
        found += (
            f"{partition}/{entry.name}"
            for entry in _entries(str(log_dir / str(partition)))
            for suffix in names.EARLIER_COMPANIONS
            if names.base_offset_of(entry.name, suffix) is not None
        )
    return sorted(found)


def files_of(directory: str) -> set[str]:
    """Return the names in a partition's directory.

    Raises:
        StorageFailed: it cannot be listed, or something that is no regular file has a name that
            is read, written or removed there.
    """
    found = set()
    for entry in _entries(directory):
        if not entry.is_file(follow_symlinks=False) and names.is_known_file(entry.name):
            what = "a symbolic link" if entry.is_symlink() else "not a regular file"
            raise NotRegular(f"{entry.path} is {what}")
        found.add(entry.name)
    return found


def clear_the_way(files: Files, directory: str, present: Iterable[str]) -> list[str]:
    """Rename non-regular files that have one of these names; return their new paths.

    The names are of files that are written again and again: a directory in their place would
    refuse that, and a symbolic link lead elsewhere.

    Raises:
        StorageFailed: the disk refused.
    """
    moved = []
    for name in present:
        path = f"{directory}/{name}"
        try:
            files.size(path)
        except NotRegular:
            moved.append(_free_name(files, path))
            files.rename(path, moved[-1])
    return moved


def set_aside(files: Files, path: str) -> str:
    """Copy a small file next to it, or move a long one; return the path.

    Raises:
        StorageFailed: the disk refused.
    """
    target = _free_name(files, path)
    if files.size(path) > _MAX_COPY_BYTES:
        files.rename(path, target)
    else:
        files.replace(target, files.read_whole(path, _MAX_COPY_BYTES) or b"")
    return target


def copy_aside(files: Files, path: str) -> str:
    """Write a synced copy of a file of any length next to it; return its path.

    Raises:
        StorageFailed: the disk refused.
    """
    target = _free_name(files, path)
    source, copy = files.get(path), files.create(target)
    position, length = 0, files.length(source)
    while position < length:
        piece = files.read_at(source, min(_MAX_COPY_BYTES, length - position), position)
        if not piece:
            break
        files.write_at(copy, [piece], position)
        position += len(piece)
    files.sync(copy)
    files.sync_path(os.path.dirname(path))
    return target


def _free_name(files: Files, path: str) -> str:
    number = 1
    while files.exists(f"{path}.{number}{names.SET_ASIDE}"):
        number += 1
    return f"{path}.{number}{names.SET_ASIDE}"


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise failed_to("list", directory, error) from error
