"""`horolog spark index`: verify or rebuild the indexes of many partitions in parallel."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from horolog.cli.jobs.command import Call, job_command
from horolog.cli.terminal import echo
from horolog.cli.verifying import (
    by_severity,
    reindexed_json,
    show_finding,
    show_reindexed,
    summary_of,
)
from horolog.jobs.parameters.files import Index

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
    call.show(lambda: _as_json(report), lambda: _show(report))
    if not report.is_ok:
        raise typer.Exit(1)


def _show(report: "IndexReport") -> None:
    for each in by_severity(report.findings):
        show_finding(each)
    for done in report.reindexed:
        show_reindexed(done, dry_run=report.dry_run)
    for path, error in report.failed.items():
        echo(f"FAILED  {path}", f"        {error}")
    if report.resumed:
        echo(f"{report.resumed} parts were done before and have not changed")
    summary = summary_of(report.checked, report.findings)
    if report.rebuilt:
        changed = sum(1 for each in report.reindexed if each.written)
        summary = (
            f"{report.checked.segments} segments checked, the indexes of {changed} "
            f"{'would be ' if report.dry_run else ''}rebuilt, {len(report.refused)} left unchanged"
        )
    echo(summary + (f"; {len(report.failed)} parts failed" if report.failed else ""))


def _as_json(report: "IndexReport") -> dict[str, Any]:
    return {
        "ok": report.is_ok,
        "rebuild": report.rebuilt,
        "dry_run": report.dry_run,
        **report.checked._asdict(),
        "findings": [each._asdict() for each in report.findings],
        "reindexed": [reindexed_json(each) for each in report.reindexed],
        "failed": report.failed,
        "resumed": report.resumed,
    }
