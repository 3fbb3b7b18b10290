"""Check of one partition: its segments, and the files beside them."""

import os
import shlex
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from horolog.errors import CorruptBatch, StorageFailed
from horolog.storage import names
from horolog.storage.batches.reader import BatchReader
from horolog.storage.batches.whole import whole_batches
from horolog.storage.directory.checkpoints import (
    read_append_time,
    read_append_time_resets,
    read_cleaning,
    read_topic_id,
)
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.producers.states import Producers, check_beside_snapshot
from horolog.storage.removal.leftovers import (
    base_offsets,
    current_bases,
    current_names,
    is_lone_index,
    stable_look,
)
from horolog.storage.removal.set_aside import set_aside_in
from horolog.storage.scan.companions import TransactionsAcross
from horolog.storage.scan.findings import (
    Checked,
    Finding,
    SegmentFacts,
    Steps,
    damage,
    fault,
    note,
)
from horolog.storage.scan.segment import SegmentScan, Situation
from horolog.storage.verify.extent import check_ends, check_epochs, check_order, check_start
from horolog.storage.verify.surroundings import Surroundings, read_or_report

_LEFTOVERS = {
    names.DELETED: "The segment was deleted and waits for its removal",
    names.CLEANED: "A compaction had not ended when its broker did: the next start removes it",
    names.SWAP: "A compaction had ended but for the renaming: a start finishes it or sets it aside",
    ".tmp": "It is left from a replacement that was interrupted",
}
_RESTORE_ID = "restore it from a replica or a backup: Kafka does not serve the partition"
_FORGET_APPEND_TIME = (
    "horolog log reindex removes the file: a start takes the last append time from the log"
)
_FORGET_CLEANING = (
    "stop the broker and remove the file, once compaction has run: until then cuts at a time may "
    "lack records"
)
_FORGET_RESETS = (
    "restore it from a backup, or stop the broker and remove the file: retention then counts from "
    "append times as they are"
)


def check_partition(files: Files, directory: Path, around: Surroundings) -> Steps[None]:
    """Check a partition's directory."""
    segments: list[SegmentFacts] = []
    try:
        segments = yield from check_segments(files, directory, around)
    except (OSError, StorageFailed) as error:
        yield _unreadable(directory, error)
        yield Checked(partitions=1)
        return
    yield from check_around_segments(files, directory, segments, around)


def check_around_segments(
    files: Files, directory: Path, segments: Sequence[SegmentFacts], around: Surroundings
) -> Steps[None]:
    """Check everything in a partition's directory but its segments, whose facts are known."""
    try:
        listed, present = stable_look(lambda: _names_in(files, str(directory)))
        # A running broker may have removed some since they were read.
        segments = [facts for facts in segments if Path(facts.path).name in present]
        yield from _check_beside(files, directory, listed, present)
        yield from check_order(directory, present, segments, around)
        if segments:
            across = TransactionsAcross()
            for segment in segments:
                yield from across.lacking(segment)
            yield from check_epochs(files, directory, segments, is_live=around.is_live)
            yield from check_ends(files, directory, segments, around)
            yield from check_start(files, directory, present, segments, around)
        yield from _check_snapshots(files, directory, present, segments, around)
        for name in set_aside_in(present):
            yield from check_set_aside(files, directory, name)
    except (OSError, StorageFailed) as error:
        yield _unreadable(directory, error)
    yield Checked(partitions=1)


def _names_in(files: Files, directory: str) -> tuple[list[str], list[str]]:
    """Return the names in a directory, now and after an interrupted replacement is finished."""
    listed = files.names_in(directory)
    return listed, sorted(current_names(files, directory, listed))


def check_segments(
    files: Files, directory: Path, around: Surroundings, only: int | None = None
) -> Steps[list[SegmentFacts]]:
    """Check the segment with the base offset `only`, or all.

    Returns their facts.

    Raises:
        StorageFailed: the directory cannot be listed, or the size of a segment be asked.
    """
    bases = current_bases(files, str(directory))
    paths = [str(directory / names.segment_file(base, names.LOG)) for base in bases]
    sizes = [files.size(path) for path in paths]
    checked = []
    for index, (base, path) in enumerate(zip(bases, paths, strict=True)):
        if only not in (None, base):
            continue
        situation = situation_of(bases, index, sizes, directory.name, around)
        try:
            facts = yield from SegmentScan(files, path, base, situation).run()
        except StorageFailed as error:
            yield _unreadable(path, error)
            continue
        if facts is not None:
            checked.append(facts)
    return checked


def _unreadable(path: Path | str, error: Exception) -> Finding:
    return damage(str(path), f"It cannot be read: {error}", "see to the disk or the rights")


def situation_of(
    bases: Sequence[int], index: int, sizes: Sequence[int], name: str, around: Surroundings
) -> Situation:
    """Return the situation of one of a partition's segments."""
    is_active = index == len(bases) - 1
    partition = names.partition_of(name)
    points = around.offsets[names.RECOVERY_POINTS]
    point = points.get(partition, 0) if partition is not None else 0
    first_unsure = max(0, bisect_right(bases, point) - 1)
    # Brokers recover the metadata log at every start, after a clean stop, too. Kafka 4.4 leaves its
    # last indexes as they are while the segment grows.
    is_metadata = partition is not None and partition.topic == names.CLUSTER_METADATA
    is_closed = around.is_clean and not is_metadata
    return Situation(
        is_active=is_active,
        is_live=around.is_live,
        is_closed_cleanly=is_closed,
        is_recovered=not is_closed and index >= first_unsure,
        later=tuple(zip(bases[index + 1 :], sizes[index + 1 :], strict=True)),
    )


def _check_beside(
    files: Files, directory: Path, listed: Sequence[str], present: Sequence[str]
) -> Iterator[Finding]:
    findings: list[Finding] = []
    for name, read, mend in (
        (names.PARTITION_METADATA, read_topic_id, _RESTORE_ID),
        (names.APPEND_TIME, read_append_time, _FORGET_APPEND_TIME),
        (names.APPEND_TIME_RESETS, read_append_time_resets, _FORGET_RESETS),
        (names.CLEANING_CHECKPOINT, read_cleaning, _FORGET_CLEANING),
    ):
        path = str(directory / name)
        content = read_or_report(partial(read, files, path), path, mend, findings)
        if name == names.PARTITION_METADATA and content is None and not findings:
            findings.append(note(path, "There is none: the partition has no topic id"))
    yield from findings
    for name in listed:
        for suffix, what in _LEFTOVERS.items():
            if name.endswith(suffix) and not name.endswith(names.APPENDING):
                yield note(str(directory / name), what)
    for name in present:
        if is_lone_index(name, present):
            log = Path(name).with_suffix(names.LOG)
            yield fault(
                str(directory / name),
                "Its segment is not here",
                f"restore {log} if it should be; a broker that starts removes this",
            )


def _read_snapshot(files: Files, directory: str, offset: int) -> str | None:
    """Return a claim of a snapshot that contradicts its offset; None without one."""
    producers = Producers()
    producers.read(files, directory, offset, 0, alone=True)
    for producer_id, state in producers:
        if any(batch.last_offset >= offset for batch in state.batches):
            return f"It has offset {offset} or later for producer {producer_id}"
    return None


# By suffix: what the files are, their largest size, and how one is read.
_SNAPSHOTS: Mapping[str, tuple[str, int, Callable[[Files, str, int], str | None]]] = {
    names.SNAPSHOT: ("a snapshot of producers", 64 << 20, _read_snapshot),
    names.BATCHES: ("what is beside a snapshot of producers", 256 << 20, check_beside_snapshot),
}


def _check_snapshots(
    files: Files,
    directory: Path,
    present: Sequence[str],
    segments: Sequence[SegmentFacts],
    around: Surroundings,
) -> Iterator[Finding]:
    """Check all snapshots of producers, and the files beside them."""
    instead = "a broker that starts uses an earlier one, and reads the log from there on"
    end = segments[-1].next_offset if segments and segments[-1].is_sound else None
    for suffix, (what, max_bytes, read) in _SNAPSHOTS.items():
        for offset in base_offsets(present, suffix):
            path = str(directory / names.segment_file(offset, suffix))
            if files.size(path) > max_bytes:
                yield note(path, f"It is too large to be {what}: not checked")
                continue
            findings: list[Finding] = []
            reading = partial(read, files, str(directory), offset)
            wrong = read_or_report(reading, path, instead, findings)
            yield from findings
            if wrong is not None:
                yield fault(path, wrong, "stop the broker and remove it: the log is read instead")
            elif not findings and end is not None and offset > end and not around.is_live:
                yield note(path, f"It is of offset {offset}, and the log ends before {end}")


def check_set_aside(files: Files, directory: Path, name: str) -> Steps[None]:
    """Report the contents of a set-aside file."""
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
        yield _unreadable(path, error)
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
