"""`horolog spark convert`: rewrite many partitions in another record format, in parallel."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import typer

from horolog.cli.converting import converted_json
from horolog.cli.jobs.command import Call, job_command
from horolog.jobs.parameters.files import Convert
from horolog.report.files import converted_lines, failed_lines, loss_lines

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
    call.show(_plain(report), _lines(report), is_ok=report.is_ok)


def _lines(report: "ConvertReport") -> Iterator[str]:
    segments = (*report.converted, *report.refused)
    yield from converted_lines(segments, report.format, dry_run=report.dry_run)
    yield from failed_lines(report.failed, 0)
    yield from loss_lines(report.losses, report.format)
    yield from failed_lines({}, report.resumed)
    yield (
        f"{report.segments} segments, {len(report.converted)} "
        f"{'would be ' if report.dry_run else ''}converted to {report.format} "
        f"({report.records} records), {len(report.refused)} left as they are"
        + (f"; {len(report.failed)} parts failed" if report.failed else "")
    )


_MEMBERS: Final = ("format", "dry_run", "segments", "records", "failed", "resumed")


def _plain(report: "ConvertReport") -> dict[str, Any]:
    return {
        "ok": report.is_ok,
        **{name: getattr(report, name) for name in _MEMBERS},
        "converted": [*map(converted_json, report.converted)],
        "refused": {segment.path: segment.refused for segment in report.refused},
        "lost": report.losses,
    }
