"""Verifies or rebuilds the indexes of many partitions in parallel (KIP-33's migration).

Does what `horolog log verify` and `horolog log reindex` do to one log directory, by the same
functions. A task checks or rebuilds whole segments. Properties of a partition as a whole (the order
of its segments, leader epochs, checkpoints) are checked afterwards, from the facts of its segments.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from horolog.jobs.files.parts import (
    FileRequest,
    FoundParts,
    LogPart,
    find_parts,
    fingerprint_now,
    refuse_remote,
)
from horolog.jobs.files.work import Worked, work_on
from horolog.jobs.parameters.files import Index
from horolog.jobs.parameters.function import on_spark
from horolog.jobs.spread import spread
from horolog.metadata.verify import check_store, verification_of
from horolog.report.files import failed_lines, finding_lines, reindexed_lines, summary_of
from horolog.results import Outcome
from horolog.sources.file_systems import Root
from horolog.sources.object_stores import StoreOptions
from horolog.sources.uris import LogPath
from horolog.storage import names
from horolog.storage.directory.lock import is_locked
from horolog.storage.offline.reindex import Reindexed, Reindexing
from horolog.storage.scan.findings import Findings, SegmentFacts, Steps, run_steps
from horolog.storage.verify import Checked, Finding, Severity, Verification, VerifyTarget

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport(Outcome):
    """Outcome of a verification or rebuild, including earlier runs with the same state."""

    rebuilt: bool
    """True for a rebuild; otherwise everything was only verified."""
    dry_run: bool
    checked: Checked
    findings: tuple[Finding, ...] = ()
    """Findings of a verification, ordered by path."""
    reindexed: tuple[Reindexed, ...] = ()
    """Segments whose indexes were wrong, rebuilt, or left unchanged."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Errors of parts, by path; the next run tries them again."""
    resumed: int = 0
    """Number of parts that an earlier run had finished."""

    @property
    def wrong(self) -> int:
        """Number of findings that are more than notes."""
        return sum(1 for finding in self.findings if finding.severity is not Severity.NOTE)

    @property
    def refused(self) -> tuple[Reindexed, ...]:
        """Segments whose indexes could not be rebuilt."""
        return tuple(segment for segment in self.reindexed if segment.refused)

    @property
    def is_ok(self) -> bool:
        """True if nothing is wrong, or everything wrong was rebuilt."""
        return not (self.wrong or self.refused or self.failed)

    def to_json(self) -> dict[str, Any]:
        """Return the members, by their names on the command line."""
        return {
            "ok": self.is_ok,
            "rebuild": self.rebuilt,
            "dry_run": self.dry_run,
            **self.checked._asdict(),
            "findings": self.findings,
            "reindexed": self.reindexed,
            "failed": self.failed,
            "resumed": self.resumed,
        }

    def lines(self) -> Iterator[str]:
        """Yield the findings, the rebuilt and failed segments, and a summary."""
        yield from finding_lines(self.findings)
        yield from reindexed_lines(self.reindexed, dry_run=self.dry_run)
        yield from failed_lines(self.failed, self.resumed)
        summary = summary_of(self.checked, self.findings)
        if self.rebuilt:
            changed = sum(1 for segment in self.reindexed if segment.written)
            summary = (
                f"{self.checked.segments} segments checked, the indexes of {changed} "
                f"{'would be ' if self.dry_run else ''}rebuilt, {len(self.refused)} left unchanged"
            )
        yield summary + (f"; {len(self.failed)} parts failed" if self.failed else "")


@on_spark(Index)
def index(spark: SparkSession, job: Index) -> IndexReport:
    """Verify every byte of logs, or rebuild their indexes and block maps where they are wrong.

    A verification changes nothing, and works on object stores and while a broker runs. To rebuild,
    brokers of the directories must be stopped: their locks are held. These are locks of this
    machine, and do not stop a broker elsewhere that shares the disk. With executors on several
    machines, the paths must be on a shared file system.

    Raises:
        Misconfigured: an argument is wrong, a broker is at work, or another run has the state.
        StorageFailed: a path or the state cannot be read.
    """
    request = FileRequest.of(job.paths, job.topics, job.topics_pattern, job.settings)
    found = find_parts(request)
    if job.rebuilds:
        refuse_remote(found, "indexes are only verified there, and rebuilt on disks")
    work = _IndexPart(job.for_tasks(), request.store)
    log_dirs = {part.target.log_dir for part in found.parts if part.is_local}
    live = {log_dir for log_dir in log_dirs if is_locked(str(log_dir / names.LOCK))}
    why = Reindexing.REASON if job.rebuilds else None
    found, worked = work_on(
        spark, "index", job, lambda: find_parts(request), work, _IndexedPart, locked_for=why
    )
    return _report(spark, found, work, worked, live)


# On the driver.


def _report(
    spark: SparkSession,
    found: FoundParts,
    work: "_IndexPart",
    worked: Worked["_IndexedPart"],
    live: Collection[Path],
) -> IndexReport:
    results, failed = [*worked.done.values()], dict(worked.failed)
    if not work.job.rebuilds:
        around, failed_around = _around_split_partitions(spark, found, worked, work.store, live)
        results += around
        results += map(_log_dir, found.log_dirs)
        failed |= failed_around
    return IndexReport(
        rebuilt=work.job.rebuilds,
        dry_run=work.job.dry_run,
        checked=reduce(Checked.plus, (result.checked for result in results), Checked()),
        findings=tuple(
            sorted(
                (finding for done in results for finding in done.findings),
                key=lambda finding: finding.path,
            )
        ),
        reindexed=tuple(
            sorted(
                (segment for done in results for segment in done.segments),
                key=lambda segment: segment.path,
            )
        ),
        failed=failed,
        resumed=worked.resumed,
    )


def _around_split_partitions(
    spark: SparkSession,
    found: FoundParts,
    worked: Worked["_IndexedPart"],
    store: StoreOptions,
    live: Collection[Path],
) -> tuple[list["_IndexedPart"], dict[str, str]]:
    """Check partitions as a whole whose segments were checked in separate tasks."""
    by_directory: dict[Path, list[LogPart]] = defaultdict(list)
    for part in found.parts:
        if part.target.segment is not None:
            by_directory[part.directory].append(part)
    units = []
    for directory, parts in sorted(by_directory.items()):
        whole = [part.path for part in parts if not part.path.uri.endswith(names.LOG)]
        if whole and all(part.key in worked.done for part in parts):
            facts = [facts for part in parts for facts in worked.done[part.key].facts]
            target = VerifyTarget(directory.parent, (directory,))
            facts.sort(key=lambda segment: segment.base_offset)
            units.append((whole[0], target, facts, directory.parent in live))
    results, failed = [], {}
    for wave in spread(spark, units, _Around(store)):
        for outcome in wave:
            if outcome.result is None:
                failed[str(outcome.unit[1].partitions[0])] = str(outcome.error)
            else:
                results.append(outcome.result)
    return results, failed


def _log_dir(target: VerifyTarget) -> "_IndexedPart":
    """Check the files of a log directory that belong to no partition."""
    verification = Verification(target)
    around, done = verification.around, _IndexedPart()
    done.run(verification.log_dir())
    done.run(check_store(target.log_dir, is_live=around.is_live, is_clean=around.is_clean))
    return done


@dataclass(slots=True)
class _IndexedPart:
    """Outcome of the verification or rebuild of one part."""

    checked: Checked = field(default_factory=Checked)
    findings: list[Finding] = field(default_factory=list)
    facts: list[SegmentFacts] = field(default_factory=list)
    segments: list[Reindexed] = field(default_factory=list)
    fingerprint: str = ""

    def run(self, steps: Steps[_T] | Findings) -> _T:
        """Run all steps, and add their findings and counts."""
        return run_steps(steps, self.findings.append, self._read)

    def _read(self, more: Checked) -> None:
        self.checked = self.checked.plus(more)


# In a task.


@dataclass(frozen=True, slots=True)
class _IndexPart:
    """Verifies or rebuilds one part in a task."""

    job: Index
    store: StoreOptions

    def __call__(self, part: LogPart) -> _IndexedPart:
        return self._reindex(part) if self.job.rebuilds else self._verify(part)

    def _verify(self, part: LogPart) -> _IndexedPart:
        done = _IndexedPart(fingerprint=part.fingerprint)
        with Root(part.path, self.store, looks_once=True) as root:
            verification = verification_of(part.target, root.files)
            if part.target.segment is None:
                done.run(verification.steps())
            else:
                done.facts = done.run(verification.segments())
        return done

    def _reindex(self, part: LogPart) -> _IndexedPart:
        job = self.job
        work = Reindexing(
            part.target, job.interval_bytes, rebuild_all=job.rebuild_all, dry_run=job.dry_run
        )
        done = _IndexedPart()
        with work.shared(), closing(work.files):
            reindexed = done.run(work.steps())
        done.segments = [
            segment for segment in reindexed if segment.wrong or segment.written or segment.refused
        ]
        done.fingerprint = part.fingerprint if job.dry_run else fingerprint_now(part)
        return done


@dataclass(frozen=True, slots=True)
class _Around:
    """Checks a partition as a whole in a task, from the facts of its segments."""

    store: StoreOptions

    def __call__(
        self, unit: tuple[LogPath, VerifyTarget, list[SegmentFacts], bool]
    ) -> _IndexedPart:
        path, target, facts, was_live = unit
        done = _IndexedPart()
        with Root(path, self.store, looks_once=True) as root:
            around = verification_of(target, root.files)
            done.run(around.around_segments(facts, was_live=was_live))
        return done
