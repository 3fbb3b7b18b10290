"""Rewrites many partitions in another record format, in parallel (KIP-32's migration).

What `horolog log convert` does to one log directory, by the same function: a task writes whole
segments anew, compares them record for record with the old ones, and only then swaps them.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from horolog.clock import SystemClock
from horolog.config import TopicConfig
from horolog.errors import Misconfigured
from horolog.jobs.files.offline import locked_offline
from horolog.jobs.files.parts import FileRequest, Part, find_parts, fingerprint_now, refuse_remote
from horolog.jobs.files.work import Worked, work_on
from horolog.jobs.spread import OnProgress
from horolog.jobs.state import JobState
from horolog.record.compression import Codec
from horolog.record.conversion import Losses
from horolog.storage.offline.converting import CONVERSION_REASON, Conversion, ConvertedSegment

FORMATS = ("v0", "v1", "v2")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertReport:
    """What was done; all of it, what an earlier run with this state did included."""

    format: str
    dry_run: bool
    segments: int = 0
    """How many were looked at; those that had the format are left as they are."""
    converted: tuple[ConvertedSegment, ...] = ()
    """Those that were written anew, or would be; by their paths."""
    refused: tuple[ConvertedSegment, ...] = ()
    """Those that have another format and were left as they are."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """What could not be worked on, by path; the next run tries it again."""
    resumed: int = 0
    """Partitions and segments that an earlier run had done."""

    @property
    def records(self) -> int:
        """How many were written anew."""
        return sum(each.records for each in self.converted)

    @property
    def losses(self) -> Losses:
        """What the format has no place for."""
        return sum((each.losses for each in self.converted), start=Losses())

    @property
    def is_ok(self) -> bool:
        """Whether all has the format now."""
        return not (self.refused or self.failed)


def convert(
    spark: SparkSession,
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    to: str,
    topics: str | Iterable[str] | None = None,
    topics_pattern: str | None = None,
    zstd_as: str | None = None,
    interval_bytes: int = TopicConfig().index_interval_bytes,
    state: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    on_progress: OnProgress = lambda done, total: None,
) -> ConvertReport:
    """Rewrite segments in a record format, many at a time; offsets and modification times stay.

    Safe to be killed at any time and run again: each segment is either the old or the new one.
    Brokers of the directories must be stopped: their lock is held, which is one of this machine.
    The tasks need the paths: with executors on several machines, they must be on a file system
    that all share. Each task needs room for a second copy of its segment.

    Args:
        spark: the session.
        paths: log directories, partition directories or segments, on disks.
        to: v0, v1 or v2.
        topics: only partitions of these topics.
        topics_pattern: only topics whose whole name matches.
        zstd_as: codec for v0 and v1 of what is compressed with zstd, which came with v2.
        interval_bytes: `index.interval.bytes` of the new indexes.
        state: directory of what is done; with it a killed run does not look at it again.
        dry_run: write nothing; report what would be converted, lost or refused.
        on_progress: called with the bytes that are done, and all.

    Raises:
        Misconfigured: an argument that cannot be; a broker is at work; another run has the state.
        StorageFailed: a path or the state cannot be read.
    """
    if to not in FORMATS:
        raise Misconfigured(f"to is {to}: there are {', '.join(FORMATS)}")
    request = FileRequest.of(paths, topics, topics_pattern, None)
    found = find_parts(request)
    refuse_remote(found, "segments cannot be swapped there; convert them on a disk")
    work = _Work(
        int(to[1]), _codec(zstd_as), interval_bytes, SystemClock().now_ms(), dry_run=dry_run
    )
    arguments = {"paths": request.shown, "to": to, "zstd_as": zstd_as}
    with ExitStack() as held:
        kept = None
        if state is not None and not dry_run:
            kept = held.enter_context(JobState(state, "convert", arguments))
        log_dirs = [part.target.log_dir for part in found.parts]
        held.enter_context(locked_offline(log_dirs, CONVERSION_REASON))
        found = find_parts(request)  # again: a broker may have been at work until now
        worked = work_on(spark, found, work, _Done.of_json, kept, on_progress)
    return _report(worked, to, dry_run=dry_run)


def _codec(name: str | None) -> Codec | None:
    if name is None:
        return None
    known = [codec.name.lower() for codec in Codec if codec is not Codec.ZSTD]
    if name not in known:
        raise Misconfigured(f"zstd_as is {name}: there are {', '.join(known)}")
    return Codec[name.upper()]


def _report(worked: Worked["_Done"], to: str, *, dry_run: bool) -> ConvertReport:
    segments = sorted(
        (each for done in worked.done.values() for each in done.segments),
        key=lambda each: each.path,
    )
    return ConvertReport(
        format=to,
        dry_run=dry_run,
        segments=sum(done.looked_at for done in worked.done.values()),
        converted=tuple(each for each in segments if each.is_changed),
        refused=tuple(each for each in segments if each.refused),
        failed=worked.failed,
        resumed=worked.resumed,
    )


@dataclass(slots=True)
class _Done:
    """What became of one part."""

    looked_at: int = 0
    segments: list[ConvertedSegment] = field(default_factory=list)
    """Those that were converted or refused."""
    fingerprint: str = ""

    def to_json(self) -> dict[str, Any]:
        segments = [{**asdict(each), "losses": list(each.losses)} for each in self.segments]
        return {"looked_at": self.looked_at, "segments": segments}

    @classmethod
    def of_json(cls, kept: Mapping[str, Any]) -> "_Done":
        segments = [
            ConvertedSegment(**{**each, "losses": Losses(*each["losses"])})
            for each in kept["segments"]
        ]
        return cls(kept["looked_at"], segments, kept["fingerprint"])


@dataclass(frozen=True, slots=True)
class _Work:
    """What a task does with a part."""

    magic: int
    zstd_as: Codec | None
    interval_bytes: int
    now_ms: int
    dry_run: bool

    def __call__(self, part: Part) -> _Done:
        work = Conversion(
            part.target,
            self.magic,
            self.now_ms,
            zstd_as=self.zstd_as,
            interval_bytes=self.interval_bytes,
            dry_run=self.dry_run,
        )
        with work.shared(), closing(work.files):
            steps = work.steps()
            while True:
                try:
                    next(steps)
                except StopIteration as ended:
                    found: list[ConvertedSegment] = ended.value
                    break
        return _Done(
            len(found),
            [each for each in found if each.is_changed or each.refused],
            part.fingerprint if self.dry_run else fingerprint_now(part),
        )
