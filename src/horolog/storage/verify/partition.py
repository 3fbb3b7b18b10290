"""One partition: its segments one after the other, and the files that speak of all of them."""

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

from horolog.errors import CorruptFile, StorageFailed
from horolog.storage import names
from horolog.storage.checkpoints import read_append_time, read_append_time_resets, read_topic_id
from horolog.storage.files import Files
from horolog.storage.leftovers import base_offsets
from horolog.storage.names import TopicPartition
from horolog.storage.producers import Producers
from horolog.storage.set_aside import set_aside_in
from horolog.storage.verify.epochs import check_epochs
from horolog.storage.verify.facts import SegmentFacts
from horolog.storage.verify.findings import Checked, Finding, Steps, damage, fault, note
from horolog.storage.verify.segment import Situation, check_segment
from horolog.storage.verify.set_aside import check_set_aside
from horolog.storage.verify.surroundings import Surroundings, read_or_tell

_MAX_SNAPSHOT_BYTES = 64 << 20
_LEFTOVERS = {
    names.DELETED: "The segment was deleted and waits for its removal",
    names.CLEANED: "A compaction had not ended when its broker did: the next start removes it",
    names.SWAP: "A compaction had ended but for the renaming: the next start finishes that",
    ".tmp": "It is left from a replacement that was interrupted",
}
_FORGET_RESETS = (
    "restore it from a backup, or stop the broker and remove the file: retention then counts from "
    "append times as they are"
)
_SNAPSHOT = "a broker removes it when it starts, and reads the log instead"


def check_partition(files: Files, directory: Path, around: Surroundings) -> Steps[None]:
    """Everything about one partition's directory."""
    try:
        present = sorted(os.listdir(directory))
        yield from _beside(files, directory, present)
        segments = yield from _segments(files, directory, present, around)
        yield from _order(segments)
        if segments:
            yield from check_epochs(files, directory, segments, is_live=around.is_live)
            yield from _ends(files, directory, segments, around)
        yield from _snapshots(files, directory, present, segments, around)
        for name in set_aside_in(present):
            yield from check_set_aside(files, directory, name)
    except (OSError, StorageFailed) as error:
        yield damage(str(directory), f"It cannot be read: {error}", "see to the disk or the rights")
    yield Checked(partitions=1)


def situation_of(
    bases: Sequence[int], index: int, sizes: Sequence[int], name: str, around: Surroundings
) -> Situation:
    """What is known of one of a partition's segments before it is read."""
    is_active = index == len(bases) - 1
    partition = names.partition_of(name)
    point = around.recovery_points.get(partition, 0) if partition is not None else 0
    first_unsure = max(0, bisect_right(bases, point) - 1)
    return Situation(
        is_active=is_active,
        is_live=around.is_live,
        is_closed_cleanly=around.is_clean,
        is_recovered=not around.is_clean and index >= first_unsure,
        later_bytes=sum(sizes[index + 1 :]),
    )


def _segments(
    files: Files, directory: Path, present: Sequence[str], around: Surroundings
) -> Steps[list[SegmentFacts]]:
    bases = base_offsets(present, names.LOG)
    paths = [str(directory / names.segment_file(base, names.LOG)) for base in bases]
    sizes = [files.size(path) for path in paths]
    found = []
    for index, (base, path) in enumerate(zip(bases, paths, strict=True)):
        situation = situation_of(bases, index, sizes, directory.name, around)
        try:
            facts = yield from check_segment(files, path, base, situation)
        except StorageFailed as error:
            yield damage(path, f"It cannot be read: {error}", "see to the disk or the rights")
            continue
        if facts is not None:
            found.append(facts)
    return found


def _order(segments: Sequence[SegmentFacts]) -> Iterator[Finding]:
    missing = 0
    for before, after in pairwise(segments):
        if before.next_offset > after.base_offset:
            yield damage(
                after.path,
                f"The segment begins with offset {after.base_offset}, and the one before it ends "
                f"only before {before.next_offset}",
                "restore both segments from a replica or a backup",
                offset=after.base_offset,
            )
        elif before.is_sound and not before.has_old_format:
            missing += after.base_offset - before.next_offset
    for segment in segments:
        if segment.first_offset is not None and segment.is_sound:
            missing += max(0, segment.first_offset - segment.base_offset)
    if missing:
        yield note(
            os.path.dirname(segments[0].path),
            f"{missing} offsets lie in no segment, as compaction leaves it, or a segment that is "
            "missing",
        )


def _beside(files: Files, directory: Path, present: Sequence[str]) -> Iterator[Finding]:
    findings: list[Finding] = []
    path = str(directory / names.PARTITION_METADATA)
    restore = "restore it from a replica or a backup: Kafka does not serve the partition"
    topic_id = read_or_tell(lambda: read_topic_id(files, path), path, restore, findings)
    if topic_id is None and not findings:
        findings.append(note(path, "There is none: the partition has no topic id"))
    path_of_time = str(directory / names.APPEND_TIME)
    forget = "stop the broker and remove the file: the last append time is read from the log"
    read_or_tell(lambda: read_append_time(files, path_of_time), path_of_time, forget, findings)
    path_of_resets = str(directory / names.APPEND_TIME_RESETS)
    read_resets = partial(read_append_time_resets, files, path_of_resets)
    read_or_tell(read_resets, path_of_resets, _FORGET_RESETS, findings)
    yield from findings
    for name in present:
        for suffix, what in _LEFTOVERS.items():
            if name.endswith(suffix):
                yield note(str(directory / name), what)
        stem, dot, kind = name.rpartition(".")
        is_lone = dot + kind in names.SEGMENT_SUFFIXES and stem + names.LOG not in present
        if is_lone and names.base_offset_of(name, dot + kind) is not None:
            yield fault(
                str(directory / name),
                "Its segment is not here",
                f"restore {stem}{names.LOG} if it should be; a broker that starts removes this",
            )


def _ends(
    files: Files, directory: Path, segments: Sequence[SegmentFacts], around: Surroundings
) -> Iterator[Finding]:
    """What the log directory's checkpoints say about where the log begins and ends."""
    partition = names.partition_of(directory.name)
    last = segments[-1]
    if partition is None or around.is_live or last.has_old_format:
        return
    end = last.next_offset
    log_dir = directory.parent
    told = _Told(log_dir, partition, end)
    if (point := around.recovery_points.get(partition, 0)) > end:
        yield damage(
            str(log_dir / names.RECOVERY_POINTS),
            told(f"was flushed up to offset {point}", point),
            "restore the end of the log from a replica or a backup",
            offset=end,
        )
    elif (high := around.high_watermarks.get(partition, 0)) > end:
        yield fault(
            str(log_dir / names.HIGH_WATERMARKS),
            told(f"was acknowledged up to offset {high}", high),
            "restore the end of the log from a replica or a backup; a broker lowers this itself",
            offset=end,
        )
    topic_id = None
    with suppress(CorruptFile):
        topic_id = read_topic_id(files, str(directory / names.PARTITION_METADATA))
    ours, start = around.checkpoint_ids.get(partition), around.log_starts.get(partition, 0)
    line = f"the line of {partition.topic} {partition.partition}"
    if ours is not None and ours.topic_id == topic_id and ours.log_start_offset > end:
        yield damage(
            str(log_dir / names.CHECKPOINT_IDS),
            f"{partition} began at offset {ours.log_start_offset} when it was last served, and its "
            f"log ends before {end}: it is an older state. A broker that starts sets it aside and "
            f"begins at {ours.log_start_offset}, so that no offset is given out twice",
            f"to have this state served, remove {line} here and in {names.LOG_START_OFFSETS} "
            "before a broker starts",
            offset=end,
        )
    elif start > end:
        yield damage(
            str(log_dir / names.LOG_START_OFFSETS),
            f"It says that {partition} begins at offset {start}, and its log ends before {end}: a "
            "broker that starts ignores it, and records that were deleted may be there again",
            f"correct {line}, or restore the end of the log from a replica or a backup",
            offset=end,
        )


class _Told:
    """The sentence about a checkpoint that knows of more than there is."""

    def __init__(self, log_dir: Path, partition: TopicPartition, end: int) -> None:
        self._partition = partition
        self._end = end

    def __call__(self, what: str, upto: int) -> str:
        return (
            f"It says that {self._partition} {what}, and the log ends before {self._end}: offsets "
            f"{self._end} to {upto - 1} are missing"
        )


def _snapshots(
    files: Files,
    directory: Path,
    present: Sequence[str],
    segments: Sequence[SegmentFacts],
    around: Surroundings,
) -> Iterator[Finding]:
    end = segments[-1].next_offset if segments and segments[-1].is_sound else None
    for offset in base_offsets(present, names.SNAPSHOT):
        path = str(directory / names.segment_file(offset, names.SNAPSHOT))
        if files.size(path) > _MAX_SNAPSHOT_BYTES:
            yield note(path, "It is too large to be a snapshot of producers: not checked")
            continue
        producers = Producers()
        findings: list[Finding] = []
        read = partial(producers.read, files, str(directory), offset, 0)
        read_or_tell(read, path, _SNAPSHOT, findings)
        yield from findings
        beyond = [
            producer_id
            for producer_id, state in producers
            if any(batch.last_offset >= offset for batch in state.batches)
        ]
        if beyond:
            yield fault(
                path,
                f"It speaks of offset {offset} and later for producer {beyond[0]}",
                "stop the broker and remove it: the log is read instead",
            )
        elif end is not None and offset > end and not around.is_live:
            yield note(path, f"It is of offset {offset}, and the log ends before {end}")
