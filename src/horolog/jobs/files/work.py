"""Runs the work of a job on parts of logs: skips finished parts, spreads, records results."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

from pyspark.sql import SparkSession

from horolog.errors import HorologError
from horolog.jobs.counting import count
from horolog.jobs.files.offline import locked_offline
from horolog.jobs.files.parts import FoundParts, LogPart, units_of
from horolog.jobs.parameters.files import OnFiles
from horolog.jobs.parameters.shared import OnProgress
from horolog.jobs.spread import UnitOutcome, UnitProgress, cores_of, spread
from horolog.jobs.state import DocumentsOnly, state_of, value_of
from horolog.record.scan import load_kernels


class PartDone(Protocol):
    """Outcome of one part: a dataclass that the state directory keeps."""

    fingerprint: str
    """Fingerprint of the part at the end of the work; with another one it is worked on again."""


Done = TypeVar("Done", bound=PartDone)


@dataclass(frozen=True, slots=True)
class Worked(Generic[Done]):
    """Outcomes of all parts, by their keys."""

    done: Mapping[str, Done]
    failed: Mapping[str, str]
    """Errors of parts, by key; the next run tries them again."""
    resumed: int
    """Number of parts that an earlier run had finished."""


@dataclass(frozen=True, slots=True)
class _PartsTask(Generic[Done]):
    """Works on the parts of a unit in a task; a failed part leaves the others alone."""

    work: Callable[[LogPart], Done]

    def __call__(self, unit: tuple[LogPart, ...]) -> list[Done | str]:
        load_kernels(_bytes_of(unit))
        results: list[Done | str] = []
        for part in unit:
            try:
                results.append(self.work(part))
            except (HorologError, OSError) as error:
                results.append(str(error))
            count(part.size)
        return results


def work_on(
    spark: SparkSession,
    name: str,
    job: OnFiles,
    find: Callable[[], FoundParts],
    work: Callable[[LogPart], Done],
    kind: type[Done],
    *,
    locked_for: str | None = None,
) -> tuple[FoundParts, Worked[Done]]:
    """Work on each unfinished part; a wave's outcomes are on disk before the next wave.

    Args:
        name: name of the job, for its state.
        work: works on one part in a task; it is pickled.
        kind: class of an outcome, which `json_text.read_as` can read.
        locked_for: reason to lock out brokers; None if nothing is changed.

    Raises:
        Misconfigured: a broker is at work, or another run has the state.
    """
    with ExitStack() as held:
        found, kept = find(), held.enter_context(state_of(job, name))
        if locked_for is not None:
            log_dirs = [part.target.log_dir for part in found.parts]
            held.enter_context(locked_offline(log_dirs, locked_for))
            found = find()  # again: a broker may have been at work until now
        done_before = None if job.dry_run else kept
        return found, _worked(spark, found, work, kind, done_before, job.on_progress)


def _worked(
    spark: SparkSession,
    found: FoundParts,
    work: Callable[[LogPart], Done],
    kind: type[Done],
    kept: DocumentsOnly | None,
    on_progress: OnProgress,
) -> Worked[Done]:
    done: dict[str, Done] = {}
    failed: dict[str, str] = {}
    waiting = []
    for part in found.parts:
        before = None if kept is None else kept.done.get(part.key)
        if before is not None and before.get("fingerprint") == part.fingerprint:
            done[part.key] = value_of(kind, before, "done.jsonl")
        else:
            waiting.append(part)
    resumed, bytes_done = len(done), found.size - sum(part.size for part in waiting)
    progress = UnitProgress(on_progress, _bytes_of, done=bytes_done)
    units = units_of(waiting, cores_of(spark))
    for wave in spread(spark, units, _PartsTask(work), progress=progress):
        news: dict[str, Done] = {}
        for part, result in _results(wave):
            if isinstance(result, str):
                failed[part.key] = result
            else:
                news[part.key] = result
        if kept is not None:
            kept.record((key, asdict(cast(Any, part_done))) for key, part_done in news.items())
        done |= news
    return Worked(done, dict(sorted(failed.items())), resumed)


def _bytes_of(unit: tuple[LogPart, ...]) -> int:
    return sum(part.size for part in unit)


def _results(
    wave: list[UnitOutcome[tuple[LogPart, ...], list[Done | str]]],
) -> Iterator[tuple[LogPart, Done | str]]:
    for outcome in wave:
        for number, part in enumerate(outcome.unit):
            if outcome.result is None:
                yield part, outcome.error or "its task ended without a result"
            else:
                yield part, outcome.result[number]
