"""`horolog spark index`: verify or rebuild the indexes of many partitions in parallel."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from horolog.cli.jobs.command import Call, job_command
from horolog.jobs.parameters.files import Index
from horolog.report.files import failed_lines, finding_lines, reindexed_lines, summary_of

if TYPE_CHECKING:
    from horolog.jobs.files.index import IndexReport

app = typer.Typer()


@job_command(app, Index)
def index(job: Index, call: Call) -> None:
    """Run it, and show what is wrong, or was."""
    rebuilds = job.rebuild or job.rebuild_all
    if rebuilds and not job.dry_run:
        job.require_state()
    what = "rebuild" if rebuilds else "verify"
    with call.working("bytes", what=what, state=job.resumable) as (spark, work):
        from horolog.jobs.files.index import index as job_of

        report = job_of.run(spark, replace(job, on_progress=work))
    call.show(_plain(report), _lines(report), is_ok=report.is_ok)


def _lines(report: "IndexReport") -> Iterator[str]:
    yield from finding_lines(report.findings)
    yield from reindexed_lines(report.reindexed, dry_run=report.dry_run)
    yield from failed_lines(report.failed, report.resumed)
    summary = summary_of(report.checked, report.findings)
    if report.rebuilt:
        changed = sum(1 for segment in report.reindexed if segment.written)
        summary = (
            f"{report.checked.segments} segments checked, the indexes of {changed} "
            f"{'would be ' if report.dry_run else ''}rebuilt, {len(report.refused)} left unchanged"
        )
    yield summary + (f"; {len(report.failed)} parts failed" if report.failed else "")


def _plain(report: "IndexReport") -> dict[str, Any]:
    return {
        "ok": report.is_ok,
        "rebuild": report.rebuilt,
        "dry_run": report.dry_run,
        **report.checked._asdict(),
        **{name: getattr(report, name) for name in ("findings", "reindexed", "failed", "resumed")},
    }
