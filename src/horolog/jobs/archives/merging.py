"""Job `merge_archive`: joins small files of an hour, while others read and archive.

The manifest names the new file instead of the old ones in one commit. The old ones stay for readers
that have an older manifest, and are removed with other files that no manifest names (`checking`).
"""

import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from horolog.errors import CorruptFile
from horolog.jobs.archives import facts as of_batches
from horolog.jobs.archives import parts
from horolog.jobs.archives.manifest import (
    ArchivedFile,
    ArchivedPartition,
    Manifest,
    commit_changes,
    require_manifest,
)
from horolog.jobs.archives.rows import read_rows
from horolog.jobs.archives.store import ArchiveStore
from horolog.jobs.counting import count
from horolog.jobs.parameters.archive import MergeArchive, require_target_bytes
from horolog.jobs.parameters.function import on_spark
from horolog.jobs.spread import UnitProgress, spread
from horolog.results import Aside, Outcome, size
from horolog.storage.names import MAX_OFFSET, TopicPartition

_MOST_FILES: Final = 1_000  # that one task reads


@dataclass(frozen=True, slots=True)
class Merged(Outcome):
    """Result of a merge, or of its dry run."""

    archive: str
    files_before: int = 0
    """Number of files that were merged."""
    files_after: int = 0
    bytes: int = 0
    """Size of the new files; in a dry run, of the old ones."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Errors by partition, whose files were kept as they are."""
    is_dry_run: bool = False

    @property
    def is_ok(self) -> bool:
        """True if no files were left as they are."""
        return not self.refused

    def lines(self) -> Iterator[str]:
        """Yield how many files were merged, or would be, and the refused ones."""
        yield (
            f"{'Would merge' if self.is_dry_run else 'Merged'} {self.files_before} files of "
            f"{self.archive} into {self.files_after}, {size(self.bytes)}"
        )
        yield from (Aside(f"{partition}: {why}") for partition, why in self.refused.items())


@on_spark(MergeArchive)
def merge_archive(spark: SparkSession, job: MergeArchive) -> Merged:
    """Merge small files of each partition and hour up to about `target_bytes`.

    Needs no state: what is not in the manifest has not happened. In an object store nothing else
    may write to the archive meanwhile.

    Raises:
        Misconfigured: there is no archive.
        CorruptFile: the manifest is damaged.
        StorageFailed: the archive cannot be read or written.
    """
    require_target_bytes(job.target_bytes)
    store = ArchiveStore.of(job.archive, job.settings)
    manifest = require_manifest(store)
    units = [
        unit
        for partition, state in manifest.partitions().items()
        for unit in _units(partition, state, job.target_bytes)
    ]
    if job.dry_run:
        return Merged(
            store.name,
            files_before=sum(len(unit.files) for unit in units),
            files_after=len(units),
            bytes=sum(file.size for unit in units for file in unit.files),
            is_dry_run=True,
        )
    merged: dict[MergeUnit, ArchivedFile] = {}
    refused: dict[str, str] = {}
    progress = UnitProgress[MergeUnit](job.on_progress, lambda unit: unit.records)
    for wave in spread(spark, units, partial(merge_files, store), progress=progress):
        changes = {}
        for outcome in wave:
            if outcome.result is None:
                refused[str(outcome.unit.partition)] = outcome.error or "its task failed"
            else:
                changes[outcome.unit] = outcome.result
        manifest, listed = _commit(store, manifest, changes)
        merged |= {unit: changes[unit] for unit in listed}
    return Merged(
        store.name,
        files_before=sum(len(unit.files) for unit in merged),
        files_after=len(merged),
        bytes=sum(file.size for file in merged.values()),
        refused=refused,
    )


@dataclass(frozen=True, slots=True)
class MergeUnit:
    """Files to be merged, of one partition and hour or of facts of batches, in offset order."""

    partition: TopicPartition
    hour: str | None
    files: tuple[ArchivedFile, ...]

    @property
    def records(self) -> int:
        """Number of records in the files; 0 for facts of batches."""
        return 0 if self.hour is None else sum(file.rows for file in self.files)


def _units(
    partition: TopicPartition, state: ArchivedPartition, target_bytes: int
) -> Iterator[MergeUnit]:
    by_hour: dict[str | None, list[ArchivedFile]] = defaultdict(list)
    for file in (*state.records, *state.batches):
        by_hour[file.hour].append(file)
    for hour, files in by_hour.items():
        shares: list[list[ArchivedFile]] = [[]]
        size = 0
        for file in sorted(files, key=lambda file: file.first_offset):
            share, is_large = shares[-1], file.size >= target_bytes // 2
            is_full = size + file.size > target_bytes or len(share) == _MOST_FILES
            if share and (is_large or is_full or file.first_offset <= share[-1].last_offset):
                share, size = [], 0
                shares.append(share)
            if not is_large:
                share.append(file)
                size += file.size
        yield from (MergeUnit(partition, hour, tuple(share)) for share in shares if len(share) > 1)


def merge_files(store: ArchiveStore, unit: MergeUnit) -> ArchivedFile:
    """Write the rows of all files to a new one, in a task.

    Raises:
        CorruptFile: a file is damaged, or has other rows than the manifest says.
        StorageFailed: one cannot be read or written.
    """
    is_facts = unit.hour is None
    path = parts.path_in(unit.partition, unit.hour, f"{uuid.uuid4().hex[:12]}-1")
    with parts.PartFile(store, path, unit.hour) as merged:
        waiting: list[pa.RecordBatch] = []
        size = 0
        for file in unit.files:
            for rows in _rows(store, file, "base_offset" if is_facts else "offset"):
                count(0 if is_facts else rows.num_rows)
                waiting.append(rows.cast(of_batches.SCHEMA if is_facts else parts.SCHEMA))
                size += rows.nbytes
                if size >= parts.ROW_GROUP_BYTES:
                    merged.write(waiting)
                    waiting, size = [], 0
        if waiting:
            merged.write(waiting)
        return merged.finish()


def _rows(store: ArchiveStore, file: ArchivedFile, column: str) -> Iterator[pa.RecordBatch]:
    total = 0
    for rows in read_rows(store, file, -MAX_OFFSET, MAX_OFFSET, column=column):
        total += rows.num_rows
        yield rows
    if total != file.rows:
        raise CorruptFile(
            f"{store.name}/{file.path} has {total} rows, and {file.rows} by the manifest"
        )


def _commit(
    store: ArchiveStore, manifest: Manifest, changes: Mapping[MergeUnit, ArchivedFile]
) -> tuple[Manifest, list[MergeUnit]]:
    """Commit the new files, and return the units whose old files were still listed."""
    merged: list[MergeUnit] = []

    def changed(manifest: Manifest) -> Manifest:
        merged.clear()
        for unit, file in changes.items():
            state = manifest.partition(unit.partition)
            new = None if state is None else _replaced(state, unit, file)
            if new is not None:
                manifest = manifest.with_partition(unit.partition, new)
                merged.append(unit)
        return manifest

    return commit_changes(store, manifest, changed), merged


def _replaced(
    state: ArchivedPartition, unit: MergeUnit, file: ArchivedFile
) -> ArchivedPartition | None:
    old = {file.path for file in unit.files}
    files = state.batches if unit.hour is None else state.records
    kept = [known for known in files if known.path not in old]
    if len(kept) + len(old) != len(files):
        return None
    new = tuple(sorted((*kept, file), key=lambda merged: merged.first_offset))
    return replace(state, batches=new) if unit.hour is None else replace(state, records=new)
