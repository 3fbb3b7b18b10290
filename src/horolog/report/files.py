"""Lines on checks and rewrites of files, for `horolog log` and the jobs `index` and `convert`."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from horolog.record.conversion import Losses
from horolog.results import size
from horolog.storage.offline.converting import ConvertedSegment
from horolog.storage.offline.reindex import Reindexed
from horolog.storage.verify import Checked, Finding, Severity

__all__ = [
    "converted_json",
    "converted_lines",
    "failed_lines",
    "finding_lines",
    "loss_lines",
    "reindexed_lines",
    "summary_of",
]

_LOST: Final = {
    "headers": "headers of records",
    "timestamps": "timestamps",
    "producer_batches": "batches' producer ids and sequences",
    "control_batches": "control batches",
    "trailing_offsets": "offsets behind the last record of a compacted batch",
}


def finding_lines(findings: Iterable[Finding], root: Path | None = None) -> Iterator[str]:
    """Yield lines for findings, the most serious first; paths are relative to `root`'s parent."""
    for finding in sorted(findings, key=lambda finding: list(Severity).index(finding.severity)):
        place = finding.path if root is None else os.path.relpath(finding.path, root.parent)
        if finding.position is not None:
            place += f", byte {finding.position}"
        if finding.offset is not None:
            place += f", offset {finding.offset}"
        yield f"{finding.severity.upper():6}  {place}"
        yield f"        {finding.what}"
        if finding.mend:
            yield f"        repair: {finding.mend}"


def summary_of(checked: Checked, findings: Iterable[Finding], where: str = "") -> str:
    """Return one line on how much was checked, and on the findings by severity."""
    counts = Counter(finding.severity for finding in findings)
    counted = [
        f"{count} {severity}{'s' if count != 1 else ''}"
        for severity in Severity
        if (count := counts[severity])
    ]
    wrong = ", ".join(counted) if counted else "no findings"
    parts = f"{checked.partitions} partitions, " if checked.partitions else ""
    return (
        f"{parts}{checked.segments} segments, {checked.batches} batches, "
        f"{checked.records} records, {size(checked.bytes)} checked{where}: {wrong}"
    )


def reindexed_lines(segments: Iterable[Reindexed], *, dry_run: bool) -> Iterator[str]:
    """Yield lines on wrong indexes of segments, and on their repair."""
    would = "would write" if dry_run else "wrote"
    for segment in segments:
        if segment.wrong or segment.written or segment.refused:
            yield segment.path
            yield from (f"  wrong: {what}" for what in segment.wrong)
            yield from (f"  {would} {os.path.basename(file)}" for file in segment.written)
            removed = "would remove" if dry_run else "removed"
            yield from (f"  {removed} {os.path.basename(file)}" for file in segment.removed)
            if segment.refused:
                yield f"  left unchanged: {segment.refused}"


def converted_lines(
    segments: Iterable[ConvertedSegment], to: str, *, dry_run: bool
) -> Iterator[str]:
    """Yield lines on the segments that were converted, or would be."""
    would, when = ("would be ", "then") if dry_run else ("", "now")
    for segment in segments:
        directory, file = os.path.split(segment.path)
        name = os.path.join(os.path.basename(directory), file)
        if segment.refused:
            yield f"{name}: left as it is: {segment.refused}"
        elif segment.is_changed:
            yield (
                f"{name}: {segment.records} records {would}written anew in {to}, "
                f"{size(segment.bytes_before)} before and {size(segment.bytes_after)} {when}"
            )
        yield from (f"{name}: {note}" for note in segment.notes)


def loss_lines(losses: Losses, to: str) -> Iterator[str]:
    """Yield lines on data that a format cannot represent."""
    for name, count in losses._asdict().items():
        if count:
            yield f"{to} has no place for {count} {_LOST[name]}"


def failed_lines(failed: Mapping[str, str], resumed: int) -> Iterator[str]:
    """Yield lines on failed parts, and on parts that an earlier run finished."""
    for path, error in failed.items():
        yield f"FAILED  {path}"
        yield f"        {error}"
    if resumed:
        yield f"{resumed} parts were done before and have not changed"


def converted_json(done: ConvertedSegment) -> dict[str, Any]:
    """Return the conversion of a segment for JSON."""
    return {
        "path": done.path,
        "records": done.records,
        "bytes_before": done.bytes_before,
        "bytes_after": done.bytes_after,
        "lost": done.losses._asdict(),
        "notes": done.notes,
    }
