"""Verification of a log's files.

It reads every byte and changes none.

    verification = Verification.of(path)
    for step in verification.steps():
        ...  # a Finding, or a Checked with the progress

The path is a log directory, a partition's directory or a single `.log`. Memory does not grow with
the log: batches are read one at a time, together with their index entries.

surroundings   the checkpoints of a log directory, and its lock
partition      one partition; `extent`, where its log begins and ends

`storage/scan` checks the segments.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from horolog.errors import Misconfigured
from horolog.storage import names
from horolog.storage.files import Files
from horolog.storage.names import TopicPartition
from horolog.storage.removal.leftovers import base_offsets, current_bases
from horolog.storage.scan.findings import Checked, Finding, SegmentFacts, Severity, Steps
from horolog.storage.verify.partition import (
    check_around_segments,
    check_partition,
    check_segments,
)
from horolog.storage.verify.surroundings import check_log_dir, surroundings_of

__all__ = ["Checked", "Finding", "Severity", "Verification", "VerifyTarget", "find_target"]


@dataclass(frozen=True, slots=True)
class VerifyTarget:
    """Files to check."""

    log_dir: Path
    """Directory of the partitions; not always a log directory."""
    partitions: tuple[Path, ...]
    segment: Path | None = None
    """The only segment to check."""
    is_log_dir: bool = False
    """True if the whole log directory is to be checked, with its own files."""

    def by_partition(self, files: Files) -> Iterator[tuple[Path, list[Path]]]:
        """Yield each partition with its `.log` files, in order, as `files` finds them.

        Raises:
            StorageFailed: a directory cannot be listed.
        """
        for directory in self.partitions:
            bases = current_bases(files, str(directory))
            paths = [directory / names.segment_file(base, names.LOG) for base in bases]
            yield directory, paths if self.segment is None else [self.segment]

    def segments(self, files: Files) -> list[Path]:
        """List the `.log` files, in order, as `files` finds them.

        Raises:
            StorageFailed: a directory cannot be listed.
        """
        return [path for _, paths in self.by_partition(files) for path in paths]


def find_target(path: Path) -> VerifyTarget:
    """Return the log directory, partition or segment at a path.

    Raises:
        Misconfigured: it is no log directory, partition or segment.
    """
    path = path.absolute()
    if path.is_file():
        for suffix in (names.OFFSET_INDEX, names.TIME_INDEX):
            if names.base_offset_of(path.name, suffix) is not None:
                path = path.with_suffix(names.LOG)
        if names.base_offset_of(path.name, names.LOG) is None or not path.exists():
            raise Misconfigured(f"{path} is not named as a segment: 20 digits and .log")
        return VerifyTarget(path.parent.parent, (path.parent,), path)
    try:
        entries = sorted(path.iterdir())
    except OSError as error:
        raise Misconfigured(f"cannot read {path}: {error.strerror}") from None
    if base_offsets((entry.name.removesuffix(names.SWAP) for entry in entries), names.LOG):
        return VerifyTarget(path.parent, (path,))
    # Judged by its content first: a log directory may be called data-1.
    partitions = tuple(
        entry
        for entry in entries
        if names.partition_of(entry.name) and not entry.is_symlink() and entry.is_dir()
    )
    if partitions or (path / names.META_PROPERTIES).exists():
        return VerifyTarget(path, partitions, is_log_dir=True)
    if names.partition_of(path.name):
        return VerifyTarget(path.parent, (path,))
    raise Misconfigured(
        f"{path} is not a log directory, a partition directory (topic-0) or a segment (.log)"
    )


class Verification:
    """Check of a log directory, a partition or a segment.

    Args:
        replicas: partitions of a cluster that have other replicas.
    """

    def __init__(
        self,
        target: VerifyTarget,
        files: Files | None = None,
        replicas: Collection[TopicPartition] = (),
    ) -> None:
        self.target = target
        self._files = files or Files(read_only=True)
        around, self._findings = surroundings_of(self._files, target.log_dir)
        self.around = around._replace(replicas=replicas)

    @classmethod
    def of(cls, path: Path) -> "Verification":
        """Prepare the check of a path.

        Raises:
            Misconfigured: see `find_target`.
        """
        return cls(find_target(path))

    def steps(self) -> Steps[None]:
        """Check everything. Yields findings and progress."""
        target, files = self.target, self._files
        if target.segment is not None:
            yield from self.segments()
            return
        if target.is_log_dir:
            yield from self.log_dir()
        for directory in target.partitions:
            yield from check_partition(files, directory, self.around)

    def segments(self) -> Steps[list[SegmentFacts]]:
        """Check the segments alone.

        Returns their facts for `around_segments`.

        Raises:
            StorageFailed: a directory cannot be listed.
        """
        segment, facts = self.target.segment, []
        only = None if segment is None else names.base_offset_of(segment.name, names.LOG)
        for directory in self.target.partitions:
            facts += yield from check_segments(self._files, directory, self.around, only)
        return facts

    def around_segments(
        self, segments: Sequence[SegmentFacts], *, was_live: bool = False
    ) -> Steps[None]:
        """Check everything but the segments of a single partition.

        Args:
            segments: the facts of all its segments, in order.
            was_live: a broker was at work when they were read, though it may be gone now.
        """
        (directory,) = self.target.partitions
        around = self.around._replace(is_live=self.around.is_live or was_live)
        yield from check_around_segments(self._files, directory, segments, around)

    def log_dir(self) -> Steps[None]:
        """Check the files of the log directory itself."""
        yield from self._findings
        yield from check_log_dir(self._files, self.target.log_dir, self.around)
