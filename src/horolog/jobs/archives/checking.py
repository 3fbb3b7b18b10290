"""Job `check_archive`: compares an archive with its manifest, and finds unlisted files."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from horolog.errors import HorologError
from horolog.jobs.archives.manifest import ArchivedFile, ArchivedPartition, require_manifest
from horolog.jobs.archives.store import ArchiveStore
from horolog.jobs.counting import count
from horolog.jobs.parameters.archive import CheckArchive
from horolog.jobs.parameters.function import on_spark
from horolog.jobs.spread import UnitProgress, in_shares, spread
from horolog.results import Aside, Outcome, size
from horolog.storage.names import TopicPartition

_UNIT_BYTES: Final = 256 << 20
_MANIFEST = re.compile(r"manifest/\d{20}\.json")
_OURS = re.compile(r"(?:records|batches)/.+\.parquet|manifest/.+\.tmp")


@dataclass(frozen=True, slots=True)
class CheckedArchive(Outcome):
    """Result of a check."""

    archive: str
    files: int
    bytes: int
    records: int
    problems: Mapping[str, str] = field(default_factory=dict)
    """Problems by path or partition."""
    unreferenced: Mapping[str, int] = field(default_factory=dict)
    """Files that the manifest does not name, with their sizes."""
    removed: tuple[str, ...] = ()
    """Paths of unreferenced files that were removed."""

    @property
    def is_ok(self) -> bool:
        """True if the archive has no problems."""
        return not self.problems

    def lines(self) -> Iterator[str]:
        """Yield a summary, the files that the manifest does not name, and the problems."""
        yield (
            f"Checked {self.files} files of {self.archive} with {self.records} records, "
            f"{size(self.bytes)}: {len(self.problems)} problems, {len(self.unreferenced)} files "
            f"that the manifest does not name, {len(self.removed)} of them removed"
        )
        for path, count_bytes in self.unreferenced.items():
            yield f"  not named: {path}  {size(count_bytes)}"
        yield from (Aside(f"{place}: {what}") for place, what in self.problems.items())


@on_spark(CheckArchive)
def check_archive(spark: SparkSession, job: CheckArchive) -> CheckedArchive:
    """Compare every file with the counts and checksums of the manifest.

    Raises:
        Misconfigured: there is no archive.
        CorruptFile: the manifest is damaged.
        StorageFailed: the archive cannot be listed, or a file not removed.
    """
    store = ArchiveStore.of(job.archive, job.settings)
    listed = list(store.listed())  # before the manifest: what it names by then is not unreferenced
    manifest = require_manifest(store)
    problems: dict[str, str] = {}
    files: list[ArchivedFile] = []
    for partition, state in manifest.partitions().items():
        problems.update(_of_partition(partition, state))
        files += (*state.records, *state.batches)
    shares = list(in_shares(files, lambda file: file.size, _UNIT_BYTES))
    progress = UnitProgress[tuple[ArchivedFile, ...]](job.on_progress, _records)
    for wave in spread(spark, shares, partial(check_files, store), progress=progress):
        for outcome in wave:
            if outcome.result is None:
                problems[outcome.unit[0].path] = outcome.error or "its task failed"
            else:
                problems |= outcome.result
    named = manifest.paths()
    unreferenced = {
        file.path: file
        for file in listed
        if file.path not in named and not _MANIFEST.fullmatch(file.path)
    }
    removed = []
    if job.remove_unreferenced:
        before_ns = store.now_ns() - job.grace_ms * 1_000_000
        for path, file in unreferenced.items():
            if _OURS.fullmatch(path) and 0 < file.changed_ns < before_ns:
                store.remove(path)
                removed.append(path)
    return CheckedArchive(
        archive=store.name,
        files=len(files),
        bytes=sum(file.size for file in files),
        records=_records(files),
        problems=problems,
        unreferenced={path: file.size for path, file in unreferenced.items()},
        removed=tuple(removed),
    )


def _records(files: Iterable[ArchivedFile]) -> int:
    return sum(file.rows for file in files if file.hour is not None)


def _of_partition(partition: TopicPartition, state: ArchivedPartition) -> Iterator[tuple[str, str]]:
    """Report contradictions within a partition's manifest."""
    for before, after in zip(state.ranges, state.ranges[1:], strict=False):
        if before.end != after.start:
            yield str(partition), f"offsets {before.end} to {after.start - 1} are in no range"
    for what, files, counted in (
        ("records", state.records, sum(range_.records for range_ in state.ranges)),
        (
            "batches",
            state.batches,
            sum(range_.batches + range_.left_out for range_ in state.ranges),
        ),
    ):
        rows = sum(file.rows for file in files)
        if rows != counted:
            yield str(partition), f"its files hold {rows} {what}, and its ranges {counted}"


def check_files(store: ArchiveStore, files: tuple[ArchivedFile, ...]) -> dict[str, str]:
    """Check files in a task; return faults by path. A faulty file leaves the others alone."""
    problems = {}
    for file in files:
        try:
            why = _wrong(store, file)
        except HorologError as error:
            why = str(error)
        if why is not None:
            problems[file.path] = why
        count(_records([file]))
    return problems


def _wrong(store: ArchiveStore, file: ArchivedFile) -> str | None:
    size, crc = store.checksum(file.path)
    if size != file.size:
        return f"has {size} bytes, and {file.size} by the manifest"
    if crc != file.crc:
        return f"has another checksum ({crc:08x}) than the manifest says ({file.crc:08x})"
    with store.open(file.path) as source:
        try:
            rows = pq.read_metadata(source).num_rows
        except (pa.ArrowInvalid, OSError) as error:
            return str(store.damaged(file.path, error))
    return None if rows == file.rows else f"has {rows} rows, and {file.rows} by the manifest"
