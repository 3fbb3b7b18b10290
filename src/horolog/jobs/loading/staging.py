"""Write the records of a table as segment files once, so that repeated runs send the same.

A table may be read differently the second time: another order, rows that came meanwhile, a random
function. So its records are written down once, as a log directory, and sent from there.

    <stage>/attempt-<id>/<topic>-<partition>/    what one attempt of a task writes
    <stage>/log/<topic>-<partition>/             those of the attempts that count, in their place

Each task has all records of its partitions. An attempt that failed, or ran at the same time as
another, leaves a directory that nothing names; it goes with the stage.
"""

import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from horolog.config import TopicConfig
from horolog.errors import Misconfigured, StorageFailed
from horolog.jobs.loading.rows import COLUMNS, PARTITION
from horolog.record.column_writer import encode_batches
from horolog.record.compression import Codec
from horolog.spark.workers import SentToWorkers, prepare_for_tasks
from horolog.storage import names
from horolog.storage.file_errors import failed_to
from horolog.storage.files import Files
from horolog.storage.logs.writer import LogWriter, new_segment
from horolog.storage.names import TopicPartition
from horolog.storage.segments.numbered import as_they_are

SEGMENT_BYTES: Final = 512 << 20
_CONFIG = TopicConfig(segment_bytes=SEGMENT_BYTES)
_LOG = "log"
_DDL = "number long, attempt string, records long, bytes long, largest_batch long"
"""Members of `Staged`."""


@dataclass(frozen=True, slots=True)
class Staged:
    """Files of one partition, written by an attempt of a task."""

    number: int
    attempt: str
    records: int
    bytes: int
    largest_batch: int


def stage(
    records: DataFrame, directory: Path, topic: str, codec: Codec, batch_bytes: int
) -> list[Staged]:
    """Write the records of each partition, which are in order and in one task.

    Args:
        records: with the columns `COLUMNS` and `PARTITION`.
        directory: of the stage; what an earlier run has left in it goes.
        topic: what the directories are named after.
        batch_bytes: how large they become before compression.

    Raises:
        StorageFailed: the directory cannot be written by the driver.
        PySparkException: a task failed.
    """
    remove(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise failed_to("create", str(directory), error) from error
    task = _StageTask(str(directory), topic, codec, batch_bytes)
    rows = records.mapInArrow(task, _DDL).collect()
    staged = [Staged(**row.asDict()) for row in rows]
    for part in staged:
        if not (directory / part.attempt).is_dir():
            raise Misconfigured(
                f"{directory / part.attempt}, which a task wrote, is not on this machine: give "
                "--stage, a directory that all executors and the driver share"
            )
    return staged


def put_in_place(directory: Path, topic: str, partitions: int, staged: Sequence[Staged]) -> Path:
    """Move the staged partitions into one log directory, and return it; may be repeated.

    Raises:
        StorageFailed: a part of it is gone.
    """
    log = directory / _LOG
    files = Files()
    by_number = {part.number: part for part in staged}
    log.mkdir(exist_ok=True)
    for number in range(partitions):
        name = str(TopicPartition(topic, number))
        target = log / name
        part = by_number.get(number)
        if part is None:
            target.mkdir(exist_ok=True)
            (target / names.segment_file(0, names.LOG)).touch()
        elif not target.exists():
            source = directory / part.attempt / name
            if not source.exists():
                raise StorageFailed(
                    f"{source}, which was staged, is gone: begin with a new --state"
                )
            files.rename(str(source), str(target))
    files.sync_path(str(log))
    return log


def remove(directory: Path) -> None:
    """Remove the stage, and no other files of the directory."""
    for attempt in sorted(directory.glob("attempt-*")):
        shutil.rmtree(attempt, ignore_errors=True)
    shutil.rmtree(directory / _LOG, ignore_errors=True)


class _StageTask(SentToWorkers):
    """Write the records of some partitions in a task. Spark calls it with their rows."""

    def __init__(self, directory: str, topic: str, codec: Codec, batch_bytes: int) -> None:
        self.directory = directory
        self.topic = topic
        self.codec = codec
        self.batch_bytes = batch_bytes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_for_tasks()
        attempt = f"attempt-{uuid.uuid4().hex}"
        writer: _PartitionWriter | None = None
        for batch in batches:
            numbers = batch.column(PARTITION).to_numpy()
            edges = [*np.flatnonzero(np.diff(numbers)) + 1, batch.num_rows]
            start = 0
            for end in edges if batch.num_rows else ():
                number = int(numbers[start])
                if writer is None or writer.number != number:
                    if writer is not None:
                        yield writer.finish()
                    writer = _PartitionWriter(self, attempt, number)
                writer.add(batch.slice(start, int(end) - start).select(COLUMNS))
                start = int(end)
        if writer is not None:
            yield writer.finish()


class _PartitionWriter:
    """Writer of one partition's segment files."""

    def __init__(self, task: _StageTask, attempt: str, number: int) -> None:
        self.number = number
        self._task = task
        self._attempt = attempt
        self._files = Files()
        name = str(TopicPartition(task.topic, number))
        self._directory = os.path.join(task.directory, attempt, name)
        os.makedirs(self._directory)
        active = new_segment(self._files, self._directory, 0, _CONFIG, 0)
        self._writer = LogWriter(self._files, self._directory, active)
        self._next_offset = self._bytes = self._largest = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Append rows with `COLUMNS`."""
        if pc.any(pc.is_null(rows.column("timestamp_ms"))).as_py():
            raise StorageFailed("a row has no time, though none was without when rows were counted")
        task = self._task
        for batch in encode_batches(
            rows, codec=task.codec, base_offset=self._next_offset, batch_bytes=task.batch_bytes
        ):
            self._writer.append(as_they_are(batch, self._next_offset), _CONFIG)
            self._bytes += len(batch)
            self._largest = max(self._largest, len(batch))
        self._next_offset += rows.num_rows

    def finish(self) -> pa.RecordBatch:
        """Sync the files, and return their line as a table."""
        self._writer.finish()
        self._writer.sync()
        self._files.sync_path(os.path.dirname(self._directory))
        self._files.close()
        staged = Staged(self.number, self._attempt, self._next_offset, self._bytes, self._largest)
        return pa.RecordBatch.from_pylist([asdict(staged)])
