"""Leader epochs of the batches, compared with the checkpoint (KIP-101)."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from horolog.storage import names
from horolog.storage.directory.checkpoints import EpochStart, read_epochs
from horolog.storage.files import Files
from horolog.storage.verify.findings import EpochRun, Finding, SegmentFacts, damage, fault, note
from horolog.storage.verify.surroundings import empty_note, is_empty, read_or_report

_MAX_LINES = 8


def check_epochs(
    files: Files, directory: Path, segments: Sequence[SegmentFacts], *, is_live: bool
) -> Iterator[Finding]:
    """Whether a partition's batches and its checkpoint agree on leader epochs."""
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
    is_whole = all(each.is_sound for each in segments)
    if entries and entries[-1].start_offset > end and is_whole and not is_live:
        yield fault(
            path,
            f"Epoch {entries[-1].epoch} begins at offset {entries[-1].start_offset}, and the log "
            f"ends before {end}",
            mend,
        )
    wrong = next(_disagreements(entries, runs), None)
    if wrong is not None and not is_live:
        offset, said, found = wrong
        yield fault(
            path,
            f"It says that offset {offset} was written in epoch {said}, and the batch there names "
            f"epoch {found}",
            mend,
            offset=offset,
        )


def _runs(segments: Sequence[SegmentFacts]) -> list[EpochRun]:
    """Ranges of the log with the same epoch; batches without one are skipped."""
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
    """Offset, epoch of the checkpoint, epoch of the batch, wherever one of them changes."""
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
