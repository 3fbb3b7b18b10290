"""Segment files as units of work: small partitions together, large segments alone.

A part is a partition, or one segment of a large partition, so that a huge partition is spread like
any other. One task works on a part as a whole. A unit is one large part or several small ones.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from horolog.errors import Misconfigured
from horolog.jobs.spread import UNITS_PER_CORE, in_shares
from horolog.patterns import given_pattern
from horolog.sources.file_systems import Root
from horolog.sources.limits import Subscription, subscribed, subscription_of
from horolog.sources.object_stores import StoreOptions
from horolog.sources.uris import LogPath
from horolog.storage import names
from horolog.storage.file_errors import failed_to
from horolog.storage.names import TopicPartition
from horolog.storage.removal.leftovers import base_offsets
from horolog.storage.verify import VerifyTarget, find_target

UNIT_BYTES: Final = 64 << 20
LEAST_UNIT_BYTES = 1 << 20
_MAX_PARTS = 500


class File(NamedTuple):
    """A file of a partition: name, size in bytes, modification time in ns since 1970."""

    name: str
    size: int
    changed_ns: int


@dataclass(frozen=True, slots=True)
class LogPart:
    """A partition, or one of its segments, as listed."""

    path: LogPath
    """Given path, which opens the file system of the part."""
    target: VerifyTarget
    size: int
    """Size of its segments in bytes."""
    fingerprint: str
    """Checksum of its files' names, sizes and modification times."""

    @property
    def directory(self) -> Path:
        """Directory of the partition."""
        return self.target.partitions[0]

    @property
    def is_local(self) -> bool:
        """True on a disk, False in an object store."""
        return self.path.local is not None

    @property
    def key(self) -> str:
        """Unique name of the part in a state directory."""
        path = str(self.target.segment or self.directory)
        return path if self.is_local else f"{self.path.scheme}:{path}"


@dataclass(frozen=True, slots=True)
class FoundParts:
    """The parts below the given paths."""

    parts: tuple[LogPart, ...]
    log_dirs: tuple[VerifyTarget, ...] = ()
    """Local log directories that were given as a whole."""

    @property
    def size(self) -> int:
        """Size of all segments in bytes."""
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, slots=True)
class FileRequest:
    """Paths and topics that a job on files works on."""

    paths: tuple[LogPath, ...]
    store: StoreOptions
    subscription: Subscription | None

    @classmethod
    def of(
        cls,
        paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        topics: str | Iterable[str] | None,
        topics_pattern: str | None,
        settings: Mapping[str, str] | None,
    ) -> "FileRequest":
        """Make the request of a job's arguments.

        Raises:
            Misconfigured: an argument is wrong, or contradicts another.
        """
        given = [paths] if isinstance(paths, str | os.PathLike) else [*paths]
        if not given:
            raise Misconfigured("give a path: a log directory, a partition or a segment")
        lowered = {name.lower(): value for name, value in (settings or {}).items()}
        for name in lowered:
            if not name.startswith("fs."):
                raise Misconfigured(f"{name} is no option of an object store: fs.NAME=VALUE")
        asked: dict[str, str] = {}
        if topics is not None:
            asked["subscribe"] = topics if isinstance(topics, str) else ",".join(topics)
        if topics_pattern is not None:
            if asked:
                raise Misconfigured("give topics or topics-pattern, not both")
            asked["topicspattern"] = given_pattern(topics_pattern, "topics-pattern").expression
        locations = tuple(map(LogPath.parse, given))
        return cls(locations, StoreOptions.parse(lowered), subscription_of(asked))

    @property
    def shown(self) -> list[str]:
        """Paths without credentials, for messages and state."""
        return [path.name for path in self.paths]


def find_parts(request: FileRequest) -> FoundParts:
    """List the parts of log directories, partition directories or segments, on disks or in stores.

    In an object store partitions are found at any depth.

    Raises:
        Misconfigured: a path contains no log, or a topic does not exist.
        StorageFailed: a directory cannot be listed.
    """
    found: dict[str, LogPart] = {}
    log_dirs = []
    for path in request.paths:
        if path.local is None:
            targets = _remote_targets(path, request.store)
        else:
            target = find_target(Path(path.uri))
            if target.is_log_dir:
                log_dirs.append(target)
            targets = [
                (VerifyTarget(target.log_dir, (partition,), target.segment), _files_in(partition))
                for partition in target.partitions
            ]
        for target, files in targets:
            for part in _parts_of(path, target, files):
                found[part.key] = part
    return FoundParts(_subscribed(found, request), tuple(log_dirs))


def refuse_remote(found: FoundParts, why: str) -> None:
    """Refuse parts in object stores.

    Raises:
        Misconfigured: a part is in an object store.
    """
    remote = next((part for part in found.parts if not part.is_local), None)
    if remote is not None:
        raise Misconfigured(f"{remote.path.name} is in an object store: {why}")


def units_of(parts: Iterable[LogPart], cores: int) -> list[tuple[LogPart, ...]]:
    """Group the parts into units for a number of cores, the largest first."""
    ordered = sorted(parts, key=lambda part: (-part.size, part.key))
    share = sum(part.size for part in ordered) // (cores * UNITS_PER_CORE)
    limit = min(UNIT_BYTES, max(LEAST_UNIT_BYTES, share))
    return list(in_shares(ordered, lambda part: part.size, limit, _MAX_PARTS))


def fingerprint_now(part: LogPart) -> str:
    """Return the present fingerprint of a local part.

    Raises:
        StorageFailed: the directory cannot be listed.
    """
    return _fingerprint(_of_segment(part.target, _files_in(part.directory)))


def _parts_of(path: LogPath, target: VerifyTarget, files: Sequence[File]) -> list[LogPart]:
    sizes = {
        base: size
        for name, size, _ in files
        if (base := names.base_offset_of(name, names.LOG)) is not None
    }
    is_whole = len(sizes) < 2 or sum(sizes.values()) < UNIT_BYTES
    # Which segments count is known where a replacement is ended, or looked at, as a whole.
    is_whole |= any(file.name.endswith(names.SWAP) for file in files)
    if target.segment is None and is_whole:
        return [LogPart(path, target, sum(sizes.values()), _fingerprint(files))]
    (directory,) = target.partitions
    bases = sorted(sizes)
    if target.segment is not None:
        bases = base_offsets([target.segment.name], names.LOG)
    parts = []
    for base in bases:
        of_segment = VerifyTarget(
            target.log_dir, target.partitions, directory / names.segment_file(base, names.LOG)
        )
        fingerprint = _fingerprint(_of_segment(of_segment, files))
        parts.append(LogPart(path, of_segment, sizes.get(base, 0), fingerprint))
    return parts


def _of_segment(target: VerifyTarget, files: Sequence[File]) -> Sequence[File]:
    if target.segment is None:
        return files
    return [file for file in files if file.name.startswith(target.segment.stem)]


def _fingerprint(files: Sequence[File]) -> str:
    text = "\n".join(f"{name}\t{size}\t{changed}" for name, size, changed in sorted(files))
    return f"{crc32c(text.encode(errors='surrogateescape')):08x}"


def _files_in(directory: Path) -> list[File]:
    try:
        with os.scandir(directory) as entries:
            files = []
            for entry in entries:
                with suppress(FileNotFoundError):  # renamed or removed since: by a broker, a task
                    if entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        files.append(File(entry.name, status.st_size, status.st_mtime_ns))
            return files
    except OSError as error:
        raise failed_to("list", str(directory), error) from error


def _remote_targets(given: LogPath, store: StoreOptions) -> list[tuple[VerifyTarget, list[File]]]:
    with Root(given, store) as root:
        if root.path.endswith(names.LOG):  # its neighbours decide whether its indexes fit
            with Root(LogPath.parse(given.uri.rpartition("/")[0]), store) as directory:
                entries = directory.entries()
            segment = Path(root.path)
        else:
            entries, segment = root.entries(), None
    by_directory: dict[Path, list[File]] = defaultdict(list)
    for path, size, changed_ns, *_ in entries:
        by_directory[Path(path).parent].append(File(Path(path).name, size, changed_ns))
    if segment is not None:
        files = by_directory[segment.parent]
        return [(VerifyTarget(segment.parent.parent, (segment.parent,), segment), files)]
    targets = [
        (VerifyTarget(directory.parent, (directory,)), files)
        for directory, files in sorted(by_directory.items())
        if names.partition_of(directory.name)
        or base_offsets((f.name.removesuffix(names.SWAP) for f in files), names.LOG)
    ]
    if not targets:
        raise Misconfigured(f"There is no log below {given.name}")
    return targets


def _subscribed(parts: Mapping[str, LogPart], request: FileRequest) -> tuple[LogPart, ...]:
    if request.subscription is None:
        return tuple(parts.values())
    by_partition: dict[TopicPartition, list[LogPart]] = defaultdict(list)
    for part in parts.values():
        partition = names.partition_of(part.directory.name)
        if partition is not None:
            by_partition[partition].append(part)
    where = f"below {', '.join(request.shown)}"
    chosen = subscribed(request.subscription, by_partition.keys(), where)
    return tuple(part for partition in chosen for part in by_partition[partition])
