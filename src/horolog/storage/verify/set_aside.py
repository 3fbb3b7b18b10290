"""Files that recovery or a truncation has set aside, and how to append their records again."""

import os
import shlex
from pathlib import Path

from horolog.errors import CorruptBatch, StorageFailed
from horolog.storage import names
from horolog.storage.batches.reader import BatchReader
from horolog.storage.batches.whole import whole_batches
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.verify.findings import Checked, Steps, damage, fault, note


def check_set_aside(files: Files, directory: Path, name: str) -> Steps[None]:
    """Report what a file that was set aside holds."""
    path = str(directory / name)
    size = records = batches = 0
    offsets: list[int] = []
    limit = ""
    try:
        log = BatchReader.of_file(files, path)
        for _, header in whole_batches(log):
            size, batches = size + header.size, batches + 1
            records += max(0, header.records_count)
            offsets[:] = [*offsets[:1], header.base_offset, header.last_offset]
    except CorruptBatch as error:
        limit = f"; not all was looked at: {error}"
    except FileMissing:
        return  # removed meanwhile
    except StorageFailed as error:
        yield damage(path, f"It cannot be read: {error}", "see to the disk or the rights")
        return
    yield Checked(size, batches, records)
    if not batches:
        yield note(
            path,
            f"It is set aside; no whole batch is in its {log.size} bytes{limit}",
            "rm it",
        )
        return
    partition = names.partition_of(directory.name)
    topic = shlex.quote("TOPIC" if partition is None else partition.topic)
    yield fault(
        path,
        f"It is set aside, by recovery or a truncation, and it is not served: {records} records in "
        f"{batches} whole batches, offsets {offsets[0]} to {offsets[-1]}{limit}",
        f"`horolog log inspect {shlex.quote(path)} --records --json | horolog produce {topic} "
        f"--format json` appends them again, with their times and at new offsets; then remove "
        f"{os.path.basename(path)}",
    )
