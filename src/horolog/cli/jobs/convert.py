"""`horolog spark convert`: rewrite many partitions in another record format, in parallel."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from horolog.cli.converting import converted_json, show_converted, show_losses
from horolog.cli.jobs.command import Call, job_command
from horolog.cli.terminal import echo
from horolog.jobs.parameters.files import Convert

if TYPE_CHECKING:
    from horolog.jobs.files.convert import ConvertReport

app = typer.Typer()


@job_command(app, Convert)
def convert(job: Convert, call: Call) -> None:
    """Run it, and show what was converted, lost and refused."""
    if not job.dry_run:
        job.require_state()
    what = f"convert to {job.to}"
    with call.working("bytes", what=what, state=job.resumable) as (spark, work):
        from horolog.jobs.files.convert import convert as job_of

        report = job_of.run(spark, replace(job, on_progress=work))
    call.show(lambda: _as_json(report), lambda: _show(report))
    if not report.is_ok:
        raise typer.Exit(1)


def _show(report: "ConvertReport") -> None:
    for each in (*report.converted, *report.refused):
        show_converted(each, report.format, dry_run=report.dry_run)
    for path, error in report.failed.items():
        echo(f"FAILED  {path}", f"        {error}")
    show_losses(report.losses, report.format)
    if report.resumed:
        echo(f"{report.resumed} parts were done before and have not changed")
    echo(
        f"{report.segments} segments, {len(report.converted)} "
        f"{'would be ' if report.dry_run else ''}converted to {report.format} "
        f"({report.records} records), {len(report.refused)} left as they are"
        + (f"; {len(report.failed)} parts failed" if report.failed else "")
    )


def _as_json(report: "ConvertReport") -> dict[str, Any]:
    return {
        "ok": report.is_ok,
        "format": report.format,
        "dry_run": report.dry_run,
        "segments": report.segments,
        "records": report.records,
        "converted": [converted_json(each) for each in report.converted],
        "refused": {each.path: each.refused for each in report.refused},
        "failed": report.failed,
        "lost": report.losses._asdict(),
        "resumed": report.resumed,
    }
