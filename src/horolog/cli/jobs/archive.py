"""`horolog spark archive`: topics as Parquet by date and hour."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, TypeAlias

import typer

from horolog.cli.jobs.command import Call, job_command
from horolog.errors import Misconfigured
from horolog.jobs.parameters.archive import ArchiveCommand, CheckArchive, MergeArchive
from horolog.jobs.parameters.option import options_of
from horolog.results import Aside, size

app = typer.Typer()

Done: TypeAlias = tuple[Any, Iterable[str], Mapping[str, str]]
"""A result, its lines, and what is wrong, by place."""


@job_command(app, ArchiveCommand)
def archive(job: ArchiveCommand, call: Call) -> None:
    """Archive, check or merge, and show what was done."""
    if job.remove_unreferenced and not job.check:
        raise Misconfigured("--remove-unreferenced goes with --check")
    if (job.check or job.merge) and (job.source is not None or (job.check and job.merge)):
        raise Misconfigured("give one of --source, --check and --merge")
    run = _check if job.check else _merge if job.merge else _archive
    done, lines, problems = run(job, call)
    wrong = (Aside(f"{where}: {why}") for where, why in problems.items())
    call.show(done, chain(lines, wrong), is_ok=not problems)


def _archive(job: ArchiveCommand, call: Call) -> Done:
    with call.working("records", state=job.resumable) as (spark, work):
        from horolog.jobs.archives import archiving

        done = archiving.archive.run(spark, replace(job, on_progress=work))
    return done, _lines(done), done.refused


def _check(job: ArchiveCommand, call: Call) -> Done:
    with call.working("records", what="check") as (spark, work):
        from horolog.jobs.archives.checking import check_archive

        removes = job.remove_unreferenced and not job.dry_run
        checked = check_archive.run(
            spark, options_of(CheckArchive, job, remove_unreferenced=removes, on_progress=work)
        )
    return checked, _checked(checked), checked.problems


def _merge(job: ArchiveCommand, call: Call) -> Done:
    with call.working("records", what="merge") as (spark, work):
        from horolog.jobs.archives.merging import merge_archive

        merged = merge_archive.run(spark, options_of(MergeArchive, job, on_progress=work))
    return merged, [_merged(merged)], merged.refused


def _lines(done: Any) -> Iterator[str]:
    if done.is_dry_run:
        yield (
            f"Would archive {done.partitions} partitions in {done.archive}, about "
            f"{size(done.bytes)}, up to:"
        )
        yield from (f"  {partition}  {end}" for partition, end in done.ends.items())
        return
    yield (
        f"Archived {done.records} records of {done.partitions} partitions ({size(done.bytes)}) in "
        f"{done.archive}: {done.files} files of records, {size(done.file_bytes)} in all, manifest "
        f"{done.manifest}"
    )


def _checked(checked: Any) -> Iterator[str]:
    yield (
        f"Checked {checked.files} files of {checked.archive} with {checked.records} records, "
        f"{size(checked.bytes)}: {len(checked.problems)} problems, {len(checked.unreferenced)} "
        f"files that the manifest does not name, {len(checked.removed)} of them removed"
    )
    for path, count in checked.unreferenced.items():
        yield f"  not named: {path}  {size(count)}"


def _merged(merged: Any) -> str:
    would = "Would merge" if merged.is_dry_run else "Merged"
    return (
        f"{would} {merged.files_before} files of {merged.archive} into {merged.files_after}, "
        f"{size(merged.bytes)}"
    )
