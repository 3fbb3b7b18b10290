"""`horolog log verify` and `horolog log reindex`: run the checks of storage and print them."""

from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from horolog.cli.options import Json, with_options
from horolog.cli.screen import progress, show_outcome
from horolog.config import TopicConfig
from horolog.errors import StorageFailed
from horolog.metadata.opening import state_dir_of
from horolog.metadata.verify import check_metadata, check_store, verification_of
from horolog.record.scan import load_kernels
from horolog.report.files import finding_lines, reindexed_lines, summary_of
from horolog.results import Answer, Aside
from horolog.storage.files import Files
from horolog.storage.offline.reindex import Reindexing
from horolog.storage.scan.findings import run_steps
from horolog.storage.verify import (
    Checked,
    Finding,
    Severity,
    Verification,
    VerifyTarget,
    find_target,
)

_T = TypeVar("_T")

INTERVAL_BYTES = TopicConfig().index_interval_bytes
IntervalBytes = Annotated[
    int,
    typer.Option(
        "--index-interval-bytes",
        min=0,
        metavar="BYTES",
        help="The topic's index.interval.bytes: bytes of log between two entries.",
    ),
]
LogPath = Annotated[
    Path,
    typer.Argument(
        exists=True,
        show_default=False,
        help="A log or partition directory, or a .log file.",
    ),
]


class Tally:
    """Findings of a check, and counts of checked data."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.checked = Checked()

    def of(self, steps: Generator[Finding | Checked, None, _T], what: str, total: int) -> _T:
        """Run all steps with a progress bar; return their result."""
        load_kernels(total)
        with progress(what, total, "bytes") as advance:

            def read(more: Checked) -> None:
                self.checked = self.checked.plus(more)
                advance(self.checked.bytes)

            return run_steps(steps, self.findings.append, read)

    def count(self, severity: Severity) -> int:
        """Return the number of findings of this severity."""
        return sum(1 for finding in self.findings if finding.severity is severity)


@with_options
def verify(path: LogPath) -> Answer:
    """Check every byte: batches, checksums, records, offsets, indexes, checkpoints, metadata.

    Reports every problem with its position and repair, and also valid but notable facts. Works
    without a broker or with a running one, also on directories of Apache Kafka, and writes nothing.
    The exit code is 1 if it finds a problem.
    """
    verification = verification_of(find_target(path))
    tally = Tally()
    total = bytes_of(verification.target)
    tally.of(_all_steps(verification), f"verifying {path}", total)
    around = verification.around
    state = "in use" if around.is_live else "closed cleanly" if around.is_clean else "not closed"
    wrong = len(tally.findings) - tally.count(Severity.NOTE)
    summary = summary_of(tally.checked, tally.findings, f" (log directory {state})")
    result = {
        "path": path.absolute(),
        "ok": wrong == 0,
        "state": state,
        **tally.checked._asdict(),
        "findings": tally.findings,
    }
    return Answer(result, [*finding_lines(tally.findings, path.absolute()), summary], not wrong)


def _all_steps(verification: Verification) -> Generator[Finding | Checked, None, None]:
    yield from verification.steps()
    target, around = verification.target, verification.around
    if target.is_log_dir:
        yield from check_metadata(target.log_dir)
        yield from check_store(target.log_dir, is_live=around.is_live, is_clean=around.is_clean)
        state_dir = state_dir_of(target.log_dir)
        if state_dir != target.log_dir and state_dir.is_dir():
            yield from Verification.of(state_dir).steps()
            yield from check_metadata(state_dir)


@with_options
def reindex(
    path: LogPath,
    rebuild_all: Annotated[
        bool, typer.Option("--all", help="Also rebuild indexes that are correct.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be done.")
    ] = False,
    interval_bytes: IntervalBytes = INTERVAL_BYTES,
    as_json: Json = False,
) -> None:
    """Rebuild missing and wrong indexes from the log, as Apache Kafka's recovery would.

    Writes .index and .timeindex, and a .companion that Kafka ignores; never changes a .log. Removes
    a damaged append-time-checkpoint, which the next start rebuilds. A broker that uses the
    directory must be stopped first. The exit code is 1 if an index cannot be rebuilt because its
    log is damaged.
    """
    target = find_target(path)
    work = Reindexing(target, interval_bytes, rebuild_all=rebuild_all, dry_run=dry_run)
    with work.locked():
        tally = Tally()
        done = tally.of(work.steps(), f"reindexing {path}", bytes_of(target))
    refused = [segment for segment in done if segment.refused]
    changed = sum(1 for segment in done if segment.written)
    summary = (
        f"{len(done)} segments checked, the indexes of {changed} "
        f"{'would be ' if dry_run else ''}rebuilt, {len(refused)} left unchanged"
    )
    result = {
        "path": path.absolute(),
        "ok": not refused,
        "dry_run": dry_run,
        "segments": len(done),
        "reindexed": [segment for segment in done if segment.wrong or segment.written],
    }
    lines: list[str] = [*reindexed_lines(done, dry_run=dry_run), summary]
    if as_json:  # the lines have these, and the result does not
        lines += [Aside(f"{segment.path}: {segment.refused}") for segment in refused]
    show_outcome(Answer(result, lines, not refused), as_json=as_json)


def bytes_of(target: VerifyTarget) -> int:
    """Return the size of the existing segments in bytes, without those that cannot be read."""
    total, files = 0, Files(read_only=True)
    with suppress(StorageFailed):
        for segment in target.segments(files):
            with suppress(StorageFailed):
                total += files.size(str(segment))
    return total
