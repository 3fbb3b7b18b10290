"""Printing the last record of each key, of `horolog consume --latest`. Imports pyarrow."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import numpy as np

from horolog.cli.screen import progress, say
from horolog.errors import Damaged, StorageFailed
from horolog.sources.latest_records import (
    KeyMemory,
    changed,
    check_latest,
    last_offsets,
    parts_with,
)
from horolog.sources.options import ReadOptions
from horolog.sources.plan import Stretch, offsets_in
from horolog.sources.planning import ReadPlan
from horolog.sources.records import ReadRecord, RecordLog
from horolog.sources.stretch_reader import StretchReader

__all__ = ["print_latest"]


def print_latest(
    log: RecordLog,
    plan: ReadPlan,
    reading: ReadOptions,
    memory: int,
    what: str,
    write: Callable[[str, ReadRecord], bool],
) -> bool:
    """Print the last record of each key of each partition; True if a partition is damaged.

    Args:
        reading: the options of the log, which reads committed records.
        memory: how many bytes the keys of a partition may take.
        write: prints a record of a topic; returns True if more records may follow.

    Raises:
        Misconfigured: the keys take more memory; the log cannot be read as of its time any more.
        DataLost: compaction passed the end of the table meanwhile.
    """
    is_damaged, allowed = False, KeyMemory(memory, "--latest-memory")
    with StretchReader(reading) as reader:
        for partition, its in groupby(plan.stretches, key=lambda stretch: stretch.partition):
            try:
                for read in _table(log, reader, list(its), reading, allowed, what):
                    if not write(partition.topic, read):
                        return is_damaged
            except (Damaged, StorageFailed) as error:
                is_damaged = True
                say(str(error))
    check_latest(reading, plan)
    return is_damaged


def _table(
    log: RecordLog,
    reader: StretchReader,
    stretches: Sequence[Stretch],
    reading: ReadOptions,
    memory: KeyMemory,
    what: str,
) -> Iterator[ReadRecord]:
    """Yield the last records of one partition that have a value."""
    first, total = stretches[0].start, stretches[-1].end - stretches[0].start
    with progress(f"reading the keys of {what}", total, "offsets") as advance:
        last = last_offsets(
            reader, stretches, reading, memory, lambda offset: advance(offset - first)
        )
    left = len(last.offsets)
    parts = list(parts_with(stretches, last))
    done = 0
    with progress(f"reading {what}", offsets_in(tuple(parts)), "offsets") as advance:
        for part in parts:
            for position, records in log.read(part):
                offsets = np.fromiter((read.offset for read in records), np.int64, len(records))
                found = last.among(offsets).tolist()
                left -= sum(found)
                for read, is_last in zip(records, found, strict=True):
                    if is_last and read.record.value is not None:
                        yield read
                advance(done + max(0, position - part.start))
            done += part.end - part.start
    if left:
        raise changed(stretches[0].partition)
