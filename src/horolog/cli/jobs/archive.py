"""`horolog spark archive`: topics as Parquet by date and hour."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import typer

from horolog.cli.jobs.command import Call, job_command
from horolog.cli.screen import say, size
from horolog.cli.terminal import echo
from horolog.errors import Misconfigured
from horolog.jobs.parameters.archive import ArchiveCommand

app = typer.Typer()


@job_command(app, ArchiveCommand)
def archive(job: ArchiveCommand, call: Call) -> None:
    """Archive, check or merge, and show what was done."""
    if job.remove_unreferenced and not job.check:
        raise Misconfigured("--remove-unreferenced goes with --check")
    if (job.check or job.merge) and (job.source is not None or (job.check and job.merge)):
        raise Misconfigured("give one of --source, --check and --merge")
    if job.check:
        problems = _check(job, call)
    elif job.merge:
        problems = _merge(job, call)
    else:
        problems = _archive(job, call)
    for where, why in problems.items():
        say(f"{where}: {why}")
    if problems:
        raise typer.Exit(1)


def _archive(job: ArchiveCommand, call: Call) -> Mapping[str, str]:
    with call.working("records", state=job.resumable) as (spark, work):
        from horolog.jobs.archives import archiving

        done = archiving.archive.run(spark, replace(job, on_progress=work))
    call.show(lambda: asdict(done), lambda: _show(done))
    return done.refused


def _check(job: ArchiveCommand, call: Call) -> Mapping[str, str]:
    with call.working("records", what="check") as (spark, work):
        from horolog.jobs.archives.checking import check_archive

        found = check_archive(
            spark,
            archive=job.archive,
            settings=job.settings,
            remove_unreferenced=job.remove_unreferenced and not job.dry_run,
            on_progress=work,
        )
    call.show(lambda: asdict(found), lambda: _show_checked(found))
    return found.problems


def _merge(job: ArchiveCommand, call: Call) -> Mapping[str, str]:
    with call.working("records", what="merge") as (spark, work):
        from horolog.jobs.archives.merging import merge_archive

        found = merge_archive(
            spark,
            archive=job.archive,
            settings=job.settings,
            target_bytes=job.target_bytes,
            dry_run=job.dry_run,
            on_progress=work,
        )
    call.show(lambda: asdict(found), lambda: _show_merged(found))
    return found.refused


def _show(done: Any) -> None:
    if done.is_dry_run:
        echo(
            f"Would archive {done.partitions} partitions in {done.archive}, about "
            f"{size(done.bytes)}, up to:"
        )
        for partition, end in done.ends.items():
            echo(f"  {partition}  {end}")
        return
    echo(
        f"Archived {done.records} records of {done.partitions} partitions ({size(done.bytes)}) in "
        f"{done.archive}: {done.files} files of records, {size(done.file_bytes)} in all, manifest "
        f"{done.manifest}"
    )


def _show_checked(found: Any) -> None:
    echo(
        f"Checked {found.files} files of {found.archive} with {found.records} records, "
        f"{size(found.bytes)}: {len(found.problems)} problems, {len(found.unreferenced)} files "
        f"that the manifest does not name, {len(found.removed)} of them removed"
    )
    for path, count in found.unreferenced.items():
        echo(f"  not named: {path}  {size(count)}")


def _show_merged(found: Any) -> None:
    would = "Would merge" if found.is_dry_run else "Merged"
    echo(
        f"{would} {found.files_before} files of {found.archive} into {found.files_after}, "
        f"{size(found.bytes)}"
    )
