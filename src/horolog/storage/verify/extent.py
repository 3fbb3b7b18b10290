"""Checks of a log's start, end, gaps and leader epochs."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from horolog.errors import CorruptBatch, CorruptFile, StorageFailed
from horolog.storage import names
from horolog.storage.batches.reader import BatchReader
from horolog.storage.directory.checkpoints import EpochStart, read_epochs, topic_id_in
from horolog.storage.files import Files
from horolog.storage.removal.leftovers import base_offsets
from horolog.storage.scan.findings import EpochRun, Finding, SegmentFacts, damage, fault, note
from horolog.storage.verify.surroundings import Surroundings, empty_note, is_empty, read_or_report

_RESTORE = "restore it from a replica or a backup before a broker starts"


def check_order(
    directory: Path,
    present: Collection[str],
    segments: Sequence[SegmentFacts],
    around: Surroundings,
) -> Iterator[Finding]:
    """Check that each segment begins where the one before ends.

    Only compaction leaves offsets out. In a compacted log, a missing segment looks like an emptied
    one.
    """
    partition = names.partition_of(directory.name)
    is_compacted = (
        partition in around.offsets[names.CLEANER_OFFSETS]
        or any(segment.missing_offsets or segment.has_delete_horizon for segment in segments)
        or any(segment.leaves_out for segment in segments[:-1])
    )
    bases = base_offsets(present, names.LOG)
    missing = 0
    in_order: list[SegmentFacts] = []
    for segment in segments:
        if in_order and not segment.size and in_order[-1].next_offset > segment.base_offset:
            yield note(
                segment.path, "It is empty, and the one before it reaches beyond: it is left out"
            )
        else:
            in_order.append(segment)
    for before, after in pairwise(in_order):
        are_neighbours = bases.index(after.base_offset) == bases.index(before.base_offset) + 1
        gap = after.base_offset - before.next_offset
        if gap <= 0 or not are_neighbours or not before.is_sound:
            continue
        if is_compacted:
            missing += gap
            continue
        yield damage(
            str(directory),
            f"Offsets {before.next_offset} to {after.base_offset - 1} are in no segment: the one "
            f"between {before.base_offset} and {after.base_offset} is missing",
            _RESTORE,
            offset=before.next_offset,
        )
    for segment in segments:
        if segment.first_offset is not None and segment.is_sound:
            missing += max(0, segment.first_offset - segment.base_offset)
    if missing:
        yield note(
            str(directory),
            f"{missing} offsets are in no segment, as compaction leaves it, or a segment that is "
            "missing",
        )


def check_start(
    files: Files,
    directory: Path,
    present: Collection[str],
    segments: Sequence[SegmentFacts],
    around: Surroundings,
) -> Iterator[Finding]:
    """Compare the start of the log with its start when it was last written.

    DeleteRecords and retention move the first leader epoch to the log start. Until the first clean
    stop our checkpoint may lag behind retention. A copy of a log begins with the whole batch that
    contains its start, and so may its epochs.
    """
    partition = names.partition_of(directory.name)
    if partition is None or around.is_live:
        return
    first, end = segments[0].base_offset, segments[-1].next_offset
    by_epochs = _first_epoch_start(files, directory)
    checkpointed = around.checkpointed(partition, topic_id_in(files, str(directory), []))
    ours, line = checkpointed.written_for, checkpointed.log_start_offset or 0
    by_ours = None if ours is None else ours.log_start_offset
    known = by_epochs
    if known is None and around.is_clean:
        known = by_ours if by_ours is not None else line or None
    deleted = base_offsets(present, names.LOG + names.DELETED)
    if known is not None and known < first and not any(known <= base < first for base in deleted):
        yield damage(
            str(directory),
            f"The log started at offset {known}, and its first segment begins with {first}: "
            f"offsets {known} to {first - 1} are missing",
            _RESTORE,
            offset=known,
        )
    known = by_epochs if by_epochs is not None else by_ours
    path = str(directory.parent / names.LOG_START_OFFSETS)
    if not first < line <= end:
        return
    is_known = by_ours == line or line < _end_of_first_batch(files, segments[0])
    if known is not None and known < line and not is_known:
        hidden = max(known, first)
        yield fault(
            path,
            f"It says that {partition} begins at offset {line}, and the log started at {known} "
            f"when it was last written to: no client reads offsets {hidden} to {line - 1}, which "
            "are there",
            f"correct the line of {partition.topic} {partition.partition} before a broker starts: "
            "retention removes what is before it",
            offset=hidden,
        )
    else:
        yield note(
            path,
            f"{partition} begins at offset {line}: {line - first} offsets before it were deleted "
            "and are still in its first segments",
        )


def _end_of_first_batch(files: Files, segment: SegmentFacts) -> int:
    with suppress(StorageFailed, CorruptBatch):  # reported with the segment
        return BatchReader.of_file(files, segment.path).header(0).next_offset
    return segment.base_offset


def _first_epoch_start(files: Files, directory: Path) -> int | None:
    with suppress(StorageFailed, CorruptFile, ValueError):  # reported with the epochs
        entries = read_epochs(files, str(directory / names.LEADER_EPOCHS))
        return entries[0].start_offset if entries else None
    return None


def check_ends(
    files: Files, directory: Path, segments: Sequence[SegmentFacts], around: Surroundings
) -> Iterator[Finding]:
    """Compare the checkpoints of the log directory with the ends of the log."""
    partition = names.partition_of(directory.name)
    last = segments[-1]
    if partition is None or around.is_live:
        return
    end = last.next_offset
    log_dir = directory.parent

    def beyond(what: str, upto: int) -> str:
        return (
            f"It says that {partition} {what}, and the log ends before {end}: offsets {end} to "
            f"{upto - 1} are missing"
        )

    point = around.offsets[names.RECOVERY_POINTS].get(partition, 0)
    high = around.offsets[names.HIGH_WATERMARKS].get(partition, 0)
    if partition in around.replicas:
        if max(point, high) > end:
            yield note(
                str(directory),
                f"The log ends before {end}, and was once flushed up to offset {point} and "
                f"acknowledged up to {high}: it was truncated to its leader's log since, or it is "
                "a new one. Its leader has what it lacks",
            )
    elif point > end:
        yield damage(
            str(log_dir / names.RECOVERY_POINTS),
            beyond(f"was flushed up to offset {point}", point),
            "restore the end of the log from a replica or a backup",
            offset=end,
        )
    elif high > end:
        yield fault(
            str(log_dir / names.HIGH_WATERMARKS),
            beyond(f"was acknowledged up to offset {high}", high),
            "restore the end of the log from a replica or a backup; a broker lowers this itself",
            offset=end,
        )
    checkpointed = around.checkpointed(partition, topic_id_in(files, str(directory), []))
    start = checkpointed.log_start(end)
    line = f"the line of {partition.topic} {partition.partition}"
    if start.offset > end:
        yield damage(
            str(log_dir / names.CHECKPOINT_IDS),
            f"{partition} began at offset {start.offset} when it was last served, and its "
            f"log ends before {end}: it is an older state. A broker that starts sets it aside and "
            f"begins at {start.offset}, so that no offset is given out twice",
            f"to have this state served, remove {line} here and in {names.LOG_START_OFFSETS} "
            "before a broker starts",
            offset=end,
        )
    elif start.ignored is not None:
        yield damage(
            str(log_dir / names.LOG_START_OFFSETS),
            f"It says that {partition} begins at offset {start.ignored}, and its log ends before "
            f"{end}: a broker that starts ignores it, and records that were deleted may be there "
            "again",
            f"correct {line}, or restore the end of the log from a replica or a backup",
            offset=end,
        )


_MAX_LINES = 8


def check_epochs(
    files: Files, directory: Path, segments: Sequence[SegmentFacts], *, is_live: bool
) -> Iterator[Finding]:
    """Compare the leader epochs of the batches with their checkpoint."""
    path = str(directory / names.LEADER_EPOCHS)
    runs = _runs(segments)
    for before, after in pairwise(runs):
        if after.epoch < before.epoch:
            yield damage(
                str(directory),
                f"The leader epoch goes back from {before.epoch} to {after.epoch}: one of the two "
                "was not written by a leader of this log",
                "restore the partition from a replica or a backup",
                offset=after.first_offset,
            )
            return
    if is_empty(files, path):
        yield from empty_note(files, path)
        return
    mend = _mend(runs)
    findings: list[Finding] = []
    entries = read_or_report(lambda: read_epochs(files, path), path, mend, findings) or []
    yield from findings
    if findings:
        return
    if not files.exists(path):
        if runs:
            yield note(path, "There is none: a broker learns leader epochs from the log")
        return
    end = segments[-1].next_offset
    is_whole = all(segment.is_sound for segment in segments)
    if entries and entries[-1].start_offset > end and is_whole and not is_live:
        yield fault(
            path,
            f"Epoch {entries[-1].epoch} begins at offset {entries[-1].start_offset}, and the log "
            f"ends before {end}",
            mend,
        )
    wrong = next(_disagreements(entries, runs), None)
    if wrong is not None and not is_live:
        offset, said, actual = wrong
        yield fault(
            path,
            f"It says that offset {offset} was written in epoch {said}, and the batch there names "
            f"epoch {actual}",
            mend,
            offset=offset,
        )


def _runs(segments: Sequence[SegmentFacts]) -> list[EpochRun]:
    """Return the ranges of the log with one epoch. Batches without an epoch are skipped."""
    runs: list[EpochRun] = []
    for run in (run for segment in segments for run in segment.epochs if run.epoch >= 0):
        if runs and runs[-1].epoch == run.epoch:
            runs[-1] = runs[-1]._replace(last_offset=run.last_offset)
        else:
            runs.append(run)
    return runs


def _disagreements(
    entries: Sequence[EpochStart], runs: Sequence[EpochRun]
) -> Iterator[tuple[int, int, int]]:
    """Yield offset, epoch of the checkpoint and epoch of the batch where these differ."""
    place = 0
    starts = [entry.start_offset for entry in entries[1:]]
    ends = [*starts, runs[-1].last_offset + 1 if runs else 0]
    for entry, until in zip(entries, ends, strict=False):
        while place < len(runs) and runs[place].last_offset < entry.start_offset:
            place += 1
        for run in runs[place:]:
            first = max(run.first_offset, entry.start_offset)
            if first >= until:
                break
            if run.epoch != entry.epoch:
                yield first, entry.epoch, run.epoch


def _mend(runs: Sequence[EpochRun]) -> str:
    if not runs or len(runs) > _MAX_LINES:
        return "restore it from a replica or a backup while the broker is stopped"
    lines = ["0", str(len(runs)), *(f"{run.epoch} {run.first_offset}" for run in runs)]
    return f"stop the broker and write, a line each, what the log says: {', '.join(lines)}"
