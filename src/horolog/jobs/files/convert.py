"""Rewrites many partitions in another record format, in parallel (KIP-32's migration).

Does what `horolog log convert` does to one log directory, by the same function. A task rewrites
whole segments, compares them record for record with the old ones, and then swaps them.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession

from horolog.clock import SystemClock
from horolog.errors import Misconfigured
from horolog.jobs.files.parts import (
    FileRequest,
    FoundParts,
    LogPart,
    find_parts,
    fingerprint_now,
    refuse_remote,
)
from horolog.jobs.files.work import Worked, work_on
from horolog.jobs.parameters.files import FORMATS, OLD_CODECS, Convert
from horolog.jobs.parameters.function import on_spark
from horolog.record.compression import Codec
from horolog.record.conversion import Losses
from horolog.report.files import converted_json, converted_lines, failed_lines, loss_lines
from horolog.results import Outcome
from horolog.storage.offline.converting import (
    Conversion,
    ConvertedSegment,
    is_kafkas_own,
)
from horolog.storage.scan.findings import run_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertReport(Outcome):
    """Outcome of a conversion, including earlier runs with the same state."""

    format: str
    dry_run: bool
    segments: int = 0
    """Number of examined segments, including those that had the format."""
    converted: tuple[ConvertedSegment, ...] = ()
    """Segments that were rewritten, or would be, by path."""
    refused: tuple[ConvertedSegment, ...] = ()
    """Segments that have another format and could not be converted."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Errors of parts, by path; the next run tries them again."""
    resumed: int = 0
    """Number of parts that an earlier run had finished."""

    @property
    def records(self) -> int:
        """Number of rewritten records."""
        return sum(segment.records for segment in self.converted)

    @property
    def losses(self) -> Losses:
        """Counts of record fields that the format cannot store."""
        return sum((segment.losses for segment in self.converted), start=Losses())

    @property
    def is_ok(self) -> bool:
        """True if every segment has the format now."""
        return not (self.refused or self.failed)

    def to_json(self) -> dict[str, Any]:
        """Return the members, by their names on the command line."""
        return {
            "ok": self.is_ok,
            "format": self.format,
            "dry_run": self.dry_run,
            "segments": self.segments,
            "records": self.records,
            "converted": [*map(converted_json, self.converted)],
            "refused": {segment.path: segment.refused for segment in self.refused},
            "failed": self.failed,
            "lost": self.losses,
            "resumed": self.resumed,
        }

    def lines(self) -> Iterator[str]:
        """Yield the converted, refused and failed segments, the losses, and a summary."""
        segments = (*self.converted, *self.refused)
        yield from converted_lines(segments, self.format, dry_run=self.dry_run)
        yield from failed_lines(self.failed, 0)
        yield from loss_lines(self.losses, self.format)
        yield from failed_lines({}, self.resumed)
        yield (
            f"{self.segments} segments, {len(self.converted)} "
            f"{'would be ' if self.dry_run else ''}converted to {self.format} "
            f"({self.records} records), {len(self.refused)} left as they are"
            + (f"; {len(self.failed)} parts failed" if self.failed else "")
        )


@on_spark(Convert)
def convert(spark: SparkSession, job: Convert) -> ConvertReport:
    """Rewrite segments in a record format, many at a time; offsets and modification times stay.

    A run may be killed at any time and run again: each segment is either the old or the new one.
    Brokers of the directories must be stopped: their locks are held, which are locks of this
    machine. With executors on several machines, the paths must be on a shared file system. Each
    task needs room for a second copy of its segment.

    Raises:
        Misconfigured: an argument is wrong, a broker is at work, or another run has the state.
        StorageFailed: a path or the state cannot be read.
    """
    if job.to not in FORMATS:
        raise Misconfigured(f"to is {job.to}: there are {', '.join(FORMATS)}")
    request = FileRequest.of(job.paths, job.topics, job.topics_pattern, None)

    def find() -> FoundParts:
        return _convertible(find_parts(request))

    refuse_remote(find(), "segments cannot be swapped there; convert them on a disk")
    if job.zstd_as not in (None, *OLD_CODECS):
        raise Misconfigured(f"zstd_as is {job.zstd_as}: there are {', '.join(OLD_CODECS)}")
    work = _ConvertPart(job.for_tasks(), SystemClock().now_ms())
    _, worked = work_on(
        spark, "convert", job, find, work, _ConvertedPart, locked_for=Conversion.REASON
    )
    return _report(worked, job.to, dry_run=job.dry_run)


def _report(worked: Worked["_ConvertedPart"], to: str, *, dry_run: bool) -> ConvertReport:
    segments = sorted(
        (segment for done in worked.done.values() for segment in done.segments),
        key=lambda segment: segment.path,
    )
    return ConvertReport(
        format=to,
        dry_run=dry_run,
        segments=sum(done.looked_at for done in worked.done.values()),
        converted=tuple(segment for segment in segments if segment.is_changed),
        refused=tuple(segment for segment in segments if segment.refused),
        failed=worked.failed,
        resumed=worked.resumed,
    )


@dataclass(slots=True)
class _ConvertedPart:
    """Outcome of the conversion of one part."""

    looked_at: int = 0
    segments: list[ConvertedSegment] = field(default_factory=list)
    """Segments that were converted or refused."""
    fingerprint: str = ""


def _convertible(parts_found: FoundParts) -> FoundParts:
    """Leave out the internal topics of brokers, unless a path names them."""
    whole = {target.log_dir for target in parts_found.log_dirs}
    parts = (
        part
        for part in parts_found.parts
        if part.target.log_dir not in whole or not is_kafkas_own(part.target.partitions[0].name)
    )
    return replace(parts_found, parts=tuple(parts))


@dataclass(frozen=True, slots=True)
class _ConvertPart:
    """Converts one part in a task."""

    job: Convert
    now_ms: int

    def __call__(self, part: LogPart) -> _ConvertedPart:
        job = self.job
        work = Conversion(
            part.target,
            int(job.to[1]),
            self.now_ms,
            zstd_as=None if job.zstd_as is None else Codec[job.zstd_as.upper()],
            interval_bytes=job.interval_bytes,
            dry_run=job.dry_run,
        )
        with work.shared(), closing(work.files):
            segments = run_steps(work.steps(), lambda _: None, lambda _: None)
        return _ConvertedPart(
            len(segments),
            [segment for segment in segments if segment.is_changed or segment.refused],
            part.fingerprint if job.dry_run else fingerprint_now(part),
        )
