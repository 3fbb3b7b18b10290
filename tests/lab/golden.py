"""Log directories that Apache Kafka wrote, and its answers about them (tools/make_golden.py)."""

import hashlib
import json
import os
import shutil
import tarfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

GOLDEN = Path(__file__).resolve().parents[1] / "golden"

# Which directory holds what each set of answers speaks of.
DIRECTORIES = {"clean": "clean", "killed": "recovered", "old-formats": "old-formats"}


# Kafka takes the modification time for the largest time of a segment without times, looks into
# the first segment that this makes a candidate, and then gives up: an emptied first segment hides
# every record behind it. The answer without that is the exact one.
HIDDEN_FROM_KAFKA = {"compacted-0"}


class Batch(NamedTuple):
    """A batch as Kafka's dump tool tells it."""

    base_offset: int
    last_offset: int
    records: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    position: int
    timestamp_type: str
    max_timestamp: int
    size: int
    magic: int
    codec: str
    crc: int


class GoldenPartition(NamedTuple):
    """A partition directory and Kafka's answers about it."""

    name: str
    path: Path
    answers: dict[str, Any]

    @property
    def topic(self) -> str:
        return self.name.rpartition("-")[0]

    @property
    def partition(self) -> int:
        return int(self.name.rpartition("-")[2])

    def batches(self, log: str) -> list[Batch]:
        return [Batch(*row) for row in self.answers["files"][log]]

    def logs(self) -> list[Path]:
        return sorted(self.path.glob("*.log"))


@cache
def manifest() -> dict[str, Any]:
    return json.loads((GOLDEN / "manifest.json").read_text())


@cache
def answers(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / f"{name}.answers.json").read_text())


def partitions(*names: str) -> list[GoldenPartition]:
    """Every partition of these sets of answers, read only where it lies."""
    return [
        GoldenPartition(partition, GOLDEN / DIRECTORIES[name] / partition, told)
        for name in names
        for partition, told in answers(name).items()
    ]


def copy_directory(name: str, to: Path) -> Path:
    """A copy to write in, with the modification times that git does not keep."""
    shutil.copytree(GOLDEN / name, to)
    for file, told in manifest()[_made_by(name)]["files"].items():
        path = to / Path(file).relative_to(Path(file).parts[0])
        if "modified_ms" in told and Path(file).parts[0] == name:
            os.utime(path, ns=(told["modified_ms"] * 1_000_000,) * 2)
    return to


def extract_killed(to: Path) -> Path:
    """The log directory as kill -9 left it, its preallocated indexes at full size."""
    return extract("killed", to)


def extract(name: str, to: Path) -> Path:
    """A directory with what an archive of Kafka's files holds."""
    with tarfile.open(GOLDEN / f"{name}.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not before 3.11.4
        archive.extractall(to)
    return to


def text(data: bytes | None) -> str | None:
    """Bytes as the answers write them."""
    if data is None:
        return None
    if len(data) > 64:
        return "sha256:" + hashlib.sha256(data).hexdigest()
    if data.isascii() and all(32 <= byte < 127 for byte in data):
        return data.decode()
    return "hex:" + data.hex()


def _made_by(directory: str) -> str:
    return next(name for name, left in DIRECTORIES.items() if left == directory)
