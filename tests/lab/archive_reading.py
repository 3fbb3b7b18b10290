"""What an archive holds, read with pyarrow alone and the manifest."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from horolog.jobs.archives.manifest import Manifest, require_manifest
from horolog.jobs.archives.store import ArchiveStore


def manifest_of(archive: Path | str) -> Manifest:
    return require_manifest(ArchiveStore(str(archive)))


def records_of(archive: Path) -> list[dict[str, Any]]:
    """The records of the files that the manifest names, in order of partition and offset."""
    rows = []
    for state in manifest_of(archive).partitions().values():
        for file in state.records:
            table = pq.ParquetFile(archive / file.path, page_checksum_verification=True).read()
            found = table.drop_columns("timestamp").to_pylist()
            assert len(found) == file.rows
            rows += found
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def positions_of(archive: Path) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in records_of(archive)]
