"""`horolog spark archive`: topics as Parquet by date and hour."""

from dataclasses import replace

import typer

from horolog.cli.jobs.command import Call, job_command
from horolog.errors import Misconfigured
from horolog.jobs.parameters.archive import ArchiveCommand, CheckArchive, MergeArchive
from horolog.jobs.parameters.option import options_of
from horolog.results import Outcome

app = typer.Typer()


@job_command(app, ArchiveCommand)
def archive(job: ArchiveCommand, call: Call) -> None:
    """Archive, check or merge, and show what was done."""
    if job.remove_unreferenced and not job.check:
        raise Misconfigured("--remove-unreferenced goes with --check")
    if (job.check or job.merge) and (job.source is not None or (job.check and job.merge)):
        raise Misconfigured("give one of --source, --check and --merge")
    what = "check" if job.check else "merge" if job.merge else None
    state = None if what else job.resumable
    with call.working("records", what=what, state=state) as (spark, work):
        from horolog.jobs.archives import archiving, checking, merging

        done: Outcome
        if job.check:
            removes = job.remove_unreferenced and not job.dry_run
            check = options_of(CheckArchive, job, remove_unreferenced=removes, on_progress=work)
            done = checking.check_archive.run(spark, check)
        elif job.merge:
            merge = options_of(MergeArchive, job, on_progress=work)
            done = merging.merge_archive.run(spark, merge)
        else:
            done = archiving.archive.run(spark, replace(job, on_progress=work))
    call.show(done)
